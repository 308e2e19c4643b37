"""The ranks of this program."""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import warnings
from typing import Any

from .. import _core
from .._arguments import one_of
from .._fork_lock import ForkLock
from .cores import share_cores
from .faults import Watch, end_all, end_all_after_errors
from .group import Group
from .launchers import RANK_PROCESS, started_processes, torchrun_processes

_START = "start it with: mpiexec -n 4 python script.py"
_INSTALL = "pip install 'transformer_c[mpi]'"
turns = ForkLock(reentrant=True)  # the messages of a call belong together: threads of a program take turns
_group: Group | None = None  # once init() was called
_cores = 0  # this rank's share
_limit = 0.0  # for the time that a rank waits


def init(backend: str = "auto", *, timeout: float | None = None) -> None:
    """Joins the processes that ``mpiexec`` or ``srun`` started; the functions of this module call it where the program does not.

    Ranks that share cores get a share of them each as their number of threads (``tc.set_num_threads`` afterwards changes it). A second call
    does nothing, and warns where its `timeout` is another one.

    Parameters
    ----------
    backend : {"auto", "mpi", "nccl"}
        "auto": MPI under a launcher, otherwise one rank. "mpi": MPI, also for a single process. "nccl" is not available yet.
    timeout : float, optional
        Seconds for which a rank waits for others before it ends all, each with its traceback; 1800, or TRANSFORMER_C_MPI_TIMEOUT.

    Raises
    ------
    ImportError
        When MPI is needed and mpi4py is not installed.
    RuntimeError
        When the launcher belongs to another MPI than mpi4py's, or is torchrun. NotImplementedError for "nccl".

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.distributed.init()
    >>> tc.distributed.world_size()
    1
    """
    global _group, _cores, _limit
    one_of("backend", backend, ("auto", "mpi", "nccl"))
    limit = _seconds(timeout)
    if backend == "nccl":
        raise NotImplementedError('backend="nccl" is not available yet: use backend="mpi", which also takes Tensors of a GPU')
    if _group is None or (backend == "mpi" and _group.communicator is None):
        _group, _limit = Group(_communicator(backend, limit)), limit
        if _group.size > 1:
            end_all_after_errors(_group)
            if takes_threads():
                Watch(_group, limit).start()
            else:
                warnings.warn(
                    "MPI takes no calls of several threads, so that nothing ends ranks that wait for ever: leave mpi4py.rc as it is",
                    stacklevel=2,
                )
            _cores = share_cores(_group.communicator)
    elif timeout is not None and limit != _limit and _group.size > 1:
        warnings.warn(f"the ranks have joined already, with timeout={_limit:g}: call init(timeout={limit:g}) first", stacklevel=2)


def _seconds(timeout: float | None) -> float:
    given = (os.environ.get("TRANSFORMER_C_MPI_TIMEOUT") or "1800") if timeout is None else timeout
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        name = "TRANSFORMER_C_MPI_TIMEOUT" if timeout is None else "timeout"
        raise ValueError(f"{name} is {given!r}; expected a number of seconds above 0")
    return seconds


def _communicator(backend: str, limit: float) -> Any:
    """MPI's, or None where there is one rank and nobody asked for MPI."""
    count = started_processes()
    if backend == "auto" and count == 1:
        return None
    try:
        MPI = _wait_for_all_ranks_to_start(limit if count > 1 else None)
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no library of MPI
        reason = f"a launcher started {count} processes" if count > 1 else 'backend="mpi" was asked for'
        raise ImportError(f"{reason}, but MPI cannot be used here ({error}): {_INSTALL}, then {_START}") from error
    if count > 1 and MPI.COMM_WORLD.size == 1:
        if count == torchrun_processes():
            raise RuntimeError(
                f"torchrun started {count} processes, but each finds itself alone: start them with mpiexec -n {count} python script.py"
            )
        library = MPI.Get_library_version().split("\n")[0].strip()
        raise RuntimeError(
            f"the launcher started {count} processes, but each finds itself alone: it belongs to another MPI than mpi4py's library "
            f"({library}); start them with the mpiexec of that library, or install mpi4py for the launcher's"
        )
    os.environ[RANK_PROCESS] = str(os.getpid())
    return MPI.COMM_WORLD.Dup()


def _wait_for_all_ranks_to_start(limit: float | None) -> Any:
    """Imports MPI, which returns once all processes have done so; ends this one after the limit, from where no Python runs."""
    import mpi4py

    is_to_be_ended = "mpi4py.MPI" not in sys.modules and mpi4py.rc.initialize and mpi4py.rc.finalize is not False
    if is_to_be_ended:  # by _end(): mpi4py's own end of a program is that of children of forks as well
        mpi4py.rc.finalize = False
    if limit is not None:
        faulthandler.dump_traceback_later(min(limit, 1e6), exit=True, file=2)
    try:
        from mpi4py import MPI
    finally:
        if limit is not None:
            faulthandler.cancel_dump_traceback_later()
    if is_to_be_ended:
        atexit.register(_end, MPI, os.getpid())
    return MPI


def _end(MPI: Any, process: int) -> None:
    """Ends MPI with the program; a child of a fork leaves it to the rank whose child it is."""
    if os.getpid() == process and not MPI.Is_finalized():
        MPI.Finalize()


def group() -> Group:
    """The ranks; joins them first if the program has not."""
    if _group is None:
        init()
    assert _group is not None
    return _group


def rank() -> int:
    """The number of this process, from 0."""
    return group().rank


def world_size() -> int:
    """The number of processes."""
    return group().size


def is_initialized() -> bool:
    """False, as a program of PyTorch's asks it that runs as one process.

    Raises
    ------
    RuntimeError
        Where there are several processes: its calls would write to their arguments, and those of this module return their results.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.distributed.is_available() and tc.distributed.is_initialized()
    False
    """
    if world_size() > 1:
        raise RuntimeError(
            f"there are {world_size()} processes, but no process groups as in PyTorch; ask tc.distributed.world_size() > 1, and use what "
            "tc.distributed.all_reduce() and its like return"
        )
    return False


is_available = is_initialized


def takes_threads() -> bool:
    """Whether MPI takes calls of several threads at once, as mpi4py asks it to (``mpi4py.rc.thread_level``)."""
    from mpi4py import MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def has_spare_core() -> bool:
    """Whether this rank has more cores than threads that compute."""
    return _core.get_num_threads() < _cores


def overlap_wish() -> bool | None:
    """What TRANSFORMER_C_MPI_OVERLAP says; None for "auto"."""
    given = os.environ.get("TRANSFORMER_C_MPI_OVERLAP") or "0"
    one_of("TRANSFORMER_C_MPI_OVERLAP", given, ("auto", "0", "1"))
    return None if given == "auto" else given == "1"


def barrier() -> None:
    """Waits until all processes have called it."""
    with turns.held():
        group().barrier()


def fail(message: str) -> None:
    """Ends all ranks with a message, where there are several: for a program that ends after an error that it has caught."""
    if group().size > 1:
        end_all(group(), f"rank {rank()} of {world_size()}: {message}\n")
