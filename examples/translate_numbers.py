"""Translate: an encoder reads a date as people write it, a decoder writes it in normal form, "3rd of May 1998" -> "1998-05-03".

    python examples/translate_numbers.py
    mpiexec -n 2 python examples/translate_numbers.py --say "July 20, 1969"

Exit code: 0 if enough held-out dates are exactly right and all ranks agree, 1 if not, 2 for bad input.
"""

import calendar
import datetime
import sys

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim
from minigrad.train import fit, parser

MONTHS = list(calendar.month_name)[1:]
SOURCE = data.Vocabulary("abcdefghijklmnopqrstuvwxyz0123456789 ,./")
BEGIN, END = "^", "$"
TARGET = data.Vocabulary("0123456789-^$")
WRITTEN = 12  # characters of ^YYYY-MM-DD$


def write(date, form):
    """Return a date in one of eight ways of writing it."""
    day, month, year = date.day, MONTHS[date.month - 1], date.year
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return (
        f"{day} {month} {year}", f"{month} {day}, {year}", f"{day}{ending} of {month} {year}", f"{day}.{date.month}.{year}",
        f"{day:02d}/{date.month:02d}/{year}", f"{month[:3]} {day} {year}", f"{day} {month[:3]}. {year}",
        f"{year}/{date.month}/{day}",
    )[form].lower()  # fmt: skip


def pairs(n, seed):
    """Return n (written, normal) pairs of distinct dates from 1900 to 2099."""
    rng = np.random.default_rng(seed)
    days = rng.choice(73049, n, replace=False)
    dates = [datetime.date(1900, 1, 1) + datetime.timedelta(int(d)) for d in days]
    return [(write(date, rng.integers(8)), date.isoformat()) for date in dates]


def arrays(some):
    """Return sources (n, S), which of their characters are real, and targets (n, 12) from ^ to $."""
    x, lengths = data.pad([np.array(SOURCE.encode(text)) for text, _ in some])
    y = np.array([TARGET.encode(BEGIN + normal + END) for _, normal in some])
    return x, np.arange(x.shape[1]) < lengths[:, None], y


def translate(model, x, mask):
    """Return the texts that the model writes for sources x, each character the most likely one."""
    with mg.no_grad():
        memory = model.encode(x, mask)
        begin = np.full((len(x), 1), TARGET.numbers[BEGIN])
        new = nn.generate(lambda t, c: model.decode(t, memory, mask, c), begin, WRITTEN - 1, end=TARGET.numbers[END])
    return ["".join(TARGET.decode(row)).split(END)[0] for row in new]


def main():
    comm = dist.init()
    p = parser(comm, __doc__)
    p.add_argument("--samples", type=int, default=6000)
    p.add_argument("--epochs", type=int, default=7)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--require", type=float, default=0.95, metavar="A", help="share of held-out dates to be exactly right")
    p.add_argument("--say", default="3rd of may 1998", metavar="DATE", help="translate this")
    p.add_argument("--quiet", action="store_true")
    args = p.parse_args()
    if not 100 <= args.samples <= 70000:
        p.error(f"--samples is {args.samples}; expected 100 to 70000")
    try:
        return run(args, comm)
    except (ValueError, FloatingPointError) as error:
        dist.stop(comm, f"translate_numbers: {error}")


def run(args, comm):
    everything = pairs(args.samples, args.seed)
    held = everything[-args.samples // 10 :]
    shard = {"batch": args.batch, "seed": args.seed, "rank": comm.rank, "size": comm.size}
    training = data.Loader(*arrays(everything[: -len(held)]), **shard)
    unseen = data.Loader(*arrays(held), **shard, shuffle=False)
    rng = np.random.default_rng(args.seed)
    model = nn.EncoderDecoder(len(SOURCE), len(TARGET), args.width, 4, args.layers, 32, rng=rng, dropout=0.0)
    steps = args.epochs * training.steps
    optimizer = optim.AdamW(model.parameters(), lr=optim.warm_up(optim.cosine(args.rate, steps), max(steps // 10, 1)))

    def loss(model, x, mask, y):
        return mg.cross_entropy(model(x, y[:, :-1], mask), y[:, 1:], reduction="sum_count")

    def exact(model, x, mask, y):
        truth = ["".join(TARGET.decode(row[1:])).split(END)[0] for row in y]
        return float(sum(a == b for a, b in zip(translate(model, x, mask), truth))), float(len(y))

    history = fit(
        model, loss, optimizer, training, args.epochs, comm=comm, validation=unseen, metrics={"exact": exact}, max_norm=1.0,
        quiet=args.quiet,
    )  # fmt: skip
    differ = dist.differences(model, comm)
    if comm.rank:
        return 0
    model.eval()
    for text, normal in [*held[:5], *([(args.say.lower(), "?")] if args.say else [])]:
        print(f"{text:24s} -> {translate(model, *arrays([(text, '2000-01-01')])[:2])[0]:12s} ({normal})")
    reached = history["exact"][-1]
    print(f"{reached:.4f} of {len(held)} held-out dates exactly right (needed: {args.require}), {comm.size} rank(s)")
    print("parameters identical on all ranks" if not differ else f"RANKS DIFFER: {'; '.join(differ)}")
    return 0 if reached >= args.require and not differ else 1


if __name__ == "__main__":
    sys.exit(main())
