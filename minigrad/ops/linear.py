"""Products of matrices: matmul, linear, einsum. The work is BLAS's; the vjps are again products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, contiguous, launch, new

__all__ = ["einsum", "linear", "matmul"]
METHODS: tuple[str, ...] = ("matmul",)


@op(analytic=True)
def matmul(x, y, /):
    """The matrix product, over the last two axes; the axes before them are broadcast.

    Equation: z = x y, gx = gz yᵀ, gy = xᵀ gz, summed over broadcast axes.
    Shapes: (..., n, k) and (..., k, m) -> (..., n, m); a vector (k,) stands for a row on the left, a column on the
    right, and its axis is dropped from the result.

    Raises:
        ValueError: if the inner sizes differ, or an operand has no axes.

    Example:
        >>> matmul([[1.0, 2.0]], [3.0, 4.0])
        Tensor([11.])
    """
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError(f"matmul: x {x.shape} and y {y.shape}: both need an axis; multiply scalars with *")
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ValueError(
            f"matmul: x {x.shape} and y {y.shape}: the last axis of x must equal "
            f"{'the rows' if y.ndim > 1 else 'the size'} of y ({x.shape[-1]} != {inner})"
        )
    x2 = x[None, :] if x.ndim == 1 else x  # (..., n, k)
    y2 = y[:, None] if y.ndim == 1 else y  # (..., k, m)
    try:
        lead = np.broadcast_shapes(x2.shape[:-2], y2.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: x {x.shape} and y {y.shape}: the axes before the last two do not broadcast") from None
    z = launch(np.matmul, x2, y2, out=new((*lead, x2.shape[-2], y2.shape[-1]), np.result_type(x, y)))
    inside = (*z.shape[:-2], *(z.shape[-2:-1] if x.ndim > 1 else ()), *(z.shape[-1:] if y.ndim > 1 else ()))
    full = z.shape

    def vjp(gz):
        g = gz.reshape(full)

        def gx():
            return _sum_lead(launch(np.matmul, g, _t(y2)), x2.shape).reshape(x.shape)

        def gy():
            if y2.ndim == 2 and x2.ndim > 2:  # one product instead of a batch of them and a sum
                return launch(np.matmul, _rows(x2).T, _rows(g)).reshape(y.shape)
            return _sum_lead(launch(np.matmul, _t(x2), g), y2.shape).reshape(y.shape)

        return gx, gy

    return z.reshape(inside), vjp


@op(analytic=True)
def linear(x, w, b=None, /):
    """An affine map of the last axis.

    Equation: y = x w + b; gx = gy wᵀ, gw = Σ xᵀ gy, gb = Σ gy.
    Shapes: x (..., D_in), w (D_in, D_out), b (D_out) -> (..., D_out).

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> linear([[1.0, 2.0]], [[1.0], [10.0]], [0.5])
        Tensor([[21.5]])
    """
    if w.ndim != 2 or x.ndim == 0 or x.shape[-1] != w.shape[0]:
        sizes = f" ({x.shape[-1]} != {w.shape[0]})" if w.ndim == 2 and x.ndim else ""
        hint = "; did you forget to flatten the image?"
        raise ValueError(
            f"linear: x {x.shape} and w {w.shape}: the last axis of x must equal the rows of w{sizes}{hint}"
        )
    if b is not None and b.shape != w.shape[1:]:
        raise ValueError(f"linear: b {b.shape} and w {w.shape}: b needs one value for each column of w ({w.shape[1]})")
    rows = _rows(x)  # (N, D_in)
    y = launch(np.matmul, rows, w)
    if b is not None:
        launch(np.add, y, b, out=y)
    shape, biased = x.shape, b is not None

    def vjp(gy):
        g = _rows(gy)  # (N, D_out)

        def gx():
            return launch(np.matmul, g, w.T).reshape(shape)

        def gb():
            return launch(K.sum, g, 0, False, out=new(g.shape[1:], g.dtype))

        return gx, lambda: launch(np.matmul, rows.T, g), gb if biased else None

    return y.reshape(*shape[:-1], w.shape[1]), vjp


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Multiply operands and sum over the letters that are not in the output.

    Equation: ``einsum("ik,kj->ij", x, y)`` is the matrix product; without ``->`` the output holds the letters that occur
    once, in alphabetical order. The gradient of an operand is the einsum of the cotangent with the other operands.

    Raises:
        TypeError: if the subscripts are no string.
        ValueError: for a letter repeated within one operand or an ellipsis (neither is supported), a wrong number of
            operands or axes, sizes that differ, or an output letter that no operand has.

    Example:
        >>> einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
        Tensor([3., 7.])
    """
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum: expected subscripts such as 'ij,jk->ik' first, got {type(subscripts).__name__}")
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if not all(c.isascii() and c.isalpha() for c in inputs.replace(",", "") + output):
        raise ValueError(f"einsum: {subscripts!r}: only letters, commas and '->' are supported, no ellipsis")
    if len(terms) != len(operands):
        raise ValueError(f"einsum: {subscripts!r} names {len(terms)} operands, got {len(operands)}")
    sizes: dict[str, int] = {}
    for i, (term, operand) in enumerate(zip(terms, operands)):
        shape = operand.shape if isinstance(operand, Tensor) else as_array(operand).shape
        if len(set(term)) != len(term):
            raise ValueError(f"einsum: {term!r} repeats a letter within one operand; take its diagonal by indexing first")
        if len(shape) != len(term):
            raise ValueError(f"einsum: operand {i} is {shape}, but {term!r} names {len(term)} axes")
        for c, n in zip(term, shape):
            if sizes.setdefault(c, n) != n:
                raise ValueError(f"einsum: {subscripts!r}: axis {c!r} has size {sizes[c]} and, in operand {i}, {n}")
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ValueError(f"einsum: output {output!r} must hold letters of the operands, each once")
    return _einsum(*operands, terms=tuple(terms), output=output)


@op(name="einsum", analytic=True)
def _einsum(*operands, terms, output):
    sizes = {c: n for term, a in zip(terms, operands) for c, n in zip(term, a.shape)}
    dtype = np.result_type(*operands)
    y = launch(K.einsum, f"{','.join(terms)}->{output}", *operands, out=new([sizes[c] for c in output], dtype))

    def vjp(gy):
        def gradient(i):
            others = [k for k in range(len(terms)) if k != i]
            present = set(output).union(*(terms[k] for k in others))
            kept = "".join(c for c in terms[i] if c in present)  # letters summed within this operand alone: broadcast
            formula = ",".join([output, *(terms[k] for k in others)]) + "->" + kept
            shape = [sizes[c] for c in kept]
            g = launch(K.einsum, formula, gy, *(operands[k] for k in others), out=new(shape, gy.dtype))
            for axis, c in enumerate(terms[i]):
                if c not in present:
                    g = np.expand_dims(g, axis)
            return g if g.shape == operands[i].shape else launch(K.copy, g, out=new(operands[i].shape, g.dtype))

        return tuple((lambda i=i: gradient(i)) for i in range(len(terms)))

    return y, vjp


def _rows(x: np.ndarray) -> np.ndarray:
    """View x, or a launched copy if its memory allows no view, as a matrix of its last axis: (..., D) -> (N, D)."""
    return x if x.ndim == 2 else contiguous(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _t(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _sum_lead(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum g over the leading axes along which an operand of the given shape was broadcast."""
    return g if g.shape == shape else launch(K.sum_to, g, out=new(shape, g.dtype))


Tensor.__matmul__ = matmul
Tensor.__rmatmul__ = lambda self, other: matmul(other, self)
