"""Hypothesis strategies for testing ops, yours too: shapes, values and memory layouts on which ops tend to break.

>>> from hypothesis import given
>>> import minigrad as mg
>>> @given(arrays())
... def test_exp(x):
...     mg.gradcheck(mg.exp, x)
>>> test_exp()
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ModuleNotFoundError:
    raise ModuleNotFoundError("minigrad.testing needs hypothesis: pip install 'minigrad[test]'") from None

from .engine import Tensor

__all__ = ["arrays", "axes", "broadcastable", "indices", "layouts", "shapes", "tensors"]

Strategy = st.SearchStrategy


def shapes(min_dims: int = 0, max_dims: int = 3, min_side: int = 0, max_side: int = 4) -> Strategy[tuple[int, ...]]:
    """Shapes, of few and small axes, also of size 0 and 1."""
    return hnp.array_shapes(min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=max_side)


@st.composite
def broadcastable(draw: Any, n: int = 2, min_side: int = 0, max_dims: int = 3) -> tuple[tuple[int, ...], ...]:
    """n shapes that broadcast together: axes of size 1, and missing leading axes."""
    full = draw(shapes(0, max_dims, min_side))
    some = []
    for _ in range(n):
        kept = full[draw(st.integers(0, len(full))) :]
        some.append(tuple(1 if draw(st.booleans()) else size for size in kept))
    return tuple(some)


@st.composite
def layouts(draw: Any, array: np.ndarray) -> np.ndarray:
    """The same values in another memory layout: C, Fortran, every other element of a larger array, or reversed."""
    layout = draw(st.sampled_from(["C", "F", "sliced", "reversed"]))
    if layout == "F":
        return np.asfortranarray(array) if array.ndim else array
    if layout == "sliced" and array.ndim:
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), np.nan if array.dtype.kind == "f" else 0, array.dtype)
        view = wide[..., 1::2]
        view[...] = array
        return view
    if layout == "reversed" and array.ndim:
        back = (slice(None, None, -1),) * array.ndim
        return np.ascontiguousarray(array[back])[back]
    return array


@st.composite
def arrays(
    draw: Any, shape: Any = None, min_value: float = -2.0, max_value: float = 2.0, dtype: Any = np.float64
) -> np.ndarray:
    """Arrays of floats of a shape (or of any small one), in any memory layout; values are multiples of 1/64, often equal."""
    shape = draw(shapes()) if shape is None else shape if isinstance(shape, tuple) else draw(shape)
    low, high = int(np.ceil(min_value * 64)), int(np.floor(max_value * 64))
    whole = draw(hnp.arrays(np.int64, shape, elements=st.integers(low, high)))
    return draw(layouts(np.asarray(whole / 64, dtype)))


@st.composite
def tensors(draw: Any, shape: Any = None, requires_grad: bool = True, **kwargs: Any) -> Tensor:
    """Tensors; arguments as for :func:`arrays`."""
    return Tensor(draw(arrays(shape, **kwargs)), requires_grad=requires_grad)


@st.composite
def axes(draw: Any, ndim: int, none: bool = True, several: bool = True) -> int | tuple[int, ...] | None:
    """An axis of an array of ndim axes, counted from the front or the back; also None, or a tuple of axes."""
    kinds = (["none"] if none else []) + (["one"] if ndim else []) + (["several"] if several else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return None
    signed = st.integers(-ndim, ndim - 1) if ndim else st.nothing()
    if kind == "one":
        return draw(signed)
    chosen = draw(st.lists(signed, unique_by=lambda a: a % ndim, max_size=ndim)) if ndim else []
    return tuple(chosen)


def indices(shape: tuple[int, ...]) -> Strategy[Any]:
    """Keys for an array of this shape: ints, slices with any step, None, Ellipsis, integer arrays with repeats, masks."""
    kinds: list[Any] = [hnp.basic_indices(shape, allow_newaxis=True), hnp.arrays(bool, shape)]
    if shape and min(shape) > 0:
        kinds.append(hnp.integer_array_indices(shape, dtype=np.dtype(np.int64)))
    return st.one_of(kinds)
