"""Reads the header of a safetensors file: https://github.com/huggingface/safetensors#format.

The package safetensors is not used for it: it ends the process when memory runs out. Everything that the format demands is checked
here, before memory is taken for an array.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, NamedTuple

from .files import read_exactly

MAX_HEADER = 100_000_000  # bytes, as the format says

# Bits per element of the format's dtypes.
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class NotSafetensors(Exception):
    """The bytes do not follow the format; the message says where."""


class Entry(NamedTuple):
    """An array of the file: `size` bytes from `begin` on, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


def read_header(file: BufferedReader, size: int) -> tuple[dict[str, Entry], dict[str, str], int]:
    """(arrays by name, metadata, where the first array begins) of a file of `size` bytes."""
    if size < 8:
        raise NotSafetensors(f"it has {size} bytes; the length of the header alone takes 8")
    field = bytearray(8)
    read_exactly(file, 0, field)
    length = int.from_bytes(field, "little")
    if length > min(size - 8, MAX_HEADER):
        raise NotSafetensors(f"its header claims {length} bytes; the file has {size}, and a header at most {MAX_HEADER}")
    text = bytearray(length)
    read_exactly(file, 8, text)
    header = _parse(text)
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise NotSafetensors("its __metadata__ is not a mapping of str to str")
    entries = {name: _entry(name, description) for name, description in header.items()}
    _check_layout(entries, size - 8 - length)
    return entries, metadata, 8 + length


def _parse(text: bytearray) -> dict[str, Any]:
    if text[:1] != b"{":
        raise NotSafetensors("its header does not begin with {")
    try:
        header = json.loads(text.decode(), object_pairs_hook=without_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError, and integers of thousands of digits
        raise NotSafetensors(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise NotSafetensors("its header is not a mapping")
    return header


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON, whose names must differ."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs twice in one mapping")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _entry(name: str, description: Any) -> Entry:
    what = f"{name[:80]!r} in its header"
    if not isinstance(description, Mapping) or not {"dtype", "shape", "data_offsets"} <= description.keys():
        raise NotSafetensors(f"{what} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = (description[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise NotSafetensors(f"{what} has dtype {str(dtype)[:80]!r}, which the format does not have")
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise NotSafetensors(f"{what} has a shape that is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)) or offsets[0] > offsets[1]:
        raise NotSafetensors(f"{what} has data_offsets that are not [begin, end]")
    if len(shape) > 32 or math.prod(max(n, 1) for n in shape) >= 2**59:
        raise NotSafetensors(f"{what} has a shape of more elements than memory can address")
    begin, end = offsets
    bits = math.prod(shape) * _BITS[dtype]
    if bits != 8 * (end - begin):
        raise NotSafetensors(f"{what} is {dtype} of shape {tuple(shape)!s:.80}, {bits} bits, but has {end - begin} bytes")
    return Entry(dtype, tuple(shape), begin, end - begin)


def _check_layout(entries: Mapping[str, Entry], size: int) -> None:
    """The arrays follow one another without overlaps or holes, to the end of the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].size)):
        if entry.begin != end:
            raise NotSafetensors(f"{name[:80]!r} begins at byte {entry.begin}; the array before it ends at {end}")
        end = entry.begin + entry.size
    if end != size:
        raise NotSafetensors(f"its arrays have {end} bytes, but {size} follow the header")
