"""Derivatives of functions: from a function of tensors to a function that returns arrays.

The leaves' own ``.grad`` is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .engine import Tensor, backward

__all__ = ["grad", "hvp", "jacobian", "value_and_grad", "vjp"]

Function = Callable[..., Any]


def value_and_grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function of the same arguments that returns (value of f, gradient of f), both arrays.

    With several ``argnums`` the gradient is a tuple, one for each.

    Raises:
        ValueError: when it is called, if f returns no scalar.

    Example:
        >>> value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
        (array(5.), array([2., 4.]))
    """
    several = not isinstance(argnums, int)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def function(*args: Any) -> tuple[np.ndarray, Any]:
        leaves, full = _leaves(args, numbers)
        y = _tensor(f(*full))
        if y.size != 1:
            raise ValueError(f"grad: f returned {y.shape}; expected a scalar: reduce it, or use vjp or jacobian")
        gradients = _gradients(y, np.ones(y.shape, y.dtype), leaves)
        return y.data, gradients if several else gradients[0]

    return function


def grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function of the same arguments that returns the gradient of f, an array (or a tuple, see value_and_grad).

    Example:
        >>> grad(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
        array([ 3., 12.])
    """
    both = value_and_grad(f, argnums)
    return lambda *args: both(*args)[1]


def vjp(f: Function, *args: Any) -> tuple[np.ndarray, Callable[[Any], tuple[np.ndarray, ...]]]:
    """Return f(args) and a function from a cotangent of it to the cotangents of all args (it may be called repeatedly).

    Example:
        >>> y, pull = vjp(lambda x: x * x, np.array([1.0, 2.0]))
        >>> pull(np.array([1.0, 10.0]))
        (array([ 2., 40.]),)
    """
    leaves, full = _leaves(args, range(len(args)))
    y = _tensor(f(*full))
    return y.data, lambda cotangent: _gradients(y, np.asarray(cotangent, y.dtype), leaves, retain_graph=True)


def jacobian(f: Function, argnums: int = 0) -> Function:
    """Return a function of the same arguments that returns ∂f/∂x: shape of f(x), then shape of x; one vjp for each row.

    Example:
        >>> jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """

    def function(*args: Any) -> np.ndarray:
        leaves, full = _leaves(args, (argnums,))
        y = _tensor(f(*full))
        rows = np.zeros((y.size, *leaves[0].shape), y.dtype)
        for i in range(y.size):
            unit = np.zeros(y.size, y.dtype)
            unit[i] = 1
            rows[i] = _gradients(y, unit.reshape(y.shape), leaves, retain_graph=True)[0]
        return rows.reshape(*y.shape, *leaves[0].shape)

    return function


def hvp(f: Function, x: Any, v: Any) -> np.ndarray:
    """Return the Hessian of f at x times v, by differences of gradients in float64.

    Equation: (4 D(h/2) - D(h))/3 with D(h) = (∇f(x + h v) - ∇f(x - h v))/(2 h); the error is of order h⁴ plus rounding, about
    1e-10 of the gradient's size for smooth f. (No op here has a vjp of its vjp, and vjps take no complex numbers, so neither
    double backward nor a complex step is to be had.)

    Example:
        >>> hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0])).round(6)
        array([ 6., 12.])
    """
    x, v = (np.asarray(a.data if isinstance(a, Tensor) else a, np.float64) for a in (x, v))
    if x.shape != v.shape:
        raise ValueError(f"hvp: x {x.shape} and v {v.shape} must have one shape")
    gradient = grad(f)
    h = 2e-3 * max(1.0, float(np.max(np.abs(x), initial=0))) / max(float(np.max(np.abs(v), initial=0)), 1e-300)

    def slope(h: float) -> np.ndarray:
        return (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)

    return (4 * slope(h / 2) - slope(h)) / 3 if np.any(v) else np.zeros_like(x)


def _leaves(args: Sequence[Any], numbers: Sequence[int]) -> tuple[list[Tensor], list[Any]]:
    full = list(args)
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise ValueError(f"argnums: {i} is out of range for {len(args)} arguments")
        a = args[i]
        full[i] = Tensor(a.data if isinstance(a, Tensor) else a, requires_grad=True)
    return [full[i] for i in numbers], full


def _tensor(y: Any) -> Tensor:
    if not isinstance(y, Tensor):
        raise TypeError(f"f returned {type(y).__name__}; expected a Tensor")
    return y


def _gradients(y: Tensor, cotangent: np.ndarray, leaves: list[Tensor], retain_graph: bool = False) -> tuple[np.ndarray, ...]:
    if not y.requires_grad:
        return tuple(np.zeros_like(leaf.data) for leaf in leaves)
    found = backward([y], [cotangent], inputs=leaves, retain_graph=retain_graph) or []
    return tuple(np.zeros_like(leaf.data) if g is None else np.array(g) for g, leaf in zip(found, leaves))
