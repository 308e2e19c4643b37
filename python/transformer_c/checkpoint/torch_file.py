"""tc.load_torch_checkpoint: reads files of torch.save, including Lightning's .ckpt, without PyTorch.

Such a file is a zip archive: "data.pkl", a pickle in which a tensor is a call of torch._utils._rebuild_tensor_v2 with a
reference to a storage, and "data/KEY", the bytes of each storage. "byteorder" is the byte order of those.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from .dtypes import from_bfloat16_bits, ml_dtype
from .errors import CheckpointError, parsing
from .files import opened, other_format, read_exactly
from .known_calls import CALLS, expect, sizes
from .pickle_machine import PickleMachine
from .placeholders import GlobalName, UnknownObject
from .tree import MAX_DEPTH
from .zip_records import ZipRecords

# NumPy's dtype for each of PyTorch's, and its storage class if there is one.
_STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_WITHOUT_STORAGE = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
_DTYPES = {f"torch.{name}": name for name in (*_STORAGES.values(), *_WITHOUT_STORAGE)}
_STORAGE_DTYPES = {f"torch.{name}Storage": dtype for name, dtype in _STORAGES.items()}
_STORAGE_DTYPES |= {"torch.storage.UntypedStorage": "uint8", "torch.UntypedStorage": "uint8"}

MAX_EXPANDED = 1 << 28  # bytes that all tensors with strides of 0 may take once they are copied; uncopied they take none

_LEGACY_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_RESAVE = "load it with PyTorch 1.6 or newer and write it again: torch.save(torch.load(path), new_path)"


def load_torch_checkpoint(path: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Reads a file of ``torch.save`` or a Lightning ``.ckpt``, without PyTorch and without running any code from it.

    Parameters
    ----------
    path : str, path-like, bytes or file object
        A file in the zip format that PyTorch has written since version 1.6, its contents, or an object open for reading in binary mode.
    map_location, weights_only
        Accepted for compatibility with PyTorch; ignored: the arrays are in memory of the CPU, and no code of a file runs.

    Returns
    -------
    object
        The saved object, usually a dict: ``state_dict``, ``hyper_parameters``, ``epoch``, ... for a Lightning checkpoint, or
        the state dict itself. Tensors become writable ndarrays; if they shared memory, so do the ndarrays.

    Raises
    ------
    OSError
        When the file cannot be opened: FileNotFoundError, IsADirectoryError.
    CheckpointError
        When it has another format, is damaged, or asks for something that is refused; the message says what.

    See Also
    --------
    load

    Notes
    -----
    A pickle may name any function and have it called. Here names stay names: a class or function that the file refers to
    becomes a ``GlobalName``, and an object of an unknown class an ``UnknownObject`` with its data. The file may *call* only
    the few functions that make tensors and plain data, of which this module has its own versions; any other call is
    refused, and so is an unknown object among the weights (in ``state_dict``). No file can make memory or time grow
    beyond a small multiple of its size.

    bfloat16 and the 8-bit floats are returned as the dtypes of the package ``ml_dtypes``. If it is not installed, bfloat16 is
    returned as float32 with exactly the same values, and 8-bit floats are an error. A ``torch.device`` becomes a str, a
    ``torch.Size`` a tuple, and a path a pure path.

    Examples
    --------
    >>> import transformer_c.checkpoint as checkpoint
    >>> checkpoint.load_torch_checkpoint("nowhere.ckpt")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.ckpt'

    Loading a checkpoint of the tutorial into its model::

        model = tc.TransformerPredictor(...)
        model.load_state_dict(tc.load_torch_checkpoint("ReverseTask.ckpt")["state_dict"])
    """
    with opened(path) as (file, size, name):
        try:
            start = bytearray(min(size, 512))
            read_exactly(file, 0, start)
            _check_format(bytes(start))
            with parsing("it is damaged"):
                value = TorchArchive(ZipRecords(file, size)).load()
                _check_value(value, size)
                _check_weights(value)
        except CheckpointError as error:
            raise CheckpointError(f"{name} cannot be loaded: {error}") from None
    return value


