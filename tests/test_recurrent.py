"""Recurrent cells and layers: golden values from the equations, fused against composite, lengths, both directions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import nn, optim
from minigrad.testing import arrays
from tests import slope

LAYERS = {
    "rnn": lambda **k: nn.RNN(3, 4, **k),
    "rnn relu": lambda **k: nn.RNN(3, 4, activation="relu", **k),
    "rnn logistic": lambda **k: nn.RNN(3, 4, activation="logistic", **k),
    "rnn arctan": lambda **k: nn.RNN(3, 4, activation="arctan", **k),
    "lstm": lambda **k: nn.LSTM(3, 4, **k),
    "gru": lambda **k: nn.GRU(3, 4, **k),
    "gru reset before": lambda **k: nn.GRU(3, 4, reset_after=False, **k),
}


def make(name, dtype=np.float64, **settings):
    layer = LAYERS[name](rng=np.random.default_rng(3), dtype=dtype, **settings)
    for cell in (cell for layer_ in layer.cells for cell in layer_):
        cell.b.data[...] = np.random.default_rng(4).normal(size=cell.b.shape)
        if hasattr(cell, "bu"):
            cell.bu.data[...] = np.random.default_rng(5).normal(size=cell.bu.shape)
    return layer


def sigma(a):
    return 1 / (1 + math.exp(-a))


def test_lstm_golden():
    """One unit, one input, two steps, by hand: Gers et al. 2000, equations 3.1 to 3.7."""
    w, u, b = [0.5, -0.3, 0.8, 0.2], [0.1, 0.4, -0.6, 0.7], [0.05, 1.0, -0.1, 0.3]
    h, c = 0.2, -0.4
    for x in (1.5, -0.7):
        i, f, g, o = (x * w[k] + h * u[k] + b[k] for k in range(4))
        c = sigma(f) * c + sigma(i) * math.tanh(g)
        h = sigma(o) * math.tanh(c)
    x = np.array([[[1.5], [-0.7]]])
    y, last_h, last_c = mg.lstm(x, [[0.2]] * np.ones((1, 1)), np.full((1, 1), -0.4), np.array([w]), np.array([u]), np.array(b))
    assert last_h.item() == pytest.approx(h, rel=1e-14) and last_c.item() == pytest.approx(c, rel=1e-14)
    assert y.data[0, 1, 0] == last_h.item()


@pytest.mark.parametrize("reset_after", [True, False])
def test_gru_golden(reset_after):
    """One unit, one input, two steps, by hand: Cho et al. 2014, equations 5 to 8, gates r z n."""
    w, u, b, bu = [0.5, -0.3, 0.8], [0.1, 0.4, -0.6], [0.05, 1.0, -0.1], [0.2, -0.2, 0.3]
    h = 0.2
    for x in (1.5, -0.7):
        r = sigma(x * w[0] + b[0] + h * u[0] + bu[0])
        z = sigma(x * w[1] + b[1] + h * u[1] + bu[1])
        inner = r * (h * u[2] + bu[2]) if reset_after else r * h * u[2] + bu[2]
        n = math.tanh(x * w[2] + b[2] + inner)
        h = (1 - z) * n + z * h
    x = np.array([[[1.5], [-0.7]]])
    weights = np.array([w]), np.array([u]), np.array(b), np.array(bu)
    _, last = mg.gru(x, np.full((1, 1), 0.2), *weights, reset_after=reset_after)
    assert last.item() == pytest.approx(h, rel=1e-14)


def test_both_directions_over_padding_golden():
    """h_t = relu(x_t + h_(t-1)/2) from 0, by hand: forwards 1, 2.5, 4.25; backwards from each sequence's own end."""
    layer = nn.RNN(1, 1, rng=np.random.default_rng(0), bidirectional=True, activation="relu", dtype=np.float64)
    for cell in layer.cells[0]:
        cell.w.data[...], cell.u.data[...], cell.b.data[...] = 1, 0.5, 0
    x = np.array([[[1.0], [2.0], [3.0]], [[1.0], [2.0], [99.0]]])  # the second has length 2
    y, (forwards, backwards) = layer(x, lengths=[3, 2])
    np.testing.assert_array_equal(y.data[0], [[1, 2.75], [2.5, 3.5], [4.25, 3]])
    np.testing.assert_array_equal(y.data[1], [[1, 2], [2.5, 2], [0, 0]])
    np.testing.assert_array_equal(forwards.data, [[4.25], [2.5]])
    np.testing.assert_array_equal(backwards.data, [[2.75], [2]])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_fused_equals_the_cells_values_and_gradients(name, dtype, tolerance):
    layer = make(name, dtype)
    cell = layer.cells[0][0]
    x = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(dtype)
    g = np.random.default_rng(1).normal(size=(5, 7, 4)).astype(dtype)
    results = []
    for fused in (True, False):
        leaf = mg.Tensor(x, requires_grad=True)
        if fused:
            y, _ = layer(leaf)
        else:
            state, steps = cell.zeros(5), []
            for t in range(7):
                state = cell(leaf[:, t], state)
                steps.append(state[0] if isinstance(state, tuple) else state)
            y = mg.stack(steps, axis=1)
        layer.zero_grad()
        y.backward(g)
        results.append([y.data, leaf.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results):
        scale = np.max(np.abs(b))
        np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_with_lengths_states_and_layers(name, bidirectional):
    layer = make(name, layers=2, bidirectional=bidirectional)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 3))
    mg.gradcheck(lambda x: layer(x, lengths=[4, 1, 3])[0], x, directions=2)
    for p in layer.parameters()[:4]:
        layer.zero_grad()
        y, _ = layer(x, lengths=[4, 1, 3])
        g = rng.normal(size=y.shape)
        y.backward(g)
        d = rng.normal(size=p.shape)
        expected = slope(p, d, lambda g=g: np.sum(layer(x, lengths=[4, 1, 3])[0].data * g))
        assert np.sum(p.grad * d) == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gru reset before"])
