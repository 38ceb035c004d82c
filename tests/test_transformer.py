"""Attention, plain and in tiles, against its definition; transformers; decoding with a cache; sampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import nn
from minigrad.testing import arrays
from tests import gradient, slope

RNG = np.random.default_rng


def test_attention_golden():
    """Two queries, two keys, by hand: Vaswani et al. 2017, equation 1."""
    q, k, v = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[10.0], [20.0]])
    a = np.exp(1 / np.sqrt(2)) / (np.exp(1 / np.sqrt(2)) + 1)  # scores 1/√2 and 0
    np.testing.assert_allclose(mg.attention(q, k, v).data, [[10 * a + 20 * (1 - a)], [15.0]])
    mask = np.array([[True, False], [True, True]])
    np.testing.assert_allclose(mg.attention(q, k, v, mask).data, [[10.0], [15.0]])
    added = np.array([[0.0, -1 / np.sqrt(2)], [0.0, 0.0]])  # scores 1/√2 and -1/√2
    b = np.exp(np.sqrt(2)) / (np.exp(np.sqrt(2)) + 1)
    np.testing.assert_allclose(mg.attention(q, k, v, added).data, [[10 * b + 20 * (1 - b)], [15.0]])
    np.testing.assert_allclose(mg.attention(q, k, v, causal=True).data, [[10.0], [15.0]])


@given(st.data())
def test_every_form_equals_the_definition(data):
    T, S = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    q, k, v = data.draw(arrays((2, T, 3))), data.draw(arrays((2, S, 3))), data.draw(arrays((2, S, 2)))
    causal = data.draw(st.booleans()) and T <= S
    kind = data.draw(st.sampled_from(["none", "bool", "add"]))
    mask = None
    if kind == "bool":
        mask = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=S, max_size=S), min_size=T, max_size=T)))
        mask[:, 0] = True
    elif kind == "add":
        mask = data.draw(arrays((T, S)))
    expected = nn.transformer.attention(mg.Tensor(q), mg.Tensor(k), mg.Tensor(v), mask, causal=causal).data
    for tile in (None, 1, 2, 7):
        np.testing.assert_allclose(mg.attention(q, k, v, mask, causal=causal, tile=tile).data, expected, atol=1e-12)
        mg.gradcheck(lambda *a, t=tile: mg.attention(*a, mask, causal=causal, tile=t), q, k, v, directions=1)


def test_float32_forms_agree():
    q, k, v = (RNG(i).normal(size=(2, 4, 33, 16)).astype(np.float32) for i in range(3))
    plain = mg.attention(q, k, v, causal=True).data
    for tile in (1, 8, 64):
        np.testing.assert_allclose(mg.attention(q, k, v, causal=True, tile=tile).data, plain, atol=1e-6)


@pytest.mark.parametrize("tile", [None, 1, 3])
def test_a_query_that_sees_nothing_gives_zero(tile):
    q, k, v = (RNG(i).normal(size=(2, 3, 4)) for i in range(3))
    for mask in (np.array([[False] * 3, [True] * 3, [True] * 3]), np.array([[-np.inf] * 3, [0.0] * 3, [0.0] * 3])):
        y = mg.attention(q, k, v, mask, tile=tile)
        assert not y.data[:, 0].any() and np.isfinite(y.data).all()
        grads = gradient(lambda *a, m=mask: mg.attention(*a, m, tile=tile), q, k, v)
        assert np.isfinite(grads[0]).all() and not np.array(grads[0])[:, 0].any()


@pytest.mark.parametrize("tile", [None, 2])
def test_with_fewer_queries_than_keys_the_last_sees_all(tile):
    q, k, v = RNG(0).normal(size=(2, 4)), RNG(1).normal(size=(5, 4)), RNG(2).normal(size=(5, 2))
    y = mg.attention(q, k, v, causal=True, tile=tile).data
    np.testing.assert_allclose(y[1], mg.attention(q[1:], k, v).data[0])
    np.testing.assert_allclose(y[0], mg.attention(q[:1], k[:4], v[:4]).data[0])


def test_tiles_need_little_memory():
    import tracemalloc

    q, k, v = (mg.Tensor(RNG(i).normal(size=(1, 1500, 8)).astype(np.float32), requires_grad=True) for i in range(3))
    peaks = []
    for tile in (None, 50):
        tracemalloc.start()
        mg.attention(q, k, v, causal=True, tile=tile).sum().backward()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 8


def test_dropout_drops_weights_and_comes_back_in_the_gradient():
    q, k, v = (RNG(i).normal(size=(2, 3, 4)) for i in range(3))
    mg.gradcheck(lambda *a: mg.attention(*a, dropout=0.5, key=[1, 2, 0]), q, k, v)
    y = mg.attention(q, k, np.ones((2, 3, 1)), dropout=0.5, key=[1, 2, 0]).data
    assert np.ptp(y) > 0.1  # without dropout every row would be 1


def test_rotary_products_depend_on_the_distance():
    q, k = RNG(0).normal(size=(1, 8)), RNG(1).normal(size=(1, 8))

    def at(a, t):
        return mg.rotary(a, first=t).data[0]

    for shift in (1, 10, 100):
        np.testing.assert_allclose(at(q, 5 + shift) @ at(k, 2 + shift), at(q, 5) @ at(k, 2), atol=1e-10)
    np.testing.assert_array_equal(at(q, 0), q[0])
    mg.gradcheck(mg.rotary, RNG(2).normal(size=(2, 3, 4)))


def test_sinusoidal_positions():
    p = nn.sinusoidal(3, 4, dtype=np.float64)
    np.testing.assert_allclose(p[2], [np.sin(2), np.cos(2), np.sin(2 / 100), np.cos(2 / 100)])
    np.testing.assert_array_equal(nn.sinusoidal(2, 4, first=1), nn.sinusoidal(3, 4)[1:])


MODELS = {
    "learned": {},
    "sinusoidal, post-norm": {"positions": "sinusoidal", "pre_norm": False},
    "rotary, rms, grouped": {"positions": "rotary", "norm": "rms", "kv_heads": 2},
    "untied, relu, tiles": {"tie": False, "activation": "relu", "tile": 2},
}


@pytest.fixture(params=MODELS)
def model(request):
    return nn.LanguageModel(11, 16, 4, 2, 12, rng=RNG(0), dtype=np.float64, **MODELS[request.param]).eval()


def test_cached_decoding_equals_full_attention_token_for_token(model):
    tokens = RNG(1).integers(0, 11, (2, 9))
    full = model(tokens).data
    cache = nn.Cache()
    steps = [model(tokens[:, :3], cache=cache).data] + [model(tokens[:, i : i + 1], cache=cache).data for i in range(3, 9)]
    np.testing.assert_allclose(np.concatenate(steps, axis=1), full, atol=1e-12)
    prompt = tokens[:, :4]
    written = nn.generate(lambda t, c: model(t, cache=c), prompt, 8)
    for i in range(8):
        assert (model(np.concatenate([prompt, written[:, :i]], axis=1)).data[:, -1].argmax(axis=1) == written[:, i]).all()


def test_the_future_has_no_influence(model):
    tokens = RNG(1).integers(0, 11, (1, 6))
    other = tokens.copy()
    other[0, 4:] = (other[0, 4:] + 1) % 11
    np.testing.assert_allclose(model(tokens).data[:, :4], model(other).data[:, :4], atol=1e-12)


def test_every_parameter_gets_its_gradient(model):
    tokens = RNG(1).integers(0, 11, (2, 5))
    g = RNG(2).normal(size=(2, 5, 11))
    model(tokens).backward(g)
    for name, p in model.named_parameters():
        d = RNG(3).normal(size=p.shape)
        expected = slope(p, d, lambda: np.sum(model(tokens).data * g))
        assert np.sum(p.grad * d) == pytest.approx(expected, rel=1e-5, abs=1e-7), name


def test_padding_is_seen_by_none():
    encoder = nn.Encoder(11, 16, 4, 2, 12, rng=RNG(0), dtype=np.float64)
    tokens = RNG(1).integers(0, 11, (2, 6))
    mask = np.arange(6) < np.array([[6], [3]])
    y = encoder(tokens, mask=mask).data
    np.testing.assert_allclose(y[1, :3], encoder(tokens[1:, :3]).data[0], atol=1e-12)
    both = nn.EncoderDecoder(11, 7, 16, 4, 1, 12, rng=RNG(0), dtype=np.float64)
    target = RNG(2).integers(0, 7, (2, 4))
    np.testing.assert_allclose(both(tokens, target, mask).data[1], both(tokens[1:, :3], target[1:]).data[0], atol=1e-12)


def test_weights_are_tied_and_counted_once():
    tied = nn.LanguageModel(11, 16, 4, 1, 8, rng=RNG(0))
    untied = nn.LanguageModel(11, 16, 4, 1, 8, rng=RNG(0), tie=False)
    sizes = [sum(p.size for p in m.parameters()) for m in (tied, untied)]
    assert sizes[1] - sizes[0] == 11 * 16


def test_a_small_gpt_learns_a_pattern():
    model = nn.LanguageModel(5, 16, 2, 1, 16, rng=RNG(0))
    sequence = np.tile([0, 1, 2, 3, 4], 4)[None, :17]
    adam = mg.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        loss = mg.cross_entropy(model(sequence[:, :-1]), sequence[:, 1:])
        loss.backward()
        adam.step()
    assert loss.item() < 0.1
    assert nn.generate(lambda t, c: model(t, cache=c), [[0, 1, 2]], 4).tolist() == [[3, 4, 0, 1]]


# --- sampling, on a model whose probabilities are known -----------------------------------------------------------

P = np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])


def chain(tokens, cache):
    """A Markov chain: the next token's logits depend on the last token."""
    return mg.Tensor(np.log(P[np.asarray(tokens)]))


