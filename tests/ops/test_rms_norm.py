"""RMS normalisation, forward and backward, on every instruction set; the layer beside PyTorch's; what tests of all ops take (op_cases.py)."""

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close, tolerance
from transformer_c import _core
from transformer_c.testing import reference as R

# rows and features: nothing, one, primes, around the widths, several chunks of rows
SHAPES = [(0, 4), (3, 0), (1, 1), (5, 7), (2, 15), (7, 16), (4, 17), (67, 31), (130, 33), (3, 257), (2, 1031), (67, 32), (50, 128)]
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

GRADCHECK = {
    "rms_norm": [
        lambda d: (lambda x, w: _core.rms_norm(x, w.shape, w, 1e-3), d.normal(d.length(), 2, 4), d.normal(4)),
        lambda d: (lambda x: _core.rms_norm(x, x.shape[1:]), d.normal(*d.shape(3))),
    ]
}
BACKWARD_ARGUMENTS = {"rms_norm": lambda rng: [rng.random((2, 3, 4)), rng.random((2, 3, 4)), rng.random(4), rng.random((2, 3))]}
SAVED = {"`rms_norm` of x (N, C) with weight": [(lambda x, w: _core.rms_norm(x, w.shape, w), ["N,C", "C"])]}
LAYERS = {"RMSNorm": tc.nn.RMSNorm}
ON_DEVICES = {  # a warp per row and a block per row, with and without vectors
    "rms_norm": (
        lambda x, w: tc.functional.rms_norm(x, w.shape, w, 1e-3),
        lambda x, w: R.rms_norm(x, w, 1e-3)[0],
        lambda dy, x, w: R.rms_norm_backward(dy, x, w, 1e-3),
        [((n, c), (c,)) for n, c in [(1, 1), (5, 7), (67, 16), (3, 1031), (2, 1032)]],
    )
}


def operands(rng, shape, dtype):
    return [(3 * rng.standard_normal(s) + 1).astype(DTYPES[dtype]) for s in (shape, shape[-1], shape)]


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(isa, shape, dtype, rng):
    x, gamma, dy = operands(rng, shape, dtype)
    for g in (gamma, None):
        (y, rstd), expected = _core.rms_norm_forward(x, g, 1e-3), R.rms_norm(x, g, 1e-3)
        assert_close(y, expected[0], dtype, shape[-1], name="y")
        (dx, dgamma), scale = _core.rms_norm_backward(dy, x, g, rstd), 1 + np.abs(expected[1]).max(initial=0)
        wanted = R.rms_norm_backward(dy, x, np.ones(shape[-1]) if g is None else g, 1e-3)
        if shape[-1]:
            assert_close(rstd, expected[1], "float64" if dtype == "float64" else "float32", shape[-1], name="rstd")
        for name, got, want in (("dx", dx, wanted[0]), ("dgamma", dgamma, wanted[1])):
            assert_close(got, want, dtype, gradient=True, scale=scale * (1 + np.abs(want).max(initial=0)), name=name)


def test_several_axes_and_strides(isa, rng):
    base, gamma = rng.standard_normal((4, 6, 5, 8)), rng.standard_normal((5, 8))
    for x in (base, base[::-1, ::2], base.astype(">f8"), base.swapaxes(0, 1), np.broadcast_to(base[0, 0], (3, 5, 8))):
        assert_close(_core.rms_norm(x, (5, 8), gamma, 1e-3), R.rms_norm(x, gamma, 1e-3, normalized_ndim=2)[0], "float64")


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_infinity_stay_in_their_rows(isa, rng):
    x, gamma, _ = operands(rng, (5, 40), "float32")
    x[1, 3], x[3, 39] = np.nan, np.inf
    y = _core.rms_norm(x, 40, gamma)
    assert np.isnan(y[1]).all() and np.isnan(y[3, 39])
    assert_close(y[[0, 2, 4]], R.rms_norm(x, gamma)[0][[0, 2, 4]], "float32", 40)


def test_same_bits_for_any_threads(isa, threads, rng):
    x, gamma, dy = operands(rng, (900, 130), "float32")
    results = []
    for count in (_core.get_num_threads(), 1):
        _core.set_num_threads(count)
        y, rstd = _core.rms_norm_forward(x, gamma)
        results.append([y, rstd, *_core.rms_norm_backward(dy, x, gamma, rstd)])
    assert all(map(np.array_equal, *results))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_beside_pytorch(dtype, eps):
    """Small numbers, to which the default eps matters: for halves, too, it is that of float32."""
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.RMSNorm((2, 3), eps=eps, dtype=getattr(torch, dtype)), tc.nn.RMSNorm((2, 3), eps=eps).to(dtype)
    assert repr(ours) == repr(theirs)
    x = torch.linspace(-2e-4, 3e-4, 12, dtype=torch.float64).reshape(2, 2, 3).to(getattr(torch, dtype))
    y = ours(tc.tensor(x.double().numpy()).to(dtype)).detach()
    assert_close(y.double().numpy(), theirs(x).detach().double().numpy(), scale=2 * tolerance(dtype) / tolerance("float64"), name="y")


X = np.ones((2, 3))
BAD = [
    ((X, 2), ValueError, r"normalized_shape is \(2,\), but x has shape \(2, 3\)"),
    ((X, ()), ValueError, r"normalized_shape is \(\); it must have"),
    ((X, 3, np.ones(2)), ValueError, r"weight \(gamma\) has shape \(2,\) but x is normalised over its last axes \(3,\)"),
    ((X, 3, np.ones(3, np.float32)), TypeError, "weight.*float32"),
]


@pytest.mark.parametrize("arguments, error, words", BAD)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=words):
        _core.rms_norm(*arguments)
