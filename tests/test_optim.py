"""Optimizers: golden values by hand, a plain loop per parameter, gradients that are None, ties, resuming, schedules."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.kernels import recording

MAKE = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "lars": lambda p: optim.LARS(p, lr=0.1, momentum=0.9, weight_decay=0.01, trust=0.02),
    "lamb": lambda p: optim.LAMB(p, lr=0.01, weight_decay=0.1),
}


def parameters(*values, dtype=np.float64):
    return [mg.Tensor(np.array(v, dtype), requires_grad=True, name=f"p{i}") for i, v in enumerate(values)]


def golden(name, w, gradients):
    """The papers' equations, for one parameter w (a vector), step by step."""
    v = m = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        if name == "sgd":
            w = w - 0.1 * g
        elif name == "sgd decay":
            w = w - 0.1 * (g + 0.01 * w)
        elif name == "momentum":
            v = 0.9 * v + g + 0.01 * w
            w = w - 0.1 * v
        elif name == "nesterov":
            v = 0.9 * v + g
            w = w - 0.1 * (g + 0.9 * v)
        elif name == "lars":
            a, b = np.linalg.norm(w), np.linalg.norm(g)
            ratio = 0.02 * a / (b + 0.01 * a) if a > 0 and b > 0 else 1
            v = 0.9 * v + 0.1 * ratio * (g + 0.01 * w)
            w = w - v
        else:
            g = g + 0.1 * w if name == "adam" else g
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            eps = 1e-6 if name == "lamb" else 1e-8
            u = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + eps)
            if name == "adam":
                w = w - 0.01 * u
            elif name == "adamw":
                w = w - 0.01 * u - 0.01 * 0.1 * w
            else:
                u = u + 0.1 * w
                a, b = np.linalg.norm(w), np.linalg.norm(u)
                w = w - 0.01 * (a / b if a > 0 and b > 0 else 1) * u
    return w


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_equals_the_equations_for_every_parameter(name, dtype, rtol):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=3), np.zeros(2), rng.normal(size=20), np.array([2.0])]
    gradients = [[rng.normal(size=v.shape) for v in values] for _ in range(4)]
    gradients[2][3] = np.zeros(1)
    ps = parameters(*values, dtype=dtype)
    optimizer = MAKE[name](ps)
    for step in gradients:
        optimizer.zero_grad()
        for p, g in zip(ps, step):
            p.grad = g.astype(dtype)
        optimizer.step()
    assert optimizer.steps == 4
    for i, p in enumerate(ps):
        np.testing.assert_allclose(p.data, golden(name, values[i], [g[i] for g in gradients]), rtol=rtol, atol=rtol)
        assert p.dtype == dtype


