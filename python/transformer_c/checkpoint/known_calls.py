"""The functions that a pickle may call, by name; they make plain data and NumPy values. Nothing is looked up or imported.

Each entry of CALLS takes the machine, whose budget it charges for its result, and the arguments from the file, which may be
anything.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from .errors import CheckpointError
from .pickle_machine import PickleMachine
from .placeholders import GlobalName, UnknownObject

# NumPy's codes of the dtypes all of whose values are harmless: no objects, no text, no dates.
_NUMPY_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


def expect(arguments: tuple, what: str, *kinds: type | tuple[type, ...]) -> tuple:
    """The arguments, if they have these types; otherwise CheckpointError. A bool does not count as an int."""

    def is_of(argument: Any, kind: type | tuple[type, ...]) -> bool:
        return type(argument) is int if kind is int else isinstance(argument, kind)

    if len(arguments) != len(kinds) or not all(map(is_of, arguments, kinds)):
        raise CheckpointError(f"the pickle calls {what} with arguments ({', '.join(type(a).__name__ for a in arguments)})")
    return arguments


def sizes(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of at most 32 sizes, such as a shape, whose nonzero sizes have a product below 2^59; otherwise CheckpointError."""
    fits = isinstance(value, (tuple, list)) and len(value) <= 32 and all(type(n) is int and 0 <= n < 2**59 for n in value)
    if not fits or math.prod(max(n, 1) for n in value) >= 2**59:
        raise CheckpointError(f"the pickle has a {what} that is not a tuple of at most 32 sizes, or is too large")
    return tuple(value)


# ---- Python's own types ------------------------------------------------------------------------------------------------


def _empty_dict(kind: type) -> Callable:
    def call(machine: PickleMachine, arguments: tuple) -> dict:
        if len(arguments) > 1 or (arguments and kind is OrderedDict):
            raise CheckpointError(f"the pickle makes a {kind.__name__} with {len(arguments)} arguments")
        machine.spend(400)  # a defaultdict's argument, its factory, is ignored
        return kind()

    return call


def _counter(machine: PickleMachine, arguments: tuple) -> dict:
    (counts,) = expect(arguments, "collections.Counter", dict)
    machine.spend(100 * len(counts))
    return dict(counts)


def _set(kind: type) -> Callable:
    def call(machine: PickleMachine, arguments: tuple) -> Any:
        (items,) = expect(arguments, kind.__name__, list)
        return kind(machine.checked_elements(items))

    return call


def _bytes(kind: type) -> Callable:
    """Arguments: () or, in protocol 2, (text, "latin-1"); for a bytearray also (bytes)."""

    def call(machine: PickleMachine, arguments: tuple) -> Any:
        if not arguments:
            return kind()
        if len(arguments) == 2:
            return kind(_encode(machine, arguments))
        (data,) = expect(arguments, kind.__name__, bytes)
        machine.spend(len(data))
        return kind(data)

    return call


def _encode(machine: PickleMachine, arguments: tuple) -> bytes:
    """_codecs.encode, by which protocol 2 writes bytes."""
    text, encoding = expect(arguments, "_codecs.encode", str, str)
    machine.spend(len(text))
    try:
        if encoding in ("latin1", "latin-1"):
            return text.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise CheckpointError("the pickle encodes text by something other than latin-1")


def _complex(machine: PickleMachine, arguments: tuple) -> complex:
    return complex(*expect(arguments, "complex", float, float))


def _namespace(machine: PickleMachine, arguments: tuple) -> UnknownObject:
    expect(arguments, "types.SimpleNamespace")
    machine.spend(400)
    return UnknownObject("types.SimpleNamespace")


def _path(kind: type) -> Callable:
    def call(machine: PickleMachine, arguments: tuple) -> Any:
        expect(arguments, "pathlib", *[str] * len(arguments))
        machine.spend(400 + 4 * sum(map(len, arguments)))
        return kind(*arguments)

    return call


# ---- NumPy -------------------------------------------------------------------------------------------------------------


def _dtype(machine: PickleMachine, arguments: tuple) -> UnknownObject:
    """An object whose state, the byte order, comes later; _resolve_dtype reads it."""
    machine.spend(400)
    return UnknownObject("numpy.dtype", arguments)


