"""Functions of one argument: values, gradients, edges, dtypes, strides; every instruction set."""

import math
from pathlib import Path

import numpy as np
import op_lists
import pytest
from tolerance import assert_close
from transformer_c import Tensor, _core
from transformer_c.testing import reference

ONE = np.float64(1)
# value, derivative, where it is defined
FUNCTIONS = {
    "neg": (lambda x: -x, lambda x: -ONE + 0 * x, (-5, 5)),
    "abs": (np.abs, np.sign, (-5, 5)),
    "sign": (np.sign, lambda x: 0 * x, (-5, 5)),
    "floor": (np.floor, lambda x: 0 * x, (-5, 5)),
    "ceil": (np.ceil, lambda x: 0 * x, (-5, 5)),
    "round": (np.round, lambda x: 0 * x, (-5, 5)),
    "trunc": (np.trunc, lambda x: 0 * x, (-5, 5)),
    "square": (lambda x: x * x, lambda x: 2 * x, (-5, 5)),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2, (0.1, 9)),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x), (0.1, 9)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: -0.5 * x**-1.5, (0.1, 9)),
    "exp": (np.exp, np.exp, (-9, 9)),
    "log": (np.log, lambda x: 1 / x, (0.01, 9)),
    "log2": (np.log2, lambda x: 1 / (x * math.log(2)), (0.01, 9)),
    "log10": (np.log10, lambda x: 1 / (x * math.log(10)), (0.01, 9)),
    "log1p": (np.log1p, lambda x: 1 / (1 + x), (-0.9, 9)),
    "sin": (np.sin, np.cos, (-20, 20)),
    "cos": (np.cos, lambda x: -np.sin(x), (-20, 20)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2, (-5, 5)),
    "sigmoid": (reference.sigmoid, lambda x: reference.sigmoid_backward(np.ones_like(x), x), (-9, 9)),
    "erf": (reference.erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), (-4, 4)),
    "relu": (reference.relu, lambda x: 1.0 * (x > 0), (-5, 5)),
    "gelu": (reference.gelu, lambda x: reference.gelu_backward(np.ones_like(x), x), (-6, 6)),
    "gelu_tanh": (lambda x: reference.gelu(x, "tanh"), lambda x: reference.gelu_backward(np.ones_like(x), x, "tanh"), (-6, 6)),
    "silu": (reference.silu, lambda x: reference.silu_backward(np.ones_like(x), x), (-9, 9)),
    "relu6": (lambda x: np.clip(x, 0, 6), lambda x: 1.0 * ((x > 0) & (x < 6)), (-3, 9)),
    "hardsigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, lambda x: (abs(x) < 3) / 6, (-5, 5)),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, lambda x: np.where(abs(x) < 3, x / 3 + 0.5, x > 0), (-5, 5)),
}
DTYPES = ["float32", "float64", "float16", "bfloat16"]


def as_dtype(name):
    return pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)


def draw(rng, name, shape, dtype):
    return np.asarray(rng.uniform(*FUNCTIONS[name][2], shape)).astype(as_dtype(dtype))


def bits(x):
    return np.asarray(x).view(np.uint16)


def gradient(x, name, dy):
    t = Tensor(x, requires_grad=True)
    getattr(_core, name)(t).backward(Tensor(dy))
    return np.asarray(t.grad)


