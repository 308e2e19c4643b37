"""Reads MNIST's files: the idx format (LeCun), uncompressed or compressed by gzip."""

from __future__ import annotations

import gzip
import os

import numpy as np

from ..checkpoint.errors import CheckpointError, parsing
from ..checkpoint.files import open_regular

MAX_BYTES = 1 << 30  # per file after decompression; MNIST's largest has 47 MB, EMNIST's 547 MB
_PARTS = ("train", "t10k")


def load_mnist(path: str | os.PathLike) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The images and classes of MNIST, or of a data set with files in the same format (Fashion-MNIST, KMNIST).

    Parameters
    ----------
    path : path-like
        The folder of ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and
        ``t10k-labels-idx1-ubyte``, each uncompressed or with the ending ".gz".

    Returns
    -------
    (images, classes), (images, classes)
        The training and the test data: images (N, height, width), uint8; classes (N,), int64.

    Raises
    ------
    OSError
        FileNotFoundError when a file is missing, PermissionError, ...
    CheckpointError
        When a file is not in the idx format, is truncated, has extra bytes, or does not match the other file.
    """
    folder = os.fspath(path)
    if not os.path.isdir(folder):
        raise NotADirectoryError(
            f"{folder!r} is not a folder; load_mnist takes the folder of the four files, such as {_names('train-images', 3)[0]}"
        )
    train, test = (_load_part(folder, part) for part in _PARTS)
    return train, test


def _names(stem: str, axes: int) -> list[str]:
    return [f"{stem}{mark}idx{axes}-ubyte{end}" for mark in "-." for end in ("", ".gz")]


def _load_part(folder: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = _load(folder, f"{part}-images", 3), _load(folder, f"{part}-labels", 1)
    if len(images) != len(labels):
        raise CheckpointError(f"{folder!r} has {len(images)} images but {len(labels)} labels in the files that begin with {part!r}")
    return images, labels.astype(np.int64)


def _load(folder: str, stem: str, axes: int) -> np.ndarray:
    names = _names(stem, axes)
    path = next((p for name in names if os.path.exists(p := os.path.join(folder, name))), None)
    if path is None:
        raise FileNotFoundError(f"{folder!r} has none of {', '.join(names)}")
    try:
        return read_idx(path, axes)
    except CheckpointError as error:
        raise CheckpointError(f"{path!r} is not an idx file of {axes} axes: {error}") from error.__cause__


def read_idx(path: str | os.PathLike, axes: int) -> np.ndarray:
    """The array of bytes in an idx file: two zeros, the type 8, the number of axes, their lengths (big-endian), then the bytes."""
    raw, _ = open_regular(path)
    with (
        raw,
        gzip.GzipFile(fileobj=raw) if os.fspath(path).endswith(".gz") else raw as file,
        parsing("it is not a gzip file, or is damaged or cut off"),
    ):
        header = file.read(4)
        if len(header) < 4 or header[:3] != b"\0\0\x08":
            raise CheckpointError(f"it begins with {header[:4].hex(' ') or 'nothing'}; expected 00 00 08 {axes:02x}")
        if header[3] != axes:
            raise CheckpointError(f"it has {header[3]} axes")
        lengths = file.read(4 * axes)
        if len(lengths) < 4 * axes:
            raise CheckpointError("it is cut off in its header")
        shape = tuple(int(n) for n in np.frombuffer(lengths, ">u4"))
        return _read_bytes(file, shape)


def _read_bytes(file, shape: tuple[int, ...]) -> np.ndarray:
    """Reads the number of bytes that the shape requires, in pieces: memory use depends on the file's real size, not on its header."""
    size = 1
    for length in shape:
        size *= length
    if size > MAX_BYTES:
        raise CheckpointError(f"its header claims {' x '.join(map(str, shape))} bytes; at most {MAX_BYTES >> 20} MiB are read")
    pieces, left = [], size
    while left:
        piece = file.read(min(left, 1 << 22))
        if not piece:
            raise CheckpointError(f"it is cut off: {size - left} of {size} bytes are there")
        pieces.append(piece)
        left -= len(piece)
    if file.read(1):
        raise CheckpointError(f"it has more than the {size} bytes that its header announces")
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(shape).copy()
