"""Modules: paths, ties, modes, state; layers: values by hand, gradients, and their state round trip."""

import copy
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from tests import slope

RNG = np.random.default_rng


class Odd(nn.Module):
    """Parameters in lists, dicts and tuples, a tied one, a buffer, a module without parameters."""

    def __init__(self):
        self.layers = [nn.Linear(2, 3, rng=RNG(0)), nn.ReLU()]
        self.table = {"a": nn.Parameter(np.ones(2, np.float32)), "b": (nn.LayerNorm(3),)}
        self.again = self.layers[0].w
        self.count = mg.Tensor([0.0])
        self.note = "no tensor"

    def forward(self, x):
        return self.layers[1](self.layers[0](x))


def test_paths_and_ties():
    model = Odd()
    names = [name for name, _ in model.named_parameters()]
    assert names == ["layers.0.w", "layers.0.b", "table.a", "table.b.0.weight", "table.b.0.bias"]
    assert [p.name for p in model.parameters()] == names
    assert [name for name, m in model.named_modules()] == ["", "layers.0", "layers.1", "table.b.0"]
    assert list(model.state_dict()) == [*names, "count"]
    assert "total" in model.summary() and "17" in model.summary().splitlines()[-1]


@pytest.mark.parametrize("way", ["load", "deepcopy", "pickle", "astype"])
def test_ties_last(way):
    model = Odd()
    if way == "load":
        state = {name: value + 1 for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        np.testing.assert_array_equal(model.again.data, state["layers.0.w"])
    elif way == "deepcopy":
        model = copy.deepcopy(model)
    elif way == "pickle":
        model = pickle.loads(pickle.dumps(model))
    else:
        assert model.astype(np.float64).again.dtype == np.float64
    assert model.again is model.layers[0].w
    sgd = mg.optim.SGD(model.parameters(), lr=1.0)
    assert model.again is model.layers[0].w and np.shares_memory(model.again.data, sgd.block.values)


def test_modes_reach_every_module():
    model = nn.Sequential(nn.Dropout(0.5, seed=0), nn.Sequential(nn.BatchNorm(2)))
    assert all(not m.training for m in model.eval().modules())
    assert all(m.training for m in model.train().modules())


def test_load_names_everything_that_is_wrong_and_changes_nothing():
    model = Odd()
    before = model.state_dict()
    state = {**before, "layers.0.b": np.ones(4), "extra": np.ones(1)}
    del state["table.a"]
    with pytest.raises(ValueError) as error:
        model.load_state_dict(state)
    for part in ("layers.0.b is (4,), expected (3,)", "table.a is missing, expected (2,)", "extra is unexpected, (1,)"):
        assert part in str(error.value)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    model.load_state_dict({"table.a": np.zeros(2)}, strict=False)
    assert not model.table["a"].data.any()


@pytest.mark.parametrize(("bad", "kind"), [(np.array(["x", "y", "z"]), "<U1"), (np.ones(3) + 1j, "complex128")])
def test_values_of_another_kind_change_nothing(bad, kind):
    model = nn.Linear(2, 3, rng=RNG(0))
    before = model.w.data.copy()
    with pytest.raises(ValueError, match=f"b is {kind}, expected float32"):
        model.load_state_dict({"w": before + 1, "b": bad})
    np.testing.assert_array_equal(model.w.data, before)


@pytest.mark.parametrize("make", [lambda p, q: {1: p, "1": q}, lambda p, q: {"a.b": p, "a": {"b": q}}])
def test_two_tensors_under_one_path_are_refused(make):
    class Twice(nn.Module):
        def __init__(self):
            self.table = make(nn.Parameter([1.0]), nn.Parameter([2.0]))

    with pytest.raises(ValueError, match="Twice: two tensors have the path table"):
        Twice().state_dict()


def test_the_whole_path_names_a_parameter_also_when_a_part_was_asked_first():
    part = nn.Linear(2, 2, rng=RNG(0))
    assert [p.name for p in part.parameters()] == ["w", "b"]
    assert [p.name for p in nn.Sequential(part).parameters()] == ["0.w", "0.b"]
    part.parameters()
    assert part.w.name == "0.w"
    part.w.name = "mine"
    assert nn.Sequential(part).parameters()[0].name == "mine"


def test_an_optimizer_from_before_astype_refuses_to_step():
    model = nn.Linear(2, 1, rng=RNG(0))
    sgd = mg.optim.SGD(model.parameters(), lr=0.1)
    model.astype(np.float32)(np.ones((1, 2), np.float32)).sum().backward()
    sgd.step()  # nothing was converted
    model.astype(np.float64)(np.ones((1, 2))).sum().backward()
    with pytest.raises(RuntimeError, match="out of date: . was converted to float64; make a new optimizer"):
        sgd.step()


def test_a_sequence_is_indexed_iterated_and_cut():
    a, b = nn.ReLU(), nn.Tanh()
    model = nn.Sequential(a, b)
    assert list(model) == [a, b] and len(model) == 2 and model[-1] is b
    assert isinstance(model[1:], nn.Sequential) and list(model[1:]) == [b]
    with pytest.raises(IndexError):
        model[2]


def test_looks():
    assert repr(nn.Sequential(nn.Linear(2, 3, rng=RNG(0)), nn.GELU("tanh"), nn.Softmax())) == (
        "Sequential(\n  (0): Linear(2, 3)\n  (1): GELU('tanh')\n  (2): Softmax(axis=-1)\n)"
    )
    parent, child = nn.Module(), nn.Module()
    parent.child, child.parent = child, parent
    assert repr(parent) == "Module(\n  (child): Module(\n    (parent): ...\n  )\n)"
    assert parent.summary().splitlines()[-1].split() == ["total", "0", "(0", "bytes)"]


def test_save_and_load(tmp_path):
    model, other = Odd(), Odd()
    other.table["a"].data[...] = 7
    model.save(tmp_path / "m.npz")
    other.load(tmp_path / "m.npz")
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        np.testing.assert_array_equal(a, b)


def test_names_that_numpy_uses_itself_can_be_saved(tmp_path):
    class Named(nn.Module):
        def __init__(self, value):
            self.file, self.allow_pickle = nn.Parameter([value]), mg.Tensor(np.array([7], np.uint64))

    Named(1.0).save(tmp_path / "m.npz")
    assert Named(2.0).load(tmp_path / "m.npz").file.data.tolist() == [1.0]
    with np.load(tmp_path / "m.npz") as file:
        assert file["allow_pickle"].dtype == np.uint64


def test_a_module_without_forward_says_so():
    class Empty(nn.Module):
        pass

    with pytest.raises(TypeError, match="Empty defines no forward"):
        Empty()(1)


LAYERS = {
    "Linear": (lambda: nn.Linear(3, 2, rng=RNG(0)), (4, 3)),
    "Linear without bias": (lambda: nn.Linear(3, 2, rng=RNG(0), bias=False), (4, 3)),
    "Logistic": (nn.Logistic, (4, 3)), "ReLU": (nn.ReLU, (4, 3)), "Arctan": (nn.Arctan, (4, 3)), "Tanh": (nn.Tanh, (4, 3)),
    "GELU": (nn.GELU, (4, 3)), "GELU tanh": (lambda: nn.GELU("tanh"), (4, 3)), "Softmax": (nn.Softmax, (4, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(3), (4, 3)), "RMSNorm": (lambda: nn.RMSNorm(3), (4, 3)),
    "BatchNorm": (lambda: nn.BatchNorm(3), (4, 3)), "BatchNorm of images": (lambda: nn.BatchNorm(3), (2, 3, 2, 2)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 3, rng=RNG(0), padding=1), (2, 2, 5)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), rng=RNG(0), stride=2), (2, 2, 5, 4)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), (2, 2, 5)), "AvgPool1d": (lambda: nn.AvgPool1d(2), (2, 2, 5)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 2, 4, 5)), "AvgPool2d": (lambda: nn.AvgPool2d((2, 3), 1), (2, 2, 4, 5)),
    "Flatten": (nn.Flatten, (2, 3, 2)), "Reshape": (lambda: nn.Reshape(3, 2), (2, 6)),
    "Dropout": (lambda: nn.Dropout(0.0, seed=0), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    make, shape = LAYERS[name]
    layer = make().astype(np.float64)
    x = RNG(1).normal(size=shape)
    mg.gradcheck(layer, x)
    for mode in (layer.train, layer.eval):
        mode()
        for p in layer.parameters():
            p.grad = None
            g = RNG(2).normal(size=layer(x).shape)
            layer(x).backward(g)
            d = RNG(3).normal(size=p.shape)
            expected = slope(p, d, lambda g=g: np.sum(layer(x).data * g))
            assert np.sum(p.grad * d) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    single = make()
    assert single(x.astype(np.float32)).dtype == np.float32
    assert repr(single).startswith(type(single).__name__)
    other = make()
    other.load_state_dict(single.state_dict())
    np.testing.assert_array_equal(single.eval()(x.astype(np.float32)).data, other.eval()(x.astype(np.float32)).data)
    assert single(x[:0].astype(np.float32)).shape[0] == 0


def test_embedding_layer():
    layer = nn.Embedding(5, 3, rng=RNG(0))
    other = nn.Embedding(5, 3, rng=RNG(1))
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other([2]).data, layer([2]).data)
    other([[1, 1], [4, 0]]).sum().backward()
    assert other.weight.grad[:, 0].tolist() == [1, 2, 0, 0, 1]  # how often each was looked up
    np.testing.assert_array_equal(layer([[1, 1], [4, 0]]).data, layer.weight.data[[[1, 1], [4, 0]]])


