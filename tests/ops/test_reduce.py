"""Reductions: values, gradients, axes, dtypes, strides; sums that keep their digits; argsort."""

import itertools
import time

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import Tensor, _core

FLOATS = ["float32", "float64", "float16", "bfloat16"]
SHAPES = [(1,), (7,), (16,), (17,), (1025,), (3, 5), (40, 33), (2, 300, 5), (4, 1, 6, 7), (130, 300)]


def draw(rng, shape, dtype):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def axes_of(ndim):
    """None, each axis from both ends, pairs, all."""
    some = [None, *range(-ndim, ndim), *[(i, j) for i in range(ndim) for j in range(ndim) if i != j]]
    return [*some, tuple(range(ndim))]


def count(x, axis):
    return x.size // max(1, np.sum(x, axis=axis, dtype=np.float64).size)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values(isa, dtype, rng):
    for shape in SHAPES:
        x = draw(rng, shape, dtype)
        x64 = x.astype(np.float64)
        for axis in axes_of(x.ndim):
            for keep in (False, True):
                n, magnitude = count(x, axis), np.abs(x64).sum(axis, keepdims=keep)
                squares = np.square(x64).mean(axis, keepdims=keep).max(initial=0)
                assert_close(_core.sum(x, axis, keepdims=keep), x64.sum(axis, keepdims=keep), dtype, scale=magnitude, name="sum")
                assert_close(_core.mean(x, dim=axis, keepdim=keep), x64.mean(axis, keepdims=keep), dtype, scale=magnitude / n, name="mean")
                np.testing.assert_array_equal(_core.max(x, axis, keep).astype(np.float64), x64.max(axis, keepdims=keep))
                np.testing.assert_array_equal(_core.min(x, axis, keep).astype(np.float64), x64.min(axis, keepdims=keep))
                np.testing.assert_array_equal(_core.any(x > 1, axis, keep), (x64 > 1).any(axis, keepdims=keep))
                np.testing.assert_array_equal(_core.all(x < 1, axis, keep), (x64 < 1).all(axis, keepdims=keep))
                if n > 1:
                    assert_close(_core.var(x, axis, keepdims=keep), x64.var(axis, ddof=1, keepdims=keep), dtype, k=n, name="var")
                assert_close(_core.var(x, axis, keep, unbiased=False), x64.var(axis, keepdims=keep), dtype, k=n, scale=squares, name="var")
            if not isinstance(axis, tuple):
                np.testing.assert_array_equal(_core.argmax(x, axis), x64.argmax(axis))
                np.testing.assert_array_equal(_core.argmin(x, axis), x64.argmin(axis))


def gradient(x, name, dy, **options):
    t = Tensor(x, requires_grad=True)
    getattr(_core, name)(t, **options).backward(Tensor(np.asarray(dy)))
    return np.asarray(t.grad)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("keep", [False, True])
def test_gradients(isa, dtype, keep, rng):
    for shape in [(7,), (3, 5), (2, 40, 5), (33, 17)]:
        x = draw(rng, shape, dtype)
        x64 = x.astype(np.float64)
        for axis in axes_of(x.ndim):
            dy = np.asarray(rng.standard_normal(x.sum(axis, keepdims=keep).shape)).astype(dtype)
            spread = np.broadcast_to(dy.reshape(x.sum(axis, keepdims=True).shape), shape).astype(np.float64)
            n = count(x, axis)
            options = {"axis": axis, "keepdims": keep}
            assert_close(gradient(x, "sum", dy, **options), spread, dtype, gradient=True)
            assert_close(gradient(x, "mean", dy, **options), spread / n, dtype, gradient=True)
            deviation = x64 - x64.mean(axis, keepdims=True)
            if n > 1:
                assert_close(gradient(x, "var", dy, **options), spread * 2 * deviation / (n - 1), dtype, gradient=True)
            assert_close(gradient(x, "max", dy, **options), spread * (x == x.max(axis, keepdims=True)), dtype, gradient=True)
            assert_close(gradient(x, "min", dy, **options), spread * (x == x.min(axis, keepdims=True)), dtype, gradient=True)


