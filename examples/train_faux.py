"""Train a small network on data of known truth, or on yours, with one process or many ranks.

    python examples/train_faux.py
    mpiexec -n 64 python examples/train_faux.py --model logistic
    srun -n 64 python examples/train_faux.py --data digits --model conv
    python examples/train_faux.py --data measurements.csv --target yield

The report at the end compares what was learned with the truth. Exit code: 0 if it was recovered and all ranks agree,
1 if not, 2 for a wrong argument or bad data.
"""

import argparse
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim
from minigrad.train import Phases, accuracy, evaluate, fit

ACTIVATIONS = {"logistic": nn.Logistic, "relu": nn.ReLU, "arctan": nn.Arctan}
OPTIMIZERS = {"sgd": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW, "lars": optim.LARS, "lamb": optim.LAMB}
#         rate, epochs, samples: what recovers the truth with the default batch of 256
DEFAULTS = {
    "line": (0.3, 20, 4096),
    "polynomial": (0.3, 80, 4096),
    "exponential": (0.1, 40, 4096),
    "logistic": (1.0, 40, 8192),
    "mlp": (0.2, 20, 8192),
    "conv": (0.1, 8, 2048),
}


class Polynomial(nn.Module):
    """y = Σ c_k x^k."""

    def __init__(self, degree):
        self.coefficients = nn.Parameter(np.zeros(degree + 1, np.float32))

    def forward(self, x):  # (B, 1)
        return (x ** np.arange(len(self.coefficients))) @ self.coefficients


class Exponential(nn.Module):
    """y = a e^(b x)."""

    def __init__(self):
        self.a = nn.Parameter(np.ones(1, np.float32))
        self.b = nn.Parameter(np.zeros(1, np.float32))

    def forward(self, x):  # (B, 1)
        return (self.a * mg.exp(self.b * x))[:, 0]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=DEFAULTS, default="mlp")
    p.add_argument("--activation", choices=ACTIVATIONS, default="relu", help="of the mlp and conv models")
    p.add_argument("--hidden", type=int, nargs="*", default=[128, 128], metavar="N", help="units of each hidden layer")
    p.add_argument("--data", default="faux", metavar="faux|digits|PATH", help="PATH: an .npz, .csv or IDX file")
    p.add_argument("--target", metavar="COLUMN", help="of a csv: name or number of the column to predict")
    p.add_argument("--labels", metavar="PATH", help="IDX: the file of labels, if it cannot be found beside the images")
    p.add_argument("--held-out", type=float, default=0.2, metavar="FRACTION", help="for validation, drawn at random")
    p.add_argument("--last", action="store_true", help="hold out the last rows instead")
    p.add_argument("--require", type=float, metavar="A", help="accuracy (regression: R²) on held-out rows to be reached")
    p.add_argument("--samples", type=int, help="how many faux samples to draw")
    p.add_argument("--batch", type=int, default=256, help="global batch, split over the ranks")
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
    return p


def load(args):
    """Return x, y and, for faux data, the truth behind them."""
    if args.data == "faux":
        samples = args.samples or DEFAULTS[args.model][2]
        faux = getattr(data.faux, args.model)(samples, seed=args.seed, dtype=np.dtype(args.dtype))
        return faux.x, faux.y, faux
    x, y = data.digits() if args.data == "digits" else data.read(args.data, labels=args.labels, target=args.target)
    return x.astype(args.dtype), y if y.dtype.kind in "iu" else y.astype(args.dtype), None


def build(args, x, y, rng):
    """Return the model for inputs like x and targets like y, in the dtype of x."""
    classes = int(y.max()) + 1 if y.dtype.kind in "iu" else 1
    features = int(np.prod(x.shape[1:]))
    activation = ACTIVATIONS[args.activation]
    if args.model == "polynomial":
        model = Polynomial(degree=3)
    elif args.model == "exponential":
        model = Exponential()
    elif args.model in ("line", "logistic"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(features, 1 if classes <= 2 else classes, rng=rng))
    elif args.model == "mlp":
        sizes = [features, *args.hidden]
        hidden = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b, rng=rng), activation())]
        model = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], classes, rng=rng))
    else:
        side = 1 if x.ndim == 4 else round(features**0.5)
        channels, height, width = x.shape[1:] if x.ndim == 4 else (1, side, side)
        if channels * height * width != features:
            raise data.DataError(f"--model conv needs square images; rows have {features} values: use --model mlp")
        model = nn.Sequential(
            Images(channels, height, width),
            nn.Conv2d(channels, 16, 3, padding=1, rng=rng), activation(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, rng=rng), activation(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), classes, rng=rng),
        )  # fmt: skip
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
    rate = args.rate or DEFAULTS[args.model][0]
    schedule = {
        "constant": lambda: optim.constant(rate),
        "step": lambda: optim.step_decay(rate, every=max(steps // 3, 1)),
        "cosine": lambda: optim.cosine(rate, steps),
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
    args = arguments().parse_args()
    comm = dist.init()
    try:
        report = run(args, comm)
    except (data.DataError, OSError) as error:
        dist.stop(comm, f"train_faux: {error}")
    return report


def run(args, comm):
    x, y, faux = load(args)
    rng = np.random.default_rng(args.seed)
    order = np.arange(len(x)) if args.last else rng.permutation(len(x))
    held = order[len(x) - round(args.held_out * len(x)) :]
    kept = order[: len(x) - len(held)]
    shard = {"seed": args.seed, "rank": comm.rank, "size": comm.size}
    loader = data.Loader(x[kept], y[kept], args.batch, **shard)
    unseen = data.Loader(x[held], y[held], args.batch, **shard, shuffle=False)

    model = build(args, x, y, rng)
    loss, metrics = objective(y)
    epochs = args.epochs or DEFAULTS[args.model][1]
    optimizer = optimizer_of(args, model, epochs * loader.steps)
    phases = Phases()
    history = fit(
        model, loss, optimizer, loader, epochs, comm=comm, validation=unseen, metrics=metrics,
        checkpoint=args.checkpoint, quiet=args.quiet, phases=phases,
    )  # fmt: skip
    return history
