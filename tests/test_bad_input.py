"""Wrong uses, each with its one line: what is wrong, what was expected, what to do."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import data, dist, nn, optim


def leaf(*shape, dtype=np.float32):
    return mg.Tensor(np.ones(shape, dtype), requires_grad=True)


def twice():
    loss = (leaf(2) * 2).sum()
    loss.backward()
    loss.backward()


def changed():
    w = leaf(2)
    loss = (w * w).sum()
    w.data += 1
    loss.backward()


def missing():
    model = nn.Linear(2, 2, rng=np.random.default_rng(0))
    model.parameters()
    dist.Reducer(mg.flatten(model.parameters()), dist.SelfComm()).finish(0.0, 1)


WRONG = {
    "mixed floats": (
        lambda: leaf(2) + leaf(2, dtype=np.float64), TypeError,
        "add: operand x is float32 and operand y is float64; floats are never promoted silently: convert one with .astype(np.float32)",
    ),
    "integers have no gradient": (
        lambda: mg.Tensor([1, 2], requires_grad=True), TypeError,
        "Tensor: requires_grad=True needs a float array, got int64; convert with .astype(np.float32)",
    ),
    "floats of integers": (lambda: mg.exp([1, 2]), TypeError, "exp: needs floats, got x (2,) int64; convert with .astype(np.float32)"),
    "broadcast": (
        lambda: leaf(3, 4) * leaf(5), ValueError,
        "multiply: x (3, 4) and y (5,): shapes do not broadcast; aligned at the last axis, sizes must be equal or 1",
    ),
    "linear": (
        lambda: mg.linear(np.ones((64, 783), np.float32), leaf(784, 128)), ValueError,
        "linear: x (64, 783) and w (784, 128): the last axis of x must equal the rows of w (783 != 784); did you forget to "
        "flatten the image?",
    ),
    "backward twice": (
        twice, RuntimeError,
        "backward: the graph behind the result of sum was freed by an earlier backward; run the forward again, or pass "
        "retain_graph=True to the first backward",
    ),
    "backward of no scalar": (
        lambda: (leaf(2) * 2).backward(), RuntimeError,
        "backward: the result of multiply (2,) is no scalar; reduce it with .sum() or .mean(), or pass its gradient",
    ),
    "backward of a constant": (
        lambda: mg.Tensor([1.0]).backward(), RuntimeError,
        "backward: a tensor (1,) does not depend on anything that requires gradients; was it computed under no_grad, or from .data "
        "or .detach()?",
    ),
    "changed array": (
        changed, RuntimeError,
        "multiply: the array x (2,) that its gradient needs was changed after the forward pass; call backward before updating "
        "parameters or inputs in place",
    ),
    "NumPy on a tensor": (
        lambda: np.asarray(leaf(2)), RuntimeError,
        "NumPy was given a tensor (2,), which is on the tape; a gradient would be lost. Use the function of minigrad, or .data "
        "(or .detach()) if no gradient is wanted",
    ),
    "assignment": (
        lambda: leaf(2).__setitem__(0, 1.0), TypeError,
        "a tensor cannot be assigned to; use where, concatenate or pad, or change a leaf's .data",
    ),
    "axis": (lambda: leaf(2, 3).sum(axis=2), ValueError, "sum: axis 2 is out of range for x (2, 3); expected -2 to 1"),
    "reshape": (lambda: leaf(6).reshape(4, 2), ValueError, "reshape: x (6,) has 6 elements, which do not fill (4, 2)"),
    "one-hot targets": (
        lambda: mg.cross_entropy(leaf(4, 3), np.zeros((4, 3), int)), ValueError,
        "cross_entropy: logits (4, 3) with classes on axis 1 need targets (4,), got (4, 3); targets are class numbers, not one-hot",
    ),
    "no such class": (
        lambda: mg.cross_entropy(leaf(2, 3), [0, 3]), IndexError,
        "cross_entropy: targets[1] is 3, expected a class from 0 to 2; pass ignore_index if it marks padding",
    ),
    "column against row": (
        lambda: mg.mse(leaf(3, 1), np.ones(3, np.float32)), ValueError,
        "mse: x (3, 1) and y (3,) must have one shape; reshape one of them",
    ),
    "no such token": (
        lambda: mg.embedding([7], leaf(5, 2)), IndexError,
        "embedding: indices[0] is 7, expected 0 to 4 for weight (5, 2)",
    ),
    "channels": (
        lambda: mg.conv2d(np.ones((1, 3, 8, 8), np.float32), leaf(4, 1, 3, 3)), ValueError,
        "conv2d: x (1, 3, 8, 8) and w (4, 1, 3, 3): expected (batch, channels, height, width) and (filters, channels, height, "
        "width) with equal channels",
    ),
    "mask": (
        lambda: mg.attention(leaf(3, 4), leaf(5, 4), leaf(5, 4), np.ones((3, 5), int)), TypeError,
        "attention: the mask is int64; expected bool (True: may see) or float32, to be added",
    ),
    "lengths": (
        lambda: nn.LSTM(2, 3, rng=np.random.default_rng(0))(np.ones((1, 4, 2), np.float32), lengths=[0]), ValueError,
        "lstm: lengths[0] is 0, expected 1 to T = 4; drop empty sequences",
    ),
    "no generator": (lambda: nn.Linear(2, 2, rng=0), TypeError, "Linear: rng is int; expected np.random.default_rng(seed)"),
    "no parameters": (
        lambda: optim.SGD([], lr=0.1), ValueError,
        "there are no parameters; does the model have any, and were they passed as a list?",
    ),
    "step before backward": (
        lambda: optim.SGD([leaf(2)], lr=0.1).step(), RuntimeError,
        "SGD: no parameter has a gradient; call loss.backward() before step()",
    ),
    "reduction before backward": (
        missing, RuntimeError,
        "finish: no gradient for w, b; call loss.backward() first, and use every parameter in the loss (or freeze it: "
        "requires_grad=False)",
    ),
    "lengths of arrays": (
        lambda: data.Loader(np.ones(3), np.ones(4), batch=2), data.DataError,
        "loader: arrays of [3, 4] samples; expected arrays of one length, at least 1",
    ),
    "batch below ranks": (
        lambda: data.Loader(np.ones(8), batch=2, rank=0, size=3), data.DataError,
        "loader: the global batch 2 is smaller than the 3 ranks; raise it or use fewer ranks",
    ),
    "no file": (lambda: data.read("nowhere.csv"), data.DataError, "nowhere.csv: there is no such file"),
    "kind of file": (
        lambda: data.read(__file__), data.DataError,
        f"{__file__}: expected a name ending in .npz, .csv, .tsv, or an IDX file (idx in its name, or .gz)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_line(name):
    call, kind, message = WRONG[name]
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == message and "\n" not in message


def test_there_are_enough():
    assert len(WRONG) >= 20
