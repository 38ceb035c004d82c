"""Moving elements without computing: each vjp is the move backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import Tensor, op
from ..kernels import K, contiguous, launch, new
from .reduce import _axes

__all__ = [
    "broadcast_to", "concatenate", "expand_dims", "flip", "pad", "ravel", "reshape", "roll", "split", "squeeze", "stack",
    "swapaxes", "transpose", "tril", "triu",
]  # fmt: skip
METHODS: tuple[str, ...] = ("ravel", "reshape", "squeeze", "swapaxes", "transpose")

# --- the same elements under another shape ------------------------------------------------------------------------


def reshape(x: Any, shape: Any, *more: int) -> Tensor:
    """Give x another shape of the same size; one axis may be -1.

    Example:
        >>> reshape([1.0, 2.0, 3.0, 4.0], 2, -1)
        Tensor([[1., 2.],
                [3., 4.]])
    """
    return _reshape(x, (shape, *more) if isinstance(shape, (int, np.integer)) else tuple(shape))


@op(name="reshape", analytic=True)
def _reshape(x, /, shape):
    try:
        y = _reshaped(x, shape)
    except ValueError:
        raise ValueError(f"reshape: x {x.shape} has {x.size} elements, which do not fill {tuple(shape)}") from None
    before = x.shape

    def vjp(gy):
        return _reshaped(gy, before)

    return y, vjp


def _reshaped(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return x.reshape(shape): a view if its strides allow one, else a view of a launched copy."""
    if not x.flags.c_contiguous:
        try:
            return x.reshape(shape, copy=False)
        except ValueError:
            pass
    return contiguous(x).reshape(shape)


def ravel(x: Any) -> Tensor:
    """Return x as a vector, in row order."""
    return _reshape(x, (-1,))


@op(analytic=True)
def expand_dims(x, /, axis):
    """Insert axes of size 1 at the positions ``axis`` of the result."""
    try:
        y = np.expand_dims(x, axis)
    except ValueError:
        raise ValueError(f"expand_dims: axis {axis} is out of range, or repeated, for x {x.shape}") from None
    shape = x.shape

    def vjp(gy):
        return gy.reshape(shape)

    return y, vjp


@op(analytic=True)
def squeeze(x, /, axis=None):
    """Remove axes of size 1: all of them, or those named.

    Raises:
        ValueError: if a named axis has another size.
    """
    shape = x.shape
    if axis is not None and any(shape[a] != 1 for a in _axes("squeeze", x, axis)):
        raise ValueError(f"squeeze: axis {axis} of x {shape} is not of size 1")
    y = np.squeeze(x, axis)

    def vjp(gy):
        return gy.reshape(shape)

    return y, vjp


# --- the same elements in another order ---------------------------------------------------------------------------


def transpose(x: Any, axes: Any = None, *more: int) -> Tensor:
    """Permute the axes; without ``axes``, reverse them.

    Example:
        >>> transpose([[1.0, 2.0], [3.0, 4.0]])
        Tensor([[1., 3.],
                [2., 4.]])
    """
    return _transpose(x, (axes, *more) if isinstance(axes, (int, np.integer)) else axes)


@op(name="transpose", analytic=True)
def _transpose(x, /, axes):
    axes = tuple(range(x.ndim))[::-1] if axes is None else _axes("transpose", x, tuple(axes))
    if len(axes) != x.ndim:
        raise ValueError(f"transpose: axes {axes} are no permutation of the {x.ndim} axes of x {x.shape}")
    y = x.transpose(axes)
    back = tuple(axes.index(a) for a in range(x.ndim))

    def vjp(gy):
        return gy.transpose(back)

    return y, vjp


@op(analytic=True)
def swapaxes(x, /, axis1, axis2):
    """Exchange two axes."""
    (axis1,), (axis2,) = _axes("swapaxes", x, axis1), _axes("swapaxes", x, axis2)
    y = np.swapaxes(x, axis1, axis2)

    def vjp(gy):
        return np.swapaxes(gy, axis1, axis2)

    return y, vjp


