"""The processes that work together, over a communicator of mpi4py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import sums

_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-5, 5e-4  # seconds


class Group:
    """All ranks. Every method is called on all of them, in the same order; arrays are contiguous and have one shape on all ranks.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm or None
        None: one rank.

    Attributes
    ----------
    rank, size : int
    sent : int
        The bytes of arrays that this rank has sent to others.
    waiting : (str, float) or None
        While this rank waits for others: in which method, and since when (``time.monotonic``).
    calls : int
        The calls in which this rank has waited for others so far. Another rank that ended after no more of them will not come to the next one.
    """

    def __init__(self, communicator: Any = None) -> None:
        self.communicator = communicator
        self.rank = 0 if communicator is None else communicator.rank
        self.size = 1 if communicator is None else communicator.size
        self.sent = 0
        self.waiting: tuple[str, float] | None = None
        self.calls = 0

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size})"

    @contextmanager
    def waits(self, name: str) -> Iterator[None]:
        """For a ``with`` block in which this rank waits for others."""
        self.waiting = name, time.monotonic()
        try:
            yield
        finally:
            self.waiting = None

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the communicator, which waits for the other ranks."""
        with self.waits(name):
            try:
                return getattr(self.communicator, name)(*arguments, **options)
            finally:
                self.calls += 1

    def twin(self) -> Group:
        """The same ranks, whose calls are in an order of their own: for another thread."""
        return Group(self.communicator.Dup())

    def end(self) -> None:
        """Frees what a ``twin()`` has of MPI."""
        self.communicator.Free()

    def meet(self, is_left: Callable[[], bool]) -> bool:
        """Waits for all ranks, and computes nothing meanwhile: a ``barrier()`` of MPI keeps a core busy. False once `is_left()`."""
        request, pause = self.communicator.Ibarrier(), _SHORTEST_PAUSE
        while not request.Test():
            if is_left():
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def barrier(self) -> None:
        """Waits for all ranks."""
        if self.size > 1:
            self._call("Barrier")

    def exchange(self, value: Any) -> list[Any]:
        """Small Python values of all ranks."""
        return [value] if self.size == 1 else self._call("allgather", value)

    def from_root(self, value: Any, root: int = 0) -> Any:
        """A Python value of one rank."""
        return value if self.size == 1 else self._call("bcast", value, root=root)

    # ---- arrays --------------------------------------------------------------------------------------------------------------

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Overwrites `array` with that of the rank `root`."""
        if self.size > 1:
            self._call("Bcast", as_bytes(array), root=root)
            self.sent += array.nbytes if self.rank == root else 0

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all ranks, (size, *shape)."""
        found = np.empty((self.size, *array.shape), array.dtype)
        if self.size == 1:
            found[0] = array
        else:
            self._call("Allgather", as_bytes(array), as_bytes(found))
            self.sent += (self.size - 1) * array.nbytes
        return found

    def all_reduce(self, array: np.ndarray, reduction: Callable[..., Any] = np.add, out: np.ndarray | None = None) -> np.ndarray:
        """The sum over ranks, in their order, of a one-dimensional array; `out` may be the array itself."""
        return self.gather_parts(self.reduce_scatter(array, reduction), array.size, out)

    def reduce_scatter(self, array: np.ndarray, reduction: Callable[..., Any] = np.add) -> np.ndarray:
        """This rank's part (``sums.bounds``) of the sum over ranks of a one-dimensional array."""
        if self.size == 1:
            return array.copy()
        bounds = sums.bounds(array.size, self.size) * array.itemsize
        own = int(bounds[self.rank + 1] - bounds[self.rank])
        parts = np.empty((self.size, own // array.itemsize), array.dtype)
        self._call("Alltoallv", pieces(array, np.diff(bounds)), pieces(parts, np.full(self.size, own)))
        self.sent += array.nbytes - own
        total = np.empty(parts.shape[1], array.dtype)
        sums.in_order(parts, total, reduction)
        return total

    def gather_parts(self, own: np.ndarray, length: int, out: np.ndarray | None = None) -> np.ndarray:
        """The one-dimensional array whose parts the ranks have, in `out` where it is given."""
        if self.size == 1:
            return own
        array, bounds = np.empty(length, own.dtype) if out is None else out, sums.bounds(length, self.size) * own.itemsize
        self._call("Allgatherv", as_bytes(own), pieces(array, np.diff(bounds)))
        self.sent += (self.size - 1) * own.nbytes
        return array


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array: MPI moves it and computes nothing, so that any dtype will do."""
    return array.reshape(-1).view(np.uint8)


def pieces(array: np.ndarray, lengths: np.ndarray) -> list[Any]:
    """A contiguous array in pieces of so many bytes, one for each rank, as mpi4py takes it."""
    return [as_bytes(array), (lengths, np.cumsum(lengths) - lengths), "B"]
