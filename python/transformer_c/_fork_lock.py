"""A lock for module-level state."""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock


class ForkLock:
    """`with fork_lock.lock:`, a lock that is free in a child process: the thread that had it in the parent does not exist there.

    The lock itself is entered, since no interrupt comes between its being taken and the block that gives it back.
    A reentrant one may be entered by a thread that has it.
    """

    def __init__(self, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._make()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self.lock = RLock() if self._reentrant else allocate_lock()
