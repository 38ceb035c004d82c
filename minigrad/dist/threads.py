"""Threads: BLAS and Numba each take all cores in every process unless they are told how many are theirs."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

__all__ = ["blas_threads", "cores", "limit_threads"]

USER_SET = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def cores() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))  # macOS


def limit_threads(n: int) -> None:
    """Let BLAS and Numba use n threads in this process, unless the user's environment says how many."""
    chosen_by_user = any(name in os.environ for name in USER_SET)
    if not chosen_by_user:
        _openblas("set_num_threads", n)
    if "NUMBA_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["NUMBA_NUM_THREADS"] = str(n)
        numba = sys.modules.get("numba")
        if numba is not None:  # loaded already: its pool cannot grow, but fewer threads may work
            numba.set_num_threads(min(n, numba.get_num_threads()))
    if not chosen_by_user:
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(n)  # libraries loaded from now on


def blas_threads() -> int | None:
    """Return how many threads NumPy's OpenBLAS uses, None if NumPy has another BLAS."""
    return _openblas("get_num_threads")


def _openblas(what: str, *arguments: int) -> int | None:
    """Call OpenBLAS's function in the library that NumPy has loaded: its variables were read long ago."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for path in dict.fromkeys(line.split()[-1] for line in maps.splitlines() if "openblas" in line):
        library = ctypes.CDLL(path)
        for name in (f"scipy_openblas_{what}64_", f"scipy_openblas_{what}", f"openblas_{what}64_", f"openblas_{what}"):
            function = getattr(library, name, None)
            if function is not None:
                return function(*arguments)
    return None
