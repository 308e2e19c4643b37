"""Indexing in ONNX: slices, integers and arrays of integers, reading and writing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Builder, Term
from ..tracing import ExportError
from .elements import chosen, truth
from .table import converter
from .views import transposed

_END = np.iinfo(np.int64).max


def _parts(key: tuple, rank: int) -> list[Any]:
    """The expression with full slices in place of an ellipsis."""
    used = sum(e.rank if isinstance(e, Term) and e.dtype == bool else 1 for e in key if e is not None and e is not ...)
    full = [("slice", None, None, None)] * (rank - used)
    if ... not in [e for e in key if not isinstance(e, Term)]:
        return [*key, *full]
    at = next(i for i, e in enumerate(key) if e is ...)
    return [*key[:at], *full, *key[at + 1 :]]


def _slice(g: Builder, name: str, axis: int, entry: tuple) -> str:
    _, start, stop, step = entry
    step = 1 if step is None else step
    if start is None and stop is None and step == 1:
        return name
    if step > 0:
        return g.slice(name, axis, 0 if start is None else start, _END if stop is None else stop, step)
    return g.slice(name, axis, -1 if start is None else start, -_END - 1 if stop is None else stop, step)


def read(g: Builder, x: Term, key: tuple) -> str:
    """x[key]."""
    entries = _parts(key, x.rank)
    if any(isinstance(e, Term) and e.dtype == bool for e in entries):
        raise ExportError("the shape of x[mask] depends on the values of the mask; use where(mask, x, value)")
    name, axis = x.name, 0
    axes: list[Any] = []  # of the result so far, in order: "new", an array, or "old"
    for entry in entries:
        if entry is None:
            name = g.at(name, axis)
            axes.append(None)
        elif isinstance(entry, tuple):
            name = _slice(g, name, axis, entry)
            axes.append(None)
        elif isinstance(entry, Term):
            axes.append(entry)
        elif _arrays(entries):  # an integer beside arrays is one of them
            axes.append(Term(g.scalar(entry), np.dtype(np.int64), []))
        else:
            name = g.op("Gather", name, g.scalar(entry), axis=axis)
            continue
        axis += 1
    return _gather(g, name, axes) if _arrays(entries) else name


def _arrays(entries: list[Any]) -> bool:
    return any(isinstance(e, Term) for e in entries)


def _gather(g: Builder, name: str, axes: list[Any]) -> str:
    """Arrays of integers on some axes: they broadcast, and their axes come where the first is, or first if others are between them."""
    places = [i for i, e in enumerate(axes) if e is not None]
    indices = [g.cast(axes[i], np.int64) for i in places]
    if len(places) == 1:
        return g.op("Gather", name, indices[0], axis=places[0])
    rank = max(axes[i].rank for i in places)
    rest = [i for i in range(len(axes)) if i not in places]
    name = transposed(g, name, [*places, *rest])
    zeros = g.op("Mul", indices[0], g.array(np.int64(0)))  # in the end of the shape that they broadcast to
    for other in indices[1:]:
        zeros = g.op("Add", zeros, g.op("Mul", other, g.array(np.int64(0))))
    wide = [g.at(g.op("Add", index, zeros), -1) for index in indices]
    found = g.op("GatherND", name, g.op("Concat", *wide, axis=-1))
    adjacent = places == list(range(places[0], places[0] + len(places)))
    if not adjacent or places[0] == 0:
        return found
    before = places[0]
    return transposed(g, found, [*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest))])


@converter("getitem")
def _getitem(g: Builder, a: dict, out: list) -> str:
    return read(g, a["self"], a["key"])


@converter("setitem")
def _setitem(g: Builder, a: dict, out: list) -> str:
    x, key = a["self"], a["key"]
    value = g.cast(a["value"], x.dtype)
    if len(key) == 1 and isinstance(key[0], Term) and key[0].dtype == bool:
        if a["value"].rank > 0:
            raise ExportError("x[mask] = values with more than one value depends on the values of the mask; use where(mask, values, x)")
        mask = truth(g, key[0])
        for _ in range(x.rank - key[0].rank):
            mask = g.at(mask, -1)
        return chosen(g, mask, value, x.name, x.dtype)
    count = g.product_of(x.shape)
    places = g.op("Range", g.array(np.int64(0)), g.op("Squeeze", count, g.ints([0])), g.array(np.int64(1)))
    numbers = Term(g.reshape(places, x.shape), np.dtype(np.int64), x.shape)
    written = read(g, numbers, key)
    wide = g.op("Expand", value, g.op("Shape", written))
    flat = g.op("ScatterElements", g.reshape(x.name, [-1]), g.reshape(written, [-1]), g.reshape(wide, [-1]), axis=0)
    return g.reshape(flat, x.shape)
