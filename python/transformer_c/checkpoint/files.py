"""Opens files of any kind safely, and writes files so that they are never incomplete."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
import time
from io import FileIO
from typing import Any

from .errors import CheckpointError

_PREFIX, _SUFFIX = ".transformer_c-", ".tmp"  # of temporary files


def open_regular(path: str | os.PathLike) -> tuple[FileIO, int]:
    """Opens a file for reading: (unbuffered file, size in bytes).

    Only regular files are opened: a pipe or a device could keep its reader waiting for ever.

    Raises
    ------
    OSError
        FileNotFoundError, IsADirectoryError, PermissionError, ...
    CheckpointError
        When `path` is a pipe, a socket or a device.
    """
    path = os.fspath(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", path)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path!r} is a pipe, a socket or a device; expected a file")
        return os.fdopen(descriptor, "rb", buffering=0), status.st_size
    except BaseException:
        os.close(descriptor)
        raise


def read_exactly(file: FileIO, offset: int, buffer) -> None:
    """Fills a writable buffer with the bytes at `offset`."""
    view = memoryview(buffer).cast("B")
    file.seek(offset)
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise CheckpointError("the file became shorter while it was being read")
        done += count


def write_atomically(path: str | os.PathLike, *parts: Any) -> None:
    """Writes a file so that, whatever happens, `path` contains either its old contents or all of `parts`: bytes, or arrays of them.

    The bytes are written to a temporary file in the same folder (".transformer_c-....tmp") and synced to disk. The file is
    renamed in one step, then the folder is synced. A symbolic link stays a link: the file that it points to is replaced. A
    process that is killed meanwhile may leave the temporary file behind.
    """
    path = os.path.realpath(os.fsdecode(path))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file to write, got a folder", path)
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))  # keeps the permissions of the replaced file
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "the folder to write to does not exist; make it first", folder) from error
    except BaseException:  # also Ctrl-C: no temporary file is left behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Deletes temporary files that killed processes left in a folder: those at least an hour old, as no write takes that long."""
    for path in glob.iglob(os.path.join(glob.escape(os.fsdecode(folder)), f"{_PREFIX}*{_SUFFIX}")):
        with contextlib.suppress(OSError):  # already deleted, or another user's
            if time.time() - os.lstat(path).st_mtime > 3600:
                os.unlink(path)


def _sync_folder(folder: str) -> None:
    """Makes a rename in `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