def _check_format(start: bytes) -> None:
    """Raises for a file that is not a zip archive; the message says what it is."""
    if start[:2] == b"PK":
        return
    if start.startswith(_LEGACY_MAGIC) or start[257:262] == b"ustar" or start[:7] == b"pickle\0":
        raise CheckpointError(f"it is in the format of PyTorch before 1.6: {_RESAVE}")
    if start[8:10] == b'{"':
        raise CheckpointError("it looks like a safetensors file: use tc.load(path)")
    if start[:1] == b"\x80":
        raise CheckpointError("it is a plain pickle, not a file of torch.save: write it again with that")
    other = other_format(start) or "it is not a file of torch.save: those are zip archives"
    raise CheckpointError(other if start else "it is empty")


class Storage:
    """The bytes of a storage, and the dtype that its class has."""

    def __init__(self, data: np.ndarray, dtype: str) -> None:
        self.data = data
        self.dtype = dtype
        self.swapped = 0  # item size with which the data were converted to this machine's byte order; 0: not converted
        self.arrays: dict[str, np.ndarray] = {}  # the whole storage in each dtype requested so far


class TorchArchive:
    """A file of torch.save: its storages, and the tensors made from them."""

    def __init__(self, records: ZipRecords) -> None:
        if "data.pkl" not in records:
            raise CheckpointError("it is a zip archive, but not of torch.save: it has no data.pkl")
        self._records = records
        self._storages: dict[str, Storage] = {}
        self._expanded = 0
        order = bytes(records.read("byteorder")).strip() if "byteorder" in records else b"little"
        if order not in (b"little", b"big"):
            raise CheckpointError(f"its record 'byteorder' says {order[:20]!r}; expected little or big")
        self._is_swapped = order.decode() != sys.byteorder

    def load(self) -> Any:
        """The value that was saved."""
        return PickleMachine(bytes(self._records.read("data.pkl")), {**CALLS, **self._calls()}, self._storage).run()

    def _calls(self) -> dict[str, Callable]:
        rebuild = {
            "torch._utils._rebuild_tensor": self._rebuild_tensor,
            "torch._utils._rebuild_tensor_v2": self._rebuild_tensor,
            "torch._utils._rebuild_tensor_v3": self._rebuild_tensor_v3,
            "torch._utils._rebuild_parameter": _rebuild_parameter,
            "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
        }

        def rebuild_subclass(machine: PickleMachine, arguments: tuple) -> np.ndarray:
            """(function, class, arguments, attributes): the class and the attributes are ignored."""
            function, _, inner, _ = expect(arguments, "torch._tensor._rebuild_from_type_v2", GlobalName, object, tuple, object)
            if function.name not in rebuild:
                raise CheckpointError(f"the pickle makes a tensor by {function.name!r}, which is not known")
            return rebuild[function.name](machine, inner)

        return rebuild | {
            "torch._tensor._rebuild_from_type_v2": rebuild_subclass,
            "torch.Size": _size,
            "torch.device": _device,
            "torch.serialization._get_layout": _layout,
        }

    def _storage(self, reference: Any) -> Storage:
        """The storage of a persistent id: ("storage", class, key, device, number of elements)."""
        if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
            raise CheckpointError("the pickle refers to something other than a storage")
        _, kind, key, _, count = reference
        dtype = _STORAGE_DTYPES.get(kind.name) if isinstance(kind, GlobalName) else None
        if dtype is None or not isinstance(key, str) or type(count) is not int:
            raise CheckpointError(f"the pickle refers to a storage of a kind that is not read: {getattr(kind, 'name', kind)!r:.80}")
        if key not in self._storages:
            if f"data/{key}" not in self._records:
                raise CheckpointError(f"the pickle refers to a storage {key[:80]!r}, which the file does not hold")
            size = self._records.size(f"data/{key}")
            if count * _element_size(dtype) != size:
                raise CheckpointError(f"the pickle has {count} elements of {dtype} in storage {key!r}, which has {size} bytes")
            self._storages[key] = Storage(self._records.read(f"data/{key}"), dtype)
        storage = self._storages[key]
        if storage.dtype != dtype or count * _element_size(dtype) != storage.data.size:
            raise CheckpointError(f"the pickle contradicts itself about storage {key!r}")
        return storage

    def _rebuild_tensor(self, machine: PickleMachine, arguments: tuple) -> np.ndarray:
        """(storage, offset, size, stride, requires_grad, hooks, metadata); some versions lack the last three, or the last."""
        storage, offset, size, stride = expect(arguments[:4], "torch._utils._rebuild_tensor_v2", Storage, int, (tuple, list), (tuple, list))
        _refuse_metadata(arguments[6:])
        return self._tensor(machine, storage, offset, size, stride, storage.dtype)

    def _rebuild_tensor_v3(self, machine: PickleMachine, arguments: tuple) -> np.ndarray:
        """As above with a dtype after the hooks, for dtypes that have no storage class."""
        storage, offset, size, stride = expect(arguments[:4], "torch._utils._rebuild_tensor_v3", Storage, int, (tuple, list), (tuple, list))
        dtype = arguments[6] if len(arguments) > 6 else None
        if not isinstance(dtype, GlobalName) or dtype.name not in _DTYPES:
            raise CheckpointError(f"the pickle makes a tensor of dtype {getattr(dtype, 'name', None)!r}, which is not read")
        _refuse_metadata(arguments[7:])
        return self._tensor(machine, storage, offset, size, stride, _DTYPES[dtype.name])

    def _tensor(self, machine: PickleMachine, storage: Storage, offset: int, size: Any, stride: Any, dtype: str) -> np.ndarray:
        """A view of a storage, after checking that it is inside."""
        size, stride = sizes(size, "tensor's size"), tuple(stride)
        if len(stride) != len(size) or not all(type(n) is int and 0 <= n < 2**59 for n in stride):
            raise CheckpointError(f"the pickle has a tensor of size {size} with strides that do not fit it")
        whole = self._whole(storage, dtype)
        count = math.prod(size)
        end = offset + (sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if count else 0)
        if offset < 0 or end > len(whole):
            raise CheckpointError(
                f"the pickle has a tensor of size {size}, strides {stride}, offset {offset}, in a storage of {len(whole)} elements"
            )
        machine.spend(400)
        if not count:
            return np.empty(size, whole.dtype)
        if count > len(whole):
            self._expanded += count * whole.itemsize
            if self._expanded > MAX_EXPANDED:
                raise CheckpointError(f"the pickle has expanded tensors, which would take more than {MAX_EXPANDED >> 20} MiB once copied")
        strides = [step * whole.itemsize if n > 1 else whole.itemsize for n, step in zip(size, stride, strict=True)]
        return np.ndarray(size, whole.dtype, whole.view(np.uint8), offset * whole.itemsize, strides)  # NumPy checks the bounds as well

    def _whole(self, storage: Storage, dtype: str) -> np.ndarray:
        """All of a storage as an array of a dtype, in this machine's byte order."""
        if dtype in storage.arrays:
            return storage.arrays[dtype]
        element = _element_size(dtype)
        if storage.data.size % element:
            raise CheckpointError(f"the pickle has a tensor of {dtype} in a storage of {storage.data.size} bytes")
        number = element // 2 if dtype.startswith("complex") else element
        if self._is_swapped and storage.swapped != number:
            if storage.swapped:
                raise CheckpointError("the pickle has tensors of several dtypes in one storage of the other byte order")
            storage.data.view(f"u{number}").byteswap(inplace=True)
            storage.swapped = number
        if dtype == "bfloat16":
            array = from_bfloat16_bits(storage.data.view(np.uint16))
        elif dtype.startswith("float8"):
            array = storage.data.view(ml_dtype(dtype))
        else:
            array = storage.data.view(dtype)
        if dtype == "bool" and storage.data.max(initial=0) > 1:
            raise CheckpointError("a tensor of booleans has values other than 0 and 1")
        storage.arrays[dtype] = array
        return array