def test_100_steps_and_lengths_1_to_100_equal_each_sequence_alone(name):
    layer = make(name, bidirectional=True, layers=2)
    x = np.random.default_rng(0).normal(size=(100, 100, 3))
    lengths = np.random.default_rng(1).permutation(np.arange(1, 101))
    y, state = layer(x, lengths=lengths)
    for row in range(100):
        n = lengths[row]
        alone, last = layer(x[row : row + 1, :n])
        np.testing.assert_allclose(y.data[row, :n], alone.data[0], atol=1e-12)
        assert not y.data[row, n:].any()
        for s, t in zip(state, last):
            for a, b in zip(s if isinstance(s, tuple) else (s,), t if isinstance(t, tuple) else (t,)):
                np.testing.assert_allclose(a.data[row], b.data[0], atol=1e-12)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gru reset before"])
@given(data=st.data())
def test_padding_has_no_influence(name, data):
    layer = make(name, bidirectional=True)
    x = data.draw(arrays((2, 4, 3)))
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=2))
    dirty = x.copy()
    for row, n in enumerate(lengths):
        dirty[row, n:] = np.nan
    wide = np.concatenate([dirty, np.full((2, 3, 3), np.inf)], axis=1)
    results = []
    for source in (x, dirty, wide):
        leaf = mg.Tensor(source, requires_grad=True)
        layer.zero_grad()
        y, _ = layer(leaf, lengths=lengths)
        mg.sum(y * y).backward()
        results.append((y.data[:, :4], leaf.grad[:, :4], [p.grad.copy() for p in layer.parameters()]))
    for y, gx, gw in results[1:]:
        np.testing.assert_allclose(y, results[0][0], atol=1e-14)
        np.testing.assert_allclose(gx, results[0][1], atol=1e-14)
        for a, b in zip(gw, results[0][2]):
            np.testing.assert_allclose(a, b, atol=1e-13)


def test_state_is_carried_on_and_detached():
    layer = make("lstm", layers=2)
    x = np.random.default_rng(0).normal(size=(2, 6, 3))
    whole, last = layer(x)
    first, state = layer(x[:, :4])
    second, end = layer(x[:, 4:], state)
    np.testing.assert_allclose(np.concatenate([first.data, second.data], 1), whole.data, atol=1e-13)
    np.testing.assert_allclose(end[1][1].data, last[1][1].data, atol=1e-13)
    leaf = mg.Tensor(x[:, :4], requires_grad=True)
    cut = nn.detach(layer(leaf)[1])
    assert all(not t.requires_grad for pair in cut for t in pair)
    layer(x[:, 4:], cut)[0].sum().backward()
    assert leaf.grad is None


def test_dropout_stands_between_layers_in_training_only():
    layer = make("gru", layers=2, dropout=0.5)
    x = np.ones((2, 3, 3))
    layer.train()
    assert not np.array_equal(layer(x)[0].data, layer(x)[0].data)
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].data, layer(x)[0].data)


def test_a_memory_task_is_learned():
    """The first input must be recalled at the end: only a state that lasts can do it."""
    rng = np.random.default_rng(0)
    layer, head = nn.LSTM(1, 8, rng=rng), nn.Linear(8, 1, rng=rng)
    sgd = optim.Adam([*layer.parameters(), *head.parameters()], lr=0.03)
    for _ in range(150):
        x = rng.choice([-1.0, 1.0], (32, 10, 1)).astype(np.float32)
        sgd.zero_grad()
        loss = mg.mse(head(layer(x)[0][:, -1]), x[:, 0])
        loss.backward()
        sgd.step()
    assert loss.item() < 0.1


X = np.ones((2, 4, 3))
ERRORS = [
    (lambda: make("lstm")(X, lengths=[0, 4]), "lengths[0] is 0, expected 1 to T = 4; drop empty sequences"),
    (lambda: make("lstm")(X, lengths=[4, 5]), "lengths[1] is 5, expected 1 to T = 4"),
    (lambda: make("gru")(X, lengths=[4]), "lengths (1,) int64: expected (2,) integers, one a row"),
    (lambda: make("rnn")(X, lengths=[1.0, 2.0]), "lengths (2,) float64"),
    (lambda: make("lstm")(X[0]), "LSTM: x (4, 3): expected (batch, time, features)"),
    (lambda: make("lstm")(X[:, :, :2]), "lstm: w is (3, 16), expected (2, 16)"),
    (lambda: make("lstm")(X, state=[]), "got 0 states, expected 1"),
    (lambda: nn.RNN(3, 4, rng=np.random.default_rng(0), activation="step"), "RNNCell: activation 'step'"),
    (lambda: mg.rnn(X, np.ones((2, 4)), np.ones((3, 4)), np.ones((4, 4)), np.ones(4), activation="step"), "rnn: activation 'step'"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, message = ERRORS[number]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
