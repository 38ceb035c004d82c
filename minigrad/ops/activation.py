"""Nonlinearities of neurons, softmax, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, op
from ..kernels import K, launch, new

__all__ = ["arctan", "dropout", "gelu", "log_softmax", "logistic", "relu", "softmax", "softplus", "tanh"]
METHODS: tuple[str, ...] = ("arctan", "log_softmax", "softmax", "tanh")

# --- one element at a time ----------------------------------------------------------------------------------------


@op(elementwise=True)
def logistic(x, /):
    """The logistic function σ(x) = 1/(1 + e^-x), without overflow.

    Equation: σ' = σ (1 - σ).

    Example:
        >>> logistic([0.0, -1000.0])
        Tensor([0.5, 0. ])
    """
    need_floats("logistic", x)
    y = launch(K.logistic, x, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.logistic_vjp, y, gy, out=new(y.shape, y.dtype))

    return y, vjp


@op(elementwise=True, analytic=True)
def tanh(x, /):
    """The hyperbolic tangent.

    Equation: y' = 1 - y².
    """
    y = launch(np.tanh, x)

    def vjp(gy):
        return launch(K.tanh_vjp, y, gy, out=new(y.shape, y.dtype))

    return y, vjp


@op(elementwise=True, analytic=True)
def arctan(x, /):
    """The inverse tangent, in radians.

    Equation: y' = 1/(1 + x²).
    """
    y = launch(np.arctan, x)

    def vjp(gy):
        return launch(K.arctan_vjp, x, gy, out=new(x.shape, x.dtype))

    return y, vjp


@op(elementwise=True)
def relu(x, /):
    """x where x > 0, else 0; the gradient at 0 is 0. NaN propagates.

    Source: V. Nair and G. Hinton, "Rectified linear units improve restricted Boltzmann machines", ICML 2010.

    Example:
        >>> relu([-1.0, 0.0, 2.0])
        Tensor([0., 0., 2.])
    """
    y = launch(K.relu, x, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.relu_vjp, y, gy, out=new(y.shape, y.dtype))

    return y, vjp


@op(elementwise=True)
def softplus(x, /):
    """log(1 + e^x), without overflow.

    Equation: y' = σ(x).
    """
    need_floats("softplus", x)
    y = launch(K.softplus, x, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.softplus_vjp, x, gy, out=new(x.shape, x.dtype))

    return y, vjp


@op(elementwise=True)
def gelu(x, /, approximate: str = "none"):
    """The Gaussian error linear unit.

    Equation: x Φ(x), Φ the standard normal distribution function; with ``approximate="tanh"``,
    x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
    Source: D. Hendrycks and K. Gimpel, arXiv 1606.08415, section 2.

    Raises:
        ValueError: if approximate is neither "none" nor "tanh".
    """
    need_floats("gelu", x)
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate {approximate!r}; expected 'none' or 'tanh'")
    forward, backward = (K.gelu, K.gelu_vjp) if approximate == "none" else (K.gelu_tanh, K.gelu_tanh_vjp)
    y = launch(forward, x, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(backward, x, gy, out=new(x.shape, x.dtype))

    return y, vjp


# --- along an axis ------------------------------------------------------------------------------------------------


@op()
def softmax(x, /, axis: int = -1):
    """e^x_i / Σ e^x_j along axis, without overflow; a row that is -inf throughout gives 0 and gradient 0.

    Equation: gx = y (gy - Σ gy y).

    Example:
        >>> softmax([0.0, 0.0])
        Tensor([0.5, 0.5])
    """
    _check_axis("softmax", x, axis)
    y = launch(K.softmax, x, axis, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.softmax_vjp, y, gy, axis, out=new(y.shape, y.dtype))

    return y, vjp


@op()
def log_softmax(x, /, axis: int = -1):
    """x_i - log Σ e^x_j along axis, without overflow; -inf and gradient 0 for a row that is -inf throughout.

    Equation: gx = gy - e^y Σ gy.
    """
    _check_axis("log_softmax", x, axis)
    y = launch(K.log_softmax, x, axis, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.log_softmax_vjp, y, gy, axis, out=new(y.shape, y.dtype))

    return y, vjp


def _check_axis(name: str, x: np.ndarray, axis: int) -> None:
    need_floats(name, x)
    if x.ndim == 0:
        raise ValueError(f"{name}: x has no axes; expected an array with at least one")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"{name}: axis {axis} is out of range for x {x.shape}; expected {-x.ndim} to {x.ndim - 1}")


def need_floats(name: str, *operands: np.ndarray) -> None:
    """Raise a TypeError if all operands are integers: a kernel would cut its results to integers."""
    if all(a.dtype.kind in "iub" for a in operands):
        kinds = ", ".join(f"{a.shape} {a.dtype}" for a in operands)
        raise TypeError(f"{name}: needs floats, got {kinds}; convert with .astype(np.float32)")


# --- dropout ------------------------------------------------------------------------------------------------------


def dropout(x: Any, p: float, key: Any) -> Tensor:
    """Set each element to 0 with probability p and scale the others by 1/(1 - p).

    Which elements fall is a pure function of ``key`` = (seed, step, first sample), three unsigned integers, and of the
    element's place: a rank that holds samples 10 to 19 of a batch passes first sample 10 and drops what a single process
    would drop there.

    Source: N. Srivastava et al., JMLR 15 (2014), in the inverted form; the hash: G. Steele, D. Lea and C. Flood,
    "Fast splittable pseudorandom number generators", OOPSLA 2014 (mix64variant13).

    Raises:
        ValueError: unless 0 <= p <= 1 and key holds three unsigned integers.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}; expected a probability from 0 to 1")
    key = np.asarray(key.data if isinstance(key, Tensor) else key)
    if key.shape != (3,) or key.dtype.kind not in "iu" or np.any(key < 0):
        raise ValueError(
            f"dropout: key {key.shape} {key.dtype}: expected three unsigned integers (seed, step, first sample)"
        )
    return _dropout(x, p, key.astype(np.uint64, copy=False))


@op(name="dropout")
def _dropout(x, /, p, key):
    need_floats("dropout", x)
    used = launch(K.copy, key, out=new(key.shape, key.dtype))  # the layer will advance its key before backward
    y = launch(K.dropout, x, p, used, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.dropout, gy, p, used, out=new(gy.shape, gy.dtype))

    return y, vjp