def test_batch_norm_by_hand():
    """Ioffe and Szegedy 2015, algorithm 1: two samples 1 and 3 have mean 2 and variance 1 (unbiased 2)."""
    layer = nn.BatchNorm(1, momentum=0.5, eps=0.0, dtype=np.float64)
    layer.weight.data[...], layer.bias.data[...] = 2, 10
    np.testing.assert_allclose(layer([[1.0], [3.0]] * np.ones((2, 1))).data, [[8], [12]])
    assert layer.running_mean.data.tolist() == [1.0] and layer.running_var.data.tolist() == [1.5]
    layer(np.zeros((0, 1)))
    assert layer.running_mean.data.tolist() == [1.0]
    layer.eval()
    np.testing.assert_allclose(layer(np.array([[1.0], [2.0]])).data, [[10], [10 + 2 / np.sqrt(1.5)]])


def test_batch_norm_of_images_is_that_of_all_their_pixels():
    x = RNG(0).normal(size=(2, 3, 4, 5))
    images, pixels = nn.BatchNorm(3, dtype=np.float64), nn.BatchNorm(3, dtype=np.float64)
    for _ in range(2):  # in training, then in evaluation
        y, flat = images(x).data, pixels(x.transpose(0, 2, 3, 1).reshape(-1, 3)).data
        np.testing.assert_allclose(y.transpose(0, 2, 3, 1).reshape(-1, 3), flat, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(images.running_var.data, pixels.running_var.data, rtol=1e-12)
        images.eval(), pixels.eval()


def test_the_sample_offset_reaches_every_dropout_also_the_root():
    root, tree = nn.Dropout(0.5, seed=0), nn.Sequential(nn.Dropout(0.5, seed=1), nn.Sequential(nn.Dropout(0.5, seed=2)))
    root.sample_offset(7)
    tree.sample_offset(8)
    assert root.key.data.tolist() == [0, 0, 7]
    assert [m.key.data.tolist() for m in tree.modules() if isinstance(m, nn.Dropout)] == [[1, 0, 8], [2, 0, 8]]


def test_a_restored_dropout_goes_on_with_the_next_mask():
    x = np.ones((8, 8), np.float32)
    straight, again = nn.Dropout(0.5, seed=3), nn.Dropout(0.5, seed=0)
    straight(x)
    assert straight.key.data.tolist() == [3, 1, 0]  # (seed, step, first sample)
    straight.eval()(x)
    assert straight.train().key.data.tolist() == [3, 1, 0]
    again.load_state_dict(straight.state_dict())
    np.testing.assert_array_equal(straight(x).data, again(x).data)


def test_dropout_layer():
    x = np.ones((2000, 10), np.float32)
    layer = nn.Dropout(0.25, seed=3)
    first, second = layer(x).data, layer(x).data
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)} and not np.array_equal(first, second)
    assert abs(np.mean(first == 0) - 0.25) < 0.01
    assert layer.eval()(x) is x
    twin = nn.Dropout(0.25, seed=3)
    twin.set_first_sample(1000)
    np.testing.assert_array_equal(twin(x[1000:]).data, first[1000:])  # the second half of the batch, on its own
    assert not nn.Dropout(1.0, seed=0)(x).data.any()
    leaf = mg.Tensor(x, requires_grad=True)
    y = nn.Dropout(0.5, seed=0)(leaf)
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad, y.data)


