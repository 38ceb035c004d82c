"""Losses: gradients, values beside the definition, reductions that add up over ranks, and input that must be refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.testing import arrays, shapes

REDUCTIONS = ("mean", "sum", "none", "sum_count")


def plain(loss, reduction):
    """The tensor of a loss, which "sum_count" returns in a pair."""
    return loss[0] if reduction == "sum_count" else loss


def gradient(f, *arrays):
    leaves = [mg.Tensor(np.array(a), requires_grad=True) for a in arrays]
    f(*leaves).backward()
    return [leaf.grad for leaf in leaves]


# --- cross entropy ------------------------------------------------------------------------------------------------


@st.composite
def classified(draw):
    """Logits, targets (some of them -1, to be ignored), class weights or None, the axis of the classes."""
    rows = draw(shapes(0, 2))
    classes = draw(st.integers(1, 4))
    axis = draw(st.integers(0, len(rows)))
    logits = draw(arrays((*rows[:axis], classes, *rows[axis:])))
    count = math.prod(rows)
    targets = draw(st.lists(st.integers(-1, classes - 1), min_size=count, max_size=count))
    weight = draw(st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=classes, max_size=classes))
    return logits, np.array(targets, int).reshape(rows), weight, axis - draw(st.sampled_from([0, logits.ndim]))


def by_definition(logits, targets, weight, axis, smoothing):
    """Losses and the weights that count, one row after the other."""
    rows = np.moveaxis(logits, axis, -1)
    w = np.ones(rows.shape[-1]) if weight is None else np.array(weight)
    losses, used = np.zeros(targets.shape), np.zeros(targets.shape)
    for at in np.ndindex(targets.shape):
        if targets[at] >= 0:
            q = np.full(len(w), smoothing / len(w))
            q[targets[at]] += 1 - smoothing
            p = np.exp(rows[at]) / np.exp(rows[at]).sum()
            losses[at], used[at] = -np.sum(w * q * np.log(p)), w[targets[at]]
    return losses, used.sum()


@given(classified(), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from(REDUCTIONS))
def test_cross_entropy(case, smoothing, reduction):
    logits, targets, weight, axis = case

    def f(z):
        return mg.cross_entropy(
            z, targets, weight=weight, ignore_index=-1, label_smoothing=smoothing, axis=axis, reduction=reduction
        )

    mg.gradcheck(lambda z: plain(f(z), reduction), logits)
    losses, count = by_definition(logits, targets, weight, axis, smoothing)
    y = f(logits)
    if reduction == "sum_count":
        assert type(y[1]) is float and y[1] == count
    total = losses.sum()
    expected = {"none": losses, "mean": total / count if count else 0.0}.get(reduction, total)
    np.testing.assert_allclose(plain(y, reduction).data, expected, rtol=1e-12, atol=1e-14)


def test_all_targets_ignored_gives_0_and_gradient_0():

    def f(z):
        return mg.cross_entropy(z, [7, 7], ignore_index=7)

    z = np.array([[np.nan, 0.0], [np.inf, -np.inf]])
    assert f(z).item() == 0
    assert not gradient(f, z)[0].any()


def test_ignored_rows_may_hold_anything():
    z = np.array([[0.0, 0.0], [np.nan, np.inf]])
    (g,) = gradient(lambda z: mg.cross_entropy(z, [1, -1], ignore_index=-1), z)
    assert g.tolist() == [[0.5, -0.5], [0, 0]]
    (g,) = gradient(lambda z: mg.cross_entropy(z, [1, 0], weight=[0.0, 2.0]), z)
    assert g.tolist() == [[0.5, -0.5], [0, 0]]


def test_weights_are_divided_by_the_sum_of_those_used():
    loss = mg.cross_entropy(np.zeros((3, 2)), [0, 1, 1], weight=[1.0, 3.0])
    assert loss.item() == pytest.approx(math.log(2))
    z = np.log(np.array([[0.25, 0.75], [0.5, 0.5]]))
    expected = (1 * -math.log(0.25) + 3 * -math.log(0.5)) / 4
    assert mg.cross_entropy(z, [0, 1], weight=[1, 3]).item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_extreme_logits(dtype):
    big = np.finfo(dtype).max
    z = np.array([[big, -big, 0], [0, -np.inf, -np.inf], [0, -np.inf, 0]], dtype)
    losses = mg.cross_entropy(z, [0, 0, 2], reduction="none")
    np.testing.assert_allclose(losses.data, [0, 0, math.log(2)], rtol=1e-3)
    (g,) = gradient(lambda z: mg.cross_entropy(z, [0, 0, 2], reduction="sum"), z)
    assert losses.dtype == g.dtype == dtype
    assert g.tolist() == [[0, 0, 0], [0, 0, 0], [0.5, 0, -0.5]]
    assert mg.cross_entropy(z[1:2], [1]).item() == np.inf


def test_an_empty_batch():
    z = mg.Tensor(np.zeros((0, 3), np.float32), requires_grad=True)
    loss = mg.cross_entropy(z, np.zeros(0, int))
    loss.backward()
    assert loss.item() == 0 and z.grad.shape == (0, 3)
    total, count = mg.cross_entropy(z, np.zeros(0, int), reduction="sum_count")
    assert (total.item(), count) == (0, 0)


@given(st.integers(0, 9))
def test_sums_and_counts_of_parts_give_the_mean_of_the_whole(cut):
    rng = np.random.default_rng(cut)
    z, t = rng.normal(size=(9, 4)), rng.integers(-1, 4, 9)
    settings = {"weight": [1, 2, 3, 4], "ignore_index": -1, "label_smoothing": 0.1}
    parts = [mg.cross_entropy(z[s], t[s], **settings, reduction="sum_count") for s in (slice(cut), slice(cut, None))]
    mean = sum(total.item() for total, _ in parts) / sum(count for _, count in parts)
    assert mean == pytest.approx(mg.cross_entropy(z, t, **settings).item(), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda z: mg.cross_entropy(z, [0, 3]), IndexError, r"targets\[1\] is 3, expected a class from 0 to 2"),
        (lambda z: mg.cross_entropy(z, [0, -1]), IndexError, r"targets\[1\] is -1, .* pass ignore_index if it marks"),
        (lambda z: mg.cross_entropy(z, [0, 3], ignore_index=-1), IndexError, r"targets\[1\] is 3"),
        (lambda z: mg.cross_entropy(z, [[0], [1]]), ValueError, r"need targets \(2,\), got \(2, 1\)"),
        (lambda z: mg.cross_entropy(z, np.eye(2, 3, dtype=int)), ValueError, "class numbers, not one-hot"),
        (lambda z: mg.cross_entropy(z, [0.0, 1.0]), TypeError, "targets are float32; expected integers"),
        (lambda z: mg.cross_entropy(z, [0, 1], weight=[1, 2]), ValueError, r"weight \(2,\): expected 3 numbers"),
        (lambda z: mg.cross_entropy(z, [0, 1], weight=[1, -1, 1]), ValueError, ">= 0, one for each class"),
        (lambda z: mg.cross_entropy(z, [0, 1], weight=[1, np.nan, 1]), ValueError, ">= 0, one for each class"),
        (lambda z: mg.cross_entropy(z, [0, 1], label_smoothing=1.5), ValueError, "label_smoothing is 1.5; .*0 to 1"),
        (lambda z: mg.cross_entropy(z, [0, 1], reduction="max"), ValueError, "reduction 'max'; expected 'mean'"),
        (lambda z: mg.cross_entropy(z, [0, 1], axis=2), ValueError, r"logits \(2, 3\) have no axis 2"),
        (lambda z: mg.cross_entropy(z.astype(int), [0, 1]), TypeError, "cross_entropy: needs floats"),
        (
            lambda z: mg.cross_entropy(z, [0, 1], weight=mg.Tensor([1.0, 1.0, 1.0], requires_grad=True)),
            TypeError,
            r"class weights require gradients, but have none; use .detach\(\)",
        ),
    ],
)
def test_bad_classes(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros((2, 3)))


# --- binary cross entropy -----------------------------------------------------------------------------------------


@st.composite
def paired(draw, low=-2.0, high=2.0):
    shape = draw(shapes())
    return draw(arrays(shape)), draw(arrays(shape, min_value=low, max_value=high))


@given(paired(0.0, 1.0), st.sampled_from(REDUCTIONS))
def test_binary_cross_entropy(case, reduction):
    z, t = case
    p = 1 / (1 + np.exp(-z))
    check_pairwise(
        lambda z: mg.binary_cross_entropy_with_logits(z, t, reduction=reduction),
        (z,), -t * np.log(p) - (1 - t) * np.log(1 - p), reduction,
    )  # fmt: skip


def check_pairwise(f, arguments, losses, reduction):
    mg.gradcheck(lambda *a: plain(f(*a), reduction), *arguments)
    y = f(*arguments)
    if reduction == "sum_count":
        assert type(y[1]) is float and y[1] == losses.size
    expected = {"none": losses, "mean": losses.sum() / max(losses.size, 1)}.get(reduction, losses.sum())
    np.testing.assert_allclose(plain(y, reduction).data, expected, rtol=1e-12, atol=1e-14)


def test_binary_cross_entropy_also_has_a_gradient_for_soft_targets():
    rng = np.random.default_rng(0)
    mg.gradcheck(mg.binary_cross_entropy_with_logits, rng.normal(size=(2, 3)), rng.uniform(0.2, 0.8, (2, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_binary_cross_entropy_of_extreme_logits(dtype):
    big = np.finfo(dtype).max
    z = np.array([np.inf, big, -np.inf, -big, 0, np.inf, -np.inf, big], dtype)
    t = np.array([1, 1, 0, 0, 1, 0, 1, 0], dtype)
    losses = mg.binary_cross_entropy_with_logits(z, t, reduction="none")
    assert losses.dtype == dtype
    expected = [0, 0, 0, 0, math.log(2), np.inf, np.inf, big]
    np.testing.assert_allclose(losses.data, np.array(expected, dtype), rtol=1e-3)
    (g,) = gradient(lambda z: mg.binary_cross_entropy_with_logits(z, t, reduction="sum"), z)
    assert g.tolist() == [0, 0, 0, 0, -0.5, 1, -1, 1]


@pytest.mark.parametrize("target", [-0.1, 1.1, np.nan])
def test_targets_beyond_0_and_1_are_refused(target):
    with pytest.raises(ValueError, match="targets range from .*; expected probabilities from 0 to 1"):
        mg.binary_cross_entropy_with_logits([0.0], [target])


# --- numbers ------------------------------------------------------------------------------------------------------


@given(paired(), st.sampled_from(REDUCTIONS))
def test_mse(case, reduction):
    x, y = case
    check_pairwise(lambda x, y: mg.mse(x, y, reduction=reduction), case, (x - y) ** 2, reduction)


@given(paired(), st.sampled_from(REDUCTIONS))
def test_l1(case, reduction):
    x, y = case
    check_pairwise(lambda x, y: mg.l1(x, y, reduction=reduction), case, np.abs(x - y), reduction)


@given(paired(), st.sampled_from(REDUCTIONS), st.sampled_from([0.25, 1.0, 3.0]))
def test_huber(case, reduction, delta):
    x, y = case
    d = np.abs(x - y)
    losses = np.where(d <= delta, d * d / 2, delta * (d - delta / 2))
    check_pairwise(lambda x, y: mg.huber(x, y, delta=delta, reduction=reduction), case, losses, reduction)


def test_l1_has_slope_0_where_equal():
    gx, gy = gradient(lambda x, y: mg.l1(x, y, reduction="sum"), [1.0, 2.0, 3.0], [1.0, 5.0, 0.0])
    assert gx.tolist() == [0, -1, 1] and gy.tolist() == [0, 1, -1]


def test_huber_meets_at_delta():
    x = np.array([1.0, -1.0])
    assert mg.huber(x, np.zeros(2), reduction="none").data.tolist() == [0.5, 0.5]
    assert gradient(lambda x: mg.huber(x, np.zeros(2), reduction="sum"), x)[0].tolist() == [1, -1]


LOSSES = [mg.mse, mg.l1, mg.huber, mg.binary_cross_entropy_with_logits]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_column_against_a_row_is_an_error(loss):
    with pytest.raises(ValueError, match=r"\(4, 1\) and .* \(4,\) must have one shape; reshape one of them"):
        loss(np.zeros((4, 1)), np.zeros(4))
    with pytest.raises(ValueError, match="must have one shape"):
        loss(np.zeros(4), 0.5)


@pytest.mark.parametrize("loss", LOSSES)
def test_settings_and_dtypes(loss):
    with pytest.raises(ValueError, match="reduction 'avg'; expected 'mean', 'sum', 'none' or 'sum_count'"):
        loss([0.0], [0.0], reduction="avg")
    with pytest.raises(TypeError, match="needs floats"):
        loss([0, 1], [1, 0])
    x = mg.Tensor(np.zeros(3, np.float32), requires_grad=True)
    y = loss(x, [1, 0, 1])
    y.backward()
    assert y.dtype == x.grad.dtype == np.float32
    empty = mg.Tensor(np.zeros((0, 2)), requires_grad=True)
    y = loss(empty, np.zeros((0, 2)))
    y.backward()
    assert y.item() == 0 and empty.grad.shape == (0, 2)


def test_huber_refuses_a_delta_that_is_not_positive():
    with pytest.raises(ValueError, match="huber: delta is 0; expected a positive number"):
        mg.huber([1.0], [0.0], delta=0)