def test_every_row_is_tested():
    assert sorted(set(op_lists.functions(Path(__file__).parents[2], "unary")) ^ set(FUNCTIONS)) == [], "in one of the two only"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(isa, name, dtype, rng):
    value, derivative, _ = FUNCTIONS[name]
    for shape in [(), (0,), (1,), (7,), (8,), (9,), (15,), (16,), (17,), (3, 31), (2, 3, 500)]:
        x = draw(rng, name, shape, dtype)
        x64 = x.astype(np.float64).reshape(-1)
        half = dtype in ("float16", "bfloat16")
        expected = value(x64).reshape(shape)
        assert_close(
            getattr(_core, name)(x),
            expected,
            dtype,
            scale=max(1.0, np.abs(expected).max(initial=0)) if half or "gelu" in name else None,
            name=name,
        )
        dy = np.asarray(rng.standard_normal(shape)).astype(x.dtype)
        expected = dy.astype(np.float64) * derivative(x64).reshape(shape)
        if half:  # the saved value may be the rounded result
            np.testing.assert_allclose(
                gradient(x, name, dy).astype(np.float64), expected, atol=0.1 * max(1, np.abs(expected).max(initial=0))
            )
        else:
            scale = max(1.0, np.abs(expected).max(initial=0))  # 1 - y of a saturated y has lost digits, as it has in PyTorch
            assert_close(gradient(x, name, dy), expected, dtype, gradient=True, scale=scale, name="d" + name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_backward_without_the_tape(name, rng):
    x, dy = draw(rng, name, (5, 6), "float64"), rng.standard_normal((5, 6))
    op = getattr(_core, name + "_backward")
    saved = [a for a in op.__text_signature__.strip("()").split(", ") if a != "dy"]
    given = {"x": x, "y": FUNCTIONS[name][0](x)}
    assert_close(op(dy, *(given[s] for s in saved)), dy * FUNCTIONS[name][1](x), "float64", gradient=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides(isa, name, rng):
    base = draw(rng, name, (40, 37), "float32")
    whole = getattr(_core, name)(base)
    views = [
        (base.T, whole.T),
        (base[::-2, ::3], whole[::-2, ::3]),
        (np.broadcast_to(base[3], (5, 37)), np.broadcast_to(whole[3], (5, 37))),
    ]
    for x, expected in [*views, (base.astype(">f4"), whole)]:
        np.testing.assert_array_equal(getattr(_core, name)(x), expected)
        dy = rng.standard_normal(x.shape).astype(np.float32)
        np.testing.assert_array_equal(gradient(x, name, dy.T.copy().T), gradient(np.ascontiguousarray(x, np.float32), name, dy))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dense_halves_have_the_bits_of_strided_ones(isa, name, dtype):
    every = np.arange(1 << 16).astype(np.uint16).view(as_dtype(dtype))
    apart = np.stack([every, every], 1)[:, 0]
    whole = bits(getattr(_core, name)(apart))
    np.testing.assert_array_equal(bits(getattr(_core, name)(every)), whole)
    for n in [1, 7, 15, 16, 17, 31, 32, 33, 47, 49, 63, 8193]:
        for first in [0, 1, 0x7F7B]:  # the last: with infinities and NaNs of bfloat16
            part = slice(first, first + n)
            np.testing.assert_array_equal(bits(getattr(_core, name)(every[part])), whole[part])
            dy = np.linspace(-3, 3, n).astype(every.dtype)
            np.testing.assert_array_equal(bits(gradient(every[part].copy(), name, dy)), bits(gradient(apart[part], name, dy)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges(isa, name):
    for dtype in (np.float32, np.float64):
        tiny = np.finfo(dtype).smallest_subnormal
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 1e30, -1e30], dtype)
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[name][0](x.astype(np.float64)).astype(dtype)
        if name == "sign":
            expected[4] = 0  # as in PyTorch
        if name == "gelu_tanh":
            expected[3] = np.nan  # -inf * 0
        got = getattr(_core, name)(x)
        if name in ("gelu", "gelu_tanh"):  # a denormal times one half is rounded to even, either way
            got[5:7] = expected[5:7]
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_powers(isa, dtype):
    """Exact at every power of two, and at every power of ten as near as the dtype has it; elsewhere within 2 ulp or so."""
    limits = np.finfo(dtype)
    n = np.arange(limits.minexp - limits.nmant, limits.maxexp)
    np.testing.assert_array_equal(_core.log2(np.ldexp(dtype(1), n)), n.astype(dtype))
    n = np.arange(int(np.log10(limits.tiny)), int(np.log10(limits.max)) + 1)
    np.testing.assert_array_equal(_core.log10(np.array([f"1e{i}" for i in n], dtype)), n.astype(dtype))
    x = np.concatenate([np.linspace(0.4, 3, 5000), np.logspace(limits.minexp * 0.3, limits.maxexp * 0.3, 5000)]).astype(dtype)
    for name, base in (("log2", 2), ("log10", 10)):
        exact = np.log(x.astype(np.longdouble)) / np.log(np.longdouble(base))
        assert np.max(np.abs(getattr(_core, name)(x) - exact) / np.spacing(np.abs(exact).astype(dtype))) < 2.5


def test_whole_numbers(isa):
    """Halves, numbers next to whole ones, and those beyond which all are whole: the value and its sign are NumPy's."""
    for dtype, bits in ((np.float32, 23), (np.float64, 52)):
        near = np.array([0.5, 1.0, 1.5, 2.5, 2.0 ** (bits - 1) + 0.5, 2.0**bits - 0.5, 2.0**bits + 1, 2.0**62], dtype)
        x = np.concatenate([near, np.nextafter(near, dtype(0)), np.nextafter(near, dtype(np.inf)), [dtype(0)]])
        for name in ("floor", "ceil", "round", "trunc"):
            for signed in (x, -x):
                got, expected = getattr(_core, name)(signed), FUNCTIONS[name][0](signed)
                np.testing.assert_array_equal(got, expected)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_large_angles(isa, rng):
    x = np.concatenate([rng.uniform(-2e4, 2e4, 500), rng.uniform(1e6, 1e9, 50), np.arange(1, 500) * np.pi / 2])
    for dtype in (np.float32, np.float64):
        y = x.astype(dtype)
        np.testing.assert_allclose(_core.sin(y), np.sin(y.astype(np.float64)), atol=4e-7 if dtype == np.float32 else 1e-15)
        np.testing.assert_allclose(_core.cos(y), np.cos(y.astype(np.float64)), atol=4e-7 if dtype == np.float32 else 1e-15)


@pytest.mark.parametrize("name", ["log", "log2", "log10", "log1p", "sin", "cos", "tanh", "erf", "exp", "sigmoid"])
def test_relative_error(isa, name, rng):
    """A few units in the last place everywhere, and not only where the result is large."""
    low, high = {**dict.fromkeys(["log", "log2", "log10"], (1e-40, 1e38)), "log1p": (-0.999, 10), "exp": (-80, 80)}.get(name, (-8, 8))
    x = rng.uniform(low, high, 20_000).astype(np.float32)
    x[:5000] *= np.float32(1e-3)
    expected = FUNCTIONS[name][0](x.astype(np.float64))
    error = np.abs(getattr(_core, name)(x) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert error.max() <= 3.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tails_are_normal_numbers_or_zero(isa, dtype):
    """Some processors take a hundred cycles over a denormal number, and over one that is rounded to 0: a vector of activations beyond the range would
    take ten times as long."""
    tiny, most = np.finfo(dtype).tiny, {np.float32: 3e-37, np.float64: 2e-306}[dtype]
    x = np.concatenate([np.linspace(-40, 40, 40_001), np.linspace(-13.2, -12.8, 10_001), np.linspace(-37.6, -37.4, 10_001)]).astype(dtype)
    y, expected = _core.gelu(x), np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    assert ((y == 0) | (np.abs(y) >= tiny)).all()
    assert np.abs(expected)[y == 0].max() < most and (y[x > 38] == x[x > 38]).all()
    np.testing.assert_allclose(y, expected, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=most)
    far = np.array([-1e30, -1000, -89 if dtype == np.float32 else -709], dtype)
    for name in ("sigmoid", "silu", "gelu", "gelu_tanh"):
        assert (getattr(_core, name)(far) == 0).all(), name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "round", "trunc"])
def test_steps_have_no_gradient_whatever_comes_in(name, dtype):
    """As of 1 / x.round() where that is 0."""
    x = Tensor(np.array([0.2, -1.5, 3.0, 0.0], dtype), requires_grad=True)
    getattr(x, name)().backward(Tensor(np.array([np.inf, np.nan, -np.inf, 1.0], dtype)))
    assert x.grad.tolist() == [0.0] * 4


def test_kinks():
    zero = np.zeros(3)
    for name in ("relu", "relu6", "abs", "sign", "floor", "ceil", "round", "trunc"):
        assert not gradient(zero, name, np.ones(3)).any()
    edges = np.array([-3.0, 0.0, 3.0, 6.0])
    for name, expected in (("relu6", [0, 0, 1, 0]), ("hardsigmoid", [0, 1 / 6, 0, 0]), ("hardswish", [0, 0.5, 1, 1])):
        np.testing.assert_allclose(gradient(edges, name, np.ones(4)), expected, rtol=1e-15)


def test_same_bits_for_any_threads(threads, rng):
    x = np.random.default_rng(1).standard_normal(200_003).astype(np.float32)
    got = _core.gelu(x)
    _core.set_num_threads(1)
    np.testing.assert_array_equal(got, _core.gelu(x))


def test_integers():
    for dtype in (np.int64, np.int32):
        x = np.array([-3, 0, 2**31 - 1], dtype)
        same = [(name, x) for name in ("floor", "ceil", "round", "trunc")]
        for name, expected in [
            *(("neg", -x), ("abs", abs(x)), ("sign", np.sign(x)), ("relu", np.maximum(x, 0)), ("relu6", np.clip(x, 0, 6))),
            *same,
        ]:
            got = getattr(_core, name)(x)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, expected)
    with pytest.raises(TypeError, match="int64; a floating dtype is needed"):
        _core.exp(np.arange(3))
    with pytest.raises(TypeError, match="bool"):
        _core.neg(np.array([True]))


def test_bad_input():
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        _core.exp_backward(np.ones(2), np.ones(3))
    with pytest.raises(TypeError, match="float64"):
        _core.exp_backward(np.ones(2), np.ones(2, np.float32))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_against_torch(name, rng):
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional
    call = (
        {"gelu_tanh": lambda x: functions.gelu(x, approximate="tanh")}.get(name) or getattr(functions, name, None) or getattr(torch, name)
    )
    x, dy = draw(rng, name, (6, 7), "float64"), rng.standard_normal((6, 7))
    t = torch.tensor(x, requires_grad=True)
    y = call(t)
    y.backward(torch.tensor(dy))
    rtol = 1e-7 if name == "hardsigmoid" else 1e-12  # which multiplies by a 1 / 6 of float32 there
    np.testing.assert_allclose(_core.__dict__[name](x), y.detach().numpy(), rtol=rtol, atol=1e-15)
    np.testing.assert_allclose(gradient(x, name, dy), t.grad.numpy(), rtol=10 * rtol, atol=1e-14)
