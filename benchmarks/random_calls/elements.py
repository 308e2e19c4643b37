"""Calls that go element by element."""

from .draw import FLOATS, INTEGERS, LAYOUTS, NUMBERS, Call, functional, method, of_module

NOTHING_TO_DERIVE = {"isfinite", "isinf", "isnan", "logical_not", "floor_divide", "remainder", "eq", "lt", "ge", "logical_and"}
POSITIVE = {"log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"}
UNARY = (
    "abs", "ceil", "cos", "erf", "exp", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not",
    "nan_to_num", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tanh", "trunc",
)  # fmt: skip
OF_INTEGERS = {
    **{name: of_module(name) for name in ("abs", "floor", "isnan", "logical_not", "sign", "square")},
    **{name: method(name) for name in ("bool", "float")},
    "clamp": method("clamp", 3, 60),
}
OF_BOOL = ("bool", "float", "isnan", "logical_not")
ACTIVATIONS = (
    "celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu6", "selu", "silu", "softplus", "softsign",
)  # fmt: skip
BINARY = {
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "remainder", "floor_divide"), NUMBERS),
    **dict.fromkeys(("eq", "lt", "ge", "logical_and"), (*NUMBERS, "bool")),
    "pow": FLOATS,
}
TERNARY = {
    "addcmul": of_module("addcmul"),
    "lerp": lambda module, x, y, z: module.lerp(x, y, 0.3),
    "where": lambda module, x, y, z: module.where(z > 0, x, y),
    "masked_fill": lambda module, x, y, z: x.masked_fill(z > 0, 0.0),
}
SCALAR = {
    "x + 1.5": lambda x: x + 1.5,
    "x - 2": lambda x: x - 2,
    "x * 3": lambda x: x * 3,
    "x / 3": lambda x: x / 3,
    "1 - x": lambda x: 1 - x,
    "1 / x": lambda x: 1 / x,
    "x**2": lambda x: x**2,
    "x**3": lambda x: x**3,
    "x**0.5": lambda x: x**0.5,
    "x * 2 + 1": lambda x: x * 2 + 1,
}
SCALAR_WITHOUT_GRADIENT = {
    "x // 3": lambda x: x // 3,
    "x % 3": lambda x: x % 3,
    "x == 3": lambda x: x == 3,
    "x < 0.5": lambda x: x < 0.5,
    "x > 0": lambda x: x > 0,
}


def unary(draw):
    name = draw.choice(UNARY)
    x = draw.input(draw.shape(), draw.choice(FLOATS), "positive" if name in POSITIVE else "normal")
    return Call(name, of_module(name), (x,), name not in NOTHING_TO_DERIVE and draw.sometimes())


def unary_of_integers(draw):
    dtype = draw.choice((*INTEGERS, "int64", "bool"))
    name = draw.choice(OF_BOOL if dtype == "bool" else tuple(OF_INTEGERS))
    return Call(name, OF_INTEGERS[name], (draw.input(draw.shape(), dtype),))


def activation(draw):
    name = draw.choice((*ACTIVATIONS, "glu"))
    shape = draw.shape()
    shape = (*shape[:-1], 2 * shape[-1]) if name == "glu" else shape
    return Call(name, functional(name), (draw.input(shape, draw.choice(FLOATS)),), draw.sometimes())


def binary(draw):
    name = draw.choice(tuple(BINARY))
    dtype, shape = draw.choice(BINARY[name]), draw.shape()
    inputs = draw.input(shape, dtype, "positive"), draw.input(draw.broadcast(shape), dtype, "positive")
    inputs = inputs[:: draw.choice((1, -1))]
    return Call(name, of_module(name), inputs, name not in NOTHING_TO_DERIVE and draw.sometimes())


def ternary(draw):
    name, dtype, shape = draw.choice(tuple(TERNARY)), draw.choice(FLOATS), draw.shape()
    inputs = draw.input(shape, dtype), draw.input(draw.broadcast(shape), dtype), draw.input(draw.broadcast(shape), dtype)
    return Call(name, TERNARY[name], inputs, draw.sometimes())


def scalar(draw):
    name = draw.choice((*SCALAR, *SCALAR_WITHOUT_GRADIENT))
    function = {**SCALAR, **SCALAR_WITHOUT_GRADIENT}[name]
    x = draw.input(draw.shape(), draw.choice((*FLOATS, "int64")), "positive")
    return Call(name, lambda module, x: function(x), (x,), name in SCALAR and draw.sometimes())


# ---- in place: x is changed by every call, y and the mask are not; values stay as they are, or at least finite ------


def _set_elements(x, where, value):
    x[where] = value
    return x


def _set_row(module, x, y, mask):
    x[0] = y[0]
    return x


IN_PLACE = {
    "add_": lambda module, x, y, mask: x.add_(y, alpha=0),
    "mul_": lambda module, x, y, mask: x.mul_(y),
    "div_": lambda module, x, y, mask: x.div_(y),
    "x **= 2": lambda module, x, y, mask: x.pow_(2),
    "clamp_": lambda module, x, y, mask: x.clamp_(0, 1),
    "sqrt_": lambda module, x, y, mask: x.sqrt_(),
    "relu_": lambda module, x, y, mask: x.relu_(),
    "zero_": lambda module, x, y, mask: x.zero_(),
    "fill_": lambda module, x, y, mask: x.fill_(1.0),
    "copy_": lambda module, x, y, mask: x.copy_(y),
    "masked_fill_": lambda module, x, y, mask: x.masked_fill_(mask, 0.5),
    "lerp_": lambda module, x, y, mask: x.lerp_(y, 0.1),
    "addcdiv_": lambda module, x, y, mask: x.addcdiv_(y, y, value=0.0),
    "x[:, 1:] = 0.5": lambda module, x, y, mask: _set_elements(x, (slice(None), slice(1, None)), 0.5),
    "x[:, 0] = 1": lambda module, x, y, mask: _set_elements(x, (slice(None), 0), 1),
    "x[mask] = 0.25": lambda module, x, y, mask: _set_elements(x, mask, 0.25),
    "x[0] = y[0]": _set_row,
}


def in_place(draw):
    name, dtype, shape = draw.choice(tuple(IN_PLACE)), draw.choice(FLOATS), draw.shape(draw.choice((2, 3)))
    x = draw.input(shape, dtype, "ones", layouts=[layout for layout in LAYOUTS if layout != "expanded"])
    y = draw.input(tuple(1 if draw.random() < 0.3 else size for size in shape), dtype, "ones")
    return Call(name, IN_PLACE[name], (x, y, draw.input(shape, "bool")))


FAMILIES = (unary, unary_of_integers, activation, binary, ternary, scalar, in_place)
