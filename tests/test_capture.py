"""A captured step is the eager step, bit for bit; what cannot be replayed is an error."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import dist, nn, optim
from minigrad.capture import CaptureError

RNG = np.random.default_rng


def images(rng):
    return rng.normal(size=(5, 64)).astype(np.float32), rng.integers(0, 3, 5)


def tokens(rng):
    return rng.integers(0, 11, (3, 8)), rng.integers(0, 11, (3, 8))


class Reader(nn.Module):
    """An embedding, a recurrent layer and scores."""

    def __init__(self, kind):
        self.embed = nn.Embedding(11, 6, rng=RNG(0))
        self.recur = kind(6, 8, rng=RNG(1), bidirectional=True)
        self.score = nn.Linear(16, 11, rng=RNG(2))

    def forward(self, x):
        return self.score(self.recur(self.embed(x))[0])


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(64, 8, rng=RNG(0)), nn.ReLU(), nn.Dropout(0.3, seed=0), nn.Linear(8, 3, rng=RNG(1))), images),
    "conv": (
        lambda: nn.Sequential(
            nn.Reshape(1, 8, 8), nn.Conv2d(1, 4, 3, rng=RNG(0)), nn.BatchNorm(4), nn.Arctan(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(36, 3, rng=RNG(1)),
        ),
        images,
    ),
    "lstm": (lambda: Reader(nn.LSTM), tokens),
    "gru": (lambda: Reader(nn.GRU), tokens),
    "gpt": (lambda: nn.LanguageModel(11, 16, 4, 2, 12, rng=RNG(0), dropout=0.1), tokens),
    "rotary gpt": (lambda: nn.LanguageModel(11, 16, 4, 1, 12, rng=RNG(0), positions="rotary", norm="rms", kv_heads=2), tokens),
}  # fmt: skip
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=optim.warm_up(0.1, 20), momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: optim.AdamW(p, lr=optim.cosine(0.01, 80)),
    "lamb": lambda p: optim.LAMB(p, lr=0.01),
}


def make_step(model, optimizer):
    reducer = dist.Reducer(optimizer.block, dist.SelfComm())

    def step(x, y):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        reducer.finish(loss, y.size)
        optimizer.clip(1.0)
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_100_steps_bit_for_bit(name, optimizer):
    make, draw = MODELS[name]
    eager_model = make()
    model = copy.deepcopy(eager_model)
    eager_optimizer, its_optimizer = (OPTIMIZERS[optimizer](m.parameters()) for m in (eager_model, model))
    eager, step = make_step(eager_model, eager_optimizer), mg.capture(make_step(model, its_optimizer))
    rng = RNG(3)
    for _ in range(100):
        x, y = draw(rng)
        assert eager(x, y).item() == step(x, y).item()
    assert step.replays == 98 and its_optimizer.steps == 100
    np.testing.assert_array_equal(eager_optimizer.block.values, its_optimizer.block.values)
    for a, b in zip(eager_model.state_dict().values(), model.state_dict().values()):
        np.testing.assert_array_equal(a, b)
    text = str(step)
    assert "launches" in text and "matmul" in text


def test_each_signature_has_a_list_of_its_own():
    model = nn.Linear(3, 2, rng=RNG(0))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    eager_model = copy.deepcopy(model)
    eager_sgd = optim.SGD(eager_model.parameters(), lr=0.1)
    step, eager = mg.capture(make_step(model, sgd)), make_step(eager_model, eager_sgd)
    rng = RNG(1)
    for n in (4, 4, 2, 4, 2, 4, 2, 2):
        x, y = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 2, n)
        assert step(x, y).item() == eager(x, y).item()
    assert step.replays == 4


def test_results_are_not_changed_by_later_replays():
    step = mg.capture(lambda x: mg.exp(x))
    results = [step(np.full(2, float(i))) for i in range(4)]
    for i, y in enumerate(results):
        np.testing.assert_array_equal(y.data, np.exp(np.full(2, float(i))))
    assert step.replays == 2


def test_a_gradient_that_is_not_finite_is_found_in_a_replay_too():
    w = mg.Tensor([1.0], requires_grad=True, name="w")
    sgd = optim.SGD([w], lr=0.1)

    @mg.capture
    def step(x):
        sgd.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        sgd.clip(1.0)
        sgd.step()
        return loss

    for _ in range(3):
        step(np.ones(1, np.float32))
    with pytest.raises(FloatingPointError, match="the gradient of w"):
        step(np.full(1, np.inf, np.float32))


def branch(x):
    y = mg.exp(x)
    return mg.sin(y) if y.data[0] > 3 else mg.cos(y)


def more(x):
    y = mg.exp(x)
    for _ in range(int(x[0])):
        y = y * 2
    return y


COUNTER = [0]


def frozen_number(x):
    COUNTER[0] += 1
    return x * mg.Tensor([float(COUNTER[0])]).astype(np.float64)


def read(x):
    y = mg.exp(x)
    return y * 2 if y[0] > 0 else y


WRONG = {
    "another launch": (branch, r"launch 1, cos at test_capture.py:\d+: another run launched sin here"),
    "more launches": (more, "the first too many is multiply at test_capture.py:"),
    "computed outside": (lambda x: mg.exp(np.sqrt(x) * 1.0), "was computed outside of launches and has changed"),
    "a counter in Python": (frozen_number, "computed outside of launches"),
    "a shape from data": (lambda x: mg.exp(x)[mg.Tensor(x).data > 1.5], "other|outside"),
    "a number returned": (lambda x: float(mg.exp(x).data.sum()), "the step returned float, which no launch computes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_replayed_is_an_error(name):
    f, message = WRONG[name]
    step = mg.capture(f)
    with pytest.raises(CaptureError, match=message):
        for x in (np.array([1.0, 1.0]), np.array([2.0, 1.0]), np.array([3.0, 1.0])):
            step(x)


@pytest.mark.parametrize("f", [read, lambda x: mg.exp(x).sum().item(), lambda x: float(mg.exp(x).sum())])
def test_reading_a_value_while_recording_is_an_error_at_once(f):
    with pytest.raises(RuntimeError, match="is read while a step is recorded; a replay would not read it again"):
        mg.capture(f)(np.ones(2))
    assert mg.exp(1.0).item() > 2  # and only then
