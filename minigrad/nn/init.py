"""Initial weights, each with its source. Fans are counted for (D_in, D_out) and for filters (C_out, C_in, k...)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "normal", "ones", "orthogonal",
    "truncated_normal", "uniform", "zeros",
]  # fmt: skip

Shape = tuple[int, ...]
Float = Any


def zeros(shape: Shape, rng: np.random.Generator | None = None, dtype: Float = np.float32) -> np.ndarray:
    """Return zeros."""
    return np.zeros(shape, dtype)


def ones(shape: Shape, rng: np.random.Generator | None = None, dtype: Float = np.float32) -> np.ndarray:
    """Return ones."""
    return np.ones(shape, dtype)


def normal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32, std: float = 1.0) -> np.ndarray:
    """Draw from the normal distribution of mean 0."""
    return (std * rng.standard_normal(shape)).astype(dtype)


def uniform(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32, bound: float = 1.0) -> np.ndarray:
    """Draw evenly from -bound to bound."""
    return rng.uniform(-bound, bound, shape).astype(dtype)


def truncated_normal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32, std: float = 1.0) -> np.ndarray:
    """Draw from the normal distribution, anew where a value lies beyond two standard deviations."""
    x = rng.standard_normal(shape)
    while np.any(far := np.abs(x) > 2):
        x = np.where(far, rng.standard_normal(shape), x)
    return (std * x).astype(dtype)


def glorot_uniform(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw evenly with variance 2/(fan_in + fan_out).

    Source: X. Glorot and Y. Bengio, AISTATS 2010, equation 16.
    """
    return uniform(shape, rng, dtype, np.sqrt(6 / sum(fans(shape))))


def glorot_normal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw from the normal distribution with variance 2/(fan_in + fan_out).

    Source: X. Glorot and Y. Bengio, AISTATS 2010, equation 12.
    """
    return normal(shape, rng, dtype, np.sqrt(2 / sum(fans(shape))))


def he_uniform(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw evenly with variance 2/fan_in, for ReLU.

    Source: K. He, X. Zhang, S. Ren and J. Sun, arXiv 1502.01852, equation 10.
    """
    return uniform(shape, rng, dtype, np.sqrt(6 / fans(shape)[0]))


def he_normal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw from the normal distribution with variance 2/fan_in, for ReLU.

    Source: K. He, X. Zhang, S. Ren and J. Sun, arXiv 1502.01852, equation 10.
    """
    return normal(shape, rng, dtype, np.sqrt(2 / fans(shape)[0]))


def lecun_normal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw from the normal distribution with variance 1/fan_in.

    Source: Y. LeCun, L. Bottou, G. Orr and K.-R. Müller, "Efficient BackProp", 1998, equation 16.
    """
    return normal(shape, rng, dtype, np.sqrt(1 / fans(shape)[0]))


def orthogonal(shape: Shape, rng: np.random.Generator, dtype: Float = np.float32) -> np.ndarray:
    """Draw a matrix with orthonormal rows or columns (whichever are fewer), evenly over all such matrices.

    Source: A. Saxe, J. McClelland and S. Ganguli, arXiv 1312.6120; the signs: F. Mezzadri, Notices AMS 54 (2007).
    """
    if len(shape) < 2:
        raise ValueError(f"orthogonal: shape {shape}: expected at least two axes")
    rows, columns = shape[0], int(np.prod(shape[1:]))
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))
    return (q if rows >= columns else q.T).reshape(shape).astype(dtype)


def fans(shape: Shape) -> tuple[int, int]:
    """Return how many inputs feed an output, and how many outputs an input feeds.

    Example:
        >>> fans((784, 128)), fans((32, 16, 3, 3))
        ((784, 128), (144, 288))
    """
    if len(shape) < 2:
        raise ValueError(f"fans: shape {shape}: expected a matrix (D_in, D_out) or filters (C_out, C_in, k...)")
    if len(shape) == 2:
        return max(shape[0], 1), max(shape[1], 1)
    window = int(np.prod(shape[2:]))
    return shape[1] * window, shape[0] * window
