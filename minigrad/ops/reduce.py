"""Reductions over axes: sums, moments, extremes, norms. ``axis`` is an int, a tuple or None (all), as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, contiguous, launch, new

__all__ = ["argmax", "argmin", "cumsum", "logsumexp", "max", "mean", "min", "norm", "prod", "std", "sum", "var"]
METHODS: tuple[str, ...] = ("argmax", "argmin", "cumsum", "max", "mean", "min", "prod", "std", "sum", "var")

Axis = int | tuple[int, ...] | None


@op(analytic=True)
def sum(x, /, axis: Axis = None, keepdims: bool = False):
    """Σ x over axis; of booleans and small integers in 64 bits, as in NumPy, so that a mask's sum counts.

    Equation: gx = gy, repeated along axis.

    Example:
        >>> sum([[1.0, 2.0], [3.0, 4.0]], axis=0)
        Tensor([4., 6.])
    """
    axes = _axes("sum", x, axis)
    y = launch(K.sum, x, axes, keepdims, out=_out(x, axes, keepdims, _wide(x)))
    shape = x.shape

    def vjp(gy):
        return launch(K.copy, _keep(gy, axes, shape), out=new(shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def mean(x, /, axis: Axis = None, keepdims: bool = False):
    """Σ x / n over axis, n being the number of elements summed; NaN where n = 0.

    Equation: gx = gy / n, repeated along axis.
    """
    axes = _axes("mean", x, axis)
    scale = _scale("mean", x, axes, 0)
    y = launch(K.mean, x, axes, keepdims, out=_out(x, axes, keepdims))
    shape = x.shape

    def vjp(gy):
        return launch(np.multiply, _keep(gy, axes, shape), scale, out=new(shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def var(x, /, axis: Axis = None, ddof: float = 0, keepdims: bool = False):
    """The variance: Σ (x - mean)² / (n - ddof) over axis; NaN where n <= ddof.

    Equation: gx = 2 gy (x - mean) / (n - ddof).
    """
    axes = _axes("var", x, axis)
    scale = _scale("var", x, axes, ddof)
    d = launch(K.centre, x, axes, out=new(x.shape, x.dtype))
    y = _mean_square(d, axes, keepdims, scale)

    def vjp(gy):
        g = launch(np.multiply, _keep(gy, axes, d.shape), launch(np.add, scale, scale))
        return launch(K.chain, g, d, out=new(d.shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def std(x, /, axis: Axis = None, ddof: float = 0, keepdims: bool = False):
    """The standard deviation: the square root of :func:`var`; its gradient is 0 where all elements are equal.

    Equation: gx = gy (x - mean) / ((n - ddof) y).
    """
    axes = _axes("std", x, axis)
    scale = _scale("std", x, axes, ddof)
    d = launch(K.centre, x, axes, out=new(x.shape, x.dtype))
    y = _mean_square(d, axes, keepdims, scale)
    launch(np.sqrt, y, out=y)

    def vjp(gy):
        unit = launch(K.quotient, d, _keep(y, axes, d.shape), out=new(d.shape, d.dtype))
        return launch(K.chain, launch(np.multiply, _keep(gy, axes, d.shape), scale), unit, out=new(d.shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def norm(x, /, axis: Axis = None, keepdims: bool = False):
    """The Euclidean norm √Σx² over axis; its gradient is 0 where the norm is 0.

    Equation: gx = gy x / y. Scaled by the largest element, so that squares neither overflow nor vanish.

    Example:
        >>> norm([3.0, 4.0])
        Tensor(5.)
    """
    _need_floats("norm", x)
    axes = _axes("norm", x, axis)
    y = launch(K.norm, x, axes, keepdims, out=_out(x, axes, keepdims))

    def vjp(gy):
        unit = launch(K.quotient, x, _keep(y, axes, x.shape), out=new(x.shape, x.dtype))
        return launch(K.chain, _keep(gy, axes, x.shape), unit, out=new(x.shape, gy.dtype))

    return y, vjp


@op()
def max(x, /, axis: Axis = None, keepdims: bool = False):
    """The largest element over axis; elements that tie share the gradient equally. NaN propagates.

    Raises:
        ValueError: if there is no element.
    """
    return _extreme("max", np.maximum, x, axis, keepdims)


@op()
def min(x, /, axis: Axis = None, keepdims: bool = False):
    """The smallest element over axis; elements that tie share the gradient equally. NaN propagates.

    Raises:
        ValueError: if there is no element.
    """
    return _extreme("min", np.minimum, x, axis, keepdims)


@op(analytic=True)
def prod(x, /, axis: Axis = None, keepdims: bool = False):
    """Π x over axis.

    Equation: gx_i = gy Π_(j≠i) x_j, from products of the elements before and after i, exact where there are zeros.
    """
    axes = _axes("prod", x, axis)
    y = launch(K.prod, x, axes, keepdims, out=_out(x, axes, keepdims, _wide(x)))

    def vjp(gy):
        others = launch(K.prod_others, x, axes, out=new(x.shape, x.dtype))
        return launch(K.chain, _keep(gy, axes, x.shape), others, out=new(x.shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def cumsum(x, /, axis: int | None = None):
    """The running sum along axis; without axis, of all elements in row order.

    Equation: gx_i = Σ_(j≥i) gy_j.

    Example:
        >>> cumsum([1.0, 2.0, 3.0])
        Tensor([1., 3., 6.])
    """
    shape = x.shape
    flat = contiguous(x).reshape(-1) if axis is None else x
    along = _one_axis("cumsum", flat, 0 if axis is None else axis)
    y = launch(K.cumsum, flat, along, out=new(flat.shape, _wide(x)))

    def vjp(gy):
        back = launch(K.cumsum, np.flip(gy, along), along, out=new(gy.shape, gy.dtype))
        return np.flip(back, along).reshape(shape)

    return y, vjp


@op()
def logsumexp(x, /, axis: Axis = None, keepdims: bool = False):
    """log Σ e^x over axis, without overflow; -inf where all elements are -inf, or there are none.

    Equation: gx = gy e^(x - y); 0 where y = -inf; where some elements are +inf, these share it equally.
    """
    _need_floats("logsumexp", x)
    axes = _axes("logsumexp", x, axis)
    y = launch(K.logsumexp, x, axes, keepdims, out=_out(x, axes, keepdims))

    def vjp(gy):
        weights = launch(K.logsumexp_weights, x, _keep(y, axes, x.shape), axes, out=new(x.shape, x.dtype))
        return launch(K.chain, _keep(gy, axes, x.shape), weights, out=new(x.shape, gy.dtype))

    return y, vjp


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element along axis (of all elements without), as integers without gradient.

    Raises:
        ValueError: if there is no element, or no such axis.

    Example:
        >>> argmax([[1.0, 3.0], [4.0, 2.0]], axis=1)
        Tensor([1, 0])
    """
    return _arg("argmax", np.argmax, as_array(x), axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element along axis; see :func:`argmax`."""
    return _arg("argmin", np.argmin, as_array(x), axis, keepdims)


# --- shared by the ops above --------------------------------------------------------------------------------------


def _axes(name: str, x: np.ndarray, axis: Axis) -> tuple[int, ...]:
    """Return axis as a tuple of axes counted from the front, each once."""
    if axis is None:
        return tuple(range(x.ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if isinstance(a, bool) or not isinstance(a, (int, np.integer)):
            raise TypeError(f"{name}: axis {a!r}: expected an int, a tuple of ints or None")
        if not -x.ndim <= a < x.ndim:
            valid = f"expected {-x.ndim} to {x.ndim - 1}" if x.ndim else "a scalar has no axes"
            raise ValueError(f"{name}: axis {a} is out of range for x {x.shape}; {valid}")
    axes = tuple(int(a) % x.ndim for a in axes)
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: axis {axis} names an axis of x {x.shape} twice")
    return axes


def _one_axis(name: str, x: np.ndarray, axis: Any) -> int:
    axes = _axes(name, x, axis)
    if len(axes) != 1:
        raise TypeError(f"{name}: axis {axis!r}: expected one axis; reshape x {x.shape} to join several")
    return axes[0]


def _out(x: np.ndarray, axes: tuple[int, ...], keepdims: bool, dtype: Any = None) -> np.ndarray:
    dtype = x.dtype if dtype is None else dtype
    if keepdims:
        return new(tuple(1 if i in axes else n for i, n in enumerate(x.shape)), dtype)
    return new(tuple(n for i, n in enumerate(x.shape) if i not in axes), dtype)


def _wide(x: np.ndarray) -> np.dtype:
    """The dtype in which NumPy adds up: booleans and small integers in 64 bits."""
    if x.dtype.kind in "fc":
        return x.dtype
    return np.result_type(x.dtype, np.uint if x.dtype.kind == "u" else np.int_)


def _keep(y: np.ndarray, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Give a reduced array its axes of size 1 back, so that it broadcasts to shape."""
    return y.reshape(tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _need_floats(name: str, x: np.ndarray) -> None:
    if x.dtype.kind not in "fc":
        raise TypeError(f"{name}: needs floats, got x {x.shape} {x.dtype}; convert with .astype(np.float32)")


def _need_elements(name: str, x: np.ndarray, y: np.ndarray, axis: Axis) -> None:
    if y.size and not x.size:
        along = "" if axis is None else f" along axis {axis}"
        raise ValueError(f"{name}: x {x.shape} has no element{along}; there is no {name} of nothing")


def _scale(name: str, x: np.ndarray, axes: tuple[int, ...], ddof: float) -> np.ndarray:
    """1 / (n - ddof), NaN where that is no positive number."""
    _need_floats(name, x)
    n = 1
    for i in axes:
        n *= x.shape[i]
    return np.asarray(1 / (n - ddof) if n > ddof else np.nan, np.empty(0, x.dtype).real.dtype)


def _mean_square(d: np.ndarray, axes: tuple[int, ...], keepdims: bool, scale: np.ndarray) -> np.ndarray:
    y = launch(K.sum, launch(np.square, d), axes, keepdims, out=_out(d, axes, keepdims))
    return launch(np.multiply, y, scale, out=y)


def _arg(name: str, which: Any, x: np.ndarray, axis: int | None, keepdims: bool) -> Tensor:
    along = None if axis is None else _one_axis(name, x, axis)
    y = _out(x, _axes(name, x, along), keepdims, np.intp)
    _need_elements(name, x, y, axis)
    return Tensor(launch(K.arg, x, which, along, keepdims, out=y))


def _extreme(name: str, ufunc: np.ufunc, x: np.ndarray, axis: Axis, keepdims: bool) -> tuple[np.ndarray, Any]:
    axes = _axes(name, x, axis)
    y = _out(x, axes, keepdims)
    _need_elements(name, x, y, axis)
    launch(K.extreme, x, ufunc, axes, keepdims, out=y)

    def vjp(gy):
        return launch(K.share, _keep(gy, axes, x.shape), x, _keep(y, axes, x.shape), axes, out=new(x.shape, gy.dtype))

    return y, vjp
