"""Layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Builder, Term
from ..tracing import ExportError
from .elements import UNARY, gelu, gelu_tanh
from .reductions import reduced
from .table import CONVERTERS, Converter, converter


def _softmax(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = next(iter(a.values()))
        return g.op(kind, g.cast(x, out[0].dtype), axis=a["axis"]) if x.rank else g.number(float(kind == "Softmax"), out[0].dtype)

    return write


CONVERTERS.update(softmax=_softmax("Softmax"), log_softmax=_softmax("LogSoftmax"))


def _norm_axes(a: dict) -> int:
    shape = a["normalized_shape"]
    return -len(shape) if isinstance(shape, tuple) else -1


def _layer_norm_of(g: Builder, name: str, a: dict, out: list) -> str:
    axis, dtype = _norm_axes(a), out[0].dtype
    shape = out[0].shape[axis:]
    weight = g.cast(a["weight"], dtype) if a["weight"] is not None else g.expand(g.number(1, dtype), shape)
    bias = [g.cast(a["bias"], dtype)] if a["bias"] is not None else []
    return g.op("LayerNormalization", name, weight, *bias, axis=axis, epsilon=a["eps"])


@converter("layer_norm")
def _layer_norm(g: Builder, a: dict, out: list) -> str:
    return _layer_norm_of(g, g.cast(a["x"], out[0].dtype), a, out)


@converter("add_layer_norm")
def _add_layer_norm(g: Builder, a: dict, out: list) -> str:
    if a["dropout"]:
        raise ExportError("add_layer_norm drops elements in eval mode: pass dropout_p=0.0 unless self.training")
    return _layer_norm_of(g, g.op("Add", g.cast(a["x"], out[0].dtype), g.cast(a["residual"], out[0].dtype)), a, out)


@converter("rms_norm")
def _rms_norm(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    x = g.cast(a["x"], dtype)
    eps = a["eps"] if a["eps"] is not None else np.finfo(np.float64 if dtype == np.float64 else np.float32).eps
    axes = list(range(_norm_axes(a), 0))
    mean = reduced(g, "ReduceMean", g.op("Mul", x, x), axes, True)
    y = g.op("Div", x, g.op("Sqrt", g.op("Add", mean, g.number(eps, dtype))))
    return y if a["weight"] is None else g.op("Mul", y, g.cast(a["weight"], dtype))


_ACTIVATIONS: dict[str, Callable[[Builder, str, Any], str]] = {
    "relu": UNARY["relu"],
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


@converter("linear")
def _linear(g: Builder, a: dict, out: list) -> str:
    if a["dropout"]:
        raise ExportError("linear drops elements: export the model in eval mode, after model.eval()")
    dtype = out[0].dtype
    y = g.op("MatMul", g.cast(a["x"], dtype), g.op("Transpose", g.cast(a["weight"], dtype), perm=[1, 0]))
    if a["bias"] is not None:
        y = g.op("Add", y, g.cast(a["bias"], dtype))
    if a["activation"] not in (None, "none"):
        y = _ACTIVATIONS[a["activation"]](g, y, dtype)
    return y if a["residual"] is None else g.op("Add", y, g.cast(a["residual"], dtype))


@converter("matmul")
def _matmul(g: Builder, a: dict, out: list) -> str:
    return g.op("MatMul", g.cast(a["a"], out[0].dtype), g.cast(a["b"], out[0].dtype))


@converter("embedding")
def _embedding(g: Builder, a: dict, out: list) -> str:
    return g.op("Gather", a["weight"].name, g.cast(a["indices"], np.int64), axis=0)


@converter("one_hot")
def _one_hot(g: Builder, a: dict, out: list) -> str:
    depth = g.scalar(out[0].shape[-1])
    return g.op("OneHot", g.cast(a["x"], np.int64), depth, g.array(np.array([0, 1], np.int64)), axis=-1)


@converter("global_max_pool1d")
def _global_max_pool1d(g: Builder, a: dict, out: list) -> str:
    return reduced(g, "ReduceMax", a["x"].name, [1], False)


@converter("argsort")
def _argsort(g: Builder, a: dict, out: list) -> str:
    x: Term = a["x"]
    name = g.cast(x, np.int32) if x.dtype in (bool, np.uint8) else x.name
    axis = a["axis"] % x.rank
    count = g.size(x.shape[axis]) if a["first"] is None else g.ints([a["first"]])
    return g.op("TopK", name, count, axis=axis, largest=int(a["descending"]), outputs=2)[1]


@converter("gather")
def _gather(g: Builder, a: dict, out: list) -> str:
    return g.op("GatherElements", a["x"].name, g.cast(a["index"], np.int64), axis=a["axis"])


@converter("scatter", "scatter_into")
def _scatter(g: Builder, a: dict, out: list) -> str:
    x, index, src = a["x"], a["index"], a["src"]
    name = g.cast(src, x.dtype)
    if src.shape != index.shape:  # what the index does not name is not used
        name = g.op("Slice", name, g.ints([0] * index.rank), g.ints(index.shape), g.ints(list(range(index.rank))))
    how = {"put": "none", "add": "add", "multiply": "mul"}[a["combination"]]
    return g.op("ScatterElements", x.name, g.cast(index, np.int64), name, axis=a["axis"], reduction=how)


@converter("cumsum")
def _cumsum(g: Builder, a: dict, out: list) -> str:
    return g.op("CumSum", g.cast(a["x"], out[0].dtype), g.array(np.int64(a["axis"])), reverse=int(a["reverse"]))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@converter("pad")
def _pad(g: Builder, a: dict, out: list) -> str:
    x, pads = a["x"], _list(a["pads"])
    pads += [0] * (2 * x.rank - len(pads))
    before, after = pads[::2][::-1], pads[1::2][::-1]  # given from the last axis on
    return g.op("Pad", x.name, g.ints([*before, *after]), g.number(a["value"], x.dtype))


@converter("convolution")
def _convolution(g: Builder, a: dict, out: list) -> str:
    x, weight, dtype = a["x"], a["weight"], out[0].dtype
    axes = weight.rank - 2
    stride, padding, dilation = (_list(a[name]) * (1 if isinstance(a[name], tuple) else axes) for name in ("stride", "padding", "dilation"))
    bias = [] if a["bias"] is None else [g.cast(a["bias"], dtype)]
    name = g.cast(x, dtype) if x.rank == weight.rank else g.at(g.cast(x, dtype), 0)
    y = g.op("Conv", name, g.cast(weight, dtype), *bias, strides=stride, pads=padding * 2, dilations=dilation, group=a["groups"])
    return y if x.rank == weight.rank else g.op("Squeeze", y, g.ints([0]))


@converter("transposed_convolution")
def _transposed_convolution(g: Builder, a: dict, out: list) -> str:
    stride, padding, more, dilation = (_list(a[name]) for name in ("stride", "padding", "output_padding", "dilation"))
    operands = [g.cast(a[name], out[0].dtype) for name in ("x", "weight", "bias") if a[name] is not None]
    return g.op("ConvTranspose", *operands, strides=stride, pads=padding * 2, output_padding=more, dilations=dilation, group=a["groups"])


@converter("rotary")
def _rotary(g: Builder, a: dict, out: list) -> str:
    x, dtype = a["x"], out[0].dtype
    width, length = x.shape[-1], x.shape[-2]
    half = width // 2
    frequency = g.array(np.asarray(a["base"], np.float64) ** (-2.0 * np.arange(half) / width))
    positions = g.convert(g.arange(length), np.float64) if a["positions"] is None else g.cast(a["positions"], np.float64)
    angle = g.op("Mul", g.at(positions, -1), frequency)
    turn = g.array(np.float64(2 * np.pi))  # the sines of small angles are as exact in float32
    angle = g.convert(g.op("Sub", angle, g.op("Mul", g.op("Floor", g.op("Div", angle, turn)), turn)), dtype)
    cos, sin = g.op("Cos", angle), g.op("Sin", angle)
    name = g.cast(x, dtype)
    if a["pairing"] == "half":
        first, second = g.op("Split", name, g.ints([half, half]), outputs=2, axis=-1)
    else:
        first, second = (g.slice(name, -1, start, np.iinfo(np.int64).max, 2) for start in (0, 1))
    left = g.op("Sub", g.op("Mul", first, cos), g.op("Mul", second, sin))
    right = g.op("Add", g.op("Mul", first, sin), g.op("Mul", second, cos))
    if a["pairing"] == "half":
        return g.op("Concat", left, right, axis=-1)
    return g.reshape(g.op("Concat", g.at(left, -1), g.at(right, -1), axis=-1), out[0].shape)
