"""Recurrent cells, to be read, and recurrent layers, to be used.

A cell is one step, from elementary ops: the equations as they stand in the papers. A layer is a whole sequence, by the fused
ops :func:`minigrad.rnn`, :func:`minigrad.lstm` and :func:`minigrad.gru`, several layers deep, in one or both directions, for
sequences of different lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..engine import Tensor, as_array
from . import init
from .layers import Dropout, _generator, _positive
from .module import Module, Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

_ACTIVATIONS = {"tanh": ops.tanh, "relu": ops.relu, "logistic": ops.logistic, "arctan": ops.arctan}


class _Weights(Module):
    """The weights of one cell: w (d_in, G H) evenly in ±1/√H, u (H, G H) orthogonal for each gate, b (G H) zeros."""

    gates = 1

    def __init__(self, d_in: int, hidden: int, *, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        _positive(type(self).__name__, d_in=d_in, hidden=hidden)
        _generator(type(self).__name__, rng)
        self.hidden = hidden
        self.w = Parameter(init.uniform((d_in, self.gates * hidden), rng, dtype, hidden**-0.5))
        blocks = [init.orthogonal((hidden, hidden), rng, dtype) for _ in range(self.gates)]
        self.u = Parameter(np.concatenate(blocks, axis=1))
        self.b = Parameter(np.zeros(self.gates * hidden, dtype))

    def zeros(self, batch: int) -> Tensor:
        """Return an initial state of zeros, (batch, H)."""
        return Tensor(np.zeros((batch, self.hidden), self.w.dtype))

    def extra_repr(self) -> str:
        return f"{self.w.shape[0]}, {self.hidden}"


class RNNCell(_Weights):
    """One step of a simple recurrent network.

    Equation: h' = f(x w + h u + b).
    Shapes: x (B, d_in), h (B, H) -> h' (B, H).
    Source: J. L. Elman, "Finding structure in time", Cognitive Science 14 (1990).
    """

    def __init__(
        self, d_in: int, hidden: int, *, rng: np.random.Generator, activation: str = "tanh", dtype: Any = np.float32
    ) -> None:
        super().__init__(d_in, hidden, rng=rng, dtype=dtype)
        if activation not in _ACTIVATIONS:
            raise ValueError(f"RNNCell: activation {activation!r}; expected one of {', '.join(_ACTIVATIONS)}")
        self.activation = activation

    def forward(self, x: Any, h: Any) -> Tensor:
        return _ACTIVATIONS[self.activation](ops.linear(x, self.w, self.b) + h @ self.u)

    def sequence(self, x: Any, state: Any, lengths: Any) -> tuple[Tensor, Tensor]:
        """Run the fused op over (B, T, d_in) from a state (B, H)."""
        return ops.rnn(x, state, self.w, self.u, self.b, activation=self.activation, lengths=lengths)


class LSTMCell(_Weights):
    """One step of a long short-term memory; the forget gate's bias begins at 1.

    Equation: i, f, g, o = σ, σ, tanh, σ of the four parts of x w + h u + b; c' = f c + i g; h' = o tanh(c').
    Shapes: x (B, d_in), h and c (B, H) -> h', c' (B, H).
    Source: F. A. Gers, J. Schmidhuber and F. Cummins, Neural Computation 12 (2000), equations 3.1 to 3.7; the bias:
    R. Jozefowicz, W. Zaremba and I. Sutskever, ICML 2015.
    """

    gates = 4

    def __init__(self, d_in: int, hidden: int, *, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        super().__init__(d_in, hidden, rng=rng, dtype=dtype)
        self.b.data[hidden : 2 * hidden] = 1

    def forward(self, x: Any, state: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        h, c = state
        i, f, g, o = ops.split(ops.linear(x, self.w, self.b) + h @ self.u, 4, axis=-1)
        c = ops.logistic(f) * c + ops.logistic(i) * ops.tanh(g)
        return ops.logistic(o) * ops.tanh(c), c

    def sequence(self, x: Any, state: tuple[Any, Any], lengths: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run the fused op over (B, T, d_in) from states (B, H)."""
        y, h, c = ops.lstm(x, *state, self.w, self.u, self.b, lengths=lengths)
        return y, (h, c)

    def zeros(self, batch: int) -> Any:
        return super().zeros(batch), super().zeros(batch)


class GRUCell(_Weights):
    """One step of a gated recurrent unit.

    Equation: r, z = σ(a_r + s_r), σ(a_z + s_z) with a = x w + b, s = h u + bu; n = tanh(a_n + r s_n), or with
    ``reset_after=False`` n = tanh(a_n + (r h) u_n + bu_n); h' = (1 - z) n + z h.
    Shapes: x (B, d_in), h (B, H) -> h' (B, H).
    Source: K. Cho et al., arXiv 1406.1078, equations 5 to 8.
    """

    gates = 3

    def __init__(
        self, d_in: int, hidden: int, *, rng: np.random.Generator, reset_after: bool = True, dtype: Any = np.float32
    ) -> None:
        super().__init__(d_in, hidden, rng=rng, dtype=dtype)
        self.bu = Parameter(np.zeros(3 * hidden, dtype))
        self.reset_after = reset_after

    def forward(self, x: Any, h: Any) -> Tensor:
        H = self.hidden
        a = ops.linear(x, self.w, self.b)
        if self.reset_after:
            s = ops.linear(h, self.u, self.bu)
            r, z = ops.logistic(a[:, :H] + s[:, :H]), ops.logistic(a[:, H : 2 * H] + s[:, H : 2 * H])
            n = ops.tanh(a[:, 2 * H :] + r * s[:, 2 * H :])
        else:
            s = ops.linear(h, self.u[:, : 2 * H], self.bu[: 2 * H])
            r, z = ops.logistic(a[:, :H] + s[:, :H]), ops.logistic(a[:, H : 2 * H] + s[:, H:])
            n = ops.tanh(a[:, 2 * H :] + ops.linear(r * h, self.u[:, 2 * H :], self.bu[2 * H :]))
        return (1 - z) * n + z * h

    def sequence(self, x: Any, state: Any, lengths: Any) -> tuple[Tensor, Tensor]:
        """Run the fused op over (B, T, d_in) from a state (B, H)."""
        return ops.gru(x, state, self.w, self.u, self.b, self.bu, reset_after=self.reset_after, lengths=lengths)


# --- layers -------------------------------------------------------------------------------------------------------


class _Recurrent(Module):
    """Layers of cells over a sequence; see :class:`LSTM`."""

    Cell: Any = None

    def __init__(
        self, d_in: int, hidden: int, *, rng: np.random.Generator, layers: int = 1, bidirectional: bool = False,
        dropout: float = 0.0, seed: int = 0, dtype: Any = np.float32, **options: Any,
    ) -> None:  # fmt: skip
        _positive(type(self).__name__, layers=layers)
        self.bidirectional = bidirectional
        ways = 1 + bidirectional
        self.cells = [
            [self.Cell(d_in if i == 0 else ways * hidden, hidden, rng=rng, dtype=dtype, **options) for _ in range(ways)]
            for i in range(layers)
        ]
        self.drops = [Dropout(dropout, seed=seed + i) for i in range(layers - 1)]

    def forward(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Tensor, list[Any]]:
        """Return the outputs of the last layer and the final states of all.

        Args:
            x: (B, T, d_in).
            state: what an earlier call returned, or None for zeros; detach it for truncated backpropagation
                (:func:`detach`).
            lengths: (B,) integers from 1 to T, how many steps of each row are real; None: all.

        Returns:
            Outputs (B, T, H), or (B, T, 2 H) in both directions, 0 beyond each length; and a list of final states, one for each
            cell, in the order layer by layer, forwards before backwards.
        """
        shape = x.shape if isinstance(x, Tensor) else as_array(x).shape
        if len(shape) != 3:
            raise ValueError(f"{type(self).__name__}: x {shape}: expected (batch, time, features)")
        B, T, _ = shape
        cells = [cell for layer in self.cells for cell in layer]
        states = [cell.zeros(B) for cell in cells] if state is None else list(state)
        if len(states) != len(cells):
            raise ValueError(f"{type(self).__name__}: got {len(states)} states, expected {len(cells)}, one for each cell")
        back = _reversal(lengths, B, T)
        final: list[Any] = []
        for i, layer in enumerate(self.cells):
            if i:
                x = self.drops[i - 1](x)
            outputs = []
            for way, cell in enumerate(layer):
                y, last = cell.sequence(_reverse(x, back) if way else x, states[len(final)], lengths)
                outputs.append(_reverse(y, back) if way else y)
                final.append(last)
            x = ops.concatenate(outputs, axis=2) if self.bidirectional else outputs[0]
        return x, final


class RNN(_Recurrent):
    """Simple recurrent layers; ``activation`` is tanh, relu, logistic or arctan. See :class:`LSTM` for the rest."""

    Cell = RNNCell


class LSTM(_Recurrent):
    """Long short-term memory layers over sequences, batch first.

    Args:
        d_in, hidden: features of the input and of each layer's state.
        layers: how many, each on top of the former.
        bidirectional: a second cell reads each sequence from its own end, whatever the padding; outputs are joined.
        dropout: between layers.

    Shapes: x (B, T, d_in) -> (B, T, H) and the final states; see ``forward``.

    Example:
        >>> lstm = LSTM(3, 4, rng=np.random.default_rng(0), layers=2, bidirectional=True)
        >>> y, state = lstm(np.zeros((5, 7, 3), np.float32), lengths=[7, 1, 2, 3, 4])
        >>> y.shape, len(state)
        ((5, 7, 8), 4)
    """

    Cell = LSTMCell


class GRU(_Recurrent):
    """Gated recurrent layers; ``reset_after=False`` for the reset gate before the product. See :class:`LSTM`."""

    Cell = GRUCell


def detach(state: Any) -> Any:
    """Return states cut from the tape: the next call starts from their values, and gradients stop there.

    Source: truncated backpropagation through time: R. J. Williams and J. Peng, Neural Computation 2 (1990).
    """
    if isinstance(state, (list, tuple)):
        return type(state)(detach(s) for s in state)
    return state.detach()


def _reversal(lengths: Any, B: int, T: int) -> np.ndarray | None:
    """Return, for sequences of given lengths, the row of x (B T, D) from which each step is read backwards: (B, T)."""
    if lengths is None:
        return None
    steps, n = np.arange(T), np.asarray(lengths)[:, None]
    return np.where(steps < n, n - 1 - steps, steps) + T * np.arange(B)[:, None]


def _reverse(x: Any, order: np.ndarray | None) -> Tensor:
    if order is None:
        return ops.flip(x, 1)
    return ops.embedding(order, ops.reshape(x, (order.size, x.shape[2])))
