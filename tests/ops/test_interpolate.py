"""functional.interpolate against PyTorch's golden values and a sum over the elements of a signal that repeats its ends."""

import math

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c import functional as F

GOLDEN = load("interpolation")


def cubic(t, a):
    t = abs(t)
    return (a + 2) * t**3 - (a + 3) * t**2 + 1 if t < 1 else a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def row(mode, antialias, place, scale, length):
    """The weights of one new element, whose centre is at `place`; the length of the elements that it covers is `scale`."""
    weights = np.zeros(length)
    kernel = (lambda t: cubic(t, -0.5 if antialias else -0.75)) if mode == "bicubic" else lambda t: max(0.0, 1 - abs(t))
    if antialias:
        weights[:] = [kernel((i - place) / max(1, scale)) for i in range(length)]
        return weights / weights.sum()
    for i in range(-3, length + 3):
        weights[min(max(i, 0), length - 1)] += kernel(i - place)
    return weights


def matrix(mode, antialias, corners, factor, length, out):
    if length == out:
        factor = factor if mode == "bicubic" and not antialias else None
    if mode == "area":
        parts = [np.arange(length)[i * length // out : math.ceil((i + 1) * length / out)] for i in range(out)]
        return np.stack([np.isin(np.arange(length), part) / len(part) for part in parts])
    scale = 1 / factor if factor and not corners else (length - 1) / (out - 1) if corners and out > 1 else 0 if corners else length / out
    if mode.startswith("nearest"):
        places = [math.floor((i + (0 if mode == "nearest" else 0.5)) * scale + 1e-9) for i in range(out)]
        return np.eye(length)[np.minimum(places, length - 1)]
    centres = [i * scale if corners and not antialias else (i + 0.5) * scale - 0.5 for i in range(out)]
    return np.stack([row(mode, antialias, place, scale, length) for place in centres])


def matrices(shape, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    given = size if scale_factor is None else scale_factor
    given = given if isinstance(given, (tuple, list)) else [given] * len(shape)
    sizes = given if scale_factor is None else [math.floor(n * f) for n, f in zip(shape, given, strict=True)]
    factors = [None] * len(shape) if scale_factor is None or recompute_scale_factor else given
    return [matrix(mode, antialias, align_corners, *of_axis) for of_axis in zip(factors, shape, sizes, strict=True)]


def reference(x, found):
    x = np.asarray(x, np.float64)
    for axis, weights in enumerate(found, 2):
        x = np.moveaxis(np.tensordot(x, weights, (axis, 1)), -1, axis)
    return x


@pytest.mark.parametrize("case", GOLDEN)
def test_golden(case):
    options, arrays = GOLDEN[case]
    found = matrices(arrays["x"].shape[2:], **options)
    y, dx = reference(arrays["x"], found), reference(arrays["dy"], [m.T for m in found])
    assert_close(arrays["f64.y"], y, scale=10)
    assert_close(arrays["f64.dx"], dx, scale=10)
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        x = tc.tensor(arrays["x"]).to(dtype).requires_grad_()
        result = F.interpolate(x, **options)
        result.backward(tc.tensor(arrays["dy"]).to(dtype))
        assert result.dtype == x.grad.dtype == x.dtype and result.shape == arrays["f64.y"].shape
        if dtype.startswith("float") and dtype != "float16":
            assert_close(result.detach().numpy(), y, dtype, 10, scale=4)
            assert_close(x.grad.numpy(), dx, dtype, gradient=True, scale=10)
        else:  # rounded once, from what float32 gives
            expected = F.interpolate(x.detach().float(), **options).to(dtype)
            assert result.detach().float().tolist() == expected.float().tolist()


def test_arrays_and_layouts(rng):
    x = rng.standard_normal((2, 6, 5, 3))
    for given in (x.transpose(0, 3, 1, 2), np.asfortranarray(x), x[:, ::-1, ::2], x.astype(">f8"), x[:0], x[:, :0]):
        for options in ({"size": (7, 2)}, {"size": (7, 2), "mode": "bicubic", "antialias": True}):
            y = F.interpolate(given, **options)
            assert type(y) is np.ndarray and y.dtype == np.float64
            np.testing.assert_allclose(y, reference(given, matrices(given.shape[2:], **options)), atol=1e-13)
    same = tc.tensor(x)
    np.testing.assert_array_equal(F.interpolate(x, 9, mode="bicubic"), F.interpolate(same, 9, mode="bicubic").numpy())
    y = F.interpolate(same, (5, 3), mode="bilinear")  # a tensor of its own, of the same values
    y += 1
    np.testing.assert_array_equal(same.numpy(), x)
    assert F.interpolate(x.tolist(), scale_factor=2).shape == (2, 6, 10, 6)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_masks(dtype):
    mask = np.array([[[[1, 0], [0, 1]]]], dtype)
    y = F.interpolate(mask, scale_factor=(2, 1.5))
    assert y.dtype == dtype and y.tolist() == [[[[1, 1, 0]] * 2 + [[0, 0, 1]] * 2]]


def test_nearest_by_factors_of_which_nothing_is_left():
    """The distance of new elements is 1 / scale_factor where the length stays, too; of two axes, lengths alone count if they stay or double."""
    x = np.arange(3.0)
    for shape, double in (((1, 1, 3), [0, 0, 0, 1, 1, 2]), ((1, 1, 1, 3), [0, 0, 1, 1, 2, 2]), ((1, 1, 1, 1, 3), [0, 0, 0, 1, 1, 2])):
        ones = (1,) * (len(shape) - 3)
        same = [0, 1, 2] if ones == (1,) else [0, 0, 1]
        assert F.interpolate(x.reshape(shape), scale_factor=(*ones, 1.2)).ravel().tolist() == same
        assert F.interpolate(x.reshape(shape), scale_factor=(*ones, 2.2)).ravel().tolist() == double
        assert F.interpolate(x.reshape(shape), scale_factor=(*ones, 1.3), mode="nearest-exact").ravel().tolist() == [0, 1, 1]
        assert F.interpolate(x.reshape(shape), scale_factor=(*ones, 1.2), recompute_scale_factor=True).ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_takes_the_same_elements_with_gradients(mode, rng):
    """By whole factors, which are powers of two or not, and others: elements are repeated only where no gradient is recorded."""
    for lengths in ((3, 5), (7,), (2, 3, 4)):
        x = tc.tensor(rng.standard_normal((2, 3, *lengths)))
        for values in (x, x.mT):
            for factor in (1, 2, 3, 4, 0.5, 1.5, 2.2, 7, 8, 16):
                for recompute in (False, True):
                    y = F.interpolate(values, scale_factor=factor, mode=mode, recompute_scale_factor=recompute)
                    recorded = F.interpolate(
                        values.clone().requires_grad_(), scale_factor=factor, mode=mode, recompute_scale_factor=recompute
                    )
                    assert (y == recorded).all() and y.shape == recorded.shape and not np.shares_memory(y.numpy(), x.numpy())


@pytest.mark.parametrize("lengths", [(1,), (1, 1), (3, 1), (1, 3), (1, 1, 1)])
def test_one_element_repeated_can_be_written_to(lengths, rng):
    x = tc.tensor(rng.standard_normal((2, 1, *lengths)))
    before, y = x.clone(), F.interpolate(x, scale_factor=4)
    assert y.is_contiguous()
    y.zero_()
    assert (x == before).all()


def test_infinity_stays_where_nothing_is_resized():
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    x[0, 0, 1, 1] = np.inf
    y = F.interpolate(x, (3, 8), mode="bilinear")
    assert np.isfinite(y[0, 0, [0, 2]]).all() and not np.isfinite(y[0, 0, 1]).all()


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "area", "nearest"])
def test_gradients(mode):
    shape, size = ((1, 2, 5), 7) if mode == "linear" else ((1, 2, 3, 4), (5, 2))
    x = tc.rand(*shape, dtype="float64", requires_grad=True, rng=0)
    for antialias in (False, True) if mode in ("bilinear", "bicubic") else (False,):
        assert tc.testing.gradcheck(lambda t, a=antialias: F.interpolate(t, size, mode=mode, antialias=a), x)


def test_position_embeddings_of_another_resolution():
    """The usual lines; the gradient arrives in the parameter."""
    table = tc.nn.Parameter(tc.rand(1, 14 * 14, 8, rng=0))
    grid = table.reshape(1, 14, 14, 8).permute(0, 3, 1, 2)
    new = F.interpolate(grid, scale_factor=(16.1 / 14, 20.1 / 14), mode="bicubic", align_corners=False)
    new.permute(0, 2, 3, 1).flatten(1, 2).sum().backward()
    assert new.shape == (1, 8, 16, 20) and np.isfinite(table.grad.numpy()).all() and abs(table.grad.sum().item() - 16 * 20 * 8) < 1e-2


X, ROWS = np.ones((1, 2, 3, 4)), np.ones((1, 2, 5))
ERRORS = [
    (lambda: F.interpolate(X), ValueError, "needs either size or scale_factor, got neither"),
    (lambda: F.interpolate(X, 3, 2.0), ValueError, "needs either size or scale_factor, got both"),
    (lambda: F.interpolate(X, (3, 4, 5)), ValueError, r"size must be an int or have one for each of 2 axes, got \(3, 4, 5\)"),
    (lambda: F.interpolate(X, (3, 0)), ValueError, "size must be at least 1, got 0"),
    (lambda: F.interpolate(X, 3.0), TypeError, "size must be an int, got 3.0"),
    (lambda: F.interpolate(X, scale_factor=(1, 2, 3)), ValueError, "scale_factor must be a number or have one for each of 2 axes"),
    (lambda: F.interpolate(X, scale_factor=-1), ValueError, "scale_factor must be positive and finite, got -1"),
    (lambda: F.interpolate(X, scale_factor=float("nan")), ValueError, "scale_factor must be positive and finite, got nan"),
    (lambda: F.interpolate(X, scale_factor="2"), TypeError, "scale_factor must be a number, got '2'"),
    (lambda: F.interpolate(X, scale_factor=0.3), ValueError, r"makes the lengths \(3, 4\) into \(0, 1\); each must be at least 1"),
    (lambda: F.interpolate(X, 3, mode="cubic"), ValueError, "mode must be 'nearest' or .*, got 'cubic'"),
    (lambda: F.interpolate(X, 3, mode="linear"), ValueError, r"mode 'linear' takes input of 3 axes .*; got shape \(1, 2, 3, 4\)"),
    (
        lambda: F.interpolate(X[0], 3, mode="bicubic"),
        ValueError,
        r"takes input of 4 axes .*; got shape \(2, 3, 4\): x\[None\] adds an axis",
    ),
    (lambda: F.interpolate(X[0, 0], 3), ValueError, r"mode 'nearest' takes input of 3 to 5 axes .*; got shape \(3, 4\)"),
    (lambda: F.interpolate(X[:, :, :0], 3), ValueError, r"input has shape \(1, 2, 0, 4\); an axis that is resized must have"),
    (lambda: F.interpolate(X, 3, align_corners=False), ValueError, "mode 'nearest' takes no align_corners, got False; leave it out"),
    (lambda: F.interpolate(X, 3, antialias=True), ValueError, "antialias=True is for mode 'bilinear' or 'bicubic', got 'nearest'"),
    (lambda: F.interpolate(ROWS, 3, mode="linear", antialias=True), ValueError, "antialias=True is for mode 'bilinear' or 'bicubic'"),
    (lambda: F.interpolate(X, 3, recompute_scale_factor=True), ValueError, "is for scale_factor, got size"),
    (lambda: F.interpolate(X, 3, mode="bilinear", align_corners="no"), TypeError, "align_corners must be a bool, got 'no'"),
    (lambda: F.interpolate(X.astype(int), 3, mode="bilinear"), TypeError, "mode 'bilinear' takes floats, got int64; convert input"),
    (lambda: F.interpolate(None, 3), TypeError, "input is None; expected a Tensor"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- next to PyTorch ---------------------------------------------------------------------------------------------------------------


def test_next_to_pytorch(rng):
    torch = pytest.importorskip("torch")
    for _ in range(300):
        mode = str(rng.choice(["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"]))
        axes = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, 2)
        x = rng.standard_normal((2, 1, *rng.integers(1, (30, 20, 6)[axes - 1], axes)))
        size = [int(n) for n in rng.integers(2, (60, 30, 9)[axes - 1], axes)]  # at least 2: make_golden.py
        options = {"mode": mode, "antialias": mode in ("bilinear", "bicubic") and bool(rng.integers(2))}
        if mode.endswith(("linear", "cubic")):
            options["align_corners"] = [None, True, False][rng.integers(3)]
        y, expected = F.interpolate(x, size, **options), torch.nn.functional.interpolate(torch.tensor(x), size, **options).numpy()
        if mode.startswith("nearest"):  # PyTorch rounds at float32 or float64, by the layout
            assert (y != expected).mean() < 0.05
        else:
            np.testing.assert_allclose(y, expected, atol=1e-12, err_msg=f"{x.shape} {size} {options}")
