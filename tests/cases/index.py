"""For each op of ``ops/index.py``: ``name -> rng -> (f, arrays)``."""

import numpy as np

import minigrad as mg

CASES = {
    "getitem": lambda rng: (lambda x: x[[0, 2, 0], ::-2], (rng.normal(size=(3, 4)),)),
    "take_along_axis": lambda rng: (
        lambda x: mg.take_along_axis(x, np.array([[0, 3, 0], [1, 1, 2]]), axis=1),
        (rng.normal(size=(2, 4)),),
    ),
    "embedding": lambda rng: (lambda w: mg.embedding([[0, 2, 2], [3, 0, 0]], w), (rng.normal(size=(4, 2)),)),
}
