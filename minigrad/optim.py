"""Optimizers over one flat block of parameters, schedules, and gradient clipping.

An optimizer moves its parameters into one array (:class:`minigrad.engine.FlatBlock`) and updates all of them with one kernel
over that array. A parameter whose gradient is None is left alone, with its state; one whose gradient is zero is not.
Step count and rate are 0-d arrays that launches advance, so that a recorded step goes on counting when it is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import numpy as np

from .engine import FlatBlock, Tensor, flatten
from .kernels import K, launch, new

__all__ = [
    "LAMB", "LARS", "SGD", "Adam", "AdamW", "Optimizer", "clip_grad_norm", "constant", "cosine", "linear_scaling",
    "step_decay", "warm_up",
]  # fmt: skip

Schedule = Callable[[int], float]

# --- schedules: functions of the global step, counted from 0 ------------------------------------------------------


def constant(rate: float) -> Schedule:
    """The same rate always."""
    return lambda step: rate


def step_decay(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """rate · factor^⌊step / every⌋."""
    if every < 1:
        raise ValueError(f"step_decay: every is {every}; expected a positive number of updates")
    return lambda step: rate * factor ** (step // every)


def cosine(rate: float, steps: int, floor: float = 0.0) -> Schedule:
    """From rate at step 0 along half a cosine to floor at ``steps`` and after.

    Source: I. Loshchilov and F. Hutter, arXiv 1608.03983, equation 5, without restarts.

    Example:
        >>> [round(cosine(1.0, 4)(step), 3) for step in (0, 2, 4, 9)]
        [1.0, 0.5, 0.0, 0.0]
    """
    if steps < 1:
        raise ValueError(f"cosine: steps is {steps}; expected a positive number of updates")
    return lambda step: floor + (rate - floor) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))


def warm_up(schedule: Schedule | float, steps: int) -> Schedule:
    """schedule, times (step + 1)/steps in the first ``steps`` updates: the first one uses 1/steps of the rate, not 0.

    Source: P. Goyal et al., arXiv 1706.02677, section 2.2.

    Example:
        >>> [warm_up(1.0, 4)(step) for step in (0, 3, 4)]
        [0.25, 1.0, 1.0]
    """
    if steps < 1:
        raise ValueError(f"warm_up: steps is {steps}; expected a positive number of updates")
    base = schedule if callable(schedule) else constant(schedule)
    return lambda step: base(step) * min((step + 1) / steps, 1.0)


def linear_scaling(rate: float, batch: int, reference: int = 256) -> float:
    """The rate for a global batch, given the rate for a reference batch: rate · batch / reference.

    Source: P. Goyal et al., arXiv 1706.02677, section 2.1.
    """
    return rate * batch / reference


# --- optimizers ---------------------------------------------------------------------------------------------------


class Optimizer:
    """What all optimizers share: the flat block, the step count, the rate, and their state for saving.

    Args:
        parameters: leaf tensors that require gradients; tied ones count once.
        lr: the rate, or a schedule of the step.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float | Schedule) -> None:
        if isinstance(parameters, Tensor):
            raise TypeError(f"{type(self).__name__}: parameters is one tensor; expected a list, e.g. model.parameters()")
        if not callable(lr):
            _at_least_0(type(self).__name__, lr=lr)
        self.block: FlatBlock = flatten(parameters)
        self.lr = lr
        self._steps = np.zeros((), np.int64)
        self._rate = np.zeros((), np.float64)
        self._set_rate()
        self.state: dict[str, np.ndarray] = {}

    @property
    def steps(self) -> int:
        """How many updates have been made."""
        return int(self._steps)

    @property
    def rate(self) -> float:
        """The rate of the next update."""
        return float(self.lr(self.steps)) if callable(self.lr) else float(self.lr)

    def _set_rate(self) -> None:
        """Put the rate of this update into ``_rate``, by a launch that reads the step count."""
        launch(_evaluate, self._steps, self.lr, out=self._rate)

    def _new_state(self, *names: str) -> None:
        for name in names:
            self.state[name] = np.zeros(self.block.size, self.block.dtype)

    def zero_grad(self) -> None:
        """Forget all gradients: ``.grad`` becomes None."""
        self.block.check().zero_grad()

    def clip(self, max_norm: float) -> float:
        """Clip the gradients to a global norm; see :func:`clip_grad_norm`."""
        return clip_grad_norm(self.block, max_norm)

    def step(self) -> None:
        """Update every parameter that has a gradient.

        Raises:
            RuntimeError: if none has one.
        """
        runs = self.block.check().runs()
        if not runs:
            raise RuntimeError(f"{type(self).__name__}: no parameter has a gradient; call loss.backward() before step()")
        self._set_rate()
        launch(K.advance, np.int64(1), out=self._steps)
        for run in runs:
            self._update(run)

    def _update(self, run: slice) -> None:
        raise TypeError(f"{type(self).__name__} defines no _update(run); use SGD, Adam, AdamW, LARS or LAMB")

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return copies of the step count and of the moving averages, in the order of the parameters."""
        return {"steps": self._steps.copy(), **{name: a.copy() for name, a in self.state.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: if the names or sizes are those of another optimizer or model.
        """
        expected = {"steps": self._steps.shape, **{name: a.shape for name, a in self.state.items()}}
        got = {name: np.shape(a) for name, a in state.items()}
        if got != expected:
            raise ValueError(f"load_state_dict: {type(self).__name__} expects {expected}, got {got}")
        self._steps[...] = state["steps"]
        for name, a in self.state.items():
            a[...] = state[name]


