"""Arithmetic and elementary functions: NumPy's values, right gradients, and the points where formulas break."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.engine import OPS
from minigrad.testing import arrays, broadcastable, shapes

from .cases.basic import CASES

inf, nan = np.inf, np.nan
# name -> its function, NumPy's, and from where to where its argument is drawn
UNARY = {
    "negative": (mg.negative, np.negative, (-2, 2)),
    "square": (mg.square, np.square, (-2, 2)),
    "exp": (mg.exp, np.exp, (-2, 2)),
    "log": (mg.log, np.log, (0.1, 2)),
    "sqrt": (mg.sqrt, np.sqrt, (0.1, 2)),
    "sin": (mg.sin, np.sin, (-2, 2)),
    "cos": (mg.cos, np.cos, (-2, 2)),
    "tan": (mg.tan, np.tan, (-1.4, 1.4)),
    "abs": (mg.abs, np.abs, (-2, 2)),
    "clip": (lambda x: mg.clip(x, -1, 0.5), lambda x: np.clip(x, -1, 0.5), (-2, 2)),
}
BINARY = {
    "add": (mg.add, np.add, operator.add, (-2, 2)),
    "subtract": (mg.subtract, np.subtract, operator.sub, (-2, 2)),
    "multiply": (mg.multiply, np.multiply, operator.mul, (-2, 2)),
    "divide": (mg.divide, np.divide, operator.truediv, (0.1, 2)),
    "power": (mg.power, np.power, operator.pow, (0.1, 2)),
    "arctan2": (mg.arctan2, np.arctan2, None, (0.1, 2)),
    "maximum": (mg.maximum, np.maximum, None, (-2, 2)),
    "minimum": (mg.minimum, np.minimum, None, (-2, 2)),
}


def gradients(f, *operands, cotangent=None, dtype=np.float64):
    """The gradients of f at operands, for a cotangent of ones or the one given."""
    leaves = [mg.Tensor(np.asarray(x, dtype), requires_grad=True) for x in operands]
    with np.errstate(all="ignore"):
        y = f(*leaves)
    y.backward(np.broadcast_to(np.asarray(1 if cotangent is None else cotangent, dtype), y.shape))
    found = [leaf.grad.tolist() for leaf in leaves]
    return found if len(found) > 1 else found[0]


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual, float), np.asarray(expected, float))


# --- against NumPy, and gradients everywhere ----------------------------------------------------------------------


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
def test_unary(name, data):
    f, g, (low, high) = UNARY[name]
    x = data.draw(arrays(min_value=low, max_value=high))
    y = f(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert np.array_equal(y.data, g(x))
    mg.gradcheck(f, x)


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_binary(name, data):
    f, g, symbol, (low, high) = BINARY[name]
    x, y = (data.draw(arrays(shape, low, high)) for shape in data.draw(broadcastable(2)))
    z = f(x, y)
    assert (z.shape, z.dtype) == (np.broadcast_shapes(x.shape, y.shape), x.dtype)
    assert np.array_equal(z.data, g(x, y))
    mg.gradcheck(f, x, y)
    if symbol is not None:
        for one, two in ((mg.Tensor(x), mg.Tensor(y)), (x, mg.Tensor(y)), (mg.Tensor(x), y)):
            assert np.array_equal(symbol(one, two).data, g(x, y))
        mg.gradcheck(lambda t: symbol(t, y), x)
        mg.gradcheck(lambda t: symbol(x, t), y)


@pytest.mark.parametrize("name", BINARY)
@given(x=arrays(shapes(max_dims=2), 0.1, 2))
def test_one_tensor_as_both_operands(name, x):
    f, g, _, _ = BINARY[name]
    assert np.array_equal(f(x, x).data, g(x, x))
    mg.gradcheck(lambda t: f(t, t), x)


@given(st.data())
def test_where(data):
    a, b, c = data.draw(broadcastable(3))
    x, y = data.draw(arrays(a)), data.draw(arrays(b))
    condition = data.draw(arrays(c)) > 0
    assert np.array_equal(mg.where(condition, x, y).data, np.where(condition, x, y))
    mg.gradcheck(lambda s, t: mg.where(condition, s, t), x, y)


@given(st.data())
def test_clip_to_bounds_that_broadcast(data):
    a, b, c = data.draw(broadcastable(3))
    x, low, width = data.draw(arrays(a)), data.draw(arrays(b)), data.draw(arrays(c, min_value=0.5))
    high = low + width
    assert np.array_equal(mg.clip(x, low, high).data, np.clip(x, low, high))
    mg.gradcheck(lambda t: mg.clip(t, low, high), x)
    mg.gradcheck(lambda t: mg.clip(t, a_max=0.25), x)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtype_stays(name, dtype):
    if name == "astype":
        return
    f, operands = CASES[name](np.random.default_rng(0))
    leaves = [mg.Tensor(x.astype(dtype), requires_grad=True) for x in operands]
    y = f(*leaves)
    y.backward(np.ones(y.shape, dtype))
    assert y.dtype == dtype
    assert all(leaf.grad.dtype == dtype for leaf in leaves)


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name):
    f, operands = CASES[name](np.random.default_rng(1))
    mg.gradcheck(f, *operands)


# --- scalars, integers, lists, arrays beside tensors --------------------------------------------------------------

SCALARS = [2, 2.5, True, np.float64(2.5), np.float32(2.5), np.float16(2.5), np.int64(2), np.uint8(2), np.bool_(True)]


@pytest.mark.parametrize("symbol", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow])
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalars_take_their_partners_dtype_on_both_sides(symbol, scalar, dtype):
    x = mg.Tensor(np.array([0.5, 2.0], dtype), requires_grad=True)
    plain, value = x.data.copy(), dtype(scalar)
    for y, z in ((symbol(x, scalar), symbol(plain, value)), (symbol(scalar, x), symbol(value, plain))):
        assert y.dtype == dtype
        assert np.array_equal(y.data, z)
        x.grad = None
        y.sum().backward()
        assert x.grad.dtype == dtype and np.isfinite(x.grad).all()
        assert x.grad.any() or (symbol is operator.pow and scalar == 1)  # 1 to any power is 1


@pytest.mark.parametrize("symbol", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow])
def test_arrays_and_lists_on_both_sides(symbol):
    x, a = mg.Tensor([0.5, 2.0]), np.array([[1.0, 3.0]], np.float32)
    for other in (a, a.tolist(), a.astype(int), a.astype(np.uint8), a[0], mg.Tensor(a)):
        plain = np.asarray(other.data if isinstance(other, mg.Tensor) else other, np.float32)
        assert type(symbol(x, other)) is type(symbol(other, x)) is mg.Tensor
        assert np.array_equal(symbol(x, other).data, symbol(x.data, plain))
        assert np.array_equal(symbol(other, x).data, symbol(plain, x.data))


def test_the_gradient_of_reflected_operators():
    x = np.array([0.5, 2.0])
    same(gradients(lambda t: 3 - t, x), [-1, -1])
    same(gradients(lambda t: np.array([1.0, 2.0]) - t, x), [-1, -1])
    same(gradients(lambda t: 1 / t, x), [-4, -0.25])
    np.testing.assert_allclose(gradients(lambda t: 2**t, x), np.log(2) * 2**x)
    np.testing.assert_allclose(gradients(lambda t: np.float64(2) ** t, x), np.log(2) * 2**x)
    same(gradients(lambda t: np.array([[1.0], [10.0]]) * t, x), [11, 11])


def test_integers_among_themselves():
    i = np.array([1, 2, 3])
    for f, g in ((mg.add, np.add), (mg.subtract, np.subtract), (mg.multiply, np.multiply), (mg.power, np.power),
                 (mg.maximum, np.maximum), (mg.minimum, np.minimum)):  # fmt: skip
        z = f(i, [3, 2, 1])
        assert z.dtype == np.int64 and not z.requires_grad
        assert z.data.tolist() == g(i, [3, 2, 1]).tolist()
    for f, g in ((mg.abs, np.abs), (mg.sign, np.sign), (mg.negative, np.negative), (mg.square, np.square)):
        assert f(-i).data.tolist() == g(-i).tolist() and f(i).dtype == np.int64
    assert mg.where([True, False, True], i, 0).dtype == np.int64


@pytest.mark.parametrize("f", [mg.divide, mg.arctan2])
def test_integers_do_not_silently_become_floats(f):
    with pytest.raises(TypeError, match=r"needs floats, got .* int64 and|needs floats, got .*int64.*convert with .astype"):
        f(np.array([1, 2]), np.array([3, 4]))


@pytest.mark.parametrize("f", [mg.exp, mg.log, mg.sqrt, mg.sin, mg.cos, mg.tan])
def test_elementary_functions_need_floats(f):
    with pytest.raises(TypeError, match=r"needs floats, got x \(2,\) int64; convert with .astype\(np.float32\)"):
        f([1, 2])


def test_integer_arrays_beside_floats_are_cast_and_get_no_gradient():
    x = mg.Tensor(np.array([0.5, 2.0], np.float32), requires_grad=True)
    counts = mg.Tensor([3, 4])
    y = x * counts
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.tolist() == [3, 4] and counts.grad is None
    same(gradients(lambda t: t ** np.array([2, 3]), [3.0, 2.0]), [6, 12])


def test_float_dtypes_do_not_mix():
    with pytest.raises(TypeError, match="multiply: operand x is float32 and operand y is float64; floats are never promoted"):
        mg.Tensor([1.0]) * np.array([1.0])


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match=r"add: x \(2,\) and y \(3,\): shapes do not broadcast; aligned at the last axis"):
        mg.add([1.0, 2.0], [1.0, 2.0, 3.0])


# --- a zero cotangent times anything is 0 -------------------------------------------------------------------------

SINGULAR = {
    "sqrt at 0": (mg.sqrt, (0.0,)),
    "sqrt below 0": (mg.sqrt, (-1.0,)),
    "log at 0": (mg.log, (0.0,)),
    "exp at infinity": (mg.exp, (1e9,)),
    "tan of infinity": (mg.tan, (inf,)),
    "sin of infinity": (mg.sin, (inf,)),
    "square of infinity": (mg.square, (inf,)),
    "0 * inf": (mg.multiply, (0.0, inf)),
    "nan * inf": (mg.multiply, (nan, inf)),
    "1 / 0": (mg.divide, (1.0, 0.0)),
    "0 / 0": (mg.divide, (0.0, 0.0)),
    "inf / inf": (mg.divide, (inf, inf)),
    "0 ** -1": (mg.power, (0.0, -1.0)),
    "0 ** 0.5": (mg.power, (0.0, 0.5)),
    "-1 ** 0.5": (mg.power, (-1.0, 0.5)),
    "inf ** 2": (mg.power, (inf, 2.0)),
    "arctan2 at 0": (mg.arctan2, (0.0, 0.0)),
    "arctan2 of nan": (mg.arctan2, (nan, 1.0)),
    "abs of nan": (mg.abs, (nan,)),
}


@pytest.mark.parametrize("case", SINGULAR)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_zero_cotangent_gives_gradient_0(case, dtype):
    f, values = SINGULAR[case]
    with np.errstate(over="ignore"):
        operands = [np.array([[v, 1], [v, 1]]).astype(dtype) for v in values]
    cotangent = np.array([[0, 1], [0, 1]])
    grads = gradients(f, *operands, cotangent=cotangent, dtype=dtype)
    for g in np.reshape(grads, (-1, 2, 2)):
        assert (g[:, 0] == 0).all()
        assert np.isfinite(g).all() and (len(values) == 2 or g[:, 1].all())


def test_a_zero_cotangent_gives_gradient_0_also_where_operands_broadcast():
    gx, gy = gradients(mg.divide, [[1.0], [0.0]], [0.0, 2.0], cotangent=[[0, 3], [0, 5]])
    same(gx, [[1.5], [2.5]])
    same(gy, [0, -0.75])


def test_the_branch_not_taken_gets_0_although_its_slope_is_infinite():
    x = np.array([0.0, 4.0])
    same(gradients(lambda t: mg.where(x > 0, mg.sqrt(t), 0.0), x), [0, 0.25])
    same(gradients(lambda t: mg.where(x > 0, t, mg.log(t)), x, cotangent=[0, 1]), [0, 1])
    same(gradients(lambda t: mg.where(x > 0, 1 / t, t), x), [1, -1 / 16])
    same(gradients(lambda s, t: mg.where(x > 0, s, t), x, x, cotangent=[inf, nan]), [[0, nan], [inf, 0]])


# --- powers -------------------------------------------------------------------------------------------------------


def test_powers_of_zero():
    same(gradients(mg.power, 0.0, 0.0), [0, 0])
    same(gradients(mg.power, 0.0, 1.0), [1, 0])
    same(gradients(mg.power, 0.0, 2.0), [0, 0])
    same(gradients(mg.power, 0.0, 0.5), [inf, 0])
    assert mg.power([0.0], 0).data.tolist() == [1]
    same(gradients(lambda t: t**0, [0.0, inf, nan, -3.0]), [0, 0, 0, 0])
    same(gradients(lambda t: t**1, [0.0, -3.0]), [1, 1])
    same(gradients(lambda t: 0.0**t, [0.0, 1.0, 3.0]), [0, 0, 0])
    same(gradients(lambda t: 1.0**t, [0.0, inf, -2.0]), [0, 0, 0])


def test_powers_of_negative_numbers():
    same(gradients(lambda t: t**3, [-2.0]), [12])
    same(gradients(lambda t: t**-1, [-2.0]), [-0.25])
    mg.gradcheck(lambda t: t**3 + t**2 + t**-2, np.array([-1.5, 0.5]))


def test_powers_that_overflow_and_underflow():
    same(gradients(lambda t: 2.0**t, [-1e6]), [0])
    same(gradients(lambda t: t**2, [1e200], cotangent=[0]), [0])
    same(gradients(mg.power, 1e-200, 2.0), [2e-200, 0])


# --- kinks, ties, bounds ------------------------------------------------------------------------------------------


def test_abs_and_sign_at_0():
    same(gradients(mg.abs, [-2.0, 0.0, -0.0, 3.0, -inf, inf]), [-1, 0, 0, 1, -1, 1])
    same(gradients(mg.sign, [-2.0, 0.0, 3.0, inf]), [0, 0, 0, 0])
    assert mg.sign([-2.0, 0.0, 3.0]).data.tolist() == [-1, 0, 1]
    assert np.isnan(gradients(mg.abs, nan))


@pytest.mark.parametrize("f, other", [(mg.maximum, mg.minimum), (mg.minimum, mg.maximum)])
def test_ties_share_equally(f, other):
    x = np.array([1.0, 2.0, 3.0, 0.0, inf, -inf, -inf])
    y = np.array([3.0, 2.0, 1.0, -0.0, inf, inf, -inf])
    cotangent = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    gx, gy = gradients(f, x, y, cotangent=cotangent)
    if f is mg.minimum:
        gx, gy = gy, gx
    same(gx, [0, 10, 30, 20, 25, 0, 35])
    same(gy, [10, 10, 0, 20, 25, 60, 35])


@pytest.mark.parametrize("f", [mg.maximum, mg.minimum])
def test_nan_propagates_and_the_shares_still_sum_to_1(f):
    x, y = [nan, 1.0, nan], [1.0, nan, nan]
    assert np.isnan(f(x, y).data).all()
    same(gradients(f, x, y), [[0.5] * 3] * 2)


def test_an_infinite_cotangent_goes_to_the_winner_only():
    same(gradients(mg.maximum, [2.0, 1.0], [1.0, 2.0], cotangent=[inf, inf]), [[inf, 0], [0, inf]])


def test_clip_at_and_beyond_its_bounds():
    x = [-2.0, -1.0, 0.0, 1.0, 2.0, -inf, inf]
    same(gradients(lambda t: mg.clip(t, -1, 1), x), [0, 1, 1, 1, 0, 0, 0])
    same(gradients(lambda t: mg.clip(t, -1), x), [0, 1, 1, 1, 1, 0, 1])
    same(gradients(lambda t: t.clip(a_max=1), x), [1, 1, 1, 1, 0, 1, 0])
    same(gradients(lambda t: mg.clip(t), x), [1] * 7)
    same(gradients(lambda t: mg.clip(t, 1, 1), x), [0, 0, 0, 1, 0, 0, 0])
    same(gradients(lambda t: mg.clip(t, -1, 1), [2.0, 0.5], cotangent=[inf, 3]), [0, 3])
    assert np.isnan(mg.clip([nan], 0, 1).data).all()


def test_clip_of_integers():
    for low, high in ((0, 2), (None, 2), (2, None), (None, None), (np.array([0, 1, 5]), 9)):
        y = mg.clip([-5, 2, 7], low, high)
        assert y.dtype == np.int64
        assert y.data.tolist() == np.clip(np.array([-5, 2, 7]), low, high).tolist()
    with pytest.raises(TypeError, match=r"clip: the bound 0.5 of x \(2,\) int64 is no integer; convert x with .astype"):
        mg.clip([1, 2], 0.5)


def test_clip_refuses_swapped_bounds_and_bounds_that_want_gradients():
    with pytest.raises(ValueError, match="clip: a_min 2 exceeds a_max 1; swap them"):
        mg.clip([1.0], 2, 1)
    with pytest.raises(TypeError, match=r"clip: a tensor \(1,\) requires gradients, but this argument takes none"):
        mg.clip([1.0], mg.Tensor([0.0], requires_grad=True))


def test_arctan2_in_every_direction():
    same(gradients(mg.arctan2, 0.0, 0.0), [0, 0])
    same(gradients(mg.arctan2, 1.0, 0.0), [0, -1])
    same(gradients(mg.arctan2, 0.0, -2.0), [-0.5, 0])
    for y, x in ((inf, 1.0), (1.0, inf), (-inf, inf), (0.0, -inf)):
        same(gradients(mg.arctan2, y, x), [0, 0])
    for far in (1e-200, 1e200):  # x² + y² would be 0, or infinite
        np.testing.assert_allclose(gradients(mg.arctan2, 3 * far, 4 * far), [0.16 / far, -0.12 / far])
    y, x = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    assert np.array_equal(mg.arctan2(y, x).data, np.arctan2(y, x))
    mg.gradcheck(mg.arctan2, y, x)


def test_slopes_at_the_edge_of_the_domain():
    same(gradients(mg.sqrt, [0.0, inf]), [inf, 0])
    same(gradients(mg.log, [0.0, inf]), [inf, 0])
    same(gradients(mg.exp, [-inf, inf]), [0, inf])
    same(gradients(mg.divide, 0.0, inf), [0, 0])
    same(gradients(lambda t: t * inf, [1.0]), [inf])


# --- where, astype ------------------------------------------------------------------------------------------------


def test_where_takes_masks_only():
    with pytest.raises(TypeError, match="where: the condition is int64, expected bool; compare it, e.g. condition != 0"):
        mg.where([1, 0], [1.0, 2.0], 0.0)
    x = mg.Tensor([-1.0, 2.0], requires_grad=True)
    y = mg.where(x > 0, x, -x)
    assert y.data.tolist() == [1, 2]
    y.sum().backward()
    assert x.grad.tolist() == [-1, 1]
    assert mg.where(True, 1.0, 2.0).item() == 1


def test_where_notices_a_changed_mask():
    mask = np.array([True, False])
    y = mg.where(mask, mg.Tensor([1.0, 2.0], requires_grad=True), 0.0)
    mask[:] = False
    with pytest.raises(RuntimeError, match="where: the array condition .* was changed after the forward pass"):
        y.sum().backward()


def test_astype():
    x = mg.Tensor([1.5, 2.5], requires_grad=True)
    y = x.astype(np.float64)
    assert y.dtype == np.float64
    (y * np.array([2.0, 3.0])).sum().backward()
    assert x.grad.dtype == np.float32 and x.grad.tolist() == [2, 3]
    assert not np.shares_memory(x.astype(np.float32).data, x.data)
    assert x.astype(int).dtype == np.int64 and not x.astype(int).requires_grad
    assert mg.Tensor([1, 2]).astype("float16").dtype == np.float16
    y = x.astype(np.float64)
    x.data[0] = 9  # astype needs no values for its gradient
    y.sum().backward()
    assert x.grad.tolist() == [3, 4]


# --- layouts, memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if name != "astype"])
def test_empty_arrays(name):
    count = len(CASES[name](np.random.default_rng(0))[1])
    f = CASES[name](np.random.default_rng(0))[0] if name in ("clip", "where") else OPS[name]
    shape = (0, 3, 4) if name == "where" else (0, 3)
    leaves = [mg.Tensor(np.ones(shape, np.float32), requires_grad=True) for _ in range(count)]
    y = f(*leaves)
    assert y.shape == shape
    y.sum().backward()
    assert all(leaf.grad.shape == shape for leaf in leaves)


@given(st.data())
def test_neither_operands_nor_cotangents_are_written_to(data):
    name = data.draw(st.sampled_from(sorted(BINARY)))
    x, y = data.draw(arrays((2, 3), 0.1)), data.draw(arrays((3,), 0.1))
    x.setflags(write=False)
    y.setflags(write=False)
    a, b = mg.Tensor(x, requires_grad=True), mg.Tensor(y, requires_grad=True)
    gz = np.broadcast_to(np.float64(2), (2, 3))  # read-only, all elements at one place
    BINARY[name][0](a, b).backward(gz)
    assert a.grad.flags.writeable and b.grad.flags.writeable
    assert not np.shares_memory(a.grad, b.grad)


def test_kinks_of_several_elements_at_once_are_no_error_of_the_gradient():
    for seed in range(8):  # along some directions no one-sided derivative bounds the sum of the subgradients
        mg.gradcheck(lambda t: mg.clip(t, np.zeros(4), np.full(4, 0.5)), np.zeros(4), seed=seed)
