"""Data: of known truth (faux), shipped (digits), read from files, downloaded (MNIST); and the loader that shards it."""

from . import faux
from .faux import Faux
from .loader import Loader
from .readers import DataError, read, read_csv, read_idx, read_npz
from .real import digits, mnist, sunspots
from .text import Vocabulary, WordFeatures, grammar, pad, read_conllu

__all__ = [
    "DataError", "Faux", "Loader", "Vocabulary", "WordFeatures", "digits", "faux", "grammar", "mnist", "pad", "read",
    "read_conllu", "read_csv", "read_idx", "read_npz", "sunspots",
]  # fmt: skip
