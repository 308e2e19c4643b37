"""Functions of two arguments, where and masked_fill: values, gradients back over broadcast axes, dtypes, integers, strides."""

import re
from pathlib import Path

import numpy as np
import op_lists
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import Tensor, _core, as_tensor
from transformer_c import functional as F
from transformer_c.testing import reference

ROOT = Path(__file__).parents[2]
VALUES = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "maximum": np.maximum, "minimum": np.minimum,
          "clamp_min": np.maximum, "clamp_max": np.minimum, "floor_divide": np.floor_divide, "remainder": np.remainder, "swiglu": reference.swiglu, "geglu": reference.geglu,
          "leaky_relu": reference.leaky_relu, "elu": reference.elu, "softplus": reference.softplus}  # fmt: skip
TRUTHS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
          "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}  # fmt: skip


def spread(slopes, a, b):
    return [slope + 0 * a * b for slope in slopes]


BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
GRADIENTS = {
    "add": lambda a, b: (1 + 0 * a * b, 1 + 0 * a * b),
    "sub": lambda a, b: (1 + 0 * a * b, -1 + 0 * a * b),
    "mul": lambda a, b: (b + 0 * a, a + 0 * b),
    "div": lambda a, b: (1 / b + 0 * a, -a / b**2),
    "pow": lambda a, b: (b * a ** (b - 1), a**b * np.log(a)),
    "remainder": lambda a, b: (1 + 0 * a * b, -np.floor(a / b)),
    "swiglu": lambda a, b: reference.swiglu_backward(np.ones(()), a, b),
    "geglu": lambda a, b: reference.geglu_backward(np.ones(()), a, b),
    "leaky_relu": lambda a, b: spread(reference.leaky_relu_backward(np.ones(()), a, b), a, b),
    "elu": lambda a, b: spread(reference.elu_backward(np.ones(()), a, b), a, b),
    "softplus": lambda a, b: spread(reference.softplus_backward(np.ones(()), a, b), a, b),
    "maximum": lambda a, b: ((a > b) + 0.5 * (a == b), (b > a) + 0.5 * (a == b)),
    "minimum": lambda a, b: ((a < b) + 0.5 * (a == b), (b < a) + 0.5 * (a == b)),
    "clamp_min": lambda a, b: (1.0 * (a >= b), 1.0 * (a < b)),
    "clamp_max": lambda a, b: (1.0 * (a <= b), 1.0 * (a > b)),
}
SHAPES = [((), ()), ((0,), (0,)), ((1,), (7,)), ((5,), (5,)), ((17,), ()), ((3, 31), (31,)), ((3, 33), (3, 1)), ((4, 1, 5), (6, 1)),
          ((100, 3), (3,)), ((2, 3, 64), (2, 1, 64)), ((40, 129), (40, 129)), ((1, 9), (0, 9))]  # fmt: skip


def draw(rng, shape, dtype):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    return np.asarray(rng.uniform(0.5, 3.0, shape)).astype(dtype)


def test_every_row_is_tested():
    rows = re.findall(r"^TC_BINARY(?:_FLAT|_BITS)?\((\w+)[,)]", op_lists.text(ROOT, "csrc/kernels/binary.def"), re.M)
    assert sorted(set(rows) ^ {*VALUES, *TRUTHS, *BITS}) == [], "in binary.def, or in VALUES, TRUTHS or BITS, but not in both"
    assert sorted(set(op_lists.functions(ROOT, "binary")) ^ set(GRADIENTS)) == [], "in TC_BINARY or in GRADIENTS, but not in both"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [*VALUES, *TRUTHS])
