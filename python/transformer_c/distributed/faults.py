"""A rank that fails, hangs or ends before the others ends all: they would wait for it for ever."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from .group import Group


def end_all_after_errors(group: Group) -> None:
    """From now on an error that nobody catches is reported with its rank, and ends the processes of all ranks with exit status 1.

    A hook of the program's own (``sys.excepthook``) is called first.
    """
    process, before = os.getpid(), sys.excepthook

    def report(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if os.getpid() != process:  # a child of a fork, which is no rank and must not end MPI
            before(kind, error, where)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        if before is not sys.__excepthook__:
            before(kind, error, where)
        text = "".join(traceback.format_exception(kind, error, where))
        end_all(group, f"rank {group.rank} of {group.size} failed, which ends all:\n{text}", 130 if kind is KeyboardInterrupt else 1)

    sys.excepthook = report


def end_all(group: Group, message: str, status: int = 1) -> None:
    """Writes a message and ends the processes of all ranks."""
    sys.stdout.flush()
    _say(message)
    group.communicator.Abort(status)


def _say(message: str) -> None:
    sys.stderr.write(message)
    sys.stderr.flush()


_POLL, _LAST_POLL = 0.25, 2e-3  # seconds
_GRACE = 2.0  # for what a rank that ended, or one that does not answer, may still print itself


class Watch(threading.Thread):
    """Ends all once a rank has waited for others too long, or for one whose program is over; every rank then says where it is.

    A rank that computes is never judged by its own time: only those who wait know that something is late. A rank whose program ends tells
    rank 0, through which any call of all ranks goes; rank 0 tells all. Those who wait in a call that this rank will not make end all. A rank
    ends once it has heard what it will be told, as MPI waits for all anyway: of messages that nobody took some networks' libraries warn.

    Parameters
    ----------
    group : Group
    limit : float
        In seconds.
    """

    def __init__(self, group: Group, limit: float) -> None:
        super().__init__(name="transformer_c-watch", daemon=True)
        self._group, self._limit = group, limit
        # ("report", by whom), ("reported", by whom), or which ranks have ended, after how many calls
        self._messages = group.communicator.Dup()
        self._watched, self._process = threading.get_ident(), os.getpid()
        self._ended: dict[int, int] = {}
        self._heard = 0.0  # when it was told of them
        self._has_said, self._silent = False, set[int]()  # where this rank is; who was asked and has not
        self._is_over, self._sent = threading.Event(), list[Any]()
        atexit.register(self._leave)

    def run(self) -> None:
        """Until the program is over, here and on those ranks that tell so."""
        told_by = set(range(1, self._group.size)) if self._group.rank == 0 else {0}
        while not (self._is_over.is_set() and told_by <= self._ended.keys()):
            if self._is_over.wait(min(_POLL, self._limit / 4)):
                time.sleep(_LAST_POLL)
            self._take_messages()
            if not (self._is_over.is_set() or self._has_said):  # who asked for what it said ends all
                self._judge()

    def _take_messages(self) -> None:
        while self._messages.Iprobe():
            message = self._messages.recv()
            if isinstance(message, dict):
                self._ended.update(message)
                self._heard = time.monotonic()
            elif message[0] == "report":
                self._say_once()
                self._send(("reported", self._group.rank), [message[1]])
            else:
                self._silent.discard(message[1])

    def _say_once(self) -> None:
        """Says where this rank is."""
        if not self._has_said:
            _say(self._report())
        self._has_said = True

    def _send(self, message: Any, ranks: Iterable[int]) -> None:
        self._sent += [self._messages.isend(message, rank) for rank in ranks]

    def _judge(self) -> None:
        """Ends all if this rank waits in vain."""
        group, waiting, now = self._group, self._group.waiting, time.monotonic()
        if waiting is None:
            return
        name, since = waiting
        missing = sorted(rank for rank, calls in self._ended.items() if calls <= group.calls)
        itself = f"rank {group.rank} of {group.size}"
        if missing and now - max(since, self._heard) > _GRACE:
            ended = f"rank {missing[0]} has ended" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have ended"
            self._end(f"{itself} waits for others in {name}, but {ended}, which ends all: all ranks must make the same calls\n")
        elif now - since > self._limit:
            self._end(f"{itself} waited for others in {name} for more than {self._limit:g} s, which ends all\n")

    def _report(self) -> str:
        if self._is_over.is_set():
            return f"rank {self._group.rank} of {self._group.size} has ended\n"
        frame, waiting = sys._current_frames().get(self._watched), self._group.waiting
        where = "".join(traceback.format_stack(frame)) if frame is not None else "  (its thread has ended)\n"
        state = f"waits for others in {waiting[0]}" if waiting else "does not wait for others"
        return f"rank {self._group.rank} of {self._group.size} {state}:\n{where}"

    def _end(self, message: str) -> None:
        """Ends all once the others have said where they are; one that does not answer in time, as in C code of its own, has not."""
        self._say_once()
        self._silent = set(range(self._group.size)) - {self._group.rank} - self._ended.keys()
        self._send(("report", self._group.rank), self._silent)
        end = time.monotonic() + _GRACE
        while self._silent and time.monotonic() < end:
            time.sleep(_LAST_POLL)
            self._take_messages()
        end_all(self._group, message)

    def _leave(self) -> None:
        """This rank's program is over."""
        if os.getpid() != self._process or self._is_over.is_set():  # a child of a fork
            return
        group = self._group
        self._send({**self._ended, group.rank: group.calls}, range(1, group.size) if group.rank == 0 else [0])
        self._is_over.set()
        if self.is_alive():
            self.join()
