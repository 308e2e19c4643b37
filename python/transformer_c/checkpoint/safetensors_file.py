"""tc.save and tc.load: safetensors files.

A file contains the arrays of a state dict by name, and metadata: strings by name. The metadata that this module writes are
"transformer_c" (the version of this layout), "class" (the name of the saved module's class: a hint for people and for
``python -m transformer_c predict``; nothing is looked up by it), "hyper_parameters" (JSON; see tree.py), and, if the saved
mapping is not simply arrays by name, "tree": the JSON of the whole, which refers to the arrays by name. What is not a
mapping, such as one array, is stored under the name "value", and "contains" is "value".
"""

from __future__ import annotations

import errno
import json
import mmap as _mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .dtypes import from_bfloat16_bits, ml_dtype
from .errors import CheckpointError, parsing
from .files import opened, other_format, read_exactly, write
from .safetensors_header import Entry, NotSafetensors, read_header
from .tree import decode, encode, is_array

LAYOUT = "1"
VALUE = "value"

# safetensors' names of the dtypes that NumPy has, little-endian as in the file, and those of ml_dtypes.
_NUMPY_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
    "C64": "<c8",
}
_ML_DTYPES = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
_STORED = {np.dtype(code).name: name for name, code in _NUMPY_DTYPES.items()}
_STORED |= {code: name for name, code in _ML_DTYPES.items()} | {"bfloat16": "BF16"}


