"""Arithmetic, powers and elementary functions: element by element, with NumPy's broadcasting.

Every function here computes ``y`` and, below it, ``vjp``: each operand's cotangent from the cotangent ``gy`` of the
output. Where the local derivative can be infinite, :func:`~minigrad.kernels.reference.chain` multiplies: a zero
cotangent times anything is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, launch, new

__all__ = [
    "abs", "add", "arctan2", "astype", "clip", "cos", "divide", "exp", "log", "maximum", "minimum", "multiply",
    "negative", "power", "sign", "sin", "sqrt", "square", "subtract", "tan", "where",
]  # fmt: skip
METHODS = ("abs", "astype", "clip", "exp", "log", "sqrt")  # also methods of Tensor

# --- arithmetic ---------------------------------------------------------------------------------------------------


@op(elementwise=True, analytic=True)
def add(x, y, /):
    """x + y, element by element.

    Example:
        >>> add([1.0, 2.0], 1.0)
        Tensor([2., 3.])
    """
    z = launch(np.add, x, y)

    def vjp(gz):
        return gz, gz

    return z, vjp


@op(elementwise=True, analytic=True)
def subtract(x, y, /):
    """x - y, element by element."""
    z = launch(np.subtract, x, y)

    def vjp(gz):
        return gz, lambda: launch(np.negative, gz)

    return z, vjp


@op(elementwise=True, analytic=True)
def multiply(x, y, /):
    """x y, element by element.

    Example:
        >>> multiply([1.0, 2.0], [3.0, 4.0])
        Tensor([3., 8.])
    """
    z = launch(np.multiply, x, y)

    def vjp(gz):
        return lambda: _chain(gz, y), lambda: _chain(gz, x)

    return z, vjp


@op(elementwise=True, analytic=True)
def divide(x, y, /):
    """x / y, element by element.

    Equation: ∂z/∂x = 1/y, ∂z/∂y = -z/y.
    """
    z = launch(np.divide, x, y)

    def vjp(gz):
        def gy():
            return _chain(gz, launch(np.negative, launch(np.divide, z, y)))

        return lambda: _chain(gz, launch(np.reciprocal, y)), gy

    return z, vjp


@op(elementwise=True, analytic=True)
def negative(x, /):
    """-x."""
    y = launch(np.negative, x)

    def vjp(gy):
        return launch(np.negative, gy)

    return y, vjp


# --- powers, exponentials -----------------------------------------------------------------------------------------


@op(elementwise=True, analytic=True)
def power(x, y, /):
    """x to the power y.

    Equation: ∂z/∂x = y x^(y-1), and 0 where y = 0; ∂z/∂y = z log x, and 0 where x = 0 (so that 0⁰ = 1 has gradient 0).
    """
    z = launch(np.power, x, y)

    def vjp(gz):
        def gx():
            slope = launch(np.multiply, y, launch(np.power, x, launch(np.subtract, y, np.ones((), y.dtype))))
            return launch(K.chain_where, gz, slope, launch(np.not_equal, y, 0), out=_like(gz, slope))

        def gy():
            slope = launch(np.multiply, z, launch(np.log, x))
            return launch(K.chain_where, gz, slope, launch(np.logical_and, x, z), out=_like(gz, slope))

        return gx, gy

    return z, vjp


@op(elementwise=True, analytic=True)
def square(x, /):
    """x².

    Example:
        >>> square([-3.0, 2.0])
        Tensor([9., 4.])
    """
    y = launch(np.square, x)

    def vjp(gy):
        return _chain(gy, launch(np.add, x, x))

    return y, vjp


@op(elementwise=True, analytic=True)
def exp(x, /):
    """e^x; its derivative is itself."""
    y = launch(np.exp, x)

    def vjp(gy):
        return _chain(gy, y)

    return y, vjp


@op(elementwise=True, analytic=True)
def log(x, /):
    """The natural logarithm.

    Equation: dy/dx = 1/x.
    """
    y = launch(np.log, x)

    def vjp(gy):
        return _chain(gy, launch(np.reciprocal, x))

    return y, vjp


@op(elementwise=True, analytic=True)
def sqrt(x, /):
    """The square root.

    Equation: dy/dx = 1/(2y), infinite at 0.
    """
    y = launch(np.sqrt, x)

    def vjp(gy):
        return _chain(gy, launch(np.reciprocal, launch(np.add, y, y)))

    return y, vjp


# --- trigonometry -------------------------------------------------------------------------------------------------


@op(elementwise=True, analytic=True)
def sin(x, /):
    """The sine of x radians."""
    y = launch(np.sin, x)

    def vjp(gy):
        return _chain(gy, launch(np.cos, x))

    return y, vjp


@op(elementwise=True, analytic=True)
def cos(x, /):
    """The cosine of x radians."""
    y = launch(np.cos, x)

    def vjp(gy):
        return _chain(gy, launch(np.negative, launch(np.sin, x)))

    return y, vjp


@op(elementwise=True, analytic=True)
def tan(x, /):
    """The tangent of x radians.

    Equation: dy/dx = 1 + y².
    """
    y = launch(np.tan, x)

    def vjp(gy):
        return _chain(gy, launch(np.add, launch(np.square, y), np.ones((), y.dtype)))

    return y, vjp


@op(elementwise=True)
def arctan2(y, x, /):
    """The angle of the point (x, y), in radians from -π to π.

    Equation: ∂z/∂y = x/(x² + y²), ∂z/∂x = -y/(x² + y²); gradient 0 at the origin and at infinity.
    """
    z = launch(np.arctan2, y, x)

    def vjp(gz):
        r = launch(np.hypot, x, y)
        away = launch(np.logical_and, r, launch(np.not_equal, r, np.inf))

        def slope(a):
            d = launch(np.divide, launch(np.divide, a, r), r)
            return launch(K.chain_where, gz, d, away, out=_like(gz, d))

        return lambda: slope(x), lambda: slope(launch(np.negative, y))

    return z, vjp


# --- kinks --------------------------------------------------------------------------------------------------------


@op(elementwise=True)
def abs(x, /):
    """|x|; the derivative is sign(x), 0 at 0."""
    y = launch(np.absolute, x)

    def vjp(gy):
        return _chain(gy, launch(np.sign, x))

    return y, vjp


@op(elementwise=True)
def sign(x, /):
    """-1, 0 or 1; the derivative is 0."""
    y = launch(np.sign, x)

    def vjp(gy):
        return launch(K.fill, 0, out=new(gy.shape, gy.dtype))

    return y, vjp


@op(elementwise=True)
def maximum(x, y, /):
    """The larger of x and y; where they are equal, each gets half of the gradient. NaN propagates."""
    z = launch(np.maximum, x, y)

    def vjp(gz):
        return _share(gz, np.greater, x, y)

    return z, vjp


@op(elementwise=True)
def minimum(x, y, /):
    """The smaller of x and y; where they are equal, each gets half of the gradient. NaN propagates."""
    z = launch(np.minimum, x, y)

    def vjp(gz):
        return _share(gz, np.less, x, y)

    return z, vjp


@op(elementwise=True)
def clip(x, /, a_min=None, a_max=None):
    """x limited to [a_min, a_max]; the gradient is 1 inside and at the bounds, 0 outside.

    Raises:
        ValueError: if a_min exceeds a_max.

    Example:
        >>> clip([-2.0, 0.5, 2.0], -1, 1)
        Tensor([-1. ,  0.5,  1. ])
    """
    low, high = _bound(x, a_min, -1), _bound(x, a_max, 1)
    if np.any(low > high):
        raise ValueError(f"clip: a_min {a_min} exceeds a_max {a_max}; swap them")
    y = launch(np.clip, x, low, high)

    def vjp(gy):
        inside = launch(np.logical_and, launch(np.greater_equal, x, low), launch(np.less_equal, x, high))
        return launch(K.select, inside, gy, out=new(gy.shape, gy.dtype))

    return y, vjp


def _bound(x: np.ndarray, value: Any, side: int) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.asarray(side * np.inf if value is None else value, x.dtype)
    if value is None:
        return np.max(x, initial=0) if side > 0 else np.min(x, initial=0)  # no bound for integers
    if np.asarray(value).dtype.kind not in "iub":
        raise TypeError(f"clip: the bound {value} of x {x.shape} {x.dtype} is no integer; convert x with .astype(np.float32)")
    return np.asarray(value)


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y; the branch not taken gets gradient 0, never NaN.

    Raises:
        TypeError: if the condition is not boolean.

    Example:
        >>> where([True, False], [1.0, 2.0], 0.0)
        Tensor([1., 0.])
    """
    condition = np.asarray(condition.data if isinstance(condition, Tensor) else condition)
    if condition.dtype != bool:
        raise TypeError(f"where: the condition is {condition.dtype}, expected bool; compare it, e.g. condition != 0")
    return _where(x, y, condition)


