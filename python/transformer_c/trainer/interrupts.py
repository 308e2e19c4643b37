"""Ctrl-C between two batches rather than inside one."""

from __future__ import annotations

import signal
import threading


class StopBetweenBatches(Exception):
    """Raised after Ctrl-C once the current batch is done."""


class Interrupts:
    """While in use, the first Ctrl-C only sets ``pending``; a second one interrupts at once.

    Only Python's default handler is replaced, and only in the main thread: another handler of SIGINT stays in place.
    """

    def __init__(self) -> None:
        self.pending = False
        self._replaced = False

    def __enter__(self) -> Interrupts:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._replaced = True
        return self

    def __exit__(self, *unused) -> None:
        if self._replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raises StopBetweenBatches after a Ctrl-C."""
        if self.pending:
            raise StopBetweenBatches

    def _handle(self, number, frame) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
