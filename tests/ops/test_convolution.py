"""Convolutions and padding against float64 NumPy and PyTorch, on every instruction set; what tests of all ops take (op_cases.py)."""

import itertools
import re

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.testing import reference as R


def _transposed_case(axes, stride, padding, dilation, groups=1):
    def case(d):
        x, w = d.normal(2, 2 * groups, *(3 + d.length() for _ in range(axes))), d.normal(2 * groups, 2, *(2,) * axes)
        options = [(stride,) * axes, (padding,) * axes, (stride - 1,) * axes, (dilation,) * axes, groups]
        return lambda x, w, b: _core.transposed_convolution(x, w, b, *options), x, w, d.normal(2 * groups)

    return case


def _case(axes, stride, padding, dilation, groups=1):
    def case(d):
        x, w = d.normal(2, 2 * groups, *(5 + d.length() for _ in range(axes))), d.normal(2 * groups, 2, *(2,) * axes)
        options = [(stride,) * axes, (padding,) * axes, (dilation,) * axes, groups]
        return lambda x, w, b: _core.convolution(x, w, b, *options), x, w, d.normal(2 * groups)

    return case


GRADCHECK = {
    "convolution": [_case(1, 1, 1, 2), _case(2, 2, 0, 1, 2)],
    "transposed_convolution": [_transposed_case(1, 2, 1, 1), _transposed_case(2, 1, 0, 2, 2)],
    "pad": [lambda d: (lambda x: _core.pad(x, (1, -1, 2, 0)), d.normal(*d.shape(2), 2))],
}
BACKWARD_ARGUMENTS = {
    "convolution": lambda rng: [rng.random((2, 5, 4)), rng.random((2, 3, 4)), rng.random((5, 3, 1)), (1,), (0,), (1,)],
    "transposed_convolution": lambda rng: [rng.random((2, 3, 9)), rng.random((2, 5, 4)), rng.random((5, 3, 3)), (2,), (0,), (1,)],
    "pad": lambda rng: [rng.random((2, 3, 4)), (1, 0)],
}
SAVED = {
    "`convolution` of x (B, C, T), weight (E, C, 3)": [(lambda x, w: _core.convolution(x, w, None, (1,), (1,), (1,)), ["B,C,T", "E,C,3"])],
    "`transposed_convolution` of x (B, C, T), weight (C, E, 3)": [
        (lambda x, w: _core.transposed_convolution(x, w, None, (1,), (1,), (0,), (1,)), ["B,C,T", "C,E,3"])
    ],
    "`pad` of x (N, C)": [(lambda x: _core.pad(x, (1, 2)), ["N,C"])],
}
LAYERS = {"Conv1d": lambda width: tc.nn.Conv1d(5, width, 3, padding=1), "Conv2d": lambda width: tc.nn.Conv2d(2, width, 3, stride=2)}
ON_DEVICES = {
    "convolution": (
        lambda x, w, b: _core.convolution(x, w, b, (2,), (1,), (1,)),
        lambda x, w, b: R.convolution(x, w, b, (2,), (1,), (1,)),
        lambda dy, x, w, b: R.convolution_backward(dy, x, w, b, (2,), (1,), (1,)),
        [((b, c, n), (o, c, k), (o,)) for b, c, n, o, k in [(1, 1, 1, 1, 1), (2, 3, 7, 5, 3), (3, 4, 9, 2, 2)]],
    ),
    "transposed_convolution": (
        lambda x, w, b: _core.transposed_convolution(x, w, b, (2,), (1,), (1,), (1,)),
        lambda x, w, b: R.transposed_convolution(x, w, b, (2,), (1,), (1,), (1,)),
        lambda dy, x, w, b: R.transposed_convolution_backward(dy, x, w, b, (2,), (1,), (1,)),
        [((b, c, n), (c, o, k), (o,)) for b, c, n, o, k in [(1, 1, 1, 1, 2), (2, 3, 5, 5, 3), (3, 4, 4, 2, 4)]],
    ),
    "pad": (
        lambda x: F.pad(x, (1, 2, -1, 0)),
        lambda x: R.pad(x, (1, 2, -1, 0)),
        lambda dy, x: (R.pad_backward(dy, (1, 2, -1, 0)),),
        [((2, 3),), ((1, 1),)],
    ),
}

