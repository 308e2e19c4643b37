"""The threads of ranks that share the cores of a machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import _core


def threads_for(rank: int, allowed: Sequence[frozenset[int]]) -> int:
    """The threads for one of a machine's ranks, so that no core gets two where there are enough.

    Parameters
    ----------
    rank : int
        Its place in `allowed`.
    allowed : sequence of set of int
        The cores on which each rank of the machine may run, as its launcher bound them.
    """
    own = allowed[rank]
    sharing = [other for other, cores in enumerate(allowed) if cores & own]
    share, rest = divmod(len(own), len(sharing))
    return max(1, share + (sharing.index(rank) < rest))


def share_cores(communicator: Any) -> int:
    """This process' share of the cores, which its number of threads is lowered to; TRANSFORMER_C_NUM_THREADS takes precedence."""
    from mpi4py import MPI

    machine = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset(range(os.cpu_count() or 1))
        threads = threads_for(machine.rank, machine.allgather(cores))
    finally:
        machine.Free()
    if not os.environ.get("TRANSFORMER_C_NUM_THREADS"):
        _core.set_num_threads(min(threads, _core.get_num_threads()))
    return threads
