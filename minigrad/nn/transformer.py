"""Transformers: attention from elementary ops, multi-head attention, blocks, stacks, and decoding.

Axes: B batch, T queries, S keys, D features, N heads, K head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..engine import Tensor, no_grad
from . import init
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ReLU, RMSNorm, Sequential
from .module import Module, Parameter

__all__ = [
    "Cache", "Decoder", "Encoder", "EncoderDecoder", "LanguageModel", "MultiHeadAttention", "TransformerBlock", "attention",
    "beam_search", "generate", "sinusoidal",
]  # fmt: skip


def attention(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """Scaled dot-product attention from elementary ops: the definition of :func:`minigrad.attention`.

    Equation: y = softmax(q kᵀ/√K + mask) v.
    Source: A. Vaswani et al., arXiv 1706.03762, equation 1.
    """
    scores = (q @ ops.swapaxes(k, -1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    T, S = scores.shape[-2:]
    if mask is not None:
        scores = ops.where(mask, scores, -np.inf) if np.asarray(mask).dtype == bool else scores + mask
    if causal:
        scores = ops.where(np.tri(T, S, S - T, dtype=bool), scores, -np.inf)
    return ops.softmax(scores) @ v


def sinusoidal(T: int, D: int, first: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Return encodings of positions first, first + 1, ...: (T, D), D even.

    Equation: p[t, 2j] = sin(t/10000^(2j/D)), p[t, 2j + 1] = cos(t/10000^(2j/D)).
    Source: A. Vaswani et al., arXiv 1706.03762, section 3.5.
    """
    if D % 2:
        raise ValueError(f"sinusoidal: D is {D}; expected an even number of features")
    angles = np.arange(first, first + T)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(T, D).astype(dtype)


class Cache:
    """Keys and values of the positions decoded so far, for each attention that has seen this cache."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def extend(self, owner: Module, k: Tensor, v: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Append keys and values (B, N, T, K) to those of owner and return all."""
        if id(owner) in self.held:
            old_k, old_v = self.held[id(owner)]
            self.held[id(owner)] = np.concatenate([old_k, k.data], axis=2), np.concatenate([old_v, v.data], axis=2)
        else:
            self.held[id(owner)] = k.data, v.data
        return self.held[id(owner)]

    @property
    def length(self) -> int:
        """Positions held."""
        return next((k.shape[2] for k, _ in self.held.values()), 0)

    def select(self, rows: np.ndarray) -> Cache:
        """Return a cache of these rows of the batch: beam search keeps some and drops others."""
        chosen = Cache()
        chosen.held = {owner: (k[rows], v[rows]) for owner, (k, v) in self.held.items()}
        return chosen


