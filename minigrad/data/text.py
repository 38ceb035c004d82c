"""Text: treebanks in CoNLL-U, vocabularies, features of words, and sentences made by a grammar of known truth."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from .readers import DataError

__all__ = ["Vocabulary", "WordFeatures", "grammar", "pad", "read_conllu"]

Sentence = list[tuple[str, str]]  # words with their tags


class Vocabulary:
    """Numbers for tokens: 0 is padding, 1 what is unknown, then tokens from the most frequent on.

    Example:
        >>> v = Vocabulary("a rose is a rose".split())
        >>> v.encode(["rose", "a", "tulip"]), v.decode([2, 4])
        ([3, 2, 1], ['a', 'is'])
    """

    padding, unknown = 0, 1

    def __init__(self, tokens: Iterable[str], at_least: int = 1) -> None:
        counts = Counter(tokens)
        ranked = sorted((t for t, n in counts.items() if n >= at_least), key=lambda t: (-counts[t], t))
        self.tokens = ["<pad>", "<unknown>", *ranked]
        self.numbers = {t: i for i, t in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str], known: bool = False) -> list[int]:
        """Return the tokens' numbers, 1 for unknown ones; with ``known``, an unknown one is an error.

        Raises:
            DataError: naming the unknown token, if ``known``.
        """
        tokens = list(tokens)
        if known:
            for t in tokens:
                if t not in self.numbers:
                    raise DataError(f"vocabulary: {t!r} is unknown; expected one of {', '.join(self.tokens[2:22])}")
        return [self.numbers.get(t, self.unknown) for t in tokens]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Return the tokens with these numbers."""
        return [self.tokens[i] for i in numbers]


class WordFeatures:
    """What a tagger sees of a word: the word in lower case, its prefixes and suffixes, its shape.

    Prefixes and suffixes of 1 to 4 characters stand for words that training has not shown: "-ing", "un-". The shape says
    which kinds of characters a word begins with and holds, and whether it is the first one.
    """

    kinds = ("word", "prefix 1", "prefix 2", "prefix 3", "suffix 1", "suffix 2", "suffix 3", "suffix 4", "shape")

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        columns = list(zip(*(row for s in sentences for row in self._texts([w for w, _ in s]))))
        if not columns:
            raise DataError("features: there are no words to learn features from")
        self.vocabularies = [Vocabulary(column, 2 if i else 1) for i, column in enumerate(columns)]

    @property
    def sizes(self) -> list[int]:
        """How many numbers each kind of feature has."""
        return [len(v) for v in self.vocabularies]

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Return the features of a sentence's words, (T, kinds) integers."""
        if not words:
            raise DataError("features: the sentence is empty")
        columns = zip(*self._texts(words))
        return np.array([v.encode(column) for v, column in zip(self.vocabularies, columns)], np.int64).T

    @staticmethod
    def _texts(words: Sequence[str]) -> list[tuple[str, ...]]:
        rows = []
        for i, word in enumerate(words):
            low = f"<{word.lower()}>"
            kinds = "".join(sorted({"A" if c.isupper() else "a" if c.islower() else "9" if c.isdigit() else c for c in word}))
            shape = f"{kinds[:4]}{word[:1].isupper()}{i == 0}"
            rows.append((low, *(low[: 1 + n] for n in (1, 2, 3)), *(low[-1 - n :] for n in (1, 2, 3, 4)), shape))
        return rows


def pad(sequences: Sequence[np.ndarray], value: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences of different lengths as one array (n, T, ...), filled up with value, and their lengths (n,).

    Raises:
        DataError: if there is none, or one is empty.
    """
    lengths = np.array([len(s) for s in sequences], np.int64)
    if not len(lengths) or lengths.min() < 1:
        where = f": number {int(np.argmin(lengths))}" if len(lengths) else ""
        raise DataError(f"pad: sequences must hold at least one element each{where or '; got no sequence'}")
    out = np.full((len(lengths), lengths.max(), *np.shape(sequences[0])[1:]), value, np.asarray(sequences[0]).dtype)
    for row, sequence in zip(out, sequences):
        row[: len(sequence)] = sequence
    return out, lengths


def read_conllu(path: str | os.PathLike[str]) -> list[Sentence]:
    """Read the words and universal part-of-speech tags of a treebank in CoNLL-U.

    A line has ten columns parted by tabs: number, word, lemma, tag, ...; sentences are parted by empty lines; lines with # are
    comments; numbers like 3-4 (a contraction) and 3.1 (an elided word) stand beside the words and are passed over.
    Source: Universal Dependencies, "CoNLL-U format".

    Raises:
        DataError: naming the line of what is no CoNLL-U, or if there is no sentence.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    sentences: list[Sentence] = []
    current: Sentence = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if not line.strip():
            if current:
                sentences.append(current)
            current = []
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise DataError(f"{path}: line {number} has {len(columns)} columns parted by tabs, expected 10 (CoNLL-U)")
            if columns[0].isdigit():
                if columns[3] in ("", "_"):
                    raise DataError(f"{path}: line {number}: the word {columns[1]!r} has no tag")
                current.append((columns[1], columns[3]))
    if not sentences:
        raise DataError(f"{path}: holds no sentence")
    return sentences


# --- a grammar of known truth -------------------------------------------------------------------------------------

_WORDS = {
    "DET": "the a every this some",
    "ADJ": "quick red lazy brown old happy small green quiet strange",
    "NOUN": "fox dog cat house river child teacher garden stone light run walk plan",
    "VERB": "jumps sees likes follows chases finds run walk plan light",
    "ADV": "quickly often never quietly here",
    "ADP": "over under near with behind",
    "PRON": "she he they it",
    "CCONJ": "and but",
    "PUNCT": ".",
}


def grammar(n: int, *, seed: int = 0) -> list[Sentence]:
    """Return n sentences from a small English grammar, with their true tags.

    Some words (run, walk, plan, light) are nouns or verbs: only their place in the sentence tells.

    Example:
        >>> [word for word, _ in grammar(1)[0]][-1]
        '.'
    """
    rng = np.random.default_rng(seed)
    words = {tag: text.split() for tag, text in _WORDS.items()}

    def pick(tag: str) -> Sentence:
        return [(str(rng.choice(words[tag])), tag)]

    def noun_phrase() -> Sentence:
        if rng.random() < 0.2:
            return pick("PRON")
        adjectives = [pick("ADJ")[0] for _ in range(rng.integers(0, 3))]
        return pick("DET") + adjectives + pick("NOUN")

    def clause() -> Sentence:
        out = noun_phrase()
        if rng.random() < 0.3:
            out += pick("ADV")
        out += pick("VERB")
        if rng.random() < 0.6:
            out += noun_phrase()
        if rng.random() < 0.4:
            out += pick("ADP") + noun_phrase()
        return out

    sentences = []
    for _ in range(n):
        s = clause()
        if rng.random() < 0.2:
            s += pick("CCONJ") + clause()
        s += pick("PUNCT")
        sentences.append([(s[0][0].capitalize(), s[0][1]), *s[1:]])
    return sentences