# samples, channels, groups, spatial shape, kernel, stride, padding, dilation
PROBLEMS = [
    (1, 1, 1, 1, (1,), (1,), (1,), (0,), (1,)),
    (2, 3, 5, 1, (9,), (3,), (1,), (1,), (1,)),
    (3, 4, 6, 2, (8,), (2,), (2,), (0,), (3,)),
    (2, 4, 4, 4, (17,), (5,), (3,), (7,), (2,)),
    (5, 2, 3, 1, (6, 7), (3, 2), (1, 2), (1, 0), (1, 2)),
    (2, 6, 4, 2, (8, 8), (4, 4), (4, 4), (0, 0), (1, 1)),
    (1, 2, 2, 2, (5, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 2, 3, 1, (4, 5, 3), (2, 3, 1), (1, 2, 1), (1, 1, 0), (1, 1, 1)),
    (0, 2, 3, 1, (5,), (2,), (1,), (0,), (1,)),
    (3, 4, 6, 2, (11,), (3,), (1,), (2,), (2,)),
    (2, 3, 4, 1, (4, 5), (2, 3), (1, 1), (3, 4), (1, 1)),  # more zeros than a kernel reaches
    (2, 4, 5, 1, (3, 4, 5), (2, 3, 2), (1, 1, 1), (1, 2, 0), (1, 1, 2)),
    (131, 3, 4, 1, (3,), (3,), (1,), (0,), (1,)),  # one window of each sample: many together, and a rest
    (70, 1, 3, 1, (520,), (3,), (1,), (1,), (1,)),  # more samples than are summed at a time
    (2, 48, 20, 1, (9, 35), (3, 3), (1, 1), (1, 1), (1, 1)),  # rows of several vectors; two blocks of k
    (1, 2, 600, 2, (9, 7), (3, 2), (1, 1), (1, 0), (1, 1)),  # more rows than an item has
    (2, 6, 6, 6, (20, 21), (5, 5), (1, 1), (2, 2), (1, 1)),
    (2, 6, 6, 6, (9, 38), (3, 3), (2, 2), (1, 1), (1, 1)),  # channels by themselves: every other element, also of short rows,
    (2, 4, 4, 4, (6, 5), (2, 4), (1, 2), (1, 0), (1, 1)),
    (3, 3, 3, 3, (7, 5), (2, 4), (1, 1), (0, 0), (1, 1)),  # rows of y too short for vectors,
    (2, 3, 3, 3, (6, 6), (3, 3), (1, 1), (0, 0), (1, 1)),  # of half a vector,
    (1, 2, 2, 2, (1001,), (4,), (1,), (2,), (3,)),  # and several blocks of k
    (1, 4, 6, 2, (11, 39), (3, 3), (2, 2), (1, 1), (1, 1)),
    (1, 0, 3, 1, (5,), (3,), (1,), (1,), (1,)),
    (3, 3, 3, 3, (10, 11, 13), (3, 5, 4), (2, 3, 4), (1, 2, 0), (1, 1, 2)),  # zeros between the elements of dy
    (2, 3, 34, 1, (9,), (3,), (2,), (1,), (1,)),  # columns are added up: too many zeros
    (2, 6, 8, 2, (5, 14), (1, 1), (1, 1), (0, 0), (1, 1)),  # windows of one element: of one axis,
    (3, 4, 6, 2, (7, 12), (1, 1), (1, 2), (1, 0), (1, 1)),  # of two, with zeros
    (2, 400, 5, 1, (2700,), (1,), (1,), (0,), (1,)),  # and far apart
    (3, 5, 4, 1, (13,), (4,), (2,), (1,), (1,)),  # gradients of x by phases: of as many positions,
    (5, 4, 6, 2, (11, 12), (3, 5), (2, 3), (1, 2), (1, 1)),  # of more and fewer, in groups,
    (2, 3, 5, 1, (9, 7, 8), (2, 3, 1), (2, 2, 2), (0, 1, 0), (1, 1, 1)),  # some of none,
    (3, 4, 4, 4, (10, 9), (5, 3), (3, 1), (6, 1), (1, 2)),  # each channel by itself, dilated along one axis,
    (2, 3, 3, 1, (16,), (9,), (4,), (8,), (1,)),  # more zeros than the kernel reaches back,
    (40, 24, 40, 1, (32, 33), (4, 4), (2, 2), (1, 1), (1, 1)),  # some samples at a time, with a rest
]


def operands(rng, problem, dtype):
    B, C, O, G, shape, kernel = problem[:6]
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    return [rng.standard_normal(s).astype(dtype) for s in ((B, C, *shape), (O, C // G, *kernel), (O,))]


def gradients(options, arrays, dy):
    leaves = [tc.tensor(a, requires_grad=True) for a in arrays]
    y = _core.convolution(*leaves, *options)
    y.backward(tc.tensor(dy(y.shape)))
    return y.detach().numpy(), [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_against_the_sum_over_positions(isa, problem, dtype, rng):
    arrays, options = operands(rng, problem, dtype), (*problem[6:], problem[3])
    upstream = {}
    y, found = gradients(options, arrays, lambda s: upstream.setdefault("dy", rng.standard_normal(s).astype(arrays[0].dtype)))
    expected, terms = R.convolution(*arrays, *options), int(np.prod(arrays[1].shape[1:]))
    assert_close(y, expected, arrays[0].dtype, 4 * terms, scale=8 + np.abs(expected).max(initial=0))
    for got, wanted in zip(found, R.convolution_backward(upstream["dy"], *arrays, *options), strict=True):
        assert_close(got, wanted, arrays[0].dtype, gradient=True, scale=8 + np.abs(wanted).max(initial=0))
    assert_close(_core.convolution(arrays[0], arrays[1], None, *options), R.convolution(*arrays[:2], None, *options), arrays[0].dtype,
                 4 * terms, scale=8 + np.abs(expected).max(initial=0))  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_transposed_is_the_gradient_of_x(isa, problem, dtype, rng):
    """Of the same problem: from the result's shape to the input's, which says how much `output_padding` there is."""
    B, C, O, groups, shape, kernel, stride, padding, dilation = problem
    like, weight, _ = operands(rng, (B, C, O, groups, shape, kernel), dtype)
    options = (stride, padding, dilation)
    lengths = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(shape, kernel, *options, strict=True)]
    more = tuple((n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in zip(shape, kernel, *options, strict=True))
    x, bias, dy = (rng.standard_normal(s).astype(like.dtype) for s in ((B, O, *lengths), (C,), like.shape))
    leaves = [tc.tensor(a, requires_grad=True) for a in (x, weight, bias)]
    y = _core.transposed_convolution(*leaves, stride, padding, more, dilation, groups)
    y.backward(tc.tensor(dy))
    expected, terms = R.transposed_convolution(x, weight, bias, stride, padding, more, dilation, groups), O * int(np.prod(kernel))
    assert_close(y.detach().numpy(), expected, x.dtype, 4 * terms, scale=8 + np.abs(expected).max(initial=0))
    for leaf, wanted in zip(leaves, R.transposed_convolution_backward(dy, x, weight, bias, *options, groups), strict=True):
        assert_close(leaf.grad.numpy(), wanted, x.dtype, gradient=True, scale=8 + np.abs(wanted).max(initial=0))
    without = _core.transposed_convolution(x, weight, None, stride, padding, more, dilation, groups)
    np.testing.assert_array_equal(np.asarray(without), np.asarray(_core.convolution_backward(x, like, weight, *options, groups)[0]))


def test_the_last_of_many_rows_by_any_number_of_threads(isa, threads, rng):
    """By many threads channels are cut into items of 126, of which the last has a single one."""
    x, w = rng.standard_normal((1, 1, 22)).astype("float32"), rng.standard_normal((15876, 1, 3)).astype("float32")
    bias, options = np.arange(1, 15877, dtype="float32"), ((1,), (0,), (1,))
    results = []
    for count in (1, 32):
        _core.set_num_threads(count)
        y = np.asarray(_core.convolution(x, w, bias, *options))
        results.append((y, np.asarray(_core.convolution_backward(y, x, w, *options)[1])))
    for one, many in zip(*results, strict=True):
        np.testing.assert_array_equal(many, one)


def test_strides_and_byte_order(isa, rng):
    base, w = rng.standard_normal((4, 6, 8)), rng.standard_normal((3, 4, 3))
    for x in (
        base.swapaxes(0, 1),
        base.transpose(2, 0, 1),
        base[:, :4, ::-2],
        base[:, :4].astype(">f8"),
        np.broadcast_to(base[0, 0], (2, 4, 8)),
    ):
        assert_close(F.conv1d(x, w), R.convolution(x, w, None, (1,), (0,), (1,)), "float64")
    y = tc.tensor(base[:, :4], requires_grad=True)
    F.conv1d(y, w).sum().backward()  # a gradient that repeats one number
    expected = R.convolution_backward(np.ones((4, 3, 6)), base[:, :4], w, None, (1,), (0,), (1,))[0]
    assert_close(y.grad.numpy(), expected, "float64", gradient=True)


def test_strides_of_what_gradients_read(isa, rng):
    w, options = rng.standard_normal((5, 4, 3, 2)), ((1, 1), (1, 2), (1, 1))
    x = rng.standard_normal((5, 6, 8, 12))[:, ::-1, ::2, ::-2].transpose(1, 2, 0, 3)  # (6, 4, 5, 6)
    for dy in (
        rng.standard_normal((9, 5, 5, 6)).transpose(3, 2, 1, 0),
        rng.standard_normal((6, 5, 5, 9))[::-1],
        rng.standard_normal((6, 5, 5, 18))[..., ::2],
        np.broadcast_to(rng.standard_normal((5, 1, 1)), (6, 5, 5, 9)),
    ):
        for operand in (x, np.broadcast_to(x[:1, :, :1], x.shape)):
            found = _core.convolution_backward(dy, operand, w, *options)
            for got, wanted in zip(found, R.convolution_backward(dy, operand, w, np.zeros(5), *options), strict=True):
                assert_close(np.asarray(got), wanted, "float64", gradient=True, scale=20)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinity_stays_in_its_windows(isa, dtype, rng):
    """Rows of windows follow one another in memory; what a window does not contain does not reach it."""
    x, w = rng.standard_normal((2, 3, 6, 21)).astype(dtype), rng.standard_normal((4, 3, 3, 3)).astype(dtype)
    x[0, 1, 2, 20], x[1, 0, 5, 0] = np.inf, np.nan
    options = ((1, 1), (1, 1), (1, 1))
    y = _core.convolution(x, w, None, *options)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(R.convolution(x, w, None, *options)))
    dy = rng.standard_normal(y.shape).astype(dtype)
    dweight = np.asarray(_core.convolution_backward(dy, x, w, *options)[1])
    np.testing.assert_array_equal(np.isfinite(dweight), np.isfinite(R.convolution_backward(dy, x, w, None, *options)[1]))
    dy[0, 1, 0, 20] = np.inf
    dx = np.asarray(_core.convolution_backward(dy, rng.standard_normal(x.shape).astype(dtype), w, *options)[0])
    np.testing.assert_array_equal(np.isfinite(dx), np.isfinite(R.convolution_backward(dy, x, w, None, *options)[0]))


def test_samples_and_parts_give_the_same_bits(isa, rng):
    """A sample has the same bits in any batch: also where columns are made of parts of one sample, of one, and of several."""
    for shape, kernel in (((3, 40, 40), (5, 3)), ((3, 500, 90), (5, 5))):  # some 0.3 and 13 MB of columns
        x, w = rng.standard_normal((4, *shape)).astype(np.float32), rng.standard_normal((2, shape[0], *kernel)).astype(np.float32)
        together = F.conv2d(x, w, padding=2)
        for i in (0, 3):
            np.testing.assert_array_equal(together[i], F.conv2d(x[i], w, padding=2))
    rows = F.conv2d(x[0, :, :9], w)  # windows of another part
    np.testing.assert_array_equal(rows, F.conv2d(x[0], w)[:, :5])
    wide = tc.tensor(x, requires_grad=True), tc.tensor(w, requires_grad=True)
    F.conv2d(*wide, padding=2).sum().backward()
    options = ((1, 1), (2, 2), (1, 1))
    dy = np.ones(F.conv2d(x, w, padding=2).shape)
    for leaf, wanted in zip(wide, R.convolution_backward(dy, x, w, None, *options), strict=False):
        assert_close(leaf.grad.numpy(), wanted, "float32", gradient=True)


# Lengths of rows: of several vectors, one, none; strides that read every other element and others, by kernels that are transposed or not; sums
# of several blocks of k.
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [7, 8, 14, 17, 33, 70])
def test_a_channel_alone_has_the_bits_it_has_beside_another(isa, length, dtype, rng):
    for channels, kernel, stride in itertools.product((1, 50), ((3, 3), (2, 5), (1, 9), (1, 1)), (1, 2, 3)):
        groups = 3 if channels == 1 else 1
        x = rng.standard_normal((2, groups * channels, 9, length)).astype(dtype)
        weight = rng.standard_normal((groups, channels, *kernel)).astype(dtype)
        bias = rng.standard_normal(groups).astype(dtype)
        for values in (x, x.swapaxes(2, 3).copy().swapaxes(2, 3)):
            options = {"stride": stride, "padding": 1, "groups": groups}
            alone = F.conv2d(values, weight, bias, **options)
            beside = F.conv2d(values, weight.repeat(2, 0), bias.repeat(2), **options)
            np.testing.assert_array_equal(alone, beside[:, ::2])


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((3, 8, 700), (16, 8, 5), (16,)), ((1,), (2,), (1,), 1)),
        (((5, 8, 40, 41), (24, 4, 3, 3), (24,)), ((1, 1), (1, 1), (1, 1), 2)),
        (((1, 60, 7, 7), (400, 60, 3, 3), (400,)), ((1, 1), (1, 1), (1, 1), 1)),  # rows are shared, not columns
        (((3, 8, 41, 40), (16, 8, 3, 3), (16,)), ((2, 2), (1, 1), (1, 1), 1)),
        (((5, 24, 41, 40), (48, 3, 3, 3), (48,)), ((2, 2), (1, 1), (1, 1), 8)),
    ],
    ids=str,
)
def test_bits_for_any_threads(shapes, options, threads):
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    dy = rng.standard_normal(_core.convolution(*arrays, *options).shape).astype(np.float32)
    results = []
    for count in (_core.get_num_threads(), 1):
        _core.set_num_threads(count)
        y, found = gradients(options, arrays, lambda s: dy)
        results.append([y, *found])
    assert all(map(np.array_equal, *results))


