"""Attention: the tutorial's function and the general one, forward and backward, against the float64 reference."""

import re

import numpy as np
import pytest
from tolerance import assert_close
from transformer_c import _core, testing
from transformer_c.functional import scaled_dot_product_attention
from transformer_c.testing import reference

# B, H, Hk, Tq, Tk, d, dv: lengths around vectors and blocks of 48 queries and 128 keys, head sizes of every kind of remainder.
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (1, 1, 1, 3, 3, 2, 2),
    (2, 2, 2, 2, 3, 2, 5),
    (3, 1, 1, 16, 16, 32, 32),
    (2, 4, 2, 17, 33, 31, 8),
    (1, 3, 1, 33, 17, 8, 31),
    (1, 2, 2, 130, 130, 64, 80),
    (2, 2, 1, 17, 130, 80, 130),
    (1, 2, 2, 130, 3, 130, 64),
    (1, 1, 1, 49, 300, 33, 16),
]
EMPTY = [(0, 2, 2, 3, 4, 8, 8), (2, 2, 2, 0, 4, 8, 8), (2, 2, 2, 3, 0, 8, 8), (2, 1, 1, 3, 4, 0, 2), (1, 1, 1, 3, 4, 2, 0)]
DTYPES = ["float32", "float64"]


def operands(rng, shape, dtype):
    B, H, Hk, Tq, Tk, d, dv = shape
    return tuple(rng.standard_normal(s).astype(dtype) for s in ((B, H, Tq, d), (B, Hk, Tk, d), (B, Hk, Tk, dv)))


def mask_shapes(shape):
    """Ranks 1 to 4, every axis once of length 1."""
    B, H, _, Tq, Tk, _, _ = shape
    return [(Tk,), (Tq, Tk), (H, 1, Tk), (B, 1, 1, Tk), (1, H, Tq, 1), (B, H, Tq, Tk)]


def leaves(*arrays):
    tensors = tuple(_core.as_tensor(a) for a in arrays)
    for t in tensors:
        t.requires_grad = True
    return tensors


def gradients(results, upstream, inputs):
    """Of sum(result * upstream) over the results that have one."""
    losses = [_core.sum(_core.mul(r, u)) for r, u in zip(results, upstream, strict=True) if u is not None]
    loss = losses[0]
    for other in losses[1:]:
        loss = _core.add(loss, other)
    loss.backward()
    return [np.asarray(t.grad) for t in inputs]


def check_gradients(actual, expected, dtype):
    for name, a, e in zip(("dq", "dk", "dv", "dbias"), actual, expected, strict=False):
        assert_close(a, e, dtype, gradient=True, scale=max(1.0, np.abs(e).max(initial=0)), name=name)


def magnitude(x):
    return max(1.0, np.abs(x).max(initial=0))


def check(q, k, v, rng, backward=True, **kw):
    """Values, map, lse and every gradient, those through the map and the lse included, against the reference."""
    dtype = q.dtype.name
    kw = {"enable_gqa": True, **kw}
    values, attention, lse = scaled_dot_product_attention(q, k, v, return_attention=True, return_logsumexp=True, **kw)
    expected = reference.attention(q, k, v, **kw)
    assert_close(values, expected[0], dtype, k=k.shape[-2] + q.shape[-1], scale=magnitude(expected[0]), name="values")
    assert_close(attention, expected[1], dtype, k=q.shape[-1], scale=1.0, name="attention")
    finite = np.isfinite(expected[2])
    np.testing.assert_array_equal(np.isneginf(lse), ~finite)
    assert_close(lse[finite], expected[2][finite], dtype, k=q.shape[-1], scale=magnitude(expected[2][finite]), name="lse")
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, **kw), values)  # the map changes nothing
    if not backward:
        return
    dvalues, dmap = (rng.standard_normal(x.shape).astype(dtype) for x in (values, attention))
    dlse = np.where(finite, rng.standard_normal(lse.shape), 0).astype(dtype)
    bias = kw.get("bias")
    for upstream in [(dvalues, None, None), (dvalues, dmap, dlse)]:
        inputs = leaves(q, k, v) if bias is None else leaves(q, k, v, bias)
        given = kw if bias is None else {**kw, "bias": inputs[3]}
        results = scaled_dot_product_attention(*inputs[:3], return_attention=True, return_logsumexp=True, **given)
        if upstream[2] is not None and not finite.all():
            upstream = (*upstream[:2], None)  # 0 * -inf
        actual = gradients(results, upstream, inputs)
        check_gradients(actual, reference.attention_backward(dvalues, q, k, v, dattention=upstream[1], dlse=upstream[2], **kw), dtype)


