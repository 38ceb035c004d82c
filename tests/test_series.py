"""Autocorrelation, Levinson-Durbin, autoregression and forecasts, against definitions and known answers."""

import numpy as np
import pytest

from minigrad import data, series

RNG = np.random.default_rng


def test_autocorrelation_golden():
    s = np.array([1.0, 2.0, 3.0, 4.0])  # deviations -1.5 -0.5 0.5 1.5, their squares sum to 5
    np.testing.assert_allclose(series.autocorrelation(s, 2), [1, (0.75 - 0.25 + 0.75) / 5, (-0.75 - 0.75) / 5])


def test_levinson_durbin_solves_the_yule_walker_equations():
    r = series.autocorrelation(RNG(0).normal(size=200).cumsum(), 6)
    phi, partial, v = series.levinson_durbin(r)
    matrix = r[np.abs(np.subtract.outer(np.arange(6), np.arange(6)))]
    np.testing.assert_allclose(phi, np.linalg.solve(matrix, r[1:]), rtol=1e-10)
    for k in range(1, 7):  # the k-th partial autocorrelation is the last coefficient of order k
        np.testing.assert_allclose(partial[k - 1], np.linalg.solve(matrix[:k, :k], r[1 : k + 1])[-1], rtol=1e-9)
    assert v == pytest.approx(1 - phi @ r[1:])


def test_partial_autocorrelation_of_an_autoregression_ends_at_its_order():
    s = data.faux.autoregression(20000, coefficients=(1.2, -0.6), dtype=np.float64).y
    p = series.partial_autocorrelation(s, 8)
    assert p[2] == pytest.approx(-0.6, abs=0.02)
    assert np.all(np.abs(p[3:]) < 2 * series.confidence_band(len(s)))


def test_bands_hold_95_percent_of_white_noise():
    inside = [np.abs(series.autocorrelation(RNG(i).normal(size=400), 20)[1:]) < series.confidence_band(400) for i in range(50)]
    assert 0.93 < np.mean(inside) < 0.98
    r = np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(series.confidence_band(100, r)[1:], [0.196, 0.196 * np.sqrt(1 + 2 * 0.25)])


def test_least_squares_recovers_the_truth_within_its_errors():
    faux = data.faux.autoregression(5000, coefficients=(0.5, 0.2, -0.3), dtype=np.float64)
    model = series.fit_least_squares(np.concatenate([faux.x[0, ::-1], faux.y]), 3)
    assert np.all(np.abs(model.coefficients - [0.5, 0.2, -0.3]) < 4 * model.errors[1:])
    assert model.sigma == pytest.approx(1, abs=0.05) and abs(model.intercept) < 4 * model.errors[0]


def test_forecast_golden():
    """AR(1): the mean halves at each step, and the variance is 1, 1 + 1/4, 1 + 1/4 + 1/16."""
    model = series.Autoregression(1.0, np.array([0.5]), 1.0)
    mean, low, high = model.forecast([0.0, 10.0], 3, level=1.0)
    np.testing.assert_allclose(mean, [6, 4, 3])
    np.testing.assert_allclose(high - mean, np.sqrt([1, 1.25, 1.3125]))
    np.testing.assert_allclose(mean - low, high - mean)


def test_intervals_cover_what_follows():
    hits = []
    for seed in range(60):
        s = data.faux.autoregression(400, seed=seed, dtype=np.float64).y
        model = series.fit_least_squares(s[:-5], 2)
        _, low, high = model.forecast(s[:-5], 5)
        hits.append((low <= s[-5:]) & (s[-5:] <= high))
    assert 0.9 < np.mean(hits) < 0.99


def test_sunspots():
    years, numbers = data.sunspots()
    assert len(years) == len(numbers) == 309 and (years[0], years[-1]) == (1700, 2008)
    r = series.autocorrelation(numbers, 15)
    assert np.argmax(r[6:]) + 6 in (10, 11)  # the cycle of about eleven years


def test_plot(tmp_path):
    years, numbers = data.sunspots()
    series.plot(tmp_path / "s.png", years, numbers, 20, series.fit_least_squares(numbers, 9), 11)
    assert (tmp_path / "s.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: series.autocorrelation([1.0, 2.0], 5), "expected at least 7 finite numbers"),
        (lambda: series.autocorrelation(np.ones(10), 2), "the series is constant"),
        (lambda: series.autocorrelation([1.0, np.nan, 2.0, 3.0], 1), "finite numbers"),
        (lambda: series.lagged([1.0, 2.0], 0), "k is 0; expected at least one lag"),
        (lambda: series.levinson_durbin([2.0, 1.0]), "expected autocorrelations 1, r_1"),
        (lambda: series.fit_least_squares(np.arange(5.0), 3), "expected at least 8"),
        (lambda: data.faux.autoregression(10, coefficients=(1.1,)), "are not stationary"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
