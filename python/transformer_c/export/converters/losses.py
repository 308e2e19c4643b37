"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Builder
from .reductions import reduced
from .table import converter


def _averaged(g: Builder, x: str, reduction: str, rank: int) -> str:
    if reduction == "none":
        return x
    return reduced(g, "ReduceMean" if reduction == "mean" else "ReduceSum", x, list(range(rank)), False)


@converter("mse_loss")
def _mse_loss(g: Builder, a: dict, out: list) -> str:
    d = g.op("Sub", g.cast(a["input"], out[0].dtype), g.cast(a["target"], out[0].dtype))
    return _averaged(g, g.op("Mul", d, d), a["reduction"], max(a["input"].rank, a["target"].rank))


@converter("binary_cross_entropy")
def _bce(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    p, t, one = g.cast(a["input"], dtype), g.cast(a["target"], dtype), g.number(1, dtype)
    least = g.number(-100, dtype)
    yes, no = (g.op("Max", g.op("Log", q), least) for q in (p, g.op("Sub", one, p)))
    loss = g.op("Neg", g.op("Add", g.op("Mul", t, yes), g.op("Mul", g.op("Sub", one, t), no)))
    loss = loss if a["weight"] is None else g.op("Mul", loss, g.cast(a["weight"], dtype))
    return _averaged(g, loss, a["reduction"], a["input"].rank)


@converter("binary_cross_entropy_with_logits")
def _bce_logits(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    x, t, one = g.cast(a["input"], dtype), g.cast(a["target"], dtype), g.number(1, dtype)
    yes, no = g.op("Softplus", g.op("Neg", x)), g.op("Softplus", x)  # -log p, -log(1 - p)
    yes = yes if a["pos_weight"] is None else g.op("Mul", yes, g.cast(a["pos_weight"], dtype))
    loss = g.op("Add", g.op("Mul", t, yes), g.op("Mul", g.op("Sub", one, t), no))
    loss = loss if a["weight"] is None else g.op("Mul", loss, g.cast(a["weight"], dtype))
    return _averaged(g, loss, a["reduction"], a["input"].rank)


@converter("smooth_l1_loss")
def _smooth_l1_loss(g: Builder, a: dict, out: list) -> str:
    dtype, beta = out[0].dtype, a["beta"]
    d = g.op("Abs", g.op("Sub", g.cast(a["input"], dtype), g.cast(a["target"], dtype)))
    if beta:
        small = g.op("Mul", g.op("Mul", d, d), g.number(0.5 / beta, dtype))
        d = g.op("Where", g.op("Less", d, g.number(beta, dtype)), small, g.op("Sub", d, g.number(beta / 2, dtype)))
    return _averaged(g, d, a["reduction"], max(a["input"].rank, a["target"].rank))


@converter("kl_div")
def _kl_div(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    x, t = g.cast(a["input"], dtype), g.cast(a["target"], dtype)
    if a["log_target"]:
        t, log = g.op("Exp", t), t
    else:
        log = g.op("Log", g.op("Where", g.op("Equal", t, g.number(0, dtype)), g.number(1, dtype), t))
    return _averaged(g, g.op("Mul", t, g.op("Sub", log, x)), a["reduction"], max(a["input"].rank, a["target"].rank))


@converter("nll_loss")
def _nll_loss(g: Builder, a: dict, out: list) -> str:
    return _class_loss(g, a, g.cast(a["input"], out[0].dtype), out[0].dtype)


@converter("cross_entropy")
def _cross_entropy(g: Builder, a: dict, out: list) -> str:
    return _class_loss(g, a, g.op("LogSoftmax", g.cast(a["input"], out[0].dtype), axis=min(a["input"].rank - 1, 1)), out[0].dtype)


def _class_loss(g: Builder, a: dict, logs: str, dtype: Any) -> str:
    """The loss of logarithms of probabilities, classes on axis 1."""
    x, t = a["input"], a["target"]
    axis = 1 if x.rank > 1 else 0
    classes = x.shape[axis]
    along = [-1 if k == axis else 1 for k in range(x.rank)]
    weight = None if a["weight"] is None else g.reshape(g.cast(a["weight"], dtype), along)
    smoothing = a.get("label_smoothing", 0.0)
    if t.dtype.kind in "fV":
        shares, counted = g.cast(t, dtype), None
    else:
        target = g.cast(t, np.int64)
        ignored = g.op("Equal", target, g.array(np.int64(a["ignore_index"])))
        counted = g.convert(g.op("Not", ignored), dtype)
        safe = g.where(ignored, g.array(np.int64(0)), target)
        shares = g.op("OneHot", safe, g.scalar(classes), g.array(np.array([0, 1]).astype(dtype)), axis=axis)
    if smoothing:
        spread = g.op("Div", g.number(smoothing, dtype), g.convert(g.scalar(classes), dtype))
        smooth = g.op("Add", g.op("Mul", shares, g.number(1 - smoothing, dtype)), spread)
    else:
        smooth = shares
    each = g.op("Mul", smooth, logs if weight is None else g.op("Mul", logs, weight))
    if not smoothing:  # a class that does not count may have probability 0
        each = g.op("Where", g.op("Equal", shares, g.number(0, dtype)), g.number(0, dtype), each)
    loss = g.op("Neg", reduced(g, "ReduceSum", each, [axis], False))
    loss = loss if counted is None else g.op("Mul", loss, counted)
    rank = x.rank - 1
    if a["reduction"] != "mean":
        return _averaged(g, loss, a["reduction"], rank)
    total = reduced(g, "ReduceSum", loss, list(range(rank)), False)
    if counted is None:
        rows = g.convert(g.op("Squeeze", g.product_of([s for k, s in enumerate(x.shape) if k != axis]), g.ints([0])), dtype)
        return g.op("Div", total, rows)
    if weight is not None:
        counted = g.op("Mul", counted, reduced(g, "ReduceSum", g.op("Mul", shares, weight), [axis], False))
    return g.op("Div", total, reduced(g, "ReduceSum", counted, list(range(rank)), False))
