"""The processes that work together, over a communicator of mpi4py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import numpy as np

from .. import _core
from . import sums

_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-5, 5e-4  # seconds

# Up to this number, ranks send their parts of sums as a message to each other rank: unlike MPI_Alltoallv, that does not copy a rank's part
# for itself. With more, which nobody has measured, MPI_Alltoallv and MPI_Allgatherv limit how many messages are under way.
MOST_PAIRS = 16
ROUND_BYTES = 2**21  # of each rank's part


class Apart(RuntimeError):
    """Ranks are not at the same place of the program: raised on all of them."""


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
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size})"

    def waits(self, name: str) -> AbstractContextManager[None]:
        """For a ``with`` block in which this rank waits for others. An interrupt that the program catches leaves it, or else the watch of ranks
        would end all after a while."""
        return _core.replaced([(vars(self), "waiting", (name, time.monotonic()))])

    def _call(self, name: str, *arguments: Any, of: Any = None, **options: Any) -> Any:
        """Calls a method of `of`, the communicator by default, that waits for the other ranks; refuses in a child of a fork."""
        if os.getpid() != self._process:  # its messages would be taken for the rank's
            raise RuntimeError("this process is a child of a fork, which is none of the ranks: exchange arrays in the process that forked")
        with self.waits(name):
            try:
                return getattr(of or self.communicator, name)(*arguments, **options)
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

    def exchange(self, place: str, own: Any) -> list[Any]:
        """Small Python values of all ranks; raises Apart on all of them where they are not at the same place of the program.

        Parameters
        ----------
        place : str
            This place, as the error names it.
        own : object
            What this rank has. It is pickled.
        """
        if self.size == 1:
            return [own]
        found = self._call("allgather", (place, own))
        for rank, (other, _) in enumerate(found):
            if other != found[0][0]:
                raise Apart(f"rank 0 is at {found[0][0]}, rank {rank} at {other}: all ranks must take the same steps")
        return [value for _, value in found]

    def from_root(self, value: Any, root: int = 0) -> Any:
        """A Python value of one rank; as ``exchange()``, which is not taken for another call where ranks part."""
        return self.exchange(f"a value of rank {root}", value if self.rank == root else None)[root]

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
        """The sum over ranks, in their order, of a one-dimensional array; `out` may be the array itself, which takes no further array."""
        array_out = np.empty(array.size, array.dtype) if out is None else out
        low, high = sums.bounds(array.size, self.size)[self.rank : self.rank + 2]
        own = self.reduce_scatter(array, reduction, array_out[low:high])
        return self.gather_parts(own, array.size, array_out)

    def reduce_scatter(self, array: np.ndarray, reduction: Callable[..., Any] = np.add, out: np.ndarray | None = None) -> np.ndarray:
        """This rank's part (``sums.bounds``) of the sum over ranks of a one-dimensional array; `out` may be that part of the array itself.

        Long parts go in rounds: what the others send is in memory for one of them only.
        """
        bounds = sums.bounds(array.size, self.size)
        first, last = bounds[self.rank : self.rank + 2]
        total = np.empty(last - first, array.dtype) if out is None else out
        if self.size == 1:
            np.copyto(total, array)
            return total
        numbers = max(1, ROUND_BYTES // array.itemsize)
        room = np.empty((self.size, min(numbers, -(-array.size // self.size))), array.dtype)
        for begins, ends in sums.rounds(bounds, numbers):
            low, high = begins[self.rank], ends[self.rank]
            sums.in_order(self._pieces_of(low, high, begins, ends, array, room), total[low - first : high - first], reduction)
        self.sent += array.nbytes - total.nbytes
        return total

    def _pieces_of(
        self, low: int, high: int, begins: np.ndarray, ends: np.ndarray, array: np.ndarray, room: np.ndarray
    ) -> list[np.ndarray]:
        """What each rank's array has from `low` to `high`, in a row of `room`; rank r gets what this rank has from begins[r] to ends[r]."""
        pieces = list(room[:, : high - low])
        if self.size <= MOST_PAIRS:
            pieces[self.rank] = array[low:high]
            self._pairs([array[begin:end] for begin, end in zip(begins, ends, strict=True)], pieces)
        else:
            received = np.full(self.size, (high - low) * array.itemsize), np.arange(self.size) * room.strides[0]
            sent = (ends - begins) * array.itemsize, begins * array.itemsize
            self._call("Alltoallv", [as_bytes(array), sent, "B"], [as_bytes(room), received, "B"])
        return pieces

    def gather_parts(self, own: np.ndarray, length: int, out: np.ndarray | None = None) -> np.ndarray:
        """The one-dimensional array whose parts the ranks have, in `out` where it is given; `own` may be its part of `out`."""
        array, bounds = np.empty(length, own.dtype) if out is None else out, sums.bounds(length, self.size)
        parts = [array[begin:end] for begin, end in pairwise(bounds)]
        if not np.may_share_memory(own, parts[self.rank]):
            np.copyto(parts[self.rank], own)
        if self.size > MOST_PAIRS:
            from mpi4py import MPI

            lengths = np.diff(bounds) * own.itemsize
            self._call("Allgatherv", MPI.IN_PLACE, [as_bytes(array), (lengths, bounds[:-1] * own.itemsize), "B"])
        elif self.size > 1:
            self._pairs([own] * self.size, parts)
        self.sent += (self.size - 1) * own.nbytes
        return array

    def _pairs(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray]) -> None:
        """Sends sent[r] to each other rank r, and gets received[r] from it, all at once."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        requests = [self.communicator.Irecv(as_bytes(received[rank]), rank) for rank in others]
        requests += [self.communicator.Isend(as_bytes(sent[rank]), rank) for rank in others]
        self._call("Waitall", requests, of=type(requests[0]))


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array: MPI moves it and computes nothing, so that any dtype will do."""
    return array.reshape(-1).view(np.uint8)
