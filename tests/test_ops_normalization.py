"""Layer, root-mean-square and batch normalisation: gradients, statistics, constant, empty and far-off inputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, shapes


@st.composite
def features(draw, axis=-1, min_dims=1):
    """An x, and a weight and a bias (or None) with one number for each feature."""
    x = draw(arrays(shapes(min_dims=min_dims)))
    vector = arrays((x.shape[axis],))
    return x, draw(st.none() | vector), draw(st.none() | vector)


def of_given(f, x, *vectors, **settings):
    """Return f as a function of x and of those vectors that are not None, and its arguments."""

    def g(x, *rest):
        rest = iter(rest)
        return f(x, *(None if v is None else next(rest) for v in vectors), **settings)

    return g, (x, *(v for v in vectors if v is not None))


def affine(xhat, weight, bias, shape=(-1,)):
    y = xhat if weight is None else xhat * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


@given(features())
def test_layer_norm(case):
    x, weight, bias = case
    f, args = of_given(mg.layer_norm, x, weight, bias, eps=0.01)
    mg.gradcheck(f, *args)
    y = f(*args).data
    assert y.shape == x.shape
    if x.size:
        centred = x - x.mean(axis=-1, keepdims=True)
        xhat = centred / np.sqrt(x.var(axis=-1, keepdims=True) + 0.01)
        np.testing.assert_allclose(y, affine(xhat, weight, bias), rtol=1e-12, atol=1e-12)


@given(features())
def test_rms_norm(case):
    x, weight, _ = case
    f, args = of_given(mg.rms_norm, x, weight, eps=0.01)
    mg.gradcheck(f, *args)
    y = f(*args).data
    assert y.shape == x.shape
    if x.size:
        xhat = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 0.01)
        np.testing.assert_allclose(y, affine(xhat, weight, None), rtol=1e-12, atol=1e-12)


@given(features(axis=1, min_dims=2))
def test_batch_norm(case):
    x, weight, bias = case
    f, args = of_given(mg.batch_norm, x, weight, bias, eps=0.01)
    mg.gradcheck(f, *args)
    y, mean, var = (t.data for t in f(*args))
    assert y.shape == x.shape and mean.shape == var.shape == (x.shape[1],)
    if not x.size:
        assert not mean.any() and np.all(var == 1)
        return
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(mean, x.mean(axis=axes), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(var, x.var(axis=axes), rtol=1e-12, atol=1e-14)
    xhat = (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 0.01)
    expected = affine(xhat, weight, bias, (1, -1) + (1,) * (x.ndim - 2))
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


@given(features(axis=1, min_dims=2))
def test_gradients_through_y_alone_and_through_the_statistics_alone(case):
    x, weight, bias = case
    f, args = of_given(mg.batch_norm, x, weight, bias, eps=0.01)
    for i in range(3):
        mg.gradcheck(lambda *a, i=i: f(*a)[i], *args)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_stays(dtype):
    x, v = np.random.default_rng(0).normal(size=(4, 3, 3)).astype(dtype), np.ones(3, dtype)
    for f, vectors in ((mg.layer_norm, (v, v)), (mg.rms_norm, (v,)), (mg.batch_norm, (v, v))):
        leaves = [mg.Tensor(a.copy(), requires_grad=True) for a in (x, *vectors)]
        y = f(*leaves)
        y = y if isinstance(y, tuple) else (y,)
        y[0].sum().backward()
        assert {t.dtype for t in y} == {leaf.grad.dtype for leaf in leaves} == {np.dtype(dtype)}


def test_constant_rows_give_the_bias_and_no_gradient():
    x = mg.Tensor(np.full((2, 3), 7.0), requires_grad=True)
    weight, bias = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    y = mg.layer_norm(x, weight, bias)
    assert y.data.tolist() == [bias.tolist()] * 2
    y, mean, var = mg.batch_norm(x, weight, bias)
    assert y.data.tolist() == [bias.tolist()] * 2 and mean.data.tolist() == [7] * 3 and var.data.tolist() == [0] * 3
    y.sum().backward()
    assert not x.grad.any()


def test_a_large_mean_does_not_hide_the_variance():
    x = np.float32(4096) + np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    exact = (x - x.mean(axis=1, keepdims=True, dtype=np.float64)) / x.std(axis=1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(mg.layer_norm(x).data, exact, atol=1e-3)
    exact = (x - x.mean(axis=0, dtype=np.float64)) / x.std(axis=0, dtype=np.float64)
    np.testing.assert_allclose(mg.batch_norm(x)[0].data, exact, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 3, 2), (2, 3, 0)])
def test_empty_inputs(shape):
    for f in (mg.layer_norm, mg.rms_norm, mg.batch_norm):
        x = mg.Tensor(np.zeros(shape), requires_grad=True)
        width = shape[1 if f is mg.batch_norm else -1]
        weight = mg.Tensor(np.ones(width), requires_grad=True)
        y = f(x, weight)
        (y[0] if isinstance(y, tuple) else y).sum().backward()
        assert x.grad.shape == shape and weight.grad.tolist() == [0] * width


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mg.layer_norm(np.ones((2, 3)), np.ones(2)), ValueError, r"weight \(2,\) and x \(2, 3\): expected \(3,\)"),
        (lambda: mg.layer_norm(np.ones((2, 3)), None, np.ones((1, 3))), ValueError, r"bias \(1, 3\) and x"),
        (lambda: mg.rms_norm(np.ones((2, 3)), np.ones(4)), ValueError, r"rms_norm: weight \(4,\)"),
        (lambda: mg.batch_norm(np.ones((2, 3, 4)), np.ones(4)), ValueError, r"expected \(3,\), one for each feature"),
        (lambda: mg.batch_norm(np.ones(3)), ValueError, r"batch_norm: x \(3,\): expected \(batch, features, ...\)"),
        (lambda: mg.layer_norm([1, 2]), TypeError, "expected floats"),
        (lambda: mg.rms_norm(np.float64(1)), TypeError, "at least one axis"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
