"""Opens files of any kind safely, and writes files so that they are never incomplete."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import itertools
import os
import secrets
import stat
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from io import BufferedReader, BytesIO, FileIO, RawIOBase, TextIOBase
from typing import Any

from .. import _core
from .errors import CheckpointError

POINTER = b"version https:"  # how a file begins that stands for one in Git LFS
_PREFIX, _SUFFIX = ".transformer_c-", ".tmp"  # of temporary files


def open_regular(path: str | os.PathLike) -> tuple[BufferedReader, int]:
    """Opens a file for reading: (file, size in bytes). Its ``read(n)`` returns n bytes unless the file ends, however few the system gives.

    Only regular files are opened: a pipe or a device could keep its reader waiting for ever.

    Raises
    ------
    OSError
        FileNotFoundError, IsADirectoryError, PermissionError, ...
    CheckpointError
        When `path` is a pipe, a socket or a device.
    """
    file = FileIO(os.fspath(path), "rb", opener=_open_regular)  # the descriptor belongs to the file, whatever fails
    try:
        return BufferedReader(file), os.fstat(file.fileno()).st_size
    except BaseException:
        file.close()
        raise


def read_whole(path: str | os.PathLike, most: int) -> bytearray:
    """All of a file, as ``open_regular`` opens it; CheckpointError where it has more than `most` bytes, or becomes shorter meanwhile."""
    file, size = open_regular(path)
    with file:
        if size > most:
            raise CheckpointError(f"{path!r} has {size} bytes; at most {most >> 20} MiB are read")
        data = bytearray(size)
        read_exactly(file, 0, data)
    return data


def _add_opened(opened: list[int], path: str | os.PathLike, flags: int, mode: int = 0o777) -> None:
    """Opens a file and puts its descriptor into a list, both in C: an interrupt after os.open() would lose it on the way to a variable."""
    opened.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,)))


def _open_regular(path: str, flags: int) -> int:
    opened: list[int] = []
    try:
        _add_opened(opened, path, flags | os.O_NONBLOCK)
        mode = os.fstat(opened[0]).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", path)
        if not stat.S_ISREG(mode):
            raise CheckpointError(f"{path!r} is a pipe, a socket or a device; expected a file")
        return opened[0]
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise


@contextlib.contextmanager
def opened(source: Any) -> Iterator[tuple[Any, int, str]]:
    """(file, size in bytes, words for messages) of what a reader was given; ``file`` has ``seek`` and ``readinto``, and begins at 0.

    Parameters
    ----------
    source : str, path-like, bytes-like, or binary file object
        A path is opened as by ``open_regular`` and closed again. A file object is read from its position to its end; what cannot be
        sought in, such as a socket, is read as a whole first.
    """
    if isinstance(source, (str, os.PathLike)):
        file, size = open_regular(source)
        with file:
            yield file, size, repr(os.fspath(source))
        return
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = memoryview(source).cast("B")
        yield BytesIO(data), len(data), f"the {type(source).__name__} object"
        return
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"expected a path, bytes or a file object that is open for reading, not {type(source).__name__}")
    name = _called(source)
    if isinstance(source, TextIOBase):
        raise TypeError(f'{name} gives str, not bytes: open it in binary mode, "rb"')
    sought = callable(getattr(source, "seekable", None)) and source.seekable() and callable(getattr(source, "readinto", None))
    if sought and source.tell() == 0:
        size = source.seek(0, os.SEEK_END)
        yield source, size, name
        return
    data = source.read()
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f'{name} gives {type(data).__name__}, not bytes: open it in binary mode, "rb"')
    yield BytesIO(data), len(data), name


def other_format(start: bytes) -> str | None:
    """What a file of weights is that another program made, by its first bytes, and what to do with it; None if it is not known."""
    if start.startswith(POINTER):
        return "it is a pointer of Git LFS in the place of the file: `git lfs pull` in its folder, or downloading it again, gets the file"
    if start[:4] == b"GGUF":
        return "it is a GGUF file, of llama.cpp; its weights are quantised for that program: use the model's safetensors files"
    if start[:8] == b"\x89HDF\r\n\x1a\n":
        return "it is an HDF5 file, of Keras or TensorFlow; use the model's safetensors files"
    # protobuf: field 1, the version of the format, then field 2, the name of the program that wrote it, or 7, the graph
    if len(start) > 2 and start[0] == 8 and 0 < start[1] < 32 and start[2] in (0x12, 0x3A):
        return "it is an ONNX file, a program rather than weights by name: use the model's safetensors files, or run it with onnxruntime"
    return None


def read_exactly(file: BufferedReader, offset: int, buffer) -> None:
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

    Warns
    -----
    RuntimeWarning
        When the folder cannot be synced: the new file is in place, but after a power failure the old one may be there again.
        That is no error, because the file is written (SQLite ignores it).
    """
    path = os.path.realpath(os.fsdecode(path))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file to write, got a folder", path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "expected the name of a file to write, got a device, pipe or socket, which would be replaced", path)
    folder = os.path.dirname(path)
    temporary, descriptor = _new_temporary(folder)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))  # keeps the permissions of the replaced file
        for part in parts:
            _write(descriptor, part)
        os.fsync(descriptor)
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise _no_folder(folder) from error
    except BaseException:  # also Ctrl-C: no temporary file is left behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        # From here on nothing may turn success into an error, so nothing here must need memory.
        try:  # noqa: SIM105
            os.close(descriptor)  # not before the file has its name: it is locked until then
        except OSError:
            pass  # what is synced is written
    try:  # noqa: SIM105
        _sync_folder(folder)
    except MemoryError:
        pass  # not even for the warning


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Deletes the temporary files that killed processes left in a folder.

    A process locks its temporary file while it lives, wherever it runs, so an unlocked one belongs to nobody. On file systems without
    locks those at least an hour old are deleted, as no write takes that long.
    """
    for path in glob.iglob(os.path.join(glob.escape(os.fsdecode(folder)), f"{_PREFIX}*{_SUFFIX}")):
        with contextlib.suppress(OSError):  # already deleted, or another user's
            opened: list[int] = []
            try:
                _add_opened(opened, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                age = time.time() - os.fstat(opened[0]).st_mtime
                if _lock(opened[0], fcntl.LOCK_NB, without=age > 3600):
                    os.unlink(path)
            finally:
                for descriptor in opened:
                    os.close(descriptor)


def _new_temporary(folder: str) -> tuple[str, int]:
    """(path, descriptor) of a new file, locked. The file is its own again if another process took it for a leftover meanwhile."""
    while True:
        path = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        opened: list[int] = []
        try:
            _add_opened(opened, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            _lock(opened[0], 0, without=True)
            if os.fstat(opened[0]).st_nlink:
                return path, opened[0]
        except FileNotFoundError as error:
            raise _no_folder(folder) from error
        except BaseException as error:  # also Ctrl-C as the file is made
            if isinstance(error, OSError) and error.filename == path:
                error.filename = folder  # which the user knows
            with contextlib.suppress(OSError):
                os.unlink(path)
            for descriptor in opened:
                os.close(descriptor)
            raise
        os.close(opened[0])


def _lock(descriptor: int, flags: int, without: bool) -> bool:
    """Locks the file, which ends when it is closed; False if another process has it. `without`: the answer if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True


