"""Taggers: a label for each word of a sentence, by a bidirectional LSTM or a transformer, with a CRF on top or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..engine import Tensor, no_grad
from . import init
from .layers import Dropout, Embedding, LayerNorm, Linear
from .module import Module, Parameter
from .recurrent import LSTM
from .transformer import TransformerBlock, sinusoidal

__all__ = ["Tagger"]


class Tagger(Module):
    """Embed the features of each word, mix them along the sentence, and score the tags.

    Args:
        sizes: how many numbers each kind of feature has; see :class:`minigrad.data.WordFeatures`.
        tags: how many tags there are.
        kind: "lstm" (bidirectional) or "transformer".
        crf: let a linear chain weigh which tag follows which; see :func:`minigrad.crf`.

    Shapes: features (B, T, kinds) integers, lengths (B) -> scores (B, T, tags).
    """

    def __init__(
        self, sizes: list[int], tags: int, *, rng: np.random.Generator, kind: str = "lstm", hidden: int = 96, crf: bool = False,
        dropout: float = 0.3, seed: int = 0, heads: int = 4, layers: int = 2, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        if kind not in ("lstm", "transformer"):
            raise ValueError(f"Tagger: kind {kind!r}; expected 'lstm' or 'transformer'")
        widths = [64, *[24] * (len(sizes) - 1)]
        self.embed = [Embedding(n, width, rng=rng, dtype=dtype) for n, width in zip(sizes, widths)]
        d = sum(widths)
        self.drop_in, self.drop_out = Dropout(dropout, seed=seed), Dropout(dropout, seed=seed + 1)
        if kind == "lstm":
            self.mix = LSTM(d, hidden, rng=rng, bidirectional=True, dtype=dtype)
        else:
            self.enter = Linear(d, 2 * hidden, rng=rng, dtype=dtype)
            seeds = range(seed + 10, seed + 10 * layers + 1, 10)
            self.blocks = [TransformerBlock(2 * hidden, heads, rng=rng, seed=i, dtype=dtype) for i in seeds]
            self.norm = LayerNorm(2 * hidden, dtype=dtype)
        self.score = Linear(2 * hidden, tags, rng=rng, dtype=dtype)
        if crf:
            self.transitions = Parameter(init.zeros((tags, tags), dtype=dtype))
            self.start, self.stop = Parameter(init.zeros((tags,), dtype=dtype)), Parameter(init.zeros((tags,), dtype=dtype))

    def forward(self, features: Any, lengths: Any) -> Tensor:
        features, lengths = self._trim(features, lengths)
        parts = [embed(features[:, :, i]) for i, embed in enumerate(self.embed)]
        x = self.drop_in(ops.concatenate(parts, axis=2))
        if hasattr(self, "mix"):
            x, _ = self.mix(x, lengths=lengths)
        else:
            T = features.shape[1]
            x = self.enter(x)
            x = x + sinusoidal(T, x.shape[2], dtype=x.dtype)
            real = np.arange(T) < lengths[:, None]
            for block in self.blocks:
                x = block(x, mask=real[:, None, :])
            x = self.norm(x)
        return self.score(self.drop_out(x))

    def loss(self, features: Any, lengths: Any, tags: Any) -> tuple[Tensor, float]:
        """Return the sum of the negative log-likelihood of tags (B, T), and how many words it is over."""
        scores = self(features, lengths)
        tags = np.asarray(tags)[:, : scores.shape[1]]
        count = float(np.sum(lengths))
        if hasattr(self, "transitions"):
            if not len(tags):
                return (scores.sum() + self.transitions.sum() + self.start.sum() + self.stop.sum()) * 0.0, 0.0
            return -ops.crf(scores, self.transitions, self.start, self.stop, tags, lengths).sum(), count
        real = np.arange(tags.shape[1]) < np.asarray(lengths)[:, None]
        return ops.cross_entropy(scores, np.where(real, tags, -1), ignore_index=-1, reduction="sum"), count

    @no_grad()
    def tag(self, features: Any, lengths: Any) -> np.ndarray:
        """Return the best tags (B, T), -1 beyond each length."""
        scores = self(features, lengths)
        if hasattr(self, "transitions"):
            return ops.viterbi(scores, self.transitions, self.start, self.stop, lengths)
        real = np.arange(scores.shape[1]) < np.asarray(lengths)[:, None]
        return np.where(real, np.argmax(scores.data, axis=2), -1)

    @staticmethod
    def _trim(features: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
        """Cut padding that no sentence of this batch needs."""
        features, lengths = np.asarray(features), np.asarray(lengths)
        if features.ndim != 3 or lengths.shape != features.shape[:1]:
            raise ValueError(f"Tagger: features {features.shape} and lengths {lengths.shape}: expected (B, T, kinds) and (B,)")
        if lengths.size and (lengths.min() < 1 or lengths.max() > features.shape[1]):
            raise ValueError(f"Tagger: lengths from {lengths.min()} to {lengths.max()}, expected 1 to {features.shape[1]}")
        return features[:, : max(lengths.max(initial=1), 1)], lengths