def test_transposed_bits_for_any_threads_and_samples(isa, threads, rng):
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((5, 24, 20, 21), (24, 9, 3, 4), (9,)))
    options, results = ((2, 2), (1, 1), (1, 0), (1, 1)), []
    dy = rng.standard_normal(_core.transposed_convolution(x, w, b, *options).shape).astype(np.float32)
    for count in (_core.get_num_threads(), 1):
        _core.set_num_threads(count)
        y = np.asarray(_core.transposed_convolution(x, w, b, *options))
        results.append([y, *map(np.asarray, _core.transposed_convolution_backward(dy, x, w, *options[:2], options[3]))])
        np.testing.assert_array_equal(y[3:4], _core.transposed_convolution(x[3:4], w, b, *options))
        np.testing.assert_array_equal(y[:, :, :11], np.asarray(_core.transposed_convolution(x[:, :, :7], w, b, *options))[:, :, :11])
    assert all(map(np.array_equal, *results))


def test_columns_are_few(rng):
    """A kernel of 5 x 5 on 1.4 MB of images has 35 MB of columns, of which 1 MiB is made at a time."""
    images, weight = rng.standard_normal((8, 1, 210, 210)).astype(np.float32), rng.standard_normal((4, 1, 5, 5)).astype(np.float32)
    x, w = tc.tensor(images, requires_grad=True), tc.tensor(weight, requires_grad=True)
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    F.conv2d(x, w, padding=2).sum().backward()
    assert _core.memory_stats()["peak_in_use"] - before < 25e6


