"""Layers: an op with the parameters it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import ops
from ..engine import Tensor
from ..kernels import K, launch
from . import init
from .module import Module, Parameter

__all__ = [
    "GELU", "Arctan", "AvgPool1d", "AvgPool2d", "BatchNorm", "Conv1d", "Conv2d", "Dropout", "Embedding", "Flatten",
    "LayerNorm", "Linear", "Logistic", "MaxPool1d", "MaxPool2d", "RMSNorm", "ReLU", "Reshape", "Sequential", "Softmax", "Tanh",
]  # fmt: skip


class Sequential(Module):
    """Apply layers one after the other.

    Example:
        >>> model = Sequential(Linear(4, 8, rng=np.random.default_rng(0)), ReLU())
        >>> len(model), model(np.ones((2, 4), np.float32)).shape
        (2, (2, 8))
    """

    def __init__(self, *layers: Module) -> None:
        for i, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise TypeError(
                    f"Sequential: layer {i} is {type(layer).__name__}; expected modules: Sequential(a, b), or Sequential(*list)"
                )
            setattr(self, str(i), layer)

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Any]:
        return (layer for name, layer in vars(self).items() if name.isdigit())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, i: int | slice) -> Any:
        layers = list(self)[i]
        return Sequential(*layers) if isinstance(i, slice) else layers


# --- with weights -------------------------------------------------------------------------------------------------


class Linear(Module):
    """y = x w + b; see :func:`minigrad.linear`. Weights begin as :func:`init.glorot_uniform`'s, b as zeros.

    Shapes: x (..., d_in) -> (..., d_out).
    """

    def __init__(
        self, d_in: int, d_out: int, *, rng: np.random.Generator, bias: bool = True, weight: Any = init.glorot_uniform,
        dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        _positive("Linear", d_in=d_in, d_out=d_out)
        self.w = Parameter(weight((d_in, d_out), _generator("Linear", rng), dtype))
        self.b = Parameter(np.zeros(d_out, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.w, self.b)

    def extra_repr(self) -> str:
        return f"{self.w.shape[0]}, {self.w.shape[1]}" + ("" if self.b is not None else ", bias=False")


class Embedding(Module):
    """A table of vectors, looked up by number; see :func:`minigrad.embedding`. Entries begin normal with variance 1/d.

    Shapes: integers (...) -> (..., d).
    """

    def __init__(self, entries: int, d: int, *, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        _positive("Embedding", entries=entries, d=d)
        self.weight = Parameter(init.normal((entries, d), _generator("Embedding", rng), dtype, d**-0.5))

    def forward(self, indices: Any) -> Tensor:
        return ops.embedding(indices, self.weight)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class Conv2d(Module):
    """Filters over images; see :func:`minigrad.conv2d`. Weights begin as :func:`init.he_uniform`'s, b as zeros.

    Shapes: x (B, c_in, H, W) -> (B, c_out, ..., ...).
    """

    axes = 2
    convolve: Any = staticmethod(ops.conv2d)

    def __init__(
        self, c_in: int, c_out: int, size: Any, *, rng: np.random.Generator, stride: Any = 1, padding: Any = 0,
        bias: bool = True, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        _positive(type(self).__name__, c_in=c_in, c_out=c_out)
        window = (size,) * self.axes if np.ndim(size) == 0 else tuple(size)
        if len(window) != self.axes:
            raise ValueError(f"{type(self).__name__}: size is {size}; expected an int, or one for each of {self.axes} axes")
        _positive(type(self).__name__, **{f"size[{i}]": n for i, n in enumerate(window)})
        self.w = Parameter(init.he_uniform((c_out, c_in, *window), _generator(type(self).__name__, rng), dtype))
        self.b = Parameter(np.zeros(c_out, dtype)) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x: Any) -> Tensor:
        return self.convolve(x, self.w, self.b, self.stride, self.padding)

    def extra_repr(self) -> str:
        c_out, c_in, *window = self.w.shape
        bias = "" if self.b is not None else ", bias=False"
        return f"{c_in}, {c_out}, {tuple(window)}, stride={self.stride}, padding={self.padding}{bias}"


class Conv1d(Conv2d):
    """Filters over sequences; see :func:`minigrad.conv1d`. Shapes: x (B, c_in, L) -> (B, c_out, ...)."""

    axes = 1
    convolve = staticmethod(ops.conv1d)


# --- normalisation ------------------------------------------------------------------------------------------------


class LayerNorm(Module):
    """Normalise the last axis; see :func:`minigrad.layer_norm`. Shapes: (..., d) -> (..., d)."""

    def __init__(self, d: int, *, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        _positive("LayerNorm", d=d)
        self.weight, self.bias, self.eps = Parameter(np.ones(d, dtype)), Parameter(np.zeros(d, dtype)), eps

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return str(self.weight.size)


class RMSNorm(Module):
    """Divide the last axis by its root mean square; see :func:`minigrad.rms_norm`. Shapes: (..., d) -> (..., d)."""

    def __init__(self, d: int, *, eps: float = 1e-6, dtype: Any = np.float32) -> None:
        _positive("RMSNorm", d=d)
        self.weight, self.eps = Parameter(np.ones(d, dtype)), eps

    def forward(self, x: Any) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)

    def extra_repr(self) -> str:
        return str(self.weight.size)


class BatchNorm(Module):
    """Normalise axis 1 over the batch in training, by running statistics in evaluation.

    Equation: running = (1 - m) running + m batch, with the unbiased variance of the batch; see :func:`minigrad.batch_norm`.
    An empty batch leaves the running statistics alone. Statistics are of this rank's part of the batch.
    Shapes: (B, d) or (B, d, ...) -> the same.
    """

    def __init__(self, d: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        _positive("BatchNorm", d=d)
        self.weight, self.bias = Parameter(np.ones(d, dtype)), Parameter(np.zeros(d, dtype))
        self.eps, self.momentum = eps, momentum
        self.running_mean, self.running_var = Tensor(np.zeros(d, dtype)), Tensor(np.ones(d, dtype))

    def forward(self, x: Any) -> Tensor:
        if self.training:
            y, mean, var = ops.batch_norm(x, self.weight, self.bias, eps=self.eps)
            n = y.size // mean.size
            if n:
                unbias = n / max(n - 1, 1)
                launch(K.moving_average, mean.data, self.momentum, 1.0, out=self.running_mean.data)
                launch(K.moving_average, var.data, self.momentum, unbias, out=self.running_var.data)
            return y
        shape = x.shape if isinstance(x, Tensor) else np.shape(x)
        if len(shape) < 2 or shape[1] != self.weight.size:  # 1 would broadcast
            raise ValueError(f"BatchNorm: x {shape}: expected (batch, {self.weight.size}, ...)")
        column = (1, -1, *(1,) * (len(shape) - 2))
        scale = self.weight / ops.sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(column) + shift.reshape(column)

    def extra_repr(self) -> str:
        return str(self.weight.size)


# --- without weights ----------------------------------------------------------------------------------------------


class Dropout(Module):
    """Drop elements with probability p in training; see :func:`minigrad.dropout`. The identity in evaluation.

    The key (seed, step, first sample) is a buffer: each call in training uses a new step, and a resumed run goes on where it
    stopped. Give each layer of a model a seed of its own: with the same seed they drop the same elements.
    """

    def __init__(self, p: float = 0.5, *, seed: int) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is {p}; expected a probability from 0 to 1")
        self.p = p
        self.key = Tensor(np.array([seed, 0, 0], np.uint64))

    def forward(self, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        y = ops.dropout(x, self.p, self.key)
        self.advance()
        return y

    def advance(self) -> None:
        """Go on to the next step's key."""
        launch(K.advance, np.uint64(1), out=self.key.data[1:2])

    def set_first_sample(self, first: int) -> None:
        """Say which sample of the global batch comes first in the next call."""
        self.key.data[2] = first

    def extra_repr(self) -> str:
        return str(self.p)


