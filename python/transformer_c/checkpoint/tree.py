"""Nested Python data as JSON, with arrays stored separately by name.

Data that JSON can represent are plain JSON, so that other programs can read hyper-parameters. Anything else is an object
with the key "$", which names its kind:

    {"$": "tensor", "name": "optimizer.state.0.exp_avg"}    an array, stored under that name
    {"$": "tuple", "items": [...]}
    {"$": "dict", "items": [[key, value], ...]}             a mapping with keys that are not strings
    {"$": "float", "value": "nan"}                          nan, inf, -inf
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import CheckpointError

MAX_DEPTH = 100  # levels of nesting; more is a mistake or an attack, and would cause a RecursionError somewhere


def is_array(value: Any) -> bool:
    """Whether it is an ndarray or a tensor of some library (not a NumPy scalar)."""
    return hasattr(value, "__array__") and not isinstance(value, (np.generic, type))


def encode(value: Any, arrays: dict[str, Any] | None, where: tuple[str, ...] = (), what: str = "the value") -> Any:
    """Nested mappings, lists, tuples, numbers, strings and None as JSON data; arrays are put into `arrays`.

    Parameters
    ----------
    value : object
    arrays : dict or None
        Receives the arrays under their new names, the keys leading to them joined by dots. None: arrays are refused.
    where : tuple of str
        The keys leading to `value`.
    what : str
        The thing that contains `value`, for messages.

    Raises
    ------
    TypeError
        For something that cannot be stored; the message names it.
    ValueError
        For nesting deeper than MAX_DEPTH, such as a list that contains itself.
    """
    if len(where) > MAX_DEPTH:
        raise ValueError(f"{what} is nested more than {MAX_DEPTH} levels deep, or contains itself")
    if isinstance(value, np.generic):
        value = _scalar(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$": "float", "value": str(float(value))}
    if isinstance(value, Mapping):
        return _encode_mapping(value, arrays, where, what)
    if isinstance(value, (list, tuple)):
        items = [encode(item, arrays, (*where, str(i)), what) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$": "tuple", "items": items}
    if arrays is not None and is_array(value):
        name = _unused_name(".".join(where), arrays)
        arrays[name] = value
        return {"$": "tensor", "name": name}
    kinds = "numbers, strings, None, lists, tuples and mappings" + (" of arrays" if arrays is not None else "")
    raise TypeError(
        f"{what} has at {_show(where)} a value of type {type(value).__name__}; expected {kinds}{_instead(value, arrays is not None)}"
    )


def _instead(value: Any, takes_arrays: bool) -> str:
    """What an error adds: what can be stored instead of an object."""
    if isinstance(value, (bytes, bytearray)) and takes_arrays:
        return ": store np.frombuffer(value, np.uint8)"
    if isinstance(value, type) or (callable(value) and not hasattr(value, "state_dict")):
        return ""
    for name, instead in (("state_dict", "its state_dict()"), ("__fspath__", "str(value)"), ("__dict__", "vars(value), its attributes")):
        if hasattr(value, name):
            return f": store {instead}"
    return ""


def _encode_mapping(value: Mapping, arrays: dict[str, Any] | None, where: tuple[str, ...], what: str) -> dict:
    for key in value:
        if not isinstance(key, (str, int, float, type(None))):
            raise TypeError(f"{what} has at {_show(where)} a key of type {type(key).__name__}; expected str, int, float, bool or None")
    encoded = [(key, encode(item, arrays, (*where, str(key)), what)) for key, item in value.items()]
    if all(isinstance(key, str) and key != "$" for key, _ in encoded):
        return dict(encoded)
    return {"$": "dict", "items": [[encode(key, None, where, what), item] for key, item in encoded]}


def _scalar(value: np.generic) -> Any:
    """A NumPy scalar as the Python number of the same value; anything else unchanged."""
    if value.dtype.kind in "biu":
        return value.item()
    is_small_float = value.dtype.kind == "f" and value.dtype.itemsize <= 8
    return float(value) if is_small_float or value.dtype.name == "bfloat16" else value


def _unused_name(name: str, arrays: Mapping[str, Any]) -> str:
    unused, count = name, 1
    while unused in arrays or unused == "__metadata__":  # the one name that safetensors reserves
        count += 1
        unused = f"{name}~{count}"
    return unused


def _show(where: tuple[str, ...]) -> str:
    return repr(".".join(where)) if where else "its top"


def decode(data: Any, arrays: Mapping[str, np.ndarray], depth: int = 0) -> Any:
    """The inverse of `encode`; raises CheckpointError for data that `encode` never writes."""
    if depth > MAX_DEPTH:
        raise CheckpointError(f"its description is nested more than {MAX_DEPTH} levels deep")
    if isinstance(data, list):
        return [decode(item, arrays, depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" not in data:
        return {key: decode(item, arrays, depth + 1) for key, item in data.items()}
    try:
        return _decode_kind(data, arrays, depth)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"its description of a {str(data['$'])[:80]!r} is malformed") from error


def _decode_kind(data: dict, arrays: Mapping[str, np.ndarray], depth: int) -> Any:
    kind = data["$"]
    if kind == "tensor":
        if data["name"] not in arrays:
            raise CheckpointError(f"its description names a tensor {str(data['name'])[:80]!r}, which the file does not hold")
        return arrays[data["name"]]
    if kind == "tuple":
        return tuple(decode(item, arrays, depth + 1) for item in data["items"])
    if kind == "float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[data["value"]]
    if kind == "dict":
        return dict(_decode_item(item, arrays, depth) for item in data["items"])
    raise KeyError(kind)


def _decode_item(item: Any, arrays: Mapping[str, np.ndarray], depth: int) -> tuple[Any, Any]:
    if not isinstance(item, list) or len(item) != 2:
        raise TypeError("expected [key, value]")
    key = decode(item[0], {}, depth + 1)
    # Larger integers may all have the same hash, which makes building a dict take quadratic time.
    if not isinstance(key, (str, int, float, type(None))) or (isinstance(key, int) and abs(key) >= 2**63):
        raise TypeError("expected a str, a number or None as the key")
    return key, decode(item[1], arrays, depth + 1)