# ---- arguments ---------------------------------------------------------------------------------------------------------------------


def test_films(rng):
    x, w = rng.standard_normal((2, 3, 4, 6, 5)), rng.standard_normal((4, 3, 2, 3, 2))
    options = (2, 1, 1), (0, 1, 2), (1, 2, 1)
    assert_close(F.conv3d(x, w, None, *options), R.convolution(x, w, None, *options), "float64")
    pictures = F.conv3d(x, w[:, :, :1], padding="same")  # each picture by itself
    assert_close(pictures[:, :, 1], F.conv2d(x[:, :, 1], w[:, :, 0], padding="same"), "float64")


def test_one_sample_and_same(rng):
    x, w = rng.standard_normal((3, 8, 7)), rng.standard_normal((5, 3, 4, 3))
    np.testing.assert_array_equal(F.conv2d(x, w, padding="valid"), F.conv2d(x[None], w)[0])
    for dilation in (1, 2):
        assert F.conv2d(x, w, padding="same", dilation=dilation).shape == (5, 8, 7)
    assert F.conv2d(x, w, padding="same")[:, 2, 2] == pytest.approx(np.einsum("chw,ochw->o", x[:, 1:5, 1:4], w))


ERRORS = [
    (lambda: F.conv1d(np.ones((2, 3)), np.ones((1, 3))), r"conv1d takes input of 3 axes .*got input \(2, 3\) and weight \(1, 3\)"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 3, 1))), "input has 4 channels in 1 groups, but weight takes 3 channels"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), groups=3), "groups is 3; it must divide the 4 channels of input and the 2"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), groups=0, stride=0), "2 arguments are wrong:\n  stride .*\n  groups must be"),
    (
        lambda: F.conv1d(np.ones((1, 5, 4)), np.ones((2, 4, 1))),
        r"seem to be on the last axis; they belong on axis 1: pass input\.swapaxes\(1, 2\)",
    ),
    (lambda: F.conv2d(np.ones((1, 5, 6, 3)), np.ones((2, 3, 1, 1))), r"they belong on axis 1: pass input\.permute\(0, 3, 1, 2\)"),
    (
        lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), np.ones(3)),
        r"bias has shape \(3,\) but weight \(2, 4, 1\) gives 2 channels",
    ),
    (
        lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 6))),
        "a kernel of length 6 with dilation 1 does not fit axis 2 of input, padded by 0",
    ),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 2)), dilation=5), "a kernel of length 2 with dilation 5 does not fit"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), stride=0), "stride must be at least 1, got 0"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), padding=-1), "padding must be at least 0, got -1"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), stride=2**62), r"stride must be from 1 to 2\^61, got 4611686018427387904"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), stride=(1, 2)), r"one for each of 1 axes, got \(1, 2\)"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 1)), padding="full"), "padding must be 'same' or 'valid', got 'full'"),
    (lambda: F.conv1d(np.ones((1, 4, 5)), np.ones((2, 4, 3)), padding="same", stride=2), "padding='same' needs stride 1"),
    (lambda: tc.nn.Conv2d(3, 4, 2, groups=2), "in_channels 3 must be a multiple of groups 2"),
    (lambda: F.conv_transpose1d(np.ones((1, 5)), np.ones((4, 2))), r"conv_transpose1d takes input of 3 axes .*weight \(4, 2\)"),
    (
        lambda: F.conv_transpose2d(np.ones((1, 3, 5, 5)), np.ones((4, 2, 1, 1))),
        r"input has 3 channels but weight takes 4; they must be equal \(input \(1, 3, 5, 5\)",
    ),
    (lambda: F.conv_transpose1d(np.ones((1, 4, 5)), np.ones((4, 2, 1)), groups=3), "groups is 3; it must divide the 4 channels of input"),
    (
        lambda: F.conv_transpose1d(np.ones((1, 4, 5)), np.ones((4, 2, 1)), np.ones(3), groups=2),
        r"bias has shape \(3,\) but weight \(4, 2, 1\) in 2 groups gives 4 channels; expected \(4,\)",
    ),
    (
        lambda: F.conv_transpose1d(np.ones((1, 4, 5)), np.ones((4, 2, 1)), stride=2, output_padding=2),
        r"output_padding must be less than stride or dilation, got output_padding \(2,\), stride \(2,\) and dilation \(1,\)",
    ),
    (
        lambda: _core.transposed_convolution(np.ones((1, 4, 5)), np.ones((4, 2, 1)), None, (2,), (0,), (2,), (3,)),
        "output_padding must be less than stride, got 2 with stride 2",
    ),
    (lambda: F.conv_transpose1d(np.ones((1, 4, 2)), np.ones((4, 2, 2)), padding=2), "padding of 2 on both sides leaves nothing of the 3"),
    (lambda: F.conv_transpose1d(np.ones((1, 4, 0)), np.ones((4, 2, 2))), "axis 2 of input and weight must have elements"),
    (lambda: F.conv_transpose1d(np.ones((1, 4, 5)), np.ones((4, 2, 2)), stride=2**60), r"would have more than 2\^60 elements"),
    (
        lambda: _core.transposed_convolution_backward(np.ones((1, 2, 9)), np.ones((1, 4, 5)), np.ones((4, 2, 3)), (1,), (0,), (1,)),
        r"input has shape \(1, 4, 5\) but what dy, weight and the options lead to has \(1, 4, 7\)",
    ),
    (
        lambda: tc.nn.ConvTranspose1d(4, 2, 3, stride=2)(np.ones((1, 4, 5), np.float32), output_size=(13,)),
        r"output_size is \(13,\); with input \(1, 4, 5\) it must be from \(11,\) to \(12,\)",
    ),
    (lambda: tc.nn.ConvTranspose2d(4, 3, 2, groups=2), "out_channels 3 must be a multiple of groups 2"),
    (lambda: tc.nn.ConvTranspose2d(4, 4, 2, padding_mode="reflect"), "padding_mode must be 'zeros'"),
    (lambda: F.pad(np.ones((2, 0)), (0, 1), "replicate"), "mode 'replicate' needs an element, got length 0"),
    (lambda: F.pad(np.ones((2, 0)), (0, -1), "circular"), "by 0 and -1 removes more than there is of an axis of length 0"),
    (lambda: F.pad(np.ones(3), (4, 0), "reflect"), "needs an axis longer than that, got length 3"),
    (lambda: F.pad(np.ones(3), (1, 0, 1, 0)), r"pad has 4 numbers; expected two for each padded axis of input, whose shape is \(3,\)"),
    (lambda: F.pad(np.ones(3), (-2, -2)), r"pad by -2 and -2 does not fit axis 0 of input, whose shape is \(3,\)"),
    (lambda: F.pad(np.ones(3), (1, 1), "mirror"), "mode must be 'constant' or"),
    (lambda: F.pad(np.ones(3), (1, 1), "circular", 2.0), "takes no value"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "groups": 2}, {"stride": 2, "output_padding": 2, "dilation": 3, "bias": False}]
)
def test_transposed_layers_are_pytorchs(axes, options, rng):
    torch = pytest.importorskip("torch")
    layers = []
    for library in (tc, torch):
        library.manual_seed(3)
        layers.append(getattr(library.nn, f"ConvTranspose{axes}d")(4, 6, 3, dtype=library.float64, **options))
    assert repr(layers[0]) == repr(layers[1])
    assert [p.tolist() for p in layers[0].parameters()] == [p.tolist() for p in layers[1].parameters()]
    x = rng.standard_normal((2, 4, *(5, 4, 3)[:axes]))
    more = {1: 0, 2: 1}[layers[0].stride[0]] - layers[0].output_padding[0]
    size = tuple(n + more for n in layers[0](x).shape[2:])
    for call in (lambda f, x: f(x), lambda f, x: f(x[0]), lambda f, x: f(x, output_size=size)):
        leaves = tc.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        found, expected = (call(layer, leaf) for layer, leaf in zip(layers, leaves, strict=True))
        np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-12, atol=1e-12)
        found.square().sum().backward()
        expected.square().sum().backward()
        np.testing.assert_allclose(leaves[0].grad.tolist(), leaves[1].grad.tolist(), rtol=1e-12, atol=1e-12)


