"""Real data: the digits that ship with minigrad, and MNIST by download."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import zlib
from importlib import resources
from pathlib import Path

import numpy as np

from .readers import DataError, read_idx

__all__ = ["digits", "mnist", "sunspots"]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 1,797 handwritten digits: x (1797, 64) float32 in [0, 1], the rows of 8 x 8 images, and y (1797,) int64.

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
    doi 10.24432/C50P49, its test part, CC BY 4.0.

    Example:
        >>> x, y = digits()
        >>> x.shape, y[:5].tolist()
        ((1797, 64), [0, 1, 2, 3, 4])
    """
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"].reshape(-1, 64).astype(np.float32) / 16, arrays["labels"].astype(np.int64)


def sunspots() -> tuple[np.ndarray, np.ndarray]:
    """Return the years 1700 to 2008 and the mean number of sunspots in each, float64.

    Source: National Geophysical Data Center (NOAA), yearly sunspot numbers (Zurich and international series), public domain, as
    carried by statsmodels (datasets.sunspots).

    Example:
        >>> years, numbers = sunspots()
        >>> len(years), years[0], numbers[-1]
        (309, np.int64(1700), np.float64(2.9))
    """
    with resources.files(__package__).joinpath("sunspots.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["years"].astype(np.int64), arrays["numbers"]


MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
MD5 = {  # of the uncompressed contents: copies may be compressed anew
    "train-images-idx3-ubyte.gz": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte.gz": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte.gz": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte.gz": "27ae3e4e09519cfbb04c329615203637",
}


def mnist(kind: str = "train", directory: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return MNIST's digits, fetched once and kept: x (n, 784) float32 in [0, 1], y (n,) int64; n is 60,000 or 10,000.

    Files are kept in ``directory``, or ``$MINIGRAD_DATA``, or ``~/.cache/minigrad``, and checked by MD5 whenever read.
    Source: Y. LeCun, C. Cortes and C. Burges, "The MNIST database", CC BY-SA 3.0.

    Raises:
        DataError: if a file is damaged, cannot be fetched or cannot be kept.
    """
    if kind not in ("train", "test"):
        raise DataError(f"mnist: kind {kind!r}; expected 'train' or 'test'")
    place = Path(directory or os.environ.get("MINIGRAD_DATA") or Path.home() / ".cache" / "minigrad")
    prefix = "train" if kind == "train" else "t10k"
    images, labels = (read_idx(_fetch(place, f"{prefix}-{part}-ubyte.gz")) for part in ("images-idx3", "labels-idx1"))
    return images.reshape(len(images), -1).astype(np.float32) / 255, labels.astype(np.int64)


def _fetch(place: Path, name: str) -> Path:
    """Return the path of a file of MNIST, downloading it if it is not there."""
    path = place / name
    if path.exists():
        found = _md5(path.read_bytes())
        if found != MD5[name]:
            raise DataError(f"{path}: MD5 of the contents is {found}, expected {MD5[name]}; remove the file to fetch it again")
        return path
    reasons = []
    for mirror in MIRRORS:
        try:
            with urllib.request.urlopen(mirror + name, timeout=30) as response:
                raw = response.read()
        except (urllib.error.URLError, OSError) as error:
            reasons.append(f"{mirror}: {getattr(error, 'reason', error)}")
            continue
        found = _md5(raw)
        if found == MD5[name]:
            return _keep(path, raw)
        reasons.append(f"{mirror}: MD5 of the contents is {found}, expected {MD5[name]}")
    raise DataError(f"mnist: {name} could not be fetched ({'; '.join(reasons)}); put the file into {place} by hand")


def _keep(path: Path, raw: bytes) -> Path:
    """Write a file whole or not at all, also when several ranks do it at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(raw)
        os.replace(file.name, path)
    except OSError as error:
        with contextlib.suppress(OSError, NameError):
            os.unlink(file.name)
        raise DataError(f"{path}: cannot be written ({error.strerror}); set MINIGRAD_DATA to a directory that can") from None
    return path


def _md5(raw: bytes) -> str:
    try:
        raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        return "of no gzip stream"
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()
