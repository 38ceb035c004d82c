"""Recurrent layers: one op for a whole sequence.

The input projection of all steps is one GEMM, each step is one GEMM and one kernel, and the weights' gradients are one
GEMM each over all steps. :mod:`minigrad.nn.recurrent` has the same cells from elementary ops, to be read first; tests
hold the two equal.

Shapes: x (B, T, D), states (B, H), w (D, G H), u (H, G H), b (G H) with G = 1 gate (RNN), 4 (LSTM: i f g o) or 3 (GRU:
r z n). ``lengths`` (B,) says how many steps of each row are real: outputs beyond are 0, the state stays, and neither
values nor gradients depend on what stands there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import op
from ..kernels import K, launch, new

__all__ = ["gru", "lstm", "rnn"]
METHODS: tuple[str, ...] = ()


@op(indices=True)
def rnn(x, h0, w, u, b, /, activation="tanh", lengths=None):
    """Return the outputs (B, T, H) and the final state (B, H) of a simple recurrent network.

    Equation: h_t = f(x_t w + h_(t-1) u + b), f one of tanh, relu, logistic, arctan.
    Source: J. L. Elman, "Finding structure in time", Cognitive Science 14 (1990), section 2.
    """
    _check("rnn", x, (h0,), w, u, b, 1)
    if activation not in ("tanh", "relu", "logistic", "arctan"):
        raise ValueError(f"rnn: activation {activation!r}; expected tanh, relu, logistic or arctan")
    alive = _alive("rnn", lengths, x)
    steps, a = _project(x, w, b, alive)  # (T, B, D), (T, B, H)
    hs = _states(a, h0)  # (T + 1, B, H)
    for t in range(len(a)):
        s = launch(np.matmul, hs[t], u)
        launch(K.rnn_cell, a[t], s, hs[t], _at(alive, t), activation, out=hs[t + 1])
    y = _batch_first(hs[1:], alive)

    def vjp(gys):
        gy, gh = gys
        dz, dh = new(a.shape, a.dtype), _copy(gh)
        for t in reversed(range(len(a))):
            launch(K.rnn_cell_vjp, gy[:, t], dh, hs[t + 1], _at(alive, t), activation, out=(dz[t], dh))
            launch(np.add, dh, launch(np.matmul, dz[t], u.T), out=dh)
        return *_input_gradients(steps, dz, w, dh), *_weight_gradients(steps, hs, dz)

    return (y, hs[-1]), vjp


@op(indices=True)
def lstm(x, h0, c0, w, u, b, /, lengths=None):
    """Return the outputs (B, T, H), the final state (B, H) and the final cell (B, H) of a long short-term memory.

    Equation: i, f, g, o = σ(a_i), σ(a_f), tanh(a_g), σ(a_o) with a = x_t w + h_(t-1) u + b;
    c_t = f c_(t-1) + i g; h_t = o tanh(c_t).
    Source: S. Hochreiter and J. Schmidhuber, Neural Computation 9 (1997); the forget gate: F. A. Gers et al., Neural
    Computation 12 (2000), equations 3.1 to 3.7.
    """
    _check("lstm", x, (h0, c0), w, u, b, 4)
    alive = _alive("lstm", lengths, x)
    steps, gates = _project(x, w, b, alive)  # (T, B, D), (T, B, 4 H)
    hs, cs = _states(gates, h0), _states(gates, c0)  # (T + 1, B, H)
    tanh_c = new((len(gates), *h0.shape), x.dtype)
    for t in range(len(gates)):
        s = launch(np.matmul, hs[t], u)
        out = (gates[t], cs[t + 1], tanh_c[t], hs[t + 1])
        launch(K.lstm_cell, s, cs[t], hs[t], _at(alive, t), out=out)
    y = _batch_first(hs[1:], alive)

    def vjp(gys):
        gy, gh, gc = gys
        dz, dh, dc = new(gates.shape, gates.dtype), _copy(gh), _copy(gc)
        for t in reversed(range(len(gates))):
            out = (dz[t], dh, dc)
            launch(K.lstm_cell_vjp, gy[:, t], dh, dc, gates[t], cs[t], tanh_c[t], _at(alive, t), out=out)
            launch(np.add, dh, launch(np.matmul, dz[t], u.T), out=dh)
        gx, gh0 = _input_gradients(steps, dz, w, dh)
        return gx, gh0, dc, *_weight_gradients(steps, hs, dz)

    return (y, hs[-1], cs[-1]), vjp


@op(indices=True)
def gru(x, h0, w, u, b, bu, /, reset_after=True, lengths=None):
    """Return the outputs (B, T, H) and the final state (B, H) of a gated recurrent unit.

    Equation: r, z = σ(a_r + s_r), σ(a_z + s_z) with a = x_t w + b, s = h_(t-1) u + bu;
    n = tanh(a_n + r s_n) (reset after), or n = tanh(a_n + (r h_(t-1)) u_n + bu_n) (reset before);
    h_t = (1 - z) n + z h_(t-1).
    Source: reset before: K. Cho et al., arXiv 1406.1078 v3 (2014), equations 5 to 8 (z is theirs);
    reset after: the form of cuDNN, arXiv 1406.1078 v1.
    """
    _check("gru", x, (h0,), w, u, b, 3)
    if bu.shape != b.shape:
        raise ValueError(f"gru: bu {bu.shape}: expected the shape of b {b.shape}")
    alive = _alive("gru", lengths, x)
    H = h0.shape[1]
    steps, gates = _project(x, w, b, alive)  # (T, B, D), (T, B, 3 H)
    hs = _states(gates, h0)  # (T + 1, B, H)
    sn = new((len(gates), *h0.shape), x.dtype)  # reset after: s_n; reset before: r h
    for t in range(len(gates)):
        live = _at(alive, t)
        if reset_after:
            s = launch(np.add, launch(np.matmul, hs[t], u), bu)
            launch(K.gru_cell, s, hs[t], live, out=(gates[t], sn[t], hs[t + 1]))
        else:
            s = launch(np.add, launch(np.matmul, hs[t], u[:, : 2 * H]), bu[: 2 * H])
            launch(K.gru_reset, s, hs[t], out=(gates[t], sn[t]))
            s = launch(np.add, launch(np.matmul, sn[t], u[:, 2 * H :]), bu[2 * H :])
            launch(K.gru_update, s, hs[t], live, out=(gates[t], hs[t + 1]))
    y = _batch_first(hs[1:], alive)

    def vjp(gys):
        gy, gh = gys
        dz, ds, dh = new(gates.shape, gates.dtype), new(gates.shape, gates.dtype), _copy(gh)
        for t in reversed(range(len(gates))):
            if reset_after:
                out = (dz[t], ds[t], dh)
                launch(K.gru_cell_vjp, gy[:, t], dh, gates[t], sn[t], hs[t], _at(alive, t), out=out)
                launch(np.add, dh, launch(np.matmul, ds[t], u.T), out=dh)
            else:
                launch(K.gru_update_vjp, gy[:, t], dh, gates[t], hs[t], _at(alive, t), out=(dz[t], dh))
                back = launch(np.matmul, dz[t, :, 2 * H :], u[:, 2 * H :].T)  # cotangent of r h
                launch(K.gru_reset_vjp, back, gates[t], hs[t], dh, out=(dz[t], dh))
                launch(np.add, dh, launch(np.matmul, dz[t, :, : 2 * H], u[:, : 2 * H].T), out=dh)
        gx, gh0 = _input_gradients(steps, dz, w, dh)
        gw, _, gb = _weight_gradients(steps, hs, dz)
        if reset_after:
            return gx, gh0, gw, lambda: _gemm(hs[:-1], ds), gb, lambda: _rows(ds)

        def gu_before():
            out = new(u.shape, u.dtype)
            launch(np.matmul, _flat(hs[:-1]).T, _flat(dz)[:, : 2 * H], out=out[:, : 2 * H])
            launch(np.matmul, _flat(sn).T, _flat(dz)[:, 2 * H :], out=out[:, 2 * H :])
            return out

        return gx, gh0, gw, gu_before, gb, gb

    return (y, hs[-1]), vjp


# --- shared by the three ------------------------------------------------------------------------------------------


def _check(name: str, x: Any, states: tuple[Any, ...], w: Any, u: Any, b: Any, gates: int) -> None:
    if x.ndim != 3:
        raise ValueError(f"{name}: x {x.shape}: expected (batch, time, features)")
    B, _, D = x.shape
    H = u.shape[0]
    expected = {"w": (w, (D, gates * H)), "u": (u, (H, gates * H)), "b": (b, (gates * H,))}
    expected |= {f"initial state {i}": (state, (B, H)) for i, state in enumerate(states)}
    for label, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(
                f"{name}: {label} is {array.shape}, expected {shape} from x {x.shape} and {H} units of {gates} gate(s)"
            )


def _alive(name: str, lengths: Any, x: np.ndarray) -> np.ndarray | None:
    """Return which steps are real, time first: (T, B, 1) bool; None if all are."""
    if lengths is None:
        return None
    lengths = np.asarray(lengths)
    if lengths.shape != x.shape[:1] or lengths.dtype.kind not in "iu":
        raise ValueError(f"{name}: lengths {lengths.shape} {lengths.dtype}: expected {x.shape[:1]} integers, one a row")
    if lengths.size and (lengths.min() < 1 or lengths.max() > x.shape[1]):
        row = int(np.argmax((lengths < 1) | (lengths > x.shape[1])))
        raise ValueError(
            f"{name}: lengths[{row}] is {lengths[row]}, expected 1 to T = {x.shape[1]}; drop empty sequences"
        )
    return launch(np.less, np.arange(x.shape[1])[:, None], lengths)[:, :, None]


def _at(alive: np.ndarray | None, t: int) -> np.ndarray | None:
    return None if alive is None else alive[t]


def _project(x: np.ndarray, w: np.ndarray, b: np.ndarray, alive: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return x time first (T, B, D), zero where it is padding, and x w + b for all steps (T, B, G H)."""
    B, T, D = x.shape
    steps = new((T, B, D), x.dtype)
    if alive is None:
        launch(K.copy, x.transpose(1, 0, 2), out=steps)
    else:
        launch(K.select, alive, x.transpose(1, 0, 2), out=steps)
    a = new((T, B, w.shape[1]), x.dtype)
    launch(np.matmul, _flat(steps), w, out=_flat(a))
    launch(np.add, a, b, out=a)
    return steps, a


