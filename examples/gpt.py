"""A small GPT on characters: a decoder that learns to continue a text.

    python examples/gpt.py                                 # on English text that every Python carries
    mpiexec -n 2 python examples/gpt.py --data tinyshakespeare.txt --iterations 2000 --require 1.88

Exit code: 0 if the validation loss is reached and all ranks agree, 1 if not, 2 for bad input.
"""

import sys
import time
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim
from minigrad.train import parser


def read_text(path):
    """Return the text of a file, or of Python's own help topics."""
    if path is None:
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics))
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise data.DataError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def main():
    comm = dist.init()
    p = parser(comm, __doc__)
    p.add_argument("--data", metavar="PATH", help="a text file")
    p.add_argument("--iterations", type=int, default=500)
    p.add_argument("--batch", type=int, default=12, help="global batch, split over the ranks")
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=1337)
    p.add_argument("--require", type=float, metavar="LOSS", help="validation loss to be reached")
    p.add_argument("--sample", type=int, default=300, help="characters to write at the end")
    p.add_argument("--quiet", action="store_true")
    args = p.parse_args()
    try:
        return run(args, comm)
    except (ValueError, OSError) as error:
        dist.stop(comm, f"gpt: {error}")


def run(args, comm):
    text = read_text(args.data)
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    tokens = np.array([number[c] for c in text], np.int64)
    cut = len(tokens) * 9 // 10
    if len(tokens) - cut < args.context + 2 or args.batch < comm.size:
        sizes = f"{len(tokens)} characters, context {args.context}, batch {args.batch} on {comm.size} rank(s)"
        raise data.DataError(f"{sizes}: too few characters for this context, or a batch smaller than the ranks")
    model = nn.LanguageModel(
        len(letters), args.width, args.heads, args.layers, args.context, rng=np.random.default_rng(args.seed),
        dropout=args.dropout, seed=args.seed,
    )  # fmt: skip
    warm = max(args.iterations // 20, 1)
    schedule = optim.warm_up(optim.cosine(args.rate, args.iterations, floor=args.rate / 10), warm)
    optimizer = optim.AdamW(model.parameters(), lr=schedule, betas=(0.9, 0.99), weight_decay=0.1)
    reducer = dist.Reducer(optimizer.block, comm)
    dist.broadcast(model, comm)

    windows = np.lib.stride_tricks.sliding_window_view(tokens[:cut], args.context + 1)  # every place to start from
    share = slice(args.batch * comm.rank // comm.size, args.batch * (comm.rank + 1) // comm.size)
    rng = np.random.default_rng(args.seed)  # the same on all ranks: each takes its share of one global batch
    begin, tick = time.perf_counter(), max(args.iterations // 10, 1)
    for i in range(args.iterations):
        batch = windows[rng.integers(0, len(windows), args.batch)[share]]
        optimizer.zero_grad()
        model.sample_offset(share.start)
        loss = mg.cross_entropy(model(batch[:, :-1]), batch[:, 1:], reduction="sum")
        loss.backward()
        mean = reducer.finish(loss, batch[:, 1:].size)
        optimizer.clip(1.0)
        optimizer.step()
        if not np.isfinite(mean):
            raise ValueError(f"the loss is {mean} at iteration {i}; lower --rate")
        if comm.rank == 0 and not args.quiet and (i + 1) % tick == 0:
            pace = (time.perf_counter() - begin) / (i + 1)
            line = f"iteration {i + 1}  loss {mean:.4f}  rate {optimizer.rate:.2e}  {pace * 1e3:.1f} ms"
            print(line, file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begin

    held = tokens[cut:]
    starts = np.arange(0, len(held) - args.context - 1, args.context)[comm.rank :: comm.size]
    totals = np.zeros(2)
    model.eval()
    with mg.no_grad():
        for some in np.array_split(starts, max(len(starts) // 64, 1)):
            x = np.stack([held[s : s + args.context + 1] for s in some]) if len(some) else np.zeros((0, args.context + 1), int)
            totals += mg.cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="sum").item(), x[:, 1:].size
    comm.all_reduce(totals)
    validation = totals[0] / totals[1]
    differ = dist.differences(model, comm)
    if comm.rank:
        return 0
    size = sum(p.size for p in model.parameters())
    print(f"{size:,} parameters, {len(letters)} characters, {comm.size} rank(s)")
    print(f"{args.iterations} iterations in {seconds:.1f} s")
    print(f"validation loss {validation:.4f}" + (f" (needed: {args.require})" if args.require else ""))
    written = np.array([[number.get("\n", 0)]])
    draw = np.random.default_rng(args.seed)
    out = []
    while len(out) < args.sample:  # the context slides on when it is full
        ahead = min(args.sample - len(out), args.context // 2)
        prompt = written[:, -(args.context - ahead) :]
        new = nn.generate(lambda t, c: model(t, cache=c), prompt, ahead, rng=draw, temperature=0.8, top_p=0.95)
        written = np.concatenate([written, new], axis=1)
        out += [letters[t] for t in new[0]]
    print("--- sample\n" + "".join(out) + "\n---")
    print("parameters identical on all ranks" if not differ else f"RANKS DIFFER: {'; '.join(differ)}")
    return 0 if not differ and (args.require is None or validation <= args.require) else 1


if __name__ == "__main__":
    sys.exit(main())