def test_values(isa, name, dtype, rng):
    for a_shape, b_shape in SHAPES:
        a, b = draw(rng, a_shape, dtype), draw(rng, b_shape, dtype)
        if name in TRUTHS and a.size and b.size:
            a.flat[0], b.flat[0] = 1, 1
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        got = getattr(_core, name)(a, b)
        if name in TRUTHS:
            assert got.dtype == bool
            np.testing.assert_array_equal(got, TRUTHS[name](a64, b64))
        else:
            assert_close(got, VALUES[name](a64, b64), dtype, name=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_go_back_over_broadcast_axes(isa, name, dtype, rng):
    for a_shape, b_shape in SHAPES:
        a, b = draw(rng, a_shape, dtype), draw(rng, b_shape, dtype)
        if a.size and b.size:
            a.flat[0] = b.flat[0]
        dy = np.asarray(rng.standard_normal(np.broadcast_shapes(a_shape, b_shape))).astype(dtype)
        s, t = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
        getattr(_core, name)(s, t).backward(Tensor(dy))
        slopes = GRADIENTS[name](a.astype(np.float64), b.astype(np.float64))
        for x, slope, label in ((s, slopes[0], "da"), (t, slopes[1], "db")):
            terms = dy.astype(np.float64) * slope
            scale = max(reference.sum_to(np.abs(terms), x.shape).max(initial=0), 1e-6)
            assert_close(np.asarray(x.grad), reference.sum_to(terms, x.shape), dtype, gradient=True, scale=scale, name=label)


@pytest.mark.parametrize("name", ["swiglu", "geglu", "leaky_relu", "elu", "softplus"])
def test_gates_are_no_integers(name):
    for dtype in (np.int64, np.int32, np.uint8, bool):
        with pytest.raises(TypeError, match=rf"{name} of \w+ has no meaning; convert it with \.float\(\)"):
            getattr(_core, name)(np.ones(3, dtype), np.ones(3, dtype))
    assert getattr(_core, name)(np.ones(3, np.int64), np.ones(3, np.float32)).dtype == np.float32


def test_gradient_of_one_argument_alone():
    for name in GRADIENTS:
        for wanted in (0, 1):
            tensors = [Tensor(np.full(3, 2.0), requires_grad=i == wanted) for i in range(2)]
            getattr(_core, name)(*tensors).backward(Tensor(np.ones(3)))
            expected = GRADIENTS[name](np.full(3, 2.0), np.full(3, 2.0))[wanted]
            np.testing.assert_allclose(np.asarray(tensors[wanted].grad), expected, rtol=1e-12)
            assert tensors[1 - wanted].grad is None


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("first", [False, True])
def test_gradient_with_a_number(name, first, rng):
    a = draw(rng, (4, 5), "float64")
    t = Tensor(a, requires_grad=True)
    y = getattr(_core, name)(2.5, t) if first else getattr(_core, name)(t, 2.5)
    y.backward(Tensor(np.ones_like(a)))
    slopes = GRADIENTS[name](np.float64(2.5), a) if first else GRADIENTS[name](a, np.float64(2.5))
    np.testing.assert_allclose(np.asarray(t.grad), slopes[first], rtol=1e-12)


def test_powers_at_zero():
    a, b = Tensor(np.zeros(2), requires_grad=True), Tensor(np.array([0.0, 2.0]), requires_grad=True)
    _core.pow(a, b).backward(Tensor(np.ones(2)))
    np.testing.assert_array_equal(np.asarray(a.grad), [0, 0])
    np.testing.assert_array_equal(np.asarray(b.grad), [0, 0])


def test_edges(isa):
    x = np.array([np.nan, 1.0, np.inf, -np.inf, 0.0, np.nan, 5e-324])
    y = np.array([1.0, np.nan, np.inf, np.inf, 0.0, np.nan, -0.0])
    for dtype in (np.float32, np.float64):
        a, b = x.astype(dtype), y.astype(dtype)
        with np.errstate(all="ignore"):
            for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
                np.testing.assert_array_equal(getattr(_core, name)(a, b), VALUES[name](a, b), err_msg=name)
            for name in TRUTHS:
                np.testing.assert_array_equal(getattr(_core, name)(a, b), TRUTHS[name](a, b), err_msg=name)


def test_strides(isa, rng):
    a, b = draw(rng, (60, 50), np.float32), draw(rng, (60, 50), np.float32)
    for index in [np.s_[::-1], np.s_[::2, ::-3], np.s_[:, 5:6], np.s_[7]]:
        x, y = a[index], b[index]
        np.testing.assert_array_equal(_core.add(x.T, y.T), x.T + y.T)
        np.testing.assert_array_equal(_core.mul(x, np.ascontiguousarray(y)), x * y)
    np.testing.assert_array_equal(_core.sub(a.T, b.reshape(50, 60)), a.T - b.reshape(50, 60))
    np.testing.assert_array_equal(_core.add(np.broadcast_to(a[0], (9, 50)), a[:9]), a[0] + a[:9])


LAYOUTS = {  # of whole numbers, (4, n)
    "dense": lambda x: x,
    "rows with gaps": lambda x: np.pad(x, ((0, 0), (1, 2)))[:, 1:-2],
    "every other row": lambda x: np.repeat(x, 2, 0)[::2],
    "every other column": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
    "transposed": lambda x: x.T.copy().T,
    "one row": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(np.append(x[0], x[1, :3]), x.shape[1]),
    "int32": lambda x: x.astype(np.int32),
    "halves with gaps": lambda x: np.pad(x.astype(np.float16), ((0, 0), (1, 2)))[:, 1:-2],
}


@pytest.mark.parametrize("n", [5, 31, 32, 33, 511, 513, 1100, 8193])  # around a long run, a chunk and a block
def test_operands_of_all_layouts_together(n, isa, rng):
    for a in LAYOUTS:
        for b in LAYOUTS:
            x, y = (LAYOUTS[layout](rng.integers(-9, 9, (4, n)).astype(np.float32)) for layout in (a, b))
            np.testing.assert_array_equal(_core.add(Tensor(x) if n % 2 else x, y), x.astype(np.float32) + y, err_msg=f"{a}, {b}")
            out = LAYOUTS[a](np.zeros((4, n), np.float32))
            if out.flags.writeable and out.dtype == np.float32:
                as_tensor(out).__iadd__(as_tensor(y))
                np.testing.assert_array_equal(out, y.astype(np.float32), err_msg=f"{b}, into {a}")


OF_THREE = {
    "clamp": lambda x, high: _core.clamp(x, -2, high),
    "lerp": lambda x, end: tc.lerp(Tensor(x), end if np.isscalar(end) else Tensor(end), 0.3),
    "addcmul": lambda x, y: tc.addcmul(Tensor(x), Tensor(x), y if np.isscalar(y) else Tensor(y)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lerp_by_tensors_has_the_bits_of_its_steps(isa, dtype, rng):
    for n in [1, 7, 33, 1003]:
        x, y, w = rng.standard_normal((3, n)).astype(dtype)
        w[:5] = [0.5, -0.5, np.nan, 1, np.inf][:n]
        for weight in (w, w[:1], w[:1] - np.array(0.25, dtype), np.repeat(w, 2)[::2]):
            expected = np.where(abs(weight) < 0.5, x + (y - x) * weight, y - (y - x) * (1 - weight))
            np.testing.assert_array_equal(tc.lerp(Tensor(x), Tensor(y), Tensor(weight)).numpy(), expected)
            np.testing.assert_array_equal(Tensor(x.copy()).lerp_(Tensor(y), Tensor(weight)).numpy(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [*VALUES, *OF_THREE])
def test_dense_halves_have_the_bits_of_strided_ones(isa, name, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)

    def bits(*operands):
        return np.asarray((OF_THREE.get(name) or getattr(_core, name))(*operands)).view(np.uint16)

    def apart(x):
        return np.stack([x, x], 1)[:, 0]

    for n in [1, 7, 16, 31, 33, 47, 49, 63, 8193, 70001]:
        a, b = rng.integers(0, 1 << 16, (2, n)).astype(np.uint16).view(dtype)
        b[np.isnan(b.astype(np.float32))] = 1  # of two NaNs either may be kept
        np.testing.assert_array_equal(bits(a, b), bits(apart(a), apart(b)))
        for number in [2, 0.1, -np.inf]:  # 0.1 is not rounded to a half
            np.testing.assert_array_equal(bits(a, number), bits(apart(a), number))
            if name in VALUES:
                np.testing.assert_array_equal(bits(number, a), bits(number, apart(a)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "addcmul", "clamp"])
def test_rows_and_columns_of_halves_have_the_bits_of_dense_ones(isa, name, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    call = OF_THREE.get(name) or getattr(_core, name)
    for n in [127, 128, 131, 600, 9001]:  # a short and a long run, and one beyond a block
        a = rng.uniform(1, 9, (2, 3, n + 2)).astype(dtype)[:, :, 1:-1]
        for b in a[0], a[0, 0], a[:, :1], a[:, :, 1:2], a[0, 0, :1]:
            alike = np.ascontiguousarray(np.broadcast_to(b, a.shape)) if b.size > 1 else b
            for x, y, x_alike, y_alike in [(a, b, a.copy(), alike), (b, a, alike, a.copy())]:
                if name in VALUES or x is a:
                    np.testing.assert_array_equal(np.asarray(call(x, y)), np.asarray(call(x_alike, y_alike)), err_msg=f"{n} {b.shape}")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("other", ["number", "row", "column", "all"])
def test_gradients_of_products_are_products(isa, other, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for n in [1, 31, 128, 515]:
        a, dy, b = rng.uniform(0.5, 2, (3, 20, n)).astype(np.float32).astype(dtype)
        b = {"number": 0.3, "row": b[0], "column": b[:, :1].copy(), "all": b}[other]
        wide = [x if isinstance(x, float) else x.astype(np.float32) for x in (a, dy, b)]
        factor = np.float32(wide[2])
        for name, expected in [("mul", wide[1] * factor), ("div", wide[1] / factor), ("sub", wide[1]), ("rsub", -wide[1])]:
            x = Tensor(a, requires_grad=True)
            second = b if other == "number" else Tensor(b)
            y = second - x if name == "rsub" else getattr(_core, name)(x, second)
            y.backward(Tensor(dy))
            np.testing.assert_array_equal(np.asarray(x.grad), expected.astype(dtype), err_msg=f"{name} {n}")


def test_same_bits_for_any_threads(threads, rng):
    a = np.random.default_rng(1).standard_normal((700, 301)).astype(np.float32)

    def run():
        s, t = Tensor(a, requires_grad=True), Tensor(a[0], requires_grad=True)
        _core.mul(s, t).backward(Tensor(a))
        return np.asarray(t.grad).copy()

    got = run()
    _core.set_num_threads(1)
    np.testing.assert_array_equal(got, run())


# ---- dtypes ---------------------------------------------------------------------------------------------------------------------

I64, F32, F64 = np.int64, np.float32, np.float64


@pytest.mark.parametrize(
    "a, b, expected",
    [
        (np.ones(2, F32), 2.5, F32),
        (np.ones(2, F32), np.float64(2.5), F32),
        (np.ones(2, F32), np.int64(2), F32),
        (np.ones(2, F32), True, F32),
        (np.ones(2, np.float16), 2.5, np.float16),
        (np.ones(2, I64), 2.5, F32),
        (np.ones(2, I64), 2, I64),
        (np.ones(2, np.uint8), 2, np.uint8),
        (np.ones(2, bool), 2, I64),
        (np.ones(2, bool), 2.0, F32),
        (np.ones(2, I64), np.ones(2, F32), F32),
        (np.ones(2, F32), np.ones(2, F64), F64),
        (np.ones(2, np.int32), np.ones(2, I64), I64),
        (np.ones(2, F32), np.array(2.5), F32),
        (np.ones(2, I64), np.array(2.5), F64),
        (np.array(2.5), np.ones(2, F32), F32),
        (np.array(2.5), np.ones(1, np.float16), np.float16),
    ],
)
def test_promotion(a, b, expected):
    for x, y in ((a, b), (b, a)):
        assert _core.add(x, y).dtype == expected
        assert _core.mul(x, y).dtype == expected
        assert _core.lt(x, y).dtype == bool
        choice = _core.where(np.array([True, False]), x, y)
        assert choice.dtype == expected
        np.testing.assert_array_equal(choice, np.where([True, False], x, y))


def test_division_of_integers_gives_floats():
    got = _core.div(np.array([1, 7]), np.array([2, 2]))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.float32([0.5, 3.5]))


def test_integers_are_exact(rng):
    a = rng.integers(-(2**62), 2**62, (5, 300))
    b = rng.integers(-1000, 1000, 300)
    b[:3] = [0, -1, 1]
    for dtype in (np.int64, np.int32):
        x, y = a.astype(dtype), b.astype(dtype)
        with np.errstate(all="ignore"):
            for name in ("add", "sub", "mul", "maximum", "minimum", "clamp_min", "clamp_max", "floor_divide", "remainder"):
                np.testing.assert_array_equal(getattr(_core, name)(x, y), VALUES[name](x, y), err_msg=name)
            for name, function in {**TRUTHS, **BITS}.items():
                np.testing.assert_array_equal(getattr(_core, name)(x.T, y[:, None]), function(x.T, y[:, None]), err_msg=name)
            np.testing.assert_array_equal(_core.pow(x, np.arange(300, dtype=dtype) % 7), x ** (np.arange(300, dtype=dtype) % 7))
    big = np.array([2**62 + 1])
    assert _core.add(big, 1)[0] == 2**62 + 2
    np.testing.assert_array_equal(_core.where(np.array([True]), big, 0), big)


def test_every_pair_of_bytes(isa, rng):
    """Dense ones, alone and beside a number, in lengths around those of a block; the result may replace an argument."""
    pairs = np.arange(65536, dtype=np.uint16)
    for n in (1, 255, 256, 257, 65536):
        x, y = (v[:n].copy() for v in rng.permutation(np.stack([pairs >> 8, pairs & 255]).astype(np.uint8), axis=1))
        for p, q in ((x, y), (x, 0), (x, 255), (7, y)):
            with np.errstate(all="ignore"):
                for name in ("add", "sub", "mul", "maximum", "minimum", "clamp_min", "clamp_max", "floor_divide", "remainder", *BITS):
                    expected = (VALUES.get(name) or BITS[name])(*(np.asarray(v).astype(np.int64) for v in (p, q))).astype(np.uint8)
                    np.testing.assert_array_equal(getattr(_core, name)(p, q), expected, err_msg=name, strict=True)
            for name, function in TRUTHS.items():
                np.testing.assert_array_equal(getattr(_core, name)(p, q), function(p, q), err_msg=name, strict=True)
        np.testing.assert_array_equal(_core.lt(x, 256), np.ones(n, bool))
        np.testing.assert_array_equal(_core.pow(x, y % 9), x ** (y % 9), strict=True)
        condition = (x % 3).view(bool)  # any nonzero byte is true
        np.testing.assert_array_equal(_core.where(condition, x, y), np.where(x % 3, x, y), strict=True)
        np.testing.assert_array_equal(_core.where(condition, x, 9), np.where(x % 3, x, 9), strict=True)
        t = Tensor(x.copy())
        t += Tensor(y)
        np.testing.assert_array_equal(t, x + y)


# Of 8, 32 and 64 bits: the ends of a dtype beside each other, in every combination with numbers and rows of one value.
@pytest.mark.parametrize("second", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("first", ["uint8", "int32", "int64"])
def test_integers_wrap_around(rng, first, second):
    def values(dtype, n):
        ends = np.iinfo(dtype)
        x = rng.integers(ends.min, ends.max, n, dtype, endpoint=True)
        x[:8] = [ends.min, ends.max, 0, 1, 2, 3, ends.max - 1, ends.min + 1]
        return x

    a, b, dtype = values(first, 600), values(second, 70)[:, None], np.result_type(first, second)
    with np.errstate(all="ignore"):
        for x, y in ((a, b), (b, a), (a, b[1:2]), (a[::-2], b), (a[1:2], a)):
            wide = [np.asarray(v).astype(np.int64) for v in (x, y)]
            for name in ("add", "sub", "mul", "maximum", "minimum", "clamp_min", "clamp_max", "floor_divide", "remainder", *BITS):
                got = getattr(_core, name)(x, y)
                function = VALUES.get(name) or BITS[name]
                np.testing.assert_array_equal(got, function(*wide).astype(got.dtype), err_msg=name, strict=True)
            for name, function in TRUTHS.items():
                np.testing.assert_array_equal(getattr(_core, name)(x, y), function(*wide), err_msg=name, strict=True)
        for name, expected in {"neg": -a, "abs": abs(a), "sign": np.sign(a), "square": a * a, "relu": np.maximum(a, 0)}.items():
            np.testing.assert_array_equal(getattr(_core, name)(a), expected.astype(first), err_msg=name, strict=True)
        np.testing.assert_array_equal(_core.pow(a, 3), a.astype(np.int64) ** 3 if first == "int64" else (a * a * a), strict=True)
    for condition in (a % 3, a[:600] > 1, np.array(True), np.array(0)):
        for x, y in ((a, b), (b, a), (a, a[1:2]), (a[1:2], a), (a[1:2], a[:1])):
            expected = np.where(condition, x, y)
            np.testing.assert_array_equal(_core.where(condition, x, y), expected.astype(dtype if x is b or y is b else first), strict=True)
    for number in (-1, 3, 255, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40):
        np.testing.assert_array_equal(_core.lt(a, number), a.astype(np.int64) < number, strict=True)


def test_bools():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for name, function in BITS.items():
        got = getattr(_core, name)(a, b)
        assert got.dtype == bool
        np.testing.assert_array_equal(got, function(a, b))
    assert _core.add(a, b).dtype == bool
    for name in ("sub", "pow", "floor_divide", "remainder"):
        with pytest.raises(TypeError, match="bool"):
            getattr(_core, name)(a, b)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("n", [1, 5, 300])
def test_the_smallest_integer_by_minus_one(isa, dtype, n):
    """Whose quotient has no place, and stops a processor that divides it."""
    smallest, minus_one = np.full(n, np.iinfo(dtype).min, dtype), np.full(n, -1, dtype)
    for divisor in (minus_one, -1):
        np.testing.assert_array_equal(_core.floor_divide(smallest, divisor), smallest)
        np.testing.assert_array_equal(_core.remainder(smallest, divisor), np.zeros_like(smallest))


def test_python_integers_beyond_64_bits_are_numbers_to_floats():
    x, true = np.array([1.0, -2.0], np.float32), np.ones(2, bool)
    for huge in (10**20, -(2**70)):
        for value in (_core.mul(x, huge), _core.where(true, huge, x), _core.where(~true, x, huge), _core.masked_fill(x, true, huge)):
            assert value.dtype == np.float32
        np.testing.assert_array_equal(_core.mul(huge, x), x * np.float32(huge))
        np.testing.assert_array_equal(_core.masked_fill(x, true, huge), np.float32(huge))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: _core.add(np.ones((2, 3)), np.ones((2, 4))), ValueError, r"\(2, 3\) and \(2, 4\) do not broadcast"),
        (lambda: _core.bitwise_and(np.ones(2), np.ones(2)), TypeError, "integers and bools"),
        (lambda: _core.pow(np.arange(3), -1), ValueError, "Integers to negative integer powers are not allowed: .* exponent of -1"),
        (lambda: _core.pow(np.arange(3), np.array([1, -2, 0])), ValueError, "not allowed: .* exponent of -2"),
        (lambda: _core.pow(2, Tensor(np.array([[3], [-4]], np.int32))), ValueError, "not allowed: .* exponent of -4"),
        (lambda: _core.add(np.ones(2), "a"), TypeError, "expected Tensors"),
        (lambda: _core.add(None, np.ones(2)), TypeError, "expected Tensors"),
        (lambda: _core.add(np.arange(2), 2**70), OverflowError, "more than 64 bits and meets a tensor of int64"),
        (lambda: _core.where(np.ones(2) > 0, -(2**70), np.arange(2)), OverflowError, "meets a tensor of int64"),
        (lambda: _core.masked_fill(np.arange(2), np.ones(2) > 0, 2**70), OverflowError, "meets a tensor of int64"),
        (lambda: _core.where(np.ones(2), 1.0, 2.0), TypeError, "bool condition"),
        (lambda: _core.masked_fill(np.ones(2), np.ones(2), 0.0), TypeError, "bool mask"),
        (lambda: _core.masked_fill(np.ones(2), np.ones(3, bool), 0.0), ValueError, "broadcast"),
        (lambda: _core.masked_fill(np.arange(2), np.array([True, False]), 0.5), TypeError, "int64"),
        (
            lambda: _core.masked_fill(np.ones(2), np.ones(2, bool), np.ones(2)),
            ValueError,
            r"value has shape \(2,\); masked_fill takes a number",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- choosing ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_where(isa, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for c_shape, a_shape, b_shape in [
        ((), (), ()),
        ((5, 1), (3,), (5, 3)),
        ((4, 40), (), (40,)),
        ((0, 2), (2,), ()),
        ((2, 3, 33), (3, 1), (33,)),
    ]:
        c = np.asarray(rng.random(c_shape) < 0.5)
        a, b = (np.asarray(rng.integers(0, 100, s)).astype(dtype) for s in (a_shape, b_shape))
        got = _core.where(c, a, b)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.where(c, a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64"])
def test_clamp_in_one_pass_is_one_bound_after_the_other(isa, dtype, rng):
    values = np.append(rng.standard_normal((7, 37)), [[np.nan, np.inf, -np.inf, 0.5, -0.5, 0.1, -0.0] + [0.0] * 30], 0)
    x = Tensor(rng.integers(-3, 4, (8, 37))) if dtype == "int64" else Tensor(values).to(dtype)
    for low, high in [(-0.5, 0.5), (0.1, 0.1), (0.1001, 0.1002), (-0.0, 0.0), (1.0, -1.0), (np.nan, 1.0), (-1, 1), (-np.inf, 0.1)]:
        for given in (x, x.T, x[:, ::2], x[:0], x[2, 3]):
            one, two = given.detach(), given.detach()
            if x.is_floating_point():
                one, two = one.requires_grad_(), two.requires_grad_()
            got, expected = _core.clamp(one, low, high), _core.clamp_max(_core.clamp_min(two, low), high)
            np.testing.assert_array_equal(_core.clamp(one.detach(), low, high).double(), expected.detach().double())
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_array_equal(got.detach().double(), expected.detach().double())
            if x.is_floating_point():
                got.sum().backward()
                expected.sum().backward()
                np.testing.assert_array_equal(one.grad.double(), two.grad.double())


def test_bounds_of_halves_are_rounded_as_they_are():
    """So that an element may be equal to one, and gets the gradient."""
    for dtype, bound in (("bfloat16", 0.999), ("float16", 0.1)):
        for function in (lambda x, b: _core.clamp(x, 0.0, b), _core.clamp_max, lambda x, b: _core.clamp(x, b, 2), _core.clamp_min):
            x = Tensor([bound]).to(dtype).requires_grad_()
            function(x, bound).backward()
            assert x.grad.tolist() == [1.0], (dtype, function)


def test_where_and_masked_fill_gradients(rng):
    c = rng.random((4, 5)) < 0.5
    a, b = Tensor(rng.standard_normal(5), requires_grad=True), Tensor(rng.standard_normal((4, 1)), requires_grad=True)
    dy = rng.standard_normal((4, 5))
    _core.where(c, a, b).backward(Tensor(dy))
    np.testing.assert_allclose(np.asarray(a.grad), np.where(c, dy, 0).sum(0))
    np.testing.assert_allclose(np.asarray(b.grad), np.where(c, 0, dy).sum(1, keepdims=True))
    x = Tensor(rng.standard_normal((4, 5)), requires_grad=True)
    y = _core.masked_fill(x, c, -np.inf)
    np.testing.assert_array_equal(np.asarray(y), np.where(c, -np.inf, np.asarray(x)))
    y.backward(Tensor(dy))
    np.testing.assert_array_equal(np.asarray(x.grad), np.where(c, 0, dy))


@pytest.mark.parametrize("name", sorted(GRADIENTS))
def test_against_torch(name, rng):
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional
    own = {"swiglu": lambda a, b: functions.silu(a) * b, "geglu": lambda a, b: functions.gelu(a) * b,
           "leaky_relu": lambda a, b: torch.where(a > 0, a, a * b), "elu": lambda a, b: torch.where(a > 0, a, b * torch.expm1(a)),
           "softplus": lambda a, b: torch.log1p((a * b).exp()) / b}  # fmt: skip
    call = own.get(name) or getattr(torch, name)
    arrays = [draw(rng, (5, 1, 3), "float64"), draw(rng, (4, 3), "float64")]
    arrays[0][0], arrays[1][0] = 1.5, 1.5
    ours = [Tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, expected = getattr(_core, name)(*ours), call(*theirs)
    np.testing.assert_allclose(np.asarray(y), expected.detach().numpy(), rtol=1e-13)
    dy = rng.standard_normal(y.shape)
    y.backward(Tensor(dy))
    expected.backward(torch.tensor(dy))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), rtol=1e-11, atol=1e-13)


# ---- activations with a parameter --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["leaky_relu", "elu", "softplus"])
def test_activations_on_both_sides(isa, name, dtype):
    """Far and near 0, where 1 is lost next to e^x and where e^x - 1 cancels; x = 0 belongs to the negative side, as in PyTorch."""
    x = np.concatenate([s * np.array([0, 1e-30, 1e-7, 1e-3, 0.3, 1, 5, 15, 21, 80, 300, 1e6, np.inf]) for s in (1, -1)]).astype(dtype)
    for parameter in (1.0, 0.25, 3.0):
        forward, backward = getattr(reference, name), getattr(reference, f"{name}_backward")
        t = Tensor(x, requires_grad=True)
        y = getattr(_core, name)(t, parameter)
        y.backward(Tensor(np.ones_like(x)))
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(np.asarray(y), forward(x, parameter), rtol=4 * np.finfo(dtype).eps, atol=1e-38)
            np.testing.assert_allclose(np.asarray(t.grad), backward(np.ones(()), x, parameter)[0], rtol=8 * np.finfo(dtype).eps, atol=1e-38)
    assert np.isnan(getattr(_core, name)(np.full(3, np.nan, dtype), 1.0)).all()


# ---- ways around the general function ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("exponent", [2, 0.5, -1.0, -0.5, 3, True])
def test_simple_powers(isa, dtype, exponent, rng):
    x = draw(rng, (5, 33), dtype)
    wide, rtol = x.astype(np.float64), {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 2.0**-21, "float64": 2.0**-50}[dtype]
    t = Tensor(x, requires_grad=True)
    y = t**exponent
    y.backward(Tensor(np.ones_like(x)))
    assert y.dtype == t.dtype == t.grad.dtype
    np.testing.assert_allclose(y.detach().double().numpy(), wide ** float(exponent), rtol=rtol)
    np.testing.assert_allclose(t.grad.double().numpy(), exponent * wide ** (exponent - 1.0), rtol=2 * rtol)
    assert (Tensor(-x) ** 0.5).isnan().all() and (Tensor(0 * x) ** -1).isinf().all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cubes_of_halves_are_rounded_once(isa, dtype, rng):
    x, dy = (draw(rng, 1000, dtype) for _ in "xy")
    t = Tensor(x, requires_grad=True)
    y = t**3
    y.backward(Tensor(dy))
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(y.detach().float()), (wide * wide * wide).astype(x.dtype).astype(np.float32))
    np.testing.assert_array_equal(
        np.asarray(t.grad.float()), (wide * wide * dy.astype(np.float32) * np.float32(3)).astype(x.dtype).astype(np.float32)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize(
    "shape, axes",
    [((301, 700), (1, 0)), ((700, 301), (1, 0)), ((3, 40, 1000), (0, 2, 1)), ((9, 1000, 50), (2, 1, 0)), ((17, 900, 16), (1, 0, 2))],
)
def test_one_permuted_operand(isa, threads, shape, axes, dtype, rng):
    """It is copied to where the result is, band by band: the same bits as those of a copy, and the operand stays as it was."""
    values = rng.integers(1, 9, shape)
    x = tc.tensor(values).to(dtype).permute(*axes)
    copy = x.contiguous()
    functions = [lambda x: x * x, lambda x: x + 3, lambda x: 9 - x, lambda x: x[1:, ..., 2:] * 2, lambda x: -x, tc.square]
    if dtype in ("float32", "float64", "bfloat16"):
        functions += [tc.exp, lambda x: x**3]
    for function in functions:
        found = function(x)
        assert found.is_contiguous()
        np.testing.assert_array_equal(np.asarray(found.double()), np.asarray(function(copy).double()))
    np.testing.assert_array_equal(np.asarray(x.long()), values.transpose(axes))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("length", [1, 5, 16, 47, 48, 100, 512])
def test_permuted_operands(isa, length, dtype, rng):
    """The same bits as those of copies, whichever way runs of this length are read."""
    values = rng.integers(0, 2 if dtype == "bool" else 9, (2, 5, 9000 // (10 * length) + 3, length))
    x = tc.tensor(values).to(dtype).permute(0, 2, 1, 3)
    y = tc.tensor(rng.integers(0, 9, x.shape)).to(dtype)
    turned = y.mT.contiguous().mT
    copy = x.contiguous()
    np.testing.assert_array_equal(np.asarray(copy.long()), values.transpose(0, 2, 1, 3))
    for function in (_core.mul, _core.logical_or, _core.eq, _core.maximum):
        for found, expected in (
            (function(x, y), function(copy, y)),
            (function(x, x), function(copy, copy)),
            (function(turned, x), function(y, copy)),
            (function(x, y.double()), function(copy, y.double())),
        ):
            assert found.is_contiguous()
            np.testing.assert_array_equal(np.asarray(found.float()), np.asarray(expected.float()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_division_rounded_down(isa, dtype, rng):
    """Next to ordinary numbers and to others."""
    special = [0, -0.0, 1, -1, 3, -3, 1e-30, -1e-30, 5e-324, 1e30, -1e30, np.inf, -np.inf, np.nan, 8388608, 16777217, 0.1, 0.3]
    a, b = (
        np.concatenate([special, rng.standard_normal(200) * 10.0 ** rng.integers(-3, 8, 200), rng.integers(-50, 50, 200)]) for _ in "ab"
    )
    a, b = np.meshgrid(a.astype(dtype), b.astype(dtype))
    with np.errstate(all="ignore"):
        usual = np.isfinite(a) & np.isfinite(b) & (b != 0)
        rest, quotient = np.asarray(_core.remainder(a, b)), np.asarray(_core.floor_divide(a, b))
        np.testing.assert_array_equal(rest[usual], np.remainder(a, b)[usual])
        assert np.isnan(rest[(b == 0) | np.isinf(a) | np.isnan(a + b)]).all()
        np.testing.assert_array_equal(rest[np.isfinite(a) & (b == np.inf)], np.where(a < 0, np.inf, a)[np.isfinite(a) & (b == np.inf)])
        few = usual & (abs(a / b) < 2.0**20)
        np.testing.assert_array_equal(quotient[few], np.floor_divide(a.astype(np.float64), b.astype(np.float64))[few])
        nothing = np.isfinite(a) & (quotient == 0)
        np.testing.assert_array_equal(np.signbit(quotient)[nothing], np.signbit(a / b)[nothing])
    for function, all_of_them in ((_core.remainder, rest), (_core.floor_divide, quotient)):  # the same bits, whatever stands beside
        some = rng.permutation(a.size)[:1000]
        bits = f"u{a.itemsize}"
        np.testing.assert_array_equal(
            np.asarray(function(a.ravel()[some], b.ravel()[some])).view(bits), all_of_them.ravel()[some].view(bits)
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_quotients_are_those_of_numpy(isa, dtype, rng):
    """Which rounds them before it rounds them down."""
    b = rng.standard_normal(5000).astype(dtype)
    a = (b * rng.uniform(-2.0, 2.0, b.size) * 2.0 ** (np.finfo(dtype).nmant - rng.integers(0, 4, b.size))).astype(dtype)
    np.testing.assert_array_equal(_core.floor_divide(a, b), np.floor_divide(a, b))
    np.testing.assert_array_equal(_core.remainder(a, b), np.remainder(a, b))


def test_in_place_beside_its_own_memory(isa, rng):
    for dtype in ("float32", "float64"):
        for op in ("__iadd__", "__isub__", "__imul__", "__itruediv__"):
            function = {"a": np.add, "s": np.subtract, "m": np.multiply, "t": np.divide}[op[3]]
            for part, other in (
                (lambda x: x[1:], lambda x: x[:-1]),
                (lambda x: x, lambda x: x),
                (lambda x: x, lambda x: x.swapaxes(0, 1)),
                (lambda x: x[:, ::2], lambda x: x[:, 1::2]),
                (lambda x: x, lambda x: x[0]),
                (lambda x: x[::-1], lambda x: x),
                (lambda x: x, lambda x: 3.5),
                (lambda x: x[2:3], lambda x: x[2, 3:4]),
            ):
                x = rng.uniform(1, 2, (40, 40)).astype(dtype)
                t = as_tensor(x.copy()).clone()
                expected = x.copy()
                part(expected)[...] = function(part(x), other(x))
                before = part(t)
                assert getattr(before, op)(other(t)) is before
                np.testing.assert_array_equal(t, expected)


@pytest.mark.parametrize("n", [6, 100_000])
def test_in_place_to_windows_that_overlap(n):
    """Each element is added to once, however many windows it is in."""
    x = Tensor(np.arange(n, dtype=np.float32))
    windows = x.unfold(0, 3, 1)
    windows += 1
    np.testing.assert_array_equal(np.asarray(x), np.arange(1, n + 1))


def test_in_place_keeps_what_a_gradient_needs():
    w = Tensor(np.full(3, 2.0, np.float32), requires_grad=True)
    x = Tensor(np.ones(3, np.float32))
    y = (w * x).sum()
    x += 1
    with pytest.raises(RuntimeError, match="written"):
        y.backward()
    x = Tensor(np.ones(3, np.float32))
    x *= w
    x *= w
    x.sum().backward()
    np.testing.assert_array_equal(np.asarray(w.grad), 4.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_sign_of_zero_stays(isa, dtype):
    """Where an activation or a bound leaves zero as it is: by one element, and in vectors."""
    for count in (1, 40):
        x = np.full(count, -0.0, dtype)
        kept = [F.elu(x), F.celu(x), F.selu(x), F.relu6(x), _core.clamp(x, 0.0, 6.0), _core.clamp_min(x, 0.0), _core.clamp_max(x, 0.0)]
        assert np.signbit(kept).all()
        assert not np.signbit(_core.clamp(-x, -0.0, -0.0)).any()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("bounds", [(20, 90), (90, 20), (0, 255), (7, 7)])
def test_clamp_of_integers(dtype, bounds, isa, rng):
    for shape in ((0,), (1,), (255,), (256,), (3, 9000)):
        x = rng.integers(0, 200, shape).astype(dtype)
        expected = np.minimum(np.maximum(x, bounds[0]), bounds[1])
        for view in (lambda a: a, lambda a: a[..., ::2], lambda a: a.T, lambda a: np.broadcast_to(a.ravel()[:1], (65 * min(a.size, 1),))):
            result = as_tensor(view(x)).clamp(*bounds)
            assert result._dtype_name == dtype
            np.testing.assert_array_equal(result, view(expected))
    wide = tc.tensor([-(2**62), 5, 2**62]).clamp(-(2**40), 2**40)
    assert wide.tolist() == [-(2**40), 5, 2**40]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("exponent", [0.5, -0.5, -1.0, 2.0])
def test_powers_of_integers_by_floats_are_those_of_floats(dtype, exponent, rng):
    x = tc.tensor(rng.integers(1, 200, 100).astype(dtype))
    assert tc.equal(x**exponent, x.float() ** exponent)
