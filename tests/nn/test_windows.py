"""Pooling and unfold: functions and layers against loops over windows in NumPy, and next to PyTorch."""

import math

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import functional as F


def starts(length, kernel, stride, padding, dilation, ceil):
    """Where windows begin, in an axis to which `padding` is not yet added."""
    last = length + padding - dilation * (kernel - 1) - 1
    found = list(range(-padding, last + 1, stride))
    if ceil and -padding + stride * len(found) < length and found[-1] < last:
        found.append(found[-1] + stride)
    return found


def pooled(x, dy, kernel, stride, padding, dilation, ceil, mean_of=None):
    """(y, dx) of images: the first of the largest elements of windows, or, with `mean_of` "all" or "own", their means."""
    rows, columns = (
        starts(n, *of_axis, ceil) for n, of_axis in zip(x.shape[2:], zip(kernel, stride, padding, dilation, strict=True), strict=True)
    )
    y, dx = np.empty((*x.shape[:2], len(rows), len(columns))), np.zeros_like(x)
    (height, width), dy = x.shape[2:], np.ones(()) if dy is None else dy
    for place in np.ndindex(y.shape):
        r0, c0 = rows[place[2]], columns[place[3]]
        window = [(r0 + dilation[0] * i, c0 + dilation[1] * j) for i in range(kernel[0]) for j in range(kernel[1])]
        inside = [(r, c) for r, c in window if 0 <= r < height and 0 <= c < width]
        values = [x[(*place[:2], *at)] for at in inside]
        grad = np.broadcast_to(dy, y.shape)[place]
        if mean_of is None:
            first = int(np.argmax(values))
            y[place] = values[first]
            dx[(*place[:2], *inside[first])] += grad
        else:
            n = len(inside)
            if mean_of == "all":
                n = math.prod(min(s + k, m + p) - s for s, k, m, p in zip((r0, c0), kernel, x.shape[2:], padding, strict=True))
            y[place] = sum(values) / n
            for at in inside:
                dx[(*place[:2], *at)] += grad / n
    return y, dx


def columns_of(x, kernel, stride, padding, dilation):
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    rows, columns = (range(0, n - d * (k - 1), s) for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True))
    patches = [
        x[:, :, r : r + dilation[0] * kernel[0] : dilation[0], c : c + dilation[1] * kernel[1] : dilation[1]][
            :, :, : kernel[0], : kernel[1]
        ]
        for r in rows
        for c in columns
    ]
    return np.stack([p.reshape(x.shape[0], -1) for p in patches], -1)


OPTIONS = [  # kernel, stride, padding, dilation, ceil_mode, shape of images
    ((2, 2), (2, 2), (0, 0), (1, 1), False, (6, 8)),
    ((3, 3), (2, 2), (1, 1), (1, 1), False, (7, 6)),
    ((3, 2), (1, 3), (1, 0), (1, 2), False, (5, 9)),
    ((2, 3), (2, 2), (1, 1), (1, 1), True, (5, 6)),
    ((3, 3), (3, 3), (0, 1), (2, 1), True, (8, 7)),
    ((1, 1), (2, 1), (0, 0), (1, 1), False, (4, 1)),
    ((4, 1), (1, 1), (2, 0), (1, 1), False, (2, 3)),
]


def recorded(function, x, dy=None):
    t = tc.tensor(x).requires_grad_()
    y = function(t)
    y.backward(tc.ones_like(y) if dy is None else tc.tensor(dy))
    return y.detach().numpy(), t.grad.numpy()


@pytest.mark.parametrize("option", OPTIONS, ids=range(len(OPTIONS)))
def test_max_pool(option, rng):
    *given, ceil, shape = option
    kernel, stride, padding, dilation = given
    x = np.maximum(rng.integers(-3, 4, (2, 3, *shape)), 0).astype(float)  # many equal elements: which gets the gradient?
    y, _ = pooled(x, None, *given, ceil)
    dy = rng.standard_normal(y.shape)
    y, dx = pooled(x, dy, *given, ceil)
    found, grad = recorded(lambda t: F.max_pool2d(t, kernel, stride, padding, dilation, ceil), x, dy)
    np.testing.assert_array_equal(found, y)
    np.testing.assert_allclose(grad, dx, atol=1e-15)
    values, places = tc.nn.MaxPool2d(kernel, stride, padding, dilation, True, ceil)(x)
    np.testing.assert_array_equal(values, y)
    np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), places.reshape(2, 3, -1), -1), y.reshape(2, 3, -1))
    whole = F.max_pool2d(x.astype(int), kernel, stride, padding, dilation, ceil)
    assert whole.dtype.kind == "i" and (whole == y).all()
    np.testing.assert_array_equal(F.max_pool2d(x[0], kernel, stride, padding, dilation, ceil), y[0])
    if kernel[0] == stride[0] == dilation[0] == 1 and not padding[0]:
        np.testing.assert_array_equal(tc.nn.MaxPool1d(kernel[1], stride[1], padding[1], dilation[1])(x[:, :, 0]), y[:, :, 0])


