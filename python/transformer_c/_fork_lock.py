"""A lock for module-level state."""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock

from . import _core


class ForkLock:
    """`with fork_lock.held():`, a lock that is free in a child process: the thread that had it in the parent does not exist there.

    An interrupt leaves it free, also where one comes between its being taken and the block, as Python's own locks would not from Python 3.14 on.
    A reentrant one may be entered by a thread that has it.
    """

    def __init__(self, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._make()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._make)

    def held(self) -> _core.switched:
        """A context manager: the lock is taken, and given back."""
        return _core.switched(bool, self.lock.acquire, self.lock.__exit__)

    def _make(self) -> None:
        self.lock = RLock() if self._reentrant else allocate_lock()
