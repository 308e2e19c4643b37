"""The form of each op in ONNX: a table of functions that write nodes.

A form gets the builder, the arguments of the call by name (a ``Term`` for each Tensor, numbers as they are or as formulas of the lengths), and
the results (their dtypes and shapes). It gives the name of the result, or a list of names, None for a result that was not asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import Builder, Term
from .sizes import Size

Form = Callable[[Builder, dict[str, Any], list[Any]], Any]
FORMS: dict[str, Form] = {}
SQRT_HALF = 0.5**0.5


def form(*names: str) -> Callable[[Form], Form]:
    """Enters a function into the table."""

    def enter(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return enter


# ---- functions of elements ------------------------------------------------------------------------------------------------------


def _gelu(g: Builder, x: str, dtype: Any) -> str:
    inner = g.op("Erf", g.op("Mul", x, g.number(SQRT_HALF, dtype)))
    return g.op("Mul", g.op("Mul", x, g.number(0.5, dtype)), g.op("Add", inner, g.number(1, dtype)))


def _gelu_tanh(g: Builder, x: str, dtype: Any) -> str:
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.number(0.044715, dtype))), g.number((2 / np.pi) ** 0.5, dtype))
    return g.op("Mul", g.op("Mul", x, g.number(0.5, dtype)), g.op("Add", g.op("Tanh", inner), g.number(1, dtype)))


def _silu(g: Builder, x: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x))


def _node(kind: str) -> Callable[[Builder, str, Any], str]:
    return lambda g, x, dtype: g.op(kind, x)


UNARY: dict[str, Callable[[Builder, str, Any], str]] = {
    "neg": _node("Neg"),
    "abs": _node("Abs"),
    "sign": _node("Sign"),
    "square": lambda g, x, dtype: g.op("Mul", x, x),
    "reciprocal": _node("Reciprocal"),
    "sqrt": _node("Sqrt"),
    "rsqrt": lambda g, x, dtype: g.op("Reciprocal", g.op("Sqrt", x)),
    "exp": _node("Exp"),
    "log": _node("Log"),
    "log1p": lambda g, x, dtype: g.op("Log", g.op("Add", x, g.number(1, dtype))),
    "sin": _node("Sin"),
    "cos": _node("Cos"),
    "tanh": _node("Tanh"),
    "sigmoid": _node("Sigmoid"),
    "erf": _node("Erf"),
    "relu": _node("Relu"),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda g, x, dtype: _silu(g, x),
}


def _unary(write: Callable[[Builder, str, Any], str]) -> Form:
    return lambda g, a, out: write(g, g.cast(next(iter(a.values())), out[0].dtype), out[0].dtype)


FORMS.update({name: _unary(write) for name, write in UNARY.items()})


def operand(g: Builder, x: Any, dtype: Any) -> str:
    """A Tensor or a number in a dtype."""
    return g.cast(x, dtype) if isinstance(x, Term) else g.number(x, dtype)


def common(*operands: Any) -> np.dtype:
    """The dtype in which operands are compared: numbers fit the Tensors, unless they are floats and those are not."""
    dtypes = [x.dtype for x in operands if isinstance(x, Term)]
    floats = [d for d in dtypes if d.kind in "fV"]
    if floats:
        halves = {d.name for d in floats if d.itemsize == 2}
        wide = [d for d in floats if d.itemsize > 2]
        return np.result_type(*wide, *([np.float32] if len(halves) > 1 else [])) if wide or len(halves) > 1 else floats[0]
    if any(not isinstance(x, Term) and not isinstance(x, (bool, int, Size)) for x in operands):
        return np.dtype(np.float32)
    found = np.result_type(*dtypes)
    whole = any(not isinstance(x, (Term, bool)) for x in operands)
    return np.dtype(np.int64) if found.kind == "b" and whole else found


def _arithmetic(kind: str, of_bools: str = "") -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        dtype, alpha = out[0].dtype, a.get("alpha")
        x, y = operand(g, a["a"], dtype), operand(g, a["b"], dtype)
        y = y if alpha in (1, None) else g.op("Mul", y, g.number(alpha, dtype))
        return g.op(of_bools if dtype.kind == "b" else kind, x, y)

    return write


FORMS.update(
    add=_arithmetic("Add", "Or"),
    sub=_arithmetic("Sub", "Xor"),
    mul=_arithmetic("Mul", "And"),
    div=_arithmetic("Div"),
    pow=_arithmetic("Pow"),
    maximum=_arithmetic("Max", "Or"),
    minimum=_arithmetic("Min", "And"),
    clamp_min=_arithmetic("Max", "Or"),
    clamp_max=_arithmetic("Min", "And"),
)


def _operands(g: Builder, a: dict, out: list) -> tuple[str, str, np.dtype]:
    dtype = out[0].dtype
    return operand(g, a["a"], dtype), operand(g, a["b"], dtype), dtype


@form("floor_divide")
def _floor_divide(g: Builder, a: dict, out: list) -> str:
    x, y, dtype = _operands(g, a, out)
    if dtype.kind in "fV":
        return g.op("Floor", g.op("Div", x, y))
    return g.op("Div", g.op("Sub", x, g.op("Mod", x, y)), y)


@form("remainder")
def _remainder(g: Builder, a: dict, out: list) -> str:
    x, y, dtype = _operands(g, a, out)
    if dtype.kind in "fV":
        return g.op("Sub", x, g.op("Mul", g.op("Floor", g.op("Div", x, y)), y))
    return g.op("Mod", x, y)


@form("swiglu")
def _swiglu(g: Builder, a: dict, out: list) -> str:
    return g.op("Mul", _silu(g, operand(g, a["a"], out[0].dtype)), operand(g, a["b"], out[0].dtype))


@form("geglu")
def _geglu(g: Builder, a: dict, out: list) -> str:
    return g.op("Mul", _gelu(g, operand(g, a["a"], out[0].dtype), out[0].dtype), operand(g, a["b"], out[0].dtype))


def _bent(g: Builder, x: str, below: str, dtype: Any) -> str:
    """x where it is positive, another value elsewhere."""
    return g.op("Where", g.op("Greater", x, g.number(0, dtype)), x, below)


@form("leaky_relu")
def _leaky_relu(g: Builder, a: dict, out: list) -> str:
    x, slope, dtype = _operands(g, a, out)
    return _bent(g, x, g.op("Mul", x, slope), dtype)


@form("elu")
def _elu(g: Builder, a: dict, out: list) -> str:
    x, alpha, dtype = _operands(g, a, out)
    return _bent(g, x, g.op("Mul", alpha, g.op("Elu", x)), dtype)


@form("softplus")
def _softplus(g: Builder, a: dict, out: list) -> str:
    x, sharpness, _ = _operands(g, a, out)
    return g.op("Div", g.op("Softplus", g.op("Mul", x, sharpness)), sharpness)


def _comparison(kind: str, negated: bool = False) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        dtype = common(a["a"], a["b"])
        if (dtype.kind == "b" and kind != "Equal") or dtype.kind == "u":
            dtype = np.dtype(np.int32)
        found = g.op(kind, operand(g, a["a"], dtype), operand(g, a["b"], dtype))
        return g.op("Not", found) if negated else found

    return write


FORMS.update(
    eq=_comparison("Equal"), ne=_comparison("Equal", True), lt=_comparison("Less"), le=_comparison("LessOrEqual"),
    gt=_comparison("Greater"), ge=_comparison("GreaterOrEqual"),
)  # fmt: skip


def truth(g: Builder, x: Any) -> str:
    """Whether elements are not zero, as bool."""
    return g.cast(x, bool) if isinstance(x, Term) else g.number(bool(x), bool)


def _logical(kind: str) -> Form:
    return lambda g, a, out: g.op(kind, truth(g, a["a"]), truth(g, a["b"]))


def _bitwise(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        if out[0].dtype == bool:
            return g.op(kind, truth(g, a["a"]), truth(g, a["b"]))
        return g.op(f"Bitwise{kind}", operand(g, a["a"], out[0].dtype), operand(g, a["b"], out[0].dtype))

    return write


for _name, _kind in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    FORMS[f"logical_{_name}"], FORMS[f"bitwise_{_name}"] = _logical(_kind), _bitwise(_kind)


def chosen(g: Builder, condition: str, a: str, b: str, dtype: Any) -> str:
    """a where the condition is true, b elsewhere. ONNX Runtime's Where takes no bools."""
    if np.dtype(dtype) != bool:
        return g.op("Where", condition, a, b)
    return g.op("Or", g.op("And", condition, a), g.op("And", g.op("Not", condition), b))


