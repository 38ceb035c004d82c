"""Data: of known truth (faux), shipped (digits), read from files, downloaded (MNIST); and the loader that shards it."""

from . import faux
from .faux import Faux
from .loader import Loader
from .readers import DataError, read, read_csv, read_idx, read_npz
from .real import digits, mnist

__all__ = ["DataError", "Faux", "Loader", "digits", "faux", "mnist", "read", "read_csv", "read_idx", "read_npz"]
