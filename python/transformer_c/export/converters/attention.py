"""Attention in ONNX: products, masks and a softmax that gives zeros where a query may attend to no key."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..graph import Builder, Term
from ..sizes import Real, Size
from ..tracing import ExportError
from .elements import truth
from .reductions import reduced
from .table import converter
from .views import transposed


@converter("qkv_projection")
def _qkv_projection(g: Builder, a: dict, out: list) -> list[str]:
    x: Term = a["x"]
    dtype, rank, heads, width = out[0].dtype, x.rank, a["num_heads"], out[0].shape[-1]
    y = g.op("MatMul", g.cast(x, dtype), g.op("Transpose", g.cast(a["weight"], dtype), perm=[1, 0]))
    if a["bias"] is not None:
        y = g.op("Add", y, g.cast(a["bias"], dtype))
    by_head = a["packing"] == "head"
    y = g.reshape(y, [*x.shape[:-1], *((heads, 3, width) if by_head else (3, heads, width))])
    part = rank if by_head else rank - 1  # the axis of q, k and v
    order = [*range(rank - 2), rank - 1, rank - 2, rank]  # (..., T, H, D) to (..., H, T, D)
    return [transposed(g, g.op("Gather", y, g.array(np.int64(i)), axis=part), order) for i in range(3)]


def _scores(g: Builder, q: str, k: Term, scale: Any, dtype: Any) -> str:
    turned = g.op("Transpose", g.cast(k, dtype), perm=[*range(k.rank - 2), k.rank - 1, k.rank - 2])
    return g.op("MatMul", g.op("Mul", q, g.number(scale, dtype)), turned)


@converter("scaled_dot_product", "scaled_dot_product_values")
def _scaled_dot_product(g: Builder, a: dict, out: list) -> list[str]:
    q, k, v, mask = a["q"], a["k"], a["v"], a["mask"]
    dtype = out[0].dtype
    scores = _scores(g, g.cast(q, dtype), k, _root(q.shape[-1]), dtype)
    if mask is not None:
        scores = g.where(truth(g, mask), scores, g.number(-9e15, dtype))
    attention = g.op("Softmax", scores, axis=-1)
    return [g.op("MatMul", attention, g.cast(v, dtype)), attention][: len(out)]


def _root(width: int | Size) -> Any:
    return Real("rsqrt", width) if isinstance(width, Size) else float(width) ** -0.5


def _shared(g: Builder, x: Term, heads: Any) -> Term:
    """Keys or values whose heads are repeated for the queries of a group."""
    of = x.shape[-3]
    if of == heads or not isinstance(of, int) or not isinstance(heads, int):
        return x
    lead = x.shape[:-3]
    wide = g.expand(g.at(x.name, -3), [*lead, of, heads // of, *x.shape[-2:]])
    shape = [*lead, heads, *x.shape[-2:]]
    return Term(g.reshape(wide, shape), x.dtype, shape)


def _per_batch(g: Builder, x: Any, rank: int) -> str:
    """Integers, one or one for each batch element, as int64 that broadcast against (B, ..., Tq, Tk)."""
    if not isinstance(x, Term):
        return g.array(np.int64(0)) if x is None else g.scalar(x)
    return g.reshape(g.cast(x, np.int64), [-1] + [1] * (rank - 1))


def _allowed(g: Builder, a: dict, queries: Any, keys: Any, rank: int) -> str | None:
    """Which keys a query may attend to; None: all."""
    parts = []
    mask = a["attn_mask"]
    if mask is not None and mask.dtype.kind in "biu":
        parts.append(truth(g, mask))
    column, row = g.arange(keys), g.at(g.arange(queries), 1)
    if a["key_lengths"] is not None:
        parts.append(g.op("Less", column, _per_batch(g, a["key_lengths"], rank)))
    if a["is_causal"] or a["window"] is not None:
        here = g.op("Add", row, _per_batch(g, a["causal_offset"], rank))
        left, right = a["window"] if a["window"] is not None else (None, None)
        if a["is_causal"]:
            parts.append(g.op("LessOrEqual", column, here))
        if right is not None:
            parts.append(g.op("LessOrEqual", column, g.op("Add", here, g.size(right))))
        if left is not None:
            parts.append(g.op("GreaterOrEqual", column, g.op("Sub", here, g.size(left))))
    return functools.reduce(lambda a, b: g.op("And", a, b), parts) if parts else None


@converter("attention")
def _attention(g: Builder, a: dict, out: list) -> list[str | None]:
    q, k, v = a["query"], a["key"], a["value"]
    dtype = out[0].dtype
    if a["dropout"]:
        raise ExportError("attention drops weights in eval mode: pass dropout_p=0.0 unless self.training")
    if a["sequence_lengths"] is not None:
        raise ExportError(
            "attention of packed sequences (sequence_lengths) has no counterpart in ONNX: export with padding and key_lengths"
        )
    if a["enable_gqa"] and q.rank > 2:
        k, v = _shared(g, k, q.shape[-3]), _shared(g, v, q.shape[-3])
    scale = a["scale"] if a["scale"] is not None else _root(q.shape[-1])
    scores = _scores(g, g.cast(q, dtype), k, scale, dtype)
    if a["softcap"]:
        cap = g.number(a["softcap"], dtype)
        scores = g.op("Mul", g.op("Tanh", g.op("Div", scores, cap)), cap)
    added = [a["bias"], a["attn_mask"] if a["attn_mask"] is not None and a["attn_mask"].dtype.kind not in "biu" else None]
    for term in added:
        scores = scores if term is None else g.op("Add", scores, g.cast(term, dtype))
    rank = max(q.rank, k.rank)
    allowed = _allowed(g, a, q.shape[-2], k.shape[-2], rank)
    lowest = g.number(-np.inf, dtype)
    if allowed is not None:
        scores = g.where(allowed, scores, lowest)
    wants_sum = len(out) > 2 and out[2] is not None
    total = top = ""
    if allowed is None and added == [None, None] and not wants_sum:
        attention = g.op("Softmax", scores, axis=-1)
    else:
        top = reduced(g, "ReduceMax", scores, [-1], True)
        top = g.where(g.op("Equal", top, lowest), g.number(0, dtype), top)
        weights = g.op("Exp", g.op("Sub", scores, top))
        total = reduced(g, "ReduceSum", weights, [-1], True)
        empty = g.op("Equal", total, g.number(0, dtype))
        attention = g.op("Div", weights, g.where(empty, g.number(1, dtype), total))
        if a["empty_rows"] == "uniform":
            count = g.op("Reciprocal", g.convert(g.scalar(k.shape[-2]), dtype))
            attention = g.where(empty, count, attention)
    results: list[str | None] = [g.op("MatMul", attention, g.cast(v, dtype)), attention]
    if wants_sum:
        results.append(g.op("Squeeze", g.op("Add", g.op("Log", total), top), g.ints([-1])))
    return [name if o is not None else None for name, o in zip([*results, None], out, strict=False)]