# ---- the tutorial's function ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scaled_dot_product(isa, shape, dtype, rng):
    q, k, v = operands(rng, (*shape[:2], shape[1], *shape[3:]), dtype)
    masks = [None, np.zeros(shape[3:5])] + [(rng.random(s) < 0.6).astype(t) for s in mask_shapes(shape) for t in (bool, np.float32)]
    for mask in masks:
        values, attention = _core.scaled_dot_product(q, k, v, mask)
        expected, expected_map = reference.scaled_dot_product(q, k, v, mask)
        assert_close(values, expected, dtype, k=q.shape[-1], scale=magnitude(expected), name="values")
        assert_close(attention, expected_map, dtype, k=q.shape[-1], scale=1.0, name="attention")
        np.testing.assert_array_equal(_core.scaled_dot_product_values(q, k, v, mask), values)
        dvalues, dmap = (rng.standard_normal(x.shape).astype(dtype) for x in (values, attention))
        for upstream in [(dvalues, None), (dvalues, dmap), (None, dmap)]:
            inputs = leaves(q, k, v)
            actual = gradients(_core.scaled_dot_product(*inputs, mask), upstream, inputs)
            zero = np.zeros_like(dvalues) if upstream[0] is None else dvalues
            check_gradients(actual, reference.scaled_dot_product_backward(zero, q, k, v, mask, upstream[1]), dtype)


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (2, 3, 2), (2, 1, 3, 2)], ids=str)
def test_any_leading_axes(isa, leading, rng):
    q, k, v = (rng.standard_normal((*leading, *s)) for s in ((4, 8), (6, 8), (6, 3)))
    mask = rng.random((*leading[1:], 4, 6)) < 0.7
    values, attention = _core.scaled_dot_product(q, k, v, mask)
    expected = reference.scaled_dot_product(q, k, v, mask)
    assert_close(values, expected[0], "float64")
    assert_close(attention, expected[1], "float64")


@pytest.mark.parametrize(
    "leads",
    [((2, 3), (3,), ()), ((3,), (2, 3), (2, 1)), ((), (2, 3), (1, 3)), ((1, 3), (2, 1), (2, 3)), ((2, 1, 4), (3, 1), (2, 3, 4))],
    ids=str,
)
def test_leading_axes_broadcast(isa, leads, rng):
    q, k, v = (rng.standard_normal((*lead, *s)) for lead, s in zip(leads, ((5, 8), (6, 8), (6, 3)), strict=True))
    expected, _ = reference.scaled_dot_product(q, k, v)
    inputs = leaves(q, k, v)
    results = _core.scaled_dot_product(*inputs)
    assert_close(results[0].numpy(), expected, "float64")
    dvalues = rng.standard_normal(expected.shape)
    check_gradients(gradients(results[:1], (dvalues,), inputs), reference.scaled_dot_product_backward(dvalues, q, k, v), "float64")


def test_a_row_with_every_key_masked_attends_uniformly(isa, rng):
    for dtype in DTYPES:
        q, k, v = operands(rng, (1, 2, 2, 5, 200, 8, 8), dtype)
        mask = np.ones((5, 200))
        mask[2] = 0
        values, attention = _core.scaled_dot_product(q, k, v, mask)
        assert_close(attention[:, :, 2], np.full((1, 2, 200), 1 / 200), dtype)
        assert_close(values[:, :, 2], v.astype(np.float64).mean(-2), dtype, k=200, scale=1.0)


