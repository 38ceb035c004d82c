"""Treebanks, vocabularies, word features, taggers and conditional random fields."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import data, nn, optim
from minigrad.testing import arrays

CONLLU = """# sent_id = 1
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t_\t_\t_\t_
2\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_
3.1\tthere\tthere\tADV\t_\t_\t_\t_\t_\t_

1\tStop\tstop\tVERB\t_\t_\t_\t_\t_\t_
"""


def all_scores(e, A, start, stop):
    """Return the score of every tag sequence, by the definition."""
    T, L = e.shape
    return {
        y: start[y[0]] + stop[y[-1]] + sum(e[t, y[t]] for t in range(T)) + sum(A[a, b] for a, b in itertools.pairwise(y))
        for y in itertools.product(range(L), repeat=T)
    }


@given(st.data())
def test_crf_against_all_sequences(data):
    L, lengths = 3, np.array(data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3)))
    e, A = data.draw(arrays((3, 4, L))), data.draw(arrays((L, L)))
    start, stop = data.draw(arrays((L,))), data.draw(arrays((L,)))
    tags = np.array(data.draw(st.lists(st.lists(st.integers(0, L - 1), min_size=4, max_size=4), min_size=3, max_size=3)))
    found = mg.crf(e, A, start, stop, tags, lengths).data
    best = mg.viterbi(e, A, start, stop, lengths)
    for row, n in enumerate(lengths):
        scores = all_scores(e[row, :n], A, start, stop)
        log_total = np.logaddexp.reduce(list(scores.values()))
        np.testing.assert_allclose(found[row], scores[tuple(tags[row, :n].tolist())] - log_total, atol=1e-10)
        assert scores[tuple(best[row, :n].tolist())] == pytest.approx(max(scores.values()))
        assert (best[row, n:] == -1).all()
    mg.gradcheck(lambda *a: mg.crf(*a, tags, lengths), e, A, start, stop, directions=1)


def test_crf_padding_has_no_influence():
    rng = np.random.default_rng(0)
    e, A, s = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3)), np.zeros(3)
    e[1, 2:] = np.nan
    leaf = mg.Tensor(e, requires_grad=True)
    y = mg.crf(leaf, A, s, s, [[0, 1, 2, 0], [1, 1, -9, 99]], [4, 2])
    y.sum().backward()
    assert np.isfinite(y.data).all() and not leaf.grad[1, 2:].any() and np.isfinite(leaf.grad).all()


def test_conllu(tmp_path):
    path = tmp_path / "t.conllu"
    path.write_text(CONLLU)
    assert data.read_conllu(path) == [[("Do", "AUX"), ("n't", "PART"), ("go", "VERB")], [("Stop", "VERB")]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tDo\tdo\n", "line 1 has 3 columns parted by tabs, expected 10"),
        ("# nothing\n\n", "holds no sentence"),
        ("1\tDo\tdo\t_\t_\t_\t_\t_\t_\t_\n", "line 1: the word 'Do' has no tag"),
    ],
)
def test_malformed_conllu(tmp_path, text, message):
    (tmp_path / "t.conllu").write_text(text)
    with pytest.raises(data.DataError, match=message):
        data.read_conllu(tmp_path / "t.conllu")
    with pytest.raises(data.DataError, match="there is no such file"):
        data.read_conllu(tmp_path / "none")


def test_vocabulary_and_features():
    v = data.Vocabulary(["b", "a", "b", "c"], at_least=2)
    assert v.tokens == ["<pad>", "<unknown>", "b"] and v.encode(["b", "a"]) == [2, 1]
    features = data.WordFeatures(data.grammar(50))
    x = features.encode(["The", "walking", "fox"])
    assert x.shape == (3, len(features.kinds)) and x.dtype == np.int64
    assert (x < np.array(features.sizes)).all() and x[1, 0] == 1  # an unknown word, known by its parts
    with pytest.raises(data.DataError, match="vocabulary: 'd' is unknown; expected one of b"):
        v.encode(["b", "d"], known=True)
    with pytest.raises(data.DataError, match="the sentence is empty"):
        features.encode([])
    with pytest.raises(data.DataError, match="no words"):
        data.WordFeatures([])


def test_pad():
    x, n = data.pad([np.array([1, 2]), np.array([3])])
    assert x.tolist() == [[1, 2], [3, 0]] and n.tolist() == [2, 1]
    for bad in ([], [np.array([1]), np.array([])]):
        with pytest.raises(data.DataError, match="must hold at least one element"):
            data.pad(bad)


def test_grammar_is_deterministic_and_tells_nouns_from_verbs_by_place():
    assert data.grammar(20, seed=3) == data.grammar(20, seed=3) != data.grammar(20, seed=4)
    seen = {(w.lower(), t) for s in data.grammar(500) for w, t in s}
    assert {("run", "NOUN"), ("run", "VERB")} <= seen


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize("crf", [False, True])
def test_tagger_learns_the_grammar(kind, crf):
    sentences = data.grammar(150)
    features, tags = data.WordFeatures(sentences), data.Vocabulary(t for s in sentences for _, t in s)
    x, n = data.pad([features.encode([w for w, _ in s]) for s in sentences])
    y, _ = data.pad([np.array(tags.encode(t for _, t in s)) for s in sentences])
    model = nn.Tagger(features.sizes, len(tags), rng=np.random.default_rng(0), kind=kind, hidden=24, crf=crf, layers=1)
    adam = optim.Adam(model.parameters(), lr=0.01)
    for _ in range(8):
        for rows in np.array_split(np.arange(150), 10):
            adam.zero_grad()
            loss, count = model.loss(x[rows], n[rows], y[rows])
            (loss * (1 / count)).backward()
            adam.step()
    model.eval()
    found = model.tag(x, n)
    real = found >= 0
    assert np.mean(found[real] == y[:, : found.shape[1]][real]) > 0.97
    one = model.tag(x[:1], n[:1])
    np.testing.assert_array_equal(one[0], found[0, : one.shape[1]])  # neighbours in the batch have no influence


@pytest.mark.parametrize("crf", [False, True])
def test_an_empty_batch_gives_zero_gradients(crf):
    model = nn.Tagger([5, 4], 3, rng=np.random.default_rng(0), hidden=4, crf=crf)
    loss, count = model.loss(np.zeros((0, 4, 2), int), np.zeros(0, int), np.zeros((0, 4), int))
    loss.backward()
    assert count == 0 and loss.item() == 0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


TAGGER = nn.Tagger([5], 3, rng=np.random.default_rng(0), hidden=4, crf=True)
E = np.zeros((1, 2, 3))
ERRORS = [
    (lambda: TAGGER(np.zeros((1, 2, 1), int), [3]), ValueError, "lengths from 3 to 3, expected 1 to 2"),
    (lambda: TAGGER(np.zeros((1, 2, 1), int), [0]), ValueError, "lengths from 0 to 0"),
    (lambda: TAGGER(np.full((1, 2, 1), 7), [2]), IndexError, "is 7, expected 0 to 4"),
    (lambda: TAGGER.loss(np.zeros((1, 2, 1), int), np.array([2]), [[0, 3]]), IndexError, "crf: tags[0, 1] is 3, expected 0 to 2"),
    (lambda: nn.Tagger([5], 3, rng=np.random.default_rng(0), kind="gru"), ValueError, "kind 'gru'"),
    (lambda: mg.crf(E, np.zeros((2, 3)), np.zeros(3), np.zeros(3), [[0, 0]]), ValueError, "expected (B, T, L), (L, L), (L,), (L,)"),
    (lambda: mg.crf(E, np.zeros((3, 3)), np.zeros(3), np.zeros(3), [[0, 0]], [0]), ValueError, "lengths [0]: expected 1 integers from 1 to 2"),
    (lambda: mg.crf(E, np.zeros((3, 3)), np.zeros(3), np.zeros(3), [[0]]), ValueError, "crf: tags (1, 1)"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, message = ERRORS[number]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)
