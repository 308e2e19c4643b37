"""Sums over ranks in a thread of their own, while the program computes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

import numpy as np

from .group import Group

_GRACE = 2.0  # seconds


class BackgroundSums:
    """The sums of some arrays over all ranks, one after the other, each as soon as every rank has its own.

    A rank whose thread waits for others leaves the core to those that compute: the ranks meet first, without haste, and exchange then.

    Parameters
    ----------
    group : Group
        A ``twin()`` that nothing else uses meanwhile. MPI must take calls of several threads (``world.takes_threads``).
    arrays : sequence of ndarray
        One-dimensional and contiguous, of the same lengths on all ranks, in the order in which they are summed. Sums overwrite them.

    Attributes
    ----------
    times : list of (float, float)
        When each sum began and ended, by ``time.perf_counter``.
    """

    def __init__(self, group: Group, arrays: Sequence[np.ndarray]) -> None:
        self._group, self._arrays = group, arrays
        self._filled: SimpleQueue[None] = SimpleQueue()
        self._missing = len(arrays)
        self._is_left = False
        self._error: BaseException | None = None
        self.times: list[tuple[float, float]] = []
        self._thread = Thread(target=self._run, name="transformer_c-sums", daemon=True)
        self._thread.start()

    def next_is_filled(self) -> None:
        """The next array has this rank's values, and is the thread's from now on."""
        self._filled.put(None)
        self._missing -= 1

    def wait(self) -> None:
        """Returns once all arrays have been summed; each was filled before. Raises the thread's error, if there was one."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """After an error: the other ranks get what is there, for they may be in a sum; waits a moment for them."""
        while self._missing:
            self.next_is_filled()
        self._thread.join(_GRACE)
        self._is_left = True

    def _run(self) -> None:
        try:
            for array in self._arrays:
                self._filled.get()
                if not self._group.meet(lambda: self._is_left):
                    return
                began = time.perf_counter()
                self._group.all_reduce(array, out=array)
                self.times.append((began, time.perf_counter()))
        except BaseException as error:  # wait() raises it
            self._error = error
