"""For each op on sequences: ``name -> rng -> (f, arrays)``, float64 arrays around which f is smooth."""

import numpy as np

import minigrad as mg

B, T, D, H = 3, 4, 2, 3
LENGTHS = np.array([4, 1, 3])


def _weights(rng, gates, states, more=()):
    shapes = [(B, T, D), *[(B, H)] * states, (D, gates * H), (H, gates * H), (gates * H,), *more]
    return tuple(rng.normal(size=s) for s in shapes)


CASES = {
    "rnn": lambda rng: (lambda *a: mg.rnn(*a, lengths=LENGTHS), _weights(rng, 1, 1)),
    "lstm": lambda rng: (lambda *a: mg.lstm(*a, lengths=LENGTHS), _weights(rng, 4, 2)),
    "gru": lambda rng: (lambda *a: mg.gru(*a, lengths=LENGTHS), _weights(rng, 3, 1, [(3 * H,)])),
    "attention": lambda rng: (
        lambda *a: mg.attention(*a, causal=True),
        (rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 3))),
    ),
    "rotary": lambda rng: (mg.rotary, (rng.normal(size=(2, 3, 4)),)),
    "crf": lambda rng: (
        lambda *a: mg.crf(*a, np.array([[0, 1, 2, 1], [2, 0, 0, 0], [1, 1, 0, 0]]), LENGTHS),
        (rng.normal(size=(B, T, 3)), rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)),
    ),
}