class Logistic(Module):
    """1/(1 + e^-x); see :func:`minigrad.logistic`."""

    def forward(self, x: Any) -> Tensor:
        return ops.logistic(x)


class ReLU(Module):
    """max(x, 0); see :func:`minigrad.relu`."""

    def forward(self, x: Any) -> Tensor:
        return ops.relu(x)


class Arctan(Module):
    """The inverse tangent; see :func:`minigrad.arctan`."""

    def forward(self, x: Any) -> Tensor:
        return ops.arctan(x)


class Tanh(Module):
    """The hyperbolic tangent; see :func:`minigrad.tanh`."""

    def forward(self, x: Any) -> Tensor:
        return ops.tanh(x)


class GELU(Module):
    """x Φ(x), or its tanh form; see :func:`minigrad.gelu`."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return ops.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        return "" if self.approximate == "none" else repr(self.approximate)


class Softmax(Module):
    """Probabilities along an axis; see :func:`minigrad.softmax`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return ops.softmax(x, axis=self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Reshape(Module):
    """Give each sample a shape: (B, ...) -> (B, *shape)."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def forward(self, x: Any) -> Tensor:
        return ops.reshape(x, (np.shape(x.data if isinstance(x, Tensor) else x)[0], *self.shape))

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.shape))


class Flatten(Module):
    """Make each sample a vector: (B, ...) -> (B, D)."""

    def forward(self, x: Any) -> Tensor:
        shape = x.shape if isinstance(x, Tensor) else np.shape(x)
        return ops.reshape(x, (shape[0], int(np.prod(shape[1:]))))


class MaxPool2d(Module):
    """The largest element of each window; see :func:`minigrad.max_pool2d`."""

    pool: Any = staticmethod(ops.max_pool2d)

    def __init__(self, size: Any, stride: Any = None) -> None:
        self.size, self.stride = size, stride

    def forward(self, x: Any) -> Tensor:
        return self.pool(x, self.size, self.stride)

    def extra_repr(self) -> str:
        return f"{self.size}" + (f", stride={self.stride}" if self.stride is not None else "")


class AvgPool2d(MaxPool2d):
    """The mean of each window; see :func:`minigrad.avg_pool2d`."""

    pool = staticmethod(ops.avg_pool2d)


class MaxPool1d(MaxPool2d):
    """The largest element of each window of a sequence; see :func:`minigrad.max_pool1d`."""

    pool = staticmethod(ops.max_pool1d)


class AvgPool1d(MaxPool2d):
    """The mean of each window of a sequence; see :func:`minigrad.avg_pool1d`."""

    pool = staticmethod(ops.avg_pool1d)


def _generator(name: str, rng: Any) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"{name}: rng is {type(rng).__name__}; expected np.random.default_rng(seed)")
    return rng


def _positive(name: str, **sizes: int) -> None:
    for label, n in sizes.items():
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"{name}: {label} is {n!r}; expected a positive int")
