"""Ctrl-C between two batches rather than inside one."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import signal
import threading
from contextlib import AbstractContextManager, nullcontext

from .. import _core


class StopBetweenBatches(Exception):
    """Raised after Ctrl-C once the current batch is done."""


class Interrupts:
    """While ``held()``, the first Ctrl-C only sets ``pending``; a second one interrupts at once.

    Only Python's default handler is replaced, and only in the main thread: another handler of SIGINT stays in place.
    """

    def __init__(self) -> None:
        self.pending = False

    def held(self) -> AbstractContextManager:
        """For a ``with`` block. The default handler is in place again after it, however it ends."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # _signal.signal is in C: an interrupt comes before it or after it, while signal.signal around it can be left half-way.
            return _core.switched(functools.partial(_signal.signal, signal.SIGINT), lambda: self._handle)
        return nullcontext()

    def check(self) -> None:
        """Raises StopBetweenBatches after a Ctrl-C."""
        if self.pending:
            raise StopBetweenBatches

    def _handle(self, number, frame) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
