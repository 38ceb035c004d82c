"""Reductions: against NumPy over any axes, gradients, and ties, zeros, infinities and empty arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, axes
from tests import gradient

NUMPY = {"sum": np.sum, "mean": np.mean, "var": np.var, "std": np.std, "max": np.max, "min": np.min, "prod": np.prod}


@pytest.mark.parametrize("name", NUMPY)
@given(data=st.data())
def test_against_numpy(name, data):
    x = data.draw(arrays(st.sampled_from([(), (3,), (2, 3), (1, 4), (2, 1, 3)])))
    axis, keepdims = data.draw(axes(x.ndim)), data.draw(st.booleans())
    f = getattr(mg, name)
    y = f(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(y.data, NUMPY[name](x, axis=axis, keepdims=keepdims), rtol=1e-12, atol=1e-14)
    if name != "std" or np.all(y.data > 0.05):  # its square root has a kink where all elements are equal
        mg.gradcheck(lambda x: f(x, axis=axis, keepdims=keepdims), x)


@given(st.data())
def test_logsumexp_norm_and_cumsum(data):
    x = data.draw(arrays(st.sampled_from([(), (3,), (2, 3), (2, 1, 3)])))
    axis = data.draw(axes(x.ndim))
    np.testing.assert_allclose(mg.logsumexp(x, axis=axis).data, np.log(np.sum(np.exp(x), axis=axis)), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(mg.norm(x, axis=axis).data, np.sqrt(np.sum(x * x, axis=axis)), rtol=1e-12)
    mg.gradcheck(lambda x: mg.logsumexp(x, axis=axis), x)
    if np.all(np.abs(x) > 0.1):
        mg.gradcheck(lambda x: mg.norm(x, axis=axis), x)
    one = data.draw(axes(x.ndim, several=False))
    np.testing.assert_allclose(mg.cumsum(x, axis=one).data, np.cumsum(x, axis=one).reshape(mg.cumsum(x, axis=one).shape))
    mg.gradcheck(lambda x: mg.cumsum(x, axis=one), x)


def test_ties_share_equally():
    assert gradient(mg.max, [1.0, 3.0, 3.0, 3.0]) == [[0, 1 / 3, 1 / 3, 1 / 3]]
    assert gradient(lambda x: mg.min(x, axis=1), [[1.0, 1.0], [2.0, 1.0]]) == [[[0.5, 0.5], [0, 1]]]
    assert gradient(mg.max, [1.0, np.nan, np.nan]) == [[0, 0.5, 0.5]]
    assert gradient(mg.max, [np.inf, np.inf]) == [[0.5, 0.5]]


def test_zero_norm_and_constant_have_gradient_zero():
    assert gradient(mg.norm, [0.0, 0.0]) == [[0, 0]]
    assert gradient(mg.std, [2.0, 2.0, 2.0]) == [[0, 0, 0]]
    assert gradient(lambda x: mg.norm(x, axis=1), [[0.0, 0.0], [3.0, 4.0]]) == [[[0, 0], [0.6, 0.8]]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.floats(-1e6, 1e6), st.integers(1, 200), st.sampled_from([None, 0, (0, 1)]))
def test_constants_whose_mean_is_rounded_have_gradient_zero(dtype, value, n, axis):
    x = mg.Tensor(np.full((n, 3), value, dtype), requires_grad=True)
    for f in (mg.std, mg.var):
        y = f(x, axis=axis)
        y.sum().backward()
        assert not np.any(y.data) and not np.any(x.grad)


def test_half_floats_are_averaged_in_float32():
    assert mg.mean(np.full(1000, 300, np.float16)).item() == 300


def test_norm_neither_overflows_nor_vanishes():
    for scale in (1e-30, 1e30):
        assert mg.norm(np.array([3, 4], np.float32) * np.float32(scale)).item() == pytest.approx(5 * scale)


def test_products_with_zeros():
    assert gradient(mg.prod, [2.0, 0.0, 3.0]) == [[0, 6, 0]]
    assert gradient(mg.prod, [2.0, 0.0, 0.0]) == [[0, 0, 0]]
    assert gradient(mg.prod, []) == [[]]


def test_logsumexp_at_infinities():
    inf = np.inf
    assert mg.logsumexp([-inf, -inf]).item() == -inf and mg.logsumexp([1e30, 0.0]).item() == np.float32(1e30)
    assert mg.logsumexp([inf, 1.0]).item() == inf
    assert mg.logsumexp([3e38, -3e38]).item() == np.float32(3e38)
    assert mg.logsumexp(np.zeros((0,))).item() == -inf
    assert gradient(mg.logsumexp, [-inf, -inf]) == [[0, 0]]
    assert gradient(mg.logsumexp, [inf, 1.0, inf]) == [[0.5, 0, 0.5]]
    assert gradient(mg.logsumexp, [-inf, 0.0]) == [[0, 1]]
    assert np.isnan(gradient(mg.logsumexp, [np.nan, 0.0])).all()
    rows = mg.logsumexp([[inf, 1.0], [-inf, -inf], [0.0, 0.0]], axis=1)
    np.testing.assert_allclose(rows.data, [inf, -inf, np.log(2)], rtol=1e-6)


def test_empty():
    empty = np.zeros((0, 3))
    assert mg.sum(empty).item() == 0 and mg.prod(empty).item() == 1
    assert mg.sum(empty, axis=0).data.tolist() == [0, 0, 0] and mg.sum(empty, axis=1).shape == (0,)
    assert np.isnan(mg.mean(empty).item()) and np.isnan(mg.var(np.ones(1), ddof=1).item())
    assert gradient(mg.sum, empty) == [[]]
    with pytest.raises(ValueError, match=r"max: x \(0, 3\) has no element"):
        mg.max(empty)
    assert mg.max(empty, axis=1).shape == (0,)


def test_argmax_and_argmin():
    x = mg.Tensor([[1.0, 3.0, 3.0], [4.0, 2.0, 2.0]], requires_grad=True)
    assert mg.argmax(x, axis=1).data.tolist() == [1, 0] and x.argmin(axis=1).data.tolist() == [0, 1]
    assert not mg.argmax(x).requires_grad
    assert mg.argmax(x).item() == 3 and mg.argmax(x, axis=-1, keepdims=True).shape == (2, 1)
    assert mg.argmin(np.array(5.0)).item() == 0 and mg.argmax(np.ones((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("f", [mg.sum, mg.prod, mg.cumsum])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64])
def test_integers_are_added_up_as_wide_as_in_numpy(f, dtype):
    x = np.full(300, True) if dtype is bool else np.array([100, 2, 1] * 2, dtype)
    want = getattr(np, f.__name__)(x)
    assert f(x).dtype == want.dtype
    np.testing.assert_array_equal(f(x).data, want)


def test_replay_counts_the_new_mask():
    step = mg.capture(lambda x: (~(mg.Tensor(x) > 0) & (mg.Tensor(x) != -1)).sum())
    counts = [step(np.array(x)).item() for x in ([1.0, -1.0, -2.0], [1.0, -1.0, -2.0], [-3.0, -1.0, -2.0])]
    assert counts == [1, 1, 2] and step.replays == 1


def test_replay_reads_new_values_of_strided_arrays():
    first, second = np.random.default_rng(0).normal(size=(2, 3, 4))
    step = mg.capture(lambda x: (mg.cumsum(x.T).sum(), mg.argmax(x, axis=0) * 1))
    step(first), step(first)
    total, places = step(second)
    assert step.replays == 1
    np.testing.assert_allclose(total.data, np.cumsum(second.T).sum())
    np.testing.assert_array_equal(places.data, np.argmax(second, axis=0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mg.sum(np.ones((2, 3)), axis=2), ValueError, r"sum: axis 2 is out of range for x \(2, 3\); expected -2 to 1"),
        (lambda: mg.sum(np.ones((2, 3)), axis=(0, -2)), ValueError, "names an axis of x .* twice"),
        (lambda: mg.mean(np.ones((2, 3)), axis=1.0), TypeError, "axis 1.0: expected an int"),
        (lambda: mg.sum(1.0, axis=0), ValueError, r"sum: axis 0 is out of range for x \(\); a scalar has no axes"),
        (lambda: mg.mean([1, 2]), TypeError, r"mean: needs floats, got x \(2,\) int64; convert with .astype"),
        (lambda: mg.std([1, 2]), TypeError, "std: needs floats"),
        (lambda: mg.norm([1, 2]), TypeError, "norm: needs floats"),
        (lambda: mg.logsumexp([1, 2]), TypeError, "logsumexp: needs floats"),
        (lambda: mg.cumsum(np.ones((2, 3)), axis=(0, 1)), TypeError, r"cumsum: axis \(0, 1\): expected one axis"),
        (lambda: mg.argmax(np.ones((2, 3)), axis=(0, 1)), TypeError, r"argmax: axis \(0, 1\): expected one axis"),
        (lambda: mg.argmax(np.ones((2, 3)), axis=2), ValueError, "argmax: axis 2 is out of range"),
        (lambda: mg.argmin(np.ones((0, 3))), ValueError, r"argmin: x \(0, 3\) has no element; there is no argmin of nothing"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
