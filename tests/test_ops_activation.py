"""Activations, softmax, dropout: gradients, values beside the mathematics, and the points where formulas break."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.kernels import K
from minigrad.testing import arrays, shapes

EXTREME = [-np.inf, -3e38, -1e4, -50.0, -1.0, 0.0, 1.0, 50.0, 1e4, 3e38, np.inf]
UNARY = {
    "logistic": (mg.logistic, lambda v: 1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v))),
    "tanh": (mg.tanh, math.tanh),
    "arctan": (mg.arctan, math.atan),
    "relu": (mg.relu, lambda v: max(v, 0.0)),
    "softplus": (mg.softplus, lambda v: max(v, 0.0) + math.log1p(math.exp(-abs(v)))),
    "gelu": (mg.gelu, lambda v: v * math.erfc(-v / math.sqrt(2)) / 2),
    "gelu_tanh": (
        lambda x: mg.gelu(x, approximate="tanh"),
        lambda v: v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    ),
}


def gradient(f, x, cotangent=None):
    x = mg.Tensor(np.asarray(x), requires_grad=True)
    y = f(x)
    y.backward(np.ones(y.shape, y.dtype) if cotangent is None else np.asarray(cotangent, y.dtype))
    return x.grad


@pytest.mark.parametrize("name", UNARY)
@given(x=arrays())
def test_unary(name, x):
    f, scalar = UNARY[name]
    mg.gradcheck(f, x)
    y = f(x).data
    assert y.shape == x.shape
    np.testing.assert_allclose(y, np.vectorize(scalar, otypes=[float])(x), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_extreme_values_neither_warn_nor_turn_nan(name, dtype):
    f, scalar = UNARY[name]
    with np.errstate(over="ignore"):
        x = np.array(EXTREME).astype(dtype)
    y, slope = f(x).data, gradient(f, x)
    assert y.dtype == slope.dtype == dtype
    assert not np.isnan(y).any() and np.isfinite(slope).all()
    inner = np.abs(x) <= 50
    expected = np.vectorize(scalar)(x[inner].astype(float))
    np.testing.assert_allclose(y[inner], expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
    assert np.isnan(f(np.array([np.nan], dtype)).data).all()


@pytest.mark.parametrize("name", ["logistic", "tanh", "arctan", "relu", "softplus", "gelu", "gelu_tanh"])
def test_limits(name):
    f = UNARY[name][0]
    low, high = f(np.array([-np.inf, np.inf])).data
    half = math.pi / 2
    expected = {"logistic": (0, 1), "tanh": (-1, 1), "arctan": (-half, half)}.get(name, (0, np.inf))
    assert (low, high) == expected
    slopes = {"relu": 1, "softplus": 1, "gelu": 1, "gelu_tanh": 1}
    assert tuple(gradient(f, [-np.inf, np.inf])) == (0, slopes.get(name, 0))


def test_relu_has_slope_0_at_0():
    assert gradient(mg.relu, [-1.0, 0.0, -0.0, 2.0]).tolist() == [0, 0, 0, 1]


def test_relu_stops_an_infinite_cotangent():
    assert gradient(mg.relu, [-1.0, 2.0], [np.inf, np.inf]).tolist() == [0, np.inf]


def test_normal_cdf_is_accurate_to_the_last_bits():
    x = np.concatenate([np.linspace(-37, 9, 4001), math.sqrt(2) * np.array([-0.46875, 0.46875, 4])])
    expected = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x])
    # -x/√2 is rounded here and there, and erfc magnifies that by x²
    error = np.abs(K.normal_cdf(x) / expected - 1)
    assert np.all(error < 1e-15 + 4e-16 * x * x)
    assert np.all(error[np.abs(x) < 1] < 6e-16)


def test_gelu_refuses_another_approximation():
    with pytest.raises(ValueError, match=r"gelu: approximate 'erf'; expected 'none' or 'tanh'"):
        mg.gelu([1.0], approximate="erf")


@pytest.mark.parametrize("f", [mg.logistic, mg.softplus, mg.gelu, mg.softmax, mg.log_softmax])
def test_integers_are_refused(f):
    with pytest.raises(TypeError, match=r"needs floats, got \(2,\) int64; convert with .astype"):
        f([1, 2])


# --- along an axis ------------------------------------------------------------------------------------------------


@st.composite
def with_axis(draw):
    x = draw(arrays(shapes(min_dims=1)))
    return x, draw(st.integers(-x.ndim, x.ndim - 1))


@given(with_axis())
def test_softmax(case):
    x, axis = case
    mg.gradcheck(lambda t: mg.softmax(t, axis=axis), x)
    y = mg.softmax(x, axis=axis).data
    e = np.exp(x)
    np.testing.assert_allclose(y, e / e.sum(axis=axis, keepdims=True), rtol=1e-14)
    assert mg.Tensor(x).softmax(axis).data.tolist() == y.tolist()


@given(with_axis())
def test_log_softmax(case):
    x, axis = case
    mg.gradcheck(lambda t: mg.log_softmax(t, axis=axis), x)
    expected = x - np.log(np.exp(x).sum(axis=axis, keepdims=True)) if x.size else x
    np.testing.assert_allclose(mg.log_softmax(x, axis=axis).data, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_extreme_rows(dtype):
    big = np.finfo(dtype).max
    x = np.array([[-np.inf, -np.inf], [-np.inf, 0], [big, -big], [-big, -big], [np.inf, 0], [np.inf, np.inf]], dtype)
    y = mg.softmax(x).data
    assert y.dtype == dtype
    assert y.tolist() == [[0, 0], [0, 1], [1, 0], [0.5, 0.5], [1, 0], [0.5, 0.5]]
    logs = mg.log_softmax(x).data
    assert logs.dtype == dtype
    np.testing.assert_allclose(np.exp(logs), y, rtol=1e-6)
    assert logs[0].tolist() == [-np.inf, -np.inf]
    assert gradient(mg.softmax, x, np.arange(12).reshape(6, 2))[0].tolist() == [0, 0]
    assert gradient(mg.log_softmax, x, np.arange(12).reshape(6, 2))[0].tolist() == [0, 0]
    assert np.isfinite(gradient(mg.softmax, x)).all() and np.isfinite(gradient(mg.log_softmax, x)).all()


def test_nan_stays_in_its_row():
    y = mg.softmax([[np.nan, 0.0], [0.0, 0.0]]).data
    assert np.isnan(y[0]).all() and y[1].tolist() == [0.5, 0.5]


def test_a_wrong_axis_is_named():
    with pytest.raises(ValueError, match=r"softmax: axis 2 is out of range for x \(2, 3\); expected -2 to 1"):
        mg.softmax(np.zeros((2, 3)), axis=2)
    with pytest.raises(ValueError, match="log_softmax: x has no axes"):
        mg.log_softmax(1.0)


# --- dropout ------------------------------------------------------------------------------------------------------


def key(seed=0, step=0, first=0):
    return np.array([seed, step, first], np.uint64)


@given(arrays(), st.sampled_from([0.0, 0.25, 0.9, 1.0]))
def test_dropout_gradient_uses_the_mask_of_the_forward(x, p):
    mg.gradcheck(lambda t: mg.dropout(t, p, key(3, 1)), x)
    ones = mg.dropout(np.ones(x.shape), p, key(3, 1)).data
    np.testing.assert_array_equal(mg.dropout(x, p, key(3, 1)).data, x * ones)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_share_and_the_mean(p):
    y = mg.dropout(np.ones((200, 500), np.float32), p, key(7)).data
    deviation = math.sqrt(p * (1 - p) / y.size)
    assert abs(np.mean(y == 0) - p) < 5 * deviation
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / (1 - p))}
    columns = np.mean(y == 0, axis=0)  # no feature is favoured
    assert np.max(np.abs(columns - p)) < 6 * math.sqrt(p * (1 - p) / 200)


def test_dropout_of_neighbours_steps_and_seeds_is_independent():
    def mask(*k):
        return mg.dropout(np.ones(20000), 0.5, key(*k)).data > 0

    base = mask(1, 1)
    for other in (mask(1, 2), mask(2, 1), mask(1, 1, 1), np.roll(base, 1), mask(0, 0), mask(1, 0), mask(0, 1)):
        assert abs(np.mean(base == other) - 0.5) < 5 * 0.5 / math.sqrt(20000)


def test_dropout_extremes():
    x = np.array([1.0, np.inf, -2.0])
    assert mg.dropout(x, 0, key()).data.tolist() == x.tolist()
    assert mg.dropout(x, 1, key()).data.tolist() == [0, 0, 0]


@given(st.integers(0, 9), st.integers(0, 2**63))
def test_ranks_draw_the_mask_of_the_whole_batch(cut, seed):
    x = np.ones((9, 2, 3))
    whole = mg.dropout(x, 0.5, key(seed, 4)).data
    parts = [mg.dropout(x[:cut], 0.5, key(seed, 4)).data, mg.dropout(x[cut:], 0.5, key(seed, 4, cut)).data]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_dropout_keeps_its_mask_when_the_key_advances():
    k = key(5)
    x = mg.Tensor(np.ones(100), requires_grad=True)
    y = mg.dropout(x, 0.5, k)
    k += np.uint64(1)
    y.backward(np.ones(100))
    assert x.grad.tolist() == y.data.tolist()


@pytest.mark.parametrize("p", [-0.1, 1.5, np.nan])
def test_dropout_refuses_other_probabilities(p):
    with pytest.raises(ValueError, match="dropout: p is .*; expected a probability from 0 to 1"):
        mg.dropout([1.0], p, key())


@pytest.mark.parametrize("bad", [[1, 2], [1.0, 2.0, 3.0], [-1, 0, 0]])
def test_dropout_refuses_other_keys(bad):
    with pytest.raises(ValueError, match="expected three unsigned integers"):
        mg.dropout([1.0], 0.5, np.array(bad))
