"""Readers of files: npz, CSV and IDX, each of which says what is wrong with a file, and where."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from pathlib import Path

import numpy as np

__all__ = ["DataError", "read", "read_csv", "read_idx", "read_npz"]

PathLike = str | os.PathLike[str]


class DataError(ValueError):
    """Data that cannot be used, with the file, the place and the reason in one line."""


def read(path: PathLike, *, target: str | int | None = None, labels: PathLike | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Read inputs and targets from a file; the kind is told by its name and first bytes.

    npz: the arrays ``x`` and ``y``. CSV: ``target`` names the column to predict (the last one unless given), the others are
    inputs. IDX, gzipped or not: images, with labels from ``labels`` or from the file beside it that is called as MNIST's
    are; images are scaled to [0, 1]. A directory: the one pair of IDX images and labels in it.

    Returns:
        x (n, ...) float32 and y (n,): int64 if all targets are whole numbers >= 0, else float32.

    Raises:
        DataError: if a file is missing or malformed, holds NaN, or inputs and targets differ in length.
    """
    path = Path(path)
    if path.is_dir():
        images = [p for p in sorted(path.iterdir()) if "idx3" in p.name]
        if len(images) != 1:
            raise DataError(f"{path}: holds {len(images)} files of IDX images; name the one to read")
        path = images[0]
    if path.suffix == ".npz":
        x, y = read_npz(path)
    elif path.suffix in (".csv", ".tsv", ".txt"):
        x, y = read_csv(path, target=target)
    elif path.suffix == ".gz" or "idx" in path.name:
        x = read_idx(path).astype(np.float32) / np.float32(255)
        beside = Path(labels or path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1")))
        if beside == path:
            raise DataError(f"{path}: cannot tell which file holds the labels; name it (labels=)")
        y = read_idx(beside)
    else:
        _bytes(path)
        raise DataError(f"{path}: expected a name ending in .npz, .csv, .tsv, or an IDX file (idx in its name, or .gz)")
    x = x[:, None] if x.ndim == 1 else x
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or not len(y):
        raise DataError(f"{path}: inputs {x.shape} and targets {y.shape}; expected (n, ...) and (n,), n at least 1")
    return _finite(path, "inputs", x).astype(np.float32), _targets(path, y)


def read_npz(path: PathLike, x: str = "x", y: str = "y") -> tuple[np.ndarray, np.ndarray]:
    """Read two arrays from an ``.npz`` file; inputs of integer pixels are not scaled.

    Raises:
        DataError: if the file is no npz, or lacks an array.
    """
    try:
        with _exists(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            missing = [name for name in (x, y) if name not in file]
            if missing:
                raise DataError(f"{path}: holds no array {missing[0]!r}, only {', '.join(file.files) or 'nothing'}")
            return file[x], file[y]
    except DataError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, AttributeError, TypeError) as error:
        raise DataError(f"{path}: is no readable .npz file ({str(error).splitlines()[0]})") from None
    except Exception as error:  # zipfile's own kinds
        raise DataError(f"{path}: is no readable .npz file ({error})") from None


def read_csv(path: PathLike, *, target: str | int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Read a table of numbers, separated by comma, semicolon or tab, with or without a line of names.

    Args:
        target: the column to predict, by name or number (negative from the end); the last one unless given.

    Raises:
        DataError: naming line and column of what is no number, or a line of another length.
    """
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no UTF-8 text ({error.reason} at byte {error.start})") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: is empty")
    separator = max(",;\t", key=lines[0][1].count)
    rows = [(number, cells) for (number, _), cells in zip(lines, csv.reader((line for _, line in lines), delimiter=separator))]
    names: list[str] = []
    if not all(_is_number(cell) for cell in rows[0][1]):
        names = [cell.strip() for cell in rows.pop(0)[1]]
    width = len(names) or len(rows[0][1])
    if not rows:
        raise DataError(f"{path}: holds names but no rows")
    table = np.empty((len(rows), width))
    for i, (number, cells) in enumerate(rows):
        if len(cells) != width:
            raise DataError(f"{path}: line {number} has {len(cells)} columns, expected {width}")
        for j, cell in enumerate(cells):
            try:
                table[i, j] = float(cell)
            except ValueError:
                column = names[j] if names else j
                raise DataError(f"{path}: line {number}, column {column}: {cell.strip()!r} is no number") from None
            if not np.isfinite(table[i, j]):
                raise DataError(f"{path}: line {number}, column {names[j] if names else j}: {cell.strip()} is not finite")
    column = _column(path, names, width, target)
    if width < 2:
        raise DataError(f"{path}: has one column; expected inputs and a target")
    return np.delete(table, column, axis=1), table[:, column]


def _column(path: PathLike, names: list[str], width: int, target: str | int | None) -> int:
    if target is None:
        return width - 1
    if isinstance(target, str) and target in names:
        return names.index(target)
    try:
        number = int(target)
    except ValueError:
        number = width
    if not -width <= number < width:
        known = ", ".join(names) if names else f"numbers {-width} to {width - 1}"
        raise DataError(f"{path}: has no column {target!r}; its columns are {known}")
    return number % width


def read_idx(path: PathLike) -> np.ndarray:
    """Read an IDX file, gzipped or not: the format of MNIST.

    Format: two zero bytes, a byte for the type, a byte for the number of axes, each size as a big-endian 32-bit integer, then
    the elements, big-endian. Source: Y. LeCun, C. Cortes and C. Burges, "The MNIST database".

    Raises:
        DataError: if the first bytes are no IDX header, or elements are missing or left over.
    """
    raw = _bytes(path)
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: the gzip stream is damaged ({error}); fetch the file again") from None
    kinds = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in kinds or raw[3] < 1:
        raise DataError(f"{path}: begins with {raw[:4].hex(' ') or 'nothing'}, expected an IDX header (00 00 type axes)")
    dtype, axes = np.dtype(kinds[raw[2]]), raw[3]
    header = 4 + 4 * axes
    if len(raw) < header:
        raise DataError(f"{path}: ends within its header ({len(raw)} bytes, expected {header})")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", axes, 4))
    expected = header + dtype.itemsize * int(np.prod(shape, dtype=object))
    if len(raw) != expected:
        raise DataError(f"{path}: has {len(raw)} bytes, expected {expected} for an array of {shape}; is it complete?")
    return np.frombuffer(raw, dtype, -1, header).reshape(shape).astype(dtype.newbyteorder("="))


def _exists(path: PathLike) -> Path:
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    return path


def _bytes(path: PathLike) -> bytes:
    try:
        return _exists(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _finite(path: PathLike, what: str, a: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "fiub":
        raise DataError(f"{path}: {what} are {a.dtype}; expected numbers")
    if not np.all(np.isfinite(a)):
        at = np.argwhere(~np.isfinite(a))[0]
        raise DataError(f"{path}: {what}{at.tolist()} is {a[tuple(at)]}; remove or replace what is not finite")
    return a


def _targets(path: PathLike, y: np.ndarray) -> np.ndarray:
    _finite(path, "targets", y)
    if np.all(y >= 0) and np.all(y == np.floor(y)):
        return y.astype(np.int64)
    return y.astype(np.float32)