# ---- the general function --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bounds(isa, shape, dtype, rng):
    q, k, v = operands(rng, shape, dtype)
    B, Tq, Tk = shape[0], shape[3], shape[4]
    for kw in [
        {},
        {"is_causal": True},
        {"is_causal": True, "causal_offset": Tk - Tq},
        {"is_causal": True, "causal_offset": np.arange(B) - 2},
        {"window": (3, 5), "causal_offset": 1},
        {"window": (None, 0)},
        {"window": (None, 1), "is_causal": True},
        {"window": (Tk // 3, None), "is_causal": True, "empty_rows": "uniform", "causal_offset": -4},
        {"key_lengths": np.full(B, Tk // 2)},
        {"key_lengths": np.arange(B) % (Tk + 1), "empty_rows": "uniform"},
        {"scale": 0.3, "softcap": 1.5, "is_causal": True},
    ]:
        check(q, k, v, rng, **kw)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_boolean_masks(isa, shape, dtype, rng):
    q, k, v = operands(rng, shape, dtype)
    masks = [rng.random(s) < 0.6 for s in mask_shapes(shape)] + [np.zeros(shape[3:5], bool)]
    for n, mask in enumerate(masks):
        check(q, k, v, rng, attn_mask=mask, empty_rows=("zero", "uniform")[n % 2], backward=n % 3 == 0 or n == len(masks) - 1)
    turned = np.asfortranarray(masks[1])
    np.testing.assert_array_equal(*(scaled_dot_product_attention(q, k, v, m, enable_gqa=True) for m in (masks[1], turned)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_additive_masks_and_bias(isa, shape, dtype, rng):
    q, k, v = operands(rng, shape, dtype)
    shapes = mask_shapes(shape)
    for n, s in enumerate(shapes):
        bias = rng.standard_normal(s).astype(dtype)
        check(q, k, v, rng, bias=bias)
        t = shapes[(n + 2) % len(shapes)]
        additive = np.where(rng.random(t) < 0.7, rng.standard_normal(t), -np.inf).astype(dtype)
        check(q, k, v, rng, bias=bias, attn_mask=additive, is_causal=n % 2 == 0, softcap=2.0 * (n % 3), backward=n % 2 == 0)


def test_equal_masks_are_equal(isa, rng):
    """Causal as a flag, a boolean mask, an additive mask, a window, a bias; padding as lengths and masks."""
    q, k, v = operands(rng, (2, 2, 2, 60, 150, 16, 16), "float32")
    allowed = np.arange(150) <= np.arange(60)[:, None] + 7
    added = np.where(allowed, 0, -np.inf).astype(np.float32)
    want = scaled_dot_product_attention(q, k, v, is_causal=True, causal_offset=7)
    for kw in [{"attn_mask": allowed}, {"attn_mask": added}, {"bias": added}, {"window": (None, 0), "causal_offset": [7, 7]}]:
        assert_close(scaled_dot_product_attention(q, k, v, **kw), want, "float32")
    padding = np.arange(150) < np.array([140, 20])[:, None, None, None]
    want = scaled_dot_product_attention(q, k, v, key_lengths=[140, 20])
    assert_close(scaled_dot_product_attention(q, k, v, padding), want, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_a_floating_mask(isa, dtype, rng):
    q, k, v = operands(rng, (2, 2, 2, 50, 33, 8, 8), dtype)
    mask = rng.standard_normal((2, 1, 1, 33)).astype(dtype)
    inputs = leaves(q, k, v, mask)
    values = scaled_dot_product_attention(*inputs)
    dvalues = rng.standard_normal(values.shape).astype(dtype)
    actual = gradients((values,), (dvalues,), inputs)
    check_gradients(actual, reference.attention_backward(dvalues, q, k, v, bias=mask), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_masked_is_never_read(isa, dtype, rng):
    """NaN and infinity where no query may attend: in keys and values beyond the lengths, behind masks, above the diagonal."""
    q, k, v = operands(rng, (2, 2, 2, 150, 150, 20, 24), dtype)
    clean = {"key_lengths": [100, 33]}, {"attn_mask": rng.random((150, 150)) < 0.5}, {"is_causal": True}
    for n, kw in enumerate(clean):
        bad_k, bad_v = k.copy(), v.copy()
        allowed = reference.attention_allowed((2, 2, 150, 150), **kw)
        if n == 1:  # the last fifty keys are masked for everyone
            kw["attn_mask"][:, 100:] = False
            allowed = reference.attention_allowed((2, 2, 150, 150), **kw)
        unseen = ~allowed.any(-2)
        if n == 2:  # the last two keys are seen by the last query alone, which is NaN then
            unseen[..., -1] = True
        bad_k[unseen], bad_v[unseen] = np.nan, np.inf
        rows = slice(None) if n < 2 else slice(0, 149)
        inputs = leaves(q, bad_k, bad_v)
        values = scaled_dot_product_attention(*inputs, **kw)
        assert_close(values.numpy()[:, :, rows], reference.attention(q, k, v, **kw)[0][:, :, rows], dtype, k=150, scale=1.0)
        dvalues = rng.standard_normal(values.shape).astype(dtype)
        if n < 2:
            actual = gradients((values,), (dvalues,), inputs)
            for name, a, e in zip("qkv", actual, reference.attention_backward(dvalues, q, k, v, **kw), strict=False):
                assert_close(a, e, dtype, gradient=True, scale=magnitude(e), name="d" + name)


def test_unmasked_nan_reaches_the_rows_that_see_it(isa, rng):
    q, k, v = operands(rng, (1, 1, 1, 20, 20, 4, 4), "float32")
    k[0, 0, 10] = np.nan
    values = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert np.isfinite(values[0, 0, :10]).all() and np.isnan(values[0, 0, 10:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores(isa, dtype, rng):
    """Scores of 1e4: the backward recomputes the same weights."""
    q, k, v = operands(rng, (1, 2, 2, 60, 140, 16, 8), dtype)
    q *= 1e2
    k *= 1e2
    scale = 1e4 / np.abs(q @ k.swapaxes(-1, -2)).max()
    expected, expected_map, _ = reference.attention(q, k, v, scale=scale)
    values, attention = scaled_dot_product_attention(q, k, v, scale=scale, return_attention=True)
    # a score of 1e4 in float32 is known to 1e4 * 2^-24, and so is the logarithm of a weight
    slack = 1e4 * np.finfo(dtype).eps
    assert np.abs(attention - expected_map).max() <= slack and np.abs(values - expected).max() <= 4 * slack * magnitude(expected)
    inputs = leaves(q, k, v)
    actual = gradients((scaled_dot_product_attention(*inputs, scale=scale),), (np.ones_like(values),), inputs)
    np.testing.assert_allclose(actual[2].sum(-2), np.full((1, 2, 8), 60), rtol=60 * np.finfo(dtype).eps * 8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_exponentials(isa, dtype):
    """To the last bits, from the largest to those that become 0 instead of denormal numbers."""
    below = np.linspace(0, 100 if dtype == "float32" else 760, 5001).astype(dtype)
    k = np.stack([np.zeros_like(below), -below], 1)[:, None, :, None]
    attention = _core.scaled_dot_product(np.ones((len(below), 1, 1, 1), dtype), k, np.ones_like(k))[1]
    got, expected = attention[:, 0, 0, 1], np.exp(-below.astype(np.longdouble))
    expected = expected / (1 + expected)
    limits = np.finfo(dtype)
    normal = expected >= 2 * limits.tiny
    assert (np.abs(got - expected)[normal] <= 2.5 * limits.eps * expected[normal]).all()
    assert (got[~normal] <= 2 * limits.tiny).all() and (got[expected < limits.tiny / 2] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [0.02, 0.2, -0.2], ids=str)
def test_map_of_growing_scores(isa, step, dtype, rng):
    """Each block of keys has larger scores than those whose weights are in the map already; or smaller ones. A block in between is hidden."""
    q, k, v = operands(rng, (1, 2, 2, 50, 600, 8, 5), dtype)
    bias = (step * np.arange(600) * np.linspace(0, 1, 50)[:, None]).astype(dtype)
    check(q, k, v, rng, bias=bias)
    keys = np.arange(600)
    hidden = (keys >= 256) & (keys < 384)
    check(q, k, v, rng, bias=bias, attn_mask=np.broadcast_to(~hidden, (50, 600)))


def test_gradcheck(isa, rng):
    shape = (2, 4, 2, 5, 7, 3, 4)
    q, k, v = operands(rng, shape, "float64")
    bias = rng.standard_normal((4, 1, 7))
    mask = rng.random((2, 1, 5, 7)) < 0.8
    for kw in [{}, {"attn_mask": mask, "softcap": 1.0}, {"is_causal": True, "causal_offset": [1, 2]}]:

        def f(q, k, v, b, kw=kw):
            return scaled_dot_product_attention(
                q, k, v, bias=b, enable_gqa=True, return_attention=True, return_logsumexp=True, empty_rows="uniform", **kw
            )

        assert testing.gradcheck(f, [q, k, v, bias])


# ---- dropout ------------------------------------------------------------------------------------------------------------------


def keep_multiplier(shape, p, seed, call):
    """1 / (1 - p) or 0 for each weight: element numbers of rows filled up to 64."""
    B, H, _, Tq, Tk, _, _ = shape
    padded = -(-Tk // 64) * 64
    return _core.dropout_forward(np.ones((B, H, Tq, padded)), p, seed, call)[..., :Tk]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dropout(isa, shape, dtype, rng):
    q, k, v = operands(rng, shape, dtype)
    kw = {"is_causal": True, "causal_offset": 3, "enable_gqa": True}
    for p in (0.3, 1.0):
        multiplier = keep_multiplier(shape, p, 5, 9)
        inputs = leaves(q, k, v)
        values, attention, _ = _core.attention(*inputs, dropout=p, seed=5, call=9, return_attention=True, **kw)
        expected, expected_map, _ = reference.attention(q, k, v, dropout_multiplier=multiplier, **kw)
        assert_close(values.numpy(), expected, dtype, k=shape[4], scale=magnitude(expected), name="values")
        assert_close(attention.numpy(), expected_map, dtype, k=shape[5], scale=1.0, name="attention")
        dvalues, dmap = (rng.standard_normal(x.shape).astype(dtype) for x in (values, attention))
        actual = gradients((values, attention), (dvalues, dmap), inputs)
        check_gradients(actual, reference.attention_backward(dvalues, q, k, v, dropout_multiplier=multiplier, dattention=dmap, **kw), dtype)


def test_dropout_draws_anew_each_call(rng):
    x = rng.standard_normal((1, 4, 8))
    first, again, other = (scaled_dot_product_attention(x, x, x, dropout_p=0.5, rng=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


# ---- layouts, threads, dtypes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 2, 2, 16, 16, 32, 32), (1, 1, 1, 500, 300, 16, 16), (1, 2, 1, 200, 260, 8, 8)], ids=str)
def test_same_bits_for_any_number_of_threads(isa, threads, shape):
    rng = np.random.default_rng(7)
    q, k, v = operands(rng, shape, "float32")
    bias = rng.standard_normal((1, shape[1], 1, shape[4])).astype(np.float32)
    dvalues = rng.standard_normal((*shape[:2], shape[3], shape[6])).astype(np.float32)

    def run():
        inputs = leaves(q, k, v, bias)
        results = scaled_dot_product_attention(*inputs[:3], bias=inputs[3], is_causal=True, enable_gqa=True, return_attention=True)
        return [np.asarray(r) for r in results] + gradients(results[:1], (dvalues,), inputs)

    first = run()
    _core.set_num_threads(1)
    for a, b in zip(first, run(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("packing", ["head", "qkv"])
def test_windows_on_one_projection(isa, packing, rng):
    """q, k, v are read directly from the projection, and the gradients are written in the same layout."""
    x, weight = leaves(rng.standard_normal((2, 20, 12)), rng.standard_normal((3 * 16, 12)))
    q, k, v = _core.qkv_projection(x, weight, None, 4, packing)
    values = _core.scaled_dot_product_values(q, k, v)
    assert values.permute(0, 2, 1, 3).is_contiguous()  # (B, T, H, D) in memory, as q is
    expected, _ = reference.scaled_dot_product(q.numpy(), k.numpy(), v.numpy())
    assert_close(values.numpy(), expected, "float64")
    dvalues = rng.standard_normal(values.shape)
    actual = gradients((values,), (dvalues,), (x, weight))
    joint = reference.scaled_dot_product_backward(dvalues, q.numpy(), k.numpy(), v.numpy())
    want = reference.qkv_projection_backward(
        *joint, x.numpy(), weight.numpy(), num_heads=4, packing={"head": "per_head", "qkv": "stacked"}[packing]
    )
    for name, a, e in zip(("dx", "dweight"), actual, want, strict=False):
        assert_close(a, e, "float64", gradient=True, scale=magnitude(e), name=name)


def test_any_strides(isa, rng):
    whole = rng.standard_normal((40, 3, 2, 30))
    q, k, v = whole[:, 0, :, ::2].transpose(1, 0, 2), whole[::-1, 1, :, 5:20].transpose(1, 0, 2), whole[:, 2].transpose(1, 2, 0)[:, :40, :7]
    v = np.broadcast_to(v[:, :1], (2, 40, 7))
    expected, _ = reference.scaled_dot_product(q, k, v)
    assert_close(_core.scaled_dot_product_values(q, k, v), expected, "float64")
    big = q.astype(">f8")
    big.flags.writeable = False
    assert_close(_core.scaled_dot_product_values(big, k, v), expected, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_nothing_to_do(isa, shape, dtype, rng):
    q, k, v = operands(rng, shape, dtype)
    scale = 1.0  # 1 / sqrt(0) is no scale
    for kw in [{}, {"is_causal": True}, {"empty_rows": "uniform"}, {"attn_mask": np.ones(shape[4], bool)}]:
        check(q, k, v, rng, scale=scale, **kw)


@pytest.mark.parametrize("lead", [(0,), (2, 0), (0, 0), (2, 3, 0), (0, 2, 3)], ids=str)
def test_no_heads_and_no_batch(lead, rng):
    for kw in [{}, {"is_causal": True}, {"enable_gqa": True}, {"attn_mask": np.ones((3, 5), bool)}, {"bias": np.zeros((3, 5))}]:
        inputs = leaves(*(rng.standard_normal((*lead, *s)) for s in ((3, 4), (5, 4), (5, 2))))
        values = scaled_dot_product_attention(*inputs, **kw)
        values.sum().backward()
        assert values.shape == (*lead, 3, 2) and [t.grad.shape for t in inputs] == [t.shape for t in inputs]


@pytest.mark.parametrize("lead", [(2, 3, 2), (3, 1, 2, 2)], ids=str)
def test_numbers_of_a_batch_element_serve_all_axes_after_it(lead, rng):
    q, k, v = (rng.standard_normal((*lead, *s)) for s in ((3, 4), (5, 4), (5, 2)))
    kw = {
        "key_lengths": rng.integers(0, 6, lead[0]),
        "is_causal": True,
        "causal_offset": rng.integers(-2, 4, lead[0]),
        "empty_rows": "uniform",
    }
    for keys, values in ((k, v), (k[:, :1], v[:1])):
        assert_close(scaled_dot_product_attention(q, keys, values, **kw), reference.attention(q, keys, values, **kw)[0], "float64")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(name, rng):
    dtype = np.dtype("float16") if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (x.astype(dtype) for x in operands(rng, (2, 2, 2, 20, 30, 16, 16), "float32"))
    inputs = leaves(q, k, v)
    values = scaled_dot_product_attention(*inputs, is_causal=True)
    expected = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), is_causal=True)[0]
    assert_close(values.numpy(), expected, name, scale=magnitude(expected))
    dvalues = rng.standard_normal(values.shape).astype(dtype)
    actual = gradients((values,), (dvalues,), inputs)
    for a, e in zip(actual, reference.attention_backward(dvalues, q, k, v, is_causal=True), strict=False):
        assert_close(a, e, name, scale=4 * magnitude(e))


def test_arrays_of_two_dtypes_give_the_promoted_one(rng):
    q, k, v = operands(rng, (1, 1, 1, 3, 3, 2, 2), "float64")
    assert _core.scaled_dot_product(q.astype("float32"), k, v)[0].dtype == np.float64
    assert scaled_dot_product_attention(q, k, v.astype("float32")).dtype == np.float64


def test_half_precisions_meet_others_in_float32(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    half, brain, single = (rng.standard_normal((1, 3, 2)).astype(t) for t in ("float16", bfloat16, "float32"))
    assert scaled_dot_product_attention(brain, half, brain).dtype == np.float32
    assert scaled_dot_product_attention(brain, single, half).dtype == np.float32
    assert scaled_dot_product_attention(brain, brain, half.astype("float64")).dtype == np.float64
    assert scaled_dot_product_attention(single, single, single, rng.standard_normal((3, 3)).astype(bfloat16)).dtype == np.float32
    assert scaled_dot_product_attention(brain, brain, brain).dtype == bfloat16


def test_an_offset_is_any_integer(rng):
    x = rng.standard_normal((2, 3, 2))
    want = scaled_dot_product_attention(x, x, x, is_causal=True, causal_offset=1)
    for offset in (np.int32(1), np.array(1), _core.as_tensor(np.array(1)), [1, 1]):
        np.testing.assert_array_equal(scaled_dot_product_attention(x, x, x, is_causal=True, causal_offset=offset), want)
    for far, same in ((10**30, {}), (-(10**30), {"key_lengths": [0, 0]})):
        np.testing.assert_array_equal(
            scaled_dot_product_attention(x, x, x, is_causal=True, causal_offset=far), scaled_dot_product_attention(x, x, x, **same)
        )


def test_gradient_of_an_expanded_bias(isa, rng):
    """Its strides are 0 along axes where its gradient is not broadcast."""
    q, k, v = operands(rng, (2, 2, 2, 50, 33, 8, 8), "float64")
    dvalues = rng.standard_normal((2, 2, 50, 8))
    for narrow, shape in [((1, 33), (50, 33)), ((2, 1, 1, 1), (2, 2, 50, 33)), ((50, 1), (2, 1, 50, 33))]:
        bias = np.broadcast_to(rng.standard_normal(narrow), shape)
        inputs = leaves(q, k, v, bias)
        actual = gradients((scaled_dot_product_attention(*inputs[:3], bias=inputs[3]),), (dvalues,), inputs)
        check_gradients(actual, reference.attention_backward(dvalues, q, k, v, bias=bias), "float64")


def test_forward_and_backward_apart(rng):
    q, k, v = operands(rng, (2, 2, 2, 20, 150, 8, 8), "float64")
    bias = rng.standard_normal((1, 2, 20, 150))
    values, attention, shift, total = _core.attention_forward(q, k, v, bias=bias, is_causal=True)
    expected = reference.attention(q, k, v, bias=bias, is_causal=True)
    assert_close(values, expected[0], "float64")
    assert_close(attention, expected[1], "float64", scale=1.0)
    assert_close(shift + np.log(total), expected[2], "float64", scale=1.0)
    dvalues = rng.standard_normal(values.shape)
    actual = _core.attention_backward(dvalues, q, k, v, values, shift, total, bias=bias, is_causal=True)
    check_gradients(actual, reference.attention_backward(dvalues, q, k, v, bias=bias, is_causal=True), "float64")


# ---- errors ---------------------------------------------------------------------------------------------------------------------------


def x(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: _core.scaled_dot_product(x(2, 4, 8), x(2, 4, 16), x(2, 4, 16)), ValueError,
         r"q has head size 8 but k has 16; they must be equal \(q \(2, 4, 8\), k \(2, 4, 16\)\)"),
        (lambda: _core.scaled_dot_product(x(2, 4, 8), x(2, 5, 8), x(2, 6, 8)), ValueError,
         r"k has 5 positions but v has 6; they must be equal \(k \(2, 5, 8\), v \(2, 6, 8\)\)"),
        (lambda: _core.scaled_dot_product(x(8), x(5, 8), x(5, 8)), ValueError, r"q has shape \(8,?\); it needs at least two axes"),
        (lambda: _core.scaled_dot_product(x(2, 4, 8), x(3, 4, 8), x(3, 4, 8)), ValueError, r"leading axes of q \(2, 4, 8\), k \(3, 4, 8\)"),
        (lambda: _core.scaled_dot_product(x(2, 4, 8, dtype=int), x(2, 4, 8), x(2, 4, 8)), TypeError, "q is int64; a floating dtype is needed"),
        (lambda: _core.scaled_dot_product(*leaves(x(4, 8), x(4, 8, dtype=np.float64)), x(4, 8)), TypeError, "q is float32 but k is float64"),
        (lambda: _core.scaled_dot_product(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), x(3, 4, 4)), ValueError,
         r"mask has shape \(3, 4, 4\), which does not broadcast to the scores \(..., queries, keys\) = \(2, 4, 4\)"),
        (lambda: _core.scaled_dot_product(x(4, 8), x(4, 8), x(4, 8), x(2, 4, 4)), ValueError, "does not broadcast to the scores"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), x(4, 4, dtype=int)), TypeError,
         r"attn_mask is int64; pass a boolean one, True where a key may be attended to \(attn_mask != 0\)"),
        (lambda: scaled_dot_product_attention(x(2, 4, 4, 8), x(2, 3, 4, 8), x(2, 3, 4, 8), enable_gqa=True), ValueError, "query has 4 heads, key has 3"),
        (lambda: scaled_dot_product_attention(x(2, 4, 4, 8), x(2, 2, 4, 8), x(2, 2, 4, 8)), ValueError, "need enable_gqa"),
        (lambda: scaled_dot_product_attention(np.broadcast_to(x(1, 8), (2**55, 8)), x(1, 8), x(1, 8)), ValueError, "more elements than memory can address"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), enable_gqa=True), ValueError, "need a head axis"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(4, 8), x(2, 4, 8), enable_gqa=True), ValueError, "need a head axis"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(4, 8), enable_gqa=True), ValueError, "need a head axis"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=[1, 5]), ValueError, "key_lengths holds 5; with 4 keys"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=[1]), ValueError, "one integer for each batch element"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=[1.0, 2.0]), TypeError, "integers are needed"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), causal_offset=[1, 2, 3]), ValueError, "causal_offset has shape"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), window=(1,)), ValueError, "expected \\(left, right\\)"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), window=(-1, 2)), ValueError, "window holds -1"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), softcap=-1.0), ValueError, "softcap is -1"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), dropout_p=1.5), ValueError, "between 0 and 1"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), dropout_p=np.nan), ValueError, "between 0 and 1, got nan"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), scale=np.nan), ValueError, "scale is nan; it must be a finite number"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), scale=np.inf), ValueError, "scale is infinite"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), scale="half"), TypeError, "scale must be a number, not str"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), softcap=np.nan), ValueError, "softcap is nan"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), window=3), TypeError, r"window must be a pair \(left, right\)"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), window=(1.5, 2)), TypeError, "window holds a float; .* integers, or None"),
        (lambda: scaled_dot_product_attention(x(2, 3, 4, 8), x(2, 3, 5, 8), x(2, 3, 5, 8), x(2, 5, dtype=bool)), ValueError,
         r"as key padding \(batch, keys\) write mask\[:, None, None, :\]"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), x(1, 1, 4, 4, dtype=bool)), ValueError, "does not broadcast to the scores"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), True), ValueError, "attn_mask has no axes.*write is_causal=True"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), np.float32(0.5)), ValueError, "attn_mask has no axes.*bias="),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), np.array(["no"])), TypeError, "attn_mask has dtype <U2; expected"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), bias=x(4, 4, dtype=bool)), TypeError, "bias is bool; a floating dtype is needed"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), bias=x(5, 4)), ValueError, r"bias has shape \(5, 4\), which does not broadcast"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=[-1, 4]), ValueError, "key_lengths holds -1; with 4 keys they are from 0 to 4"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=4), ValueError, r"key_lengths has shape \(\); it needs one integer for each"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), key_lengths=[True, False]), TypeError, "key_lengths is bool; integers are needed"),
        (lambda: scaled_dot_product_attention(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), causal_offset=1.5), TypeError, "causal_offset is float64; integers are needed"),
        (lambda: scaled_dot_product_attention(*leaves(x(4, 8), x(4, 8), x(4, 8)), *leaves(x(4, 4, dtype=np.float64))), TypeError,
         "query is float32 but attn_mask is float64"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), is_causal="no"), TypeError, "is_causal must be a bool, not str"),
        (lambda: scaled_dot_product_attention(x(2, 3, 4, 8), x(2, 0, 4, 8), x(2, 0, 4, 8), enable_gqa=True), ValueError, "query has 3 heads, key has 0"),
        (lambda: scaled_dot_product_attention(None, x(4, 8), x(4, 8)), TypeError, "query is None"),
        (lambda: scaled_dot_product_attention(x(4, 8, dtype=complex), x(4, 8), x(4, 8)), TypeError, "query has dtype complex128; expected float32"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), empty_rows="none"), ValueError, "empty_rows is 'none'"),
        (lambda: scaled_dot_product_attention(x(4, 8), x(4, 8), x(4, 8), np.zeros(4, bool), empty_rows="raise"), ValueError, "may attend to no key"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- far and long ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["number", "batch"])
