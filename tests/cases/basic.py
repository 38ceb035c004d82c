"""For each op of ``ops/basic.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import numpy as np

import minigrad as mg


def _pair(rng):
    return rng.uniform(0.5, 2, (3, 1)), rng.uniform(0.5, 2, (2, 1, 4))


CASES = {
    "add": lambda rng: (mg.add, _pair(rng)),
    "subtract": lambda rng: (mg.subtract, _pair(rng)),
    "multiply": lambda rng: (mg.multiply, _pair(rng)),
    "divide": lambda rng: (mg.divide, _pair(rng)),
    "negative": lambda rng: (mg.negative, (rng.normal(size=(2, 3)),)),
    "power": lambda rng: (mg.power, _pair(rng)),
    "square": lambda rng: (mg.square, (rng.normal(size=(2, 3)),)),
    "exp": lambda rng: (mg.exp, (rng.normal(size=(2, 3)),)),
    "log": lambda rng: (mg.log, (rng.uniform(0.5, 2, (2, 3)),)),
    "sqrt": lambda rng: (mg.sqrt, (rng.uniform(0.5, 2, (2, 3)),)),
    "sin": lambda rng: (mg.sin, (rng.normal(size=(2, 3)),)),
    "cos": lambda rng: (mg.cos, (rng.normal(size=(2, 3)),)),
    "tan": lambda rng: (mg.tan, (rng.uniform(-1, 1, (2, 3)),)),
    "arctan2": lambda rng: (mg.arctan2, _pair(rng)),
    "abs": lambda rng: (mg.abs, (rng.uniform(0.5, 2, (2, 3)) * rng.choice([-1, 1], (2, 3)),)),
    "sign": lambda rng: (mg.sign, (rng.uniform(0.5, 2, (2, 3)) * rng.choice([-1, 1], (2, 3)),)),
    "maximum": lambda rng: (mg.maximum, _pair(rng)),
    "minimum": lambda rng: (mg.minimum, _pair(rng)),
    "clip": lambda rng: (lambda x: mg.clip(x, -0.3, 0.3), (rng.normal(size=(4, 5)),)),
    "where": lambda rng: (lambda x, y: mg.where(np.eye(3, 4) > 0, x, y), _pair(rng)),
    "astype": lambda rng: (lambda x: mg.astype(x, "float64"), (rng.normal(size=3),)),
}
