"""Reductions."""

from __future__ import annotations

import numpy as np

from ..graph import Builder, Term
from .elements import truth
from .table import CONVERTERS, Converter, converter


def axes_of(a: dict, rank: int) -> list[int]:
    """The axes of a reduction; all when None."""
    axis = a.get("axis")
    if axis is None:
        return list(range(rank))
    return [k % rank for k in (axis if isinstance(axis, tuple) else (axis,))] if rank else []


def reduced(g: Builder, kind: str, x: str, axes: list[int], keep: bool) -> str:
    """A node that reduces; without axes it does nothing."""
    return g.op(kind, x, g.ints(axes), keepdims=int(keep), noop_with_empty_axes=1)


def _reduction(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        return reduced(g, kind, g.cast(a["x"], out[0].dtype), axes_of(a, a["x"].rank), a["keepdims"])

    return write


CONVERTERS.update(sum=_reduction("ReduceSum"), mean=_reduction("ReduceMean"))


def _extreme(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = next(iter(a.values()))
        whole = np.int32 if x.dtype == bool else x.dtype
        found = reduced(g, kind, g.cast(x, whole), axes_of(a, x.rank), a["keepdims"])
        return found if whole == out[0].dtype else g.convert(found, out[0].dtype)

    return write


CONVERTERS.update(max=_extreme("ReduceMax"), min=_extreme("ReduceMin"))


def _truths(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        whole = g.convert(truth(g, a["x"]), np.int32)
        return g.convert(reduced(g, kind, whole, axes_of(a, a["x"].rank), a["keepdims"]), bool)

    return write


CONVERTERS.update(any=_truths("ReduceMax"), all=_truths("ReduceMin"))


def _place(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = a["x"]
        name = g.cast(x, np.int32) if x.dtype == bool else x.name
        if a["axis"] is None:
            found = g.op(kind, g.reshape(name, [-1]), axis=0, keepdims=0)
            return g.reshape(found, [1] * x.rank) if a["keepdims"] else found
        return g.op(kind, name, axis=axes_of(a, x.rank)[0], keepdims=int(a["keepdims"]))

    return write


CONVERTERS.update(argmax=_place("ArgMax"), argmin=_place("ArgMin"))


@converter("var")
def _var(g: Builder, a: dict, out: list) -> str:
    x, dtype = a["x"], out[0].dtype
    axes = axes_of(a, x.rank)
    correction = a["correction"] if a.get("unbiased") is None else float(a["unbiased"])
    name = g.cast(x, dtype)
    centred = g.op("Sub", name, reduced(g, "ReduceMean", name, axes, True))
    total = reduced(g, "ReduceSum", g.op("Mul", centred, centred), axes, a["keepdims"])
    count = g.convert(g.op("Squeeze", g.product_of([x.shape[k] for k in axes]), g.ints([0])), dtype)
    count = g.op("Max", g.op("Sub", count, g.number(correction, dtype)), g.number(0, dtype))
    return g.op("Div", total, count)