def _evaluate(steps: np.ndarray, lr: float | Schedule, rate: np.ndarray) -> None:
    """rate = lr(steps): a kernel, evaluated anew when a recorded step is replayed."""
    value = lr(int(steps)) if callable(lr) else lr
    if not 0 <= value < math.inf:  # a negative rate would climb
        raise ValueError(f"the schedule gives the rate {value} at step {steps}; expected a finite number >= 0")
    rate[...] = value


class SGD(Optimizer):
    """Stochastic gradient descent with momentum.

    Equation: g += λ w; v = m v + g (first v = g); w -= η v, or with Nesterov's momentum w -= η (g + m v).
    Source: momentum as I. Sutskever et al., ICML 2013, equations 1 to 4, with the rate outside the velocity.

    Example:
        >>> w = Tensor([1.0], requires_grad=True)
        >>> sgd = SGD([w], lr=0.1)
        >>> (w * w).backward()
        >>> sgd.step()
        >>> w.data
        array([0.8], dtype=float32)
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float | Schedule, momentum: float = 0.0, nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        _at_least_0("SGD", momentum=momentum, weight_decay=weight_decay)
        if nesterov and momentum == 0:
            raise ValueError("SGD: nesterov=True needs a momentum above 0")
        super().__init__(parameters, lr)
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        if momentum:
            self._new_state("velocity")

    def _update(self, run: slice) -> None:
        w, g = self.block.values[run], self.block.grads[run]
        if self.momentum:
            v = self.state["velocity"][run]
            launch(K.sgd_momentum, g, self._rate, self.momentum, self.nesterov, self.weight_decay, out=(w, v))
        else:
            launch(K.sgd, g, self._rate, self.weight_decay, out=w)


class Adam(Optimizer):
    """Adam; weight decay is added to the gradient.

    Equation: m = β1 m + (1 - β1) g; v = β2 v + (1 - β2) g²; w -= η m̂ / (√v̂ + ε), with m̂ = m/(1 - β1^t), v̂ = v/(1 - β2^t).
    The count t is of the optimizer's updates, also for a parameter that had no gradient in some.
    Source: D. Kingma and J. Ba, arXiv 1412.6980, algorithm 1.
    """

    decoupled = False

    def __init__(
        self, parameters: Iterable[Tensor], lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        _betas(type(self).__name__, betas)
        _at_least_0(type(self).__name__, eps=eps, weight_decay=weight_decay)
        super().__init__(parameters, lr)
        _not_0(type(self).__name__, eps, self.block.dtype)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self._new_state("first", "second")

    def _update(self, run: slice) -> None:
        w, m, v = self.block.values[run], self.state["first"][run], self.state["second"][run]
        settings = (*self.betas, self.eps, self.weight_decay, self.decoupled)
        launch(K.adam, self.block.grads[run], self._rate, self._steps, *settings, out=(w, m, v))


class AdamW(Adam):
    """Adam with decoupled weight decay: w -= η λ w beside Adam's step.

    Source: I. Loshchilov and F. Hutter, arXiv 1711.05101, algorithm 2.
    """

    decoupled = True

    def __init__(
        self, parameters: Iterable[Tensor], lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.01,
    ) -> None:  # fmt: skip
        super().__init__(parameters, lr, betas, eps, weight_decay)


class LARS(Optimizer):
    """SGD with momentum whose rate is scaled for each parameter by the ratio of its norm to its gradient's.

    Equation: r = τ |w| / (|g| + λ |w|), 1 where |w| or |g| is 0; v = m v + η r (g + λ w); w -= v.
    Source: Y. You, I. Gitman and B. Ginsburg, arXiv 1708.03888, algorithm 1 (τ is its trust coefficient).
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float | Schedule, momentum: float = 0.9, weight_decay: float = 0.0,
        trust: float = 1e-3,
    ) -> None:  # fmt: skip
        _at_least_0("LARS", momentum=momentum, weight_decay=weight_decay, trust=trust)
        super().__init__(parameters, lr)
        self.momentum, self.weight_decay, self.trust = momentum, weight_decay, trust
        self._new_state("velocity")

    def _update(self, run: slice) -> None:
        for part in _parts(self.block, run):
            w, v = self.block.values[part], self.state["velocity"][part]
            launch(K.lars, self.block.grads[part], self._rate, self.momentum, self.weight_decay, self.trust, out=(w, v))


