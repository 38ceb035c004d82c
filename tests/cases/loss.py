"""For each op of ``ops/loss.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import numpy as np

import minigrad as mg


def _pair(rng):
    x = rng.normal(size=(2, 3))
    return x, x + rng.uniform(0.3, 0.7, (2, 3)) * rng.choice([-1, 1], (2, 3))


def _cross_entropy(z):
    targets = np.array([[0, 2], [9, 1]])
    return mg.cross_entropy(z, targets, weight=[1.0, 2.0, 0.5], ignore_index=9, label_smoothing=0.1, axis=1)


CASES = {
    "cross_entropy": lambda rng: (_cross_entropy, (rng.normal(size=(2, 3, 2)),)),
    "binary_cross_entropy_with_logits": lambda rng: (
        mg.binary_cross_entropy_with_logits,
        (rng.normal(size=(2, 3)), rng.uniform(0.2, 0.8, (2, 3))),
    ),
    "mse": lambda rng: (mg.mse, _pair(rng)),
    "l1": lambda rng: (mg.l1, _pair(rng)),
    "huber": lambda rng: (lambda x, y: mg.huber(x, y, delta=0.2), _pair(rng)),
}