@pytest.mark.parametrize("own", [False, True], ids=["with padding", "without"])
@pytest.mark.parametrize("option", OPTIONS, ids=range(len(OPTIONS)))
def test_avg_pool(option, own, rng):
    kernel, stride, padding, _, ceil, shape = option
    given = kernel, stride, padding, (1, 1)
    x = rng.standard_normal((2, 3, *shape))
    y, _ = pooled(x, None, *given, ceil, mean_of="own" if own else "all")
    dy = rng.standard_normal(y.shape)
    y, dx = pooled(x, dy, *given, ceil, mean_of="own" if own else "all")
    found, grad = recorded(lambda t: F.avg_pool2d(t, kernel, stride, padding, ceil, not own), x, dy)
    np.testing.assert_allclose(found, y, atol=1e-14)
    np.testing.assert_allclose(grad, dx, atol=1e-14)
    np.testing.assert_allclose(tc.nn.AvgPool2d(kernel, stride, padding, ceil, not own)(x), y, atol=1e-14)
    tripled = F.avg_pool2d(x, kernel, stride, padding, ceil, not own, divisor_override=3)
    np.testing.assert_allclose(tripled, F.avg_pool2d(x, kernel, stride, padding, ceil, True, divisor_override=1) / 3, atol=1e-14)
    line = x[:, :, 0]
    expected = F.avg_pool2d(line[:, :, None], (1, kernel[1]), (1, stride[1]), (0, padding[1]), ceil, not own)[:, :, 0]
    np.testing.assert_array_equal(tc.nn.AvgPool1d(kernel[1], stride[1], padding[1], ceil, not own)(line), expected)
    np.testing.assert_array_equal(F.avg_pool1d(line, kernel[1], stride[1], padding[1], ceil, not own), expected)