def test_padding(rng):
    x = rng.standard_normal((2, 3, 4))
    for pads in [(1, 2), (0, 0, 3, 1), (-1, 2, 1, -1, 2, 2), (-2, -2)]:
        np.testing.assert_array_equal(F.pad(x, pads, value=2.5), R.pad(x, pads, 2.5))
    for dtype in (np.int32, bool, np.uint8, np.float16):
        assert F.pad(np.ones(2, dtype), (1, 0), value=1).tolist() == [1, 1, 1] and F.pad(np.ones(2, dtype), (1, 0)).dtype == dtype
    with pytest.raises(TypeError, match="value 0.5 cannot be written to a tensor of int32"):
        F.pad(np.ones(2, np.int32), (1, 0), value=0.5)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    for mode, name in names.items():
        np.testing.assert_array_equal(F.pad(x, (3, 1, 2, 0), mode), np.pad(x, [(0, 0), (2, 0), (3, 1)], mode=name))
        assert tc.testing.gradcheck(lambda t, m=mode: F.pad(t, (3, 1, 2, 0), m), tc.tensor(x, requires_grad=True))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 70, 40)])
def test_what_is_padded_has_the_elements_of_what_is_recorded(shape, mode, rng):
    """Places are copied, or parts are joined: also where too few elements stay for those that are added."""
    few = (shape[-1] - 1, 1 - shape[-1]), (2, 3 - shape[-1]), (2 - shape[-1], 1)
    for dtype in ("float32", "bfloat16"):
        whole = tc.tensor(rng.standard_normal(shape)).to(dtype)
        for x in (whole, whole.transpose(0, 2), whole[:, ::2, 1:]):
            for pads in ((0, 0, 0, 0), (1, 0, 0, 1), (-1, 0, 1, 1), (2, -1, -1, 0), (1, 1, 1, 1, 1, 1), *few):
                try:
                    recorded = F.pad(x.clone().requires_grad_(), pads, mode)
                except ValueError as error:
                    with pytest.raises(ValueError, match=re.escape(str(error))):
                        F.pad(x, pads, mode)
                    continue
                assert recorded._dtype_name == dtype and tc.equal(F.pad(x, pads, mode), recorded.detach())


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.int64, np.float64])
def test_padding_of_every_dtype(dtype, mode, rng):
    x = rng.integers(0, 2 if dtype is np.bool_ else 99, (3, 5, 4)).astype(dtype)
    name = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    expected = np.pad(x, [(0, 0), (2, 3), (1, 0)], mode=name)
    padded = F.pad(x, (1, 0, 2, 3), mode)
    assert padded.dtype == dtype
    np.testing.assert_array_equal(padded, expected)
    assert _core.pad_by_itself(tc.tensor(x), mode, 2**70, 0) is None and _core.pad_by_itself(tc.tensor(x), mode, 2**40, 0) is None


