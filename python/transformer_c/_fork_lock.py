"""A lock for module-level state."""

from __future__ import annotations

import os
import threading
from typing import Any


class ForkLock:
    """A lock that is free in a child process: the thread that had it in the parent does not exist there."""

    def __init__(self) -> None:
        self._make()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *unused: Any) -> None:
        self._lock.release()
