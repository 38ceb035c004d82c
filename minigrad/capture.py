"""Record a training step, replay it as what it is underneath: a straight list of kernel launches on known arrays.

No tensor, no tape and no allocation is left in a replay. The first two calls for each signature (shapes and dtypes of the
arguments) are eager steps that are recorded; only if both did the same may the list stand for the function. Whatever the
function computes outside of launches shows up as a difference between the two and is an error; so is reading a tensor's value
while it is recorded (``item``, ``bool``). What Python reads from a tensor's ``.data`` is seen only if the two runs differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .engine import Tensor, _root
from .kernels import recording

__all__ = ["CaptureError", "capture"]


class CaptureError(RuntimeError):
    """A step that cannot be replayed, with the launch and the line at which it shows."""


class capture:
    """Make a function of arrays that is recorded, then replayed.

    The function may return tensors that launches compute (the loss), or None. State belongs in arrays that launches advance:
    optimizers, batch normalisation and dropout do it; a loss summed over ranks is read from ``reducer.mean``.

    Args:
        step: called with the arrays; everything else it uses (model, optimizer) stays the same object from call to call.

    Raises:
        CaptureError: at the second call for a signature, if the step did not do what it did at the first.

    Example:
        >>> import minigrad as mg
        >>> w = mg.Tensor([1.0], requires_grad=True)
        >>> sgd = mg.optim.SGD([w], lr=0.25)
        >>> @capture
        ... def step(x):
        ...     sgd.zero_grad()
        ...     loss = mg.square(w * x).sum()
        ...     loss.backward()
        ...     sgd.step()
        ...     return loss
        >>> [step(np.ones(1, np.float32)).item() for _ in range(4)]
        [1.0, 0.25, 0.0625, 0.015625]
        >>> step.replays
        2
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.replays = 0
        self._recorded: dict[Any, _Recording] = {}
        self._ready: dict[Any, _Recording] = {}

    def __call__(self, *arrays: Any) -> Any:
        values = [a.data if isinstance(a, Tensor) else np.asarray(a) for a in arrays]
        signature = tuple((a.shape, a.dtype.str) for a in values)
        ready = self._ready.get(signature)
        if ready is not None:
            self.replays += 1
            return ready.replay(values)
        second = _Recording(self.step, values)
        first = self._recorded.get(signature)
        if first is None:
            self._recorded[signature] = second
        else:
            first.compare(second)
            self._ready[signature] = second
            del self._recorded[signature]
        return second.result(second.returned)

    def __str__(self) -> str:
        """List the launches of each recorded signature: kernel, bytes, shapes."""
        if not self._ready:
            return "capture: nothing recorded yet; call it twice"
        return "\n\n".join(r.table() for r in self._ready.values())


