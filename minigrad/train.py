"""The training loop that people expect: progress, validation, history, checkpoint, and where the time went.

:func:`fit` does nothing that these lines do not do; they are the documented way, and everything else here is comfort::

    for x, y in loader.epoch(e):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        mean = reducer.finish(loss, len(y))
        optimizer.step()
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import dist
from .data import Loader
from .engine import Tensor, no_grad
from .nn import Module
from .optim import Optimizer

__all__ = ["History", "Phases", "accuracy", "evaluate", "fit", "load_checkpoint", "parser", "save_checkpoint"]

Pair = tuple[Any, float]  # a sum over samples, and the count that turns it into a mean
Loss = Callable[..., Pair]


# --- what a run leaves behind -------------------------------------------------------------------------------------


class History:
    """One row per epoch (a dict of numbers), which can be written as CSV or JSON lines and plotted.

    :attr:`bytes` and :attr:`steps` say what the run handed to all-reduce, in how many steps.

    Example:
        >>> history = History()
        >>> history.add(epoch=0, loss=2.0)
        >>> history.add(epoch=1, loss=1.0, accuracy=0.5)
        >>> history["loss"]
        [2.0, 1.0]
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.bytes = 0  # that this rank handed to all-reduce
        self.steps = 0  # made in this run

    def add(self, **row: float) -> None:
        self.rows.append(row)

    def __getitem__(self, column: str) -> list[float]:
        return [row[column] for row in self.rows if column in row]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to path: CSV for ``.csv``, one JSON object a line for ``.jsonl``, a plot for ``.png``.

        Raises:
            ValueError: for another suffix.
            ModuleNotFoundError: for a plot without matplotlib.
        """
        path = Path(path)
        if path.suffix == ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, self.columns)
                writer.writeheader()
                writer.writerows(self.rows)
        elif path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        elif path.suffix == ".png":
            self._plot(path)
        else:
            raise ValueError(f"history: {path.name}: expected a name ending in .csv, .jsonl or .png")

    def _plot(self, path: Path) -> None:
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                f"history: {path.name}: a plot needs matplotlib (pip install 'minigrad[ui]'); .csv and .jsonl need nothing"
            ) from None
        panels = [c for c in self.columns if c not in ("epoch", "step", "seconds", "samples_per_s")]
        figure = Figure(figsize=(4.5 * len(panels), 3.5), layout="constrained")
        for i, column in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), i + 1)
            axes.plot([row["epoch"] for row in self.rows if column in row], self[column], marker=".")
            axes.set(xlabel="epoch", title=column)
            if column.endswith("loss") and min(self[column]) > 0:
                axes.set_yscale("log")
        figure.savefig(path, dpi=120)


class Phases:
    """Seconds spent in data, forward, backward, communication and update.

    Example:
        >>> phases = Phases()
        >>> with phases("data"):
        ...     pass
        >>> sorted(phases.seconds) == sorted(Phases.names)
        True
    """

    names = ("data", "forward", "backward", "communication", "update")

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(self.names, 0.0)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start

    def table(self, comm: dist.Comm, steps: int) -> str:
        """Return a table of milliseconds a step over all ranks. Collective: every rank calls it."""
        each = comm.all_gather(np.array([self.seconds[name] for name in self.names]))  # (ranks, phases)
        each *= 1e3 / max(steps, 1)
        lines = [f"{'phase':15s}{'mean':>9s}{'fastest':>9s}{'slowest':>9s}  ms/step over {comm.size} rank(s)"]
        lines += [
            f"{name:15s}{column.mean():9.3f}{column.min():9.3f}{column.max():9.3f}"
            for name, column in zip(self.names, each.T)
        ]
        return "\n".join(lines)


# --- metrics ------------------------------------------------------------------------------------------------------


def accuracy(model: Module, x: Any, y: Any) -> Pair:
    """Return how many rows have their largest output at the true class, and how many rows there are."""
    scores = model(x).data
    return float(np.count_nonzero(np.argmax(scores, axis=-1) == y)), float(np.size(y))


@no_grad()
def evaluate(model: Module, metrics: Mapping[str, Loss], loader: Loader, comm: dist.Comm | None = None) -> dict[str, float]:
    """Return the mean of each metric over all of loader's samples on all ranks, in evaluation mode.

    A metric is ``function(model, x, y) -> (sum, count)``; sums and counts are added over batches and ranks before the
    one division, so that ragged batches are weighted correctly.

    Example:
        >>> from minigrad import nn
        >>> x = np.eye(3, dtype=np.float32)
        >>> evaluate(nn.Sequential(), {"accuracy": accuracy}, Loader(x, np.array([0, 1, 1]), batch=2))
        {'accuracy': 0.6666666666666666}
    """
    comm = comm or dist.init()
    totals = np.zeros((len(metrics), 2))
    training = model.training
    model.eval()
    try:
        for batch in loader.epoch(0):
            for row, metric in zip(totals, metrics.values()):
                total, count = metric(model, *batch)
                row += (total.item() if isinstance(total, Tensor) else total), count
    finally:
        model.train(training)
    comm.all_reduce(totals)
    return {name: float(total / count) if count else float("nan") for name, (total, count) in zip(metrics, totals)}


# --- the loop -----------------------------------------------------------------------------------------------------


def fit(
    model: Module,
    loss: Loss,
    optimizer: Optimizer,
    loader: Loader,
    epochs: int,
    *,
    comm: dist.Comm | None = None,
    validation: Loader | None = None,
    metrics: Mapping[str, Loss] | None = None,
    max_norm: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    phases: Phases | None = None,
) -> History:
    """Train model on all ranks and return the history.

    Args:
        loss: ``loss(model, x, y) -> (sum over samples, count)``, as the losses with ``reduction="sum_count"`` return.
        validation: samples on which ``metrics`` (and the loss, as ``val_loss``) are evaluated after each epoch.
        max_norm: clip the gradient of the mean loss to this global norm.
        checkpoint: an ``.npz`` file written after each epoch by rank 0; if it exists, training goes on from it.
        phases: where to add up the time of each phase.

    Raises:
        FloatingPointError: if the loss is no longer finite, on every rank alike.

    Example:
        >>> import minigrad as mg
        >>> from minigrad import nn, optim
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
        >>> model = nn.Sequential(nn.Linear(1, 1, rng=np.random.default_rng(0)))
        >>> loss = lambda model, x, y: mg.mse(model(x), y, reduction="sum_count")
        >>> sgd = optim.SGD(model.parameters(), lr=0.3)
        >>> history = fit(model, loss, sgd, Loader(x, 2 * x + 1, batch=16), epochs=10, quiet=True)
        >>> history["loss"][-1] < 1e-3
        True
    """
    comm = comm or dist.init()
    phases = phases or Phases()
    reducer = dist.Reducer(optimizer.block, comm)
    dist.broadcast(model, comm)
    history, first = History(), np.zeros(1, np.int64)
    if checkpoint is not None:
        if comm.rank == 0 and Path(checkpoint).exists():  # other nodes may not see the file
            first[0] = load_checkpoint(checkpoint, model, optimizer, history)
        comm.broadcast(first)
        dist.broadcast(model, comm)
        dist.broadcast(optimizer, comm)
    measured = {"val_loss": loss, **(metrics or {})}
    progress = _Progress(comm.rank == 0 and not quiet, epochs, loader, history)
    model.train()
    for epoch in range(int(first[0]), epochs):
        start, total, rows = time.perf_counter(), 0.0, 0.0
        batches = iter(loader.epoch(epoch))
        while True:
            with phases("data"):
                batch = next(batches, None)
            if batch is None:
                break
            with phases("forward"):
                optimizer.zero_grad()
                model.sample_offset(loader.offset)
                batch_sum, count = loss(model, *batch)
            with phases("backward"):
                batch_sum.backward()
            with phases("communication"):
                mean = reducer.finish(batch_sum, count)
            if not np.isfinite(mean):
                raise FloatingPointError(
                    f"fit: the loss is {mean} at step {optimizer.steps} (epoch {epoch}); lower the rate or clip gradients"
                )
            with phases("update"):
                if max_norm is not None:
                    optimizer.clip(max_norm)
                optimizer.step()
            total, rows = total + mean * reducer.count, rows + reducer.count
            progress.step(mean, optimizer.rate, len(batch[0]))
        seconds = time.perf_counter() - start
        row = {"epoch": epoch, "step": optimizer.steps, "loss": total / rows if rows else float("nan")}
        row |= {"rate": optimizer.rate, "seconds": seconds, "samples_per_s": len(loader) / seconds}
        if validation is not None:
            row |= evaluate(model, measured, validation, comm)
        history.add(**row)
        progress.epoch(row)
        if checkpoint is not None and comm.rank == 0:
            save_checkpoint(checkpoint, model, optimizer, history)
    progress.close()
    history.bytes, history.steps = reducer.bytes, reducer.calls
    return history


class _Progress:
    """A bar on a terminal (tqdm if it is there), a line per epoch elsewhere; both on standard error."""

    def __init__(self, show: bool, epochs: int, loader: Loader, history: History) -> None:
        self.show, self.epochs, self.begin, self.bar = show, epochs, time.perf_counter(), None
        self.done = len(history)
        if show and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ModuleNotFoundError:
                return
            self.bar = tqdm(total=epochs * len(loader), initial=self.done * len(loader), unit="sample", unit_scale=True)
            self.size = loader.batch

    def step(self, loss: float, rate: float, rows: int) -> None:
        if self.bar is not None:
            self.bar.set_postfix(loss=f"{loss:.4g}", rate=f"{rate:.3g}", refresh=False)
            self.bar.update(min(self.size, self.bar.total - self.bar.n))

    def epoch(self, row: Mapping[str, float]) -> None:
        if not self.show:
            return
        left = (time.perf_counter() - self.begin) / (row["epoch"] + 1 - self.done) * (self.epochs - 1 - row["epoch"])
        extra = "".join(f"  {name} {value:.4g}" for name, value in row.items() if name not in _always)
        line = (
            f"epoch {int(row['epoch']) + 1}/{self.epochs}  loss {row['loss']:.4g}  rate {row['rate']:.3g}{extra}"
            f"  {row['samples_per_s']:,.0f} samples/s  ETA {left:.0f} s"
        )
        if self.bar is not None:
            self.bar.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


_always = ("epoch", "step", "loss", "rate", "seconds", "samples_per_s")


# --- the command line ---------------------------------------------------------------------------------------------


def parser(comm: dist.Comm, description: str) -> argparse.ArgumentParser:
    """Return a parser of arguments for a program on ranks: help and complaints come once, and then all ranks end."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    name = p.prog.removesuffix(".py")
    p.error = lambda message: dist.stop(comm, f"{name}: {message}; see --help")  # type: ignore[method-assign]
    if comm.rank > 0:
        p.print_help = lambda file=None: None  # type: ignore[method-assign]
    return p


# --- checkpoints --------------------------------------------------------------------------------------------------


def save_checkpoint(path: str | os.PathLike[str], model: Module, optimizer: Optimizer, history: History) -> None:
    """Write model, optimizer and history to an ``.npz`` file, whole or not at all."""
    path = Path(path)
    arrays: dict[str, Any] = {f"model/{name}": value for name, value in model.state_dict().items()}
    arrays |= {f"optimizer/{name}": np.asarray(value) for name, value in optimizer.state_dict().items()}
    arrays["history"] = np.array(json.dumps(history.rows))
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            np.savez(file, **arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_checkpoint(path: str | os.PathLike[str], model: Module, optimizer: Optimizer, history: History) -> int:
    """Restore what :func:`save_checkpoint` wrote; return the number of the next epoch.

    Raises:
        ValueError: if the file is no checkpoint or belongs to another model.
    """
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file.items())
        history.rows = json.loads(str(arrays.pop("history")))
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"checkpoint: {os.fspath(path)}: cannot be read as a checkpoint ({error}); remove it") from None
    parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}}
    for name, value in arrays.items():
        part, _, key = name.partition("/")
        parts[part][key] = value
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    return int(history.rows[-1]["epoch"]) + 1 if history.rows else 0
