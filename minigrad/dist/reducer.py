"""The reduction of a step: gradients, loss and count of all ranks, summed in one all-reduce over one flat buffer."""

from __future__ import annotations

import hashlib
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine import FlatBlock, Tensor
from ..kernels import K, launch
from .comm import Comm

__all__ = ["Reducer", "broadcast", "differences"]


class Reducer:
    """Turn every rank's gradient of its *sum* of losses into the gradient of the *mean* over the global batch.

    Equation: g = Σ_r g_r / Σ_r n_r, loss = Σ_r L_r / Σ_r n_r, with L_r the sum of the losses of rank r's n_r samples. Ranks
    may hold different numbers of samples, also none; no mean of means is taken.

    Args:
        block: the parameters, e.g. ``optimizer.block``.
        comm: the ranks; see :func:`minigrad.dist.init`. All of them must make their reducer: their blocks are compared.

    Raises:
        ValueError: if the parameters' shapes or dtype are not the same on all ranks.

    Example:
        >>> from minigrad.dist import SelfComm
        >>> from minigrad.engine import flatten
        >>> w = Tensor([1.0], requires_grad=True)
        >>> reducer = Reducer(flatten([w]), SelfComm())
        >>> loss = ((w * [1.0, 3.0]) ** 2).sum()
        >>> loss.backward()
        >>> reducer.finish(loss, 2), w.grad
        (5.0, array([10.], dtype=float32))
    """

    def __init__(self, block: FlatBlock, comm: Comm) -> None:
        self.block, self.comm = block, comm
        self._last: Callable[[], Any] = lambda: None  # the loss of the last step, if it is still alive
        self.calls = 0
        self.bytes = 0  # handed to all-reduce by this rank since the start
        self.seconds = 0.0  # spent in it, waiting for others included
        layout = repr([block.dtype.str, *(p.shape for p in block.parameters)]).encode()
        numbers = comm.all_gather(np.array([len(block.parameters), block.size, zlib.crc32(layout)], np.int64))  # (size, 3)
        other = int(np.argmax(np.any(numbers != numbers[0], axis=1)))
        if other:
            raise ValueError(
                f"Reducer: rank {other} has {numbers[other, 0]} parameters in {numbers[other, 1]} elements, rank 0 "
                f"{numbers[0, 0]} in {numbers[0, 1]}, or their shapes or dtype differ; all ranks must build the same model"
            )

    @property
    def expected_bytes(self) -> int:
        """Bytes that one step must reduce: every gradient, the loss and the count, with the padding between them."""
        return (self.block.size + 2) * self.block.dtype.itemsize

    def finish(self, loss: Any, count: float) -> float:
        """Sum over ranks, divide by the total count, and return the mean loss.

        Args:
            loss: the sum of this rank's losses: what was differentiated.
            count: how many samples are in it (or the sum of their weights).

        Raises:
            RuntimeError: naming parameters without a gradient, or if called twice for one loss; before anything is sent.
        """
        block = self.block.check()
        missing = block.missing()
        if missing:
            raise RuntimeError(
                f"finish: no gradient for {', '.join(missing)}; call loss.backward() first, and use every parameter in the "
                "loss (or freeze it: requires_grad=False)"
            )
        if isinstance(loss, Tensor):
            if self._last() is loss:
                raise RuntimeError("finish: called twice for the same loss; its gradients are summed over the ranks already")
            self._last = weakref.ref(loss)
        value = loss.data if isinstance(loss, Tensor) else np.asarray(loss, block.dtype)
        if value.size != 1:
            raise ValueError(f"finish: the loss is {value.shape}; expected the sum over this rank's samples, a scalar")
        launch(K.copy, value.reshape(()), out=block.tail[0:1])
        launch(K.copy, np.asarray(count, block.dtype), out=block.tail[1:2])
        start = time.perf_counter()
        launch(self._all_reduce, out=block.reduced)
        self.seconds += time.perf_counter() - start
        launch(K.divide_or_zero, block.tail[1:2], out=block.grads)
        return self.mean

    @property
    def count(self) -> float:
        """How many samples the last step had over all ranks."""
        return float(self.block.tail[1])

    @property
    def mean(self) -> float:
        """The mean loss of the last step over all ranks, also of a replayed one; 0 if there were no samples."""
        return float(self.block.tail[0]) / self.count if self.count else 0.0

    def _all_reduce(self, out: np.ndarray) -> None:
        self.comm.all_reduce(out)
        self.calls += 1
        self.bytes += out.nbytes


def _arrays(thing: Any, buffers: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, array) of what is held by an array, a module (its buffers too, or not), a flat block or an optimizer."""
    if isinstance(thing, np.ndarray):
        yield "array", thing
    elif isinstance(thing, FlatBlock):
        for i, p in enumerate(thing.parameters):
            yield p.name or f"parameter {i}", p.data
    elif hasattr(thing, "named_tensors"):
        for name, tensor in thing.named_tensors() if buffers else thing.named_parameters():
            yield name, tensor.data
    elif hasattr(thing, "block") and hasattr(thing, "state"):
        yield from _arrays(thing.block, buffers)
        yield from thing.state.items()
        yield "steps", thing._steps
    else:
        raise TypeError(f"{type(thing).__name__}: expected an array, a module, a flat block or an optimizer")


def broadcast(thing: Any, comm: Comm, root: int = 0) -> None:
    """Give every rank root's values of an array, a module (buffers too), a flat block or an optimizer, in place."""
    if comm.size == 1:
        return
    for _, array in _arrays(thing, buffers=True):
        if array.flags.c_contiguous:
            comm.broadcast(array, root)
        else:
            array[...] = comm.broadcast(array.copy(), root)


def differences(thing: Any, comm: Comm) -> list[str]:
    """Return the names of arrays that are not the same, bit for bit, on all ranks, with the ranks that differ from rank 0.

    Collective. An empty list means that all ranks hold identical values. Of a module, the parameters are compared; buffers
    (running statistics of a rank's part of the batch, the place of its samples) differ by right.
    """
    named = list(_arrays(thing, buffers=False))
    digests = b"".join(hashlib.sha256(np.ascontiguousarray(a).data).digest() for _, a in named)
    table = comm.all_gather(np.frombuffer(digests, np.uint8).reshape(len(named), 32))  # (size, arrays, 32)
    differ = np.any(table != table[:1], axis=2)  # (size, arrays)
    return [f"{name} on rank {', '.join(map(str, np.flatnonzero(column)))}" for (name, _), column in zip(named, differ.T)
            if np.any(column)]  # fmt: skip
