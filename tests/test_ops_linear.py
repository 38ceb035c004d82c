"""Products: against NumPy on vectors, matrices and batches, gradients, and errors that name the rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, broadcastable


@given(st.data())
def test_matmul_of_batches(data):
    a, b = data.draw(broadcastable(2, max_dims=2))
    n, k, m = (data.draw(st.integers(0, 3)) for _ in range(3))
    x, y = data.draw(arrays((*a, n, k))), data.draw(arrays((*b, k, m)))
    np.testing.assert_allclose(mg.matmul(x, y).data, x @ y, atol=1e-13)
    mg.gradcheck(mg.matmul, x, y)


@given(st.data())
def test_matmul_with_vectors(data):
    k = data.draw(st.integers(0, 3))
    v, w = data.draw(arrays((k,))), data.draw(arrays((k,)))
    x, y = data.draw(arrays((2, 3, k))), data.draw(arrays((2, k, 3)))
    for a, b in ((v, w), (x, v), (v, y), (x[0], v), (v, y[0])):
        np.testing.assert_allclose(mg.matmul(a, b).data, a @ b, atol=1e-13)
        mg.gradcheck(mg.matmul, a, b)


@given(st.data())
def test_linear(data):
    lead = data.draw(st.sampled_from([(), (0,), (3,), (2, 3), (2, 0, 3)]))
    x, w, b = data.draw(arrays((*lead, 4))), data.draw(arrays((4, 3))), data.draw(arrays((3,)))
    np.testing.assert_allclose(mg.linear(x, w, b).data, x @ w + b, atol=1e-13)
    mg.gradcheck(mg.linear, x, w, b)
    mg.gradcheck(lambda x, w: mg.linear(x, w), x, w)
    mg.gradcheck(lambda x, b: mg.linear(x, w.T[:3].T, b), x, b)


@pytest.mark.parametrize(
    "formula", ["ij,jk->ik", "ij,jk", "ij->ji", "ij->", "ij->i", "i,i->", "i,j->ij", "bij,bjk,bkl->bil", "ij,ij->ij", "ab,c->c"]
)
def test_einsum(formula):
    sizes = dict(zip("abcijkl", (2, 3, 2, 4, 3, 2, 5)))
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=[sizes[c] for c in term]) for term in formula.split("->")[0].split(",")]
    np.testing.assert_allclose(mg.einsum(formula, *operands).data, np.einsum(formula, *operands), atol=1e-12)
    mg.gradcheck(lambda *a: mg.einsum(formula, *a), *operands)


def test_operators_keep_the_gradient_on_both_sides():
    t = mg.Tensor(np.ones((2, 2)), requires_grad=True)
    a = np.arange(4.0).reshape(2, 2)
    for y in (a @ t, t @ a):
        assert isinstance(y, mg.Tensor) and y.requires_grad
    np.testing.assert_array_equal((a @ t).data, a @ np.ones((2, 2)))


@pytest.mark.parametrize("f", [mg.linear, mg.matmul])
def test_replay_reads_new_values_of_strided_arrays(f):
    first, second = np.random.default_rng(0).normal(size=(2, 4, 3, 5))
    w = mg.Tensor(np.ones((3, 2)), requires_grad=True)

    @mg.capture
    def step(x):
        w.grad = None
        y = f(mg.swapaxes(x, 1, 2), w).sum()
        y.backward()
        return y

    step(first), step(first)
    np.testing.assert_allclose(step(second).data, 2 * second.sum())
    assert step.replays == 1
    np.testing.assert_allclose(w.grad, np.repeat(second.sum(axis=(0, 2))[:, None], 2, axis=1))


def test_linear_multiplies_once_over_all_leading_axes():
    made = []
    x, w, b = (mg.Tensor(np.ones(shape), requires_grad=True) for shape in ((2, 3, 4), (4, 5), (5,)))
    with mg.kernels.recording(lambda kernel, inputs, out: made.append((kernel.__name__, out.shape))):
        y = mg.linear(x, w, b)
    assert made == [("matmul", (6, 5)), ("add", (6, 5))]
    made.clear()
    with mg.kernels.recording(lambda kernel, inputs, out: made.append((kernel.__name__, out.shape))):
        mg.backward([y], [np.ones(y.shape)])
    assert [m for m in made if m[0] in ("matmul", "sum")] == [("matmul", (6, 4)), ("matmul", (4, 5)), ("sum", (5,))]


def test_einsum_wants_subscripts_first():
    with pytest.raises(TypeError, match="einsum: expected subscripts such as 'ij,jk->ik' first, got ndarray"):
        mg.einsum(np.ones((2, 2)), np.ones((2, 2)))


ONE = np.ones
ERRORS = [
    (lambda: mg.linear(ONE((64, 783)), ONE((784, 128))), "linear: x (64, 783) and w (784, 128): the last axis of x must equal "
     "the rows of w (783 != 784)"),
    (lambda: mg.linear(ONE((8, 28, 28)), ONE((784, 10))), "did you forget to flatten the image?"),
    (lambda: mg.linear(ONE((2, 3)), ONE((3, 4)), ONE(3)), "linear: b (3,) and w (3, 4): b needs one value for each column of w (4)"),
    (lambda: mg.matmul(ONE((2, 3)), ONE((4, 2))), "matmul: x (2, 3) and y (4, 2): the last axis of x must equal the rows of y (3 != 4)"),
    (lambda: mg.matmul(1.0, ONE(2)), "both need an axis; multiply scalars with *"),
    (lambda: mg.matmul(ONE((2, 3, 3)), ONE((4, 3, 3))), "the axes before the last two do not broadcast"),
    (lambda: mg.einsum("ii->i", ONE((2, 2))), "repeats a letter within one operand"),
    (lambda: mg.einsum("...i->i", ONE((2, 2))), "no ellipsis"),
    (lambda: mg.einsum("é->é", ONE(2)), "only letters, commas and '->' are supported"),
    (lambda: mg.einsum("ij,jk", ONE((2, 2))), "names 2 operands, got 1"),
    (lambda: mg.einsum("ij,jk", ONE((2, 2)), ONE((3, 2))), "axis 'j' has size 2 and, in operand 1, 3"),
    (lambda: mg.einsum("ij->k", ONE((2, 2))), "output 'k' must hold letters of the operands"),
    (lambda: mg.einsum("ijk", ONE((2, 2))), "operand 0 is (2, 2), but 'ijk' names 3 axes"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, message = ERRORS[number]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