@op(name="where", elementwise=True, analytic=True)
def _where(x, y, /, condition):
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    z = launch(K.where, condition, x, y, out=new(shape, np.result_type(x, y)))

    def vjp(gz):
        def branch(taken):
            return launch(K.select, taken, gz, out=new(gz.shape, gz.dtype))

        return lambda: branch(condition), lambda: branch(launch(np.logical_not, condition))

    return z, vjp


# --- dtype --------------------------------------------------------------------------------------------------------


@op(name="astype", indices=True)
def _astype(x, /, dtype):
    y = launch(K.copy, x, out=new(x.shape, dtype))
    before = x.dtype

    def vjp(gy):
        return launch(K.copy, gy, out=new(gy.shape, before))

    return y, vjp


def astype(x: Any, dtype: Any) -> Tensor:
    """Return a copy of x converted to dtype; between floats, the gradient is converted back.

    Example:
        >>> astype([1.5, 2.5], np.float64)
        Tensor([1.5, 2.5], dtype=float64)
    """
    dtype = np.dtype(dtype)
    x = x if isinstance(x, Tensor) else Tensor(x)
    if x.dtype.kind != "f" or dtype.kind != "f":
        return Tensor(as_array(x).astype(dtype))
    return _astype(x, dtype)


# --- shared by the vjps above -------------------------------------------------------------------------------------


def _like(*arrays: np.ndarray) -> np.ndarray:
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return new(shape, arrays[0].dtype)


def _chain(g: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return launch(K.chain, g, slope, out=_like(g, slope))


def _share(g: np.ndarray, beats: Any, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Give g to the winner of x and y, half each on a tie (also of two NaNs)."""

    def part(a, b):
        half = launch(np.multiply, g, np.asarray(0.5, g.dtype))
        wins, loses = launch(beats, a, b), launch(beats, b, a)
        out = launch(K.where, wins, g, half, out=new(g.shape, g.dtype))
        return launch(K.select, launch(np.logical_not, loses), out, out=new(g.shape, g.dtype))

    return lambda: part(x, y), lambda: part(y, x)