def _element_size(dtype: str) -> int:
    if dtype.startswith("float8"):
        return 1
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _refuse_metadata(rest: tuple) -> None:
    """Refuses metadata, which mark a tensor as a conjugate or negative view."""
    if rest and rest[0]:
        raise CheckpointError("a tensor is marked as a conjugate or negative view: save tensor.resolve_conj().resolve_neg()")


def _rebuild_parameter(machine: PickleMachine, arguments: tuple) -> np.ndarray:
    """(tensor, requires_grad, hooks) and, with attributes, a fourth."""
    if not 3 <= len(arguments) <= 4 or not isinstance(arguments[0], np.ndarray):
        raise CheckpointError("the pickle makes a parameter of something other than a tensor")
    return arguments[0]


def _size(machine: PickleMachine, arguments: tuple) -> tuple[int, ...]:
    (size,) = expect(arguments, "torch.Size", tuple)
    return sizes(size, "torch.Size")


def _device(machine: PickleMachine, arguments: tuple) -> str:
    if len(arguments) == 2:
        return "{}:{}".format(*expect(arguments, "torch.device", str, int))
    return expect(arguments, "torch.device", str)[0]


def _layout(machine: PickleMachine, arguments: tuple) -> GlobalName:
    (name,) = expect(arguments, "torch.serialization._get_layout", str)
    machine.spend(200)
    return GlobalName(name)


