"""Ranks: one process or many, one all-reduce per step, and what happens when a rank fails.

>>> import minigrad as mg
>>> comm = mg.dist.init()
>>> comm.rank, comm.size
(0, 1)
"""

from .comm import Comm, LaunchError, MPIComm, SelfComm, init
from .guard import stop
from .reducer import Reducer, broadcast, differences

__all__ = ["Comm", "LaunchError", "MPIComm", "Reducer", "SelfComm", "broadcast", "differences", "init", "stop"]