def _states(a: np.ndarray, first: np.ndarray) -> np.ndarray:
    states = new((len(a) + 1, *first.shape), first.dtype)
    launch(K.copy, first, out=states[0])
    return states


def _batch_first(h: np.ndarray, alive: np.ndarray | None) -> np.ndarray:
    T, B, H = h.shape
    y = new((B, T, H), h.dtype)
    if alive is None:
        return launch(K.copy, h.transpose(1, 0, 2), out=y)
    return launch(K.select, alive.transpose(1, 0, 2), h.transpose(1, 0, 2), out=y)


def _copy(x: np.ndarray) -> np.ndarray:
    return launch(K.copy, x, out=new(x.shape, x.dtype))


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


def _gemm(a: np.ndarray, dz: np.ndarray) -> np.ndarray:
    return launch(np.matmul, _flat(a).T, _flat(dz))


def _rows(dz: np.ndarray) -> np.ndarray:
    return launch(K.sum, _flat(dz), 0, False, out=new(dz.shape[-1:], dz.dtype))


def _input_gradients(steps: Any, dz: Any, w: Any, dh: Any) -> tuple[Any, Any]:
    def gx():
        return launch(np.matmul, _flat(dz), w.T).reshape(steps.shape).transpose(1, 0, 2)

    return gx, dh


def _weight_gradients(steps: Any, hs: Any, dz: Any) -> tuple[Any, Any, Any]:
    return lambda: _gemm(steps, dz), lambda: _gemm(hs[:-1], dz), lambda: _rows(dz)