A, B = 1 / 3 / (1 + 3**-0.5), 1 / 7 / (1 + 7**-0.5)
BY_HAND = {
    "sgd": (lambda p: optim.SGD(p, 0.1), 1.0, (1, 2, 3), (0.9, 0.7, 0.4)),
    # 1 - 0.1 (1 + 0.5), 0.85 - 0.1 (2 + 0.425), 0.6075 - 0.1 (3 + 0.30375)
    "sgd decay": (lambda p: optim.SGD(p, 0.1, weight_decay=0.5), 1.0, (1, 2, 3), (0.85, 0.6075, 0.277125)),
    # v = 1, 2.5, 4.25
    "momentum": (lambda p: optim.SGD(p, 0.1, momentum=0.5), 1.0, (1, 2, 3), (0.9, 0.65, 0.225)),
    # g + v/2 = 1.5, 3.25, 5.125
    "nesterov": (lambda p: optim.SGD(p, 0.1, momentum=0.5, nesterov=True), 1.0, (1, 2, 3), (0.85, 0.525, 0.0125)),
    # m = v = 1/2, 1/4, 1/8, corrected 1, 1/3, 1/7; eps after the correction: 1/(1 + 1), A = 1/3 / (√1/3 + 1), B likewise
    "adam": (lambda p: optim.Adam(p, 0.1, (0.5, 0.5), 1.0), 1.0, (1, 0, 0), (0.95, 0.95 - 0.1 * A, 0.95 - 0.1 * (A + B))),
    # the gradient with decay, 1 + 1, then 1.05 + 0.95, 1.1 + 0.9, is always 2: the direction is 2/(2 + 2)
    "adam decay": (lambda p: optim.Adam(p, 0.1, eps=2.0, weight_decay=1.0), 1.0, (1, 1.05, 1.1), (0.95, 0.9, 0.85)),
    # w (1 - 0.1) - 0.1 · 2/(2 + 2)
    "adamw": (lambda p: optim.AdamW(p, 0.1, eps=2.0, weight_decay=1.0), 1.0, (2, 2, 2), (0.85, 0.715, 0.5935)),
    # v = v/2 + 0.1 · 0.5 w, whatever the size of the gradient: 0.1, 0.145, 0.16025
    "lars": (lambda p: optim.LARS(p, 0.1, momentum=0.5, trust=0.5), 2.0, (1, 10, 100), (1.9, 1.755, 1.59475)),
    # a tenth of w each time, whatever the size of the gradient
    "lamb": (lambda p: optim.LAMB(p, 0.1, weight_decay=0.0), 2.0, (1, 10, 100), (1.8, 1.62, 1.458)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_three_steps_by_hand(name):
    make, start, gradients, expected = BY_HAND[name]
    (p,) = parameters([start])
    optimizer, seen = make([p]), []
    for g in gradients:
        p.grad = np.array([float(g)])
        optimizer.step()
        seen.append(p.data.item())
    np.testing.assert_allclose(seen, expected, rtol=1e-12)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_whole_model_is_updated_by_one_launch(make):
    ps = parameters([1.0], [2.0, 3.0], [4.0])
    optimizer, names = make(ps, lr=0.1), []
    for p in ps:
        p.grad = np.ones(p.shape)
    with recording(lambda kernel, inputs, out: names.append(kernel.__name__)):
        optimizer.step()
    assert names == ["_evaluate", "advance", "sgd" if make is optim.SGD else "adam"]


def test_sgd_by_hand():
    """v = g, then v = 0.5 v + g: from 1 with gradients 1 and 2 and rate 0.1 to 1 - 0.1 - 0.25."""
    (p,) = parameters([1.0])
    sgd = optim.SGD([p], lr=0.1, momentum=0.5)
    for g in (1.0, 2.0):
        p.grad = np.array([g])
        sgd.step()
    np.testing.assert_allclose(p.data, [0.65])


def test_adams_first_step_is_the_rate():
    """Kingma and Ba 2014, section 2.1: bias correction makes the first step η g/(|g| + ε)."""
    (p,) = parameters([1.0, -1.0])
    adam = optim.Adam([p], lr=0.01)
    p.grad = np.array([1e-3, -50.0])
    adam.step()
    np.testing.assert_allclose(p.data, [0.99, -0.99], rtol=1e-5)


@pytest.mark.parametrize("name", MAKE)
def test_none_leaves_a_parameter_and_its_state_alone_but_zero_does_not(name):
    a, b, c = parameters([1.0, 2.0], [3.0], [4.0])
    optimizer = MAKE[name]([a, b, c])
    for p in (a, b, c):
        p.grad = np.ones(p.shape)
    optimizer.step()
    before, state = b.data.copy(), {k: v.copy() for k, v in optimizer.state.items()}
    optimizer.zero_grad()
    a.grad, c.grad = np.ones(2), np.zeros(1)
    was = c.data.copy()
    optimizer.step()
    np.testing.assert_array_equal(b.data, before)
    part = optimizer.block.slices[1]
    for k, v in state.items():
        np.testing.assert_array_equal(optimizer.state[k][part], v[part])
    if name != "sgd":
        assert c.data != was  # momentum, or decay, goes on
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="no parameter has a gradient; call loss.backward"):
        optimizer.step()


def test_tied_parameters_are_stepped_once():
    (p,) = parameters([1.0])
    sgd = optim.SGD([p, p], lr=0.5)
    p.grad = np.array([1.0])
    sgd.step()
    assert p.data.tolist() == [0.5]


@pytest.mark.parametrize("name", MAKE)
def test_resuming_is_bitwise(name):
    def run(optimizer, p, first, last):
        for t in range(first, last):
            p.grad = np.sin(np.arange(5.0) + t)
            optimizer.step()

    (p,) = parameters(np.arange(5.0))
    straight = MAKE[name]([p])
    run(straight, p, 0, 6)
    (q,) = parameters(np.arange(5.0))
    half = MAKE[name]([q])
    run(half, q, 0, 3)
    state = half.state_dict()
    (r,) = parameters(q.data)
    again = MAKE[name]([r])
    again.load_state_dict(state)
    run(again, r, 3, 6)
    np.testing.assert_array_equal(r.data, p.data)
    with pytest.raises(ValueError, match="load_state_dict: .* expects"):
        again.load_state_dict({"steps": np.zeros(()), "other": np.zeros(3)})


def test_an_older_optimizer_of_moved_parameters_refuses():
    a, b = parameters([1.0], [2.0])
    old = optim.SGD([a, b], lr=0.1)
    optim.SGD([b], lr=0.1)
    a.grad = b.grad = None
    with pytest.raises(RuntimeError, match="out of date: .* make a new optimizer"):
        old.zero_grad()


# --- schedules and clipping ---------------------------------------------------------------------------------------


def test_schedules():
    assert [optim.constant(0.5)(t) for t in (0, 10)] == [0.5, 0.5]
    assert [optim.step_decay(1.0, 3, 0.1)(t) for t in (0, 2, 3, 6)] == pytest.approx([1, 1, 0.1, 0.01])
    assert [optim.cosine(1.0, 8, 0.2)(t) for t in (0, 4, 8, 99)] == pytest.approx([1, 0.6, 0.2, 0.2])
    warm = optim.warm_up(optim.step_decay(1.0, 4, 0.5), 4)
    assert [warm(t) for t in (0, 1, 3, 4)] == [0.25, 0.5, 1.0, 0.5]
    assert optim.linear_scaling(0.1, 1024, 256) == 0.4


def test_warm_up_around_its_end_and_a_cosine_at_its_end():
    warm = optim.warm_up(optim.cosine(0.8, 10, 0.1), 5)
    cosine = optim.cosine(0.8, 10, 0.1)
    assert warm(0) == pytest.approx(0.8 / 5)  # 1/W of the rate, not 0
    assert [warm(t) for t in (4, 5)] == [cosine(4), cosine(5)]  # W - 1 and W: all of it
    assert cosine(5) == pytest.approx(0.45) and cosine(9) > 0.1 and warm(10) == warm(11) == pytest.approx(0.1)


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf])
def test_a_schedule_that_gives_no_rate_is_refused_before_anything_changes(rate):
    (p,) = parameters([1.0])
    sgd = optim.SGD([p], lr=lambda step: rate if step else 0.1)
    for steps in (1, 1):
        p.grad = np.ones(1)
        if sgd.steps:
            with pytest.raises(ValueError, match=f"the schedule gives the rate {rate} at step 1"):
                sgd.step()
        else:
            sgd.step()
        assert (sgd.steps, p.data.tolist()) == (steps, [0.9])