@op(analytic=True)
def flip(x, /, axis=None):
    """Reverse the order along axis (all axes if None)."""
    axes = _axes("flip", x, axis)
    back = (*(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim)), Ellipsis)
    y = x[back]

    def vjp(gy):
        return gy[back]

    return y, vjp


@op(analytic=True)
def roll(x, /, shift, axis=None):
    """Shift elements along axis, those beyond the end coming in at the start; without axis, in row order.

    Example:
        >>> roll([1.0, 2.0, 3.0], 1)
        Tensor([3., 1., 2.])
    """
    for a in axis if isinstance(axis, (tuple, list)) else (axis,):
        _axes("roll", x, a)
    y = launch(K.roll, x, shift, axis, out=new(x.shape, x.dtype))
    back = tuple(-s for s in shift) if isinstance(shift, (tuple, list)) else -shift

    def vjp(gy):
        return launch(K.roll, gy, back, axis, out=new(gy.shape, gy.dtype))

    return y, vjp


# --- more or fewer elements ---------------------------------------------------------------------------------------


@op(analytic=True)
def broadcast_to(x, /, shape):
    """Repeat x along new axes and axes of size 1, without copying.

    Equation: gx = Σ gy over the repeated axes.
    """
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    try:
        y = np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(f"broadcast_to: x {x.shape} does not broadcast to {shape}") from None
    before = x.shape

    def vjp(gy):
        return launch(K.sum_to, gy, out=new(before, gy.dtype))

    return y, vjp


@op(analytic=True)
def tril(x, /, k=0):
    """The lower triangle of the last two axes: 0 above the k-th diagonal."""
    return _triangle("tril", x, np.tri, k)


@op(analytic=True)
def triu(x, /, k=0):
    """The upper triangle of the last two axes: 0 below the k-th diagonal."""
    return _triangle("triu", x, lambda n, m, k, dtype: ~np.tri(n, m, k - 1, dtype), k)


def _triangle(name: str, x: np.ndarray, tri: Any, k: int) -> tuple[np.ndarray, Any]:
    if x.ndim < 2:
        raise ValueError(f"{name}: x {x.shape}: expected at least two axes")
    keep = tri(x.shape[-2], x.shape[-1], k, bool)
    y = launch(K.select, keep, x, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.select, keep, gy, out=new(gy.shape, gy.dtype))

    return y, vjp


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: float = 0.0) -> Tensor:
    """Add ``(before, after)`` elements of a constant value to each axis; one int or pair serves all axes.

    Raises:
        ValueError: for another mode, or widths that are negative or not one pair for each axis.

    Example:
        >>> pad([1.0, 2.0], (1, 2))
        Tensor([0., 1., 2., 0., 0.])
    """
    if mode != "constant":
        raise ValueError(f"pad: mode {mode!r}: only 'constant' is supported; index with repeats for the others")
    return _pad(x, pad_width, constant_values)


