"""For each op of ``ops/linear.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import minigrad as mg

CASES = {
    "matmul": lambda rng: (mg.matmul, (rng.normal(size=(2, 1, 3, 4)), rng.normal(size=(5, 4, 2)))),
    "linear": lambda rng: (mg.linear, (rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), rng.normal(size=5))),
    "einsum": lambda rng: (
        lambda *a: mg.einsum("abc,cd,e->bda", *a),
        (rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), rng.normal(size=2)),
    ),
}
