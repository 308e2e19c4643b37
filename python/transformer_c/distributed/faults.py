"""A rank that fails ends all: the others would wait for it for ever."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

from .group import Group


def end_all_after_errors(group: Group) -> None:
    """From now on an error that nobody catches is reported with its rank, and ends the processes of all ranks with exit status 1."""
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> Any:
        if issubclass(kind, SystemExit):
            return before(kind, error, where)
        text = "".join(traceback.format_exception(kind, error, where))
        end_all(group, f"rank {group.rank} of {group.size} failed, which ends all:\n{text}", 130 if kind is KeyboardInterrupt else 1)

    sys.excepthook = report


def end_all(group: Group, message: str, status: int = 1) -> None:
    """Writes a message and ends the processes of all ranks."""
    sys.stdout.flush()
    sys.stderr.write(message)
    sys.stderr.flush()
    group.communicator.Abort(status)
