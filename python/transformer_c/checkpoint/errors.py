"""The one error of this package, and how the errors of other parsers become it."""

from __future__ import annotations

import errno
import sys


class CheckpointError(ValueError):
    """A file is not a checkpoint, is damaged, or asks for something that is refused; the message says which and why."""


class parsing:
    """``with parsing("'x.npz' is not an .npz file, or is damaged"):`` around a parser that is not this package's own.

    What such a parser raises for damaged bytes can be of any class (zipfile alone raises eight), so every exception becomes a
    CheckpointError with this message, except errors that are not the file's: running out of memory, and input or output that failed.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None:
        self._handled = sys.exc_info()[1]  # by the caller: not the parser's, though it is the context of all that is raised here

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, CheckpointError) or _blames_the_system(error):
            return
        original = error.__context__
        while original is not None and original is not self._handled:  # zipfile says "not a zip file" when the disk is broken
            if _blames_the_system(original):
                raise original
            original = original.__context__
        raise CheckpointError(f"{self._message} ({type(error).__name__}: {error})") from error


def _blames_the_system(error: BaseException) -> bool:
    """Memory that ran out, or input that failed: the file may be whole. EINVAL is what seeking to a damaged offset gives, and an OSError without a number comes
    from a parser. Without memory, extensions raise SystemError, and making a lock RuntimeError."""
    if isinstance(error, OSError):
        return error.errno not in (None, errno.EINVAL)
    return isinstance(error, (MemoryError, SystemError)) or str(error).startswith("can't allocate")
