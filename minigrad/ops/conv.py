"""Convolution and pooling: windows are laid out as the columns of a matrix, and the work is one matrix product.

Images are (B, C, H, W): batch, channels, height, width. What is called convolution is cross-correlation, as everywhere in
the field.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, contiguous, launch, new
from .activation import need_floats
from .shape import expand_dims, squeeze

__all__ = ["avg_pool1d", "avg_pool2d", "conv1d", "conv2d", "max_pool1d", "max_pool2d"]
METHODS: tuple[str, ...] = ()

Pair = int | tuple[int, int]


def conv2d(x: Any, w: Any, b: Any = None, stride: Pair = 1, padding: Pair = 0) -> Tensor:
    """Slide filters over images.

    Equation: y[n, o, i, j] = b[o] + Σ_(c,p,q) w[o, c, p, q] x[n, c, s i + p - P, s j + q - P], x being 0 outside.
    Shapes: x (B, C_in, H, W), w (C_out, C_in, kh, kw), b (C_out) -> (B, C_out, (H + 2P - kh)//s + 1, (W + 2P - kw)//s + 1).
    Source: K. Chellapilla, S. Puri and P. Simard, "High performance convolutional neural networks for document
    processing", 2006 (windows as columns).

    Raises:
        ValueError: if shapes do not fit or the filter is larger than the padded image.

    Example:
        >>> conv2d(np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)).shape
        (1, 1, 2, 2)
    """
    return _conv2d(x, w, b, _pair("conv2d", "stride", stride, 1), _pair("conv2d", "padding", padding, 0))


@op(name="conv2d", analytic=True)
def _conv2d(x, w, b, /, stride, padding):
    if x.ndim != 4 or w.ndim != 4 or x.shape[1] != w.shape[1]:
        raise ValueError(
            f"conv2d: x {x.shape} and w {w.shape}: expected (batch, channels, height, width) and "
            "(filters, channels, height, width) with equal channels"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(f"conv2d: b {b.shape} and w {w.shape}: expected ({w.shape[0]},), one for each filter")
    B, C, H, W = x.shape
    O, _, kh, kw = w.shape
    (sh, sw), (ph, pw) = stride, padding
    oh, ow = _steps("conv2d", x, H + 2 * ph, kh, sh), _steps("conv2d", x, W + 2 * pw, kw, sw)
    dtype = np.result_type(x, w)
    padded = new((C, H + 2 * ph, W + 2 * pw, B), x.dtype)  # batch last: columns are then copied in long runs
    inside = (slice(None), slice(ph, ph + H), slice(pw, pw + W))
    launch(K.pad, x.transpose(1, 2, 3, 0), inside, 0, out=padded)
    columns = new((C, kh, kw, oh, ow, B), x.dtype)
    launch(K.copy, _windows(padded, kh, kw, sh, sw).transpose(0, 4, 5, 1, 2, 3), out=columns)
    cols, rows = columns.reshape(C * kh * kw, oh * ow * B), contiguous(w).reshape(O, C * kh * kw)
    y = launch(np.matmul, rows, cols, out=new((O, oh * ow * B), dtype))
    if b is not None:
        launch(np.add, y, b[:, None], out=y)
    biased = b is not None

    def vjp(gy):
        g = contiguous(gy.transpose(1, 2, 3, 0)).reshape(O, oh * ow * B)

        def gx():
            back = launch(np.matmul, rows.T, g).reshape(columns.shape)
            wide = launch(K.columns_vjp, back, (sh, sw), out=new(padded.shape, gy.dtype))
            return wide[inside].transpose(3, 0, 1, 2)

        def gw():
            return launch(np.matmul, g, cols.T).reshape(w.shape)

        def gb():
            return launch(K.sum, g, 1, False, out=new(O, g.dtype))

        return gx, gw, gb if biased else None

    return y.reshape(O, oh, ow, B).transpose(3, 0, 1, 2), vjp


def conv1d(x: Any, w: Any, b: Any = None, stride: int = 1, padding: int = 0) -> Tensor:
    """Slide filters over sequences: :func:`conv2d` with a height of 1.

    Shapes: x (B, C_in, L), w (C_out, C_in, k), b (C_out) -> (B, C_out, (L + 2P - k)//s + 1).
    """
    _sequence("conv1d", "x", x)
    _sequence("conv1d", "w", w)
    return squeeze(conv2d(expand_dims(x, 2), expand_dims(w, 2), b, (1, stride), (0, padding)), 2)


# --- pooling ------------------------------------------------------------------------------------------------------


def max_pool2d(x: Any, size: Pair, stride: Pair | None = None) -> Tensor:
    """The largest element of each window; elements that tie share the gradient equally.

    Rows and columns that do not fill a window at the end are left out.
    Shapes: x (B, C, H, W) -> (B, C, (H - kh)//s + 1, (W - kw)//s + 1); stride is size unless given.

    Raises:
        ValueError: if a window is larger than the image.

    Example:
        >>> max_pool2d(np.arange(16.0, dtype=np.float32).reshape(1, 1, 4, 4), 2).data[0, 0]
        array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    size = _pair("max_pool2d", "size", size, 1)
    return _max_pool(x, size, size if stride is None else _pair("max_pool2d", "stride", stride, 1))


def avg_pool2d(x: Any, size: Pair, stride: Pair | None = None) -> Tensor:
    """The mean of each window. Shapes and windows as in :func:`max_pool2d`."""
    size = _pair("avg_pool2d", "size", size, 1)
    return _avg_pool(x, size, size if stride is None else _pair("avg_pool2d", "stride", stride, 1))


def max_pool1d(x: Any, size: int, stride: int | None = None) -> Tensor:
    """The largest element of each window of a sequence (B, C, L)."""
    _sequence("max_pool1d", "x", x)
    return squeeze(max_pool2d(expand_dims(x, 2), (1, size), None if stride is None else (1, stride)), 2)


def avg_pool1d(x: Any, size: int, stride: int | None = None) -> Tensor:
    """The mean of each window of a sequence (B, C, L)."""
    _sequence("avg_pool1d", "x", x)
    return squeeze(avg_pool2d(expand_dims(x, 2), (1, size), None if stride is None else (1, stride)), 2)


@op(name="max_pool2d")
def _max_pool(x, /, size, stride):
    y = new(_pooled("max_pool2d", x, size, stride), x.dtype)
    launch(K.max_pool, x, size, stride, out=y)

    def vjp(gy):
        return launch(K.max_pool_vjp, x, y, gy, size, stride, out=new(x.shape, gy.dtype))

    return y, vjp


@op(name="avg_pool2d", analytic=True)
def _avg_pool(x, /, size, stride):
    y = new(_pooled("avg_pool2d", x, size, stride), x.dtype)
    launch(K.avg_pool, x, size, stride, out=y)
    shape = x.shape

    def vjp(gy):
        return launch(K.avg_pool_vjp, gy, size, stride, out=new(shape, gy.dtype))

    return y, vjp


# --- shared by the ops above --------------------------------------------------------------------------------------


def _pair(name: str, label: str, value: Any, least: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(not isinstance(v, (int, np.integer)) or v < least for v in pair):
        raise ValueError(f"{name}: {label} is {value}; expected an int or a pair of ints >= {least}")
    return pair


def _steps(name: str, x: np.ndarray, n: int, k: int, s: int) -> int:
    if k > n:
        raise ValueError(f"{name}: a window of {k} is larger than the (padded) size {n} of x {x.shape}")
    return (n - k) // s + 1


def _sequence(name: str, label: str, x: Any) -> None:
    if as_array(x).ndim != 3:
        raise ValueError(f"{name}: {label} {as_array(x).shape}: expected three axes, the last one the length")


def _pooled(name: str, x: np.ndarray, size: tuple[int, int], stride: tuple[int, int]) -> tuple[int, ...]:
    need_floats(name, x)
    if x.ndim != 4:
        raise ValueError(f"{name}: x {x.shape}: expected (batch, channels, height, width)")
    return (*x.shape[:2], *(_steps(name, x, n, k, s) for n, k, s in zip(x.shape[2:], size, stride)))


def _windows(x: np.ndarray, kh: int, kw: int, sh: int, sw: int) -> np.ndarray:
    """View all windows: (C, H, W, B) -> (C, oh, ow, B, kh, kw)."""
    return np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(1, 2))[:, ::sh, ::sw]
