"""Module-level state of several threads, and forks: a lock, and entries by thread."""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock, get_ident
from typing import Any

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


def by_thread() -> dict[int, Any]:
    """A dict by thread. A child process keeps the entry of the thread that forked alone: a new thread may have the number of one that is gone."""
    entries: dict[int, Any] = {}

    def keep_own() -> None:
        for thread in [thread for thread in entries if thread != get_ident()]:
            del entries[thread]

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=keep_own)
    return entries