def test_the_rate_of_each_update_is_the_schedules():
    (p,) = parameters([0.0])
    sgd = optim.SGD([p], lr=optim.warm_up(1.0, 2))
    seen = []
    for _ in range(3):
        p.grad = np.ones(1)
        seen.append(sgd.rate)
        before = p.data.item()
        sgd.step()
        assert before - p.data.item() == seen[-1]
    assert seen == [0.5, 1.0, 1.0]


def test_clipping_to_the_global_norm():
    a, b, c = parameters([3.0], [4.0, 0.0], [1.0])
    sgd = optim.SGD([a, b, c], lr=0.1)
    a.grad, b.grad = np.array([3.0]), np.array([4.0, 0.0])
    assert optim.clip_grad_norm(sgd, 1.0) == 5
    np.testing.assert_allclose([*a.grad, *b.grad], [0.6, 0.8, 0])
    assert c.grad is None
    assert sgd.clip(10.0) == pytest.approx(1) and a.grad[0] == pytest.approx(0.6)


def test_the_norm_is_accumulated_in_float64():
    (p,) = parameters(np.zeros(10), dtype=np.float32)
    sgd = optim.SGD([p], lr=0.1)
    p.grad = np.full(10, 1e30, np.float32)
    assert sgd.clip(1.0) == pytest.approx(np.sqrt(10) * 1e30)
    np.testing.assert_allclose(p.grad, 10**-0.5, rtol=1e-6)


