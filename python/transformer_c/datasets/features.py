"""Features of images with their classes: four arrays in an .npz file, read without executing anything in it."""

from __future__ import annotations

import io
import math
import os
import zipfile

import numpy as np

from ..checkpoint.errors import CheckpointError, parsing
from ..checkpoint.files import open_regular

MAX_BYTES = 1 << 34  # for the four arrays; 512 float32 features for each of CIFAR-100's 60,000 images take 123 MB
_PARTS = ("train", "test")
ARRAYS = tuple(f"{part}_{kind}" for part in _PARTS for kind in ("features", "labels"))


def load_features(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Features of images, such as those from a pre-trained network, and their classes.

    Parameters
    ----------
    path : path-like
        A file written by ``np.savez(path, train_features=..., train_labels=..., test_features=..., test_labels=...)``: features (N, F),
        finite numbers; labels (N,), whole numbers. Other arrays in the file are ignored.

    Returns
    -------
    dict of str to ndarray
        The four arrays under these names: features float32, labels int64. ``tutorials.uva.anomaly_loaders`` takes them.

    Raises
    ------
    OSError
        FileNotFoundError, IsADirectoryError, PermissionError, ...
    CheckpointError
        When the file is not an .npz file or is truncated, or an array is missing or not as described.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, transformer_c as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "features.npz")
    ...     x, y = np.ones((6, 512)), np.arange(6)
    ...     np.savez(file, train_features=x, train_labels=y, test_features=x, test_labels=y)
    ...     arrays = tc.datasets.load_features(file)
    >>> arrays["train_features"].shape, arrays["test_labels"].tolist()
    ((6, 512), [0, 1, 2, 3, 4, 5])
    """
    path = os.fspath(path)
    file, _ = open_regular(path)
    with (
        file,
        parsing(f"{path!r} is not an .npz file, as np.savez writes them, or is cut off or damaged"),
        zipfile.ZipFile(file) as archive,
    ):
        members = _members(archive, path)
    arrays = {f"{part}_features": _features(members, part, path) for part in _PARTS}
    arrays |= {f"{part}_labels": _labels(members, part, path) for part in _PARTS}
    widths = [arrays[f"{part}_features"].shape[1] for part in _PARTS]
    if widths[0] != widths[1]:
        raise CheckpointError(
            f"train_features and test_features in {path!r} have {widths[0]} and {widths[1]} columns; expected the same number"
        )
    return arrays


def _members(archive: zipfile.ZipFile, path: str) -> dict[str, np.ndarray]:
    there = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    missing = [name for name in ARRAYS if name not in there]
    if missing:
        raise CheckpointError(f"{path!r} has no array {', '.join(missing)}; it has {', '.join(there)[:200] or 'none'}")
    if sum(there[name].file_size for name in ARRAYS) > MAX_BYTES:
        raise CheckpointError(f"{path!r} has arrays of more than {MAX_BYTES >> 30} GiB")
    found = {}
    for name in ARRAYS:
        with parsing(f"{path!r} is not an .npz file of arrays, or is damaged: {name}"):
            if there[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("it is compressed in another way than np.savez and np.savez_compressed do")
            found[name] = _array(archive.read(there[name]))
    return found


def _array(data: bytes) -> np.ndarray:
    """The array in a .npy file. Its header is checked against the number of bytes in the file before memory is allocated."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of the format; expected 1 or 2")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.kind not in "biuf":
        raise TypeError(f"it has dtype {dtype}; expected numbers")
    size = math.prod(shape) * dtype.itemsize
    if len(data) - file.tell() != size:
        raise ValueError(f"shape {shape} and dtype {dtype} are {size} bytes; the file has {len(data) - file.tell()}")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")


def _features(members: dict[str, np.ndarray], part: str, path: str) -> np.ndarray:
    name = f"{part}_features"
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(members[name], np.float32)
    if x.ndim != 2 or not np.isfinite(x).all():
        values = "" if np.isfinite(x).all() else " and values that are not finite in float32"
        raise CheckpointError(f"{name} in {path!r} has shape {members[name].shape}{values}; expected finite numbers (N, F)")
    return x


def _labels(members: dict[str, np.ndarray], part: str, path: str) -> np.ndarray:
    name, y, count = f"{part}_labels", members[f"{part}_labels"], len(members[f"{part}_features"])
    if y.ndim != 1 or (y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.floor(y)).all())):
        raise CheckpointError(f"{name} in {path!r} has shape {y.shape} and dtype {y.dtype}; expected whole numbers (N,)")
    if len(y) != count:
        raise CheckpointError(f"{path!r} has {count} {part} features and {len(y)} {part} labels; expected the same number")
    return y.astype(np.int64)