# ---- the value as a whole -----------------------------------------------------------------------------------------------

_CONTAINERS = (Mapping, list, tuple, set, frozenset)
_LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, np.ndarray, np.generic, GlobalName, PurePath)


def _parts(container: Any) -> list[Any]:
    """The contents of a container without its keys, which are never containers."""
    if isinstance(container, UnknownObject):
        return [*container.values(), *container.elements, *container.arguments, container.state]
    return list(container.values() if isinstance(container, Mapping) else container)


def _containers_in(parts: list[Any]) -> list[Any]:
    """The containers among the parts; refuses parts that are not data."""
    containers = []
    for part in parts:
        if isinstance(part, _CONTAINERS):
            containers.append(part)
        elif not isinstance(part, _LEAVES):
            raise CheckpointError(f"it holds a bare {type(part).__name__.lower()}; tensors and plain data are read")
    return containers


def _check_value(root: Any, size: int) -> None:
    """Refuses values that would make code that walks them hang or overflow: cycles, depth, sharing that multiplies.

    A list that contains another twice, which contains another twice, and so on, is small in memory but endless to print. Each
    container is visited once; its height and the number of values in it follow from those of its parts.
    """
    if isinstance(root, (UnknownObject, GlobalName)):
        raise CheckpointError(
            f"it holds a {root.name!r}, perhaps a whole module: save the state dict alone, torch.save(module.state_dict(), path)"
        )
    limit = (1 << 20) + 8 * size
    measured: dict[int, tuple[int, int]] = {}  # id: (height, values in it)
    entered: set[int] = set()  # ids of the containers that the current one is in, and its own
    path: list[tuple[Any, list[Any] | None]] = [(container, None) for container in _containers_in([root])]
    while path:
        value, parts = path.pop()
        if parts is None:
            if id(value) in measured:
                continue
            if id(value) in entered:
                raise CheckpointError("the pickle has something that contains itself")
            entered.add(id(value))
            parts = _parts(value)
            path.append((value, parts))
            path.extend((container, None) for container in _containers_in(parts))
            continue
        entered.remove(id(value))
        inside = [measured.get(id(part), (0, 1)) for part in parts]
        height, count = 1 + max((h for h, _ in inside), default=0), 1 + sum(n for _, n in inside)
        if height > MAX_DEPTH:
            raise CheckpointError(f"the pickle has data nested more than {MAX_DEPTH} levels deep")
        if count > limit:
            raise CheckpointError("the pickle has data that holds the same parts over and over, far more than a file of its size can hold")
        measured[id(value)] = height, count


def _check_weights(root: Any) -> None:
    """Refuses placeholders in `state_dict`, where a lost object would otherwise pass for a weight."""
    path = [("state_dict", root.get("state_dict"))] if isinstance(root, Mapping) else []
    while path:
        name, value = path.pop()
        if isinstance(value, (UnknownObject, GlobalName)):
            raise CheckpointError(f"{name} is of {value.name!r}, which is not known, where weights are expected")
        if isinstance(value, Mapping):
            path.extend((f"{name}[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, (list, tuple)):
            path.extend((f"{name}[{i}]", part) for i, part in enumerate(value))
