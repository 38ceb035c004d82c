"""Losses, each one op: the gradient is computed beside the value.

``reduction``: "mean" (the default), "sum", "none", or "sum_count", which returns the sum and the count that turns it into
the mean. Ranks with batches of different sizes add both up and divide once; a mean of means would be wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, contiguous, launch, new
from .activation import need_floats

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "huber", "l1", "mse"]
METHODS: tuple[str, ...] = ()

# --- classes ------------------------------------------------------------------------------------------------------


def cross_entropy(
    logits: Any,
    targets: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: int = -1,
    reduction: str = "mean",
) -> Any:
    """The negative log-likelihood of classes, from logits.

    Equation: ℓ = -Σ_k w_k q_k log softmax(z)_k with q = (1 - ε) onehot(t) + ε/K; gradient (Σ_k w_k q_k) softmax(z) - w q.
    The mean divides by the sum of w_t over the targets that are not ignored; it is 0, with gradient 0, if there are none.
    Shapes: logits (..., K) with the classes on ``axis``, targets (...) integers from 0 to K - 1, weight (K).
    Source: label smoothing: C. Szegedy et al., arXiv 1512.00567, section 7.

    Raises:
        ValueError: if shapes do not fit, or label_smoothing is not from 0 to 1.
        TypeError: if targets are no integers.
        IndexError: if a target is no class.

    Example:
        >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [0, 1])
        Tensor(0.6931472)
    """
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing is {label_smoothing}; expected a number from 0 to 1")
    targets = as_array(targets)
    logits = logits if isinstance(logits, Tensor) else Tensor(logits)
    if logits.ndim == 0 or not -logits.ndim <= axis < logits.ndim:
        raise ValueError(f"cross_entropy: logits {logits.shape} have no axis {axis}")
    axis %= logits.ndim
    rows = logits.shape[:axis] + logits.shape[axis + 1 :]
    if targets.shape != rows:
        raise ValueError(
            f"cross_entropy: logits {logits.shape} with classes on axis {axis} need targets {rows}, got {targets.shape}; "
            "targets are class numbers, not one-hot"
        )
    if targets.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: targets are {targets.dtype}; expected integers, the class numbers")
    classes = logits.shape[axis]
    if targets.size and (targets.min() < 0 or targets.max() >= classes):
        _check_classes(targets, classes, ignore_index)
    if weight is not None:
        if isinstance(weight, Tensor) and weight.requires_grad:
            raise TypeError("cross_entropy: the class weights require gradients, but have none; use .detach()")
        weight = as_array(weight)
        if weight.shape != (classes,) or not np.all(weight >= 0):
            raise ValueError(f"cross_entropy: weight {weight.shape}: expected {classes} numbers >= 0, one for each class")
        weight = weight.astype(logits.dtype)
    loss, count = _cross_entropy(logits, targets, weight, ignore_index, float(label_smoothing), axis, reduction)
    if reduction != "sum_count":
        return loss
    return loss, float(targets.size) if weight is None and ignore_index is None else count.item()


def _check_classes(targets: np.ndarray, classes: int, ignore: int | None) -> None:
    wrong = ((targets < 0) | (targets >= classes)) & (targets != ignore if ignore is not None else True)
    if np.any(wrong):
        at = tuple(np.argwhere(wrong)[0].tolist())
        hint = "" if ignore is not None else "; pass ignore_index if it marks padding"
        raise IndexError(
            f"cross_entropy: targets{list(at)} is {targets[at]}, expected a class from 0 to {classes - 1}{hint}"
        )


@op(name="cross_entropy")
def _cross_entropy(logits, /, targets, weight, ignore, smoothing, axis, reduction):
    need_floats("cross_entropy", logits)
    moved = logits if axis == logits.ndim - 1 else np.moveaxis(logits, axis, -1)
    z = contiguous(moved).reshape(targets.size, moved.shape[-1])  # (N, K)
    t = contiguous(targets).reshape(-1)
    losses, slope, used = new(len(z), z.dtype), new(z.shape, z.dtype), new(len(z), z.dtype)
    launch(K.cross_entropy, z, t, weight, ignore, smoothing, out=(losses, slope, used))
    count = launch(K.sum, used, 0, False, out=new((), z.dtype))
    y, scale = _reduced(losses, count, reduction, targets.shape)
    shape = moved.shape

    def vjp(gys):
        gy = gys[0]
        if scale is not None:
            gy = launch(np.multiply, gy, scale)
        if gy.ndim:
            gy = contiguous(gy).reshape(-1, 1)
        g = launch(K.chain, gy, slope, out=new(slope.shape, slope.dtype))
        g = g.reshape(shape)
        return g if axis == len(shape) - 1 else np.moveaxis(g, -1, axis)

    return (y, count), vjp


@op(name="binary_cross_entropy_with_logits")
def _binary_cross_entropy(logits, targets, /, reduction):
    need_floats("binary_cross_entropy_with_logits", logits, targets)
    _same_shape("binary_cross_entropy_with_logits", logits, targets, "logits", "targets")
    losses, slope = new(logits.shape, logits.dtype), new(logits.shape, logits.dtype)
    launch(K.binary_cross_entropy, logits, targets, out=(losses, slope))
    y, scale = _reduced(losses.reshape(-1), None, reduction, logits.shape)

    def vjp(gy):
        if scale is not None:
            gy = launch(np.multiply, gy, scale)

        def gt():
            return launch(K.chain, gy, launch(np.negative, logits), out=new(slope.shape, slope.dtype))

        return lambda: launch(K.chain, gy, slope, out=new(slope.shape, slope.dtype)), gt

    return y, vjp


def binary_cross_entropy_with_logits(logits: Any, targets: Any, *, reduction: str = "mean") -> Any:
    """The negative log-likelihood of yes/no answers, from logits.

    Equation: ℓ = max(z, 0) - z t + log(1 + e^-|z|); gradient σ(z) - t.
    Shapes: logits and targets (...) alike; targets are 0 or 1, or probabilities between.

    Raises:
        ValueError: if shapes differ or a target is not from 0 to 1.

    Example:
        >>> binary_cross_entropy_with_logits([0.0, -100.0], [1.0, 1.0], reduction="none")
        Tensor([  0.6931472, 100.       ])
    """
    _check_reduction("binary_cross_entropy_with_logits", reduction)
    values = as_array(targets)
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(
            f"binary_cross_entropy_with_logits: targets range from {values.min()} to {values.max()}; "
            "expected probabilities from 0 to 1"
        )
    return _paired(_binary_cross_entropy(logits, targets, reduction), values.size, reduction)


# --- numbers ------------------------------------------------------------------------------------------------------


def mse(x: Any, y: Any, *, reduction: str = "mean") -> Any:
    """The squared error (x - y)².

    Shapes: x and y alike; (N, 1) against (N,) is an error, not a broadcast.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> mse([1.0, 2.0], [1.0, 4.0])
        Tensor(2.)
    """
    return _difference_loss("mse", _mse, x, y, reduction)


def l1(x: Any, y: Any, *, reduction: str = "mean") -> Any:
    """The absolute error |x - y|; the gradient is 0 where they are equal. Shapes as for :func:`mse`."""
    return _difference_loss("l1", _l1, x, y, reduction)


def huber(x: Any, y: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """d²/2 for |d| <= delta, else delta (|d| - delta/2), with d = x - y. Shapes as for :func:`mse`.

    Source: P. J. Huber, "Robust estimation of a location parameter", Ann. Math. Statist. 35 (1964), section 1.

    Raises:
        ValueError: if the shapes differ or delta is not positive.
    """
    if not delta > 0:
        raise ValueError(f"huber: delta is {delta}; expected a positive number")
    return _difference_loss("huber", _huber, x, y, reduction, delta)


@op(name="mse")
def _mse(x, y, /, reduction):
    return _difference("mse", K.squared_error, x, y, reduction)


@op(name="l1")
def _l1(x, y, /, reduction):
    return _difference("l1", K.absolute_error, x, y, reduction)


@op(name="huber")
def _huber(x, y, /, reduction, delta):
    return _difference("huber", K.huber, x, y, reduction, delta)


def _difference(name: str, kernel: Any, x: Any, y: Any, reduction: str, *settings: float) -> tuple[Any, Any]:
    need_floats(name, x, y)
    _same_shape(name, x, y, "x", "y")
    losses, slope = new(x.shape, x.dtype), new(x.shape, x.dtype)
    launch(kernel, x, y, *settings, out=(losses, slope))
    z, scale = _reduced(losses.reshape(-1), None, reduction, x.shape)

    def vjp(gz):
        if scale is not None:
            gz = launch(np.multiply, gz, scale)
        gx = launch(K.chain, gz, slope, out=new(slope.shape, slope.dtype))
        return gx, lambda: launch(np.negative, gx)

    return z, vjp


def _difference_loss(name: str, loss: Any, x: Any, y: Any, reduction: str, *settings: float) -> Any:
    _check_reduction(name, reduction)
    size = x.size if isinstance(x, Tensor) else as_array(x).size
    return _paired(loss(x, y, reduction, *settings), size, reduction)


# --- shared by all ------------------------------------------------------------------------------------------------


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none", "sum_count"):
        raise ValueError(f"{name}: reduction {reduction!r}; expected 'mean', 'sum', 'none' or 'sum_count'")


def _same_shape(name: str, x: np.ndarray, y: np.ndarray, first: str, second: str) -> None:
    if x.shape != y.shape:
        raise ValueError(f"{name}: {first} {x.shape} and {second} {y.shape} must have one shape; reshape one of them")


def _reduced(losses: np.ndarray, count: Any, reduction: str, shape: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """Return the reduced loss and what its cotangent is to be multiplied by (None: nothing)."""
    if reduction == "none":
        return losses.reshape(shape), None
    total = launch(K.sum, losses, 0, False, out=new((), losses.dtype))
    if reduction != "mean":
        return total, None
    if count is None:
        scale = np.asarray(1 / max(len(losses), 1), losses.dtype)
    else:
        scale = launch(K.reciprocal_or_zero, count, out=new((), losses.dtype))
    return launch(np.multiply, total, scale), scale


def _paired(loss: Tensor, size: int, reduction: str) -> Any:
    return (loss, float(size)) if reduction == "sum_count" else loss
