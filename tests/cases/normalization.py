"""For each op of ``ops/normalization.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import minigrad as mg

CASES = {
    "layer_norm": lambda rng: (mg.layer_norm, (rng.normal(size=(2, 3, 5)), rng.normal(size=5), rng.normal(size=5))),
    "rms_norm": lambda rng: (mg.rms_norm, (rng.normal(size=(2, 3, 5)), rng.normal(size=5))),
    "batch_norm": lambda rng: (mg.batch_norm, (rng.normal(size=(4, 3, 2)), rng.normal(size=3), rng.normal(size=3))),
}
