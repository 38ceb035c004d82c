"""Scaled dot-product attention in one op, plain or in tiles, and rotary positions.

:func:`minigrad.nn.transformer.attention` is the same from elementary ops, to be read first; tests hold the two equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, op
from ..kernels import K, launch, new

__all__ = ["attention", "rotary"]
METHODS: tuple[str, ...] = ()


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, scale: float | None = None, dropout: float = 0.0,
    key: Any = None, tile: int | None = None,
) -> Tensor:  # fmt: skip
    """Weigh values by how well their keys match each query.

    Equation: y = softmax(scale q kᵀ + mask) v over the keys; scale is 1/√K unless given.
    Shapes: q (..., T, K), k (..., S, K), v (..., S, V) -> (..., T, V); leading axes broadcast (grouped queries). mask
    broadcasts to (..., T, S): boolean, True where a query may see a key, or floats that are added to the scores.
    causal: query t of T sees keys up to t + S - T, so that the last one sees all.
    A query that may see nothing gets 0, with gradient 0.

    With ``tile``, keys are taken that many at a time with a running softmax, and scores are computed again in the backward
    pass: memory grows with T · tile, not with T · S, and the result is the same.

    Source: A. Vaswani et al., arXiv 1706.03762, equation 1; tiles: T. Dao et al., arXiv 2205.14135, algorithms 1 and 2.

    Raises:
        ValueError: if shapes do not fit, or dropout and tile are combined.
        TypeError: if the mask is neither boolean nor of the queries' dtype.

    Example:
        >>> q, k, v = np.zeros((1, 2), np.float32), np.zeros((2, 2), np.float32), np.array([[0.0], [1.0]], np.float32)
        >>> attention(q, k, v)
        Tensor([[0.5]])
    """
    if isinstance(mask, Tensor):
        mask = mask.detach().data if not mask.requires_grad else mask
    if isinstance(mask, Tensor):
        raise TypeError("attention: the mask requires gradients, but none flow to it; use .detach(), or elementary ops")
    mask = None if mask is None else np.asarray(mask)
    if dropout and (tile is not None or key is None):
        raise ValueError("attention: dropout needs a key (see minigrad.dropout) and is not to be had in tiles")
    return _attention(q, k, v, mask, causal, scale, dropout, key, tile)


@op(name="attention")
def _attention(q, k, v, /, mask, causal, scale, p, key, tile):
    T, S = _check(q, k, v, mask)
    scale = q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if mask is not None and mask.dtype != bool and mask.dtype != q.dtype:
        raise TypeError(f"attention: the mask is {mask.dtype}; expected bool (True: may see) or {q.dtype}, to be added")
    form = _tiled if tile is not None else _plain
    return form(q, k, v, mask, causal, scale, p, key, tile, lead, T, S)


def _plain(q, k, v, mask, causal, scale, p, key, tile, lead, T, S):
    scores = launch(np.matmul, q, _t(k), out=new((*lead, T, S), q.dtype))
    weights = launch(K.attention_weights, scores, scale, mask, causal, out=new(scores.shape, q.dtype))
    used = weights
    if p:
        key = launch(K.copy, np.asarray(key), out=new((3,), np.uint64))
        used = launch(K.dropout, weights, p, key, out=new(weights.shape, q.dtype))
    y = launch(np.matmul, used, v)

    def vjp(gy):
        gw = launch(np.matmul, gy, _t(v))
        if p:
            gw = launch(K.dropout, gw, p, key, out=new(gw.shape, gw.dtype))
        gs = launch(K.attention_weights_vjp, weights, gw, scale, out=new(weights.shape, gy.dtype))
        return (
            lambda: _sum_to(launch(np.matmul, gs, k), q.shape),
            lambda: _sum_to(launch(np.matmul, _t(gs), q), k.shape),
            lambda: _sum_to(launch(np.matmul, _t(used), gy), v.shape),
        )

    return y, vjp


def _tiled(q, k, v, mask, causal, scale, p, key, tile, lead, T, S):
    if tile < 1:
        raise ValueError(f"attention: tile is {tile}; expected a positive number of keys")
    cuts = [slice(start, min(start + tile, S)) for start in range(0, S, tile)]
    y, top, total = new((*lead, T, v.shape[-1]), q.dtype), new((*lead, T), q.dtype), new((*lead, T), q.dtype)
    launch(K.fill, 0, out=y)
    launch(K.fill, -np.inf, out=top)
    launch(K.fill, 0, out=total)
    for cut in cuts:
        scores = launch(np.matmul, q, _t(k[..., cut, :]), out=new((*lead, T, cut.stop - cut.start), q.dtype))
        part = new(scores.shape, q.dtype)
        launch(K.attention_tile, scores, scale, _cut(mask, cut), causal, cut.start, S, out=(part, top, total, y))
        launch(np.add, y, launch(np.matmul, part, v[..., cut, :]), out=y)
    launch(K.attention_finish, total, out=(top, y))  # top becomes the logarithm of the sum

    def vjp(gy):
        gq, gk, gv = (new((*lead, *a.shape[-2:]), gy.dtype) for a in (q, k, v))
        launch(K.fill, 0, out=gq)
        dot = launch(K.rows_dot, gy, y, out=new(top.shape, gy.dtype))
        for cut in cuts:
            k_, v_ = k[..., cut, :], v[..., cut, :]
            scores = launch(np.matmul, q, _t(k_), out=new((*lead, T, cut.stop - cut.start), q.dtype))
            weights, gs = new(scores.shape, gy.dtype), new(scores.shape, gy.dtype)
            gw = launch(np.matmul, gy, _t(v_))
            args = (scores, gw, top, dot, scale, _cut(mask, cut), causal, cut.start, S)
            launch(K.attention_tile_vjp, *args, out=(weights, gs))
            launch(np.matmul, _t(weights), gy, out=gv[..., cut, :])
            launch(np.matmul, _t(gs), q, out=gk[..., cut, :])
            launch(np.add, gq, launch(np.matmul, gs, k_), out=gq)
        return _sum_to(gq, q.shape), _sum_to(gk, k.shape), _sum_to(gv, v.shape)

    return y, vjp


def _check(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> tuple[int, int]:
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"attention: q {q.shape}, k {k.shape}, v {v.shape}: expected (..., T, K), (..., S, K) and (..., S, V)"
        )
    T, S = q.shape[-2], k.shape[-2]
    try:
        full = (*np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]), T, S)
    except ValueError:
        raise ValueError(f"attention: q {q.shape}, k {k.shape}, v {v.shape}: the leading axes do not broadcast") from None
    if mask is not None:
        try:
            fits = np.broadcast_shapes(mask.shape, full) == full
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"attention: the mask {mask.shape} does not broadcast to (..., T, S) = {full}")
    return T, S


def _cut(mask: np.ndarray | None, cut: slice) -> np.ndarray | None:
    return mask if mask is None or mask.ndim == 0 or mask.shape[-1] == 1 else mask[..., cut]


def _t(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _sum_to(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return g if g.shape == shape else launch(K.sum_to, g, out=new(shape, g.dtype))


@op()
def rotary(x, /, first: int = 0, base: float = 10000.0):
    """Rotate pairs of features by angles that grow with the position, so that a product depends on the distance only.

    Equation: (y_j, y_(j+K/2)) = R(t b^(-2j/K)) (x_j, x_(j+K/2)) for position t = first, first + 1, ...
    Shapes: x (..., T, K), K even -> the same.
    Source: J. Su et al., arXiv 2104.09864, equations 14 and 15, with features paired across the two halves.

    Raises:
        ValueError: if K is odd.
    """
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ValueError(f"rotary: x {x.shape}: expected (..., T, K) with an even K")
    T, D = x.shape[-2:]
    angles = np.arange(first, first + T)[:, None] * base ** (-np.arange(0, D, 2) / D)  # (T, K/2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    y = launch(K.rotate, x, cos, sin, out=new(x.shape, x.dtype))

    def vjp(gy):
        return launch(K.rotate, gy, cos, -sin, out=new(gy.shape, gy.dtype))

    return y, vjp