class Checkpoint(dict):
    """The result of ``tc.load``: a dict of the file's contents, with its hyper-parameters and metadata.

    Attributes
    ----------
    hyper_parameters : dict
        The saved module's hyper-parameters; empty when the file has none.
    metadata : dict of str to str
        All of the file's metadata, unchanged.
    """

    hyper_parameters: dict[str, Any]
    metadata: dict[str, str]

    def __init__(
        self, values: Mapping | None = None, hyper_parameters: Mapping | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(values or {})
        self.hyper_parameters = dict(hyper_parameters or {})
        self.metadata = dict(metadata or {})


def save(module_or_dict: Any, path: Any, hyper_parameters: Mapping | None = None) -> None:
    """Writes a module's state, a dict, or an array to a safetensors file.

    The file is written completely or not at all: a save that fails leaves the old file in place.

    Parameters
    ----------
    module_or_dict : nn.Module or mapping
        A module (anything with ``state_dict()``: an optimizer too), or a mapping. Tensors and ndarrays are stored as
        tensors of the file, under their names; in a nested mapping the names are joined by dots. Numbers, strings, None,
        lists, tuples and mappings around them are kept in the metadata. Or one Tensor or ndarray, or a list or tuple.
    path : str, path-like or file object
        A file object is open for writing in binary mode and is written to from its position on; what fails there may leave a part.
    hyper_parameters : mapping, optional
        Stored in the metadata as JSON; the module's ``hparams`` by default. Numbers, strings, None, lists, tuples, mappings.

    Raises
    ------
    TypeError
        When it contains something that the format cannot store; the message names it.
    OSError
        When the file cannot be written.

    See Also
    --------
    load

    Notes
    -----
    Tensors that share memory are stored once for each name. Writing bfloat16 needs the package ``ml_dtypes``. Reading
    does not: without it, ``load`` returns the same values as float32.

    Examples
    --------
    >>> import os, tempfile, numpy as np, transformer_c.checkpoint as checkpoint
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> checkpoint.save({"weight": np.ones((2, 3), np.float32)}, path, hyper_parameters={"lr": 5e-4})
    >>> state = checkpoint.load(path)
    >>> state["weight"].shape, state.hyper_parameters
    ((2, 3), {'lr': 0.0005})
    >>> checkpoint.save({"model": {"weight": np.ones(3)}, "epoch": 7}, path)
    >>> checkpoint.load(path)
    {'model': {'weight': array([1., 1., 1.])}, 'epoch': 7}
    >>> checkpoint.save(np.arange(3), path)
    >>> checkpoint.load(path)
    array([0, 1, 2])
    """
    metadata = {"transformer_c": LAYOUT}
    if is_array(module_or_dict) or isinstance(module_or_dict, (list, tuple)):
        module_or_dict, metadata["contains"] = {VALUE: module_or_dict}, VALUE
    state, own = _state_of(module_or_dict)
    parameters = own if hyper_parameters is None else hyper_parameters
    if hasattr(module_or_dict, "named_parameters"):
        metadata["class"] = type(module_or_dict).__name__
    if parameters is not None:
        metadata["hyper_parameters"] = _to_json(encode(_as_mapping(parameters), None, what="hyper_parameters"))
    arrays: dict[str, Any] = {}
    if all(isinstance(key, str) and key != "__metadata__" and is_array(value) for key, value in state.items()):
        arrays.update(state)
    else:
        metadata["tree"] = _to_json(encode(state, arrays, what="the saved mapping"))
    write_arrays(path, arrays, metadata)


def write_arrays(path: Any, arrays: Mapping[str, Any], metadata: dict[str, str]) -> None:
    """Writes arrays and Tensors by name to a safetensors file, which at a path is never incomplete, or to a file object."""
    write(path, *_parts({name: _storable(name, value) for name, value in arrays.items()}, metadata))


def _parts(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> list[bytes | np.ndarray]:
    """The parts of a file: the header's length, the header, then the arrays, which are not copied.

    The package safetensors is not used for this: it copies all arrays first, and its order of the metadata varies, whereas equal content
    should give equal bytes.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items())), **dict.fromkeys(arrays)}  # names in the order they came in
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # each array begins at a multiple of its item size
    end = 0
    for name in names:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {"dtype": _STORED[arrays[name].dtype.name], "shape": arrays[name].shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8 bytes
    return [len(text).to_bytes(8, "little"), text, *(arrays[name].reshape(-1).view(np.uint8) for name in names)]


def _state_of(value: Any) -> tuple[Mapping, Any]:
    """(mapping to store, hyper-parameters or None)."""
    if isinstance(value, type):
        raise TypeError(f"module_or_dict is the class {value.__name__}; pass an instance: {value.__name__}(...)")
    if callable(getattr(value, "state_dict", None)):
        return value.state_dict(), getattr(value, "hparams", None)
    if isinstance(value, Mapping):
        return value, getattr(value, "hyper_parameters", None)
    raise TypeError(
        f"module_or_dict is of type {type(value).__name__}; expected a module (something with state_dict()), a mapping or an array"
    )


def _as_mapping(parameters: Any) -> Mapping:
    if isinstance(parameters, Mapping):
        return parameters
    if hasattr(parameters, "items"):
        return dict(parameters.items())
    if not hasattr(parameters, "__dict__"):
        raise TypeError(f"hyper_parameters is of type {type(parameters).__name__}; expected a mapping")
    return vars(parameters)


def _to_json(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _storable(name: str, value: Any) -> np.ndarray:
    """An array as the file has it: on the CPU, contiguous, little-endian."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    array = np.asarray(value, order="C")
    if array.dtype == bool:
        array = array.view(np.uint8) != 0  # memory from elsewhere may have other bytes for true, which no reader takes
    if array.dtype.name not in _STORED:
        raise TypeError(f"{name!r} has dtype {array.dtype}, which a safetensors file cannot hold: convert it with .astype()")
    return array.astype(array.dtype.newbyteorder("<"), copy=False) if array.dtype.name != "bfloat16" else array


def load(path: Any, map_location: Any = None, *, weights_only: bool = True, mmap: bool = False) -> Any:
    """Reads a safetensors file, written by any program.

    Parameters
    ----------
    path : str, path-like, bytes or file object
        Bytes are the contents of a file; a file object is open for reading in binary mode and is read from its position on.
    map_location, weights_only
        Accepted for compatibility with PyTorch; ignored: the arrays are in memory of the CPU, and no code of a file runs.
    mmap : bool, default False
        Map the file into memory instead of reading it: what is never used is never read, and processes that load the same file share
        its memory. Needs the path of a file. Writing to the arrays does not change the file. While they are in use the file may be
        replaced, as ``save`` does it, but must not be shortened: that ends the process.

    Returns
    -------
    Checkpoint, or ndarray, list or tuple
        What was saved. A Checkpoint is a dict of ndarrays by name, or the nested mapping that was given to ``save``, with the attributes ``hyper_parameters``, a
        dict, and ``metadata``, all of the file's metadata. For a module: ``module.load_state_dict(tc.load(path))``.

    Raises
    ------
    OSError
        When the file cannot be opened: FileNotFoundError, IsADirectoryError.
    CheckpointError
        When it is not a safetensors file, or is damaged.

    See Also
    --------
    save, load_torch_checkpoint

    Notes
    -----
    bfloat16 and the 8-bit floats are returned as the dtypes of the package ``ml_dtypes``. If it is not installed, bfloat16 is
    returned as float32 with exactly the same values, and 8-bit floats are an error. Needs the file's size in memory; with `mmap` only the
    parts that are used, and copies of arrays that begin at an odd address or must be converted.

    Examples
    --------
    >>> import transformer_c.checkpoint as checkpoint
    >>> checkpoint.load("nowhere.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.safetensors'
    """
    if mmap and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"mmap=True maps a file, which takes its path, not {type(path).__name__}")
    with opened(path) as (file, size, name):
        try:
            return _read(file, size, map_file(file, size) if mmap else None)
        except CheckpointError as error:
            raise CheckpointError(f"{name} cannot be loaded: {error}") from None


def map_file(file: Any, size: int) -> np.ndarray:
    """The bytes of a file, mapped: pages are read when they are used, and copied when they are written to."""
    if size == 0:
        return np.empty(0, np.uint8)
    try:
        return np.frombuffer(_mmap.mmap(file.fileno(), size, access=_mmap.ACCESS_COPY), np.uint8)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        message = f"out of memory: to map {file.name} takes {size} bytes of addresses, more than this process may have (ulimit -v)"
        raise MemoryError(message) from None


def mapping_of(array: Any) -> _mmap.mmap | None:
    """The mapped file that has the memory of an array, if there is one."""
    memory = getattr(getattr(array, "base", None), "base", None)
    memory = memory.obj if isinstance(memory, memoryview) else memory
    return memory if isinstance(memory, _mmap.mmap) else None


def release(array: Any) -> None:
    """Gives the pages of a mapped array, which nobody has written to, back to the system: reading them again reads the file."""
    memory = mapping_of(array)
    if memory is None or not hasattr(_mmap, "MADV_DONTNEED"):
        return
    begin = array.ctypes.data - array.base.ctypes.data
    first, last = -(-begin // _mmap.PAGESIZE), (begin + array.nbytes) // _mmap.PAGESIZE  # whole pages
    if first < last:
        memory.madvise(_mmap.MADV_DONTNEED, first * _mmap.PAGESIZE, (last - first) * _mmap.PAGESIZE)


def load_mapping(path: str | os.PathLike) -> Checkpoint:
    """``load(path)``, for a file that must contain a module's state or another mapping."""
    loaded = load(path)
    if not isinstance(loaded, Checkpoint):
        raise CheckpointError(f"{os.fspath(path)!r} contains a {type(loaded).__name__}; expected the state of a module or of a run")
    return loaded


def _read(file: Any, size: int, mapped: np.ndarray | None) -> Any:
    arrays, metadata = read_arrays(file, size, mapped)
    if "transformer_c" not in metadata:
        return Checkpoint(arrays, metadata=metadata)
    if metadata["transformer_c"] != LAYOUT:
        raise CheckpointError(f"it has layout {metadata['transformer_c']!r} of transformer_c; this version reads layout {LAYOUT!r}")
    values = decode(_from_json(metadata["tree"]), arrays) if "tree" in metadata else arrays
    parameters = decode(_from_json(metadata.get("hyper_parameters", "{}")), {})
    if not isinstance(values, dict) or not isinstance(parameters, dict):
        raise CheckpointError("its description is not a mapping")
    if "contains" in metadata:
        if metadata["contains"] != VALUE or set(values) != {VALUE}:
            raise CheckpointError(f"its description is of {metadata['contains']!r}, which it does not contain alone")
        return values[VALUE]
    return Checkpoint(values, parameters, metadata)


def read_arrays(file: Any, size: int, mapped: np.ndarray | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by name, metadata) of a file; the arrays are parts of `mapped` where they can be, otherwise in memory of their own."""
    start = bytearray(min(size, 16))
    read_exactly(file, 0, start)
    if start[:2] == b"PK":
        raise CheckpointError("it is a zip archive, as PyTorch writes them: use tc.load_torch_checkpoint(path)")
    try:
        entries, metadata, begin = read_header(file, size)
    except NotSafetensors as error:
        if start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5"):
            raise CheckpointError(
                "it is a pickle: tc.load_torch_checkpoint(path) says what to do with one of PyTorch before 1.6"
            ) from error
        raise CheckpointError(other_format(bytes(start)) or f"it is not a safetensors file, or is damaged ({error})") from error
    return {name: _array(file, begin, name, entry, mapped) for name, entry in entries.items()}, metadata


def _from_json(text: str) -> Any:
    with parsing("its description is not JSON that can be read"):
        return json.loads(text)


def _array(file: Any, begin: int, name: str, entry: Entry, mapped: np.ndarray | None) -> np.ndarray:
    """An array in this machine's byte order."""
    is_ml = entry.dtype in _ML_DTYPES
    if not is_ml and entry.dtype != "BF16" and entry.dtype not in _NUMPY_DTYPES:
        raise CheckpointError(f"{name!r} has dtype {entry.dtype}, which NumPy has no equivalent of")
    stored = ml_dtype(_ML_DTYPES[entry.dtype]) if is_ml else np.dtype("<u2" if entry.dtype == "BF16" else _NUMPY_DTYPES[entry.dtype])
    at = begin + entry.begin
    if mapped is not None:
        data = mapped[at : at + entry.size]
        data = data if data.ctypes.data % stored.itemsize == 0 else data.copy()
    else:
        data = np.empty(entry.size, np.uint8)
        read_exactly(file, at, data)
    if entry.dtype == "BOOL" and data.max(initial=0) > 1:
        raise CheckpointError(f"the booleans of {name!r} have values other than 0 and 1")
    array = data.view(stored).reshape(entry.shape)
    array = array if is_ml else array.astype(stored.newbyteorder("="), copy=False)
    return from_bfloat16_bits(array) if entry.dtype == "BF16" else array