class HeldFolders:
    """Folders that no other one has, in this process or another, until ``give_back()``."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._descriptors: list[int] = []

    def add(self, folder: str | os.PathLike) -> None:
        """Raises RuntimeError when another one has it. On file systems without locks nobody knows."""
        _add_opened(self._descriptors, folder, os.O_RDONLY | os.O_DIRECTORY)
        if not _lock(self._descriptors[-1], fcntl.LOCK_NB, without=True):
            raise RuntimeError(
                f"another run is writing to {os.fsdecode(folder)}: two would overwrite each other's files; give each a folder of its own"
            )

    def give_back(self) -> None:
        """Lets others have them; called again where an interrupt came before the end."""
        if os.getpid() == self._process:  # children that were forked meanwhile have the descriptors, too, and may leave the block
            for descriptor in self._descriptors:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        deque(map(os.close, map(self._descriptors.pop, itertools.repeat(-1, len(self._descriptors)))), 0)  # each is taken and closed in C


def held_by_one(*folders: str | os.PathLike) -> AbstractContextManager[HeldFolders]:
    """For a ``with`` block: no other one has the folders, nor those that are added in the block. An interrupt leaves none held."""

    def enter(held: HeldFolders | None) -> None:
        if held is not None:
            for folder in folders:
                held.add(folder)

    return _core.switched(enter, HeldFolders, HeldFolders.give_back)


def set_aside(folder: str, names: Sequence[str]) -> str | None:
    """Moves those of the files and folders that exist to a new folder in `folder`, "earlier_1" or a higher number, and returns its path."""
    found = [name for name in names if os.path.exists(os.path.join(folder, name))]
    if not found:
        return None
    number = 1
    while os.path.exists(aside := os.path.join(folder, f"earlier_{number}")):
        number += 1
    os.mkdir(aside)
    for name in found:
        os.replace(os.path.join(folder, name), os.path.join(aside, name))
    return aside


def _no_folder(folder: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the folder to write to does not exist; make it first", folder)


def write(target: Any, *parts: Any) -> None:
    """Writes bytes, or arrays of them, to a path, as ``write_atomically`` does, or to a binary file object, from its position on."""
    if isinstance(target, (str, bytes, os.PathLike)) or not callable(getattr(target, "write", None)):
        write_atomically(target, *parts)
        return
    if isinstance(target, TextIOBase):
        raise TypeError(f'{_called(target)} takes str, not bytes: open it in binary mode, "wb"')
    for part in parts:
        view = _bytes_of(part)
        while view:
            written = target.write(view)  # a raw file may take less than all, or nothing where it would wait
            if written is None and not isinstance(target, RawIOBase):
                written = len(view)  # it does not say, and took all
            if not written:
                raise BlockingIOError(errno.EAGAIN, f"{_called(target)} takes no more bytes; a part is written")
            view = view[written:]


def _called(file: Any) -> str:
    """What messages call a file object."""
    return f"the file object {file.name!r}" if isinstance(getattr(file, "name", None), str) else f"the {type(file).__name__} object"


def _bytes_of(part: Any) -> memoryview:
    view = memoryview(part)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _write(descriptor: int, part: Any) -> None:
    view = _bytes_of(part)
    while view:
        view = view[os.write(descriptor, view) :]  # large writes and nearly full disks may take several


def _sync_folder(folder: str) -> None:
    """Makes a rename in `folder` survive a power failure."""
    try:
        opened: list[int] = []
        try:
            _add_opened(opened, folder, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(opened[0])
        finally:
            for descriptor in opened:
                os.close(descriptor)
    except (OSError, MemoryError) as error:
        warnings.warn(f"the file is written, but {folder!r} could not be synced: {error}", RuntimeWarning, stacklevel=4)
