"""For each op of ``ops/reduce.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import minigrad as mg


def _x(rng):
    return (rng.normal(size=(3, 4, 2)),)


CASES = {
    "sum": lambda rng: (lambda x: mg.sum(x, axis=(0, 2)), _x(rng)),
    "mean": lambda rng: (lambda x: mg.mean(x, axis=1, keepdims=True), _x(rng)),
    "var": lambda rng: (lambda x: mg.var(x, axis=(0, -1), ddof=1), _x(rng)),
    "std": lambda rng: (lambda x: mg.std(x, axis=0), _x(rng)),
    "norm": lambda rng: (lambda x: mg.norm(x, axis=1), _x(rng)),
    "max": lambda rng: (lambda x: mg.max(x, axis=1), _x(rng)),
    "min": lambda rng: (lambda x: mg.min(x, axis=(0, 1)), _x(rng)),
    "prod": lambda rng: (lambda x: mg.prod(x, axis=1), _x(rng)),
    "cumsum": lambda rng: (lambda x: mg.cumsum(x, axis=1), _x(rng)),
    "logsumexp": lambda rng: (lambda x: mg.logsumexp(x, axis=(0, 1)), _x(rng)),
}