class LAMB(Optimizer):
    """Adam's step, scaled for each parameter to the norm of the parameter.

    Equation: u = m̂ / (√v̂ + ε) + λ w; w -= η (|w| / |u|) u, the ratio being 1 where |w| or |u| is 0.
    Source: Y. You et al., arXiv 1904.00962, algorithm 2.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6, weight_decay: float = 0.01,
    ) -> None:  # fmt: skip
        _betas("LAMB", betas)
        _at_least_0("LAMB", eps=eps, weight_decay=weight_decay)
        super().__init__(parameters, lr)
        _not_0("LAMB", eps, self.block.dtype)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self._new_state("first", "second")

    def _update(self, run: slice) -> None:
        for part in _parts(self.block, run):
            w, m, v = self.block.values[part], self.state["first"][part], self.state["second"][part]
            settings = (*self.betas, self.eps, self.weight_decay)
            launch(K.lamb, self.block.grads[part], self._rate, self._steps, *settings, out=(w, m, v))


def _parts(block: FlatBlock, run: slice) -> list[slice]:
    return [part for part in block.slices if run.start <= part.start < run.stop]


def _at_least_0(name: str, **values: float) -> None:
    for label, value in values.items():
        if not isinstance(value, Real) or not value >= 0:
            raise ValueError(f"{name}: {label} is {value!r}; expected a number >= 0")


def _not_0(name: str, eps: float, dtype: np.dtype) -> None:
    if dtype.type(eps) == 0:  # a gradient of 0 would then be 0/0
        raise ValueError(f"{name}: eps is {eps}, which is 0 in {dtype}; expected a number above, e.g. 1e-4 in float16")


def _betas(name: str, betas: tuple[float, float]) -> None:
    if np.shape(betas) != (2,) or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name}: betas are {betas}; expected two numbers from 0 to below 1")


# --- clipping -----------------------------------------------------------------------------------------------------


def clip_grad_norm(block: FlatBlock | Optimizer, max_norm: float) -> float:
    """Scale all gradients by min(1, max_norm / norm) and return the norm they had, accumulated in float64.

    Source: R. Pascanu, T. Mikolov and Y. Bengio, arXiv 1211.5063, algorithm 1.

    Raises:
        FloatingPointError: naming the parameter whose gradient is not finite; gradients are then untouched.
        ValueError: unless max_norm is positive.
    """
    block = block.block if isinstance(block, Optimizer) else block
    if not max_norm > 0:
        raise ValueError(f"clip_grad_norm: max_norm is {max_norm}; expected a positive number")
    norm = new((), np.float64)
    runs = block.check().runs()
    launch(K.global_norm, *(block.grads[run] for run in runs), out=norm)
    launch(_require_finite, block, out=norm)
    for run in runs:
        launch(K.clip_to_norm, norm, max_norm, out=block.grads[run])
    return float(norm)


def _require_finite(block: FlatBlock, norm: np.ndarray) -> None:
    """Raise if the norm is not finite: a kernel, so that a replayed step looks too."""
    if np.isfinite(norm):
        return
    for p in block.parameters:
        if p.grad is not None and not np.all(np.isfinite(p.grad)):
            raise FloatingPointError(
                f"clip_grad_norm: the gradient of {p.name or 'a parameter'} {p.shape} is not finite; lower the rate, "
                "or look for a division by 0 or a logarithm of 0 in the loss"
            )
