"""Attention over random problems: every argument with every other, against the float64 reference; and equal calls give equal results.

The examples are the same in every run (derandomize); `--seed` has no say here.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tolerance import assert_close
from transformer_c import _core
from transformer_c.functional import scaled_dot_product_attention
from transformer_c.random import as_generator
from transformer_c.testing import reference

try:
    from ml_dtypes import bfloat16
except ImportError:  # the other dtypes are tested without it
    bfloat16 = None

DTYPES = {"float32": np.dtype("float32"), "float64": np.dtype("float64"), "float16": np.dtype("float16")}
if bfloat16 is not None:
    DTYPES["bfloat16"] = np.dtype(bfloat16)

LENGTHS = [1, 2, 3, 5, 7, 13, 31, 47, 48, 49, 61, 127, 129, 131, 257]  # around blocks of 48 queries and 128 keys
SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 31]
LAYOUTS = ["plain", "heads inside", "backwards", "columns outside", "steps", "one row for all"]


def fuzz(examples):
    return lambda f: settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
    )(f)


class Problem:
    def __init__(self, q, k, v, kw, layouts=()):
        self.q, self.k, self.v, self.kw, self.layouts = q, k, v, kw, layouts

    def __repr__(self):
        kw = {n: f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else x for n, x in self.kw.items()}
        return f"Problem({self.q.dtype}, q {self.q.shape}, k {self.k.shape}, v {self.v.shape}, {self.layouts}, {kw})"


def laid_out(x, layout):
    """The values of x (B, H, T, D) in another memory layout."""
    if layout == "heads inside":
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    if layout == "backwards":
        return np.ascontiguousarray(x[:, ::-1, ::-1, ::-1])[:, ::-1, ::-1, ::-1]
    if layout == "columns outside":
        return np.ascontiguousarray(x.swapaxes(2, 3)).swapaxes(2, 3)
    if layout == "steps":
        wide = np.zeros((*x.shape[:2], 2 * x.shape[2], x.shape[3] + 3), x.dtype)
        wide[:, :, ::2, 1:-2] = x
        return wide[:, :, ::2, 1:-2]
    if layout == "one row for all" and x.shape[2]:
        return np.broadcast_to(x[:, :, :1], x.shape)
    return x


def mask_shape(draw, shape):
    """A shape of rank 1 to 4 that broadcasts to (B, H, Tq, Tk)."""
    rank = draw(st.integers(1, 4))
    return tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in shape[4 - rank :])


def additive(draw, rng, shape, dtype, share):
    """Standard normal, -inf but for a `share` of the elements; sometimes expanded over its first axis."""
    if draw(st.integers(0, 3)) == 0:
        return np.broadcast_to(additive_values(rng, (1, *shape[1:]), dtype, share), shape)
    return additive_values(rng, shape, dtype, share)


def additive_values(rng, shape, dtype, share):
    return np.where(rng.random(shape) < share, rng.standard_normal(shape), -np.inf).astype(dtype)


@st.composite
def problems(draw, dtypes=tuple(DTYPES), layouts=True, empty=True, lengths=tuple(LENGTHS), dropout=False):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = DTYPES[draw(st.sampled_from(dtypes))]
    B, Hk, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    gqa = group > 1
    H, Tq, Tk = Hk * group, draw(st.sampled_from(lengths)), draw(st.sampled_from(lengths))
    d, dv = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))
    if empty and draw(st.integers(0, 11)) == 0:
        which = draw(st.integers(0, 4))
        B, Tq, Tk, d, dv = (0 if which == i else n for i, n in enumerate((B, Tq, Tk, d, dv)))
    Bq, Bk = draw(st.sampled_from([(B, B), (B, B), (1, B), (B, 1)]))
    q, k, v = (rng.standard_normal(s).astype(dtype) for s in ((Bq, H, Tq, d), (Bk, Hk, Tk, d), (Bk, Hk, Tk, dv)))
    names = tuple(draw(st.sampled_from(LAYOUTS)) if layouts else "plain" for _ in range(3))
    q, k, v = (laid_out(x, name) for x, name in zip((q, k, v), names, strict=True))
    kw = {"enable_gqa": gqa}
    maybe = st.booleans()
    kind = draw(st.sampled_from(["none", "boolean", "additive"]))
    share = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    shape = (max(Bq, Bk) if B else 0, H, Tq, Tk)
    if kind == "boolean":
        kw["attn_mask"] = rng.random(mask_shape(draw, shape)) < share
    elif kind == "additive":
        kw["attn_mask"] = additive(draw, rng, mask_shape(draw, shape), dtype, share)
    if draw(maybe):
        kw["bias"] = additive(draw, rng, mask_shape(draw, shape), dtype, draw(st.sampled_from([0.8, 1.0])))
    if draw(maybe):
        kw["key_lengths"] = rng.integers(0, Tk + 1, shape[0])
    if draw(maybe):
        kw["is_causal"] = True
    if draw(maybe):
        kw["window"] = tuple(None if draw(st.integers(0, 3)) == 0 else draw(st.integers(0, 2 * Tk)) for _ in range(2))
    if draw(maybe):
        per_batch = rng.integers(-Tq - 1, Tk + 2, shape[0])
        kw["causal_offset"] = per_batch if draw(maybe) else draw(st.integers(-Tq - 1, Tk + 1))
    if draw(maybe):
        kw["softcap"] = draw(st.sampled_from([0.5, 3.0, 50.0]))
    if draw(maybe) or d == 0:
        kw["scale"] = draw(st.sampled_from([0.0, -0.7, 0.25, 1.5]))
    kw["empty_rows"] = draw(st.sampled_from(["zero", "uniform"]))
    if dropout and draw(st.integers(0, 3)) == 0:
        kw["dropout_p"], kw["rng"] = draw(st.sampled_from([0.1, 0.5, 1.0])), draw(st.integers(0, 99))
    return Problem(q, k, v, kw, names), rng


def magnitude(x):
    finite = np.abs(x[np.isfinite(x)])
    return max(1.0, finite.max(initial=0.0))


def leaves(*arrays):
    tensors = [None if a is None else _core.as_tensor(a) for a in arrays]
    for t in tensors:
        if t is not None:
            t.requires_grad = True
    return tensors


def wide(kw):
    """The same options for the reference, halves as float64, without dropout."""
    kw = {n: x for n, x in kw.items() if n not in ("dropout_p", "rng")}
    return {n: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind not in "biu" else x for n, x in kw.items()}


def multiplier(p, shape):
    """What dropout multiplies each weight by, 0 or 1 / (1 - p): of rows that are filled up to 64 numbers."""
    if "dropout_p" not in p.kw:
        return None
    generator = as_generator(p.kw["rng"])
    padded = (*shape[:-1], -(-shape[-1] // 64) * 64)
    return _core.dropout_forward(np.ones(padded), p.kw["dropout_p"], generator.initial_seed(), generator.next_call())[..., : shape[-1]]


def backward(result, upstream, inputs):
    result.backward(gradient=_core.as_tensor(upstream))
    return [None if t is None else np.asarray(t.grad) for t in inputs]


def name_of(dtype):
    return np.dtype(dtype).name


# ---- against the reference ----------------------------------------------------------------------------------------------------------


def check_forward(p):
    dtype = name_of(p.q.dtype)
    values, attention, lse = scaled_dot_product_attention(p.q, p.k, p.v, return_attention=True, return_logsumexp=True, **p.kw)
    expected = reference.attention(p.q, p.k, p.v, **wide(p.kw), dropout_multiplier=multiplier(p, attention.shape))
    terms = p.q.shape[-1] + p.k.shape[-2]
    assert_close(values, expected[0], dtype, k=terms, scale=magnitude(expected[0]), name="values")
    assert_close(attention, expected[1], dtype, k=terms, scale=1.0, name="attention")
    assert_close(lse, expected[2], dtype, k=terms, scale=magnitude(expected[2]), name="lse")
    np.testing.assert_array_equal(scaled_dot_product_attention(p.q, p.k, p.v, **p.kw), values)  # the map changes nothing
    return expected


def check_backward(p, rng, expected):
    dtype = name_of(p.q.dtype)
    dvalues, dmap, dlse = (rng.standard_normal(x.shape).astype(p.q.dtype) for x in expected)
    dlse[~np.isfinite(expected[2])] = 0
    through_all = bool(rng.integers(2))
    mask = p.kw.get("attn_mask")
    added = mask is not None and mask.dtype != bool
    inputs = leaves(p.q, p.k, p.v, p.kw.get("bias"), mask if added else None)
    kw = {**p.kw, "bias": inputs[3], "attn_mask": inputs[4] if added else mask}
    values, attention, lse = scaled_dot_product_attention(*inputs[:3], return_attention=True, return_logsumexp=True, **kw)
    results, upstream = [values], [dvalues]
    if through_all:
        results, upstream = [values, attention, lse], [dvalues, dmap, dlse]
        if not np.isfinite(expected[2]).all():
            results, upstream = results[:2], upstream[:2]  # 0 * -inf in the sum of products
    loss = sum((r * _core.as_tensor(u)).sum() for r, u in zip(results, upstream, strict=True))
    loss.backward()
    extra = {
        "dropout_multiplier": multiplier(p, dmap.shape),
        "dattention": dmap if through_all else None,
        "dlse": dlse if len(results) == 3 else None,
    }
    dscores = np.zeros(expected[1].shape)  # a bias of its own for every score: its gradient is theirs
    terms = [x for x in (wide(p.kw).get("bias"), mask.astype(np.float64) if added else None) if x is not None]
    full = {**wide(p.kw), "bias": sum(terms, dscores), "attn_mask": None if added else mask}
    *want, dscores = reference.attention_backward(dvalues, p.q, p.k, p.v, **full, **extra)
    for name, t, w in zip(("dq", "dk", "dv"), inputs, want, strict=False):
        assert_close(np.asarray(t.grad), w, dtype, gradient=True, scale=magnitude(w), name=name)
    for name, t in (("dbias", inputs[3]), ("dmask", inputs[4])):
        if t is not None:  # a long sum, whose terms may cancel and are differences times a weight themselves
            want, scale = (reference.sum_to(x, t.shape) for x in (dscores, np.abs(dscores) + expected[1]))
            assert_close(np.asarray(t.grad), want, dtype, gradient=True, scale=np.maximum(scale, 1), name=name)


@fuzz(300)
@given(problems(dropout=True))
def test_forward_and_backward(case):
    p, rng = case
    check_backward(p, rng, check_forward(p))


@fuzz(80)
@given(problems(lengths=(1, 3, 50, 130), empty=False, dropout=True))
def test_every_instruction_set_agrees_with_the_reference(case):
    p, rng = case
    before = _core.cpu_isa()
    state = rng.bit_generator.state
    for isa, usable in _core.cpu_isas().items():
        if usable:
            _core.cpu_select(isa)
            rng.bit_generator.state = state
            try:
                check_backward(p, rng, check_forward(p))
            finally:
                _core.cpu_select(before)


# ---- calls that mean the same ---------------------------------------------------------------------------------------------------------


@st.composite
def bounds(draw):
    B, H, Tq, Tk = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from(LENGTHS)), draw(st.sampled_from(LENGTHS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((B, H, Tq, 8), (B, H, Tk, 8), (B, H, Tk, 5)))
    offset = rng.integers(-3, Tk, B) if draw(st.booleans()) else draw(st.integers(-3, Tk))
    return q, k, v, offset, rng


def values_and_gradients(q, k, v, rng_state, **kw):
    rng = np.random.default_rng(rng_state)
    inputs = leaves(q, k, v)
    values = scaled_dot_product_attention(*inputs, **kw)
    return [np.asarray(values), *backward(values, rng.standard_normal(values.shape).astype(q.dtype), inputs)]


def assert_all_equal(q, k, v, calls, rng):
    state = int(rng.integers(2**32))
    first, *others = (values_and_gradients(q, k, v, state, **kw) for kw in calls)
    for n, other in enumerate(others, 1):
        for name, a, e in zip(("values", "dq", "dk", "dv"), other, first, strict=True):
            assert_close(a, e, name_of(q.dtype), k=k.shape[-2], scale=magnitude(e), gradient=name != "values", name=f"{name} of call {n}")


def minus_inf(allowed, dtype):
    return np.where(allowed, 0, -np.inf).astype(dtype)


@fuzz(200)
@given(bounds())
def test_causal_is_a_mask_is_a_window(case):
    q, k, v, offset, rng = case
    (B, _, Tq, _), Tk = q.shape, k.shape[-2]
    allowed = np.arange(Tk) <= np.arange(Tq)[:, None] + np.broadcast_to(offset, B)[:, None, None, None]
    calls = [
        {"is_causal": True, "causal_offset": offset},
        {"attn_mask": allowed},
        {"attn_mask": minus_inf(allowed, "float32")},
        {"bias": minus_inf(allowed, "float32")},
        {"window": (None, 0), "causal_offset": offset},
        {"window": (None, 0), "is_causal": True, "causal_offset": np.broadcast_to(offset, B)},
    ]
    assert_all_equal(q, k, v, calls, rng)


@fuzz(150)
@given(bounds())
def test_lengths_are_a_mask(case):
    q, k, v, _, rng = case
    (B, _, Tq, _), Tk = q.shape, k.shape[-2]
    lengths = rng.integers(0, Tk + 1, B)
    allowed = np.arange(Tk) < lengths[:, None, None, None]
    full = np.broadcast_to(allowed, (B, q.shape[1], Tq, Tk))
    calls = [
        {"key_lengths": lengths},
        {"attn_mask": allowed},
        {"attn_mask": full},
        {"attn_mask": minus_inf(allowed, "float32")},
        {"bias": minus_inf(full, "float32")},
        {"key_lengths": lengths.astype("int32"), "attn_mask": minus_inf(allowed, "float32")},
    ]
    assert_all_equal(q, k, v, calls, rng)


@fuzz(150)
@given(bounds(), st.tuples(st.integers(0, 140), st.integers(0, 140)))
def test_a_window_is_a_mask(case, window):
    q, k, v, offset, rng = case
    (B, _, Tq, _), Tk = q.shape, k.shape[-2]
    distance = np.arange(Tk) - np.arange(Tq)[:, None] - np.broadcast_to(offset, B)[:, None, None, None]
    allowed = (distance >= -window[0]) & (distance <= window[1])
    calls = [{"window": window, "causal_offset": offset}, {"attn_mask": allowed}, {"attn_mask": minus_inf(allowed, "float32")}]
    assert_all_equal(q, k, v, calls, rng)


@fuzz(100)
@given(problems(dtypes=("float64",), layouts=False, empty=False))
def test_a_mask_of_ones_written_out_changes_nothing(case):
    """Every rank of a mask, and heads repeated by hand, are the same call."""
    p, _ = case
    shape = (max(p.q.shape[0], p.k.shape[0]), p.q.shape[1], p.q.shape[2], p.k.shape[2])
    kw = {n: np.ascontiguousarray(np.broadcast_to(x, shape)) if n in ("attn_mask", "bias") else x for n, x in p.kw.items()}
    group = p.q.shape[1] // p.k.shape[1]
    repeated = [np.repeat(x, group, 1) for x in (p.k, p.v)]
    want = scaled_dot_product_attention(p.q, p.k, p.v, **p.kw)
    assert_close(scaled_dot_product_attention(p.q, *repeated, **{**kw, "enable_gqa": False}), want, "float64", scale=magnitude(want))


# ---- symmetries -------------------------------------------------------------------------------------------------------------------------


@fuzz(150)
@given(problems(dtypes=("float64",), layouts=False, empty=False))
def test_the_order_of_keys_and_of_queries_means_nothing(case):
    """Without positions (bounds written out as a mask): permuted keys give the same values, permuted queries permuted ones."""
    p, rng = case
    shape = (max(p.q.shape[0], p.k.shape[0]), p.q.shape[1], p.q.shape[2], p.k.shape[2])
    options = {n: x for n, x in p.kw.items() if n in ("is_causal", "key_lengths", "window", "causal_offset")}
    mask = p.kw.get("attn_mask")
    boolean = mask is not None and mask.dtype == bool
    allowed = reference.attention_allowed(shape, mask if boolean else None, **options)
    bias = np.broadcast_to(sum((x for x in (p.kw.get("bias"), None if boolean else mask) if x is not None), np.zeros(shape)), shape)
    rest = {n: p.kw[n] for n in ("scale", "softcap", "empty_rows", "enable_gqa") if n in p.kw}
    rows, columns = rng.permutation(shape[2]), rng.permutation(shape[3])
    state = int(rng.integers(2**32))
    dvalues = rng.standard_normal((*shape[:3], p.v.shape[-1]))

    def run(rows, columns):
        inputs = leaves(p.q[:, :, rows], p.k[:, :, columns], p.v[:, :, columns])
        values = scaled_dot_product_attention(
            *inputs, attn_mask=allowed[:, :, rows][..., columns], bias=bias[:, :, rows][..., columns], **rest
        )
        return [np.asarray(values), *backward(values, np.ascontiguousarray(dvalues[:, :, rows]), inputs)]

    plain, permuted = run(np.arange(shape[2]), np.arange(shape[3])), run(rows, columns)
    for name, a, e, order in zip(("values", "dq", "dk", "dv"), permuted, plain, (rows, rows, columns, columns), strict=True):
        assert_close(a, e[:, :, order], "float64", gradient=True, scale=magnitude(e), name=f"{name}, seed {state}")


@fuzz(100)
@given(problems(empty=False, layouts=False), st.sampled_from([0, 1]))
def test_batch_elements_and_heads_know_nothing_of_each_other(case, axis):
    p, _ = case
    p.kw.pop("attn_mask", None), p.kw.pop("bias", None)
    if axis == 1 or p.q.shape[0] != p.k.shape[0]:
        heads = [scaled_dot_product_attention(p.q[:, h : h + 1], *(x[:, h // (p.q.shape[1] // x.shape[1])][:, None] for x in (p.k, p.v)), **p.kw)
                 for h in range(p.q.shape[1])]  # fmt: skip
        np.testing.assert_array_equal(np.concatenate(heads, 1), scaled_dot_product_attention(p.q, p.k, p.v, **p.kw))
        return
    parts = []
    for b in range(p.q.shape[0]):
        kw = {n: x[b : b + 1] if isinstance(x, np.ndarray) else x for n, x in p.kw.items()}
        parts.append(scaled_dot_product_attention(p.q[b : b + 1], p.k[b : b + 1], p.v[b : b + 1], **kw))
    np.testing.assert_array_equal(np.concatenate(parts), scaled_dot_product_attention(p.q, p.k, p.v, **p.kw))


# ---- poison -------------------------------------------------------------------------------------------------------------------------------


def allowed_of(p):
    shape = (max(p.q.shape[0], p.k.shape[0]), p.q.shape[1], p.q.shape[2], p.k.shape[2])
    options = {n: x for n, x in p.kw.items() if n in ("attn_mask", "bias", "is_causal", "key_lengths", "window", "causal_offset")}
    return reference.attention_allowed(shape, **options)


def per_key_head(seen, p):
    """(B, H, Tk), seen by a query head, to whether any reader of k's own batch elements and heads sees it."""
    B, H, Tk = seen.shape
    seen = seen.reshape(B, p.k.shape[1], H // p.k.shape[1], Tk).any(2)
    return seen.any(0, keepdims=True) if p.k.shape[0] == 1 else seen


def poisoned(x, where, rng):
    bad = rng.choice([np.nan, np.inf, -np.inf], x.shape).astype(x.dtype)
    return np.where(where[..., None], bad, x)


@fuzz(300)
@given(problems(layouts=False, empty=False))
def test_nobody_reads_what_nobody_may_see(case):
    """NaN and infinity in unused keys, values and queries: results and gradients are the same as without, dk and dv are 0."""
    p, rng = case
    allowed = allowed_of(p)
    unseen = ~per_key_head(allowed.any(2), p)
    empty = ~allowed.any(-1)  # queries
    empty = empty.all(0, keepdims=True) if p.q.shape[0] == 1 else empty
    uniform = p.kw["empty_rows"] == "uniform"
    v_unseen = np.zeros_like(unseen) if uniform and not allowed.any(-1).all() else unseen  # the mean of all values reads all values
    dirty = Problem(poisoned(p.q, empty, rng), poisoned(p.k, unseen, rng), poisoned(p.v, v_unseen, rng), p.kw)
    state = int(rng.integers(2**32))
    clean, bad = (values_and_gradients(x.q, x.k, x.v, state, **p.kw) for x in (p, dirty))
    for name, a, e in zip(("values", "dq", "dk", "dv"), bad, clean, strict=True):
        assert_close(a, e.astype(np.float64), name_of(p.q.dtype), gradient=name != "values", scale=magnitude(e), name=name)
    assert not bad[1][np.broadcast_to(empty[..., None], p.q.shape)].any()
    assert not bad[2][np.broadcast_to(unseen[..., None], p.k.shape)].any()
    assert not bad[3][np.broadcast_to(v_unseen[..., None], p.v.shape)].any()
    results = scaled_dot_product_attention(dirty.q, dirty.k, dirty.v, return_attention=True, return_logsumexp=True, **p.kw)
    assert not any(np.isnan(r.astype(np.float64)).any() for r in results)


@fuzz(200)
@given(problems(layouts=False, empty=False, dtypes=("float32", "float64")))
def test_poison_stays_with_the_rows_that_see_it(case):
    """One poisoned key and value: queries that may not attend to it have the values and dq that they have without it."""
    p, rng = case
    p.kw["empty_rows"] = "zero"
    allowed = allowed_of(p)
    at = int(rng.integers(p.k.shape[2]))
    where = np.zeros(p.k.shape[:3], bool)
    where[:, :, at] = True
    dirty = Problem(p.q, poisoned(p.k, where, rng), poisoned(p.v, where, rng), p.kw)
    blind = ~allowed[..., at]
    state = int(rng.integers(2**32))
    clean, bad = (values_and_gradients(x.q, x.k, x.v, state, **p.kw) for x in (p, dirty))
    assert_close(bad[0][blind], clean[0][blind], name_of(p.q.dtype), k=p.k.shape[2], scale=magnitude(clean[0]))
    blind = blind.all(0, keepdims=True) if p.q.shape[0] == 1 else blind
    assert_close(bad[1][blind], clean[1][blind], name_of(p.q.dtype), gradient=True, scale=magnitude(clean[1]))
