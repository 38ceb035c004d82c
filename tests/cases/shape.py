"""For each op of ``ops/shape.py``: ``name -> rng -> (f, arrays)``."""

import minigrad as mg


def _normal(*shapes):
    return lambda f: lambda rng: (f, tuple(rng.normal(size=shape) for shape in shapes))


CASES = {
    "reshape": _normal((2, 3))(lambda x: mg.reshape(x, 3, -1)),
    "expand_dims": _normal((2, 3))(lambda x: mg.expand_dims(x, (0, 2))),
    "squeeze": _normal((2, 1, 3, 1))(mg.squeeze),
    "transpose": _normal((2, 3, 4))(lambda x: mg.transpose(x, (1, 2, 0))),
    "swapaxes": _normal((2, 3, 4))(lambda x: mg.swapaxes(x, 0, 2)),
    "flip": _normal((2, 3))(lambda x: mg.flip(x, 1)),
    "roll": _normal((2, 3))(lambda x: mg.roll(x, (1, -1), (0, 1))),
    "broadcast_to": _normal((3, 1))(lambda x: mg.broadcast_to(x, (2, 3, 4))),
    "tril": _normal((3, 4))(lambda x: mg.tril(x, 1)),
    "triu": _normal((3, 4))(lambda x: mg.triu(x, 1)),
    "pad": _normal((2, 3))(lambda x: mg.pad(x, ((1, 0), (0, 2)), constant_values=3.0)),
    "concatenate": _normal((2, 1), (2, 3), (2, 2))(lambda *arrays: mg.concatenate(arrays, axis=1)),
    "stack": _normal((2, 3), (2, 3))(lambda *arrays: mg.stack(arrays, axis=1)),
    "split": _normal((5, 2))(lambda x: mg.split(x, [1, 3])),
}
