"""Kernels, and the one door through which everything computes.

A *kernel* is a function ``kernel(inputs..., out)`` that fills arrays it is given and keeps no Python state: a NumPy
ufunc, ``np.matmul``, or a function of :mod:`minigrad.kernels.reference`. Nothing else in minigrad writes into an
array: ops, backward and optimizers call :func:`launch`. A training step is therefore, underneath, a straight list of
launches on known arrays, which can be recorded, printed, timed and replayed.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from . import reference as K

__all__ = ["K", "contiguous", "is_recording", "launch", "new", "recording"]

_recorder: Callable[..., None] | None = None  # set while a step is being recorded,
_thread = 0  # in this thread: what others launch meanwhile is no part of the step


def new(shape: tuple[int, ...] | int, dtype: Any) -> np.ndarray:
    """Return an uninitialised array: the ``out`` of a launch.

    Example:
        >>> new((2, 3), np.float32).shape
        (2, 3)
    """
    return np.empty(shape, dtype)


def launch(kernel: Callable[..., Any], *inputs: Any, out: Any = None) -> Any:
    """Run ``kernel(*inputs, out)`` and return ``out``.

    A ufunc (and ``np.matmul``) may leave ``out`` away: it then allocates its result. A kernel with several results
    takes a tuple of arrays.

    Example:
        >>> x = np.array([1.0, 4.0])
        >>> launch(np.sqrt, x)
        array([1., 2.])
        >>> launch(K.sum, x, None, False, out=new((), x.dtype))
        array(5.)
    """
    if out is None:
        out = kernel(*inputs)
        if type(out) is not np.ndarray:  # NumPy turns 0-d results into scalars
            out = tuple(map(np.asarray, out)) if type(out) is tuple else np.asarray(out)
    elif type(out) is tuple:
        kernel(*inputs, *out)
    else:
        kernel(*inputs, out)
    if _recorder is not None and threading.get_ident() == _thread:
        _recorder(kernel, inputs, out)
    return out


def is_recording() -> bool:
    """Return whether this thread's launches are being recorded."""
    return _recorder is not None and threading.get_ident() == _thread


def contiguous(x: np.ndarray) -> np.ndarray:
    """Return x, or a launched copy of it in C order where its memory lies otherwise, so that ``reshape`` is a view.

    Example:
        >>> contiguous(np.zeros((2, 3)).T).strides
        (16, 8)
    """
    return x if x.flags.c_contiguous else launch(K.copy, x, out=new(x.shape, x.dtype))


class recording:
    """Call ``recorder(kernel, inputs, out)`` after every launch inside the ``with`` block.

    Example:
        >>> names = []
        >>> with recording(lambda kernel, inputs, out: names.append(kernel.__name__)):
        ...     _ = launch(np.exp, np.zeros(2))
        >>> names
        ['exp']
    """

    def __init__(self, recorder: Callable[..., None]) -> None:
        self.recorder = recorder

    def __enter__(self) -> recording:
        global _recorder, _thread
        if _recorder is not None:
            raise RuntimeError("recording: another recording is in progress; close it first")
        _recorder, _thread = self.recorder, threading.get_ident()
        return self

    def __exit__(self, *exc: object) -> None:
        global _recorder
        _recorder = None


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of freed arrays instead of returning it to the system.

    By default every array above 128 KB is mapped anew and its pages fault in one by one, which costs as much as the
    computation. Skipped if the user's environment sets malloc's own variables (MALLOC_...), and without glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD: map only what is larger than 32 MB, the most that glibc allows
    mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: keep up to 1 GB at the top of the heap


_keep_freed_memory()