def _resolve_dtype(value: Any) -> np.dtype:
    if isinstance(value, UnknownObject) and value.name == "numpy.dtype":
        code = value.arguments[0] if value.arguments else None
        order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "|"
        code, order = (v.decode("latin-1") if isinstance(v, bytes) else v for v in (code, order))  # bytes are from Python 2
        if isinstance(code, str) and code in _NUMPY_CODES and order in ("<", ">", "|", "="):
            return np.dtype(code).newbyteorder(order)
    raise CheckpointError(f"the pickle has a NumPy dtype other than {' '.join(_NUMPY_CODES)}")


def from_bytes(data: Any, dtype: np.dtype, count: int) -> np.ndarray:
    """`count` values in memory of their own, in this machine's byte order."""
    if not isinstance(data, (bytes, bytearray)) or len(data) != count * dtype.itemsize:
        raise CheckpointError(f"the pickle has a NumPy value whose bytes do not make {count} of dtype {dtype}")
    if dtype == np.bool_ and data.strip(b"\0\1"):
        raise CheckpointError("the pickle has booleans other than 0 and 1")
    return np.frombuffer(data, dtype, count).astype(dtype.newbyteorder("=")) if count else np.empty(0, dtype.newbyteorder("="))


def _scalar(machine: PickleMachine, arguments: tuple) -> Any:
    if len(arguments) != 2:
        raise CheckpointError("the pickle makes a NumPy scalar from something other than a dtype and bytes")
    return from_bytes(arguments[1], _resolve_dtype(arguments[0]), 1)[0]


def _new_array(machine: PickleMachine, arguments: tuple) -> np.ndarray:
    """An array whose shape, dtype and contents are set by its state."""
    kind, _, _ = expect(arguments, "numpy's _reconstruct", GlobalName, tuple, bytes)
    if kind.name != "numpy.ndarray":
        raise CheckpointError(f"the pickle makes a {kind.name!r}, a kind of NumPy array that is not read")
    machine.spend(400)
    array = np.empty(0, np.uint8)
    machine.unfinished[id(array)] = array, _fill_array
    return array


def _fill_array(machine: PickleMachine, array: np.ndarray, state: Any) -> None:
    """The contents of an array: state is (version, shape, dtype, column by column?, bytes)."""
    if not isinstance(state, tuple) or len(state) != 5:
        raise CheckpointError("the pickle has a NumPy array whose contents are malformed")
    _, shape, dtype, by_column, data = state
    shape, dtype = sizes(shape, "shape"), _resolve_dtype(dtype)
    values = from_bytes(data, dtype, math.prod(shape))
    machine.spend(values.nbytes)
    array.__setstate__((1, shape, values.dtype, bool(by_column), values.tobytes()))


def _from_buffer(machine: PickleMachine, arguments: tuple) -> np.ndarray:
    """numpy._core.numeric._frombuffer, by which protocol 5 writes arrays."""
    data, dtype, shape, order = expect(arguments, "numpy's _frombuffer", (bytes, bytearray), UnknownObject, tuple, str)
    shape = sizes(shape, "shape")
    machine.spend(400 + len(data))
    return from_bytes(data, _resolve_dtype(dtype), math.prod(shape)).reshape(shape, order="F" if order == "F" else "C")


CALLS: dict[str, Callable[[PickleMachine, tuple], Any]] = {
    "collections.OrderedDict": _empty_dict(OrderedDict),
    "collections.defaultdict": _empty_dict(dict),
    "collections.Counter": _counter,
    "builtins.set": _set(set),
    "builtins.frozenset": _set(frozenset),
    "builtins.bytes": _bytes(bytes),
    "builtins.bytearray": _bytes(bytearray),
    "builtins.complex": _complex,
    "types.SimpleNamespace": _namespace,
    "_codecs.encode": _encode,
    "numpy.dtype": _dtype,
}
for _module in ("pathlib", "pathlib._local"):
    CALLS |= {f"{_module}.{kind}": _path(PurePosixPath) for kind in ("PosixPath", "PurePosixPath")}
    CALLS |= {f"{_module}.{kind}": _path(PureWindowsPath) for kind in ("WindowsPath", "PureWindowsPath")}
for _module in ("numpy.core", "numpy._core"):
    CALLS |= {
        f"{_module}.multiarray.scalar": _scalar,
        f"{_module}.multiarray._reconstruct": _new_array,
        f"{_module}.numeric._frombuffer": _from_buffer,
    }
