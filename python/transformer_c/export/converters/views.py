"""Views and copies."""

from __future__ import annotations

import numpy as np

from ..graph import Builder, Term
from .table import CONVERTERS, Converter, converter


@converter("detach", "contiguous", "clone", "cpu", "cuda", "as_tensor")
def _same(g: Builder, a: dict, out: list) -> str:
    return next(iter(a.values())).name


@converter("float", "double", "half", "bfloat16", "long", "int", "bool", "to", "type_as", "tensor", "cast_parameter")
def _cast(g: Builder, a: dict, out: list) -> str:
    return g.cast(next(iter(a.values())), out[0].dtype)


@converter("reshape", "view", "flatten", "squeeze", "unsqueeze")
def _reshape(g: Builder, a: dict, out: list) -> str:
    return g.reshape(a["self"].name, out[0].shape)


@converter("expand")
def _expand(g: Builder, a: dict, out: list) -> str:
    return g.expand(a["self"].name, out[0].shape)


def transposed(g: Builder, name: str, order: list[int]) -> str:
    """The axes in another order."""
    return name if order == sorted(order) else g.op("Transpose", name, perm=order)


def moved(rank: int, a: int, b: int) -> list[int]:
    """The order of axes with two exchanged."""
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    return order


@converter("permute")
def _permute(g: Builder, a: dict, out: list) -> str:
    dims = a["dims"] if isinstance(a["dims"], tuple) else (a["dims"],)
    return transposed(g, a["self"].name, [d % a["self"].rank for d in dims])


@converter("transpose", "swapaxes")
def _transpose(g: Builder, a: dict, out: list) -> str:
    x, first, second = a.values()
    return transposed(g, x.name, moved(x.rank, first, second)) if x.rank else x.name


CONVERTERS["mT"] = lambda g, a, out: transposed(g, a["self"].name, moved(a["self"].rank, -1, -2))
CONVERTERS["T"] = lambda g, a, out: transposed(g, a["self"].name, list(range(a["self"].rank))[::-1])


@converter("flip")
def _flip(g: Builder, a: dict, out: list) -> str:
    dims = a["dims"] if isinstance(a["dims"], tuple) else (a["dims"],)
    name = a["self"].name
    for axis in dims:
        name = g.slice(name, axis % a["self"].rank, -1, np.iinfo(np.int64).min, -1)
    return name


@converter("unfold")
def _unfold(g: Builder, a: dict, out: list) -> str:
    rank, axis = a["self"].rank, a["dimension"] % max(a["self"].rank, 1)
    begin = g.op("Mul", g.arange(out[0].shape[axis]), g.size(a["step"]))
    places = g.op("Add", g.at(begin, 1), g.array(np.arange(a["size"], dtype=np.int64)[None]))
    windows = g.op("Gather", a["self"].name, places, axis=axis)  # the new axis is behind `axis`
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return transposed(g, windows, order)


@converter("narrow")
def _narrow(g: Builder, a: dict, out: list) -> str:
    axis = a["dim"] % a["self"].rank
    start = a["start"]
    if isinstance(start, int) and start >= 0 and isinstance(out[0].shape[axis], int):
        return g.slice(a["self"].name, axis, start, start + out[0].shape[axis])
    stop = g.op("Add", g.size(start), g.size(out[0].shape[axis]))
    return g.op("Slice", a["self"].name, g.size(start), stop, g.ints([axis]), g.ints([1]))


@converter("chunk", "split")
def _split(g: Builder, a: dict, out: list) -> list[str]:
    axis = a["dim"] % a["self"].rank
    if len(out) == 1:
        return [a["self"].name]
    return g.op("Split", a["self"].name, g.ints([o.shape[axis] for o in out]), outputs=len(out), axis=axis)


@converter("unbind")
def _unbind(g: Builder, a: dict, out: list) -> list[str]:
    axis = a["dim"] % a["self"].rank
    return [g.op("Gather", a["self"].name, g.array(np.int64(i)), axis=axis) for i in range(len(out))]


@converter("full", "empty")
def _full(g: Builder, a: dict, out: list) -> str:
    value = a.get("value")
    name = g.cast(value, out[0].dtype) if value is not None else g.number(0, out[0].dtype)
    return g.expand(name, out[0].shape)


CONVERTERS["zero_"] = lambda g, a, out: g.expand(g.number(0, out[0].dtype), out[0].shape)
CONVERTERS["fill_"] = lambda g, a, out: g.expand(g.cast(a["value"], out[0].dtype), out[0].shape)
CONVERTERS["copy_"] = lambda g, a, out: g.expand(g.cast(a["src"], out[0].dtype), out[0].shape)


@converter("cat")
def _cat(g: Builder, a: dict, out: list) -> str:
    parts = [g.cast(t, out[0].dtype) for t in a["tensors"]]
    return g.op("Concat", *parts, axis=a["dim"] % out[0].rank)


@converter("stack")
def _stack(g: Builder, a: dict, out: list) -> str:
    axis = a["dim"] % out[0].rank
    return g.op("Concat", *[g.at(g.cast(t, out[0].dtype), axis) for t in a["tensors"]], axis=axis)


def _triangle(upper: bool) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = a["input"]
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
        found = g.op("Trilu", g.cast(x, dtype), g.scalar(a["diagonal"]), upper=int(upper))
        return found if dtype == x.dtype else g.convert(found, x.dtype)

    return write


CONVERTERS.update(triu=_triangle(True), tril=_triangle(False))