def test_sampling_follows_the_probabilities():
    draws = nn.generate(chain, np.zeros((4000, 1), int), 1, rng=RNG(0))
    np.testing.assert_allclose(np.bincount(draws[:, 0], minlength=3) / 4000, P[0], atol=0.03)
    sharp = nn.generate(chain, np.zeros((4000, 1), int), 1, rng=RNG(0), temperature=0.5)
    np.testing.assert_allclose(np.bincount(sharp[:, 0], minlength=3) / 4000, P[0] ** 2 / np.sum(P[0] ** 2), atol=0.03)


def test_top_k_and_top_p_remove_the_unlikely():
    start = np.zeros((500, 1), int)
    assert set(nn.generate(chain, start, 1, rng=RNG(0), top_k=1)[:, 0]) == {1}
    assert set(nn.generate(chain, start, 1, rng=RNG(0), top_k=2)[:, 0]) == {1, 2}
    assert set(nn.generate(chain, start, 1, rng=RNG(0), top_p=0.5)[:, 0]) == {1}
    assert set(nn.generate(chain, start, 1, rng=RNG(0), top_p=0.7)[:, 0]) == {1, 2}
    assert set(nn.generate(chain, start, 1, rng=RNG(0), top_p=1.0)[:, 0]) == {0, 1, 2}