def test_bounds_far_from_the_sequence(isa, where, rng):
    """Sides of a window and offsets beyond any sequence keep their values: one may cancel the other."""
    q, k, v = operands(rng, (2, 1, 1, 5, 7, 4, 4), "float64")
    far = 10**15
    for window, offset in [
        ((5, far), -2 * far),
        ((far, 5), 2 * far),
        ((5, far), 3 - far),
        ((far, far), 0),
        ((far, 2), far),
        ((None, far), -far),
    ]:
        allowed = np.array(
            [[(window[0] is None or j >= i + offset - window[0]) and j <= i + offset + window[1] for j in range(7)] for i in range(5)]
        )
        offsets = offset if where == "number" else np.full(2, offset)
        found = scaled_dot_product_attention(q, k, v, window=window, causal_offset=offsets)
        np.testing.assert_array_equal(found, scaled_dot_product_attention(q, k, v, allowed), err_msg=f"{window}, {offset}")
    for offset in (10**15, 2**62, -(2**62)):
        allowed = np.full((5, 7), offset > 0)
        for kw in ({"is_causal": True}, {"window": (None, 3)}):
            found = scaled_dot_product_attention(q, k, v, causal_offset=offset, **kw)
            np.testing.assert_array_equal(found, scaled_dot_product_attention(q, k, v, allowed))


