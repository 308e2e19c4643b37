"""float16 and bfloat16: attention is at most twice as far off as the same formulas with every step rounded to the dtype."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.functional import scaled_dot_product_attention
from transformer_c.testing import reference

SHAPES = [(1, 1, 3, 3, 2, 2), (2, 2, 17, 33, 31, 8), (1, 2, 130, 70, 64, 80), (2, 1, 49, 129, 16, 16)]  # B, H, Tq, Tk, d, dv


def dtype_of(name):
    return np.dtype("float16") if name == "float16" else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


def naive(q, k, v, dvalues, allowed, dtype):
    """values, dq, dk, dv by the plain formulas, each result stored in `dtype` (products summed in float32)."""

    def stored(x):
        return np.asarray(x, np.float32).astype(dtype).astype(np.float32)

    q, k, v, dvalues = (x.astype(np.float32) for x in (q, k, v, dvalues))
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    scores = stored(stored(q @ k.swapaxes(-1, -2)) * scale)
    scores = np.where(allowed, scores, -np.inf)
    weights = stored(np.exp(stored(scores - scores.max(-1, keepdims=True))))
    p = stored(weights / stored(weights.sum(-1, keepdims=True)))
    values = stored(p @ v)
    dp = stored(dvalues @ v.swapaxes(-1, -2))
    ds = stored(p * stored(dp - stored(stored(dp * p).sum(-1, keepdims=True))))
    ds = stored(ds * scale)
    return values, stored(ds @ k), stored(ds.swapaxes(-1, -2) @ q), stored(p.swapaxes(-1, -2) @ dvalues)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_at_most_twice_the_naive_error(isa, shape, causal, name, rng):
    dtype = dtype_of(name)
    B, H, Tq, Tk, d, dv = shape
    q, k, v, dvalues = (rng.standard_normal(s).astype(dtype) for s in ((B, H, Tq, d), (B, H, Tk, d), (B, H, Tk, dv), (B, H, Tq, dv)))
    allowed = np.arange(Tk) <= np.arange(Tq)[:, None] if causal else np.ones((Tq, Tk), bool)
    inputs = [_core.as_tensor(x) for x in (q, k, v)]
    for t in inputs:
        t.requires_grad = True
    values = scaled_dot_product_attention(*inputs, is_causal=causal)
    values.backward(gradient=_core.as_tensor(dvalues))
    found = [values, *(t.grad for t in inputs)]
    wide = [x.astype(np.float64) for x in (q, k, v)]
    expected = [reference.attention(*wide, is_causal=causal)[0], *reference.attention_backward(dvalues, *wide, is_causal=causal)[:3]]
    plain = naive(q, k, v, dvalues, allowed, dtype)
    for what, a, e, n in zip(("values", "dq", "dk", "dv"), found, expected, plain, strict=True):
        assert_close(np.asarray(a), e, name, naive=n, name=what)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_scores_beyond_the_dtype(name, rng):
    """Sums are kept in float32: scores of 1e5, which float16 cannot represent, give finite and right results."""
    dtype = dtype_of(name)
    q, k = (np.full((1, 1, 4, 64), x).astype(dtype) for x in (40.0, 40.0))
    k[0, 0, 2] = 41.0
    v = rng.standard_normal((1, 1, 4, 5)).astype(dtype)
    assert float(q.astype(np.float64)[0, 0, 0] @ k.astype(np.float64)[0, 0, 0]) > 65504
    values = scaled_dot_product_attention(q, k, v, scale=1.0)
    np.testing.assert_array_equal(values, np.broadcast_to(v[:, :, 2:3], values.shape))  # the largest score takes all


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_option_in_half_precision(name, rng):
    dtype = dtype_of(name)
    q, k, v = (rng.standard_normal((2, h, t, 8)).astype(dtype) for h, t in ((4, 9), (2, 11), (2, 11)))
    mask = np.where(rng.random((9, 11)) < 0.8, rng.standard_normal((9, 11)), -np.inf).astype(dtype)
    bias = rng.standard_normal((4, 1, 11)).astype(dtype)
    kw = {"enable_gqa": True, "is_causal": True, "causal_offset": [2, 1], "window": (6, None), "softcap": 2.0, "key_lengths": [11, 7]}
    results = scaled_dot_product_attention(q, k, v, mask, bias=bias, return_attention=True, return_logsumexp=True, **kw)
    wide = [x.astype(np.float64) for x in (q, k, v, mask, bias)]
    expected = reference.attention(*wide[:4], bias=wide[4], **kw)
    for what, a, e in zip(("values", "attention", "lse"), results, expected, strict=True):
        assert_close(a, e, name, name=what)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_inputs_are_kept_as_they_are_given(name, rng):
    """A call is one node of the tape, and a write to what it keeps is seen, in halves as in float32."""
    dtype = np.dtype(name) if name == "float32" else dtype_of(name)
    q = tc.tensor(rng.standard_normal((1, 2, 3, 4)).astype(dtype), requires_grad=True)
    values = _core.attention(q, q, q)[0]
    assert values.grad_fn == "attention"
    values.sum().backward(retain_graph=True)
    with tc.no_grad():
        q[0] = 1
    with pytest.raises(RuntimeError, match="attention.*written"):
        values.sum().backward()