ERRORS = [
    (lambda: nn.Linear(3, 2, rng=0), TypeError, "Linear: rng is int; expected np.random.default_rng(seed)"),
    (lambda: nn.Linear(0, 2, rng=RNG(0)), ValueError, "Linear: d_in is 0; expected a positive int"),
    (lambda: nn.Dropout(1.5, seed=0), ValueError, "Dropout: p is 1.5"),
    (lambda: nn.Conv2d(1, -1, 3, rng=RNG(0)), ValueError, "Conv2d: c_out is -1"),
    (lambda: nn.Conv2d(1, 2, 0, rng=RNG(0)), ValueError, "Conv2d: size[0] is 0; expected a positive int"),
    (lambda: nn.Conv2d(1, 2, (3, 3, 3), rng=RNG(0)), ValueError, "expected an int, or one for each of 2 axes"),
    (lambda: nn.Sequential(nn.ReLU(), 3), TypeError, "Sequential: layer 1 is int; expected modules"),
    (lambda: nn.Sequential([nn.ReLU()]), TypeError, "or Sequential(*list)"),
    (lambda: nn.BatchNorm(3).eval()(np.ones((4, 1), np.float32)), ValueError, "x (4, 1): expected (batch, 3, ...)"),
    (lambda: nn.BatchNorm(1).eval()(np.ones((4, 5), np.float32)), ValueError, "x (4, 5): expected (batch, 1, ...)"),
    (lambda: nn.BatchNorm(3).eval()(np.ones(3, np.float32)), ValueError, "x (3,): expected (batch, 3, ...)"),
    (lambda: Odd().astype(int), TypeError, "astype: Odd to int64; expected a floating dtype"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, message = ERRORS[number]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)