@pytest.mark.parametrize("length", [1024, 100_000])
def test_long_sums_keep_their_digits(isa, length):
    """Equal weights below 1: in one long float32 sum every rounding would have the same sign, 4e-4 of it at 65,536 keys."""
    q, k = np.ones((1, 1, 1, 1), np.float32), np.full((1, 1, length, 1), -1, np.float32)
    k[0, 0, 0] = 0
    v = np.linspace(0, 1, length, dtype=np.float32)[None, None, :, None]
    found = scaled_dot_product_attention(q, k, v, return_attention=True, return_logsumexp=True)
    expected = reference.attention(q, k, v)
    for name, a, e in zip(("values", "attention", "lse"), found, expected, strict=True):
        assert_close(a, e, "float32", k=10, name=name)
    assert abs(found[1].sum(dtype=np.float64) - 1) < 1e-5


# ---- gradients that are NaN ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [6, 150])
@pytest.mark.parametrize("what", ["query", "dvalues"])
def test_a_nan_of_a_query_stays_with_the_keys_it_sees(isa, what, length, rng):
    q, k, v = operands(rng, (1, 1, 1, length, length, 4, 5), "float64")
    dvalues, at = rng.standard_normal(v.shape), length // 2
    (q if what == "query" else dvalues)[0, 0, at] = np.nan
    for kw in ({"is_causal": True}, {"attn_mask": np.tri(length, dtype=bool)}, {"bias": np.where(np.tri(length), 0, -np.inf)}):
        inputs = leaves(q, k, v)
        values = scaled_dot_product_attention(*inputs, **kw)
        values.backward(gradient=_core.as_tensor(dvalues))
        seen = np.arange(length) <= at
        for t in inputs[1:]:
            np.testing.assert_array_equal(np.isnan(np.asarray(t.grad)).any(-1)[0, 0], seen)
        np.testing.assert_array_equal(np.isnan(np.asarray(inputs[0].grad)).any(-1)[0, 0], np.arange(length) == at)


