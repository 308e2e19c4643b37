"""gather, scatter and cumsum: NumPy's loops, gradients, order of equal places, dtypes, strides; cases for the tests of all ops (op_cases.py)."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

DTYPES = ["float32", "float64", "float16", "bfloat16"]
PLACES = np.array([[2, 0, 2, 1], [1, 1, 0, 2]])  # of (3, 4) along axis 0, some of them twice


def written(combination):
    return lambda d: (lambda x, src: _core.scatter(x, 0, PLACES % len(x), src, combination), d.normal(3, 4), d.normal(2, 5))


GRADCHECK = {
    "gather": [
        lambda d: (lambda x: _core.gather(x, 0, PLACES % len(x)), d.normal(d.length(), 4)),
        lambda d: (lambda x: _core.gather(x, -1, PLACES.T), d.normal(4, 3)),
    ],
    "scatter": [
        lambda d: (lambda x, src: _core.scatter(x, 1, np.array([[1, 0], [2, 1]]), src), d.normal(2, 3), d.normal(2, 2)),
        written("add"),
    ],
    "cumsum": [
        lambda d: (lambda x: _core.cumsum(x, 1, True), d.normal(*d.shape(2))),
        lambda d: (lambda x: _core.cumsum(x, 0), d.normal(*d.shape(2))),
    ],
}
BACKWARD_ARGUMENTS = {"cumsum": lambda rng: [rng.random((2, 3, 4)), 1]}
SAVED = {
    "`cumsum` of x (n)": [(lambda x: _core.cumsum(x, 0), ["n"])],
    "`gather` of x (V, C), `scatter` to it, at places (N, C)": [
        (lambda x, i: _core.gather(x, 0, i), ["V,C"], {"i": lambda rng: rng.integers(0, 1024, (512, 256))}),
        (lambda x, s, i: _core.scatter(x, 0, i, s), ["V,C", "N,C"], {"i": lambda rng: rng.integers(0, 1024, (512, 256))}),
    ],
}


def device_case(axis):
    return (
        lambda x: _core.cumsum(x, axis),
        lambda x: R.cumsum(x, axis),
        lambda dy, x: (R.cumsum_backward(dy, axis),),
        [((1, 1),), ((3, 7),), ((2, 5, 40),), ((4, 1031),)],
    )


def written_on_devices(combination):
    index = PLACES if combination == "add" else PLACES[:1]  # places once each: the last one is written on every device
    return (
        lambda x, src: _core.scatter(x, 0, tc.tensor(index, device=x.device), src, combination),
        lambda x, src: R.scatter(x, 0, index, src, combination),
        lambda dy, x, src: R.scatter_backward(dy, 0, index, src.shape, combination),
        [((3, 4), (2, 5))],
    )


ON_DEVICES = {
    "cumsum": device_case(-1),
    "cumsum columns": device_case(0),
    "gather": (
        lambda x: _core.gather(x, 0, tc.tensor(PLACES, device=x.device)),
        lambda x: R.gather(x, 0, PLACES),
        lambda dy, x: (R.gather_backward(dy, 0, PLACES, x.shape),),
        [((3, 4),), ((5, 6),)],
    ),
    "scatter": written_on_devices("put"),
    "scatter add": written_on_devices("add"),
}


SHAPES = [
    ((4,), 0, (7,)),
    ((3, 5), 1, (3, 9)),
    ((3, 5), 0, (2, 4)),
    ((2, 3, 40), 1, (2, 7, 33)),
    ((2, 3, 4), -1, (1, 3, 1)),
    ((0, 3), 1, (0, 2)),
    ((5, 70), 0, (9, 70)),
    ((6, 5), 1, (6, 1)),
]


@pytest.mark.parametrize("dtype", [*DTYPES, "int64", "int32", "uint8", "bool"])
def test_gather_and_scatter(isa, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for shape, axis, lengths in SHAPES:
        x = rng.integers(0, 3, shape).astype(dtype)
        along = axis % len(shape)
        index = rng.integers(0, max(shape[along], 1), lengths)
        np.testing.assert_array_equal(_core.gather(x, axis, index), R.gather(x, along, index))
        src = rng.integers(0, 3, [n + 1 for n in lengths]).astype(dtype)
        for name in ("put", "add", "multiply"):
            expected = R.scatter(x, along, index, src, name).astype(np.int64 if dtype == "uint8" else dtype).astype(dtype)
            np.testing.assert_array_equal(_core.scatter(x, axis, index, src, name), expected, err_msg=f"{name} {shape}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(isa, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, src, dy = (rng.integers(-4, 5, s).astype(dtype) for s in ((3, 4), (3, 5), (2, 4)))
    t, s = tc.tensor(x, requires_grad=True), tc.tensor(src, requires_grad=True)
    t.gather(0, PLACES).backward(tc.tensor(dy))
    np.testing.assert_array_equal(t.grad.double(), R.gather_backward(dy, 0, PLACES, (3, 4)))
    dy = rng.integers(-4, 5, (3, 4)).astype(dtype)
    for add in (False, True):
        t.grad = s.grad = None
        (t.scatter_add(0, PLACES, s) if add else t.scatter(0, PLACES, s)).backward(tc.tensor(dy))
        dx, dsrc = R.scatter_backward(dy, 0, PLACES, (3, 5), "add" if add else "put")
        np.testing.assert_array_equal(s.grad.double(), dsrc)
        np.testing.assert_array_equal(t.grad.double(), dx)
    with pytest.raises(RuntimeError, match="has no gradient"):
        t.scatter(0, PLACES, s, reduce="multiply").sum().backward()


def test_places_of_neighbouring_lines_are_visited_once(threads, rng):
    """Where several threads share the lines of an inner axis."""
    x, index = np.zeros((4, 50_001), np.float32), rng.integers(0, 4, (3, 50_001))
    expected = np.zeros_like(x)
    np.add.at(expected, (index, np.arange(50_001)), 1)
    np.testing.assert_array_equal(_core.scatter(x, 0, index, np.ones(index.shape, np.float32), "add"), expected)


def test_strides_and_threads(isa, threads, rng):
    base = rng.standard_normal((60, 50, 40)).astype(np.float32)
    index = rng.integers(0, 40, (50, 60, 90))
    for x in (base.transpose(1, 0, 2), base[::-1].transpose(1, 0, 2), np.broadcast_to(base[0, 0], (50, 60, 40))):
        np.testing.assert_array_equal(_core.gather(x, 2, index), np.take_along_axis(x, index, 2))
    x, src = base[:50], np.broadcast_to(rng.standard_normal((60, 1)).astype(np.float32), (50, 60, 90))
    rows = np.ascontiguousarray(index[:, :50])
    y = _core.scatter(x, 2, rows, src, "add")
    sums = _core.cumsum(base.transpose(2, 0, 1), 1)
    _core.set_num_threads(1)
    np.testing.assert_array_equal(_core.scatter(x, 2, rows, src, "add"), y)
    np.testing.assert_array_equal(_core.cumsum(base.transpose(2, 0, 1), 1), sums)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cumsum(isa, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for shape in ((1,), (7,), (3, 5), (2, 3, 130), (0, 4), (4, 0), (5, 1, 3), (40, 64)):
        x = rng.standard_normal(shape).astype(dtype)
        for axis in range(len(shape)):
            y = _core.cumsum(x, axis)
            assert y.dtype == dtype
            assert_close(y, R.cumsum(x, axis), dtype, k=shape[axis])
            assert_close(_core.cumsum_backward(x, axis), R.cumsum_backward(x, axis), dtype, k=shape[axis])
    assert_close(_core.cumsum(dtype.type(2) if hasattr(dtype, "type") else np.asarray(2, dtype), 0), np.asarray(2.0), dtype)


def test_cumsum_of_integers_and_of_what_is_not_finite():
    x = np.array([2**62, 2**62, 1])
    np.testing.assert_array_equal(_core.cumsum(x, 0), x.cumsum())  # wraps around
    for dtype in (np.uint8, np.int32, bool):
        y = _core.cumsum(np.array([200, 100, 1]).astype(dtype), 0)
        assert y.dtype == np.int64
        np.testing.assert_array_equal(y, np.array([200, 100, 1]).astype(dtype).cumsum(dtype=np.int64))
    with np.errstate(invalid="ignore"):
        x = np.array([1, np.inf, 1, -np.inf, 1, np.nan])
        np.testing.assert_array_equal(_core.cumsum(x, 0), x.cumsum())
    assert tc.cumsum(tc.tensor([1.0, 2.0]), dim=0, dtype="float64").dtype == np.float64
    assert tc.tensor([True, True]).cumsum(axis=0).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
def test_the_first_of_an_order(isa, dtype, rng):
    """What topk looks for: few one by one, many by sorting."""
    for C, K in ((1, 1), (64, 63), (300, 65), (1000, 5), (7, 7), (7, 0), (500, 64)):
        x = rng.integers(0, 20, (3, C)).astype(dtype)
        if dtype.startswith("float"):
            x[0, C // 2] = np.nan
        for descending in (False, True):
            order = _core.argsort(x, 1, descending)
            np.testing.assert_array_equal(_core.argsort(x, 1, descending, first=K), order[:, :K])
            np.testing.assert_array_equal(_core.argsort(x.T, 0, descending, first=K), order[:, :K].T)
    for k in (-1, 5):
        with pytest.raises(ValueError, match="first is .*has 4 elements"):
            _core.argsort(np.ones((2, 4)), first=k)


ROWS = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: tc.gather(ROWS, 0, np.array([[2, 0, 0]])),
            IndexError,
            r"index 2 \(element 0 of index, shape \(1, 3\)\) is out of range for axis 0",
        ),
        (lambda: tc.gather(ROWS, 0, np.array([[-1, 0, 0]])), IndexError, "index -1"),
        (lambda: tc.gather(ROWS, 1, np.array([[0, 1], [3, 9]])), IndexError, r"index 3 \(element 2 of index, shape \(2, 2\)\)"),
        (lambda: tc.scatter(ROWS, 1, np.array([[0], [3]]), ROWS), IndexError, r"index 3 \(element 1 .* axis 1 of length 3"),
        (lambda: tc.scatter_add(ROWS, 0, np.array([[2, 0, 0]]), ROWS), IndexError, "index 2 .* axis 0 of length 2"),
        (lambda: tc.gather(np.zeros((2, 0)), 1, np.array([[0], [0]])), IndexError, "axis 1 of length 0"),
        (
            lambda: tc.gather(ROWS, 0, np.array([0])),
            ValueError,
            r"index has shape \(1,\) but input has \(2, 3\); they must have as many axes",
        ),
        (lambda: tc.gather(ROWS, 0, np.zeros((2, 4), int)), ValueError, "only along axis 0 may it be longer"),
        (lambda: tc.gather(ROWS, 0, np.zeros((2, 3))), TypeError, "index is float64; integers are needed"),
        (lambda: tc.gather(ROWS, 2, np.zeros((2, 3), int)), IndexError, "axis"),
        (lambda: tc.gather(ROWS, 0), TypeError, "needs a dim and an index"),
        (
            lambda: tc.scatter(ROWS, 0, np.zeros((2, 3), int), np.zeros((1, 3))),
            ValueError,
            r"index has shape \(2, 3\) but src has \(1, 3\)",
        ),
        (lambda: tc.scatter(ROWS, 0, np.zeros((2, 3), int), np.zeros(3)), ValueError, "src has shape"),
        (lambda: tc.scatter(ROWS, 0, np.zeros((2, 3), int), np.zeros((2, 3), np.float32)), TypeError, "float32"),
        (lambda: tc.scatter(ROWS, 0, np.zeros((2, 3), int), 1.0, reduce="mean"), ValueError, "'add', 'multiply'"),
        (lambda: tc.scatter(np.zeros(2, int), 0, np.zeros(1, int), 0.5), TypeError, r"value 0.5 cannot be written to a tensor of int64"),
        (lambda: tc.scatter_add(ROWS, 0, np.zeros((2, 3), int)), TypeError, "needs a dim, an index and a src"),
        (lambda: tc.cumsum(ROWS), TypeError, "cumsum.. needs one axis"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("shape", [(), (5,), (5, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("add", [False, True])
def test_nothing_is_scattered_from_a_source_of_any_rank(shape, add):
    """As in PyTorch, an index without elements fits everything; the gradient of the source has the source's shape."""
    x, src = tc.ones(3, requires_grad=True), tc.ones(shape, requires_grad=True)
    y = (tc.scatter_add if add else tc.scatter)(x, 0, tc.tensor(np.zeros(0, np.int64)), src)
    y.sum().backward()
    assert src.grad.shape == shape and not src.grad.numpy().any()
    assert (x.grad.numpy() == 1).all() and (y.detach().numpy() == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_few_places_are_computed_in_a_wide_dtype(isa, dtype, reduce, rng):
    """What comes to the same place is rounded once, as where there are many places and all of the input is cast."""
    wide = "float32" if "float" in dtype else "int64"
    index = rng.integers(0, 40, (9, 2))
    index[:, 0] = 7
    x, src = (tc.tensor(rng.standard_normal(shape) * 3).to(dtype) for shape in ((40, 50), (9, 2)))
    expected = tc.scatter(x.to(wide), 0, index, src.to(wide), reduce=reduce).to(dtype)
    for y in (tc.scatter(x, 0, index, src, reduce=reduce), x.clone().scatter_(0, tc.tensor(index), src, reduce=reduce)):
        assert y.dtype == x.dtype and tc.all(y == expected)


@pytest.mark.parametrize(
    "shape", [(7, 1), (33, 2), (41, 3), (23, 12), (1, 9), (5, 33), (4, 8), (6, 0), (16, 16), (19, 1), (37, 31), (33, 130)]
)
def test_running_sums_along_memory(isa, shape, rng):
    """As many lines as a vector has lanes, several at a time, and those that are left: the order of additions is that of NumPy in float64."""
    for dtype in (np.float32, np.float64):
        x = rng.standard_normal(shape).astype(dtype)
        x[shape[0] // 2, shape[1] // 2 :] = np.inf  # in the lane of one line alone
        x[-1, : shape[1] // 3] = np.nan
        for step in (1, -1):
            expected = np.cumsum(x[:, ::step].astype(np.float64), 1)[:, ::step].astype(dtype)
            np.testing.assert_array_equal(_core.cumsum(x, 1, step < 0), expected)


@pytest.mark.parametrize("shape", [(1,), (9, 1), (1, 700), (3, 1, 5), (6, 33), (4, 9000), (2, 0)])
def test_running_sums_of_integers_and_of_single_elements(isa, shape, threads, rng):
    for dtype in ("int64", "int32", "uint8", "bool", "float32", "float64"):
        x = rng.integers(0, 250, shape).astype(dtype)
        total = "float64" if dtype.startswith("float") else "int64"
        for axis in range(x.ndim):
            expected = x.cumsum(axis, dtype=total)
            np.testing.assert_array_equal(_core.cumsum(x, axis), expected)
            np.testing.assert_array_equal(_core.cumsum(x, axis, True), np.flip(np.flip(x, axis).cumsum(axis, dtype=total), axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8"])
def test_an_index_that_is_the_same_along_axes(isa, threads, dtype, rng):
    """As that of index_add is: the bits of what its copy gives, gradients too, and the same errors."""
    for shape, axis, count in (((6, 700), 0, 40), ((6, 33, 5), 1, 90), ((1, 5000), 0, 9), ((4, 3, 2, 70), 2, 11), ((300, 4), 1, 3)):
        x = tc.tensor((rng.standard_normal(shape) * 20).astype(dtype))
        taken_shape = [*shape[:axis], count, *shape[axis + 1 :]]
        source = tc.tensor((rng.standard_normal(taken_shape) * 20).astype(dtype))
        places = rng.integers(0, shape[axis], count)
        narrow = tc.tensor(places).reshape(*(1 if i != axis else count for i in range(len(shape))))
        index = narrow.expand(*taken_shape)
        dense = index.contiguous()
        assert 0 in index.stride() and 0 not in dense.stride()
        for function in (
            lambda x, i: tc.gather(x, axis, i),
            lambda x, i: tc.scatter(x, axis, i, source),
            lambda x, i: tc.scatter_add(x, axis, i, source),
            lambda x, i: x.scatter(axis, i, source, reduce="multiply"),
        ):
            np.testing.assert_array_equal(function(x, index).numpy(), function(x, dense).numpy())
            np.testing.assert_array_equal(function(x, index.int()).numpy(), function(x, dense).numpy())
        expected = x.clone()
        for k, place in enumerate(places):
            here = (slice(None),) * axis
            expected[(*here, int(place))] += source[(*here, k)]
        if dtype != "float16":
            np.testing.assert_array_equal(x.index_add(axis, tc.tensor(places), source).numpy(), expected.numpy())
        if dtype.startswith("float"):
            slopes = []
            for i in (index, dense):
                leaves = x.clone().requires_grad_(), source.clone().requires_grad_()
                y = tc.scatter_add(leaves[0], axis, i, leaves[1])
                (tc.gather(y, axis, i) * source).sum().backward()
                slopes.append([leaf.grad.numpy() for leaf in leaves])
            for one, other in zip(*slopes, strict=True):
                np.testing.assert_array_equal(one, other)
        bad = narrow.clone()
        bad.view(-1)[count // 2] = shape[axis]
        for i in (bad.expand(*taken_shape), bad.expand(*taken_shape).contiguous()):
            with pytest.raises(IndexError, match=rf"index {shape[axis]} \(element \d+ of index, shape .* is out of range for axis {axis}"):
                tc.scatter_add(x, axis, i, source)


def test_an_index_outside_is_found_at_any_place_of_a_line(isa):
    """Places are taken some in a row: not only the last of them counts."""
    for bad in (-1, 11):
        for place in range(11):
            index = np.arange(22).reshape(2, 11) % 11
            index[1, place] = bad
            for call in (
                lambda index=index: tc.gather(np.ones((2, 11)), 1, index),
                lambda index=index: tc.scatter(np.ones((2, 11)), 1, index, np.ones((2, 11))),
                lambda index=index: tc.scatter_add(np.ones((2, 11)), 1, index, np.ones((2, 11))),
            ):
                with pytest.raises(
                    IndexError, match=f"index {bad} .element {11 + place} of index, shape .2, 11.. is out of range for axis 1"
                ):
                    call()


@pytest.mark.parametrize("dtype", [*DTYPES, "int64", "uint8", "bool"])
@pytest.mark.parametrize("reduce", [None, "add", "multiply"])
def test_scatter_in_place_gives_what_scatter_gives(dtype, reduce, rng):
    """Of elements with steps between them, and where what is written and the places are in the memory that is written to."""
    memory = tc.tensor(rng.integers(0, 3, (5, 8))).to(dtype)
    x, src, index = memory.T[::2], memory.T[1::2], tc.tensor(PLACES).T
    expected = x.scatter(1, index, src[:, :2], reduce=reduce)
    rest = src.clone()
    assert x.scatter_(1, index, src[:, :2], reduce=reduce) is x and tc.equal(x, expected) and tc.equal(src, rest)
    expected = x.scatter(0, index.T, x, reduce=reduce)
    assert tc.equal(x.scatter_(0, index.T, x, reduce=reduce), expected)
    if dtype == "int64":
        x.remainder_(5)
        expected = x.scatter(1, x, x, reduce=reduce)
        assert tc.equal(x.scatter_(1, x, x, reduce=reduce), expected)


def test_a_scatter_that_is_refused_writes_nothing(isa):
    for x in (tc.zeros(2, 11), tc.zeros(2, 11, dtype="float16")):
        index = np.arange(22).reshape(2, 11) % 11
        index[1, 10] = 11
        for reduce in (None, "add"):
            with pytest.raises(IndexError, match="index 11"):
                x.scatter_(1, index, tc.ones_like(x), reduce=reduce)
            assert not x.any()