@pytest.mark.parametrize("size", [1, 2, 3, (2, 5), (None, 1), (7, 6), (9, 2)], ids=str)
def test_adaptive_avg_pool(size, rng):
    x = rng.standard_normal((2, 3, 7, 6))
    sizes = [n if s is None else s for s, n in zip(size if isinstance(size, tuple) else (size, size), x.shape[2:], strict=True)]
    y = x
    for axis, out in enumerate(sizes, 2):
        n = y.shape[axis]
        parts = [np.arange(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
        y = np.stack([y.take(part, axis).mean(axis) for part in parts], axis)
    found, grad = recorded(lambda t: F.adaptive_avg_pool2d(t, size), x)
    np.testing.assert_allclose(found, y, atol=1e-14)
    np.testing.assert_allclose(grad.sum(), y.size, rtol=1e-12)  # each mean hands on its whole gradient
    np.testing.assert_array_equal(tc.nn.AdaptiveAvgPool2d(size)(x[0]), F.adaptive_avg_pool2d(x[:1], size)[0])
    line = F.adaptive_avg_pool2d(x[:, 0, None], (None, sizes[1]))[:, 0]
    np.testing.assert_allclose(tc.nn.AdaptiveAvgPool1d(sizes[1])(x[:, 0]), line, atol=1e-14)
    np.testing.assert_array_equal(tc.nn.AdaptiveAvgPool1d(sizes[1])(x[:, 0]), F.adaptive_avg_pool1d(x[:, 0], sizes[1]))


@pytest.mark.parametrize("option", OPTIONS, ids=range(len(OPTIONS)))
def test_unfold(option, rng):
    kernel, stride, padding, dilation, _, shape = option
    x = rng.standard_normal((2, 3, *shape))
    y = columns_of(x, kernel, stride, padding, dilation)
    np.testing.assert_array_equal(F.unfold(x, kernel, dilation, padding, stride), y)
    np.testing.assert_array_equal(tc.nn.Unfold(kernel, dilation, padding, stride)(x[1]), y[1])
    weight = tc.tensor(rng.standard_normal((4, 3, *kernel)))
    t = tc.tensor(x)
    product = weight.reshape(4, -1) @ F.unfold(t, kernel, dilation, padding, stride)
    expected = F.conv2d(t, weight, None, stride, padding, dilation)
    np.testing.assert_allclose(product.numpy(), expected.reshape(2, 4, -1).numpy(), atol=1e-13)
    assert tc.testing.gradcheck(lambda u: F.unfold(u, kernel, dilation, padding, stride), t.clone().requires_grad_())


def test_nan_is_the_largest():
    x = np.array([[[1.0, np.nan, 2.0, np.nan, np.nan, 3.0]]])
    np.testing.assert_array_equal(F.max_pool1d(x, 2), [[[np.nan, np.nan, np.nan]]])
    np.testing.assert_array_equal(F.max_pool1d(x, 2, padding=1), [[[1.0, np.nan, np.nan, 3.0]]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(dtype, rng):
    x = tc.tensor(rng.standard_normal((1, 2, 9, 9))).to(dtype)
    for function in (lambda t: F.avg_pool2d(t, 3), lambda t: F.adaptive_avg_pool2d(t, 2), lambda t: F.max_pool2d(t, 3)):
        assert (function(x) == function(x.float()).to(dtype)).all()


def test_padding_is_never_the_largest():
    """Nor beside elements that are as small as it."""
    assert F.max_pool1d(np.full((1, 1, 4), -5.0), 3, 1, 1).max() == -5.0
    for x in (np.zeros((1, 1, 4, 4), np.uint8), np.full((1, 1, 4, 4), -np.inf)):
        assert F.max_pool2d(x, 3, 2, 1, return_indices=True)[1].tolist() == [[[[0, 1], [4, 5]]]]
    x = tc.tensor([[[-math.inf, -math.inf, 1.0]]], requires_grad=True)
    F.max_pool1d(x, 2, 2, 1).sum().backward()
    assert x.grad.tolist() == [[[1.0, 0.0, 1.0]]]


def test_no_places_of_padding_without_padding(monkeypatch):
    monkeypatch.setattr(np, "pad", None)
    assert F.max_pool1d(tc.tensor([[[1.0, 4.0, 2.0, 3.0]]]), 2).tolist() == [[[4.0, 3.0]]]
    with pytest.raises(TypeError, match="not callable"):
        F.max_pool1d(tc.tensor([[[1.0, 4.0, 2.0]]]), 2, ceil_mode=True)


@pytest.mark.parametrize("size", [12, 40, (40, 9), (1, 12)], ids=str)
def test_long_windows(size, rng):
    x = rng.standard_normal((2, 3, 40, 36))
    height, width = size if isinstance(size, tuple) else (size, min(size, 36))
    rows, columns = 40 // height, 36 // width
    expected = x[:, :, : rows * height, : columns * width].reshape(2, 3, rows, height, columns, width).mean((3, 5))
    y, dx = recorded(lambda t: F.avg_pool2d(t, (height, width)), x)
    np.testing.assert_allclose(y, expected, atol=1e-14)
    np.testing.assert_allclose(dx[:, :, : rows * height, : columns * width], 1 / (height * width), rtol=1e-13)
    assert not dx[:, :, rows * height :].any()


def test_what_layers_show():
    assert repr(tc.nn.MaxPool2d(3, 2, 1)) == "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)"
    assert repr(tc.nn.AvgPool2d((2, 1))) == "AvgPool2d(kernel_size=(2, 1), stride=(2, 1), padding=0)"
    assert repr(tc.nn.AdaptiveAvgPool1d(3)) == "AdaptiveAvgPool1d(output_size=3)"
    assert repr(tc.nn.Unfold(2)) == "Unfold(kernel_size=2, dilation=1, padding=0, stride=1)"


X = np.zeros((2, 3, 4, 5))
ERRORS = {
    "kernel": (lambda: F.max_pool2d(X, 0), ValueError, "kernel_size must be at least 1, got 0"),
    "kernels": (
        lambda: F.avg_pool2d(X, (1, 2, 3)),
        ValueError,
        r"kernel_size must be an int or have one for each of 2 axes, got \(1, 2, 3\)",
    ),
    "stride": (lambda: tc.nn.MaxPool1d(2, 0), ValueError, "stride must be at least 1, got 0"),
    "padding": (lambda: F.max_pool2d(X, 2, padding=2), ValueError, r"padding must be at most half of a window, got padding \(2, 2\)"),
    "no window": (lambda: F.max_pool2d(X, 6), ValueError, r"max_pool2d: windows of \(6, 6\) are longer than input of shape \(2, 3, 4, 5\)"),
    "no patch": (lambda: F.unfold(X, 3, dilation=3), ValueError, r"unfold: windows of \(7, 7\) are longer than input"),
    "axes": (lambda: F.max_pool1d(X, 2), ValueError, r"max_pool1d takes input of shape \(samples, channels, length\), or without samples"),
    "axes of patches": (lambda: F.unfold(X[0, 0], 2), ValueError, r"unfold takes input of shape \(samples, channels, height, width\)"),
    "integers": (lambda: F.avg_pool2d(X.astype(int), 2), TypeError, r"avg_pool2d takes floats, got int64; convert input with .float\(\)"),
    "bools": (lambda: F.max_pool2d(X > 0, 2), TypeError, "max_pool2d takes numbers, got bool"),
    "divisor": (lambda: F.avg_pool2d(X, 2, divisor_override=0), ValueError, "divisor_override must be at least 1, got 0"),
    "sizes": (lambda: F.adaptive_avg_pool2d(X, (1, 2, 3)), ValueError, "output_size must be an int or have one for each of 2 axes"),
    "size": (lambda: tc.nn.AdaptiveAvgPool1d(0), ValueError, "output_size must be at least 1, got 0"),
    "nothing": (lambda: F.adaptive_avg_pool2d(X[:, :, :0], 1), ValueError, "needs an element on each axis"),
    "no elements": (
        lambda: F.max_pool1d(X[0, :, :, :0], 2, padding=1),
        ValueError,
        r"needs an element on each axis .* got input of shape \(3, 4, 0\)",
    ),
    "a word": (lambda: tc.nn.MaxPool2d(2, ceil_mode="yes"), TypeError, "ceil_mode must be a bool, got 'yes'"),
    "a divisor": (lambda: tc.nn.AvgPool2d(2, divisor_override="a"), TypeError, "divisor_override must be an int, got 'a'"),
    "sizes of a layer": (
        lambda: tc.nn.AdaptiveAvgPool2d((1, 2, 3)),
        ValueError,
        "output_size must be an int or have one for each of 2 axes",
    ),
    "none": (lambda: F.max_pool2d(None, 2), TypeError, "input is None"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        call()


def test_next_to_pytorch(rng):
    torch = pytest.importorskip("torch")
    for _ in range(100):
        kernel, stride, dilation = (int(rng.integers(1, n)) for n in (5, 4, 3))
        padding, ceil = int(rng.integers(0, kernel // 2 + 1)), bool(rng.integers(2))
        x = np.maximum(rng.standard_normal((2, 3, *rng.integers(3, 14, 2))), 0)
        shared = {"kernel_size": kernel, "stride": stride, "padding": padding}
        for name, options in {
            "max_pool2d": {**shared, "dilation": dilation, "ceil_mode": ceil},
            "max_pool1d": {**shared, "dilation": dilation, "ceil_mode": ceil, "return_indices": True},
            "avg_pool2d": {**shared, "ceil_mode": ceil, "count_include_pad": bool(rng.integers(2))},
            "unfold": {**shared, "dilation": dilation},
            "adaptive_avg_pool2d": {"output_size": (kernel, stride)},
        }.items():
            given = x[:, :, 0] if name == "max_pool1d" else x
            t = torch.tensor(given, requires_grad=True)
            try:
                expected = getattr(torch.nn.functional, name)(t, **options)
            except RuntimeError:
                with pytest.raises(ValueError, match="windows of"):
                    getattr(F, name)(given, **options)
                continue
            if name == "max_pool1d":
                np.testing.assert_array_equal(F.max_pool1d(given, **options)[1], expected[1].numpy())
                expected, options = expected[0], {**options, "return_indices": False}
            dy = rng.standard_normal(expected.shape)
            expected.backward(torch.tensor(dy))
            y, dx = recorded(lambda u, name=name, options=options: getattr(F, name)(u, **options), given, dy)
            np.testing.assert_allclose(y, expected.detach().numpy(), atol=1e-13, err_msg=f"{name} {options}")
            np.testing.assert_allclose(dx, t.grad.numpy(), atol=1e-13, err_msg=f"{name} {options}")
