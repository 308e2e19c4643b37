"""qkv_projection: one product, three views of it."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

PACKINGS = {"head": "per_head", "qkv": "stacked"}  # ours: the reference's
CASES = [  # leading axes and T, C, H, D
    ((2, 5), 7, 1, 4), ((3, 16), 32, 2, 16), ((1, 1), 1, 1, 1), ((2, 3, 4), 5, 3, 2),
    ((6,), 8, 4, 3), ((0, 5), 6, 2, 3), ((2, 0), 6, 2, 3), ((2, 3), 0, 2, 3),
    ((40, 9), 13, 5, 7),
]  # fmt: skip


def operands(rng, lead, C, H, D, dtype):
    return [rng.standard_normal(s).astype(dtype) for s in ((*lead, C), (3 * H * D, C), (3 * H * D,))]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(isa, case, dtype, packing, rng):
    lead, C, H, D = case
    x, weight, bias = operands(rng, lead, C, H, D, dtype)
    for b in (bias, None):
        got = _core.qkv_projection_forward(x, weight, b, num_heads=H, packing=packing)
        for g, e in zip(got, R.qkv_projection(x, weight, b, H, PACKINGS[packing]), strict=True):
            assert_close(g, e, dtype, C, scale=max(1, C))
    gradients = [rng.standard_normal(g.shape).astype(dtype) for g in got]
    got = _core.qkv_projection_backward(*gradients, x, weight, num_heads=H, packing=packing)
    for name, g, e in zip(
        ("dx", "dweight", "dbias"), got, R.qkv_projection_backward(*gradients, x, weight, bias, H, PACKINGS[packing]), strict=True
    ):
        assert_close(g, e, dtype, gradient=True, name=name, scale=max(1, np.abs(e).max(initial=0)))


@pytest.mark.parametrize("packing", PACKINGS)
def test_gradients_in_place_and_gathered_give_the_same(packing, rng):
    """Three views of one tensor, in the forward's layout, are read directly; anything else is gathered first."""
    x, weight, bias = operands(rng, (3, 5), 6, 2, 4, "float64")
    windows = _core.qkv_projection_forward(x, weight, bias, num_heads=2, packing=packing)  # used as gradients
    assert all(w.base is not None for w in windows)
    in_place = _core.qkv_projection_backward(*windows, x, weight, num_heads=2, packing=packing)
    gathered = _core.qkv_projection_backward(*(w.copy() for w in windows), x, weight, num_heads=2, packing=packing)
    swapped = _core.qkv_projection_backward(windows[1], windows[0], windows[2], x, weight, num_heads=2, packing=packing)
    for a, b in zip(in_place, gathered, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(swapped[0], in_place[0])
    expected = R.qkv_projection_backward(windows[1], windows[0], windows[2], x, weight, bias, 2, PACKINGS[packing])
    for g, e in zip(swapped, expected, strict=True):
        assert_close(g, e, "float64", gradient=True)


def test_windows_share_one_buffer(rng):
    x, weight, bias = (tc.tensor(a) for a in operands(rng, (2, 5), 6, 2, 4, "float32"))
    held = _core.memory_stats()["in_use"]
    parts = _core.qkv_projection(x, weight, bias, num_heads=2)
    assert all(p.shape == (2, 2, 5, 4) for p in parts)
    assert _core.memory_stats()["in_use"] - held <= 2 * 3 * parts[0].numel() * 4 + 4096  # the result, and the packed weight


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("used", [(0, 1, 2), (0,), (1, 2), (2,)], ids=str)
def test_gradients_on_the_tape(packing, used, rng):
    arrays = operands(rng, (2, 3), 5, 2, 2, "float64")
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    parts = _core.qkv_projection(*tensors, num_heads=2, packing=packing)
    gradients = [rng.standard_normal(tuple(p.shape)) if i in used else np.zeros(tuple(p.shape)) for i, p in enumerate(parts)]
    for n, i in enumerate(used):
        parts[i].backward(tc.tensor(gradients[i]), retain_graph=n + 1 < len(used))
    for tensor, e in zip(tensors, R.qkv_projection_backward(*gradients, *arrays, 2, PACKINGS[packing]), strict=True):
        assert_close(tensor.grad.numpy(), e, "float64", gradient=True)


def test_half_type(rng):
    x, weight, bias = operands(rng, (2, 3), 5, 2, 2, "float16")
    for g, e in zip(_core.qkv_projection(x, weight, bias, num_heads=2), R.qkv_projection(x, weight, bias, 2), strict=True):
        assert_close(g, e, "float16")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(num_heads=5), ValueError, r"weight has shape \(12, 3\).*5 heads, a multiple of 3 \* 5"),
        (dict(num_heads=0), ValueError, "num_heads is 0"),
        (dict(weight=np.ones((13, 3))), ValueError, r"\(13, 3\)"),
        (dict(weight=np.ones(3)), ValueError, "expected two axes"),
        (dict(x=np.ones(3)), ValueError, r"expected \(..., T, C\)"),
        (dict(x=np.ones((2, 4))), ValueError, "x has 4 features but weight takes 3"),
        (dict(bias=np.ones(3)), ValueError, "bias has shape"),
        (dict(packing="kqv"), ValueError, "packing is 'kqv'; expected 'head'"),
        (dict(x=np.ones((2, 3), np.float32)), TypeError, "x is float32 but weight is float64"),
    ],
)
def test_bad_input(arguments, error, message):
    good = dict(x=np.ones((2, 3)), weight=np.ones((12, 3)), bias=np.ones(12), num_heads=2)
    with pytest.raises(error, match=message):
        _core.qkv_projection(**{**good, **arguments})


def test_bad_gradients():
    x, weight, d = np.ones((2, 3)), np.ones((12, 3)), np.ones((2, 2, 2))
    with pytest.raises(ValueError, match=r"dk has shape \(2, 2, 3\); expected \(2, 2, 2\)"):
        _core.qkv_projection_backward(d, np.ones((2, 2, 3)), d, x, weight, num_heads=2)