class _Recording:
    """One run of the step: its launches, where each of their arrays comes from, and what it returned."""

    def __init__(self, step: Callable[..., Any], values: list[np.ndarray]) -> None:
        self.inputs = [np.array(a) for a in values]  # the launches read these; later calls copy new values in
        self.launches: list[tuple[Any, tuple[Any, ...], tuple[np.ndarray, ...]]] = []
        self.lines: list[str] = []
        self.made: dict[int, tuple[str, int, int]] = {id(a): ("argument", i, 0) for i, a in enumerate(self.inputs)}
        self.runs = 0
        self.described: list[Any] = []
        with recording(self._note):
            self.returned = step(*self.inputs)
        for _, _, outs in self.launches:  # the tape made its results read-only
            for out in outs:
                _root(out).setflags(write=True)
                out.setflags(write=True)
        self.results = [self._place(t) for t in _flat(self.returned)]

    def _note(self, kernel: Any, inputs: tuple[Any, ...], out: Any) -> None:
        outs = out if type(out) is tuple else (out,)
        at = len(self.launches)
        self.described.append((kernel, [self._describe(x) for x in inputs], [self._describe(x, out=True) for x in outs]))
        for i, array in enumerate(outs):
            self.made.setdefault(id(_root(array)), ("launch", at, i))
        self.launches.append((kernel, inputs, outs))
        self.lines.append(_line())

    def _describe(self, x: Any, out: bool = False) -> Any:
        """Say where an argument of a launch comes from, in words that do not depend on addresses."""
        if isinstance(x, (tuple, list)):
            return [self._describe(v, out) for v in x]
        if not isinstance(x, np.ndarray):
            return ("value", x)
        root = _root(x)
        view = (x.shape, x.strides, x.dtype.str, _address(x) - _address(root))
        if id(root) in self.made:
            return ("made", self.made[id(root)], view)
        if out:
            return ("new", view) if root.base is None else ("kept", id(root), view)
        return ("array", root, view, x.copy() if x.size <= 65536 else None)

    def _place(self, t: Any) -> np.ndarray | None:
        if t is None:
            return None
        array = t.data if isinstance(t, Tensor) else t
        if not isinstance(array, np.ndarray) or id(_root(array)) not in self.made:
            raise CaptureError(
                f"capture: the step returned {type(t).__name__}, which no launch computes and no replay would change; "
                "return the loss tensor (and read a mean over ranks from reducer.mean)"
            )
        return array

    def compare(self, other: _Recording) -> None:
        """Raise unless the other run did the same launches on the same places."""
        if len(self.described) != len(other.described):
            short, long = sorted((self, other), key=lambda r: len(r.described))
            at = len(short.described)
            raise CaptureError(
                f"capture: one run made {len(short.described)} launches, another {len(long.described)}; the first too many is "
                f"{_name(long.described[at][0])} at {long.lines[at]}: does the step branch on a value?"
            )
        for i, (a, b) in enumerate(zip(self.described, other.described)):
            why = _difference(a, b)
            if why:
                raise CaptureError(
                    f"capture: launch {i}, {_name(a[0])} at {other.lines[i]}: {why}; compute it by launches, or pass it as an "
                    "argument"
                )

    def result(self, returned: Any) -> Any:
        """Return what the step returned, as tensors that later replays do not change."""
        flat = iter([None if a is None else Tensor(a.copy()) for a in self.results])
        if isinstance(returned, (tuple, list)):
            return type(returned)(flat)
        return next(flat)

    def replay(self, values: list[np.ndarray]) -> Any:
        for own, value in zip(self.inputs, values):
            np.copyto(own, value)
        with np.errstate(all="ignore"):
            for kernel, inputs, outs in self.launches:
                kernel(*inputs, *outs)
        self.runs += 1
        return self.result(self.returned)

    def table(self) -> str:
        """Return the list with the bytes that each launch touches."""
        rows = [f"{'launch':24s}{'bytes':>12s}  shapes"]
        total = 0
        for kernel, inputs, outs in self.launches:
            arrays = [x for x in inputs if isinstance(x, np.ndarray)]
            size = sum(a.nbytes for a in (*arrays, *outs))
            total += size
            shapes = " ".join(str(a.shape) for a in arrays) + " -> " + " ".join(str(a.shape) for a in outs)
            rows.append(f"{_name(kernel):24s}{size:12,}  {shapes}")
        rows.append(f"{len(self.launches)} launches, {total:,} bytes read and written, replayed {self.runs} times")
        return "\n".join(rows)


def _difference(a: Any, b: Any) -> str:
    """Say how two described launches differ, "" if they do not."""
    if a[0] != b[0]:
        return f"another run launched {_name(b[0])} here: does the step branch on a value?"
    for x, y in zip(_leaves((a[1], a[2])), _leaves((b[1], b[2]))):
        if x[0] != y[0] or x[0] in ("made", "new", "kept"):
            if x != y:
                return "it works on other arrays, or shapes, than in the run before: a shape may depend on data"
        elif x[0] == "value":
            if not _same(x[1], y[1]):
                return f"the value {y[1]!r} was {x[1]!r} in the run before"
        elif x[2] != y[2]:
            return "it works on other shapes than in the run before"
        elif x[1] is not y[1] and (x[3] is None or not np.array_equal(x[3], y[3], equal_nan=x[3].dtype.kind in "fc")):
            return f"an array {y[2][0]} was computed outside of launches and has changed since the run before"
    return ""


def _leaves(x: Any) -> list[tuple[Any, ...]]:
    return [x] if isinstance(x, tuple) and x and isinstance(x[0], str) else [leaf for part in x for leaf in _leaves(part)]


def _same(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b)
    except (TypeError, ValueError):
        return False


def _flat(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _name(kernel: Any) -> str:
    return getattr(kernel, "__name__", type(kernel).__name__)


def _line() -> str:
    """Return file and line of the user's code that led to this launch: the first frame outside the package."""
    here = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
