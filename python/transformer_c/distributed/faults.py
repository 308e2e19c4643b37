"""A rank that fails or hangs ends all: the others would wait for it for ever."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from types import TracebackType

from .group import Group


def end_all_after_errors(group: Group) -> None:
    """From now on an error that nobody catches is reported with its rank, and ends the processes of all ranks with exit status 1."""

    def report(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, where))
        end_all(group, f"rank {group.rank} of {group.size} failed, which ends all:\n{text}", 130 if kind is KeyboardInterrupt else 1)

    sys.excepthook = report


def end_all(group: Group, message: str, status: int = 1) -> None:
    """Writes a message and ends the processes of all ranks."""
    sys.stdout.flush()
    sys.stderr.write(message)
    sys.stderr.flush()
    group.communicator.Abort(status)


_POLL = 0.25  # seconds
_GRACE = 2.0  # for the reports of the others


class Watch(threading.Thread):
    """Ends all once a rank has waited for others too long; every rank then says where it is.

    A rank that computes is never judged by its own time: only those who wait know that something is late.

    Parameters
    ----------
    group : Group
    limit : float
        In seconds.
    """

    def __init__(self, group: Group, limit: float) -> None:
        super().__init__(name="transformer_c-watch", daemon=True)
        self._group, self._limit = group, limit
        self._messages = group.communicator.Dup()  # "report": the only kind
        self._watched = threading.get_ident()

    def run(self) -> None:
        """Until the process ends."""
        while True:
            time.sleep(min(_POLL, self._limit / 4))
            if self._messages.Iprobe():
                sys.stderr.write(self._report())
                sys.stderr.flush()
                return  # who asked ends all
            waiting = self._group.waiting
            if waiting is not None and time.monotonic() - waiting[1] > self._limit:
                self._end(waiting[0])

    def _report(self) -> str:
        frame, waiting = sys._current_frames().get(self._watched), self._group.waiting
        where = "".join(traceback.format_stack(frame)) if frame is not None else "  (its thread has ended)\n"
        state = f"waits for others in {waiting[0]}" if waiting else "does not wait for others"
        return f"rank {self._group.rank} of {self._group.size} {state}:\n{where}"

    def _end(self, name: str) -> None:
        group = self._group
        for rank in (rank for rank in range(group.size) if rank != group.rank):
            self._messages.isend("report", rank)
        time.sleep(_GRACE)
        seconds = f"{self._limit:g} s"
        end_all(group, f"rank {group.rank} of {group.size} waited for others in {name} for more than {seconds}, which ends all\n")
