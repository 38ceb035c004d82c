"""gradcheck itself: what it accepts, what it refuses, and how it finds derivatives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.check import GradientError, _extrapolate
from minigrad.engine import OPS, op
from minigrad.kernels import launch
from minigrad.testing import arrays, axes, broadcastable, indices, layouts, shapes, tensors


@pytest.fixture
def define():
    """Define ops for one test."""
    before = set(OPS)
    yield op
    for name in set(OPS) - before:
        del OPS[name]


def test_methods_are_told():
    x = np.array([0.5, 1.5])
    assert mg.gradcheck(mg.exp, x).methods == ["complex step"]
    assert mg.gradcheck(mg.logistic, x).methods == ["differences"]
    assert mg.gradcheck(mg.relu, np.array([0.0, -1.0])).methods == ["one-sided"]
    assert "exp" in str(mg.gradcheck(mg.exp, x))


@pytest.mark.parametrize("f", [mg.relu, mg.abs, lambda x: mg.maximum(x, 0.0), lambda x: mg.clip(x, 0, 1), mg.max])
def test_kinks_pass_with_a_subgradient(f):
    mg.gradcheck(f, np.zeros(3))


def test_a_gradient_outside_the_subdifferential_fails(define):
    @define
    def steep(x, /):
        return launch(np.absolute, x), lambda gy: gy * 1.5

    with pytest.raises(GradientError, match="steep"):
        mg.gradcheck(steep, np.zeros(2))


def test_wrong_where_smooth_is_not_excused_by_a_kink_elsewhere(define):
    @define
    def half(x, /):
        return launch(np.absolute, x), lambda gy: gy * np.sign(x) * np.where(x > 1, 1.01, 1)

    with pytest.raises(GradientError, match=r"at index \(1,\)"):
        mg.gradcheck(half, np.array([0.0, 2.0]))


def test_infinite_derivative_and_value():
    with pytest.raises(GradientError, match="sqrt"):
        mg.gradcheck(mg.sqrt, np.array([0.0]))
    with np.errstate(divide="ignore"), pytest.raises(GradientError, match="log"):
        mg.gradcheck(mg.log, np.array([0.0]))


def test_modified_input_is_reported(define):
    @define
    def careless(x, /):
        y = launch(np.negative, x)
        x *= 1.5
        return y, lambda gy: -gy

    with pytest.raises(GradientError, match="careless: argument 0 was modified"):
        mg.gradcheck(careless, np.ones(2))


def test_modified_cotangent_is_reported(define):
    @define
    def careless(x, /):
        def vjp(gy):
            gy *= 2
            return gy

        return launch(np.add, x, x), vjp

    with pytest.raises(GradientError, match="careless: cotangent 0 was modified"):
        mg.gradcheck(careless, np.ones(2))


def test_float32_constants_inside_are_reported(define):
    with pytest.raises(GradientError, match="float32"):
        mg.gradcheck(lambda x: mg.exp(mg.astype(x, np.float32)), np.ones(2))


def test_a_forward_that_is_not_holomorphic_is_not_believed(define):
    @define(analytic=True)
    def modulus(x, /):
        return np.sqrt((x * np.conj(x)).real + 0 * x), lambda gy: gy * np.sign(x)

    mg.gradcheck(modulus, np.array([1.0, -2.0]))  # the complex step alone would say 0


def test_float32_arguments_are_converted_and_integers_passed_on():
    report = mg.gradcheck(lambda w, i: mg.embedding(i, w), np.ones((3, 2), np.float32), np.array([0, 2]))
    assert len(report.methods) == 1


def test_several_outputs_and_no_output_that_depends():
    mg.gradcheck(lambda x: mg.split(x, 2), np.arange(4.0))
    mg.gradcheck(lambda x: (mg.exp(x), mg.sum(x)), np.arange(3.0))
    with pytest.raises(GradientError):
        mg.gradcheck(lambda x: mg.exp(mg.Tensor(x.data)), np.arange(3.0))
    with pytest.raises(TypeError, match="f returned ndarray"):
        mg.gradcheck(lambda x: x.data, np.ones(2))


@given(st.data())
def test_no_false_alarm_for_curved_functions(data):
    x = data.draw(arrays(min_value=-3, max_value=3))
    k = data.draw(st.sampled_from([1.0, 7.0, 30.0]))
    mg.gradcheck(lambda x: mg.sin(x * k) * mg.exp(x), x)
    mg.gradcheck(lambda x: mg.logistic(x * k) * mg.softplus(x * k), x)


def test_extrapolation_is_accurate_and_knows_it():
    value, spread = _extrapolate(lambda h: (np.exp(1 + h) - np.exp(1 - h)) / (2 * h), 2, 1e-16)
    assert abs(value - np.e) < 1e-10 and spread < 1e-8


# --- strategies ---------------------------------------------------------------------------------------------------


@given(st.data())
def test_strategies_give_what_they_promise(data):
    shape = data.draw(shapes(max_dims=3))
    x = data.draw(arrays(shape))
    assert x.shape == shape and x.dtype == np.float64 and np.all(np.abs(x) <= 2)
    y = data.draw(layouts(x))
    np.testing.assert_array_equal(x, y)
    some = data.draw(broadcastable(3))
    np.broadcast_shapes(*some)
    axis = data.draw(axes(len(shape)))
    np.sum(x, axis=axis)
    np.asarray(x[data.draw(indices(shape))])
    t = data.draw(tensors((2, 3)))
    assert t.requires_grad and t.shape == (2, 3)
