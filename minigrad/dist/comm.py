"""Communicators: how a process finds its rank, and the few collectives that training needs.

:func:`init` decides from the launcher's environment whether there are several ranks; mpi4py is imported only then.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

import numpy as np

from .threads import limit_threads

__all__ = ["Comm", "LaunchError", "MPIComm", "SelfComm", "init", "stop"]


class LaunchError(RuntimeError):
    """The launcher and the MPI library disagree, or MPI is missing."""


class Comm:
    """What a communicator offers; arrays are sent as buffers, never pickled.

    Attributes:
        rank: this process's number, from 0.
        size: how many processes there are.
        local_rank, local_size: the same among the processes of this node.
    """

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Replace array by its sum over all ranks, in place; return it."""
        return array

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Replace array by root's, in place; return it."""
        return array

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        """Return the arrays of all ranks, stacked: (size, ...)."""
        return np.array(array)[None]

    def barrier(self) -> None:
        """Return when every rank has called this."""

    def abort(self, code: int = 1) -> NoReturn:
        """End all ranks at once with this exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"


class SelfComm(Comm):
    """One process, no MPI: every collective is done already.

    Example:
        >>> SelfComm().all_gather(np.array([1, 2]))
        array([[1, 2]])
    """


class MPIComm(Comm):
    """The processes of an MPI communicator, in a duplicate of it, so that our messages cannot meet others'."""

    def __init__(self, world: Any, mpi: Any) -> None:
        self._mpi = mpi
        self._comm = world.Dup()
        self._local = world.Split_type(mpi.COMM_TYPE_SHARED)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.local_rank, self.local_size = self._local.Get_rank(), self._local.Get_size()

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        self._comm.Allreduce(self._mpi.IN_PLACE, _buffer("all_reduce", array))
        return array

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        self._comm.Bcast(_buffer("broadcast", array).view(np.uint8), root)
        return array

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        array = np.asarray(array, order="C")
        out = np.empty((self.size, *array.shape), array.dtype)
        self._comm.Allgather(array.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8))
        return out

    def barrier(self) -> None:
        self._comm.Barrier()

    def abort(self, code: int = 1) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(1)  # launchers drop what they have not yet passed on when they are told to abort
        self._mpi.COMM_WORLD.Abort(code)
        os._exit(code)

    def core_share(self) -> int:
        """Return how many cores this rank may count as its own: each core is shared by the ranks that may run on it."""
        mine = np.zeros(os.cpu_count() or 1, np.int32)
        mine[[c for c in os.sched_getaffinity(0) if c < len(mine)]] = 1
        users = mine.copy()
        self._local.Allreduce(self._mpi.IN_PLACE, users)
        return max(1, int(np.sum(1 / users[mine > 0]) + 1e-6))


def _buffer(name: str, array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{name}: the array {array.shape} {array.dtype} must be contiguous and writeable")
    if name == "all_reduce" and array.dtype.char not in "fdbBhHiIlLqQ":
        raise TypeError(f"{name}: {array.dtype} cannot be summed by MPI; convert with .astype(np.float32)")
    return array.reshape(-1)


# --- start --------------------------------------------------------------------------------------------------------

_current: Comm | None = None


def init() -> Comm:
    """Return this process's communicator, the same at every call.

    Started by ``mpiexec`` or ``srun`` with several ranks: an :class:`MPIComm`, with BLAS and Numba limited to the rank's
    share of cores (unless variables like OMP_NUM_THREADS are set), and with a hook: an uncaught exception on any rank is
    printed with its rank and ends all ranks. Otherwise a :class:`SelfComm`, without MPI.

    Raises:
        LaunchError: if the launcher started several processes, but mpi4py is missing or sees another number.
    """
    global _current
    if _current is None:
        launcher, expected = _launched()
        _current = SelfComm() if expected < 2 else _start_mpi(launcher, expected)
    return _current


def _launched() -> tuple[str, int]:
    """Return the variable by which a launcher tells how many processes it started, and the number; ("", 1) if none does."""
    names = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"]
    if "SLURM_STEP_ID" in os.environ:  # in a step (srun), not merely in a batch script
        names += ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]
    for name in names:
        if os.environ.get(name, "").isdigit():
            return name, int(os.environ[name])
    return "", 1


def _start_mpi(launcher: str, expected: int) -> MPIComm:
    local = next((int(os.environ[n]) for n in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE") if n in os.environ), 1)
    if local > len(os.sched_getaffinity(0)):
        os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")  # more ranks than cores: waiting must not cost the others
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # our own line says why
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"{launcher}={expected} processes were started, but mpi4py cannot be loaded ({error}); "
            "install it with its MPI: pip install 'minigrad[mpi]'"
        ) from None
    found = MPI.COMM_WORLD.Get_size()
    if found != expected:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0].strip("\0 ")
        raise LaunchError(
            f"{launcher}={expected} processes were started, but mpi4py's MPI ({library}) sees {found}: the launcher belongs to "
            "another MPI. Use the mpiexec (or srun --mpi=...) of the MPI that mpi4py is linked to, or build mpi4py against the "
            "launcher's: pip install --force-reinstall --no-binary=mpi4py mpi4py"
        )
    comm = MPIComm(MPI.COMM_WORLD, MPI)
    limit_threads(comm.core_share())
    _end_together(comm)
    return comm


# --- failing together ---------------------------------------------------------------------------------------------


def _end_together(comm: Comm) -> None:
    """Make an uncaught exception, in any thread, or ``sys.exit`` with a failure end all ranks."""

    def report(kind: Any, error: Any, trace: Any) -> None:
        text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
        print(f"\nrank {comm.rank} of {comm.size}:\n{text}", file=sys.stderr, flush=True)
        comm.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = report
    threading.excepthook = lambda args: report(args.exc_type, args.exc_value, args.exc_traceback)
    leave, status = sys.exit, [0]

    def exit_and_tell(code: Any = None) -> NoReturn:
        status[0] = 0 if code is None else code if isinstance(code, int) else 1
        leave(code)

    def at_exit() -> None:  # runs before MPI's own, which would wait for the others
        if status[0]:
            comm.abort(status[0])

    sys.exit = exit_and_tell
    atexit.register(at_exit)


def stop(comm: Comm, message: str, code: int = 2) -> NoReturn:
    """Print one line and end all ranks; call it wherever bad input is found, on one rank or on all.

    If all ranks find the same, rank 0 says it for all; a rank that is alone with it says so itself a moment later.
    """
    if comm.rank > 0:
        time.sleep(2 + 0.02 * comm.rank)  # rank 0, if it is here too, has ended this process by then
        message = f"rank {comm.rank} of {comm.size}: {message}"
    print(message, file=sys.stderr, flush=True)
    if comm.size == 1:
        raise SystemExit(code)
    comm.abort(code)
