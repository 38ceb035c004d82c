"""For each op of ``ops/activation.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import numpy as np

import minigrad as mg


def _one(rng):
    return (rng.uniform(0.3, 2, (3, 4)) * rng.choice([-1, 1], (3, 4)),)


CASES = {
    "logistic": lambda rng: (mg.logistic, _one(rng)),
    "tanh": lambda rng: (mg.tanh, _one(rng)),
    "arctan": lambda rng: (mg.arctan, _one(rng)),
    "relu": lambda rng: (mg.relu, _one(rng)),
    "softplus": lambda rng: (mg.softplus, _one(rng)),
    "gelu": lambda rng: (mg.gelu, _one(rng)),
    "softmax": lambda rng: (lambda x: mg.softmax(x, axis=0), _one(rng)),
    "log_softmax": lambda rng: (mg.log_softmax, _one(rng)),
    "dropout": lambda rng: (lambda x: mg.dropout(x, 0.3, np.array([1, 2, 3], np.uint64)), _one(rng)),
}