def test_equal_maxima():
    x = np.array([[1.0, 3.0, 3.0], [3.0, 0.0, 1.0]])
    np.testing.assert_array_equal(gradient(x, "max", np.ones(2), axis=1), [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(gradient(x, "max", np.ones(3), axis=0), [[0, 1, 1], [1, 0, 0]])
    np.testing.assert_allclose(gradient(x, "max", 1.0), np.array([[0, 1, 1], [1, 0, 0]]) / 3)
    np.testing.assert_array_equal(gradient(x[0], "max", 1.0), [0, 0.5, 0.5])  # over all axes, be there one
    np.testing.assert_array_equal(gradient(x[0], "max", 1.0, axis=0), [0, 1, 0])
    bad = np.array([[np.nan, 1.0], [2.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(gradient(bad, "max", np.ones(2), axis=0), [[1, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(gradient(bad.T, "min", np.ones(2), axis=1), [[1, 0, 0], [0, 1, 0]])


def test_the_first_nan_of_a_long_row_is_its_extreme():
    x = np.zeros((2, 5000), np.float32)
    x[0, [1500, 1510, 4000]] = np.nan
    x[1, [4999, 30]] = np.nan, 5.0
    for name in ("argmax", "argmin"):
        assert getattr(_core, name)(x, 1).tolist() == getattr(_core, name)(x.T.copy(), 0).tolist() == [1500, 4999]


def test_a_variance_without_degrees_of_freedom():
    for correction in (2, 3, 7.5):
        assert _core.var(np.array([1.0, 2.0]), correction=correction) == np.inf
        assert np.isnan(_core.var(np.array([1.0, 1.0]), correction=correction))


def test_nan_and_infinity(isa):
    for dtype in (np.float32, np.float64):
        x = np.zeros((40, 40), dtype)
        x[3, 5], x[7, 35], x[9] = np.nan, np.inf, -np.inf
        for name in ("sum", "mean", "max", "min"):
            with np.errstate(all="ignore"):
                for axis in (None, 0, 1):
                    np.testing.assert_array_equal(getattr(_core, name)(x, axis), getattr(x, name)(axis))
        for axis in (None, 0, 1):
            np.testing.assert_array_equal(_core.argmax(x, axis), x.argmax(axis))
            np.testing.assert_array_equal(_core.argmin(x, axis), x.argmin(axis))
        assert gradient(x, "max", np.ones(40, dtype), axis=1)[3, 5] == 1
        assert np.isnan(_core.var(x[:1, :1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_of_rows_side_by_side_have_the_bits_of_one(isa, dtype, rng):
    """As many rows as a vector has lanes: NaN, infinities, and zeros whose sign the order decides."""
    for length in (16, 17, 33, 65, 100, 256):
        x = rng.integers(-1, 1, (37, length)).astype(dtype)
        x *= rng.choice([-1, 1], x.shape).astype(dtype)
        x[3, 5], x[9, length - 1], x[11], x[12] = np.nan, np.inf, -np.inf, rng.choice([0.0, -0.0], length)
        for whole, name in itertools.product((x, np.concatenate([x, x], 1)[:, :length]), ("max", "min")):
            together = getattr(_core, name)(whole, 1)
            alone = np.array([getattr(_core, name)(row) for row in whole], dtype)
            np.testing.assert_array_equal(together, getattr(whole, name)(1))
            assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_where_the_extreme_of_narrow_rows_is(isa, dtype, rng):
    """Rows of up to 32 elements are taken side by side: ties, NaN, infinities, rows that lie apart, and numbers of rows around the widths."""
    for rows, length in itertools.product((1, 3, 8, 17, 40), (1, 2, 7, 16, 31, 32, 33)):
        whole = rng.integers(-3, 4, (rows, length + 3)).astype(dtype)
        whole[rng.random(whole.shape) < 0.05] = np.nan
        whole[rng.random(whole.shape) < 0.1] = -np.inf
        whole[0] = -np.inf
        for x in (whole[:, :length].copy(), whole[:, 2 : 2 + length], whole[::-1, 1 : 1 + length], whole[::2, :length]):
            np.testing.assert_array_equal(_core.argmax(x, -1), x.argmax(-1))
            np.testing.assert_array_equal(_core.argmin(x, -1), x.argmin(-1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_where_the_extreme_of_short_rows_is(isa, dtype, rng):
    """Rows that do not lie in memory as a kernel reads them are taken side by side; those of one element not at all."""
    for rows, length in itertools.product((1, 5, 33, 700), (1, 2, 3, 15, 16, 17)):
        whole = rng.integers(0, 4, (2, rows, 2 * length + 3)).astype(dtype)
        if dtype.startswith("float"):
            whole[rng.random(whole.shape) < 0.05] = np.nan
        for x in (
            whole[..., :length],
            whole[..., 1 : 2 * length : 2],
            whole[:, ::-1, length - 1 :: -1],
            whole[..., :length].swapaxes(0, 1),
        ):
            assert x.shape[-1] == length
            np.testing.assert_array_equal(_core.argmax(x, -1), x.argmax(-1))
            np.testing.assert_array_equal(_core.argmin(x, -1), x.argmin(-1))
            np.testing.assert_array_equal(_core.argmax(x.swapaxes(1, 2), 1), x.argmax(-1))
            np.testing.assert_array_equal(_core.argmax(np.broadcast_to(x[:1], x.shape), -1)[-1], x[0].argmax(-1))


def test_strides(isa, rng):
    base = rng.standard_normal((30, 20, 34)).astype(np.float32)
    for x in (base.T, base[::-1, ::2, ::-3], base.transpose(1, 0, 2), np.broadcast_to(base[:1], (5, 20, 34)), base.astype(">f4")):
        whole = np.ascontiguousarray(x, np.float32)
        for axis in axes_of(3):
            scale = np.abs(whole).sum(axis)
            assert_close(_core.sum(x, axis), whole.astype(np.float64).sum(axis), "float32", scale=scale)
            np.testing.assert_array_equal(_core.max(x, axis), whole.max(axis))
            if not isinstance(axis, tuple):
                np.testing.assert_array_equal(_core.argmax(x, axis), whole.argmax(axis))


def test_long_sums_keep_their_digits(isa, rng):
    """Pairwise summation: the error of a million terms is that of a few."""
    x = (1 + rng.random((1_000_000, 2))).astype(np.float32)
    for values, axis in ((x, 0), (np.ascontiguousarray(x.T), 1), (x, None)):
        expected = values.astype(np.float64).sum(axis)
        assert np.max(np.abs(_core.sum(values, axis) - expected) / expected) < 1e-6
    shifted = (1e4 + rng.standard_normal(10_000)).astype(np.float32)
    np.testing.assert_allclose(_core.var(shifted), shifted.astype(np.float64).var(ddof=1), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [8, 32, 64, 65, 192, 257, 500, 1023, 1024, 1056, 2048])
def test_groups_read_in_place_are_added_up_as_a_copy(isa, threads, dtype, length, rng):
    x = draw(rng, (3, 40, 5, length), dtype)
    for view in (x[:, ::2], x[:, :, 1:], x[:, 3:, :2], np.swapaxes(x, 1, 2)):
        channels = np.ascontiguousarray(np.swapaxes(view, 0, 1)).reshape(view.shape[1], -1)  # one row each
        np.testing.assert_array_equal(_core.sum(view, (0, 2, 3)), _core.sum(channels, 1))
        np.testing.assert_array_equal(_core.var(view, (0, 2, 3)), _core.var(channels, 1))
    np.testing.assert_array_equal(_core.mean(x[:, ::2]), _core.mean(x[:, ::2].copy()))


def test_same_bits_for_any_threads(threads):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in [(300_007,), (900, 301), (3, 70_001), (70_001, 3)]]

    def run():
        return [_core.sum(a, axis).tobytes() for a in arrays for axis in (None, 0, -1)]

    got = run()
    _core.set_num_threads(1)
    assert got == run()


def test_integers(rng):
    for dtype in (np.int64, np.int32, np.uint8, bool):
        x = rng.integers(0, 2 if dtype is bool else 100, (5, 40, 3)).astype(dtype)
        for axis in axes_of(3):
            got = _core.sum(x, axis)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, x.sum(axis))
            assert _core.max(x, axis).dtype == dtype
            np.testing.assert_array_equal(_core.max(x, axis), x.max(axis))
            np.testing.assert_array_equal(_core.min(x, axis), x.min(axis))
            np.testing.assert_array_equal(_core.any(x, axis), x.any(axis))
            np.testing.assert_array_equal(_core.all(x, axis), x.all(axis))
            if not isinstance(axis, tuple):
                np.testing.assert_array_equal(_core.argmax(x, axis), x.argmax(axis))
    assert _core.sum(np.array([2**62, 1])) == 2**62 + 1


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, bool])
def test_integers_in_their_own_dtype(isa, threads, dtype, rng):
    """Where they lie, by rows and by columns: lengths around vectors, words of bytes, chunks and segments; extremes anywhere."""
    low, high = (0, 1) if dtype is bool else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for rows, n in ((1, 1), (3, 7), (2, 16), (40, 16), (40, 17), (5, 33), (2, 255), (3, 1025), (2, 2049), (1, 40_000)):
        x = rng.integers(low, high, (rows, n), np.int64, endpoint=True).astype(dtype)
        x[0] = high
        for place in {0, n // 2, n - 1}:
            y = x.copy()
            y[:, place] = low
            for array in (y, y[:, ::-1], np.asfortranarray(y), y[:, ::3]):
                for axis in (None, 0, 1):
                    np.testing.assert_array_equal(_core.sum(array, axis), array.sum(axis, dtype=np.int64))  # which wraps around
                    for name in ("max", "min", "any", "all", "argmax", "argmin"):
                        np.testing.assert_array_equal(getattr(_core, name)(array, axis), getattr(array, name)(axis), name)
        np.testing.assert_array_equal(_core.any(np.zeros_like(x), 1), [False] * rows)
        np.testing.assert_array_equal(_core.all(np.full_like(x, high), 1), [True] * rows)
        np.testing.assert_array_equal(tc.count_nonzero(x, 1), np.count_nonzero(x, 1))


def test_places_that_float32_does_not_hold():
    for x in (tc.zeros(2**24 + 4, 2, dtype="float16"), tc.zeros(2, 2**24 + 4, dtype="float16").t()):
        x[2**24 + 1] = 1
        assert x.argmax(0).tolist() == [2**24 + 1] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_many_long_rows(isa, dtype, rng):
    """So many that segments of a row are no items of their own: what is in any of them counts."""
    x = rng.integers(-1, 2, (70, 33_000)).astype(dtype)
    places = np.arange(70) * 33_000 // 69 - (np.arange(70) == 69)
    for value in (3, -3, np.nan):
        x[np.arange(70), places] = value
        for name in ("sum", "mean", "max", "min"):
            np.testing.assert_array_equal(getattr(_core, name)(x, 1), getattr(x.astype(np.float64), name)(1).astype(dtype), name)
        np.testing.assert_allclose(_core.var(x, 1), x.astype(np.float64).var(1, ddof=1), rtol=1e-3 if dtype == "float16" else 1e-6)
    for value in (0, 1):
        x[:] = 1 - value
        x[np.arange(0, 70, 2), places[::2]] = value
        np.testing.assert_array_equal(_core.any(x, 1), x.any(1))
        np.testing.assert_array_equal(_core.all(x, 1), x.all(1))


@pytest.mark.parametrize("name", ["sum", "var", "max", "any"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_columns_have_the_bits_of_many(isa, dtype, name, rng):
    """Few are added up in registers: lengths around blocks of rows and segments, widths around vectors, NaN in one column."""
    for rows in (1, 3, 4, 127, 130, 300, 9000):
        x = rng.standard_normal((2, rows, 70)).astype(dtype)
        x[1, rows // 2, 3] = np.nan
        whole = getattr(_core, name)(x, 1)
        for n in (1, 2, 4, 7, 8, 17, 31, 33, 64):
            for few in (x[..., :n], np.ascontiguousarray(x[..., :n])):
                if n == 1 and few.flags.c_contiguous:
                    continue  # a row
                np.testing.assert_array_equal(getattr(_core, name)(few, 1), whole[:, :n])


def test_two_names_of_one_argument():
    x = np.ones((2, 3))
    for keepdims, keepdim in ((True, False), (False, True), (True, True)):
        assert _core.sum(x, 0, keepdims=keepdims, keepdim=keepdim).shape == (1, 3)
    assert _core.sum(x, axis=None, dim=(0, 1)).shape == () and _core.max(x, 1, dim=None).shape == (2,)
    for op in (_core.sum, _core.argmin, _core.var):
        with pytest.raises(TypeError, match="axis= and dim= mean the same"):
            op(x, axis=0, dim=0)


def test_nothing_to_reduce():
    x = np.zeros((0, 3), np.float32)
    np.testing.assert_array_equal(_core.sum(x, 0), np.zeros(3))
    assert np.isnan(_core.mean(x))
    assert not _core.any(x)
    assert _core.all(x)
    assert _core.max(x, 1).shape == (0,)
    assert _core.sum(np.float32(3.0), 0) == 3
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=r"over no elements.*\(0, 3\)"):
            getattr(_core, name)(x, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, bool])
@pytest.mark.parametrize("lengths", [s for s in itertools.product([0, 1, 2, 17], repeat=3) if 0 in s], ids=str)
def test_nothing_to_reduce_along_several_axes(dtype, lengths):
    x = np.ones(lengths, dtype)
    for axes in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
        np.testing.assert_array_equal(_core.sum(x, axes), x.sum(axes))
        np.testing.assert_array_equal(_core.any(x, axes), x.any(axes))
        np.testing.assert_array_equal(_core.all(x, axes), x.all(axes))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: _core.sum(np.ones((2, 3)), 2), IndexError, "axis"),
        (lambda: _core.sum(np.ones((2, 3)), (0, -2)), ValueError, "twice"),
        (lambda: _core.sum(np.ones(2), axis=0, dim=0), TypeError, "one of them"),
        (lambda: _core.mean(np.arange(3)), TypeError, "int64"),
        (lambda: _core.var(np.arange(3)), TypeError, "int64"),
        (lambda: _core.argmax(np.ones((2, 2)), (0, 1)), ValueError, "one axis"),
        (lambda: _core.argsort(np.ones(2), 1), IndexError, "axis"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_argsort(isa, rng):
    for x in (
        rng.integers(0, 9, (6, 33, 3)).astype(np.float32),
        rng.integers(-5, 5, (6, 33, 3)),
        np.array([3, np.nan, 1, np.nan, 1.0]),
        np.zeros((0, 4)),
    ):
        for axis in range(-x.ndim, x.ndim):
            got = _core.argsort(x, axis)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, np.argsort(x, axis, kind="stable"))
    np.testing.assert_array_equal(_core.argsort(np.array([1, 2, 1, 2]), descending=True), [1, 3, 0, 2])
    np.testing.assert_array_equal(_core.argsort(np.array([1.0, np.nan, 2.0]), descending=True), [1, 2, 0])


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "min"])
def test_against_torch(name, axis, rng):
    torch = pytest.importorskip("torch")
    x = rng.integers(0, 4, (4, 5, 6)).astype(np.float64)
    t = torch.tensor(x, requires_grad=True)
    y = getattr(torch, name)(t) if axis is None else getattr(torch, name)(t, axis)
    y = y.values if name in ("max", "min") and axis is not None else y
    dy = np.asarray(rng.standard_normal(tuple(y.shape)))
    y.backward(torch.tensor(dy))
    np.testing.assert_allclose(getattr(_core, name)(x, axis), y.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(gradient(x, name, dy, axis=axis), t.grad.numpy(), rtol=1e-11, atol=1e-14)


@pytest.mark.alone
@pytest.mark.unsanitized
@pytest.mark.parametrize("name", ["sum", "max"])
@pytest.mark.parametrize("shape", [(1, 512, 512), (512, 1, 512), (512, 512, 1)], ids=str)
def test_an_axis_of_length_one_costs_little(name, shape):
    """It costs about a copy; computing each result separately took 200 times as long as the sum over a real axis."""
    x = np.ones(shape, np.float32)
    reduce, one = getattr(_core, name), shape.index(1)

    def seconds(axis):
        start = time.perf_counter()
        reduce(x, axis)
        return time.perf_counter() - start

    assert min(seconds(one) for _ in range(20)) < 30 * min(seconds(one - 1) for _ in range(20))


def test_no_axes():
    """PyTorch reduces over all axes where dim is (), NumPy over none where axis is (): the name says which is meant."""
    x = np.arange(6.0).reshape(2, 3)
    for reduce in (tc.sum, tc.mean, tc.var, tc.std):
        for call in (lambda r=reduce: r(x, dim=()), lambda r=reduce: r(x, ()), lambda r=reduce: r(tc.tensor(x), dim=[])):
            with pytest.raises(
                ValueError, match=r"^the axes \(\) are all of them in PyTorch, none in NumPy; write dim=None for all, axis=\(\) for none$"
            ):
                call()
        none = getattr(np, reduce.__name__)(x, axis=(), **({"ddof": 0} if reduce in (tc.var, tc.std) else {}))
        np.testing.assert_array_equal(reduce(x, axis=(), **({"correction": 0} if reduce in (tc.var, tc.std) else {})), none)
        np.testing.assert_array_equal(reduce(x, dim=None), reduce(x))
    for reduce in (tc.any, tc.all):  # over none in both
        for no_axes in (reduce(x, dim=()), reduce(x, ()), reduce(x, axis=()), tc.tensor(x).any(())):
            np.testing.assert_array_equal(no_axes, x != 0)
    for call in (lambda: tc.argmax(x, dim=()), lambda: tc.tensor(x).argmin(()), lambda: tc.argmax(x, axis=())):
        with pytest.raises(ValueError, match="works along one axis, or over all of them with axis=None; 0 were given"):
            call()
    for reduce in (tc.amax, tc.amin, tc.norm, tc.logsumexp):  # () is their default in PyTorch
        np.testing.assert_array_equal(reduce(x, dim=()), reduce(x))
    for reduce, none in ((tc.amax, x), (tc.max, x), (tc.count_nonzero, x != 0)):
        np.testing.assert_array_equal(reduce(x, axis=()), none)
    for reduce in (tc.logsumexp, tc.norm, tc.amax):
        assert reduce(np.array(2.0)) == reduce(np.array(2.0), axis=()) == 2.0


@pytest.mark.parametrize("shape", [(), (3,), (3, 2)])
def test_an_axis_given_twice(shape):
    for name in ("sum", "mean", "all", "var", "amax"):
        with pytest.raises(ValueError, match="twice"):
            getattr(tc.ones(shape), name)((0, 0))
    assert tc.ones(()).sum(0).item() == tc.ones(()).sum((-1,)).item() == 1


def test_axes_that_are_not_one_argument():
    """The second was taken for keepdims, without a word."""
    x = tc.arange(24.0).reshape(2, 3, 4)
    for call in (lambda: x.sum(0, 1), lambda: x.mean(1, 2), lambda: tc.any(x, 0, 1), lambda: x.argmax(0, 1)):
        with pytest.raises(TypeError, match="^keepdims must be a bool, got [12]; several axes are one argument, a tuple$"):
            call()
    for one in (1, 1.0, np.int64(1)):
        for call in (lambda n=one: x.sum(0, n), lambda n=one: x.amax(0, n), lambda n=one: x.logsumexp(0, n), lambda n=one: x.max(0, n)):
            with pytest.raises(TypeError, match="^keepdims? must be a bool, got .*1.*; several axes are one argument, a tuple$"):
                call()
    for keep in (True, np.True_):
        assert x.sum(0, keep).shape == (1, 3, 4) == x.sum(0, keepdims=1).shape


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_the_first_of_a_row(isa, dtype, rng):
    """Few of them and many, of rows in any order, with ties and NaN: those that sorting gives."""
    for n in (1, 9, 20, 100, 1000):
        rows = [rng.standard_normal(n) * 100, np.arange(n), -np.arange(n), rng.integers(0, 3, n), np.zeros(n)]
        x = np.stack(rows).astype(dtype)
        if dtype != "int64":
            x[0, :: max(2, n // 3)] = np.nan
        for largest in (True, False):
            order = tc.argsort(x, 1, descending=largest)
            for k in {0, 1, min(n, 8), min(n, 9), n // 3, n // 2, max(n - 1, 0), n}:
                values, indices = tc.topk(x, k, 1, largest)
                np.testing.assert_array_equal(indices, order[:, :k])
                np.testing.assert_array_equal(values, np.take_along_axis(x, order[:, :k], 1))


@pytest.mark.parametrize("n", [2, 9, 40, 300, 3000])
def test_an_order_that_only_the_last_bits_know(isa, n, rng):
    """Keys as wide as a word, which leave no room for their places; both zeros, and NaN of both signs, are equal."""
    signs = rng.choice([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], n)
    whole = rng.integers(-(2**63), 2**63, n)
    for x in (
        1 + rng.integers(0, n, n) * 2.0**-52,
        signs,
        signs.astype(np.float32),
        rng.standard_normal(n) * 1e-310,
        whole,
        whole // 2**30,
    ):
        np.testing.assert_array_equal(_core.argsort(x), np.argsort(x, kind="stable"))
        back = n - 1 - np.argsort(x[::-1], kind="stable")[::-1] if x.dtype.kind == "i" else np.lexsort((-x, ~np.isnan(x)))
        np.testing.assert_array_equal(_core.argsort(x, descending=True), back)
    x = np.append(whole[: n - 1] // 2**40 * 2, -(2**62)) + rng.integers(0, 2, n)  # one far from the others
    np.testing.assert_array_equal(_core.argsort(x), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"])
@pytest.mark.parametrize("n", [3, 9, 40, 111, 300, 3000])
def test_an_order_of_few_different_elements(dtype, n, rng):
    """Whose last bits are equal, or all of them, as along an expanded axis."""
    few = rng.integers(-3, 4, (4, n))
    for numbers in (few, np.abs(few) // 2, np.full_like(few, 2), np.where(few == 3, 8192, 0)):
        x = tc.tensor(numbers.astype(np.float64)).to(dtype)
        for y in (x, x[:, :1].expand(4, n), x.t().clone().t()):
            plain = y.float().numpy()
            np.testing.assert_array_equal(_core.argsort(y, 1), np.argsort(plain, 1, kind="stable"))
            np.testing.assert_array_equal(_core.argsort(y, 1, True), np.argsort(-plain, 1, kind="stable"))
            np.testing.assert_array_equal(_core.argsort(y.t(), 0, first=2), np.argsort(plain.T, 0, kind="stable")[:2])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_sum_of_squares_has_the_bits_of_two_steps(isa, dtype, rng):
    """Whatever the strides, with one thread and with three."""
    before = tc.get_num_threads()
    try:
        for shape in ((7,), (300, 70), (3, 40_000), (40_000, 3), (5, 1, 9), (0, 3), (64, 1000)):
            whole = tc.tensor(rng.standard_normal(shape)).to(dtype)
            for x in (whole, whole.permute(*range(whole.ndim)[::-1]), whole[::2], whole[..., :1].expand(whole.shape)):
                for axes in (None, 0, -1, tuple(range(x.ndim))):
                    tc.set_num_threads(1)
                    wide = x.float() if x.itemsize == 2 else x
                    expected = _core.sum(_core.square(wide), axes, True)
                    for threads in (1, 3):
                        tc.set_num_threads(threads)
                        found = _core.sum_of_squares(x, axes, True)
                        assert found.dtype == expected.dtype and found.shape == expected.shape
                        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    finally:
        tc.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_an_axis_of_length_one_at_the_end_changes_no_bits(isa, threads, dtype, rng):
    for shape, axis in (
        ((2, 5, 700), 1),
        ((9, 40), 0),
        ((3000, 3), 0),
        ((70_000, 2), 0),
        ((4, 300, 6, 50), 1),
        ((1, 90, 1), 1),
        ((5, 1, 8), 1),
    ):
        x = tc.tensor(rng.standard_normal(shape)).to(dtype)
        for function in ("sum", "mean", "var", "max", "min", "any", "all", "argmax"):
            expected, found = (getattr(_core, function)(y, axis).double() for y in (x, x.clone().reshape(*shape, 1)))
            np.testing.assert_array_equal(found.numpy()[..., 0], expected.numpy())
            repeated = getattr(_core, function)(x[..., None].expand(*shape, 3), axis).double()
            np.testing.assert_array_equal(repeated.numpy(), np.repeat(expected.numpy()[..., None], 3, -1))
            first = getattr(_core, function)(x[..., :1], axis).double()
            np.testing.assert_array_equal(first.numpy(), expected.numpy()[..., :1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("layout", ["one", "repeated", "both"])
def test_extremes_and_truth_of_one_element_and_of_equal_ones(dtype, layout, rng):
    """An axis of length 1, and one along which the elements repeat, in memory of its own."""
    x = tc.tensor(rng.integers(0, 3, (40, 1, 7)).astype(np.float32)).to(dtype)
    if dtype == "float32":
        x[0, 0, :2] = tc.tensor([np.nan, -0.0])
    x = x if layout == "one" else x.expand(40, 5, 7) if layout == "repeated" else x.unsqueeze(1).expand(40, 3, 1, 7)
    axes = (1, 2) if layout == "both" else 1
    for array in (x, x.transpose(0, -1)):
        numbers = array.float().numpy()
        for name in ("any", "all", "max", "min"):
            for keep in (False, True):
                found = getattr(_core, name)(array, axes, keep)
                expected = getattr(numbers.astype(bool) if name in ("any", "all") else numbers, name)(axis=axes, keepdims=keep)
                np.testing.assert_array_equal(found.float().numpy(), expected.astype(np.float32))
                assert found._dtype_name == ("bool" if name in ("any", "all") else dtype)
    first = _core.max(x, axes)
    first[...] = 1
    np.testing.assert_array_equal(_core.max(x, axes).float(), x.float().numpy().max(axes))
    norms = tc.norm(x.float(), dim=axes)
    np.testing.assert_allclose(norms, np.sqrt(np.square(x.float().numpy()).sum(axes)), rtol=1e-6)
