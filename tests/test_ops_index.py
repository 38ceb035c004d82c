"""Indexing: every kind of key against NumPy, with repeats added up in the gradient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, indices, shapes
from tests import gradient


@given(st.data())
def test_any_key(data):
    shape = data.draw(shapes(max_dims=3))
    x = data.draw(arrays(shape))
    key = data.draw(indices(shape))
    np.testing.assert_array_equal(mg.getitem(x, key).data, x[key])
    mg.gradcheck(lambda x: x[key], x)


KEYS = [0, -1, slice(None, None, -2), (Ellipsis, 1), (None, 0), [0, 0, 2], ([0, 0], [1, 1]), (slice(None), [1, 0, 1]),
        ([2, 0], slice(1, 3)), np.array([True, False, True]), (np.array([True, False, True]), 1), ([0, 1], None, [1, 2]), [],
        (np.array([[0, 1], [1, 0]]), 2), (0, 1)]  # fmt: skip


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_keys_of_note(number):
    x = np.arange(12.0).reshape(3, 4)
    key = KEYS[number]
    plain = np.array([], int) if isinstance(key, list) and not key else key
    np.testing.assert_array_equal(mg.Tensor(x)[key].data, x[plain])
    mg.gradcheck(lambda x: x[key], x)


def test_repeats_add_up():
    assert gradient(lambda x: x[[0, 0, 0, 2]], [1.0, 2.0, 3.0]) == [[3, 0, 1]]
    assert gradient(lambda x: x[([1, 1], [0, 0])], [[1.0, 2.0], [3.0, 4.0]]) == [[[0, 0], [2, 0]]]


def test_tensors_as_keys_and_iteration():
    x = mg.Tensor(np.arange(3.0), requires_grad=True)
    assert x[mg.Tensor([2, 0])].data.tolist() == [2, 0]
    assert x[x > 0.5].data.tolist() == [1, 2]
    a, b, c = x
    (a * b * c + b).backward()
    assert x.grad.tolist() == [2, 1, 0]


def test_an_index_changed_before_backward_is_an_error():
    x, key = mg.Tensor(np.arange(3.0), requires_grad=True), np.array([0, 1])
    y = x[key].sum()
    key[0] = 2
    with pytest.raises(RuntimeError, match="getitem: .* was changed after the forward pass"):
        y.backward()


@given(st.data())
def test_take_along_axis_and_embedding(data):
    x = data.draw(arrays((3, 4)))
    rows = np.array(data.draw(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=3, max_size=3)))
    np.testing.assert_array_equal(mg.take_along_axis(x, rows, 1).data, np.take_along_axis(x, rows, 1))
    mg.gradcheck(lambda x: mg.take_along_axis(x, rows, 1), x)
    ids = np.array(data.draw(st.lists(st.integers(0, 2), max_size=6)), int)
    np.testing.assert_array_equal(mg.embedding(ids, x).data, x[ids])
    mg.gradcheck(lambda w: mg.embedding(ids, w), x)


def test_embedding_of_float32_sums_like_the_definition():
    rng = np.random.default_rng(0)
    ids, g = rng.integers(0, 50, (40, 30)), rng.normal(size=(40, 30, 8)).astype(np.float32)
    w = mg.Tensor(np.zeros((50, 8), np.float32), requires_grad=True)
    mg.embedding(ids, w).backward(g)
    expected = np.zeros((50, 8))
    np.add.at(expected, ids, g)
    np.testing.assert_allclose(w.grad, expected, rtol=1e-5, atol=1e-5)


ERRORS = [
    (lambda: mg.Tensor([1.0])[3], IndexError, "getitem: x (1,):"),
    (lambda: mg.Tensor([1.0, 2.0])[[0.5]], IndexError, "an index is float"),
    (lambda: mg.Tensor([1.0, 2.0])[np.array([True])], IndexError, "getitem: x (2,)"),
    (lambda: mg.take_along_axis([[1.0]], np.array([0]), 0), IndexError, "take_along_axis: indices (1,) int64"),
    (lambda: mg.embedding([[0, 7]], np.ones((5, 2))), IndexError, "embedding: indices[0, 1] is 7, expected 0 to 4 for weight (5, 2)"),
    (lambda: mg.embedding([-1], np.ones((5, 2))), IndexError, "embedding: indices[0] is -1, expected 0 to 4"),
    (lambda: mg.embedding([0.0], np.ones((5, 2))), TypeError, "embedding: indices are float32; expected integers"),
    (lambda: mg.embedding([0], np.ones(5)), ValueError, "embedding: weight (5,): expected (entries, features)"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, message = ERRORS[number]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)
