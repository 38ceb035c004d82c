"""Train a small network on data of known truth, or on yours, with one process or many ranks.

    python examples/train_faux.py
    mpiexec -n 64 python examples/train_faux.py --model logistic
    srun -n 64 python examples/train_faux.py --data digits --model conv
    python examples/train_faux.py --data measurements.csv --target yield

The report at the end compares what was learned with the truth. Exit code: 0 if it was recovered and all ranks agree,
1 if not, 2 for a wrong argument or bad data.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim
from minigrad.train import Phases, accuracy, fit, parser

ACTIVATIONS = {"logistic": nn.Logistic, "relu": nn.ReLU, "arctan": nn.Arctan}
OPTIMIZERS = {"sgd": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW, "lars": optim.LARS, "lamb": optim.LAMB}
#         rate, epochs, samples, batch: what recovers the truth
DEFAULTS = {
    "line": (0.3, 20, 4096, 256),
    "polynomial": (0.3, 80, 4096, 256),
    "exponential": (0.1, 40, 4096, 256),
    "logistic": (1.0, 40, 8192, 256),
    "mlp": (0.5, 12, 20480, 1024),
    "conv": (0.1, 20, 4096, 256),
}
DIGITS = {"mlp": (0.1, 40, None, 256), "conv": (0.1, 20, None, 128)}


#         accuracy that must be reached on held-out rows where no parameters can be compared
REQUIRED = {("faux", "mlp"): 0.9, ("faux", "conv"): 0.95, ("digits", "mlp"): 0.96, ("digits", "conv"): 0.96}


class Polynomial(nn.Module):
    """y = Σ c_k x^k."""

    def __init__(self, degree):
        self.coefficients = nn.Parameter(np.zeros(degree + 1, np.float32))

    def forward(self, x):  # (B, 1)
        powers = np.concatenate([x**k for k in range(len(self.coefficients))], axis=1)
        return powers @ self.coefficients


class Exponential(nn.Module):
    """y = a e^(b x)."""

    def __init__(self):
        self.a = nn.Parameter(np.ones(1, np.float32))
        self.b = nn.Parameter(np.zeros(1, np.float32))

    def forward(self, x):  # (B, 1)
        return (self.a * mg.exp(self.b * x))[:, 0]


def arguments(comm):
    p = parser(comm, __doc__)
    p.add_argument("--model", choices=DEFAULTS, default="mlp")
    p.add_argument("--activation", choices=ACTIVATIONS, default="relu", help="of the mlp and conv models")
    p.add_argument("--hidden", type=int, nargs="*", default=[128, 128], metavar="N", help="units of each hidden layer")
    p.add_argument("--data", default="faux", metavar="faux|digits|PATH", help="PATH: an .npz, .csv or IDX file")
    p.add_argument("--target", metavar="COLUMN", help="of a csv: name or number of the column to predict")
    p.add_argument("--regression", action="store_true", help="whole-number targets are numbers, not classes")
    p.add_argument("--labels", metavar="PATH", help="IDX: the file of labels, if it cannot be found beside the images")
    p.add_argument("--held-out", type=float, default=0.2, metavar="FRACTION", help="for validation, drawn at random")
    p.add_argument("--last", action="store_true", help="hold out the last rows instead")
    p.add_argument("--require", type=float, metavar="A", help="accuracy (regression: R²) on held-out rows to be reached")
    p.add_argument("--samples", type=int, help="how many faux samples to draw")
    p.add_argument("--batch", type=int, help="global batch, split over the ranks")
    p.add_argument("--epochs", type=int)
    p.add_argument("--rate", type=float, help="learning rate")
    p.add_argument("--schedule", choices=("constant", "step", "cosine"), default="cosine")
    p.add_argument("--warm-up", type=int, default=0, metavar="UPDATES")
    p.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    p.add_argument("--momentum", type=float, default=0.9, help="of sgd and lars")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    p.add_argument("--history", metavar="PATH", help="write the loss curve as .csv or .jsonl")
    p.add_argument("--plot", metavar="PATH", help="write the loss curve as .png")
    p.add_argument("--checkpoint", metavar="PATH", help="an .npz written after each epoch; training goes on from it")
    p.add_argument("--quiet", action="store_true", help="print only the final report")
    args = p.parse_args()
    defaults = DIGITS.get(args.model) if args.data != "faux" else None
    for name, value in zip(("rate", "epochs", "samples", "batch"), defaults or DEFAULTS[args.model]):
        if getattr(args, name) is None:
            slow = name == "epochs" and args.model == "mlp" and args.activation == "logistic"
            setattr(args, name, 3 * value if slow else value)
    for name in ("samples", "batch", "epochs", "rate"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            p.error(f"--{name} is {value}; expected a positive number")
    if not 0 < args.held_out < 1:
        p.error(f"--held-out is {args.held_out}; expected a fraction between 0 and 1")
    if min(args.hidden, default=1) < 1 or args.warm_up < 0:
        p.error("--hidden and --warm-up take positive numbers")
    for path, endings in ((args.history, (".csv", ".jsonl")), (args.plot, (".png",)), (args.checkpoint, (".npz",))):
        if path is not None and (not path.endswith(endings) or not Path(path).resolve().parent.is_dir()):
            p.error(f"{path}: expected a file ending in {' or '.join(endings)} in a directory that exists")
    return args


def load(args):
    """Return x, y and, for faux data, the truth behind them."""
    if args.data == "faux":
        faux = getattr(data.faux, args.model)(args.samples, seed=args.seed, dtype=np.dtype(args.dtype))
        return faux.x, faux.y, faux
    x, y = data.digits() if args.data == "digits" else data.read(args.data, labels=args.labels, target=args.target)
    if args.regression or args.model in ("line", "polynomial", "exponential"):
        y = y.astype(args.dtype)
    elif args.model == "logistic" and y.dtype.kind == "f":
        raise data.DataError(f"{args.data}: --model logistic needs classes 0, 1, ...; found {y.min()} to {y.max()}")
    elif y.dtype.kind == "i" and y.max() >= max(1000, len(y) // 2):
        raise data.DataError(f"{args.data}: targets up to {y.max()} are no classes; pass --regression if they are numbers")
    return x.astype(args.dtype), y if y.dtype.kind == "i" else y.astype(args.dtype), None


def standardised(a, kept):
    """Return a with mean 0 and standard deviation 1 over the rows kept for training."""
    spread = a[kept].std(axis=0)
    return ((a - a[kept].mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(a.dtype)


def build(args, x, y, rng):
    """Return the model for inputs like x and targets like y, in the dtype of x."""
    classes = int(y.max()) + 1 if y.dtype.kind in "iu" else 1
    features = int(np.prod(x.shape[1:]))
    activation = ACTIVATIONS[args.activation]
    if args.model in ("polynomial", "exponential") and features != 1:
        raise data.DataError(f"{args.data}: --model {args.model} takes one input column, found {features}; use --model mlp")
    if args.model == "polynomial":
        model = Polynomial(degree=3)
    elif args.model == "exponential":
        model = Exponential()
    elif args.model in ("line", "logistic"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(features, 1 if classes <= 2 else classes, rng=rng))
    elif args.model == "mlp":
        sizes = [features, *args.hidden]
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b, rng=rng), activation())]
        model = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], classes, rng=rng))
    else:
        side = 1 if x.ndim == 4 else round(features**0.5)
        channels, height, width = x.shape[1:] if x.ndim == 4 else (1, side, side)
        if channels * height * width != features:
            raise data.DataError(f"--model conv needs square images; rows have {features} values: use --model mlp")
        model = nn.Sequential(
            nn.Reshape(channels, height, width),
            nn.Conv2d(channels, 16, 3, padding=1, rng=rng), activation(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, rng=rng), activation(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), classes, rng=rng),
        )  # fmt: skip
    if args.activation == "logistic" and args.model in ("mlp", "conv"):
        for name, p in model.named_parameters():
            if name.endswith("w") and p is not model[-1].w:
                p.data *= 4  # its slope is 1/4 at most: X. Glorot and Y. Bengio, AISTATS 2010, section 4.2.1
    return model.astype(x.dtype)


def objective(y):
    """Return (loss, metrics): cross-entropy and accuracy for classes, squared error for numbers."""

    def cross_entropy(model, x, y):
        scores = model(x)
        if scores.shape[1] == 1:
            return mg.binary_cross_entropy_with_logits(scores[:, 0], y.astype(x.dtype), reduction="sum_count")
        return mg.cross_entropy(scores, y, reduction="sum_count")

    def squared_error(model, x, y):
        return mg.mse(model(x).reshape(y.shape), y, reduction="sum_count")

    return (cross_entropy, {"accuracy": hits}) if y.dtype.kind in "iu" else (squared_error, {})


def hits(model, x, y):
    """Return how many rows are classified correctly, and how many there are."""
    scores = model(x)
    if scores.shape[1] == 1:
        return float(np.count_nonzero((scores.data[:, 0] > 0) == y)), float(len(y))
    return accuracy(model, x, y)


def optimizer_of(args, model, steps):
    schedule = {
        "constant": lambda: optim.constant(args.rate),
        "step": lambda: optim.step_decay(args.rate, every=max(steps // 3, 1)),
        "cosine": lambda: optim.cosine(args.rate, steps),
    }[args.schedule]()
    if args.warm_up:
        schedule = optim.warm_up(schedule, args.warm_up)
    extra = {"momentum": args.momentum} if args.optimizer in ("sgd", "lars") else {}
    return OPTIMIZERS[args.optimizer](model.parameters(), lr=schedule, **extra)


def learned(args, model):
    """Return the parameters under the names that faux data give their truth; networks have none."""
    p = {name: value.data for name, value in model.named_parameters()}
    if args.model == "line":
        return {"slope": p["1.w"].item(), "intercept": p["1.b"].item()}
    if args.model == "logistic":
        return {"w": p["1.w"][:, 0], "b": p["1.b"].item()}
    return p if args.model in ("polynomial", "exponential") else {}


def compare(truth, found, errors):
    """Print truth beside what was found; return whether all lies within five standard errors."""
    print(f"{'parameter':16s}{'truth':>12s}{'found':>12s}{'std. error':>12s}")
    good = True
    for name, value in found.items():
        rows = zip(np.ravel(truth[name]), np.ravel(value), np.ravel(errors[name]))
        for i, (true, got, error) in enumerate(rows):
            label = name if np.size(value) == 1 else f"{name}[{i}]"
            within = abs(got - true) <= 5 * error
            good &= bool(within)
            print(f"{label:16s}{true:12.5f}{got:12.5f}{error:12.5f}{'' if within else '  <- off'}")
    return good


def main():
    comm = dist.init()
    args = arguments(comm)
    try:
        return run(args, comm)
    except (ValueError, OSError, ModuleNotFoundError, FloatingPointError) as error:
        dist.stop(comm, f"train_faux: {error}")


def run(args, comm):
    x, y, faux = load(args)
    rng = np.random.default_rng(args.seed)
    order = np.arange(len(x)) if args.last else rng.permutation(len(x))
    held = order[len(x) - max(round(args.held_out * len(x)), 1) :]
    kept = order[: len(x) - len(held)]
    if args.data not in ("faux", "digits") and x.ndim == 2:  # a table, in whatever units
        x = standardised(x, kept)
        y = standardised(y, kept) if y.dtype.kind == "f" else y
    shard = {"batch": args.batch, "seed": args.seed, "rank": comm.rank, "size": comm.size}
    loader = data.Loader(x[kept], y[kept], **shard)
    unseen = data.Loader(x[held], y[held], **shard, shuffle=False)

    model = build(args, x, y, rng)
    loss, metrics = objective(y)
    optimizer = optimizer_of(args, model, args.epochs * loader.steps)
    phases = Phases()
    history = fit(
        model, loss, optimizer, loader, args.epochs, comm=comm, validation=unseen, metrics=metrics,
        checkpoint=args.checkpoint, quiet=args.quiet, phases=phases,
    )  # fmt: skip
    if comm.rank == 0:
        for path in filter(None, (args.history, args.plot)):
            history.save(path)
    return report(args, comm, model, optimizer, history, phases, faux, y[held])


def report(args, comm, model, optimizer, history, phases, faux, truth):
    """Print what was learned and what it cost; return the exit code. Collective."""
    differ = dist.differences(model, comm)
    table = phases.table(comm, history.steps)
    if comm.rank > 0:
        return 0
    good = not differ
    last = history.rows[-1]
    size = sum(p.size for p in model.parameters())
    print(f"\n{args.model} on {args.data}, {size:,} parameters, {comm.size} rank(s), {optimizer.steps} steps")
    print(f"loss {history['loss'][0]:.4g} -> {last['loss']:.4g}, on held-out rows {last['val_loss']:.4g}")
    found = learned(args, model) if faux else {}
    if found:
        print(faux.equation)
        good &= compare(faux.truth, found, faux.errors)
    needed = args.require if args.require is not None else REQUIRED.get((args.data, args.model))
    if "accuracy" in last:
        quality, name = last["accuracy"], "accuracy"
    else:
        quality, name = 1 - last["val_loss"] / np.var(truth), "R²"
    print(f"{name} on {len(truth)} held-out rows: {quality:.4f}" + (f" (needed: {needed})" if needed else ""))
    good &= needed is None or quality >= needed
    print(table)
    expected = optimizer.block.reduced.nbytes
    measured = history.bytes / max(history.steps, 1)
    good &= measured == expected or history.steps == 0
    print(f"bytes reduced a step and rank: {measured:,.0f}, expected {expected:,}")
    print("parameters identical on all ranks" if not differ else f"RANKS DIFFER: {'; '.join(differ)}")
    print("recovered" if good else "NOT RECOVERED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
