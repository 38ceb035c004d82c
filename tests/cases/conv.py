"""For each op of ``ops/conv.py``: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import minigrad as mg

CASES = {
    "conv2d": lambda rng: (
        lambda x, w, b: mg.conv2d(x, w, b, stride=(2, 1), padding=1),
        (rng.normal(size=(2, 3, 5, 4)), rng.normal(size=(2, 3, 3, 2)), rng.normal(size=2)),
    ),
    "max_pool2d": lambda rng: (
        lambda x: mg.max_pool2d(x, (2, 3), stride=1),
        (rng.permutation(60).reshape(2, 1, 5, 6) / 10.0,),
    ),
    "avg_pool2d": lambda rng: (lambda x: mg.avg_pool2d(x, 2, stride=1), (rng.normal(size=(2, 2, 4, 3)),)),
}