# ---- next to PyTorch ---------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using padding=.same.")
def test_next_to_pytorch(rng):
    functional = pytest.importorskip("torch").nn.functional
    import torch

    for axes, groups, stride, padding, dilation in itertools.product((1, 2), (1, 2), (1, 3), (0, 2, "same", "valid"), (1, 2)):
        if padding == "same" and stride != 1:
            continue
        arrays = [rng.standard_normal(s) for s in ((2, 4, *(9, 7)[:axes]), (6, 4 // groups, *(3, 2)[:axes]), (6,))]
        ours, theirs = [tc.tensor(a, requires_grad=True) for a in arrays], [torch.tensor(a, requires_grad=True) for a in arrays]
        name, options = f"conv{axes}d", {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        y, expected = getattr(F, name)(*ours, **options), getattr(functional, name)(*theirs, **options)
        np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
        (y * y).sum().backward()
        (expected * expected).sum().backward()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_layers_are_those_of_pytorch(mode, rng):
    torch = pytest.importorskip("torch")
    for name, shape, options in [
        ("Conv1d", (2, 4, 9), {"kernel_size": 3, "padding": 2}),
        ("Conv2d", (2, 4, 9, 8), {"kernel_size": (4, 3), "padding": "same", "groups": 2}),
        ("Conv2d", (4, 9, 8), {"kernel_size": 2, "stride": (2, 1), "bias": False}),
    ]:
        modules = []
        for library, seed in ((tc, tc.manual_seed), (torch, torch.manual_seed)):
            seed(3)
            modules.append(getattr(library.nn, name)(4, 6, padding_mode=mode, **options))
        ours, theirs = modules
        assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
        for key, value in theirs.state_dict().items():
            np.testing.assert_array_max_ulp(ours.state_dict()[key].numpy(), value.numpy(), maxulp=1)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(ours(x), theirs(torch.tensor(x)).detach().numpy(), rtol=0, atol=2e-6)


def test_the_repr_of_a_layer_shows_what_is_unusual():
    """As PyTorch does."""
    layer = tc.nn.Conv2d(2, 4, 3, padding=1, dilation=2, groups=2, bias=False, padding_mode="reflect")
    assert repr(layer) == (
        "Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(2, 2), groups=2, bias=False, padding_mode=reflect)"
    )
    assert repr(tc.nn.Conv1d(2, 4, 3, stride=2)) == "Conv1d(2, 4, kernel_size=(3,), stride=(2,))"
    assert repr(tc.nn.Conv1d(2, 4, 3, padding="same")) == "Conv1d(2, 4, kernel_size=(3,), stride=(1,), padding=same)"


def test_first_values_of_a_layer():
    """Uniform up to 1 / sqrt(the products of one result), as in PyTorch."""
    tc.manual_seed(1)
    layer = tc.nn.Conv2d(8, 64, 3, groups=2)
    bound = 1 / np.sqrt(4 * 3 * 3)
    for values in (layer.weight, layer.bias):
        assert 0.9 * bound < float(values.max()) <= bound and -bound <= float(values.min()) < -0.9 * bound


def test_valid_adds_nothing_in_any_mode():
    layer, x = tc.nn.Conv1d(1, 1, 3, padding="valid", padding_mode="reflect"), tc.ones(1, 1, 5)
    assert layer(x).shape == (1, 1, 3)


def test_an_embedding_from_a_table(rng):
    table = rng.standard_normal((5, 3)).astype(np.float32)
    layer = tc.nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad and repr(layer) == "Embedding(5, 3)"
    np.testing.assert_array_equal(layer(np.array([4, 0])), table[[4, 0]])
    trained = tc.nn.Embedding.from_pretrained(tc.tensor(table), freeze=False, padding_idx=1)
    trained(tc.tensor([1, 2])).sum().backward()
    assert trained.weight.grad.numpy().any(1).tolist() == [False, False, True, False, False]
    np.testing.assert_array_equal(trained.weight.detach().numpy(), table)
    tc.manual_seed(0)
    expected = tc.rand(1).item()
    tc.manual_seed(0)
    tc.nn.Embedding.from_pretrained(table)
    assert tc.rand(1).item() == expected
    with pytest.raises(TypeError, match=r"embeddings must be a table of floats, .* got int64 of shape \(2,\)"):
        tc.nn.Embedding.from_pretrained(np.arange(2))


@pytest.mark.parametrize(
    ("x", "weight"),
    [((24, 512, 14, 14), (128, 512, 3, 3)), ((6000, 4, 8), (64, 4, 3))],
    ids=["sums over k in parts", "fewer windows than columns"],
)
def test_memory_does_not_grow_with_the_batch(x, weight):
    """Beside y and the zeros around some samples: what one turn of the samples makes is freed before the next one."""
    taken = []
    for samples in (x[0] // 6, x[0]):
        given, kernel = np.ones((samples, *x[1:]), np.float32), np.ones(weight, np.float32)
        convolve = F.conv2d if len(x) == 4 else F.conv1d
        convolve(given[:1], kernel, padding=1)
        _core.memory_reset_peak()
        before = _core.memory_stats()["in_use"]
        y = convolve(given, kernel, padding=1)
        taken.append(_core.memory_stats()["peak_in_use"] - before - y.nbytes)
    assert taken[1] < taken[0] + 3 * 2**20


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_no_samples_takes_no_memory(stride):
    length = 2**40
    windows = -(-length // stride)
    gradients = _core.convolution_backward(
        np.zeros((0, 1, windows), np.float32), np.zeros((0, 1, length), np.float32), np.ones((1, 1, 1), np.float32), (stride,), (0,), (1,)
    )
    assert gradients[0].shape == (0, 1, length) and not np.asarray(gradients[1]).any()
