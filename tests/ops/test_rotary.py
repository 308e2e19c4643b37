"""Rotary position embedding against its definition by complex numbers, on every instruction set; cases for the tests of all ops (op_cases.py)."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

PAIRINGS = ["half", "interleaved"]

GRADCHECK = {
    "rotary": [
        lambda d: (lambda x: _core.rotary(x, base=7.0), d.normal(*d.shape(2), 2 * d.length())),
        lambda d: (lambda x: _core.rotary(x, np.arange(x.shape[-2])[::-1], pairing="interleaved"), d.normal(*d.shape(2), 2 * d.length())),
    ]
}
BACKWARD_ARGUMENTS = {"rotary": lambda rng: [rng.random((2, 3, 4)), np.arange(3)]}
SAVED = {"`rotary` of x (N, C)": [(lambda x, p=p: _core.rotary(x, pairing=p), ["N,C"]) for p in PAIRINGS]}
SHAPES = [(1, 2), (3, 4), (5, 6), (2, 3, 7, 34), (4, 0, 8), (0, 3, 2), (3, 0), (2, 130, 64)]


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_against_the_definition(isa, pairing, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(dtype)
        y = tc.functional.rotary(x, pairing=pairing)
        assert y.dtype == dtype and y.shape == shape
        assert_close(y, R.rotary(x, pairing=pairing), dtype)
        assert_close(_core.rotary_backward(x, pairing=pairing), R.rotary(x, pairing=pairing, inverse=True), dtype)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_positions(isa, pairing, rng):
    x = rng.standard_normal((2, 3, 5, 8))
    far = rng.integers(-(10**9), 10**9, 5)
    for positions in (np.arange(5) + 7, far, np.arange(5) / 3, np.arange(10).reshape(2, 1, 5), np.arange(3)[:, None], np.int32(4)):
        scale = 1 + np.abs(positions).max()  # the angle itself is rounded
        assert_close(_core.rotary(x, positions, pairing=pairing), R.rotary(x, positions, pairing=pairing), np.float64, scale=scale)
        assert_close(_core.rotary(x.astype(np.float32), positions, pairing=pairing), R.rotary(x, positions, pairing=pairing), np.float32)
    assert_close(_core.rotary(x, base=3.5), R.rotary(x, base=3.5), np.float64)


def test_far_positions_lose_no_digits(isa):
    """The angle of the first pair is the position itself: nothing but its sine and cosine is rounded."""
    positions = np.array([49, 4049, 10**6, 10**9, -(10**9)])
    x = np.tile([1.0, 0.0], (len(positions), 1))
    expected = np.stack([np.cos(positions), np.sin(positions)], -1)
    np.testing.assert_allclose(_core.rotary(x, positions), expected, atol=4e-16, rtol=0)
    np.testing.assert_allclose(_core.rotary(x.astype(np.float32), positions), expected, atol=2e-7, rtol=0)


def test_products_depend_on_distance_alone(rng):
    q, k = rng.standard_normal((2, 1, 16))
    at = [[tc.functional.rotary(v, np.array([p])) for v, p in ((q, a), (k, b))] for a, b in ((3, 1), (1002, 1000))]
    np.testing.assert_allclose(*(float((q @ k.T)[0, 0]) for q, k in at), rtol=1e-9)


def test_strides_threads_and_gradients(isa, threads, rng):
    base = rng.standard_normal((8, 60, 40)).astype(np.float32)
    for x in (base[:, ::-2, ::2], base.transpose(1, 0, 2), np.broadcast_to(base[0], (5, 60, 40)), base.astype(">f4")):
        np.testing.assert_array_equal(_core.rotary(x), _core.rotary(np.ascontiguousarray(x, np.float32)))
    y = _core.rotary(base)
    _core.set_num_threads(1)
    np.testing.assert_array_equal(_core.rotary(base), y)
    x, positions = tc.tensor(base, requires_grad=True), np.arange(60)[::-1]
    tc.functional.rotary(x, positions).backward(tc.tensor(base))
    assert_close(x.grad.numpy(), R.rotary(base, positions, inverse=True), np.float32)


def test_empty_with_more_positions_than_memory():
    x = tc.zeros(0, 2**40, 4, requires_grad=True)
    y = tc.functional.rotary(x)
    assert y.shape == x.shape and y.requires_grad


@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_positions_leave_no_memory(kind):
    x, positions = tc.ones(1, 64, 4), np.arange(64, dtype=kind)
    tc.functional.rotary(x, positions)
    before = _core.memory_stats()["in_use"]
    for _ in range(20):
        tc.functional.rotary(x, positions)
    assert _core.memory_stats()["in_use"] == before


def test_not_finite():
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [1.0, 1.0]], np.float32)
    y = tc.functional.rotary(x, np.array([0, 1, np.nan]))
    assert np.isnan(y[0, 0]) and np.isnan(y[2]).all() and np.isinf(y[1]).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tc.functional.rotary(x[:, :3]), ValueError, r"x has shape \(4, 3\); expected \(..., T, D\) with an even D"),
        (lambda x: tc.functional.rotary(x[0]), ValueError, r"x has shape \(6,\)"),
        (
            lambda x: tc.functional.rotary(x, np.arange(3)),
            ValueError,
            r"positions has shape \(3,\), which does not broadcast to the rows \(4,\)",
        ),
        (lambda x: tc.functional.rotary(x, np.ones(4, bool)), TypeError, "positions is bool"),
        (
            lambda x: tc.functional.rotary(x, tc.ones(4, requires_grad=True)),
            NotImplementedError,
            "positions requires a gradient, which this op",
        ),
        (lambda x: tc.functional.rotary(x, base=0), ValueError, "base is 0"),
        (lambda x: tc.functional.rotary(x, base=np.inf), ValueError, "base is inf"),
        (lambda x: tc.functional.rotary(x, pairing="even"), ValueError, "pairing is 'even'; expected 'half'"),
        (lambda x: tc.functional.rotary(x.astype(int)), TypeError, "x is int64"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((4, 6), np.float32))
