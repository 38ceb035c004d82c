"""The seam: launch, recording, and the rule that everything computes through it."""

import inspect
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import kernels, nn, optim
from minigrad.kernels import K, launch, new, recording


def test_launch_allocates_for_ufuncs_and_fills_what_it_is_given():
    x = np.array([1.0, 4.0])
    np.testing.assert_array_equal(launch(np.sqrt, x), [1, 2])
    assert type(launch(np.sqrt, np.array(4.0))) is np.ndarray
    out = new((), np.float64)
    assert launch(K.sum, x, 0, False, out=out) is out and out == 5
    a, b = launch(K.squared_error, x, x - 1, out=(new(2, float), new(2, float)))
    assert a.tolist() == [1, 1] and b.tolist() == [2, 2]


def steps_of(f):
    names = []
    with recording(lambda kernel, inputs, out: names.append(getattr(kernel, "__name__", str(kernel)))):
        f()
    return names


def test_recording_is_deterministic_and_exclusive():
    model = nn.Sequential(nn.Linear(3, 4, rng=np.random.default_rng(0)), nn.ReLU(), nn.Linear(4, 2, rng=np.random.default_rng(1)))
    sgd = optim.SGD(model.parameters(), lr=0.1)

    def step():
        sgd.zero_grad()
        mg.cross_entropy(model(np.ones((5, 3), np.float32)), [0, 1, 0, 1, 1]).backward()
        sgd.step()

    first, second = steps_of(step), steps_of(step)
    assert first == second and {"matmul", "relu", "cross_entropy", "sgd"} <= set(first)
    with recording(lambda *a: None), pytest.raises(RuntimeError, match="another recording is in progress"), recording(lambda *a: None):
        pass
    assert steps_of(lambda: None) == []


def test_what_other_threads_launch_is_no_part_of_it():
    def elsewhere():
        thread = threading.Thread(target=lambda: launch(np.exp, np.ones(2)))
        thread.start()
        thread.join()
        launch(np.sin, np.ones(2))

    assert steps_of(elsewhere) == ["sin"]


def test_a_recorded_step_can_be_replayed_by_hand():
    """A step is a list of launches on known arrays: running the list again does the step again."""
    def make():
        w = mg.Tensor(np.array([[1.0, -2.0], [0.5, 3.0]]), requires_grad=True)
        return w, optim.SGD([w], lr=optim.warm_up(0.1, 4), momentum=0.9)

    x = np.array([[1.0, 2.0], [3.0, -1.0]])

    def step(w, sgd):
        sgd.zero_grad()
        mg.mse(mg.tanh(x @ w), np.zeros((2, 2))).backward()
        sgd.step()

    w, sgd = make()
    for _ in range(4):
        step(w, sgd)
    v, recorded = make()
    launches = []
    with recording(lambda *a: launches.append(a)):
        step(v, recorded)
    for _, _, out in launches:  # the tape had made its results read-only
        for array in out if isinstance(out, tuple) else (out,):
            (array if array.base is None else array.base).setflags(write=True)
            array.setflags(write=True)
    for _ in range(3):
        for kernel, inputs, out in launches:
            kernel(*inputs, *(out if isinstance(out, tuple) else (out,)))
    np.testing.assert_array_equal(v.data, w.data)
    assert recorded.steps == 4


def test_every_kernel_says_what_it_computes():
    for name, kernel in inspect.getmembers(K, inspect.isfunction):
        if not name.startswith("_") and kernel.__module__ == K.__name__:
            assert kernel.__doc__, name
    assert kernels.K is K


@pytest.mark.parametrize("layout", ["C", "F", "sliced", "reversed"])
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 5), (0, 4), (4, 0)])
def test_elementwise_kernels_take_any_layout(layout, shape):
    x = np.random.default_rng(0).normal(size=shape)
    views = {"C": x, "F": np.asfortranarray(x), "sliced": np.repeat(x, 2, axis=-1)[..., ::2], "reversed": np.flip(np.flip(x).copy())}
    for name in ("logistic", "relu", "softplus", "gelu", "gelu_tanh"):
        kernel = getattr(K, name)
        a, b = new(shape, float), new(shape, float)
        kernel(x, a)
        kernel(views[layout], b)
        np.testing.assert_array_equal(a, b)
