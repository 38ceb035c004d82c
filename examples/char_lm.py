"""A recurrent language model on characters: an LSTM, GRU or plain RNN reads a text and learns to go on writing it.

The text is cut into parallel streams; each step reads the next few characters of every stream, with the state carried on and
gradients cut there (truncated backpropagation through time).

    python examples/char_lm.py                               # English text that every Python carries
    mpiexec -n 2 python examples/char_lm.py --data tinyshakespeare.txt --model gru

Exit code: 0 if the loss on held-out text falls below that of counting characters and all ranks agree, 1 if not, 2 for bad
input.
"""

import sys
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim
from minigrad.train import fit, parser

KINDS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class Writer(nn.Module):
    """Embedding, recurrent layers, and scores of the next character."""

    def __init__(self, kind, characters, hidden, layers, dropout, rng):
        self.embed = nn.Embedding(characters, hidden // 2, rng=rng)
        self.recur = KINDS[kind](hidden // 2, hidden, rng=rng, layers=layers, dropout=dropout)
        self.score = nn.Linear(hidden, characters, rng=rng)
        self.state = None  # of every stream, after what was read last

    def forward(self, x):  # (B, T)
        y, state = self.recur(self.embed(x), self.state)
        self.state = nn.detach(state)
        return self.score(y)


def main():
    comm = dist.init()
    p = parser(comm, __doc__)
    p.add_argument("--data", metavar="PATH", help="a text file")
    p.add_argument("--characters", type=int, default=200_000, help="read only so many (0: all)")
    p.add_argument("--model", choices=KINDS, default="lstm")
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--layers", type=int, default=1)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--streams", type=int, default=32, help="global batch, split over the ranks")
    p.add_argument("--steps", type=int, default=64, help="characters between two cuts of the gradient")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--rate", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--sample", type=int, default=300)
    p.add_argument("--quiet", action="store_true")
    args = p.parse_args()
    try:
        return run(args, comm)
    except (ValueError, OSError, FloatingPointError) as error:
        dist.stop(comm, f"char_lm: {error}")


def run(args, comm):
    if args.data is None:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
    else:
        text = Path(args.data).read_text(encoding="utf-8")
    text = text[: args.characters or None]
    letters = sorted(set(text))
    tokens = np.array([letters.index(c) for c in text], np.int64)

    def loader(part):
        """Rows in the order step by step, all streams of a step together: a rank keeps its streams."""
        chunks = (len(part) - 1) // (args.streams * args.steps)
        if chunks < 1:
            need = args.streams * args.steps + 1
            raise data.DataError(f"{len(part)} characters are too few: {args.streams} streams of {args.steps} need {need}")
        length = chunks * args.steps
        starts = np.arange(args.streams) * length
        rows = (starts[None, :] + args.steps * np.arange(chunks)[:, None]).reshape(-1, 1) + np.arange(args.steps)
        settings = {"batch": args.streams, "rank": comm.rank, "size": comm.size, "shuffle": False}
        return data.Loader(part[rows], part[rows + 1], np.arange(len(rows)) < args.streams, **settings)

    cut = len(tokens) * 9 // 10
    training, held = loader(tokens[:cut]), loader(tokens[cut:])
    model = Writer(args.model, len(letters), args.hidden, args.layers, args.dropout, np.random.default_rng(args.seed))
    optimizer = optim.Adam(model.parameters(), lr=optim.cosine(args.rate, args.epochs * training.steps))

    def loss(model, x, y, first):
        if first.any():
            model.state = None  # a stream begins
        return mg.cross_entropy(model(x), y, reduction="sum_count")

    history = fit(model, loss, optimizer, training, args.epochs, comm=comm, validation=held, max_norm=1.0, quiet=args.quiet)
    differ = dist.differences(model, comm)
    if comm.rank:
        return 0
    shares = np.bincount(tokens[:cut]) / cut
    entropy = -np.sum(shares[shares > 0] * np.log(shares[shares > 0]))
    reached = history["val_loss"][-1]
    print(f"{args.model}, {len(letters)} characters, {comm.size} rank(s): {reached:.4f} nats a character held out")
    print(f"(counting characters gives {entropy:.4f})")
    draw = np.random.default_rng(args.seed)
    model.eval()
    model.state = None
    start = np.array([[letters.index("\n") if "\n" in letters else 0]])
    new = nn.generate(lambda t, cache: model(t), start, args.sample, rng=draw, temperature=0.7)
    print("--- sample\n" + "".join(letters[t] for t in new[0]) + "\n---")
    print("parameters identical on all ranks" if not differ else f"RANKS DIFFER: {'; '.join(differ)}")
    return 0 if reached < entropy and not differ else 1


if __name__ == "__main__":
    sys.exit(main())
