"""softmax and log_softmax along any axis, forward and backward, on every instruction set."""

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

FORWARD = {"softmax": (_core.softmax_forward, R.softmax), "log_softmax": (_core.log_softmax_forward, R.log_softmax)}
BACKWARD = {
    "softmax": (_core.softmax_backward, R.softmax_backward),
    "log_softmax": (_core.log_softmax_backward, R.log_softmax_backward),
}
functions = pytest.mark.parametrize("function", FORWARD)

# rows along the vectors: one, primes, around the widths, around the longest short row, several blocks
LAST_AXIS = [
    (1,),
    (2, 1),
    (5, 7),
    (3, 15),
    (17, 16),
    (16, 17),
    (33, 31),
    (65, 32),
    (4, 33),
    (3, 63),
    (130, 64),
    (2, 65),
    (3, 1031),
    (2, 4099),
]
OTHER_AXES = [
    ((5, 3), 0),
    ((1, 9), 0),
    ((67, 17), 0),
    ((3, 13, 5), 1),
    ((2, 70, 65), 1),
    ((2, 3, 129), -2),
    ((4, 3, 2, 5), 0),
    ((130, 3), -2),
]


def operands(rng, shape, dtype):
    return [(scale * rng.standard_normal(shape)).astype(dtype) for scale in (3, 1)]


def check(function, x, dy, axis, k):
    forward, expected = FORWARD[function]
    y = forward(x, axis)
    assert_close(y, expected(x, axis), x.dtype, k, name="y")
    backward, expected = BACKWARD[function]
    wanted = expected(dy, x, axis)
    assert_close(backward(dy, y, axis), wanted, x.dtype, gradient=True, scale=max(np.abs(wanted).max(), np.abs(dy).max()), name="dx")


@functions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_last_axis(isa, function, dtype, rng):
    for shape in LAST_AXIS:
        check(function, *operands(rng, shape, dtype), -1, shape[-1])


@functions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_axes(isa, function, dtype, rng):
    for shape, axis in OTHER_AXES:
        check(function, *operands(rng, shape, dtype), axis, shape[axis])


@functions
def test_empty_and_without_axes(isa, function):
    for shape, axis in [((0,), 0), ((0, 5), -1), ((5, 0), -1), ((5, 0), 0), ((3, 0, 2), 0)]:
        x = np.zeros(shape, np.float32)
        assert FORWARD[function][0](x, axis).shape == shape
        assert BACKWARD[function][0](x, x, axis).shape == shape
    assert FORWARD[function][0](np.float32(3), -1) == (1 if function == "softmax" else 0)


@functions
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(isa, function, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for shape, axis in [((9, 70), -1), ((9, 7), -1), ((9, 70), 0)]:
        check(function, *operands(rng, shape, dtype), axis, shape[axis])


@functions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [7, 100])
def test_large_logits(isa, function, dtype, length, rng):
    """Large logits cost no accuracy: only their distance from the largest matters."""
    x = (1e4 + 3 * rng.standard_normal((5, length))).astype(dtype)
    dy = rng.standard_normal(x.shape).astype(dtype)
    for sign in (1, -1):
        check(function, sign * x, dy, -1, length)
        check(function, np.ascontiguousarray(sign * x.T), np.ascontiguousarray(dy.T), 0, length)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [7, 100])
def test_hidden_elements_have_no_weight(isa, dtype, length, rng):
    """Those that are filled with -9e15, as the tutorial's masks are, or lie as far below the largest that e^x is no normal number, are exactly 0;
    the others are as without them."""
    x = rng.standard_normal((5, length)).astype(dtype)
    hidden = rng.random(x.shape) < 0.5
    hidden[:, 0] = False
    for fill in (-9e15, -np.inf, -100.0 if dtype == "float32" else -720.0):
        y = _core.softmax(np.where(hidden, fill, x).astype(dtype))
        assert (y[hidden] == 0).all() and (y[~hidden] > 0).all()
        assert_close(y, np.where(hidden, 0, FORWARD["softmax"][1](np.where(hidden, -np.inf, x))), dtype, length)


