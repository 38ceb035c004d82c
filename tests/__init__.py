"""The suite, and what its files share."""

import numpy as np

import minigrad as mg


def gradient(f, *xs, cotangent=None):
    """Return the gradients of f at xs (float64), as nested lists, for a cotangent (ones unless given)."""
    leaves = [mg.Tensor(np.asarray(x, np.float64), requires_grad=True) for x in xs]
    y = f(*leaves)
    y.backward(np.ones(y.shape) if cotangent is None else np.broadcast_to(np.asarray(cotangent, float), y.shape).copy())
    return [leaf.grad.tolist() for leaf in leaves]


def slope(p, d, value, h=1e-5):
    """Return the central difference of value() as parameter p moves along d."""
    sides = []
    for step in (h, -h):
        p.data += step * d
        sides.append(value())
        p.data -= step * d
    return (sides[0] - sides[1]) / (2 * h)