def test_nothing_follows_the_end():
    out = nn.generate(chain, [[0], [0]], 6, rng=RNG(1), end=2)
    for row in out:
        first = np.argmax(row == 2) if 2 in row else len(row)
        assert (row[first:] == 2).all()


def test_beam_search_finds_what_greedy_misses():
    best = max(((a, b) for a in range(3) for b in range(3)), key=lambda s: P[0, s[0]] * P[s[0], s[1]])
    found, score = nn.beam_search(chain, [[0]], 2, beams=3)
    assert tuple(found) == best and score == pytest.approx(np.log(P[0, best[0]] * P[best[0], best[1]]))
    greedy, _ = nn.beam_search(chain, [[0]], 2, beams=1)
    assert greedy.tolist() == nn.generate(chain, [[0]], 2)[0].tolist()


Q = np.ones((2, 3, 4))
ERRORS = [
    (lambda: mg.attention(Q, Q, Q, np.ones((2, 3), bool)), ValueError, "the mask (2, 3) does not broadcast to (..., T, S)"),
    (lambda: mg.attention(Q, Q, Q, np.ones((3, 3), int)), TypeError, "the mask is int64; expected bool (True: may see) or float64"),
    (lambda: mg.attention(Q, Q[:, :, :3], Q), ValueError, "attention: q (2, 3, 4), k (2, 3, 3)"),
    (lambda: mg.attention(Q, Q, Q, dropout=0.5), ValueError, "dropout needs a key"),
    (lambda: mg.attention(Q, Q, Q, tile=0), ValueError, "tile is 0"),
    (lambda: mg.attention(Q, Q, Q, mg.Tensor(np.ones((3, 3)), requires_grad=True)), TypeError, "the mask requires gradients"),
    (lambda: mg.rotary(np.ones((2, 3))), ValueError, "expected (..., T, K) with an even K"),
    (lambda: nn.MultiHeadAttention(6, 4, rng=RNG(0)), ValueError, "heads must divide d"),
    (lambda: nn.LanguageModel(5, 8, 2, 1, 4, rng=RNG(0))([[0, 1, 2, 3, 4]]), ValueError, "5 tokens exceed the context of 4"),
    (lambda: nn.LanguageModel(5, 8, 2, 1, 4, rng=RNG(0))([[0, 5]]), IndexError, "is 5, expected 0 to 4"),
    (lambda: nn.LanguageModel(5, 8, 2, 1, 4, rng=RNG(0))([0, 1]), ValueError, "expected (batch, time)"),
    (lambda: nn.Encoder(5, 8, 2, 1, 4, rng=RNG(0))([[0, 1]], mask=np.ones((1, 3), bool)), ValueError, "the padding mask is (1, 3) bool"),
    (lambda: nn.Encoder(5, 8, 2, 1, 4, rng=RNG(0))([[0, 1]], mask=np.ones((1, 2))), ValueError, "the padding mask is (1, 2) float64"),
    (lambda: nn.generate(chain, [[0]], 1, temperature=0), ValueError, "temperature 0"),
    (lambda: nn.generate(chain, np.zeros((1, 0), int), 1), ValueError, "at least one each"),
    (lambda: nn.beam_search(chain, [[0]], 1, beams=0), ValueError, "beams 0"),
    (lambda: nn.sinusoidal(3, 5), ValueError, "D is 5; expected an even number"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, message = ERRORS[number]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)