@functions
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [3, 50])
def test_nan_and_infinity_stay_in_their_rows(isa, function, axis, length, rng):
    x = rng.standard_normal((6, length)).astype(np.float32)
    x[0, 1], x[1, 2], x[3, :], x[4, 0] = np.nan, np.inf, -np.inf, -np.inf
    expected = FORWARD[function][1](x)
    y = FORWARD[function][0](x if axis == 1 else np.ascontiguousarray(x.T), axis)
    y = y if axis == 1 else y.T
    assert np.isnan(y[[0, 3]]).all()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    assert_close(y[[2, 4, 5]], expected[[2, 4, 5]], "float32", length)


@functions
def test_strides_and_byte_order(isa, function, rng):
    base = rng.standard_normal((6, 40, 8))
    for x in (base.T, base[::2, ::-3], base[..., 3], base.astype(">f8"), np.broadcast_to(base[0, 0], (3, 8)), base[:, 5:6]):
        for axis in range(x.ndim):
            assert_close(FORWARD[function][0](x, axis), FORWARD[function][1](x, axis), "float64")
            y, dy = FORWARD[function][0](x, axis), np.asarray(x)[..., ::-1]
            dx = BACKWARD[function][0](dy, np.asfortranarray(y), axis)
            assert_close(dx, BACKWARD[function][1](dy, x, axis), "float64", gradient=True, scale=np.abs(dy).max())


@functions
def test_same_bits_for_any_threads(isa, threads, function):
    rng = np.random.default_rng(2)
    for shape, axis in [((1031, 70), -1), ((3001, 10), -1), ((40, 70, 200), 1)]:
        x, dy = operands(rng, shape, np.float32)
        many = FORWARD[function][0](x, axis), BACKWARD[function][0](dy, x, axis)
        _core.set_num_threads(1)
        for a, b in zip(many, (FORWARD[function][0](x, axis), BACKWARD[function][0](dy, x, axis)), strict=True):
            np.testing.assert_array_equal(a, b)


@functions
def test_a_row_does_not_depend_on_its_place(isa, function, rng):
    for length in (10, 70):
        x = rng.standard_normal((200, length)).astype(np.float32)
        whole = FORWARD[function][0](x, -1)
        for first, last in ((0, 1), (3, 20), (63, 130), (199, 200)):
            np.testing.assert_array_equal(FORWARD[function][0](x[first:last], -1), whole[first:last])


@functions
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_recorded(function, dtype, rng):
    for axis in (-1, 0):
        x, dy = operands(rng, (7, 40), dtype)
        t = tc.tensor(x, requires_grad=True)
        y = getattr(_core, function)(t, axis)
        y.backward(tc.tensor(dy))
        assert isinstance(y, tc.Tensor)
        assert_close(y.numpy(), FORWARD[function][1](x, axis), dtype, 40)
        assert_close(t.grad.numpy(), BACKWARD[function][1](dy, x, axis), dtype, gradient=True)
        assert not getattr(_core, function + "_forward")(t, axis).requires_grad


def test_golden():
    cases = {name: case for name, case in load("functions").items() if case[0].get("function") in FORWARD}
    assert cases
    for name, (options, arrays) in cases.items():
        for dtype, short in (("float32", "f32"), ("float64", "f64")):
            x, dy = arrays["x"].astype(dtype), arrays["dy"].astype(dtype)
            y = FORWARD[options["function"]][0](x, options["axis"])
            assert_close(y, arrays["f64.y"], dtype, x.shape[options["axis"]], name=name)
            dx = BACKWARD[options["function"]][0](dy, y, options["axis"])
            assert_close(dx, arrays["f64.dx"], dtype, gradient=True, name=f"{name} {short} dx")


def test_errors():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match="x is int64; a floating dtype is needed"):
        _core.softmax(np.arange(3))
    for dim in (2, -3):
        with pytest.raises(IndexError, match=f"dim {dim} is out of range for a tensor of 2 axes"):
            _core.log_softmax(x, dim)
    with pytest.raises(ValueError, match=r"dy has shape \(2, 3\) but y has \(3, 2\)"):
        _core.softmax_backward(x, x.T)
    with pytest.raises(TypeError, match="dy is float32 but y is float64"):
        _core.softmax_backward(x, x.astype(np.float64))


@pytest.mark.parametrize("name", ["input", "x"])
def test_the_array_by_either_name(name):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for function, options in ((tc.F.softmax, {"axis": 0}), (tc.log_softmax, {"dim": 1}), (tc.F.layer_norm, {"normalized_shape": (4,)})):
        np.testing.assert_array_equal(function(**{name: x}, **options), function(x, *options.values()))
