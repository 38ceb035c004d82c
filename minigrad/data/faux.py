"""Faux data: drawn from a known truth, so that a run can be checked and not only admired.

Every generator takes the number of samples, a seed, and the truth's own parameters, and returns a :class:`Faux`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Faux", "autoregression", "conv", "exponential", "line", "logistic", "mlp", "polynomial"]


@dataclass(frozen=True)
class Faux:
    """Samples and where they come from.

    Attributes:
        x: inputs (n, ...).
        y: targets (n,): numbers, or int64 classes.
        truth: the parameters behind them, by name.
        task: "regression" or "classification".
        equation: how y follows from x.
        noise: standard deviation of the noise in y, or the share of labels drawn at random.
        errors: the standard error that an efficient estimate of each parameter of truth has, from these samples.
    """

    x: np.ndarray
    y: np.ndarray
    truth: dict[str, Any]
    task: str
    equation: str
    noise: float
    errors: dict[str, Any]


def line(
    n: int, *, seed: int = 0, slope: float = 2.0, intercept: float = -1.0, noise: float = 0.1, dtype: Any = np.float32
) -> Faux:
    """y = slope x + intercept + noise, x even in [-1, 1].

    Example:
        >>> line(3).x.shape, line(3).y.shape, line(3).truth
        ((3, 1), (3,), {'slope': 2.0, 'intercept': -1.0})
    """
    faux = _least_squares(n, seed, [intercept, slope], noise, dtype)
    truth = {"slope": slope, "intercept": intercept}
    errors = {"slope": faux.errors["coefficients"][1], "intercept": faux.errors["coefficients"][0]}
    return Faux(faux.x, faux.y, truth, "regression", "y = slope x + intercept", noise, errors)


def polynomial(
    n: int, *, seed: int = 0, coefficients: Sequence[float] = (0.5, -1.0, 1.5, 2.0), noise: float = 0.1,
    dtype: Any = np.float32,
) -> Faux:  # fmt: skip
    """y = Σ_k coefficients_k x^k + noise, x even in [-1, 1]."""
    return _least_squares(n, seed, coefficients, noise, dtype)


def _least_squares(n: int, seed: int, coefficients: Sequence[float], noise: float, dtype: Any) -> Faux:
    rng = _generator(n, seed, noise)
    c = np.asarray(coefficients, np.float64)
    x = rng.uniform(-1, 1, (n, 1))
    powers = x ** np.arange(len(c))
    y = powers @ c + noise * rng.standard_normal(n)
    errors = {"coefficients": _standard_errors(powers, noise)}
    return Faux(x.astype(dtype), y.astype(dtype), {"coefficients": c}, "regression", "y = Σ c_k x^k", noise, errors)


def exponential(
    n: int, *, seed: int = 0, a: float = 1.5, b: float = 0.8, noise: float = 0.1, dtype: Any = np.float32
) -> Faux:
    """y = a e^(b x) + noise, x even in [-1, 1]."""
    rng = _generator(n, seed, noise)
    x = rng.uniform(-1, 1, (n, 1))
    y = a * np.exp(b * x[:, 0]) + noise * rng.standard_normal(n)
    slopes = np.exp(b * x) * np.array([[1.0, a]]) * np.concatenate([np.ones_like(x), x], axis=1)
    errors = dict(zip("ab", _standard_errors(slopes, noise)))
    return Faux(x.astype(dtype), y.astype(dtype), {"a": a, "b": b}, "regression", "y = a exp(b x)", noise, errors)


def logistic(
    n: int, *, seed: int = 0, w: Sequence[float] = (2.0, -1.0, 0.5), b: float = 0.3, dtype: Any = np.float32
) -> Faux:
    """Labels 0 and 1 with P(y = 1) = 1/(1 + e^-(w x + b)), x normal."""
    rng = _generator(n, seed, 0.0)
    weights = np.asarray(w, np.float64)
    x = rng.standard_normal((n, len(weights)))
    p = 1 / (1 + np.exp(-(x @ weights + b)))
    y = (rng.random(n) < p).astype(np.int64)
    design = np.concatenate([x, np.ones((n, 1))], axis=1) * np.sqrt(p * (1 - p))[:, None]  # Fisher information
    *errors, last = _standard_errors(design, 1.0)
    truth = {"w": weights, "b": b}
    found = {"w": np.array(errors), "b": last}
    return Faux(x.astype(dtype), y, truth, "classification", "P(y = 1) = σ(w x + b)", 0.0, found)


def mlp(
    n: int, *, seed: int = 0, features: int = 64, classes: int = 10, hidden: int = 4, noise: float = 0.0,
    dtype: Any = np.float32,
) -> Faux:  # fmt: skip
    """Classes given by a teacher: a random network of ``hidden`` tanh units; y is the largest of its outputs.

    Inputs whose two largest outputs are closer than a twentieth of the outputs' spread are drawn anew, so that the classes
    have a margin between them; a share ``noise`` of the labels is then drawn at random. The teacher depends on the seed
    alone, not on n.
    """
    rng = _generator(n, seed, noise)
    w1 = rng.standard_normal((features, hidden)) * (2.0 / np.sqrt(features))
    w2 = rng.standard_normal((hidden, classes))
    x, y = np.empty((0, features)), np.empty(0, np.int64)
    while len(x) < n:
        more = rng.standard_normal((n, features))
        z = np.tanh(more @ w1) @ w2
        top = np.sort(z, axis=1)
        clear = top[:, -1] - top[:, -2] > 0.05 * np.std(z)
        x, y = np.concatenate([x, more[clear]])[:n], np.concatenate([y, z[clear].argmax(axis=1)])[:n]
    wrong = rng.random(n) < noise
    y = np.where(wrong, rng.integers(0, classes, n), y)
    truth = {"w1": w1, "w2": w2}
    return Faux(x.astype(dtype), y, truth, "classification", "y = argmax(tanh(x w1) w2)", noise, {})


def conv(n: int, *, seed: int = 0, side: int = 12, noise: float = 0.3, dtype: Any = np.float32) -> Faux:
    """Images (1, side, side) of a bar across, a bar down, a cross or a square, at a random place, in noise.

    The class (0 to 3) is what is drawn: it depends on the shape alone, not on where it is.
    """
    rng = _generator(n, seed, noise)
    y = rng.integers(0, 4, n)
    x = noise * rng.standard_normal((n, 1, side, side))
    shapes = np.zeros((4, 5, 5))
    shapes[0, 2], shapes[1, :, 2] = 1, 1
    shapes[2, 2], shapes[2, :, 2] = 1, 1
    shapes[3, [0, -1]], shapes[3, :, [0, -1]] = 1, 1
    for i, (r, c) in enumerate(rng.integers(0, side - 4, (n, 2))):
        x[i, 0, r : r + 5, c : c + 5] += shapes[y[i]]
    return Faux(x.astype(dtype), y, {"shapes": shapes}, "classification", "y = which shape is drawn", noise, {})


def autoregression(
    n: int, *, seed: int = 0, coefficients: Sequence[float] = (1.2, -0.6), noise: float = 1.0, dtype: Any = np.float32
) -> Faux:
    """A series s_t = Σ_k coefficients_k s_(t-k) + noise, of length n + k; x holds the k values before each y.

    Raises:
        ValueError: if the coefficients make the series grow without bound.
    """
    rng = _generator(n, seed, noise)
    c = np.asarray(coefficients, np.float64)
    k = len(c)
    roots = np.roots([1, *-c])
    if np.any(np.abs(roots) >= 1):
        size = np.abs(roots).max()
        raise ValueError(f"autoregression: coefficients {list(coefficients)} are not stationary: a root of size {size:.3g}")
    e = noise * rng.standard_normal(n + k + 200)
    s = np.zeros(len(e))
    for t in range(k, len(s)):
        s[t] = s[t - k : t][::-1] @ c + e[t]
    s = s[200:]  # the start at 0 is forgotten
    x = np.lib.stride_tricks.sliding_window_view(s[:-1], k)[:, ::-1]
    errors = {"coefficients": _standard_errors(x, noise)}
    return Faux(x.astype(dtype), s[k:].astype(dtype), {"coefficients": c}, "regression", "s_t = Σ c_k s_(t-k)", noise, errors)


def _generator(n: int, seed: int, noise: float) -> np.random.Generator:
    if n < 1 or noise < 0:
        raise ValueError(f"faux: n is {n}, noise {noise}; expected at least one sample and noise >= 0")
    return np.random.default_rng(seed)


def _standard_errors(design: np.ndarray, noise: float) -> np.ndarray:
    """Standard errors of least squares: noise · √diag((XᵀX)⁻¹)."""
    return noise * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
