"""Moving elements: the same result as NumPy's function, the gradient moved back, and views where NumPy has views."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.kernels import recording
from minigrad.testing import arrays, axes, broadcastable, shapes

from .cases.shape import CASES


def agree(f, g, *operands):
    """f of tensors has the values, shapes and dtypes of g of arrays, and a right gradient."""
    ys, zs = f(*map(mg.Tensor, operands)), g(*operands)
    if isinstance(ys, mg.Tensor):
        ys, zs = (ys,), (zs,)
    assert len(ys) == len(zs)
    for y, z in zip(ys, zs):
        assert (y.shape, y.dtype) == (z.shape, z.dtype)
        assert np.array_equal(y.data, z)
    mg.gradcheck(f, *operands)


# --- the same elements under another shape ------------------------------------------------------------------------


@given(st.data())
def test_reshape(data):
    x = data.draw(arrays())
    order = data.draw(st.permutations([*x.shape, 1]))
    cut = data.draw(st.integers(0, len(order)))
    shape = (math.prod(order[:cut]), *order[cut:])
    agree(lambda t: mg.reshape(t, shape), lambda a: a.reshape(shape), x)
    agree(lambda t: t.reshape(*shape), lambda a: a.reshape(shape), x)
    agree(mg.ravel, np.ravel, x)
    if x.size:
        agree(lambda t: t.reshape(-1, *shape[1:]), lambda a: a.reshape(-1, *shape[1:]), x)


def test_reshape_accepts_all_spellings():
    x = mg.Tensor(np.arange(6.0))
    for y in (x.reshape(2, 3), x.reshape((2, 3)), x.reshape([2, 3]), x.reshape(np.array([2, 3])), mg.reshape(x, shape=(2, 3))):
        assert y.shape == (2, 3)
    assert x.reshape(6).shape == x.reshape(-1).shape == mg.reshape(x, np.int64(6)).shape == (6,)
    assert mg.Tensor([1.0]).reshape(()).shape == ()


def test_reshape_is_a_view_where_it_can_be_and_else_a_launched_copy():
    x = np.arange(24.0).reshape(2, 3, 4)
    launched = []
    with recording(lambda kernel, inputs, out: launched.append(kernel.__name__)):
        for view in (mg.reshape(x, 6, 4), mg.reshape(x[:, :, :2], 2, 3, 2, 1), mg.reshape(x[::-1], 2, 1, 12)):
            assert np.shares_memory(view.data, x)
        assert launched == []
        copied = mg.reshape(x.T, 4, 6)
        assert launched == ["copy"]
    assert not np.shares_memory(copied.data, x)


def test_the_gradient_of_reshape_copies_by_a_launch():
    x = mg.Tensor(np.ones((2, 3)), requires_grad=True)
    y = mg.reshape(x, 3, 2)
    launched = []
    with recording(lambda kernel, inputs, out: launched.append(kernel.__name__)):
        y.backward(np.arange(6.0).reshape(2, 3).T)
    assert launched == ["copy", "copy"]  # into C order, and into .grad
    assert x.grad.tolist() == [[0, 3, 1], [4, 2, 5]]


@given(st.data())
def test_expand_dims_and_squeeze(data):
    x = data.draw(arrays())
    axis = data.draw(st.one_of(st.integers(-x.ndim - 1, x.ndim), st.just((0, -1))))
    agree(lambda t: mg.expand_dims(t, axis), lambda a: np.expand_dims(a, axis), x)
    wide = np.expand_dims(x, axis)
    agree(lambda t: mg.squeeze(t, axis), lambda a: np.squeeze(a, axis), wide)
    agree(lambda t: t.squeeze(), np.squeeze, wide)


# --- the same elements in another order ---------------------------------------------------------------------------


@given(st.data())
def test_transpose(data):
    x = data.draw(arrays())
    order = tuple(a - x.ndim * data.draw(st.booleans()) for a in data.draw(st.permutations(range(x.ndim))))
    agree(lambda t: mg.transpose(t, order), lambda a: np.transpose(a, order), x)
    agree(lambda t: mg.transpose(t, axes=list(order)), lambda a: np.transpose(a, order), x)
    agree(lambda t: t.T, lambda a: a.T, x)
    agree(mg.transpose, np.transpose, x)
    if x.ndim:
        agree(lambda t: t.transpose(*order), lambda a: a.transpose(*order), x)


@given(st.data())
def test_swapaxes(data):
    x = data.draw(arrays(shapes(min_dims=1)))
    one, two = data.draw(axes(x.ndim, False, False)), data.draw(axes(x.ndim, False, False))
    agree(lambda t: t.swapaxes(one, two), lambda a: np.swapaxes(a, one, two), x)
    if x.ndim > 1:
        agree(lambda t: t.mT, lambda a: np.swapaxes(a, -1, -2), x)


@given(st.data())
def test_flip_and_roll(data):
    x = data.draw(arrays())
    axis = data.draw(axes(x.ndim))
    agree(lambda t: mg.flip(t, axis), lambda a: np.flip(a, axis), x)
    shift = data.draw(st.integers(-5, 5))
    if isinstance(axis, tuple):
        shift = data.draw(st.one_of(st.just(shift), st.tuples(*[st.integers(-5, 5)] * len(axis))))
    if axis != ():  # which NumPy refuses for an array of no axes
        agree(lambda t: mg.roll(t, shift, axis), lambda a: np.roll(a, shift, axis), x)


def test_moves_are_views_and_read_only_on_the_tape():
    x = mg.Tensor(np.ones((2, 1, 3)), requires_grad=True)
    moved = [x.T, x.mT, x.squeeze(), x.swapaxes(0, 2), mg.flip(x), mg.expand_dims(x, 0), mg.broadcast_to(x, (2, 4, 3))]
    for y in (*moved, *mg.split(x, 2), x.reshape(6), x.ravel()):
        assert np.shares_memory(y.data, x.data)
        assert not y.data.flags.writeable
    assert x.data.flags.writeable


# --- more or fewer elements ---------------------------------------------------------------------------------------


@given(st.data())
def test_broadcast_to(data):
    shape, other = data.draw(broadcastable(2))
    x = data.draw(arrays(shape))
    full = np.broadcast_shapes(shape, other)
    agree(lambda t: mg.broadcast_to(t, full), lambda a: np.broadcast_to(a, full), x)


@given(arrays(shapes(min_dims=2)), st.integers(-5, 5))
def test_triangles(x, k):
    agree(lambda t: mg.tril(t, k), lambda a: np.tril(a, k), x)
    agree(lambda t: mg.triu(t, k=k), lambda a: np.triu(a, k), x)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float16, np.float32, complex])
def test_triangles_keep_the_dtype(dtype):
    x = np.ones((3, 3), dtype)
    for f, g in ((mg.tril, np.tril), (mg.triu, np.triu)):
        y = f(x).data
        assert y.dtype == dtype
        assert np.array_equal(y, g(x))


def test_triangles_drop_nan_and_infinity_forward_and_backward():
    x = mg.Tensor([[1.0, np.nan], [2.0, np.inf]], requires_grad=True)
    y = mg.tril(x)
    assert y.data.tolist() == [[1, 0], [2, np.inf]]
    y.backward(np.array([[3, np.inf], [np.inf, 5]], np.float32))
    assert x.grad.tolist() == [[3, 0], [np.inf, 5]]


@given(st.data())
def test_pad(data):
    x = data.draw(arrays())
    pair = st.tuples(st.integers(0, 3), st.integers(0, 3))
    width = data.draw(st.one_of(st.integers(0, 3), pair, st.tuples(*[pair] * x.ndim)))
    if x.ndim == 0 and not isinstance(width, int):
        width = 0
    value = data.draw(st.sampled_from([0.0, -1.5, np.inf]))
    padded = mg.pad(x, width, constant_values=value).data
    assert np.array_equal(padded, np.pad(x, width, constant_values=value) if x.ndim else x)
    mg.gradcheck(lambda t: mg.pad(t, width), x)


@given(st.data())
def test_concatenate(data):
    shape = data.draw(shapes(min_dims=1))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    k = axis % len(shape)
    parts = [data.draw(arrays((*shape[:k], n, *shape[k + 1 :]))) for n in sizes]
    agree(lambda *ts: mg.concatenate(ts, axis), lambda *xs: np.concatenate(xs, axis), *parts)
    agree(lambda *ts: mg.concatenate(ts, axis=None), lambda *xs: np.concatenate(xs, None), *parts)
    ends = np.cumsum(sizes)[:-1].tolist()
    whole = np.concatenate(parts, axis)
    agree(lambda t: mg.split(t, ends, axis), lambda a: np.split(a, ends, axis), whole)


@given(st.data())
def test_stack(data):
    shape = data.draw(shapes())
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    parts = [data.draw(arrays(shape)) for _ in range(data.draw(st.integers(1, 3)))]
    agree(lambda *ts: mg.stack(list(ts), axis), lambda *xs: np.stack(xs, axis), *parts)


@given(st.data())
def test_split_into_sections(data):
    shape = data.draw(shapes(min_dims=1))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    sections = data.draw(st.sampled_from([k for k in range(1, n + 2) if n % k == 0]))
    agree(lambda t: mg.split(t, sections, axis=axis), lambda a: np.split(a, sections, axis), data.draw(arrays(shape)))


def test_split_at_indices_from_the_back_beyond_the_end_and_repeated():
    x = np.arange(5.0)
    for indices in ([-1], [2, 2], [3, 9, 11], [], [0], np.array([1, 4]), (2,)):
        agree(lambda t, i=indices: mg.split(t, i), lambda a, i=indices: np.split(a, i), x)


def test_a_part_that_is_not_used_gets_no_gradient():
    x = mg.Tensor([1.0, 2.0, 3.0], requires_grad=True)
    first, _ = mg.split(x, [1])
    first.sum().backward()
    assert x.grad.tolist() == [1, 0, 0]


def test_one_tensor_joined_with_itself_and_with_constants():
    x = mg.Tensor([1.0, 2.0], requires_grad=True)
    y = mg.concatenate([x, [5.0], x, np.array([7])])
    assert y.dtype == np.float32
    (y * np.array([1, 2, 3, 4, 5, 6], np.float32)).sum().backward()
    assert x.grad.tolist() == [5, 7]
    x.grad = None
    (mg.stack([x, x, [0.0, 0.0]], axis=1) * np.array([1, 10, 100], np.float32)).sum().backward()
    assert x.grad.tolist() == [11, 11]


def test_arrays_may_come_as_any_iterable():
    rows = mg.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = mg.concatenate(rows)
    assert y.data.tolist() == mg.concatenate(row for row in rows).data.tolist() == [1, 2, 3, 4]
    (y * y).sum().backward()
    assert rows.grad.tolist() == [[2, 4], [6, 8]]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtype_stays(name, dtype):
    f, operands = CASES[name](np.random.default_rng(0))
    leaves = [mg.Tensor(x.astype(dtype), requires_grad=True) for x in operands]
    ys = f(*leaves)
    for y in ys if isinstance(ys, tuple) else (ys,):
        assert y.dtype == dtype
        y.sum().backward(retain_graph=True)
    assert all(leaf.grad.dtype == dtype for leaf in leaves)


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name):
    f, operands = CASES[name](np.random.default_rng(1))
    mg.gradcheck(f, *operands)


# --- bad input ----------------------------------------------------------------------------------------------------

X = np.ones((2, 3))
BAD = {
    r"reshape: x \(2, 3\) has 6 elements, which do not fill \(4, 2\)": lambda: mg.reshape(X, 4, 2),
    r"reshape: x \(3, 2\) has 6 elements, which do not fill \(-1, 4\)": lambda: mg.reshape(X.T, -1, 4),
    r"expand_dims: axis 4 is out of range, or repeated, for x \(2, 3\)": lambda: mg.expand_dims(X, 4),
    r"expand_dims: axis \(0, 0\) is out of range, or repeated": lambda: mg.expand_dims(X, (0, 0)),
    r"squeeze: axis 1 of x \(2, 3\) is not of size 1": lambda: mg.squeeze(X, 1),
    r"squeeze: axis 2 is out of range for x \(2, 3\); expected -2 to 1": lambda: mg.squeeze(X, 2),
    r"transpose: axes \(0,\) are no permutation of the 2 axes of x \(2, 3\)": lambda: mg.transpose(X, 0),
    r"transpose: axis \(0, 0\) names an axis of x \(2, 3\) twice": lambda: mg.transpose(X, (0, 0)),
    r"transpose: axis 3 is out of range for x \(2, 3\)": lambda: mg.transpose(X, (0, 3)),
    r"swapaxes: axis 2 is out of range for x \(2, 3\)": lambda: mg.swapaxes(X, 0, 2),
    r"mT: the tensor \(3,\) has no last two axes": lambda: mg.Tensor(X[0]).mT,
    r"flip: axis -3 is out of range": lambda: mg.flip(X, -3),
    r"roll: axis 2 is out of range": lambda: mg.roll(X, 1, 2),
    r"broadcast_to: x \(2, 3\) does not broadcast to \(3, 2\)": lambda: mg.broadcast_to(X, (3, 2)),
    r"tril: x \(3,\): expected at least two axes": lambda: mg.tril(X[0]),
    r"triu: x \(\): expected at least two axes": lambda: mg.triu(1.0),
    r"pad: mode 'reflect': only 'constant' is supported": lambda: mg.pad(X, 1, mode="reflect"),
    r"pad: pad_width -1 is negative; slice": lambda: mg.pad(X, -1),
    r"pad: pad_width 1.5: expected one \(before, after\) of ints": lambda: mg.pad(X, 1.5),
    r"pad: pad_width \(\(1, 1\), \(2, 2\), \(3, 3\)\): expected one": lambda: mg.pad(X, ((1, 1), (2, 2), (3, 3))),
    r"concatenate: got shapes \[\]; expected at least one array": lambda: mg.concatenate([]),
    r"concatenate: got shapes \[\(\), \(\)\]; .* at least one axis": lambda: mg.concatenate([1.0, 2.0]),
    r"concatenate: arrays\[0\] \(2, 3\) and arrays\[1\] \(3, 2\) differ beside axis 0": lambda: mg.concatenate([X, X.T]),
    r"concatenate: axis 2 is out of range": lambda: mg.concatenate([X, X], 2),
    r"stack: got no array": lambda: mg.stack([]),
    r"stack: arrays\[0\] \(2, 3\) and arrays\[1\] \(3, 2\) differ in shape": lambda: mg.stack([X, X.T]),
    r"stack: axis 3 is out of range": lambda: mg.stack([X, X], 3),
    r"split: axis 1 of x \(2, 3\) cannot be cut into 2 equal sections": lambda: mg.split(X, 2, 1),
    r"split: axis 0 of x \(2, 3\) cannot be cut into 0 equal sections": lambda: mg.split(X, 0),
    r"split: axis 0 of x \(5,\) cannot be cut into 2 equal sections": lambda: mg.split(np.ones(5), 2),
    r"split: indices \[2, 1\] decrease": lambda: mg.split(X, [2, 1], 1),
    r"split: axis 2 is out of range": lambda: mg.split(X, 1, 2),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_float_dtypes_do_not_mix():
    with pytest.raises(TypeError, match=r"concatenate: operand arrays\[0\] is float64 and operand arrays\[1\] is float32"):
        mg.concatenate([X, X.astype(np.float32)])
