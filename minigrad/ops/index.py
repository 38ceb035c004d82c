"""Indexing and its gradient: what was taken from an element several times flows back to it several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import Tensor, as_array, op
from ..kernels import K, launch, new

__all__ = ["embedding", "getitem", "take_along_axis"]
METHODS: tuple[str, ...] = ()


def getitem(x: Any, key: Any) -> Tensor:
    """x[key]: ints, slices with any step, None, Ellipsis, integer arrays with repeats, boolean masks, as in NumPy.

    Raises:
        IndexError: if an index is out of range or a mask has another shape.

    Example:
        >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> x[[0, 0, 2]].sum().backward()
        >>> x.grad
        array([2., 0., 1.], dtype=float32)
    """
    plain = tuple(_index(k) for k in key) if isinstance(key, tuple) else _index(key)
    return _getitem(x, plain)


def _index(key: Any) -> Any:
    if key is None or key is Ellipsis or (isinstance(key, (int, np.integer, slice)) and not isinstance(key, bool)):
        return key
    array = key.data if isinstance(key, Tensor) else np.asarray(key)
    if array.size == 0 and array.dtype == np.float64 and not isinstance(key, (Tensor, np.ndarray)):
        array = array.astype(np.intp)  # x[[]]
    if array.dtype.kind not in "iub":
        raise IndexError(f"getitem: an index is {array.dtype}; expected integers, booleans or slices")
    return array


@op(name="getitem", analytic=True)
def _getitem(x, /, key):
    keys = key if isinstance(key, tuple) else (key,)
    arrays = [k for k in keys if isinstance(k, np.ndarray)]
    try:
        if arrays:
            y = launch(K.getitem, x, key)
        else:  # a view, also of a single element
            y = x[key if any(k is Ellipsis for k in keys) else (*keys, Ellipsis)]
    except IndexError as error:
        raise IndexError(f"getitem: x {x.shape}: {error}") from None
    once = all(k.dtype == bool or k.ndim == 0 for k in arrays)  # no element is taken twice
    shape = x.shape

    def vjp(gy):
        return launch(K.getitem_vjp, gy, key, once, out=new(shape, gy.dtype))

    return y, vjp


@op(analytic=True)
def take_along_axis(x, /, indices, axis=-1):
    """Take x[..., indices[...], ...] along axis, matching the other axes one to one.

    Raises:
        IndexError: if an index is out of range, or axis is None (flatten x and indices instead).

    Example:
        >>> take_along_axis([[1.0, 2.0], [3.0, 4.0]], np.array([[1], [0]]), axis=1)
        Tensor([[2.],
                [3.]])
    """
    indices = np.asarray(indices)
    if axis is None:
        raise IndexError("take_along_axis: axis is None; flatten x and indices with ravel and use axis=0")
    if indices.dtype.kind not in "iu" or indices.ndim != x.ndim:
        raise IndexError(
            f"take_along_axis: indices {indices.shape} {indices.dtype}: expected integers with the {x.ndim} axes of x {x.shape}"
        )
    try:
        y = launch(K.take_along_axis, x, indices, axis)
    except (IndexError, ValueError) as error:
        raise IndexError(f"take_along_axis: x {x.shape}, indices {indices.shape}, axis {axis}: {error}") from None
    shape = x.shape

    def vjp(gy):
        return launch(K.take_along_axis_vjp, gy, indices, axis, out=new(shape, gy.dtype))

    return y, vjp


def embedding(indices: Any, weight: Any) -> Tensor:
    """Look rows of a table up.

    Equation: y[...] = weight[indices[...]]; gw_v = Σ gy over the places where v was looked up.
    Shapes: indices (...) of integers from 0 to V - 1, weight (V, D) -> (..., D).

    Raises:
        TypeError: if the indices are no integers.
        IndexError: if one is out of range.

    Example:
        >>> embedding([1, 1], [[0.0, 0.0], [3.0, 4.0]])
        Tensor([[3., 4.],
                [3., 4.]])
    """
    return _embedding(weight, as_array(indices))


@op(name="embedding", analytic=True)
def _embedding(weight, /, indices):
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight {weight.shape}: expected (entries, features)")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"embedding: indices are {indices.dtype}; expected integers")
    y = launch(K.embedding, indices, weight, out=new((*indices.shape, weight.shape[1]), weight.dtype))
    shape = weight.shape

    def vjp(gy):
        return launch(K.embedding_vjp, gy, indices, out=new(shape, gy.dtype))

    return y, vjp


Tensor.__getitem__ = getitem
