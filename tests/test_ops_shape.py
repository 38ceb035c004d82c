"""Moving elements: against NumPy, gradients on any shape and layout, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, axes, broadcastable


def same(f, g, *xs):
    """Assert that f on tensors gives what g gives on arrays, and that its gradient is right."""
    ours = f(*xs)
    theirs = g(*xs)
    for a, b in zip(ours if isinstance(ours, tuple) else [ours], theirs if isinstance(theirs, list) else [theirs]):
        np.testing.assert_array_equal(a.data, b)
    mg.gradcheck(f, *xs)


@given(st.data())
def test_views(data):
    x = data.draw(arrays())
    same(lambda x: mg.reshape(x, (-1,)), lambda x: x.reshape(-1), x)
    same(mg.ravel, np.ravel, x)
    same(mg.transpose, np.transpose, x)
    order = data.draw(st.permutations(range(x.ndim)))
    same(lambda x: mg.transpose(x, tuple(order)), lambda x: np.transpose(x, order), x)
    if x.ndim:
        a, b = data.draw(axes(x.ndim, none=False, several=False)), data.draw(axes(x.ndim, none=False, several=False))
        same(lambda x: mg.swapaxes(x, a, b), lambda x: np.swapaxes(x, a, b), x)
    place = data.draw(axes(x.ndim + 1, none=False, several=False))
    same(lambda x: mg.expand_dims(x, place), lambda x: np.expand_dims(x, place), x)
    same(mg.squeeze, np.squeeze, x)


@given(st.data())
def test_orders(data):
    x = data.draw(arrays())
    axis = data.draw(axes(x.ndim))
    same(lambda x: mg.flip(x, axis), lambda x: np.flip(x, axis), x)
    one = data.draw(axes(x.ndim, several=False))
    shift = data.draw(st.integers(-5, 5))
    same(lambda x: mg.roll(x, shift, one), lambda x: np.roll(x, shift, one), x)


@given(st.data())
def test_broadcast_to(data):
    small, other = data.draw(broadcastable(2))
    full = np.broadcast_shapes(small, other)
    x = data.draw(arrays(small))
    same(lambda x: mg.broadcast_to(x, full), lambda x: np.broadcast_to(x, full), x)


@given(st.data())
def test_triangles_and_pads(data):
    x = data.draw(arrays(st.sampled_from([(0, 2), (3, 3), (2, 4), (2, 3, 2)])))
    k = data.draw(st.integers(-3, 3))
    same(lambda x: mg.tril(x, k), lambda x: np.tril(x, k), x)
    same(lambda x: mg.triu(x, k), lambda x: np.triu(x, k), x)
    widths = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=x.ndim, max_size=x.ndim))
    same(lambda x: mg.pad(x, widths, constant_values=3), lambda x: np.pad(x, widths, constant_values=3), x)


@given(st.data())
def test_joins_and_splits(data):
    shape = data.draw(st.sampled_from([(2,), (2, 3), (3, 1, 2)]))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, y = data.draw(arrays(shape)), data.draw(arrays(shape))
    same(lambda *a: mg.concatenate(a, axis), lambda *a: np.concatenate(a, axis), x, y)
    same(lambda *a: mg.stack(a, axis), lambda *a: np.stack(a, axis), x, y)
    n = shape[axis]
    same(lambda x: mg.split(x, n, axis), lambda x: np.split(x, n, axis), x)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=3)))
    same(lambda x: mg.split(x, cuts, axis), lambda x: np.split(x, cuts, axis), x)


def test_unused_parts_of_a_split_get_zeros():
    x = mg.Tensor(np.arange(6.0), requires_grad=True)
    mg.split(x, 3)[1].sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1, 0, 0]


def test_views_share_memory_and_do_not_lock_the_leaf():
    x = mg.Tensor(np.arange(4.0), requires_grad=True)
    y = x.reshape(2, 2).T
    assert np.shares_memory(y.data, x.data) and not y.data.flags.writeable and x.data.flags.writeable


def test_properties_and_methods():
    x = mg.Tensor(np.arange(6.0).reshape(1, 2, 3))
    assert x.T.shape == (3, 2, 1) and x.mT.shape == (1, 3, 2) and x.squeeze().shape == (2, 3)
    assert x.reshape(3, 2).shape == x.reshape((3, 2)).shape == (3, 2) and x.transpose(2, 0, 1).shape == (3, 1, 2)


ERRORS = [
    (lambda: mg.reshape(np.ones(6), 4, 2), "reshape: x (6,) has 6 elements, which do not fill (4, 2)"),
    (lambda: mg.transpose(np.ones((2, 3)), 0, 0), "transpose: ax"),
    (lambda: mg.squeeze(np.ones((2, 3)), 0), "squeeze: axis 0 of x (2, 3) is not of size 1"),
    (lambda: mg.broadcast_to(np.ones(3), (2,)), "broadcast_to: x (3,) does not broadcast to (2,)"),
    (lambda: mg.concatenate([]), "expected at least one array"),
    (lambda: mg.concatenate([np.ones((2, 3)), np.ones((2, 4))]), "arrays[0] (2, 3) and arrays[1] (2, 4) differ beside axis 0"),
    (lambda: mg.stack([np.ones(2), np.ones(3)]), "stack: arrays[0] (2,) and arrays[1] (3,) differ in shape"),
    (lambda: mg.split(np.ones(5), 2), "split: axis 0 of x (5,) cannot be cut into 2 equal sections"),
    (lambda: mg.pad(np.ones(2), -1), "pad: pad_width -1 is negative; slice to remove elements"),
    (lambda: mg.pad(np.ones(2), 1, mode="wrap"), "pad: mode 'wrap': only 'constant' is supported"),
    (lambda: mg.tril(np.ones(2)), "tril: x (2,): expected at least two axes"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, message = ERRORS[number]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
