"""Functions of `functional` at kinks, at zero vectors, with NaN, and numbers that do not fit: PyTorch's values and gradients."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c import functional as F

NAN, INF = np.nan, np.inf


def value_and_gradient(function, x):
    x = tc.tensor(np.array(x, np.float64)).requires_grad_()
    y = function(x)
    y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


# (function, arguments, its values, its gradients), as PyTorch 2 has them
EDGES = {
    "softplus at 0": (lambda x: F.softplus(x, 1.0, 5.0), [0.0, -1e3, 1e3], [np.log(2), 0, 1e3], [0.5, 0, 1]),
    "softplus, a high threshold": (lambda x: F.softplus(x, 2.0, 1e3), [400.0, 600.0], [400, 600], [1, 1]),
    "softplus of NaN": (lambda x: F.softplus(x, 1.0, 5.0), [NAN], [NAN], [NAN]),
    "hardtanh": (F.hardtanh, [NAN, -1, 1, 0.5, INF], [NAN, -1, 1, 0.5, 1], [0, 0, 0, 1, 0]),
    "relu6": (F.relu6, [NAN, 0, 6, 3, 7], [NAN, 0, 6, 3, 6], [0, 0, 0, 1, 0]),
    "hardsigmoid": (F.hardsigmoid, [NAN, -3, 3, 0], [NAN, 0, 1, 0.5], [0, 0, 0, 1 / 6]),
    "hardshrink": (F.hardshrink, [NAN, -0.5, 0.5, 0.6, INF], [NAN, 0, 0, 0.6, INF], [1, 0, 0, 1, 1]),
    "softshrink": (F.softshrink, [NAN, -0.5, 0.5, 1.5, -INF], [NAN, 0, 0, 1, -INF], [1, 0, 0, 1, 1]),
    "tanhshrink": (F.tanhshrink, [NAN, 0, INF], [NAN, 0, INF], [NAN, 0, 1]),
    "threshold": (lambda x: F.threshold(x, 0.5, -1.0), [NAN, 0.5, 0.6, -INF], [NAN, -1, 0.6, -1], [1, 0, 1, 0]),
    "rrelu": (lambda x: F.rrelu(x, 0.5, 1.0), [NAN, 0, -4, 2], [NAN, 0, -3, 2], None),
    "elu of NaN": (F.elu, [NAN, 0, -1], [NAN, 0, np.expm1(-1)], [1, 1, np.exp(-1)]),
    "celu, a negative alpha": (
        lambda x: F.celu(x, -2.0),
        [-3, 0, 3, NAN],
        [-2 * np.expm1(1.5), 0, 3, NAN],
        [np.exp(1.5), 1, 1, 1],
    ),
    "smooth_l1_loss": (
        lambda x: F.smooth_l1_loss(x, tc.zeros(3).double(), "none", 2.0),
        [NAN, 2, -INF],
        [NAN, 1, INF],
        [NAN, 1, -1],
    ),
    "huber_loss": (lambda x: F.huber_loss(x, tc.zeros(3).double(), "none", 2.0), [NAN, 2, -1], [NAN, 2, 0.5], [NAN, 2, -1]),
    "l1_loss": (lambda x: F.l1_loss(x, tc.zeros(3).double(), "none"), [NAN, 0, -2], [NAN, 0, 2], [0, 0, -1]),
    "normalize zeros": (F.normalize, [[0, 0]], [[0, 0]], [[1e12, 1e12]]),
    "normalize zeros, p 1/2": (lambda x: F.normalize(x, 0.5), [[0, 0]], [[0, 0]], [[1e12, 1e12]]),
    "normalize a tie, p infinity": (lambda x: F.normalize(x, INF), [[2, 2]], [[1, 1]], [[0, 0]]),
    "a small vector": (lambda x: F.normalize(x, eps=1e-300), [[1e-200, 0]], [[1e100, 0]], None),
    "the distance of equals": (lambda x: F.pairwise_distance(x, tc.ones(1, 2).double(), eps=0.0), [[1, 1]], [0], [[0, 0]]),
    "the distance of equals, p 1/2": (lambda x: F.pairwise_distance(x, tc.ones(1, 2).double(), 0.5, 0.0), [[1, 1]], [0], [[0, 0]]),
    "a tie, p infinity": (lambda x: F.pairwise_distance(x, tc.zeros(1, 2).double(), INF, 0.0), [[2, 2]], [2], [[0.5, 0.5]]),
    "triplet of equals": (
        lambda x: F.triplet_margin_loss(x, np.array([[1.0, 0]]), np.array([[0.0, 5]]), eps=0.0),
        [[1, 0]],
        0,
        [[0, 0]],
    ),
    "triplet at the margin": (
        lambda x: F.triplet_margin_loss(x, np.array([[0.0]]), np.array([[3.0]]), eps=0.0),
        [[1]],
        0,
        [[2]],
    ),
    "ranking at the margin": (lambda x: F.margin_ranking_loss(x, np.zeros(1), np.ones(1)), [0], 0, [-1]),
    "cosine loss of zeros": (
        lambda x: F.cosine_embedding_loss(x, np.ones((1, 4)), np.array([1])),
        [[0, 0, 0, 0]],
        1,
        np.full((1, 4), -1e6 / np.sqrt(4 + 1e-12)),
    ),
    "cosine loss at the margin": (lambda x: F.cosine_embedding_loss(x, np.array([[0.0, 1]]), np.array([-1])), [[1, 0]], 0, [[0, 1]]),
    "cosine loss, another target": (lambda x: F.cosine_embedding_loss(x, np.ones((1, 2)), np.array([2])), [[1, 0]], 0, [[0, 0]]),
    "variances below and at eps": (
        lambda v: F.gaussian_nll_loss(np.array([1.0, 1.0]), np.array([1.002, 1.0]), v, reduction="none"),
        [1e-8, 1e-6],
        [(np.log(1e-6) + 4) / 2, np.log(1e-6) / 2],
        [-1.5e6, 5e5],
    ),
    "clamp to one value": (lambda x: tc.clamp(tc.zeros(1).double(), x, 1.0), [1.0], [1], [0]),
    "clamp to crossed bounds": (lambda x: tc.clamp(tc.zeros(1).double(), x, 1.0), [2.0], [1], [0]),
    "clamp from below": (lambda x: tc.clamp(tc.zeros(1).double(), x, 1.0), [0.5], [0.5], [1]),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    function, x, expected, slopes = EDGES[name]
    y, dx = value_and_gradient(function, x)
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-10)
    if slopes is not None:
        np.testing.assert_allclose(dx, slopes, rtol=1e-5, atol=1e-10)


def test_softplus_of_halves_does_not_overflow():
    x = np.array([11.5, -11.5], np.float16)
    np.testing.assert_array_equal(F.softplus(x, 1.0, 15.0), np.log1p(np.exp(x.astype(np.float64))).astype(np.float16))


@pytest.mark.parametrize("C", [3, 17, 40, 300])
def test_a_variance_beyond_float32_is_no_number(isa, C):
    """A row of zeros would hide that the squares overflow."""
    x = np.linspace(-1, 1, 4 * C, dtype=np.float32).reshape(4, C)
    x[1] *= np.float32(1e30)
    y = np.asarray(F.layer_norm(x, (C,)))
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2, 3]]).all()


def test_large_and_small_vectors():
    assert F.cosine_similarity(np.full((1, 2), 1e20, np.float32), np.ones((1, 2), np.float32)).tolist() == [0.0]  # the length overflows
    assert F.normalize(np.array([[1e-25, 0]], np.float32), eps=1e-30).tolist() == [[np.float32(1e5), 0]]


OUTSIDE = {
    "pad": lambda number, dtype: F.pad(np.zeros(2, dtype), (1, 1), value=number),
    "full": lambda number, dtype: tc.full((2,), number, dtype=dtype),
    "fill_": lambda number, dtype: tc.zeros(2, dtype=dtype).fill_(number),
    "an assignment": lambda number, dtype: tc.zeros(2, dtype=dtype).__setitem__(slice(1), number),
    "masked_fill": lambda number, dtype: tc.zeros(2, dtype=dtype).masked_fill(np.array([True, False]), int(number)),
    "where": lambda number, dtype: tc.where(np.array([True, False]), tc.zeros(2, dtype=dtype), int(number)),
    "scatter": lambda number, dtype: tc.scatter(np.zeros(2, dtype), 0, np.array([0]), int(number)),
    "scatter with reduce": lambda number, dtype: tc.scatter(np.zeros(2, dtype), 0, np.array([0]), int(number), reduce="add"),
}


BESIDE = {
    "add": lambda x, number: x + number,
    "add in place": lambda x, number: x.__iadd__(number),
    "reflected sub": lambda x, number: number - x,
    "mul": lambda x, number: x * number,
    "floor_divide": lambda x, number: x // number,
    "remainder": lambda x, number: x % number,
    "pow": lambda x, number: number**x,
    "bitwise_and": lambda x, number: x & number,
    "maximum": lambda x, number: tc.maximum(x, number),
    "minimum": lambda x, number: tc.minimum(number, x),
    "clamp": lambda x, number: tc.clamp(x, number, None),
    "clip": lambda x, number: tc.clip(x, 0, number),
    "alpha": lambda x, number: tc.add(x, x, alpha=number),
    "of NumPy": lambda x, number: x + np.int64(number),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize(("dtype", "least", "most"), [("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1)])
def test_a_number_beside_integers_is_one_of_their_dtype(name, dtype, least, most):
    """It wrapped around: the maximum of uint8 and 1000 was 232."""
    call = BESIDE[name]
    call(tc.tensor([0, 1], dtype=dtype), most)
    for number in (least - 1, most + 1):
        for x in (tc.tensor([0, 1], dtype=dtype), np.array([0, 1], dtype)):
            if isinstance(x, np.ndarray) and name not in ("maximum", "minimum", "clamp", "clip", "alpha"):
                continue
            with pytest.raises(ValueError, match=rf"value {number} does not fit {dtype}, whose .*; int64 has room for it"):
                call(x, number)
    assert call(tc.tensor([0, 1]), most + 1).dtype == np.int64


def test_a_tensor_of_one_number_beside_integers_fits_them():
    """It does not decide the dtype, as a number does not."""
    x = tc.tensor([0, 255], dtype="uint8")
    for call in (tc.maximum, tc.add, lambda a, b: a // b):
        with pytest.raises(ValueError, match="value 1000 does not fit uint8"):
            call(x, tc.tensor(1000))
    assert tc.maximum(x, tc.tensor(7)).tolist() == [7, 255] and (x + tc.tensor([1000])).tolist() == [1000, 1255]


def test_comparisons_and_quotients_take_any_integer():
    x = tc.tensor([0, 255], dtype="uint8")
    assert (x < 1000).tolist() == (x != -1).tolist() == (x > -1).tolist() == [True, True] and (x == 256).tolist() == [False, False]
    assert (x / 1000).dtype == np.float32 and (x + 1000.0).dtype == np.float32 and (tc.tensor([True]) + 1000).tolist() == [1001]
    assert tc.tensor([3], dtype="uint8").logical_and(1000).tolist() == [True]


def test_ranges_and_drawn_integers_fit_their_dtype():
    """PyTorch wraps around in arange and refuses the others."""
    for call in (
        lambda: tc.arange(250, 260, dtype="uint8"),
        lambda: tc.arange(0, -2, -1, dtype="uint8"),
        lambda: tc.linspace(0, 1000, 3, dtype="uint8"),
        lambda: tc.randint(0, 257, (3,), dtype="uint8"),
        lambda: tc.randint(-1, 5, (3,), dtype="uint8"),
        lambda: tc.randperm(300, dtype="uint8"),
    ):
        with pytest.raises(ValueError, match=r"value -?\d+ does not fit uint8, whose numbers are 0 to 255"):
            call()
    for low, high, dtype in ((0, 70_000, "float16"), (-70_000, 0, "float16"), (0, 3, "bool"), (-1, 2, "bool")):
        with pytest.raises(ValueError, match=f"integers from {low} to {high - 1} do not fit {dtype}; int64 has room for them"):
            tc.randint(low, high, (3,), dtype=dtype)
    with pytest.raises(ValueError, match=f"high is {2**63}; expected an int of at most 64 bits"):
        tc.randint(0, 2**63, (3,))
    with pytest.raises(ValueError, match=f"low is {-(2**63) - 1}; expected an int of at most 64 bits"):
        tc.randint(-(2**63) - 1, 0, (3,))
    with pytest.raises(ValueError, match="low must be below high, got low=300 and high=300"):
        tc.randint(300, 300, (3,), dtype="uint8")
    with pytest.raises(TypeError, match=r"high must be an int, got 2.5 \(float\)"):
        tc.randint(0, 2.5, (3,))
    assert (
        tc.randint(0, 65_504, (50,), dtype="float16", rng=0).isfinite().all() and tc.randint(0, 2, (3,), dtype="bool", rng=0).dtype == bool
    )
    assert sorted(tc.randperm(256, dtype="uint8", rng=0).tolist()) == list(range(256)) and tc.randperm(0, dtype="uint8").dtype == np.uint8
    assert tc.randint(-(2**63), 1 - 2**63, (2,)).tolist() == [-(2**63)] * 2 and tc.randint(2**63 - 2, 2**63 - 1, (1,)).item() == 2**63 - 2
    assert tc.arange(250, 256, dtype="uint8").tolist() == list(range(250, 256)) and tc.arange(300, 300, dtype="uint8").tolist() == []
    assert tc.linspace(0, 255, 2, dtype="uint8").tolist() == [0, 255] and tc.linspace(3, 1000, 1, dtype="uint8").tolist() == [3]
    assert tc.randint(0, 256, (50,), dtype="uint8", rng=0).numpy().max() > 127


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(("dtype", "least", "most"), [("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1), ("int64", -(2**63), 2**63 - 1)])
def test_a_number_that_does_not_fit_is_refused(name, dtype, least, most):
    write = OUTSIDE[name]
    for number in (least, most):
        if name != "pad" or dtype != "int64":
            write(number, dtype)
    for number in (least - 1, most + 1, float(2.0**70)):
        with pytest.raises(
            (ValueError, OverflowError, TypeError),
            match=rf"does not fit {dtype}|int64|float64 of its own|too large|too big|more than 64 bits",
        ):
            write(number, dtype)


def test_what_does_not_fit_changes_nothing():
    x = tc.zeros(2, dtype="uint8")
    with pytest.raises(ValueError, match="value 300 does not fit uint8, whose numbers are 0 to 255"):
        x[0] = 300
    with pytest.raises(ValueError, match="value nan does not fit int64"):
        tc.full((2,), NAN, dtype="int64")
    with pytest.raises(ValueError, match="has no float64 of its own"):
        F.pad(np.zeros(2, np.int64), (1, 1), value=2**60 + 1)
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize(("mode", "pads"), [("constant", (-2, 3)), ("constant", (3, -2)), ("replicate", (-5, 6)), ("reflect", (-4, 2))])
def test_an_axis_loses_at_most_its_length(mode, pads):
    with pytest.raises(ValueError, match="loses at most its length|removes more than there is"):
        F.pad(np.ones((1, 1 if mode == "constant" else 3)), pads, mode=mode)
    assert F.pad(np.ones(2), (-2, 3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["pad", "circular", "dropout", "dropout in eval"])
def test_results_of_arrays_are_new(name):
    x = np.ones((1, 3))
    x.flags.writeable = False
    y = {
        "pad": lambda: F.pad(x, (0, 0), mode="reflect"),
        "circular": lambda: F.pad(x, (), mode="circular"),
        "dropout": lambda: F.dropout(x, 0.0),
        "dropout in eval": lambda: F.dropout(x, 0.5, training=False),
    }[name]()
    assert not np.shares_memory(x, y) and y.flags.writeable and (y == x).all()


def test_one_softmax():
    assert F.softmax is tc.softmax and F.log_softmax is tc.log_softmax
    assert F.softmax(np.zeros(2, np.int64), 0, "float64").dtype == np.float64


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tc.nn.Embedding(3, 2, padding_idx="a"), TypeError, "padding_idx must be an int"),
        (lambda: tc.nn.Embedding(3, 2, padding_idx=3), ValueError, "padding_idx 3 is outside the table of 3"),
        (
            lambda: tc.nn.Embedding(3, 2, max_norm=1.0),
            ValueError,
            r"Embedding\(max_norm=1\.0\) is not possible: rows and gradients are not re",
        ),
        (lambda: tc.nn.Embedding(3, 2, scale_grad_by_freq=True), ValueError, r"Embedding\(scale_grad_by_freq=True\) is not possible"),
        (lambda: tc.nn.LayerNorm("8"), TypeError, "normalized_shape must be an int"),
        (lambda: tc.nn.RMSNorm((2, 1.5)), TypeError, "normalized_shape must be an int"),
        (lambda: tc.nn.Dropout("0.1"), TypeError, "dropout probability must be a number"),
        (lambda: F.dropout(np.ones(2), "0.1"), TypeError, "dropout probability must be a number"),
        (lambda: F.dropout(np.ones(2), 1.5), ValueError, "dropout probability must be between 0 and 1"),
        (lambda: F.hardtanh(np.ones(2), "a"), TypeError, "min_val must be a number"),
        (lambda: F.pairwise_distance(np.ones(2), np.ones(2), "a"), TypeError, "p must be a number"),
    ],
)
def test_arguments_of_another_kind_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


MOST, MORE = (1,) * 16, (1,) * 17


@pytest.mark.parametrize(
    "make",
    [
        lambda: tc.tensor(np.ones(MORE)),
        lambda: tc.as_tensor(np.ones(MORE)),
        lambda: tc.exp(np.ones(MORE)),
        lambda: tc.ones(2) + np.ones(MORE),
        lambda: tc.ones(*MORE),
        lambda: tc.ones(*MOST).unsqueeze(0),
        lambda: tc.ones(1).expand(MORE),
        lambda: tc.ones(1).reshape(MORE),
        lambda: tc.stack([tc.ones(*MOST)]),
    ],
)
def test_a_tensor_has_at_most_16_axes(make):
    assert tc.tensor(np.ones(MOST)).sum().item() == 1.0
    with pytest.raises(ValueError, match="at most 16 (axes|are supported)"):
        make()


def test_no_gradients_are_not_clipped():
    with pytest.raises(ValueError, match="there are no gradients to clip"):
        _core.gradient_clip([], 1.0, 2.0)


def test_thresholds_of_integers_keep_their_dtype():
    """Both numbers are rounded towards zero, as in PyTorch."""
    found = F.threshold(tc.tensor([-2, -1, 0], dtype=tc.int32), -1.5, 2.5)
    assert found.dtype == tc.int32 and found.tolist() == [2, 2, 0]
    with pytest.raises(ValueError, match="does not fit uint8"):
        F.threshold(np.array([1], np.uint8), 2, -3)