def test_a_norm_whose_square_overflows():
    a, b = parameters([1.0], [2.0])
    sgd = optim.SGD([a, b], lr=0.1)
    a.grad, b.grad = np.array([3e200]), np.array([-4e200])
    assert sgd.clip(1.0) == pytest.approx(5e200)
    np.testing.assert_allclose([*a.grad, *b.grad], [0.6, -0.8])


def test_a_gradient_that_is_not_finite_is_named_and_left():
    a, b = parameters([1.0], [2.0])
    sgd = optim.SGD([a, b], lr=0.1)
    a.grad, b.grad = np.array([7.0]), np.array([np.nan])
    with pytest.raises(FloatingPointError, match=r"the gradient of p1 \(1,\) is not finite"):
        sgd.clip(1.0)
    assert a.grad.tolist() == [7]


P = parameters([1.0])
ERRORS = [
    (lambda: optim.SGD(P, lr=-1), ValueError, "SGD: lr is -1; expected a number >= 0"),
    (lambda: optim.SGD(P, lr=0.1, nesterov=True), ValueError, "nesterov=True needs a momentum above 0"),
    (lambda: optim.Adam(P, betas=(0.9, 1.0)), ValueError, "Adam: betas are (0.9, 1.0)"),
    (lambda: optim.AdamW(P, weight_decay=-0.1), ValueError, "AdamW: weight_decay is -0.1"),
    (lambda: optim.Adam(P, betas=0.9), ValueError, "Adam: betas are 0.9; expected two numbers"),
    (lambda: optim.SGD(P, lr="0.1"), ValueError, "SGD: lr is '0.1'; expected a number >= 0"),
    (lambda: optim.LARS(P, lr=None), ValueError, "LARS: lr is None"),
    (lambda: optim.SGD(P, lr=np.nan), ValueError, "SGD: lr is nan"),
    (lambda: optim.Adam(P, eps=0.0), ValueError, "Adam: eps is 0.0, which is 0 in float64"),
    (lambda: optim.LAMB(parameters([1.0], dtype=np.float16), eps=1e-8), ValueError, "LAMB: eps is 1e-08, which is 0 in float16"),
    (lambda: (lambda ps: (list(ps), optim.SGD(ps, lr=0.1)))(iter(P)), ValueError, "there are no parameters"),
    (lambda: optim.SGD([], lr=0.1), ValueError, "there are no parameters"),
    (lambda: optim.SGD(P[0], lr=0.1), TypeError, "parameters is one tensor; expected a list"),
    (lambda: optim.SGD([mg.Tensor([1.0])], lr=0.1), TypeError, "expected a leaf tensor that requires gradients"),
    (lambda: optim.SGD([P[0] * 2], lr=0.1), TypeError, "expected a leaf tensor that requires gradients"),
    (lambda: optim.SGD([*P, mg.Tensor([1.0], requires_grad=True)], lr=0.1), TypeError, "one block has one dtype"),
    (lambda: optim.clip_grad_norm(optim.SGD(P, lr=0.1), 0), ValueError, "max_norm is 0; expected a positive number"),
    (lambda: optim.cosine(0.1, 0), ValueError, "steps is 0"),
    (lambda: optim.warm_up(0.1, 0), ValueError, "steps is 0"),
    (lambda: optim.step_decay(0.1, 0), ValueError, "every is 0"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, message = ERRORS[number]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)
