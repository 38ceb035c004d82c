"""The checker must fail when a gradient is wrong: an error of 0.1 % is planted in every vjp, for every operand."""

import importlib
import pkgutil

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import GradientError
from minigrad.engine import OPS
from tests import cases

CASES = {}
for module in pkgutil.iter_modules(cases.__path__):
    CASES.update(importlib.import_module(f"tests.cases.{module.name}").CASES)


def make(name):
    return CASES[name](np.random.default_rng(7))


def planted(forward, operand, change):
    """Return forward with ``change`` applied to the gradient of one operand."""

    def wrapped(*args, **settings):
        y, vjp = forward(*args, **settings)

        def wrong(gy):
            grads = vjp(gy)
            single = not isinstance(grads, tuple)
            grads = [grads] if single else list(grads)
            value = grads[operand]
            if callable(value):
                value = value()
            if value is not None:
                value = change(np.array(value))
            grads[operand] = value
            return grads[0] if single else tuple(grads)

        return y, wrong

    return wrapped


def test_every_op_has_a_case():
    from minigrad import ops

    ours = {name for name, function in OPS.items() if function.__module__.startswith(ops.__name__)}
    assert set(CASES) == ours


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_true_gradient_passes(name):
    f, arrays = make(name)
    report = mg.gradcheck(f, *arrays)
    assert name in report.ops


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_error_of_a_thousandth_is_found_and_named(name, monkeypatch):
    f, arrays = make(name)
    op = OPS[name].op
    true = op.forward
    for operand in range(len(arrays)):
        change = (lambda g: g + 1e-3) if name == "sign" else (lambda g: g * 1.001)
        monkeypatch.setattr(op, "forward", planted(true, operand, change))
        with pytest.raises(GradientError) as error:
            mg.gradcheck(f, *arrays)
        text = str(error.value)
        if len(mg.check._recorded(mg.check._outputs(f(*(mg.Tensor(a, requires_grad=True) for a in arrays))))) == 1:
            assert name in text
        assert f"argument {operand}" in text and "expected" in text and "got" in text and "relative error" in text
        assert "at index" in text


@pytest.mark.parametrize("name", ["multiply", "matmul", "softmax", "layer_norm", "lstm", "conv2d"])
def test_one_wrong_element_is_found(name, monkeypatch):
    f, arrays = make(name)

    def change(g):
        g.flat[0] *= 1.1
        return g

    monkeypatch.setattr(OPS[name].op, "forward", planted(OPS[name].op.forward, 0, change))
    with pytest.raises(GradientError, match="argument 0") as error:
        mg.gradcheck(f, *arrays)
    assert f"at index {(0,) * arrays[0].ndim}" in str(error.value)


def test_a_transposed_gradient_is_found(monkeypatch):
    """With a cotangent of ones, the gradient of x @ x.T would look right although it is transposed."""
    x = np.random.default_rng(0).normal(size=(3, 3))
    monkeypatch.setattr(OPS["matmul"].op, "forward", planted(OPS["matmul"].op.forward, 0, lambda g: g.T.copy()))
    with pytest.raises(GradientError):
        mg.gradcheck(mg.matmul, x, x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g[:1], "the gradient of operand x is"),
        (lambda g: g.astype(np.float32), "float32"),
        (lambda g: g * np.nan, "relative error"),
        (lambda g: g * 0, "relative error 1"),
        (lambda g: -g, "relative error"),
    ],
)
def test_wrong_shape_dtype_and_value(change, message, monkeypatch):
    monkeypatch.setattr(OPS["exp"].op, "forward", planted(OPS["exp"].op.forward, 0, change))
    with pytest.raises(GradientError, match=message):
        mg.gradcheck(mg.exp, np.array([0.5, 1.0, -1.0]))
