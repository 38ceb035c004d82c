"""Communicators: how a process finds its rank, and the few collectives that training needs.

:func:`init` decides from the launcher's environment whether there are several ranks; mpi4py is imported only then.
"""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

import numpy as np

from .guard import drop_segments, end_together, flush, say, shared_lines
from .threads import cores, limit_threads

__all__ = ["Comm", "LaunchError", "MPIComm", "SelfComm", "init"]


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
        flush()
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
        self._mine, self._others = shared_lines(self._local, mpi)  # [collectives begun, whether this rank has ended, ...]

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        buffer = _buffer("all_reduce", array)
        self._mine[0] += 1
        self._comm.Allreduce(self._mpi.IN_PLACE, buffer)
        return array

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        buffer = _buffer("broadcast", array).view(np.uint8)
        self._mine[0] += 1
        self._comm.Bcast(buffer, root)
        return array

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        array = np.asarray(array, order="C")
        out = np.empty((self.size, *array.shape), array.dtype)
        self._mine[0] += 1
        self._comm.Allgather(array.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8))
        return out

    def barrier(self) -> None:
        self._mine[0] += 1
        self._comm.Barrier()

    def abort(self, code: int = 1) -> NoReturn:
        try:
            flush()
            time.sleep(1)  # launchers drop what they have not yet passed on when they are told to abort
        finally:  # also if interrupted
            drop_segments()
            self._mpi.COMM_WORLD.Abort(code)
            os._exit(code)

    def leave(self) -> None:
        """Wait until the node's other ranks have ended too; if one is in a collective that this one left out, end all."""
        self._mine[1] = 1
        while not all(other[1] for other in self._others):
            if any(other[0] > self._mine[0] for other in self._others):
                say(
                    f"rank {self.rank} of {self.size} ended after {self._mine[0]} collective(s), another rank waits in one "
                    "more: every rank must call finish, all_reduce, broadcast, all_gather and barrier equally often"
                )
                self.abort()
            time.sleep(0.02)

    def core_share(self) -> int:
        """Return how many cores this rank may count as its own: each core is shared by the ranks that may run on it."""
        mine = np.zeros(os.cpu_count() or 1, np.int32)
        mine[[c for c in cores() if c < len(mine)]] = 1
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
    share of cores (unless variables like OMP_NUM_THREADS are set), and with hooks. An uncaught exception on any rank is
    printed with its rank and ends all ranks; so does an uncaught ``sys.exit`` with a failure, and a rank that ends in any
    other way while another rank of its node waits for it in a collective (ranks of other nodes it cannot see: they wait on).
    Otherwise a :class:`SelfComm`, without MPI.

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
    if local > len(cores()):
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
        library = " ".join(MPI.Get_library_version().split(",")[0].splitlines()[0].strip("\0").split())
        raise LaunchError(
            f"{launcher}={expected} processes were started, but mpi4py's MPI ({library}) sees {found}: the launcher belongs to "
            "another MPI. Use the mpiexec (or srun --mpi=...) of the MPI that mpi4py is linked to, or build mpi4py against the "
            "launcher's: pip install --force-reinstall --no-binary=mpi4py mpi4py"
        )
    comm = MPIComm(MPI.COMM_WORLD, MPI)
    limit_threads(comm.core_share())
    end_together(comm)
    return comm