class MultiHeadAttention(Module):
    """Several attentions side by side, each on its own projection of the features.

    Args:
        d, heads: features, and heads of size d / heads.
        kv_heads: keys and values may have fewer heads, each shared by a group of queries' heads.
        rotary: rotate queries and keys by position.
        tile: take keys in tiles; see :func:`minigrad.attention`.

    Shapes: x (B, T, d), memory (B, S, d) -> (B, T, d).
    Source: A. Vaswani et al., arXiv 1706.03762, section 3.2.2; groups: J. Ainslie et al., arXiv 2305.13245.
    """

    def __init__(
        self, d: int, heads: int, *, rng: np.random.Generator, kv_heads: int | None = None, rotary: bool = False,
        dropout: float = 0.0, seed: int = 0, bias: bool = True, tile: int | None = None, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        kv_heads = kv_heads or heads
        if d % heads or heads % kv_heads:
            raise ValueError(
                f"MultiHeadAttention: d {d}, heads {heads}, kv_heads {kv_heads}: heads must divide d, and kv_heads the heads"
            )
        self.heads, self.kv_heads, self.size = heads, kv_heads, d // heads
        self.rotary, self.tile = rotary, tile
        normal = _normal(0.02)
        self.qkv = Linear(d, (heads + 2 * kv_heads) * self.size, rng=rng, bias=bias, weight=normal, dtype=dtype)
        self.out = Linear(d, d, rng=rng, bias=bias, weight=normal, dtype=dtype)
        self.drop = Dropout(dropout, seed=seed)

    def forward(
        self, x: Any, memory: Any = None, *, mask: Any = None, causal: bool = False, cache: Cache | None = None
    ) -> Tensor:
        """Attend from x to itself, or to memory. mask (B, T, S) or (B, 1, S): True where a query may see a key."""
        B, T, d = x.shape
        q_end = self.heads * self.size
        if memory is None:
            q, k, v = ops.split(self.qkv(x), [q_end, q_end + self.kv_heads * self.size], axis=2)
        else:
            w, b = self.qkv.w, self.qkv.b
            q = ops.linear(x, w[:, :q_end], None if b is None else b[:q_end])
            k, v = ops.split(ops.linear(memory, w[:, q_end:], None if b is None else b[q_end:]), 2, axis=2)
        q, k, v = (self._heads(a, n) for a, n in ((q, self.heads), (k, self.kv_heads), (v, self.kv_heads)))
        first = 0
        if cache is not None and memory is None:
            held = cache.held.get(id(self))
            first = held[0].shape[2] if held else 0
        if self.rotary and memory is None:
            q, k = ops.rotary(q, first=first), ops.rotary(k, first=first)
        if cache is not None and memory is None:
            k, v = (Tensor(a) for a in cache.extend(self, k, v))
        if mask is not None:
            mask = np.asarray(mask.data if isinstance(mask, Tensor) else mask)
            if mask.ndim == 3:
                mask = mask[:, None]
        group = self.heads // self.kv_heads
        if group > 1:  # (B, N, T, K) -> (B, kv heads, group, T, K)
            q = ops.reshape(q, (B, self.kv_heads, group, T, self.size))
            k, v = ops.expand_dims(k, 2), ops.expand_dims(v, 2)
            mask = mask[:, :, None] if mask is not None and mask.ndim == 4 else mask
        p = self.drop.p if self.drop.training else 0.0
        y = ops.attention(q, k, v, mask, causal=causal, dropout=p, key=self.drop.key.data, tile=self.tile if not p else None)
        if p:
            self.drop.advance()
        y = ops.transpose(ops.reshape(y, (B, self.heads, T, self.size)), (0, 2, 1, 3))
        return self.out(ops.reshape(y, (B, T, d)))

    def _heads(self, a: Tensor, n: int) -> Tensor:
        """(B, T, n K) -> (B, n, T, K)."""
        B, T, _ = a.shape
        return ops.transpose(ops.reshape(a, (B, T, n, self.size)), (0, 2, 1, 3))


class TransformerBlock(Module):
    """Attention and a two-layer network, each beside a residual connection.

    Pre-norm: x + f(norm(x)); post-norm: norm(x + f(x)). With ``cross``, a second attention looks at a memory.
    Source: A. Vaswani et al., arXiv 1706.03762, figure 1; pre-norm: R. Xiong et al., arXiv 2002.04745.
    """

    def __init__(
        self, d: int, heads: int, *, rng: np.random.Generator, hidden: int | None = None, pre_norm: bool = True,
        norm: str = "layer", cross: bool = False, dropout: float = 0.0, activation: str = "gelu", seed: int = 0,
        dtype: Any = np.float32, **attention: Any,
    ) -> None:  # fmt: skip
        if norm not in ("layer", "rms") or activation not in ("gelu", "relu"):
            raise ValueError(f"TransformerBlock: norm {norm!r}, activation {activation!r}; expected layer or rms, gelu or relu")
        self.pre_norm = pre_norm
        make_norm: Callable[..., Module] = LayerNorm if norm == "layer" else RMSNorm
        settings = {"rng": rng, "dropout": dropout, "dtype": dtype, **attention}
        self.norm1 = make_norm(d, dtype=dtype)
        self.attend = MultiHeadAttention(d, heads, seed=seed, **settings)
        if cross:
            self.norm_cross = make_norm(d, dtype=dtype)
            self.look = MultiHeadAttention(d, heads, seed=seed + 1, **{**settings, "rotary": False})
        self.norm2 = make_norm(d, dtype=dtype)
        hidden = hidden or 4 * d
        act = GELU("tanh") if activation == "gelu" else ReLU()
        normal = _normal(0.02)
        self.network = Sequential(
            Linear(d, hidden, rng=rng, weight=normal, dtype=dtype), act,
            Linear(hidden, d, rng=rng, weight=normal, dtype=dtype),
        )  # fmt: skip
        self.drops = [Dropout(dropout, seed=seed + 2 + i) for i in range(3)]

    def forward(
        self, x: Any, memory: Any = None, *, mask: Any = None, memory_mask: Any = None, causal: bool = False,
        cache: Cache | None = None,
    ) -> Tensor:  # fmt: skip
        x = self._residual(x, self.norm1, lambda a: self.drops[0](self.attend(a, mask=mask, causal=causal, cache=cache)))
        if hasattr(self, "look"):
            if memory is None:
                raise ValueError("TransformerBlock: made with cross=True, called without a memory")
            x = self._residual(x, self.norm_cross, lambda a: self.drops[1](self.look(a, memory, mask=memory_mask)))
        return self._residual(x, self.norm2, lambda a: self.drops[2](self.network(a)))

    def _residual(self, x: Any, norm: Module, f: Callable[[Any], Tensor]) -> Tensor:
        return x + f(norm(x)) if self.pre_norm else norm(x + f(x))


class _Stack(Module):
    """Embedded tokens with positions, through blocks."""

    causal = False
    cross = False

    def __init__(
        self, vocabulary: int, d: int, heads: int, layers: int, context: int, *, rng: np.random.Generator,
        positions: str = "learned", dropout: float = 0.0, pre_norm: bool = True, norm: str = "layer", seed: int = 0,
        dtype: Any = np.float32, **block: Any,
    ) -> None:  # fmt: skip
        if positions not in ("learned", "sinusoidal", "rotary"):
            raise ValueError(f"positions {positions!r}; expected learned, sinusoidal or rotary")
        self.context, self.positions, self.d = context, positions, d
        self.embed = Embedding(vocabulary, d, rng=rng, dtype=dtype)
        self.embed.weight.data[...] = init.normal((vocabulary, d), rng, dtype, 0.02)
        if positions == "learned":
            self.place = Parameter(init.normal((context, d), rng, dtype, 0.02))
        elif positions == "sinusoidal":
            self.waves = Tensor(sinusoidal(context, d, dtype=dtype))
        self.drop = Dropout(dropout, seed=seed)
        settings = {"rng": rng, "dropout": dropout, "pre_norm": pre_norm, "norm": norm, "dtype": dtype, **block}
        if positions == "rotary":
            settings["rotary"] = True
        seeds = range(seed + 10, seed + 10 * layers + 1, 10)
        self.blocks = [TransformerBlock(d, heads, seed=i, cross=self.cross, **settings) for i in seeds]
        for b in self.blocks:  # so that the sum over blocks does not grow with their number: GPT-2's start
            for out in (b.attend.out, b.network[2]):
                out.w.data *= (2 * layers) ** -0.5
        if pre_norm:
            self.norm = LayerNorm(d, dtype=dtype) if norm == "layer" else RMSNorm(d, dtype=dtype)

    def forward(
        self, tokens: Any, memory: Any = None, *, mask: Any = None, memory_mask: Any = None, cache: Cache | None = None
    ) -> Tensor:
        """Return features (B, T, D) of tokens (B, T).

        Args:
            mask: (B, T) bool, True where a token is real: padding is seen by none.
            cache: keys and values of the tokens before these.
        """
        tokens = np.asarray(tokens.data if isinstance(tokens, Tensor) else tokens)
        if tokens.ndim != 2:
            raise ValueError(f"{type(self).__name__}: tokens {tokens.shape}: expected (batch, time)")
        first = cache.length if cache is not None else 0
        T = tokens.shape[1]
        if first + T > self.context:
            raise ValueError(f"{type(self).__name__}: {first + T} tokens exceed the context of {self.context}")
        x = self.embed(tokens)
        if self.positions == "learned":
            x = x + self.place[first : first + T]
        elif self.positions == "sinusoidal":
            x = x * self.d**0.5 + self.waves[first : first + T]
        x = self.drop(x)
        see = None if mask is None else _padding(mask, tokens.shape)
        for block in self.blocks:
            x = block(x, memory, mask=see, memory_mask=memory_mask, causal=self.causal, cache=cache)
        return self.norm(x) if hasattr(self, "norm") else x


class Encoder(_Stack):
    """Features of a whole sequence: every token sees all others. Shapes: integers (B, T) -> (B, T, D)."""


class Decoder(_Stack):
    """Features of a sequence that is being written: every token sees those before it. Shapes as for :class:`Encoder`."""

    causal = True


class _CrossDecoder(Decoder):
    cross = True


class LanguageModel(Module):
    """A decoder that predicts the next token; the output weights are the embedding's (weight tying).

    Shapes: integers (B, T) -> logits (B, T, V).
    Source: A. Radford et al., "Language models are unsupervised multitask learners", 2019; tying: O. Press and L. Wolf,
    arXiv 1608.05859.
    """

    def __init__(
        self, vocabulary: int, d: int, heads: int, layers: int, context: int, *, rng: np.random.Generator, tie: bool = True,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.decoder = Decoder(vocabulary, d, heads, layers, context, rng=rng, **settings)
        if not tie:
            dtype = settings.get("dtype", np.float32)
            self.head = Linear(d, vocabulary, rng=rng, bias=False, weight=_normal(0.02), dtype=dtype)
        self.context = context

    def forward(self, tokens: Any, *, mask: Any = None, cache: Cache | None = None) -> Tensor:
        x = self.decoder(tokens, mask=mask, cache=cache)
        return self.head(x) if hasattr(self, "head") else ops.linear(x, self.decoder.embed.weight.T)


class EncoderDecoder(Module):
    """An encoder reads a sequence, a decoder writes another while looking at it.

    Shapes: source (B, S), target (B, T) integers -> logits (B, T, V_target).
    Source: A. Vaswani et al., arXiv 1706.03762.
    """

    def __init__(
        self, source: int, target: int, d: int, heads: int, layers: int, context: int, *, rng: np.random.Generator,
        seed: int = 0, **settings: Any,
    ) -> None:  # fmt: skip
        self.encoder = Encoder(source, d, heads, layers, context, rng=rng, seed=seed, **settings)
        self.decoder = _CrossDecoder(target, d, heads, layers, context, rng=rng, seed=seed + 1000, **settings)
        self.context = context

    def encode(self, source: Any, mask: Any = None) -> Tensor:
        """Return the memory (B, S, D) of source tokens; mask (B, S): True where a token is real."""
        return self.encoder(source, mask=mask)

    def decode(self, target: Any, memory: Any, mask: Any = None, cache: Cache | None = None) -> Tensor:
        """Return logits of the token after each of target, given a memory and the mask of its tokens."""
        see = None if mask is None else _padding(mask, memory.shape[:2])
        x = self.decoder(target, memory, memory_mask=see, cache=cache)
        return ops.linear(x, self.decoder.embed.weight.T)

    def forward(self, source: Any, target: Any, mask: Any = None) -> Tensor:
        return self.decode(target, self.encode(source, mask), mask)


def _padding(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    mask = np.asarray(mask.data if isinstance(mask, Tensor) else mask)
    if mask.dtype != bool or mask.shape != tuple(shape):
        raise ValueError(f"the padding mask is {mask.shape} {mask.dtype}; expected {tuple(shape)} bool, True for real tokens")
    return mask[:, None, :]


def _normal(std: float) -> Callable[..., np.ndarray]:
    return lambda shape, rng, dtype: init.normal(shape, rng, dtype, std)


# --- decoding -----------------------------------------------------------------------------------------------------


@no_grad()
def generate(
    step: Callable[[np.ndarray, Cache], Tensor], prompt: Any, new_tokens: int, *, rng: np.random.Generator | None = None,
    temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, end: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Continue prompts token by token, each step computing only the new position.

    Args:
        step: ``step(tokens, cache)`` returns logits (B, T, V), e.g. ``lambda t, c: model(t, cache=c)``.
        prompt: integers (B, T), T at least 1.
        rng: draws the tokens; without it the most likely one is taken (greedy).
        temperature: divides the logits. top_k: only the k most likely tokens. top_p: only the most likely tokens that together
            reach this probability.
        end: a row that has produced this token produces nothing else.

    Returns:
        The new tokens, (B, new_tokens).
    Source: top-p: A. Holtzman et al., arXiv 1904.09751.
    """
    tokens = _prompt(prompt)
    if temperature <= 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError(f"generate: temperature {temperature}, top_k {top_k}, top_p {top_p}: expected > 0, >= 1 and in (0, 1]")
    cache = Cache()
    out = np.empty((len(tokens), new_tokens), np.int64)
    done = np.zeros(len(tokens), bool)
    for i in range(new_tokens):
        logits = step(tokens, cache).data[:, -1].astype(np.float64) / temperature  # (B, V)
        if rng is None:
            chosen = np.argmax(logits, axis=1)
        else:
            chosen = _draw(_filtered(logits, top_k, top_p), rng)
        if end is not None:
            chosen = np.where(done, end, chosen)
            done |= chosen == end
        out[:, i] = chosen
        tokens = chosen[:, None]
        if end is not None and done.all():
            out[:, i + 1 :] = end
            break
    return out


@no_grad()
def beam_search(
    step: Callable[[np.ndarray, Cache], Tensor], prompt: Any, new_tokens: int, *, beams: int, end: int | None = None,
    length_penalty: float = 0.0, rows: Callable[[np.ndarray], None] | None = None,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """Return the best continuation of one prompt (1, T) found with this many beams, and its log probability.

    Hypotheses are compared by log probability / length^length_penalty; finished ones are kept aside.

    Args:
        step: as for :func:`generate`; called with one row for each beam.
        rows: told which beams survive at each step, for a ``step`` that keeps state of its own.
    """
    tokens = _prompt(prompt)
    if len(tokens) != 1 or beams < 1:
        raise ValueError(f"beam_search: prompt {tokens.shape}, beams {beams}: expected one row and at least one beam")
    cache = Cache()
    scores = np.zeros(1)
    written = np.empty((1, 0), np.int64)
    finished: list[tuple[float, np.ndarray, float]] = []
    for _ in range(new_tokens):
        logits = step(tokens, cache).data[:, -1].astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        log_p = logits - top - np.log(np.sum(np.exp(logits - top), axis=1, keepdims=True))
        total = (scores[:, None] + log_p).reshape(-1)
        best = np.argsort(-total, kind="stable")[: 2 * beams]
        parents, chosen = np.divmod(best, logits.shape[1])
        keep: list[int] = []
        for i, (parent, token) in enumerate(zip(parents, chosen)):
            if token == end:
                line = np.append(written[parent], token)
                finished.append((total[best[i]] / len(line) ** length_penalty, line, total[best[i]]))
            elif len(keep) < beams:
                keep.append(i)
        if not keep:
            break
        parents, chosen = parents[keep], chosen[keep]
        scores = total[best[keep]]
        written = np.concatenate([written[parents], chosen[:, None]], axis=1)
        cache = cache.select(parents)
        if rows is not None:
            rows(parents)
        tokens = chosen[:, None]
        if len(finished) >= beams and length_penalty == 0 and max(f[0] for f in finished) >= scores.max():
            break
    if end is None or not finished:
        finished += [(s / max(len(w), 1) ** length_penalty, w, s) for s, w in zip(scores, written)]
    _, line, score = max(finished, key=lambda f: f[0])
    return line, float(score)


def _prompt(prompt: Any) -> np.ndarray:
    tokens = np.asarray(prompt)
    if tokens.ndim != 2 or tokens.shape[1] < 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"the prompt is {tokens.shape} {tokens.dtype}; expected integers (batch, time), at least one each")
    return tokens


def _filtered(logits: np.ndarray, top_k: int | None, top_p: float | None) -> np.ndarray:
    """Return probabilities (B, V) with unlikely tokens removed."""
    if top_k is not None and top_k < logits.shape[1]:
        least = np.partition(logits, -top_k, axis=1)[:, -top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if top_p is not None:
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked  # of the tokens that are more likely
        np.put_along_axis(p, order, np.where(before < top_p, ranked, 0), axis=1)
        p /= p.sum(axis=1, keepdims=True)
    return p


def _draw(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one token from each row of probabilities."""
    reach = np.cumsum(p, axis=1)
    return np.minimum((reach < rng.random((len(p), 1)) * reach[:, -1:]).sum(axis=1), p.shape[1] - 1)
