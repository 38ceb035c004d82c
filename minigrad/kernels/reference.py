"""Reference kernels in NumPy: the definition of what each kernel computes, to be read.

Every function has the form ``kernel(inputs..., out)``, fills ``out`` and returns nothing. Inputs are never changed.
Elementary functions (``np.exp``, ``np.add``, ...) and ``np.matmul`` are kernels already and are launched as they are.
"""

from __future__ import annotations

import numpy as np

# --- movement -----------------------------------------------------------------------------------------------------


def copy(x, out):
    """out = x, cast to out's dtype and broadcast to its shape."""
    np.copyto(out, x, casting="unsafe")


def fill(value, out):
    """out = value everywhere."""
    out[...] = value


# --- sums ---------------------------------------------------------------------------------------------------------


def sum(x, axis, keepdims, out):
    """out = Σ x over axis."""
    np.add.reduce(x, axis=axis, out=out, keepdims=keepdims)


def sum_to(g, out):
    """out = g summed over the axes along which an array of out's shape was broadcast to g's."""
    lead = g.ndim - out.ndim
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(out.shape) if n == 1 and g.shape[lead + i] != 1
    )
    np.add.reduce(g, axis=axes, out=out.reshape((1,) * lead + out.shape), keepdims=True)


# --- the chain rule -----------------------------------------------------------------------------------------------


def chain(g, d, out):
    """out = g d, and 0 where the cotangent g is 0, also where the local derivative d is infinite or NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        np.multiply(g, d, out=out)
        if not np.isfinite(np.add.reduce(out, axis=None)):
            np.copyto(out, 0, where=np.equal(g, 0))


def chain_where(g, d, condition, out):
    """out = g d where the condition holds, else 0; also 0 where g is 0."""
    chain(g, d, out)
    np.copyto(out, 0, where=np.logical_not(condition))


# --- choice -------------------------------------------------------------------------------------------------------


def where(condition, x, y, out):
    """out = x where the condition holds, else y."""
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def select(condition, x, out):
    """out = x where the condition holds, else 0."""
    np.copyto(out, 0)
    np.copyto(out, x, where=condition)
