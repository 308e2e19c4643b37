"""Reads CIFAR-100's Python files (Krizhevsky 2009): pickles, read without executing anything in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checkpoint.errors import CheckpointError, parsing
from ..checkpoint.files import read_whole
from ..checkpoint.known_calls import CALLS
from ..checkpoint.pickle_machine import PickleMachine

MAX_BYTES = 1 << 30  # per file; the larger of the two has 155 MB
_FOLDER = "cifar-100-python"
_PIXELS = 3 * 32 * 32


def load_cifar100(path: str | os.PathLike, labels: str = "fine") -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The images and classes of CIFAR-100.

    Parameters
    ----------
    path : path-like
        The folder ``cifar-100-python`` of the unpacked archive, with the files ``train`` and ``test``, or its parent folder.
    labels : {"fine", "coarse"}
        The 100 classes or the 20 groups of classes.

    Returns
    -------
    (images, classes), (images, classes)
        The training and the test data: images (N, 32, 32, 3), uint8; classes (N,), int64.

    Raises
    ------
    OSError
        FileNotFoundError when a file is missing, PermissionError, ...
    CheckpointError
        When a file is not a pickle of a dict with images and labels, is truncated, or asks for something to be executed.
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels must be 'fine' or 'coarse', got {labels!r}")
    folder = os.fspath(path)
    inner = os.path.join(folder, _FOLDER)
    folder = inner if os.path.isdir(inner) else folder
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder!r} is not a folder; load_cifar100 takes the folder {_FOLDER} of the unpacked archive")
    train, test = (_load_part(os.path.join(folder, part), labels) for part in ("train", "test"))
    return train, test


def _load_part(path: str, labels: str) -> tuple[np.ndarray, np.ndarray]:
    data = read_whole(path, MAX_BYTES)
    try:
        with parsing("it is damaged"):
            contents = PickleMachine(bytes(data), CALLS, _no_persistent, python2=True).run()
            return _images(contents), _classes(contents, labels)
    except CheckpointError as error:
        raise CheckpointError(f"{path!r} is not part of CIFAR-100: {error}") from error.__cause__


def _no_persistent(name: Any) -> Any:
    raise CheckpointError("the pickle refers to something outside of it")


def _entry(contents: Any, name: str) -> Any:
    """The entry whose key is `name` as text or, as Python 2 writes it, as bytes."""
    if isinstance(contents, Mapping):
        for key in (name, name.encode()):
            if key in contents:
                return contents[key]
    raise CheckpointError(f"it has no {name!r}")


def _images(contents: Any) -> np.ndarray:
    rows = _entry(contents, "data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _PIXELS:
        found = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise CheckpointError(f"its 'data' is {found}; expected uint8 (N, {_PIXELS})")
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _classes(contents: Any, labels: str) -> np.ndarray:
    name, count = f"{labels}_labels", 100 if labels == "fine" else 20
    values, images = _entry(contents, name), len(_entry(contents, "data"))
    if not isinstance(values, list) or len(values) != images or not all(type(v) is int and 0 <= v < count for v in values):
        raise CheckpointError(f"its {name!r} is not a list of {images} numbers from 0 to {count - 1}")
    return np.array(values, np.int64)