@pytest.mark.parametrize("length", [6, 150])
def test_a_nan_above_an_empty_row_or_a_hidden_weight_reaches_nothing(isa, length, rng):
    q, k, v = operands(rng, (1, 2, 2, length, length, 4, 5), "float64")
    allowed = np.tri(length, dtype=bool)
    allowed[3] = False
    dvalues, dmap = rng.standard_normal(v.shape), rng.standard_normal((1, 2, length, length))
    clean, dirty = (dvalues, dmap), (dvalues.copy(), np.where(allowed, dmap, np.nan))
    dirty[0][:, :, 3] = np.nan
    found = []
    for upstream in (clean, dirty):
        inputs = leaves(q, k, v)
        results = scaled_dot_product_attention(*inputs, allowed, return_attention=True)
        found.append(gradients(results, [_core.as_tensor(u) for u in upstream], inputs))
    for name, a, e in zip(("dq", "dk", "dv"), found[1], found[0], strict=True):
        assert_close(a, e, "float64", gradient=True, name=name)


# ---- one query -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "float16"])
@pytest.mark.parametrize("size", [(1, 5), (7, 3), (16, 16), (32, 32), (33, 40), (64, 72), (24, 0)], ids=str)
def test_one_query_has_the_bits_that_it_has_among_others(isa, size, dtype, rng):
    """A single query, as in decoding, takes another path through the kernel; so does one whose map is requested."""
    d, dv = size
    for keys in (1, 15, 16, 17, 128, 129, 300):
        q, k, v = (rng.standard_normal(s).astype(dtype) for s in ((2, 3, 6, d), (2, 3, keys, d), (2, 3, keys, dv)))
        mask, bias = rng.random((6, keys)) < 0.5, (3 * rng.standard_normal((3, 6, keys))).astype(dtype)
        mask[3] = False
        bias[1, :, : keys // 2] = -np.inf
        poison = [x.copy() for x in (k, v)]
        for x in poison:
            x[:, :, keys // 2 :] = np.nan
        for kw in [{}, {"softcap": 1.5}, {"scale": 30.0}, {"attn_mask": mask}, {"bias": bias}, {"key_lengths": [keys, keys // 2]},
                   {"attn_mask": mask, "bias": bias, "softcap": 2.0, "empty_rows": "uniform"}]:  # fmt: skip
            whole, lse = scaled_dot_product_attention(q, k, v, **kw, return_logsumexp=True)
            for i in (0, 3, 5):
                own = {n: x[..., i : i + 1, :] if n in ("attn_mask", "bias") else x for n, x in kw.items()}
                one, one_lse = scaled_dot_product_attention(q[:, :, i : i + 1], k, v, **own, return_logsumexp=True)
                np.testing.assert_array_equal(one[:, :, 0], whole[:, :, i])
                np.testing.assert_array_equal(one_lse[:, :, 0], lse[:, :, i])
                mapped, _ = scaled_dot_product_attention(q[:, :, i : i + 1], k, v, **own, return_attention=True)
                np.testing.assert_array_equal(mapped, one)
        window = {"is_causal": True, "causal_offset": keys // 2 - 1}
        clean = scaled_dot_product_attention(q[:, :, :1], k, v, **window)
        np.testing.assert_array_equal(scaled_dot_product_attention(q[:, :, :1], *poison, **window), clean)


# ---- numbers that the dtype cannot represent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_masks_hide_nothing(isa, dtype, rng):
    """The lowest number as a mask and as a bias, as some models write them: the sum of two is beyond the dtype, and still not -inf."""
    q, k, v = operands(rng, (1, 2, 2, 5, 140, 8, 8), dtype)
    lowest = np.full((5, 140), np.finfo(dtype).min, dtype)
    values, attention = scaled_dot_product_attention(q, k, v, lowest, bias=lowest, return_attention=True)
    assert_close(attention, np.full((1, 2, 5, 140), 1 / 140), dtype)
    assert_close(values, np.repeat(v.astype(np.float64).mean(2, keepdims=True), 5, 2), dtype, k=140)
    lowest[:, 3:] = 0
    values = scaled_dot_product_attention(q, k, v, lowest, bias=lowest)
    assert_close(values, reference.attention(q, k[:, :, 3:], v[:, :, 3:])[0], dtype, k=140)


@pytest.mark.parametrize(("name", "value"), [("softcap", 1e300), ("softcap", 1e-60), ("scale", -1e300)])
def test_options_beyond_float32(name, value):
    x = np.zeros((1, 1, 3, 4))
    assert np.isfinite(scaled_dot_product_attention(x, x, x, **{name: value})).all()
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value:g}, which float32 does not hold")):
        scaled_dot_product_attention(*3 * [x.astype(np.float32)], **{name: value})
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value:g}, which float32 does not hold")):
        scaled_dot_product_attention(*3 * [x.astype(np.float16)], **{name: value})


def test_a_dropout_that_is_no_number():
    x = np.zeros((1, 1, 3, 4))
    with pytest.raises(TypeError, match="dropout_p must be a number, got 'half'"):
        scaled_dot_product_attention(x, x, x, dropout_p="half")
