"""The linear-chain conditional random field: likelihood of a tag sequence, and the best one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, launch, new

__all__ = ["crf", "viterbi"]
METHODS: tuple[str, ...] = ()


def crf(emissions: Any, transitions: Any, start: Any, stop: Any, tags: Any, lengths: Any = None) -> Tensor:
    """The log-likelihood of each row's tags.

    Equation: log p(y | x) = s(y) - log Σ_y' e^s(y'), s(y) = start[y_1] + Σ_t e_t[y_t] + Σ_t A[y_(t-1), y_t] + stop[y_n].
    The sum over all sequences is the forward algorithm, α_t[j] = log Σ_i e^(α_(t-1)[i] + A[i, j]) + e_t[j]; its gradient, the
    probabilities of tags and of pairs of tags, is the forward algorithm's vjp.
    Shapes: emissions (B, T, L), transitions A (L, L) from tag to tag, start and stop (L), tags (B, T) integers, lengths (B)
    -> (B).
    Source: J. Lafferty, A. McCallum and F. Pereira, ICML 2001, section 3.

    Raises:
        ValueError: if shapes do not fit or a length is not from 1 to T.
        IndexError: if a tag within a row's length is none of the L.
    """
    return _crf(emissions, transitions, start, stop, as_array(tags), lengths)


@op(name="crf")
def _crf(emissions, transitions, start, stop, /, tags, lengths):
    lengths = _check("crf", emissions, transitions, start, stop, lengths)
    B, T, L = emissions.shape
    if tags.shape != (B, T) or tags.dtype.kind not in "iu":
        raise ValueError(f"crf: tags {tags.shape} {tags.dtype}: expected ({B}, {T}) integers")
    real = np.arange(T) < lengths[:, None]
    wrong = real & ((tags < 0) | (tags >= L))
    if np.any(wrong):
        at = np.argwhere(wrong)[0].tolist()
        raise IndexError(f"crf: tags{at} is {tags[tuple(at)]}, expected 0 to {L - 1}")
    tags = np.where(real, tags, 0)
    alpha, y = new((T, B, L), emissions.dtype), new(B, emissions.dtype)
    launch(K.crf, emissions, transitions, start, stop, tags, lengths, out=(alpha, y))

    def vjp(gy):
        grads = tuple(new(a.shape, gy.dtype) for a in (emissions, transitions, start, stop))
        launch(K.crf_vjp, gy, alpha, emissions, transitions, stop, tags, lengths, out=grads)
        return grads

    return y, vjp


def viterbi(emissions: Any, transitions: Any, start: Any, stop: Any, lengths: Any = None) -> np.ndarray:
    """Return the most likely tags of each row, (B, T) integers, -1 beyond its length; arguments as for :func:`crf`.

    Equation: δ_t[j] = max_i (δ_(t-1)[i] + A[i, j]) + e_t[j], and the maxima traced back.
    Source: A. Viterbi, IEEE Trans. Information Theory 13 (1967).
    """
    e, A, start, stop = (as_array(a) for a in (emissions, transitions, start, stop))
    lengths = _check("viterbi", e, A, start, stop, lengths)
    B, T, _ = e.shape
    best = start + e[:, 0]  # (B, L)
    came = np.zeros(e.shape, np.int64)
    for t in range(1, T):
        paths = best[:, :, None] + A  # (B, from, to)
        came[:, t] = paths.argmax(axis=1)
        best = np.where((t < lengths)[:, None], paths.max(axis=1) + e[:, t], best)
    tags = np.full((B, T), -1)
    now = np.argmax(best + stop, axis=1)
    rows = np.arange(B)
    for t in range(T - 1, -1, -1):
        tags[:, t] = np.where(t < lengths, now, -1)
        now = np.where((t < lengths) & (t > 0), came[rows, t, now], now)
    return tags


def _check(name: str, e: np.ndarray, A: np.ndarray, start: np.ndarray, stop: np.ndarray, lengths: Any) -> np.ndarray:
    L = e.shape[-1]
    if e.ndim != 3 or A.shape != (L, L) or start.shape != (L,) or stop.shape != (L,) or e.shape[1] < 1:
        raise ValueError(
            f"{name}: emissions {e.shape}, transitions {A.shape}, start {start.shape}, stop {stop.shape}: "
            "expected (B, T, L), (L, L), (L,), (L,)"
        )
    B, T, _ = e.shape
    n = np.full(B, T) if lengths is None else np.asarray(lengths)
    if n.shape != (B,) or n.dtype.kind not in "iu" or np.any((n < 1) | (n > T)):
        raise ValueError(f"{name}: lengths {n.tolist()}: expected {B} integers from 1 to {T}; drop empty sequences")
    return n
