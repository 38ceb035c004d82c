"""Failing together: an error on one rank ends all of them, with its reason; no rank waits for one that is gone."""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import sys
import tempfile
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from .comm import Comm, MPIComm

__all__ = ["drop_segments", "end_together", "flush", "say", "shared_lines", "stop"]


def flush() -> None:
    """Flush what was printed; a stream that is closed or None must not keep a rank from ending the others."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def say(text: str) -> None:
    """Print to stderr, if it is still there."""
    with contextlib.suppress(Exception):
        print(text, file=sys.stderr, flush=True)


def drop_segments() -> None:
    """Remove the name of MPICH's shared memory: an aborted job leaves 3 MB in /dev/shm, which is 64 MB in many containers."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[5] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with contextlib.suppress(OSError):  # another rank was faster
                os.unlink(path)


def shared_lines(local: Any, mpi: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return 8 integers that the other ranks of this node can read, and theirs; of none, if no file can be shared.

    A mapped file, not an MPI window: Open MPI's prints complaints about networks when the first window is made.
    """
    rank, size = local.Get_rank(), local.Get_size()
    lines, path, name = np.zeros((size, 8), np.int64), "", np.zeros(4096, np.uint8)
    if rank == 0:
        with contextlib.suppress(OSError):
            file, path = tempfile.mkstemp(prefix="minigrad-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
            os.write(file, bytes(lines.nbytes))
            os.close(file)
        name[: len(os.fsencode(path))] = list(os.fsencode(path))
    local.Bcast(name)
    path, shared = os.fsdecode(bytes(name).rstrip(b"\0")), np.zeros(1, np.int32)
    with contextlib.suppress(OSError, ValueError), open(path, "r+b") as opened:
        lines = np.frombuffer(mmap.mmap(opened.fileno(), lines.nbytes), np.int64).reshape(size, 8)
        shared[0] = 1
    local.Allreduce(mpi.IN_PLACE, shared, mpi.MIN)
    if rank == 0:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return lines[rank], [lines[r] for r in range(size) if r != rank and shared[0]]


def end_together(comm: MPIComm) -> None:
    """Make an uncaught exception, in any thread, or an uncaught ``sys.exit`` with a failure end all ranks."""

    def report(kind: Any, error: Any, trace: Any) -> None:
        try:
            text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
            say(f"\nrank {comm.rank} of {comm.size}:\n{text}")
        finally:
            comm.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def report_thread(args: Any) -> None:
        if not issubclass(args.exc_type, SystemExit):  # which ends a thread, not the process
            report(args.exc_type, args.exc_value, args.exc_traceback)

    def get_code(error: SystemExit) -> Any:
        code = error.args[0] if error.args else None
        try:
            sys._getframe(1)
        except ValueError:  # not a function asks but the interpreter: before it waits for threads and for MPI
            if not isinstance(code, int | None):
                say(str(code))
                comm.abort(1)
            if code:
                comm.abort(code & 255 or 1)  # 256 would be 0 to the shell
        return code

    class Exit(SystemExit):
        """What ``sys.exit`` raises: Python has no hook for it, but asks for its code if nobody has caught it."""

        code: Any = property(get_code)

    def leave(code: Any = None) -> NoReturn:
        raise Exit(code)

    sys.excepthook, threading.excepthook, sys.exit = report, report_thread, leave
    atexit.register(comm.leave)  # runs before MPI's own end, which waits for the others


def stop(comm: Comm, message: str, code: int = 2) -> NoReturn:
    """Print one line and end all ranks; call it wherever bad input is found, on one rank or on all.

    If all ranks find the same, rank 0 says it for all; a rank that is alone with it says so itself a moment later.
    """
    if comm.rank > 0:
        time.sleep(2 + min(0.02 * comm.rank, 1))  # rank 0, if it is here too, has ended this process by then
        message = f"rank {comm.rank} of {comm.size}: {message}"
    say(message)
    if comm.size == 1:
        raise SystemExit(code)
    comm.abort(code)
