"""Statistics of sequences: autocorrelation, partial autocorrelation, autoregression and its forecasts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Autoregression", "autocorrelation", "confidence_band", "fit_least_squares", "lagged", "levinson_durbin",
           "partial_autocorrelation", "plot"]  # fmt: skip


def autocorrelation(series: Any, lags: int) -> np.ndarray:
    """Return the correlation of a series with itself, 0 to ``lags`` steps later: (lags + 1,), the first being 1.

    Equation: r_k = Σ_t (s_t - m)(s_(t+k) - m) / Σ_t (s_t - m)².
    Source: G. Box and G. Jenkins, "Time Series Analysis", 1976, equation 2.1.11 (the biased estimate, which keeps the
    correlation matrix positive definite).

    Raises:
        ValueError: if the series is shorter than lags + 2, not finite, or constant.
    """
    s = _checked(series, lags + 2)
    d = s - s.mean()
    if not np.any(d):
        raise ValueError("autocorrelation: the series is constant; it has no correlation")
    return np.array([d[: len(d) - k] @ d[k:] for k in range(lags + 1)]) / (d @ d)


def levinson_durbin(r: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Solve the Yule-Walker equations for autocorrelations r_0 = 1, r_1, ... r_k.

    Equation: φ_kk = (r_k - Σ_j φ_(k-1,j) r_(k-j)) / v_(k-1); φ_kj = φ_(k-1,j) - φ_kk φ_(k-1,k-j); v_k = v_(k-1)(1 - φ_kk²).

    Returns:
        The coefficients φ_k1 ... φ_kk, the partial autocorrelations φ_11 ... φ_kk, and the remaining share of variance v_k.
    Source: J. Durbin, "The fitting of time-series models", 1960; N. Levinson, J. Math. Phys. 25 (1947).
    """
    r = np.asarray(r, np.float64)
    if r.ndim != 1 or len(r) < 2 or not np.isclose(r[0], 1):
        raise ValueError(f"levinson_durbin: r {r.shape}: expected autocorrelations 1, r_1, ..., r_k with k >= 1")
    phi, partial, v = np.zeros(0), [], 1.0
    for k in range(1, len(r)):
        last = (r[k] - phi @ r[k - 1 : 0 : -1]) / v
        phi = np.append(phi - last * phi[::-1], last)
        v *= 1 - last * last
        partial.append(last)
    return phi, np.array(partial), float(v)


def partial_autocorrelation(series: Any, lags: int) -> np.ndarray:
    """Return the correlation with the value k steps earlier that those between do not explain: (lags + 1,), the first 1."""
    return np.append(1.0, levinson_durbin(autocorrelation(series, lags))[1])


def confidence_band(n: int, r: Any = None) -> Any:
    """Return the half-width of the 95 % band around 0 for the correlations of n values.

    Equation: 1.96/√n, for white noise and for partial autocorrelations; with autocorrelations r given, at lag k
    1.96 √((1 + 2 Σ_(j<k) r_j²)/n): what is to be expected if they vanish from lag k on.
    Source: M. Bartlett, J. Royal Statist. Soc. B 8 (1946); M. Quenouille, ibid. 11 (1949).
    """
    if r is None:
        return 1.96 / np.sqrt(n)
    squares = np.asarray(r, np.float64)[1:] ** 2
    return 1.96 * np.sqrt((1 + 2 * np.concatenate([[0, 0], np.cumsum(squares)[:-1]])) / n)


def lagged(series: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k values before each value, latest first, (n - k, k), and the values, (n - k,).

    Example:
        >>> lagged([1.0, 2.0, 3.0, 4.0], 2)
        (array([[2., 1.],
               [3., 2.]]), array([3., 4.]))
    """
    s = _checked(series, k + 1)
    if k < 1:
        raise ValueError(f"lagged: k is {k}; expected at least one lag")
    return np.lib.stride_tricks.sliding_window_view(s[:-1], k)[:, ::-1].copy(), s[k:].copy()


@dataclass(frozen=True)
class Autoregression:
    """s_t = c + Σ_k φ_k s_(t-k) + e_t, e_t of standard deviation σ."""

    intercept: float
    coefficients: np.ndarray
    sigma: float
    errors: np.ndarray | None = None  # standard errors of (c, φ_1, ...)

    def forecast(self, series: Any, steps: int, level: float = 1.96) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the mean of the next values and the ends of the interval around it, ``level`` standard errors wide.

        Equation: var_h = σ² Σ_(j<h) ψ_j², with ψ_0 = 1, ψ_j = Σ_k φ_k ψ_(j-k).
        Source: G. Box and G. Jenkins, "Time Series Analysis", 1976, equations 5.1.16 and 5.2.2.
        """
        k = len(self.coefficients)
        past = list(_checked(series, k))
        psi = np.zeros(steps)
        mean = np.empty(steps)
        for h in range(steps):
            mean[h] = self.intercept + self.coefficients @ np.array(past[-1 : -k - 1 : -1])
            past.append(mean[h])
            psi[h] = 1.0 if h == 0 else sum(self.coefficients[i] * psi[h - 1 - i] for i in range(min(k, h)))
        spread = level * self.sigma * np.sqrt(np.cumsum(psi**2))
        return mean, mean - spread, mean + spread


def fit_least_squares(series: Any, k: int) -> Autoregression:
    """Fit an autoregression of order k by least squares on the lagged values.

    Raises:
        ValueError: if the series has fewer than 2 k + 2 values.
    """
    s = _checked(series, 2 * k + 2)
    x, y = lagged(s, k)
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    solution, *_ = np.linalg.lstsq(design, y, rcond=None)
    left = y - design @ solution
    sigma = float(np.sqrt(left @ left / max(len(y) - k - 1, 1)))
    errors = sigma * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
    return Autoregression(float(solution[0]), solution[1:], sigma, errors)


def plot(path: str | os.PathLike[str], times: Any, series: Any, lags: int, model: Autoregression, steps: int) -> None:
    """Write a picture: the series with its forecast, the autocorrelations and the partial ones, with their bands."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"plot: {os.fspath(path)}: needs matplotlib (pip install 'minigrad[ui]')") from None
    times, s = np.asarray(times), _checked(series, lags + 2)
    mean, low, high = model.forecast(s, steps)
    ahead = times[-1] + (times[-1] - times[-2]) * np.arange(1, steps + 1)
    r, p = autocorrelation(s, lags), partial_autocorrelation(s, lags)
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplot_mosaic([["series", "series"], ["r", "p"]])
    axes["series"].plot(times, s, lw=0.8)
    axes["series"].plot(ahead, mean)
    axes["series"].fill_between(ahead, low, high, alpha=0.3)
    for name, values, band in (("r", r, confidence_band(len(s), r)), ("p", p, np.full(lags + 1, confidence_band(len(s))))):
        axes[name].stem(values)
        axes[name].fill_between(range(lags + 1), -band, band, alpha=0.2)
        axes[name].set(xlabel="lag", title={"r": "autocorrelation", "p": "partial autocorrelation"}[name])
    figure.savefig(path, dpi=120)


def _checked(series: Any, least: int) -> np.ndarray:
    s = np.asarray(series, np.float64)
    if s.ndim != 1 or len(s) < least or not np.all(np.isfinite(s)):
        raise ValueError(f"the series is {s.shape}; expected at least {least} finite numbers in one row")
    return s
