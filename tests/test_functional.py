"""grad, value_and_grad, vjp, jacobian and hvp against analytic derivatives."""

import numpy as np
import pytest
from hypothesis import given

import minigrad as mg
from minigrad.testing import arrays

A = np.array([[2.0, 1.0], [0.0, 3.0]])


@given(arrays((2,)))
def test_quadratic_form(x):
    def f(x):
        return x @ A @ x

    value, gradient = mg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, x @ A @ x)
    np.testing.assert_allclose(gradient, (A + A.T) @ x, atol=1e-12)
    np.testing.assert_allclose(mg.grad(f)(x), gradient)
    np.testing.assert_allclose(mg.hvp(f, x, np.array([1.0, -2.0])), (A + A.T) @ [1, -2], atol=1e-8)
    np.testing.assert_allclose(mg.jacobian(lambda x: A @ x)(x), A)


def test_several_arguments_and_unused_ones():
    def f(a, b, c):
        return (a * b).sum()

    a, b, c = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.ones(3)
    ga, gc = mg.grad(f, argnums=(0, 2))(a, b, c)
    np.testing.assert_array_equal(ga, b)
    np.testing.assert_array_equal(gc, np.zeros(3))


def test_leaves_keep_their_own_gradient():
    w = mg.Tensor([1.0], requires_grad=True)
    w.grad = np.array([5.0], np.float32)
    mg.grad(lambda x: (x * w).sum())(np.array([2.0], np.float32))
    mg.grad(lambda x: (x * 2).sum())(w)
    np.testing.assert_array_equal(w.grad, [5])


def test_vjp_may_be_pulled_repeatedly():
    y, pull = mg.vjp(lambda x, z: x * z, np.array([1.0, 2.0]), np.array([3.0, 5.0]))
    np.testing.assert_array_equal(y, [3, 10])
    for scale in (1.0, 10.0):
        gx, gz = pull(np.array([scale, 0.0]))
        np.testing.assert_array_equal(gx, [3 * scale, 0])
        np.testing.assert_array_equal(gz, [scale, 0])


def test_jacobian_of_matrices_has_both_shapes():
    x = np.arange(6.0).reshape(2, 3)
    j = mg.jacobian(lambda x: mg.sum(x * x, axis=1))(x)
    assert j.shape == (2, 2, 3)
    np.testing.assert_array_equal(j[0], [[0, 2, 4], [0, 0, 0]])
    assert mg.jacobian(lambda x: x * 2)(np.zeros((0, 2))).shape == (0, 2, 0, 2)


def test_hvp_of_a_curved_function_and_of_zero():
    x, v = np.array([0.3, -1.2, 2.0]), np.array([1.0, 0.5, -2.0])
    np.testing.assert_allclose(mg.hvp(lambda x: mg.sin(x).sum(), x, v), -np.sin(x) * v, atol=1e-9)
    np.testing.assert_array_equal(mg.hvp(lambda x: mg.sin(x).sum(), x, np.zeros(3)), np.zeros(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mg.grad(lambda x: x * 2)(np.ones(2)), r"f returned \(2,\); expected a scalar"),
        (lambda: mg.grad(lambda x: x.sum(), argnums=1)(np.ones(2)), "argnums: 1 is out of range for 1 arguments"),
        (lambda: mg.hvp(lambda x: x.sum(), np.ones(2), np.ones(3)), r"x \(2,\) and v \(3,\) must have one shape"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(TypeError, match="requires_grad=True needs a float array"):
        mg.grad(lambda x: x.sum())(np.arange(3))
    with pytest.raises(TypeError, match="f returned float"):
        mg.grad(lambda x: 1.0)(np.ones(2))
