"""Initial weights: variances, bounds, fans, orthogonality, the same numbers for the same seed."""

import numpy as np
import pytest

from minigrad import nn
from minigrad.nn import init

RNG = np.random.default_rng
RANDOM = [name for name in init.__all__ if name not in ("zeros", "ones")]

VARIANCES = {  # for fans 400 and 600
    "glorot_uniform": 2 / 1000, "glorot_normal": 2 / 1000, "he_uniform": 2 / 400, "he_normal": 2 / 400, "lecun_normal": 1 / 400,
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANCES)
def test_variances(name):
    w = getattr(init, name)((400, 600), RNG(0))
    assert w.dtype == np.float32 and abs(w.mean()) < 1e-3
    assert w.var() == pytest.approx(VARIANCES[name], rel=0.02)
    np.testing.assert_array_equal(w, getattr(init, name)((400, 600), RNG(0)))
    if "uniform" in name:
        assert np.abs(w).max() <= np.sqrt(3 * VARIANCES[name]) + 1e-7


def test_other_initialisers():
    q = init.orthogonal((5, 3), RNG(0), np.float64)
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-12)
    q = init.orthogonal((2, 3, 2), RNG(0), np.float64).reshape(2, 6)
    np.testing.assert_allclose(q @ q.T, np.eye(2), atol=1e-12)
    t = init.truncated_normal((1000,), RNG(0), np.float64, std=0.5)
    assert np.abs(t).max() <= 1 and t.std() == pytest.approx(0.5 * 0.88, rel=0.1)
    assert not init.zeros((2,)).any() and init.ones((2,)).all()
    assert init.normal((10000,), RNG(0), std=3.0).std() == pytest.approx(3, rel=0.05)
    assert init.fans((32, 16, 3, 3)) == (144, 288)


@pytest.mark.parametrize("name", VARIANCES)
def test_variances_of_filters(name):
    """Fans of 64 filters on 32 channels of 5 x 5: 800 in, 1600 out; the variances above are of 400 and 600."""
    w = getattr(init, name)((64, 32, 5, 5), RNG(0), np.float64)
    total = {2 / 1000: 2 / 2400, 2 / 400: 2 / 800, 1 / 400: 1 / 800}[VARIANCES[name]]
    assert w.var() == pytest.approx(total, rel=0.03) and w.dtype == np.float64


@pytest.mark.parametrize("name", RANDOM)
def test_numbers_depend_on_the_generator_alone(name):
    draw = getattr(init, name)
    np.testing.assert_array_equal(draw((4, 3), RNG(1)), draw((4, 3), RNG(1)))
    assert not np.array_equal(draw((4, 3), RNG(1)), draw((4, 3), RNG(2)))
    np.testing.assert_array_equal(draw((4, 3), RNG(1), np.float64).astype(np.float32), draw((4, 3), RNG(1)))


def test_orthogonal_matrices_are_not_of_one_sign():
    """Without Mezzadri's signs, QR of NumPy makes the first entry of each matrix negative nearly always."""
    signs = [init.orthogonal((3, 3), RNG(i))[0, 0] > 0 for i in range(200)]
    assert 70 < sum(signs) < 130


def test_a_layer_takes_another_initialiser():
    w = nn.Linear(4, 4, rng=RNG(0), weight=init.orthogonal, dtype=np.float64).w.data
    np.testing.assert_allclose(w @ w.T, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("call", [lambda: init.fans((3,)), lambda: init.orthogonal((3,), RNG(0))])
def test_vectors_have_no_fans(call):
    with pytest.raises(ValueError, match=r"(fans|orthogonal): shape \(3,\): expected"):
        call()
