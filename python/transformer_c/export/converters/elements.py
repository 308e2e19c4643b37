"""Functions of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Builder, Term
from ..sizes import Size
from .table import CONVERTERS, Converter, converter

SQRT_HALF = 0.5**0.5


def gelu(g: Builder, x: str, dtype: Any) -> str:
    inner = g.op("Erf", g.op("Mul", x, g.number(SQRT_HALF, dtype)))
    return g.op("Mul", g.op("Mul", x, g.number(0.5, dtype)), g.op("Add", inner, g.number(1, dtype)))


def gelu_tanh(g: Builder, x: str, dtype: Any) -> str:
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.number(0.044715, dtype))), g.number((2 / np.pi) ** 0.5, dtype))
    return g.op("Mul", g.op("Mul", x, g.number(0.5, dtype)), g.op("Add", g.op("Tanh", inner), g.number(1, dtype)))


def _silu(g: Builder, x: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x))


def _relu6(g: Builder, x: str, dtype: Any) -> str:
    return g.op("Min", g.op("Max", x, g.number(0, dtype)), g.number(6, dtype))


def _hardsigmoid(g: Builder, x: str, dtype: Any) -> str:
    return g.op("Div", _relu6(g, g.op("Add", x, g.number(3, dtype)), dtype), g.number(6, dtype))


def _node(kind: str) -> Callable[[Builder, str, Any], str]:
    return lambda g, x, dtype: g.op(kind, x)


UNARY: dict[str, Callable[[Builder, str, Any], str]] = {
    "neg": _node("Neg"),
    "abs": _node("Abs"),
    "sign": _node("Sign"),
    "floor": _node("Floor"),
    "ceil": _node("Ceil"),
    "round": _node("Round"),
    "trunc": lambda g, x, dtype: g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x))),
    "square": lambda g, x, dtype: g.op("Mul", x, x),
    "reciprocal": _node("Reciprocal"),
    "sqrt": _node("Sqrt"),
    "rsqrt": lambda g, x, dtype: g.op("Reciprocal", g.op("Sqrt", x)),
    "exp": _node("Exp"),
    "log": _node("Log"),
    "log2": lambda g, x, dtype: g.op("Mul", g.op("Log", x), g.number(1 / np.log(2), dtype)),
    "log10": lambda g, x, dtype: g.op("Mul", g.op("Log", x), g.number(1 / np.log(10), dtype)),
    "log1p": lambda g, x, dtype: g.op("Log", g.op("Add", x, g.number(1, dtype))),
    "sin": _node("Sin"),
    "cos": _node("Cos"),
    "tanh": _node("Tanh"),
    "sigmoid": _node("Sigmoid"),
    "erf": _node("Erf"),
    "relu": _node("Relu"),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": lambda g, x, dtype: _silu(g, x),
    "relu6": _relu6,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda g, x, dtype: g.op("Mul", x, _hardsigmoid(g, x, dtype)),
}


def _unary(write: Callable[[Builder, str, Any], str]) -> Converter:
    return lambda g, a, out: write(g, g.cast(next(iter(a.values())), out[0].dtype), out[0].dtype)


CONVERTERS.update({name: _unary(write) for name, write in UNARY.items()})


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


def _arithmetic(kind: str, of_bools: str = "") -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        dtype, alpha = out[0].dtype, a.get("alpha")
        x, y = operand(g, a["a"], dtype), operand(g, a["b"], dtype)
        y = y if alpha in (1, None) else g.op("Mul", y, g.number(alpha, dtype))
        return g.op(of_bools if dtype.kind == "b" else kind, x, y)

    return write


CONVERTERS.update(
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


def _recast(g: Builder, x: str, given: Any, wanted: Any) -> str:
    return x if given == wanted else g.convert(x, wanted)


def _divided(g: Builder, a: dict, out: list) -> tuple[str, str, str, str, np.dtype]:
    """Of floats: both operands, the rest of their division with the sign of the first, and where the rest has the sign of the second as well or
    is 0; in float32 for halves, as the kernels compute."""
    dtype = np.dtype(np.float32) if out[0].dtype.itemsize == 2 else out[0].dtype
    x, y = (
        _recast(g, g.cast(v, out[0].dtype), out[0].dtype, dtype) if isinstance(v, Term) else g.number(v, dtype) for v in (a["a"], a["b"])
    )
    zero, rest = g.number(0, dtype), g.op("Mod", x, y, fmod=1)
    fits = g.op("Or", g.op("Equal", rest, zero), g.op("Equal", g.op("Less", rest, zero), g.op("Less", y, zero)))
    return x, y, rest, fits, dtype


@converter("floor_divide")
def _floor_divide(g: Builder, a: dict, out: list) -> str:
    if out[0].dtype.kind not in "fV":
        x, y, _ = _operands(g, a, out)
        return g.op("Div", g.op("Sub", x, g.op("Mod", x, y)), y)
    x, y, rest, fits, dtype = _divided(g, a, out)
    one = g.number(1, dtype)
    quotient = g.op("Div", g.op("Sub", x, rest), y)
    quotient = g.where(fits, quotient, g.op("Sub", quotient, one))
    down = g.op("Floor", quotient)  # or the integer above, which the division may have rounded past
    near = g.op("Greater", g.op("Sub", quotient, down), g.number(0.5, dtype))
    found = g.where(near, g.op("Add", down, one), down)
    return _recast(g, g.where(g.op("Equal", y, g.number(0, dtype)), g.op("Div", x, y), found), dtype, out[0].dtype)


@converter("remainder")
def _remainder(g: Builder, a: dict, out: list) -> str:
    if out[0].dtype.kind not in "fV":
        x, y, _ = _operands(g, a, out)
        return g.op("Mod", x, y)
    _, y, rest, fits, dtype = _divided(g, a, out)
    return _recast(g, g.where(fits, rest, g.op("Add", rest, y)), dtype, out[0].dtype)


@converter("swiglu")
def _swiglu(g: Builder, a: dict, out: list) -> str:
    return g.op("Mul", _silu(g, operand(g, a["a"], out[0].dtype)), operand(g, a["b"], out[0].dtype))


@converter("geglu")
def _geglu(g: Builder, a: dict, out: list) -> str:
    return g.op("Mul", gelu(g, operand(g, a["a"], out[0].dtype), out[0].dtype), operand(g, a["b"], out[0].dtype))


def _bent(g: Builder, x: str, below: str, dtype: Any) -> str:
    """x where it is positive, another value elsewhere."""
    return g.op("Where", g.op("Greater", x, g.number(0, dtype)), x, below)


@converter("leaky_relu")
def _leaky_relu(g: Builder, a: dict, out: list) -> str:
    x, slope, dtype = _operands(g, a, out)
    return _bent(g, x, g.op("Mul", x, slope), dtype)


@converter("elu")
def _elu(g: Builder, a: dict, out: list) -> str:
    x, alpha, dtype = _operands(g, a, out)
    return _bent(g, x, g.op("Mul", alpha, g.op("Elu", x)), dtype)


@converter("softplus")
def _softplus(g: Builder, a: dict, out: list) -> str:
    x, sharpness, _ = _operands(g, a, out)
    return g.op("Div", g.op("Softplus", g.op("Mul", x, sharpness)), sharpness)


def _comparison(kind: str, negated: bool = False) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        dtype = common(a["a"], a["b"])
        if (dtype.kind == "b" and kind != "Equal") or dtype.kind == "u":
            dtype = np.dtype(np.int32)
        found = g.op(kind, operand(g, a["a"], dtype), operand(g, a["b"], dtype))
        return g.op("Not", found) if negated else found

    return write


CONVERTERS.update(
    eq=_comparison("Equal"), ne=_comparison("Equal", True), lt=_comparison("Less"), le=_comparison("LessOrEqual"),
    gt=_comparison("Greater"), ge=_comparison("GreaterOrEqual"),
)  # fmt: skip


def truth(g: Builder, x: Any) -> str:
    """Whether elements are not zero, as bool."""
    return g.cast(x, bool) if isinstance(x, Term) else g.number(bool(x), bool)


def _logical(kind: str) -> Converter:
    return lambda g, a, out: g.op(kind, truth(g, a["a"]), truth(g, a["b"]))


def _bitwise(kind: str) -> Converter:
    def write(g: Builder, a: dict, out: list) -> str:
        if out[0].dtype == bool:
            return g.op(kind, truth(g, a["a"]), truth(g, a["b"]))
        return g.op(f"Bitwise{kind}", operand(g, a["a"], out[0].dtype), operand(g, a["b"], out[0].dtype))

    return write


for _name, _kind in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    CONVERTERS[f"logical_{_name}"], CONVERTERS[f"bitwise_{_name}"] = _logical(_kind), _bitwise(_kind)


def chosen(g: Builder, condition: str, a: str, b: str, dtype: Any) -> str:
    """a where the condition is true, b elsewhere. ONNX Runtime's Where takes no bools."""
    if np.dtype(dtype) != bool:
        return g.op("Where", condition, a, b)
    return g.op("Or", g.op("And", condition, a), g.op("And", g.op("Not", condition), b))


@converter("where")
def _where(g: Builder, a: dict, out: list) -> str:
    dtype = out[0].dtype
    return chosen(g, truth(g, a["condition"]), operand(g, a["a"], dtype), operand(g, a["b"], dtype), dtype)


@converter("clamp")
def _clamp(g: Builder, a: dict, out: list) -> str:
    x, low, high = (operand(g, value, out[0].dtype) for value in a.values())
    return g.op("Min", g.op("Max", x, low), high)


@converter("masked_fill", "masked_fill_")
def _masked_fill(g: Builder, a: dict, out: list) -> str:
    x, mask, value = a.values()
    return chosen(g, truth(g, mask), operand(g, value, out[0].dtype), g.cast(x, out[0].dtype), out[0].dtype)