@op(name="pad", analytic=True)
def _pad(x, /, pad_width, value):
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    except ValueError:
        widths = [[0.5]]
    if any(not isinstance(n, int) for pair in widths for n in pair):
        raise ValueError(f"pad: pad_width {pad_width}: expected one (before, after) of ints for each axis of x {x.shape}")
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError(f"pad: pad_width {pad_width} is negative; slice to remove elements")
    inner = tuple(slice(before, before + n) for (before, _), n in zip(widths, x.shape))
    y = new(tuple(n + before + after for (before, after), n in zip(widths, x.shape)), x.dtype)
    launch(K.pad, x, inner, value, out=y)

    def vjp(gy):
        return gy[(*inner, Ellipsis)]  # an array, also of no axes

    return y, vjp


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Join arrays along an axis that they have; with axis None, flatten them first.

    Raises:
        ValueError: if there is no array, or their other axes differ.

    Example:
        >>> concatenate([[1.0], [2.0, 3.0]])
        Tensor([1., 2., 3.])
    """
    return _concatenate(*map(ravel, arrays), axis=0) if axis is None else _concatenate(*arrays, axis=axis)


@op(name="concatenate", analytic=True)
def _concatenate(*arrays, axis):
    shapes = [a.shape for a in arrays]
    if not arrays or not shapes[0]:
        raise ValueError(f"concatenate: got shapes {shapes}; expected at least one array, with at least one axis")
    ndim = len(shapes[0])
    if not -ndim <= axis < ndim:
        raise ValueError(f"concatenate: axis {axis} is out of range for arrays of {ndim} axes")
    axis %= ndim
    for i, shape in enumerate(shapes):
        if len(shape) != ndim or any(a != b for k, (a, b) in enumerate(zip(shape, shapes[0])) if k != axis):
            raise ValueError(f"concatenate: arrays[0] {shapes[0]} and arrays[{i}] {shape} differ beside axis {axis}")
    ends = np.cumsum([shape[axis] for shape in shapes]).tolist()
    total = (*shapes[0][:axis], ends[-1], *shapes[0][axis + 1 :])
    y = launch(K.concatenate, *arrays, axis, out=new(total, np.result_type(*arrays)))

    def vjp(gy):
        before = (slice(None),) * axis
        return tuple(gy[(*before, slice(start, end))] for start, end in zip([0, *ends], ends))

    return y, vjp


def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """Join arrays of one shape along a new axis.

    Example:
        >>> stack([[1.0, 2.0], [3.0, 4.0]], axis=1)
        Tensor([[1., 3.],
                [2., 4.]])
    """
    return _stack(*arrays, axis=axis)


@op(name="stack", analytic=True)
def _stack(*arrays, axis):
    if not arrays:
        raise ValueError("stack: got no array; expected at least one")
    for i, a in enumerate(arrays):
        if a.shape != arrays[0].shape:
            raise ValueError(f"stack: arrays[0] {arrays[0].shape} and arrays[{i}] {a.shape} differ in shape")
    ndim = arrays[0].ndim + 1
    if not -ndim <= axis < ndim:
        raise ValueError(f"stack: axis {axis} is out of range for a result of {ndim} axes")
    axis %= ndim
    shape = arrays[0].shape
    total = (*shape[:axis], len(arrays), *shape[axis:])
    y = new(total, np.result_type(*arrays))
    launch(K.concatenate, *(np.expand_dims(a, axis) for a in arrays), axis, out=y)
    count = len(arrays)

    def vjp(gy):
        before = (slice(None),) * axis
        return tuple(gy[(*before, i, Ellipsis)] for i in range(count))

    return y, vjp


@op(analytic=True)
def split(x, /, indices_or_sections, axis=0):
    """Cut x along axis: into equal sections (an int), or before each of the given indices; returns a tuple.

    Raises:
        ValueError: if an int does not divide the axis, or indices decrease.

    Example:
        >>> split([1.0, 2.0, 3.0], [1])
        (Tensor([1.]), Tensor([2., 3.]))
    """
    (axis,) = _axes("split", x, axis)
    n = x.shape[axis]
    if np.ndim(indices_or_sections) == 0 and (indices_or_sections < 1 or n % indices_or_sections):
        raise ValueError(f"split: axis {axis} of x {x.shape} cannot be cut into {indices_or_sections} equal sections")
    parts = tuple(np.split(x, indices_or_sections, axis))
    shape = x.shape
    if sum(part.shape[axis] for part in parts) != n:
        raise ValueError(f"split: indices {indices_or_sections} decrease: parts of axis {axis} of x {shape} would overlap")

    def vjp(gys):
        return launch(K.concatenate, *gys, axis, out=new(shape, gys[0].dtype))

    return parts, vjp


def _reverse_axes(self: Tensor) -> Tensor:
    """The tensor with its axes reversed."""
    return transpose(self)


def _matrix_transpose(self: Tensor) -> Tensor:
    """The tensor with its last two axes exchanged."""
    if self.ndim < 2:
        raise ValueError(f"mT: the tensor {self.shape} has no last two axes to exchange")
    return swapaxes(self, -1, -2)


for _name, _get in (("T", _reverse_axes), ("mT", _matrix_transpose)):
    setattr(Tensor, _name, property(_get))
