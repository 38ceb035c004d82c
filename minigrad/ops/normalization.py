"""Normalisation of features: over the last axis of each sample, or over the samples of a batch."""

from __future__ import annotations

import math

import numpy as np

from ..engine import op
from ..kernels import K, contiguous, launch, new

__all__ = ["batch_norm", "layer_norm", "rms_norm"]
METHODS: tuple[str, ...] = ()


@op()
def layer_norm(x, weight=None, bias=None, /, eps: float = 1e-5):
    """Give the last axis mean 0 and variance 1, then scale and shift.

    Equation: y = x̂ w + b, x̂ = (x - mean)/√(var + eps);
    gx = (ĝ - mean(ĝ) - x̂ mean(ĝ x̂))/√(var + eps) with ĝ = gy w.
    Shapes: x (..., D), weight and bias (D) or None.
    Source: J. L. Ba, J. R. Kiros and G. Hinton, arXiv 1607.06450, equation 4.
    """
    _check("layer_norm", x, weight=weight, bias=bias)
    shape, D = x.shape, x.shape[-1]
    rows = _rows(x)  # (N, D)
    y, mean, rstd = new(rows.shape, x.dtype), new(len(rows), x.dtype), new(len(rows), x.dtype)
    launch(K.layer_norm, rows, weight, bias, eps, out=(y, mean, rstd))
    biased = bias is not None

    def vjp(gy):
        g = _rows(gy)
        gx, gw, gb = new(rows.shape, gy.dtype), new(D, gy.dtype), new(D, gy.dtype)
        launch(K.layer_norm_vjp, g, rows, weight, mean, rstd, out=(gx, gw, gb))
        return gx.reshape(shape), None if weight is None else gw, gb if biased else None

    return y.reshape(shape), vjp


@op()
def rms_norm(x, weight=None, /, eps: float = 1e-6):
    """Divide the last axis by its root mean square, then scale.

    Equation: y = x̂ w, x̂ = x/√(mean(x²) + eps); gx = (ĝ - x̂ mean(ĝ x̂))/√(mean(x²) + eps) with ĝ = gy w.
    Shapes: x (..., D), weight (D) or None.
    Source: B. Zhang and R. Sennrich, arXiv 1910.07467, equation 4.
    """
    _check("rms_norm", x, weight=weight)
    shape, D = x.shape, x.shape[-1]
    rows = _rows(x)  # (N, D)
    y, rstd = new(rows.shape, x.dtype), new(len(rows), x.dtype)
    launch(K.rms_norm, rows, weight, eps, out=(y, rstd))

    def vjp(gy):
        g = _rows(gy)
        gx, gw = new(rows.shape, gy.dtype), new(D, gy.dtype)
        launch(K.rms_norm_vjp, g, rows, weight, rstd, out=(gx, gw))
        return gx.reshape(shape), None if weight is None else gw

    return y.reshape(shape), vjp


@op()
def batch_norm(x, weight=None, bias=None, /, eps: float = 1e-5):
    """Give every feature mean 0 and variance 1 over the batch; return (y, mean, var), var being the biased variance.

    Equation: y = (x - mean)/√(var + eps) w + b over all axes but axis 1. An empty batch gives an empty y, and 0 and 1.
    Shapes: x (B, D, ...), weight and bias (D) or None -> y like x, mean and var (D).
    Source: S. Ioffe and C. Szegedy, arXiv 1502.03167, algorithm 1.
    """
    if x.ndim < 2:
        raise ValueError(f"batch_norm: x {x.shape}: expected (batch, features, ...)")
    _check("batch_norm", x, axis=1, weight=weight, bias=bias)
    D = x.shape[1]
    y, mean, var = new(x.shape, x.dtype), new(D, x.dtype), new(D, x.dtype)
    launch(K.batch_norm, x, weight, bias, eps, out=(y, mean, var))
    biased = bias is not None

    def vjp(gys):
        gx, gw, gb = new(x.shape, x.dtype), new(D, x.dtype), new(D, x.dtype)
        launch(K.batch_norm_vjp, *gys, x, weight, mean, var, eps, out=(gx, gw, gb))
        return gx, None if weight is None else gw, gb if biased else None

    return (y, mean, var), vjp


def _rows(x: np.ndarray) -> np.ndarray:
    return contiguous(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _check(name: str, x: np.ndarray, axis: int = -1, **vectors: np.ndarray | None) -> None:
    if x.ndim == 0 or x.dtype.kind != "f":
        raise TypeError(f"{name}: x {x.shape} {x.dtype}: expected floats with at least one axis")
    for label, v in vectors.items():
        if v is not None and v.shape != (x.shape[axis],):
            raise ValueError(
                f"{name}: {label} {v.shape} and x {x.shape}: expected ({x.shape[axis]},), one for each feature"
            )
