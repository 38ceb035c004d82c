"""Check gradients against numbers: for minigrad's own ops, and for yours.

:func:`gradcheck` needs no knowledge of the function: it compares the vector-Jacobian product with the derivative of the
same scalar, ⟨cotangent, f(x)⟩, along random directions, computed twice independently where it can be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .engine import Node, Tensor, backward, no_grad

__all__ = ["GradientError", "Report", "gradcheck"]


class GradientError(AssertionError):
    """A gradient that is wrong, and where."""


@dataclass
class Report:
    """What :func:`gradcheck` did.

    Attributes:
        ops: the ops that the function recorded, the last one first.
        methods: for each argument, how derivatives were taken: "complex step", "differences", or "one-sided" at kinks.
        error: the largest relative error found.
    """

    ops: list[str]
    methods: list[str] = field(default_factory=list)
    error: float = 0.0

    def __str__(self) -> str:
        return f"gradcheck passed: {' <- '.join(self.ops)}: {', '.join(self.methods)}; relative error {self.error:.1e}"


def gradcheck(f: Callable[..., Any], *arrays: Any, seed: int = 0, directions: int = 3, rtol: float = 1e-6) -> Report:
    """Check the gradients of f at arrays, in float64; raise if one is wrong.

    The cotangent is random, never all ones (which hides transposed and permuted gradients). Along each random direction d of
    each float argument, ⟨gradient, d⟩ is compared with the derivative of s(h) = ⟨cotangent, f(x + h d)⟩ at h = 0: by complex
    step, Im s(ih)/h with h = 1e-30, where every op in f accepts complex numbers, else by central differences of step 1e-3 to
    1e-6, extrapolated to 0. Where they disagree, one-sided derivatives tell whether f has a kink here; then the gradient must
    lie between them (a subgradient). A relative error of 1e-6, or what the extrapolation cannot resolve, passes.

    Also checked: inputs and cotangent are not modified; gradients have the shape and dtype of their arguments and share no
    memory with one another, the inputs or the cotangent.

    Args:
        f: a function of tensors that returns a tensor, or a tuple of tensors.
        arrays: its arguments; floats are checked (converted to float64), integers and booleans are passed on.
        directions: how many random directions are tried for each argument.

    Source: complex step: W. Squire and G. Trapp, SIAM Review 40 (1998); extrapolation: C. Ridders, Advances in Engineering
    Software 4 (1982).

    Raises:
        GradientError: naming op, argument, index, the expected and the actual value and the relative error.

    Example:
        >>> import minigrad as mg
        >>> report = gradcheck(mg.multiply, np.array([1.0, 2.0]), np.array([[3.0], [4.0]]))
        >>> report.ops, report.methods
        (['multiply'], ['complex step', 'complex step'])
    """
    rng = np.random.default_rng(seed)
    values = [np.asarray(a.data if isinstance(a, Tensor) else a) for a in arrays]
    values = [a.astype(np.float64) if a.dtype.kind == "f" and a.dtype != np.float64 else a for a in values]
    before = [a.copy() for a in values]
    leaves = [Tensor(a, requires_grad=a.dtype.kind == "f") for a in values]
    outputs = _outputs(f(*leaves))
    cotangents = [_cotangent(rng, y.data) for y in outputs]
    kept = [c.copy() for c in cotangents]
    ops = _recorded(outputs)
    report = Report(ops)
    name = ops[0] if len(ops) == 1 else f"{ops[0]} (of {', '.join(dict.fromkeys(ops))})" if ops else "f"
    tracked = [(y, c) for y, c in zip(outputs, cotangents) if y.requires_grad]
    try:
        if tracked:
            backward([y for y, _ in tracked], [c for _, c in tracked])
    except ValueError as fault:
        raise GradientError(f"gradcheck: {fault}") from fault
    for what, now, then in (("argument", values, before), ("cotangent", cotangents, kept)):
        for i, (a, b) in enumerate(zip(now, then)):
            if not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
                raise GradientError(f"gradcheck: {name}: {what} {i} was modified; ops must not write into what they are given")
    _check_memory(name, leaves, values, cotangents)

    def along(i: int, d: np.ndarray, h: Any) -> Any:
        """Σ ⟨cotangent, f(..., x_i + h d, ...)⟩."""
        with no_grad(), np.errstate(all="ignore"):
            moved = [Tensor(a + h * d if k == i else a) for k, a in enumerate(values)]
            ys = _outputs(f(*moved))
            return sum(np.sum(y.data * c) for y, c in zip(ys, cotangents) if y.dtype.kind in "fc")

    for i, leaf in enumerate(leaves):
        if not leaf.requires_grad:
            continue
        gradient = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad
        method = "nothing to vary"
        for _ in range(directions if leaf.size else 0):
            d = rng.uniform(0.3, 1, leaf.shape) * rng.choice([-1, 1], leaf.shape) * np.maximum(np.abs(values[i]), 1)
            method, error = _compare(lambda h, i=i, d=d: along(i, d, h), gradient, d)
            if error > rtol or method == "one-sided":  # a kink of one element may hide an error in another
                blame = _blame(name, i, gradient, lambda d, h, i=i: along(i, d, h), values[i], error, method, rtol)
                if blame:
                    raise GradientError(blame)
                method, error = "one-sided", 0.0
            report.error = max(report.error, error)
        report.methods.append(method)
    return report


def _outputs(y: Any) -> list[Tensor]:
    ys = list(y) if isinstance(y, (tuple, list)) else [y]
    for one in ys:
        if not isinstance(one, Tensor):
            raise TypeError(f"gradcheck: f returned {type(one).__name__}; expected a Tensor or a tuple of Tensors")
        if one.dtype == np.float32:
            raise GradientError("gradcheck: f returned float32 for float64 arguments; a constant inside is float32")
    return ys


def _cotangent(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1, 1], y.shape)


def _recorded(outputs: Sequence[Tensor]) -> list[str]:
    """Return the names of the recorded ops, from the outputs inwards."""
    nodes = dict.fromkeys(y._node for y in outputs if y._node is not None)
    stack = list(nodes)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and type(edge[0]) is Node and edge[0] not in nodes:
                nodes[edge[0]] = None
                stack.append(edge[0])
    return [node.op.name for node in nodes]


def _check_memory(name: str, leaves: list[Tensor], values: list[Any], cotangents: list[Any]) -> None:
    grads = [(f"the gradient of argument {i}", leaf.grad) for i, leaf in enumerate(leaves) if leaf.grad is not None]
    others = [(f"argument {i}", a) for i, a in enumerate(values)] + [(f"cotangent {i}", c) for i, c in enumerate(cotangents)]
    for k, (what, gradient) in enumerate(grads):
        for other, array in [*grads[:k], *others]:
            if np.shares_memory(gradient, array):
                raise GradientError(f"gradcheck: {name}: {what} shares memory with {other}; a gradient must own its memory")


# --- derivatives of a function of one number ----------------------------------------------------------------------


def _compare(s: Callable[[Any], Any], gradient: np.ndarray, d: np.ndarray) -> tuple[str, float]:
    """Return how the derivative of s at 0 was found, and the relative error of ⟨gradient, d⟩ against it."""
    got = float(np.sum(gradient * d))
    floor = 1e-2 * float(np.sum(np.abs(gradient * d)))  # where the sum cancels, errors are measured against its terms
    if not np.isfinite(got):
        return "gradient", np.inf
    exact = _complex_step(s)
    if exact is not None:
        error = _relative(got, exact, floor)
        if error < 1e-9:
            return "complex step", error
    at = float(s(0.0))
    if not np.isfinite(at):
        return "value", np.inf
    noise = 1e-15 * abs(at)
    steep = max(abs(float(s(1e-3)) - at), abs(float(s(-1e-3)) - at)) / 1e-3
    floor = max(floor, 1e-4 * steep if np.isfinite(steep) else 0.0)  # at an extremum the derivative is 0, its rounding not
    best, spread = _extrapolate(lambda h: (s(h) - s(-h)) / (2 * h), 2, noise)
    error = _relative(got, best, floor, spread)
    if error <= 1e-6:
        return "differences", error
    right, right_spread = _extrapolate(lambda h: (s(h) - at) / h, 1, noise)
    left, left_spread = _extrapolate(lambda h: (at - s(-h)) / h, 1, noise)
    slack = 1e-5 * max(abs(left), abs(right), floor) + right_spread + left_spread
    if abs(right - left) > slack and min(left, right) - slack <= got <= max(left, right) + slack:
        return "one-sided", 0.0
    return "differences", max(error, 0.0) if np.isfinite(error) else np.inf


def _relative(got: float, expected: float, floor: float, spread: float = 0.0) -> float:
    if not np.isfinite(expected):
        return np.inf
    return max(abs(got - expected) - spread, 0.0) / max(abs(expected), abs(got), floor, 1e-12)


def _complex_step(s: Callable[[Any], Any]) -> float | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            value = s(1e-30j)
    except (TypeError, Warning):
        return None
    if not np.iscomplexobj(value) or not np.isfinite(value):
        return None
    return float(value.imag * 1e30)


def _extrapolate(quotient: Callable[[float], float], power: int, noise: float) -> tuple[float, float]:
    """Return the limit of quotient(h) for h -> 0 and how far it may be off, from h = 1e-3 / 2^k, k = 0 to 10.

    Neville's scheme in h^power; of all its entries, the one that differs least from its neighbours is taken. ``noise`` is the
    rounding error of the function's values, which a small step magnifies.
    """
    best, spread = np.nan, np.inf
    row: list[float] = []
    for k in range(11):
        h = 1e-3 / 2**k
        new_row = [float(quotient(h))]
        for m, old in enumerate(row, 1):
            factor = 2.0 ** (power * m)
            new_row.append((factor * new_row[-1] - old) / (factor - 1))
            off = max(abs(new_row[-1] - new_row[-2]), abs(new_row[-1] - old)) + noise / h
            if off < spread:
                best, spread = new_row[-1], off
        row = new_row
    return best, 2 * spread


def _blame(
    name: str, i: int, gradient: np.ndarray, along: Callable[[np.ndarray, float], Any], x: np.ndarray, error: float,
    method: str, rtol: float,
) -> str:  # fmt: skip
    """Say which element is worst, "" if none is wrong: each is varied alone (the 200 first ones of a large array)."""
    if method == "value":
        return f"gradcheck: {name}: the value is not finite at these arguments; choose others"
    worst: tuple[float, tuple[int, ...], float, float] = (-1.0, (), np.nan, np.nan)
    kinks = False
    for index in list(np.ndindex(x.shape))[:200]:
        d = np.zeros(x.shape)
        d[index] = max(abs(float(x[index])), 1)
        how, off = _compare(lambda h, d=d: along(d, h), gradient, d)
        kinks = kinks or how == "one-sided"
        if off > worst[0]:
            expected = _complex_step(lambda h, d=d: along(d, h))
            if expected is None:
                expected, _ = _extrapolate(lambda h, d=d: (along(d, h) - along(d, -h)) / (2 * h), 2, 0.0)
            worst = (off, index, expected / d[index], float(gradient[index]))
    off, index, expected, got = worst
    # kinks of several elements, each with a subgradient: along d, one-sided derivatives need not enclose their sum
    if off <= rtol and (error <= rtol or (kinks and x.size <= 200)):
        return ""
    return (
        f"gradcheck: {name}: the gradient of argument {i} {x.shape} is wrong at index {index}: expected {expected:.10g}, "
        f"got {got:.10g}, relative error {max(off, 0):.2e} ({error:.2e} along a random direction)"
    )
