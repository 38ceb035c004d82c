"""Indexing: NumPy's results for NumPy's keys, and gradients that add up where an element was taken several times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.kernels import K, recording
from minigrad.testing import arrays, axes, indices, shapes

from .cases.index import CASES
from .test_ops_shape import agree


def scattered(shape, key, gy):
    """The gradient of x[key] by the slowest and plainest means: one taken element after the other."""
    places = np.arange(np.prod(shape, dtype=int)).reshape(shape)[key]
    out = np.zeros(int(np.prod(shape)))
    for place, g in zip(np.ravel(places), np.ravel(gy)):
        out[place] += g
    return out.reshape(shape)


# --- getitem ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_getitem(data):
    x = data.draw(arrays())
    key = data.draw(indices(x.shape))
    agree(lambda t: t[key], lambda a: np.asarray(a[key]), x)
    t = mg.Tensor(x, requires_grad=True)
    y = t[key]
    gy = np.arange(1.0, y.size + 1).reshape(y.shape)
    y.backward(gy)
    assert np.array_equal(t.grad, scattered(x.shape, key, gy))


MIXED = [
    [0, 0, 2],
    np.array([-1, 2, -1]),
    np.array([[0, 1], [1, 1]], np.uint8),
    np.array([], int),
    [],
    (slice(None), [3, 3, 0]),
    ([0, 0], slice(None, None, -2)),
    ([0, 0], [1, 1]),
    ([[0], [2]], [1, 3, 1]),
    (1, [3, 3]),
    ([2, 2], None, slice(1, 3)),
    (None, [1, 1], ..., 0),
    (..., np.array([1, 1])),
    (np.array(1), np.array(2)),
    np.array([True, False, True]),
    (np.array([True, False, True]), 2),
    (np.array([True, False, True]), [1, 1]),
    (slice(None), np.array([True, False, True, True])),
    np.eye(3, 4) > 0,
    np.zeros((3, 4), bool),
    True,
    False,
    np.True_,
    (np.int64(1), np.uint8(2)),
    (slice(-1, None, -1), slice(3, 0, -2)),
    slice(7, 9),
    ([0, 1], None, [1, 2]),
    (np.array([[0, 1], [1, 0]]), 2),
    (None, 0),
    (..., None, 0),
    (),
    ...,
    None,
]


@pytest.mark.parametrize("key", MIXED, ids=str)
@pytest.mark.parametrize("layout", ["C", "F", "reversed"])
def test_mixed_keys(key, layout):
    x = np.arange(1.0, 13).reshape(3, 4)
    x = {"C": x, "F": np.asfortranarray(x), "reversed": x[::-1, ::-1]}[layout]
    plain = np.asarray(key, int) if isinstance(key, list) and not key else key
    agree(lambda t: t[key], lambda a: np.asarray(a[plain]), x)
    t = mg.Tensor(x, requires_grad=True)
    y = t[key]
    gy = np.arange(1.0, y.size + 1).reshape(y.shape)
    y.backward(gy)
    assert np.array_equal(t.grad, scattered(x.shape, plain, gy))


def test_tensors_are_indices_too():
    x = mg.Tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    assert x[mg.Tensor([0, 2])].data.tolist() == x.data[[0, 2]].tolist()
    assert x[:, mg.Tensor([1, 1])].shape == (3, 2)
    assert x[x > 9].data.tolist() == [10, 11]
    assert x[mg.argmax(x[:, 0])].data.tolist() == [8, 9, 10, 11]
    x[mg.Tensor([1, 1]), 0].sum().backward()
    assert x.grad[1, 0] == x.grad.sum() == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_gradient_keeps_the_dtype(dtype):
    for key in ([0, 0], ([0, 0], [1, 1]), slice(1), np.array([True, False])):
        x = mg.Tensor(np.ones((2, 2), dtype), requires_grad=True)
        x[key].sum().backward()
        assert x.grad.dtype == dtype


def test_basic_keys_give_views_also_of_one_element():
    x = mg.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    for y in (x[0], x[::-1, 1:], x[..., None], x[1, 2], x[()], x[-1, ..., 0]):
        assert np.shares_memory(y.data, x.data)
        assert not y.data.flags.writeable
    assert x[1, 2].shape == ()
    assert not np.shares_memory(x[[0]].data, x.data)


def test_array_keys_launch_a_kernel_that_can_run_again():
    x, key = np.arange(5.0), np.array([0, 0, 3])
    launched = []
    with recording(lambda *launch: launched.append(launch)):
        y = mg.Tensor(x)[key]
    ((kernel, inputs, out),) = launched
    assert out is y.data
    key[:] = [4, 1, 1]
    kernel(*inputs, out)
    assert y.data.tolist() == [4, 1, 1]


def test_a_mask_that_selects_another_number_when_run_again_is_refused():
    with pytest.raises(IndexError, match=r"getitem: the key selects \(1,\) where it selected \(2,\) before"):
        K.getitem(np.arange(3.0), np.array([True, False, False]), np.empty(2))


def test_what_was_not_taken_gets_0_also_beside_infinity():
    x = mg.Tensor([np.inf, np.nan, 1.0], requires_grad=True)
    (x[2:] * 2).sum().backward()
    assert x.grad.tolist() == [0, 0, 2]


def test_iteration():
    x = mg.Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    one, two, three = x
    assert [row.shape for row in x] == [(2,)] * 3
    (one * 1 + two * 10 + three * 100).sum().backward()
    assert x.grad.tolist() == [[1, 1], [10, 10], [100, 100]]
    with pytest.raises(TypeError, match="a tensor of no axes has no length"):
        list(mg.Tensor(1.0))


def test_an_index_array_changed_before_backward_is_an_error():
    key = np.array([0, 1])
    y = mg.Tensor([1.0, 2.0], requires_grad=True)[key]
    key[0] = 1
    with pytest.raises(RuntimeError, match="getitem: the array key .* was changed after the forward"):
        y.sum().backward()


X = mg.Tensor(np.ones((2, 3)))
BAD_KEYS = {
    r"getitem: x \(2, 3\): index 2 is out of bounds for axis 0 with size 2": lambda: X[2],
    r"getitem: x \(2, 3\): index 5 is out of bounds for axis 1 with size 3": lambda: X[:, [0, 5]],
    r"getitem: x \(2, 3\): too many indices": lambda: X[0, 0, 0],
    r"getitem: x \(2, 3\): boolean index did not match": lambda: X[np.array([True, False, True])],
    r"getitem: x \(2, 3\): shape mismatch": lambda: X[[0, 1], [0, 1, 2]],
    r"getitem: an index is float64; expected integers, booleans or slices": lambda: X[1.0],
    r"getitem: an index is float32; expected integers": lambda: X[mg.Tensor([1.0])],
    r"getitem: an index is <U1": lambda: X["a"],
    r"take_along_axis: indices \(3,\) int64: expected integers with the 2 axes of x \(2, 3\)": lambda: (
        mg.take_along_axis(X, np.array([0, 1, 2]))
    ),
    r"take_along_axis: indices \(1, 1\) float64: expected integers": lambda: mg.take_along_axis(X, [[0.5]]),
    r"take_along_axis: x \(2, 3\), indices \(2, 1\), axis -1: index 3 is out": lambda: mg.take_along_axis(X, [[0], [3]]),
    r"take_along_axis: x \(2, 3\), indices \(3, 1\), axis -1: shape mismatch": lambda: mg.take_along_axis(X, [[0]] * 3),
    r"take_along_axis: x \(2, 3\), indices \(1, 1\), axis 2: axis 2 is out": lambda: mg.take_along_axis(X, [[0]], 2),
    r"take_along_axis: axis is None; flatten": lambda: mg.take_along_axis(X, [[0]], None),
    r"embedding: indices\[1, 0\] is 2, expected 0 to 1 for weight \(2, 3\)": lambda: mg.embedding([[0], [2]], X),
    r"embedding: indices\[1\] is -1, expected 0 to 1": lambda: mg.embedding([0, -1], X),
}


@pytest.mark.parametrize("message", BAD_KEYS)
def test_bad_keys(message):
    with pytest.raises(IndexError, match=message):
        BAD_KEYS[message]()


# --- take_along_axis ----------------------------------------------------------------------------------------------


@given(st.data())
def test_take_along_axis(data):
    x = data.draw(arrays(shapes(min_dims=1, min_side=1)))
    axis = data.draw(axes(x.ndim, none=False, several=False))
    n = x.shape[axis]
    shape = [data.draw(st.sampled_from([1, size])) for size in x.shape]
    shape[axis] = data.draw(st.integers(0, 4))
    flat = data.draw(st.lists(st.integers(-n, n - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    key = np.array(flat, int).reshape(shape)
    agree(lambda t: mg.take_along_axis(t, key, axis), lambda a: np.take_along_axis(a, key, axis), x)


def test_take_along_axis_repeats_an_axis_of_size_1():
    x = np.array([[1.0, 2.0]])
    key = np.array([[0], [1], [1]])
    agree(lambda t: mg.take_along_axis(t, key, axis=1), lambda a: np.take_along_axis(a, key, axis=1), x)
    t = mg.Tensor(x, requires_grad=True)
    mg.take_along_axis(t, key, 1).backward(np.array([[1.0], [10.0], [100.0]]))
    assert t.grad.tolist() == [[1, 110]]


def test_take_along_axis_sorts_by_argsort():
    x = np.random.default_rng(0).normal(size=(3, 5))
    t = mg.Tensor(x, requires_grad=True)
    y = mg.take_along_axis(t, x.argsort(axis=1))
    assert np.array_equal(y.data, np.sort(x, axis=1))
    y.backward(np.broadcast_to(np.arange(5.0), (3, 5)))
    assert np.array_equal(t.grad, x.argsort(axis=1).argsort(axis=1))


# --- embedding ----------------------------------------------------------------------------------------------------


@given(st.data())
def test_embedding(data):
    V, D = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 3))
    w = data.draw(arrays((V, D)))
    shape = data.draw(shapes())
    flat = data.draw(st.lists(st.integers(0, V - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    dtype = data.draw(st.sampled_from([np.int64, np.int32, np.uint8, np.uint64]))
    ids = np.array(flat, dtype).reshape(shape)
    agree(lambda t: mg.embedding(ids, t), lambda a: np.asarray(a[ids]), w)


def test_embedding_adds_up_what_was_looked_up_often():
    rng = np.random.default_rng(0)
    ids, gy = rng.integers(0, 7, (50, 20)), rng.normal(size=(50, 20, 3))
    w = mg.Tensor(rng.normal(size=(9, 3)), requires_grad=True)
    mg.embedding(ids, w).backward(gy)
    expected = [gy[ids == v].sum(axis=0) for v in range(9)]
    np.testing.assert_allclose(w.grad, expected, rtol=1e-12, atol=1e-12)
    assert not w.grad[7:].any()


def test_embedding_of_float32_sums_like_the_definition():
    rng = np.random.default_rng(0)
    ids, g = rng.integers(0, 50, (40, 30)), rng.normal(size=(40, 30, 8)).astype(np.float32)
    w = mg.Tensor(np.zeros((50, 8), np.float32), requires_grad=True)
    mg.embedding(ids, w).backward(g)
    expected = np.zeros((50, 8))
    np.add.at(expected, ids, g)
    np.testing.assert_allclose(w.grad, expected, rtol=1e-5, atol=1e-5)


def test_small_index_types_reach_rows_far_down_the_table():
    w = mg.Tensor(np.arange(2560, dtype=np.float32).reshape(256, 10), requires_grad=True)
    y = mg.embedding(np.array([255, 255], np.uint8), w)
    assert np.array_equal(y.data, w.data[[255, 255]])
    y.sum().backward()
    assert (w.grad[255] == 2).all() and w.grad.sum() == 20
    w.grad = None
    w[np.array([-1, 127], np.int8)].sum().backward()
    assert w.grad.sum(axis=1).nonzero()[0].tolist() == [127, 255]


@pytest.mark.parametrize("layout", ["broadcast", "F", "reversed"])
def test_embedding_gradients_of_any_layout(layout):
    g = np.arange(12.0).reshape(4, 3)
    g = {"broadcast": np.broadcast_to(g[0], (4, 3)), "F": np.asfortranarray(g), "reversed": g[::-1, ::-1]}[layout]
    ids = np.array([9, 2, 8, 0, 7, 2, 6, 2])[1::2][::-1]  # 2 2 0 2
    out = np.full((3, 3), np.nan)
    K.embedding_vjp(g, ids, out)
    expected = np.zeros((3, 3))
    for i, row in zip(ids, g):
        expected[i] += row
    assert np.array_equal(out, expected)


def test_embedding_checks_its_range_whenever_its_kernel_runs():
    with pytest.raises(IndexError, match=r"embedding: indices\[0\] is 3, expected 0 to 2 for weight \(3, 2\)"):
        K.embedding(np.array([3]), np.ones((3, 2)), np.empty((1, 2)))


def test_embedding_refuses_other_tables_and_indices():
    with pytest.raises(TypeError, match="embedding: indices are float32; expected integers"):
        mg.embedding([0.0], X)
    with pytest.raises(TypeError, match="embedding: indices are bool; expected integers"):
        mg.embedding([True], X)
    with pytest.raises(ValueError, match=r"embedding: weight \(3,\): expected \(entries, features\)"):
        mg.embedding([0], np.ones(3))


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name):
    f, operands = CASES[name](np.random.default_rng(1))
    mg.gradcheck(f, *operands)