@form("where")
def _where(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    return chosen(g, truth(g, a["condition"]), operand(g, a["a"], dtype), operand(g, a["b"], dtype), dtype)


@form("masked_fill")
def _masked_fill(g: Builder, a: dict, out: list) -> str:
    x, mask, value = a.values()
    return chosen(g, truth(g, mask), operand(g, value, out[0].dtype), g.cast(x, out[0].dtype), out[0].dtype)


# ---- reductions -------------------------------------------------------------------------------------------------------------------


def axes_of(a: dict, rank: int) -> list[int]:
    """The axes of a reduction; all when None."""
    axis = a.get("axis")
    if axis is None:
        return list(range(rank))
    return [k % rank for k in (axis if isinstance(axis, tuple) else (axis,))] if rank else []


def reduced(g: Builder, kind: str, x: str, axes: list[int], keep: bool) -> str:
    """A node that reduces; without axes it does nothing."""
    return g.op(kind, x, g.ints(axes), keepdims=int(keep), noop_with_empty_axes=1)


def _reduction(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        return reduced(g, kind, g.cast(a["x"], out[0].dtype), axes_of(a, a["x"].rank), a["keepdims"])

    return write


FORMS.update(sum=_reduction("ReduceSum"), mean=_reduction("ReduceMean"))


def _extreme(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = next(iter(a.values()))
        whole = np.int32 if x.dtype == bool else x.dtype
        found = reduced(g, kind, g.cast(x, whole), axes_of(a, x.rank), a["keepdims"])
        return found if whole == out[0].dtype else g.convert(found, out[0].dtype)

    return write


FORMS.update(max=_extreme("ReduceMax"), min=_extreme("ReduceMin"))


def _truths(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        whole = g.convert(truth(g, a["x"]), np.int32)
        return g.convert(reduced(g, kind, whole, axes_of(a, a["x"].rank), a["keepdims"]), bool)

    return write


FORMS.update(any=_truths("ReduceMax"), all=_truths("ReduceMin"))


def _place(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = a["x"]
        name = g.cast(x, np.int32) if x.dtype == bool else x.name
        if a["axis"] is None:
            found = g.op(kind, g.reshape(name, [-1]), axis=0, keepdims=0)
            return g.reshape(found, [1] * x.rank) if a["keepdims"] else found
        return g.op(kind, name, axis=axes_of(a, x.rank)[0], keepdims=int(a["keepdims"]))

    return write


FORMS.update(argmax=_place("ArgMax"), argmin=_place("ArgMin"))


@form("var")
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


# ---- views, copies ------------------------------------------------------------------------------------------------------------------


@form("detach", "contiguous", "clone", "cpu", "cuda", "as_tensor")
def _same(g: Builder, a: dict, out: list) -> str:
    return next(iter(a.values())).name


@form("float", "double", "half", "bfloat16", "long", "int", "bool", "to", "type_as", "tensor")
def _cast(g: Builder, a: dict, out: list) -> str:
    return g.cast(next(iter(a.values())), out[0].dtype)


@form("reshape", "view", "flatten", "squeeze", "unsqueeze")
def _reshape(g: Builder, a: dict, out: list) -> str:
    return g.reshape(a["self"].name, out[0].shape)


@form("expand")
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


@form("permute")
def _permute(g: Builder, a: dict, out: list) -> str:
    dims = a["dims"] if isinstance(a["dims"], tuple) else (a["dims"],)
    return transposed(g, a["self"].name, [d % a["self"].rank for d in dims])


@form("transpose", "swapaxes")
def _transpose(g: Builder, a: dict, out: list) -> str:
    x, first, second = a.values()
    return transposed(g, x.name, moved(x.rank, first, second)) if x.rank else x.name


FORMS["mT"] = lambda g, a, out: transposed(g, a["self"].name, moved(a["self"].rank, -1, -2))
FORMS["T"] = lambda g, a, out: transposed(g, a["self"].name, list(range(a["self"].rank))[::-1])


@form("flip")
def _flip(g: Builder, a: dict, out: list) -> str:
    dims = a["dims"] if isinstance(a["dims"], tuple) else (a["dims"],)
    name = a["self"].name
    for axis in dims:
        name = g.slice(name, axis % a["self"].rank, -1, np.iinfo(np.int64).min, -1)
    return name


@form("unfold")
def _unfold(g: Builder, a: dict, out: list) -> str:
    rank, axis = a["self"].rank, a["dimension"] % max(a["self"].rank, 1)
    begin = g.op("Mul", g.arange(out[0].shape[axis]), g.size(a["step"]))
    places = g.op("Add", g.at(begin, 1), g.array(np.arange(a["size"], dtype=np.int64)[None]))
    windows = g.op("Gather", a["self"].name, places, axis=axis)  # the new axis is behind `axis`
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return transposed(g, windows, order)


@form("narrow")
def _narrow(g: Builder, a: dict, out: list) -> str:
    axis = a["dim"] % a["self"].rank
    start = a["start"]
    if isinstance(start, int) and start >= 0 and isinstance(out[0].shape[axis], int):
        return g.slice(a["self"].name, axis, start, start + out[0].shape[axis])
    stop = g.op("Add", g.size(start), g.size(out[0].shape[axis]))
    return g.op("Slice", a["self"].name, g.size(start), stop, g.ints([axis]), g.ints([1]))


@form("chunk", "split")
def _split(g: Builder, a: dict, out: list) -> list[str]:
    axis = a["dim"] % a["self"].rank
    if len(out) == 1:
        return [a["self"].name]
    return g.op("Split", a["self"].name, g.ints([o.shape[axis] for o in out]), outputs=len(out), axis=axis)


@form("unbind")
def _unbind(g: Builder, a: dict, out: list) -> list[str]:
    axis = a["dim"] % a["self"].rank
    return [g.op("Gather", a["self"].name, g.array(np.int64(i)), axis=axis) for i in range(len(out))]


@form("full", "empty")
def _full(g: Builder, a: dict, out: list) -> str:
    value = a.get("value")
    name = g.cast(value, out[0].dtype) if value is not None else g.number(0, out[0].dtype)
    return g.expand(name, out[0].shape)


FORMS["zero_"] = lambda g, a, out: g.expand(g.number(0, out[0].dtype), out[0].shape)
FORMS["fill_"] = lambda g, a, out: g.expand(g.cast(a["value"], out[0].dtype), out[0].shape)
FORMS["copy_"] = lambda g, a, out: g.expand(g.cast(a["src"], out[0].dtype), out[0].shape)


@form("cat")
def _cat(g: Builder, a: dict, out: list) -> str:
    parts = [g.cast(t, out[0].dtype) for t in a["tensors"]]
    return g.op("Concat", *parts, axis=a["dim"] % out[0].rank)


@form("stack")
def _stack(g: Builder, a: dict, out: list) -> str:
    axis = a["dim"] % out[0].rank
    return g.op("Concat", *[g.at(g.cast(t, out[0].dtype), axis) for t in a["tensors"]], axis=axis)


def _triangle(upper: bool) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = a["input"]
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
        found = g.op("Trilu", g.cast(x, dtype), g.scalar(a["diagonal"]), upper=int(upper))
        return found if dtype == x.dtype else g.convert(found, x.dtype)

    return write


FORMS.update(triu=_triangle(True), tril=_triangle(False))


# ---- layers -----------------------------------------------------------------------------------------------------------------------------


def _softmax(kind: str) -> Form:
    def write(g: Builder, a: dict, out: list) -> str:
        x: Term = next(iter(a.values()))
        return g.op(kind, g.cast(x, out[0].dtype), axis=a["axis"]) if x.rank else g.number(float(kind == "Softmax"), out[0].dtype)

    return write


FORMS.update(softmax=_softmax("Softmax"), log_softmax=_softmax("LogSoftmax"))


def _norm_axes(a: dict) -> int:
    shape = a["normalized_shape"]
    return -len(shape) if isinstance(shape, tuple) else -1


def _layer_norm_of(g: Builder, name: str, a: dict, out: list) -> str:
    axis, dtype = _norm_axes(a), out[0].dtype
    shape = out[0].shape[axis:]
    weight = g.cast(a["weight"], dtype) if a["weight"] is not None else g.expand(g.number(1, dtype), shape)
    bias = [g.cast(a["bias"], dtype)] if a["bias"] is not None else []
    return g.op("LayerNormalization", name, weight, *bias, axis=axis, epsilon=a["eps"])


@form("layer_norm")
def _layer_norm(g: Builder, a: dict, out: list) -> str:
    return _layer_norm_of(g, g.cast(a["x"], out[0].dtype), a, out)


@form("add_layer_norm")
def _add_layer_norm(g: Builder, a: dict, out: list) -> str:
    return _layer_norm_of(g, g.op("Add", g.cast(a["x"], out[0].dtype), g.cast(a["residual"], out[0].dtype)), a, out)


@form("rms_norm")
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
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}


@form("linear")
def _linear(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    y = g.op("MatMul", g.cast(a["x"], dtype), g.op("Transpose", g.cast(a["weight"], dtype), perm=[1, 0]))
    if a["bias"] is not None:
        y = g.op("Add", y, g.cast(a["bias"], dtype))
    if a["activation"] not in (None, "none"):
        y = _ACTIVATIONS[a["activation"]](g, y, dtype)
    return y if a["residual"] is None else g.op("Add", y, g.cast(a["residual"], dtype))


@form("matmul")
def _matmul(g: Builder, a: dict, out: list) -> str:
    return g.op("MatMul", g.cast(a["a"], out[0].dtype), g.cast(a["b"], out[0].dtype))


@form("embedding")
def _embedding(g: Builder, a: dict, out: list) -> str:
    return g.op("Gather", a["weight"].name, g.cast(a["indices"], np.int64), axis=0)


@form("one_hot")
def _one_hot(g: Builder, a: dict, out: list) -> str:
    depth = g.scalar(out[0].shape[-1])
    return g.op("OneHot", g.cast(a["x"], np.int64), depth, g.array(np.array([0, 1], np.int64)), axis=-1)


@form("global_max_pool1d")
def _global_max_pool1d(g: Builder, a: dict, out: list) -> str:
    return reduced(g, "ReduceMax", a["x"].name, [1], False)


@form("argsort")
def _argsort(g: Builder, a: dict, out: list) -> str:
    x: Term = a["x"]
    name = g.cast(x, np.int32) if x.dtype in (bool, np.uint8) else x.name
    axis = a["axis"] % x.rank
    count = g.size(x.shape[axis]) if a["first"] is None else g.ints([a["first"]])
    return g.op("TopK", name, count, axis=axis, largest=int(a["descending"]), outputs=2)[1]


@form("gather")
def _gather(g: Builder, a: dict, out: list) -> str:
    return g.op("GatherElements", a["x"].name, g.cast(a["index"], np.int64), axis=a["axis"])


@form("scatter")
def _scatter(g: Builder, a: dict, out: list) -> str:
    x, index, src = a["x"], a["index"], a["src"]
    name = g.cast(src, x.dtype)
    if src.shape != index.shape:  # what the index does not name is not used
        name = g.op("Slice", name, g.ints([0] * index.rank), g.ints(index.shape), g.ints(list(range(index.rank))))
    how = {"put": "none", "add": "add", "multiply": "mul"}[a["combination"]]
    return g.op("ScatterElements", x.name, g.cast(index, np.int64), name, axis=a["axis"], reduction=how)


@form("cumsum")
def _cumsum(g: Builder, a: dict, out: list) -> str:
    return g.op("CumSum", g.cast(a["x"], out[0].dtype), g.array(np.int64(a["axis"])), reverse=int(a["reverse"]))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@form("pad")
def _pad(g: Builder, a: dict, out: list) -> str:
    x, pads = a["x"], _list(a["pads"])
    pads += [0] * (2 * x.rank - len(pads))
    before, after = pads[::2][::-1], pads[1::2][::-1]  # given from the last axis on
    return g.op("Pad", x.name, g.ints([*before, *after]), g.number(a["value"], x.dtype))


@form("convolution")
def _convolution(g: Builder, a: dict, out: list) -> str:
    x, weight, dtype = a["x"], a["weight"], out[0].dtype
    axes = weight.rank - 2
    stride, padding, dilation = (_list(a[name]) * (1 if isinstance(a[name], tuple) else axes) for name in ("stride", "padding", "dilation"))
    bias = [] if a["bias"] is None else [g.cast(a["bias"], dtype)]
    name = g.cast(x, dtype) if x.rank == weight.rank else g.at(g.cast(x, dtype), 0)
    y = g.op("Conv", name, g.cast(weight, dtype), *bias, strides=stride, pads=padding * 2, dilations=dilation, group=a["groups"])
    return y if x.rank == weight.rank else g.op("Squeeze", y, g.ints([0]))


@form("rotary")
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


# ---- losses -----------------------------------------------------------------------------------------------------------------------------


def _averaged(g: Builder, x: str, reduction: str, rank: int) -> str:
    if reduction == "none":
        return x
    return reduced(g, "ReduceMean" if reduction == "mean" else "ReduceSum", x, list(range(rank)), False)


@form("mse_loss")
def _mse_loss(g: Builder, a: dict, out: list) -> str:
    d = g.op("Sub", g.cast(a["input"], out[0].dtype), g.cast(a["target"], out[0].dtype))
    return _averaged(g, g.op("Mul", d, d), a["reduction"], max(a["input"].rank, a["target"].rank))


@form("binary_cross_entropy")
def _bce(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    p, t, one = g.cast(a["input"], dtype), g.cast(a["target"], dtype), g.number(1, dtype)
    least = g.number(-100, dtype)
    yes, no = (g.op("Max", g.op("Log", q), least) for q in (p, g.op("Sub", one, p)))
    loss = g.op("Neg", g.op("Add", g.op("Mul", t, yes), g.op("Mul", g.op("Sub", one, t), no)))
    loss = loss if a["weight"] is None else g.op("Mul", loss, g.cast(a["weight"], dtype))
    return _averaged(g, loss, a["reduction"], a["input"].rank)


@form("binary_cross_entropy_with_logits")
def _bce_logits(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    x, t, one = g.cast(a["input"], dtype), g.cast(a["target"], dtype), g.number(1, dtype)
    yes, no = g.op("Softplus", g.op("Neg", x)), g.op("Softplus", x)  # -log p, -log(1 - p)
    yes = yes if a["pos_weight"] is None else g.op("Mul", yes, g.cast(a["pos_weight"], dtype))
    loss = g.op("Add", g.op("Mul", t, yes), g.op("Mul", g.op("Sub", one, t), no))
    loss = loss if a["weight"] is None else g.op("Mul", loss, g.cast(a["weight"], dtype))
    return _averaged(g, loss, a["reduction"], a["input"].rank)


@form("smooth_l1_loss")
def _smooth_l1_loss(g: Builder, a: dict, out: list) -> str:
    dtype, beta = out[0].dtype, a["beta"]
    d = g.op("Abs", g.op("Sub", g.cast(a["input"], dtype), g.cast(a["target"], dtype)))
    if beta:
        small = g.op("Mul", g.op("Mul", d, d), g.number(0.5 / beta, dtype))
        d = g.op("Where", g.op("Less", d, g.number(beta, dtype)), small, g.op("Sub", d, g.number(beta / 2, dtype)))
    return _averaged(g, d, a["reduction"], max(a["input"].rank, a["target"].rank))


@form("kl_div")
def _kl_div(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    x, t = g.cast(a["input"], dtype), g.cast(a["target"], dtype)
    if a["log_target"]:
        t, log = g.op("Exp", t), t
    else:
        log = g.op("Log", g.op("Where", g.op("Equal", t, g.number(0, dtype)), g.number(1, dtype), t))
    return _averaged(g, g.op("Mul", t, g.op("Sub", log, x)), a["reduction"], max(a["input"].rank, a["target"].rank))


@form("nll_loss")
def _nll_loss(g: Builder, a: dict, out: list) -> str:
    return _class_loss(g, a, g.cast(a["input"], out[0].dtype), out[0].dtype)


@form("cross_entropy")
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
