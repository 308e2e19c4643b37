"""Attention with all its arguments at once, chosen at random, against its definition written out element by element, and PyTorch.

The definition below shares nothing with `transformer_c.testing.reference`. It adds up p v over the keys that a query may attend to, and over no others, so a
NaN reaches exactly the results that it says. A failure names the seed of the case; `--seed N` begins the sweep elsewhere.
"""

import numpy as np
import pytest
import transformer_c as tc

try:
    from ml_dtypes import bfloat16
except ImportError:  # the other dtypes are tested without it
    bfloat16 = None

attend = tc.functional.scaled_dot_product_attention
CASES = 1000
LENGTHS = [1, 1, 2, 3, 5, 7, 11, 13, 17, 31]
LONG = [47, 48, 49, 97, 127, 128, 129, 131, 257]  # around the blocks of 48 queries and 128 keys
SIZES = [1, 2, 3, 5, 8, 13, 16, 17]
TOLERANCE = {"float64": 1e-11, "float32": 5e-5, "float16": 4e-3, "bfloat16": 3e-2}  # gradients included


# ---- the definition ------------------------------------------------------------------------------------------------------------------


def allowed_keys(shape, o):
    """(B, H, Tq, Tk), True where a query may attend to a key."""
    B, _, Tq, Tk = shape
    i, j = np.arange(Tq)[:, None], np.arange(Tk)
    place = i + np.broadcast_to(0 if o["causal_offset"] is None else o["causal_offset"], B)[:, None, None, None]
    allowed = np.ones(shape, bool)
    if o["is_causal"]:
        allowed &= j <= place
    left, right = o["window"] or (None, None)
    if left is not None:
        allowed &= j >= place - left
    if right is not None:
        allowed &= j <= place + right
    if o["key_lengths"] is not None:
        allowed &= j < np.asarray(o["key_lengths"])[:, None, None, None]
    for mask in (o["attn_mask"], o["bias"]):
        if mask is not None:
            allowed &= mask if mask.dtype == bool else ~np.isneginf(mask.astype(np.float64))
    return allowed


def definition(q, k, v, o, kept, upstream):
    """values, attention, lse, and the gradients of sum(result * upstream): dq, dk, dv, dscores, in float64."""
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1)))
    (B, H, Tq, d), Tk = q.shape, k.shape[2]
    allowed = allowed_keys((B, H, Tq, Tk), o)
    empty = ~allowed.any(-1, keepdims=True)
    scale = o["scale"] if o["scale"] is not None else 1 / np.sqrt(max(d, 1))
    pair = np.where(allowed[..., None], q[:, :, :, None] * k[:, :, None], 0)  # (B, H, Tq, Tk, d)
    scores, slope = scale * pair.sum(-1), 1.0
    if o["softcap"]:
        slope = 1 - np.tanh(scores / o["softcap"]) ** 2
        scores = o["softcap"] * np.tanh(scores / o["softcap"])
    for term in (o["attn_mask"], o["bias"]):
        if term is not None and term.dtype != bool:
            scores = scores + np.where(allowed, term.astype(np.float64), 0)
    scores = np.where(allowed, scores, -np.inf)
    largest = np.where(empty, 0, scores.max(-1, keepdims=True, initial=-np.inf))
    weights = np.where(allowed, np.exp(scores - largest), 0)
    total = weights.sum(-1, keepdims=True)
    attention = np.where(empty, 0, weights / np.where(empty, 1, total))
    seen = np.broadcast_to(allowed, allowed.shape)
    if o["empty_rows"] == "uniform":
        attention = np.where(empty, 1 / max(Tk, 1), attention)
        seen = seen | empty
    lse = np.where(empty, -np.inf, largest + np.log(np.where(empty, 1, total)))[..., 0]
    multiplier = 1.0 if kept is None else kept / (1 - o["dropout_p"] if o["dropout_p"] < 1 else 1)
    dropped = attention * multiplier
    read = seen & (dropped != 0) if kept is not None else seen
    values = np.where(read[..., None], dropped[..., None] * v[:, :, None], 0).sum(3)
    dvalues, dattention, dlse = upstream
    dv = np.where(read[..., None], dropped[..., None] * dvalues[:, :, :, None], 0).sum(2)
    dp = np.where(allowed[..., None], dvalues[:, :, :, None] * v[:, :, None], 0).sum(-1) * multiplier + dattention
    live = allowed & (attention != 0)
    dp = np.where(live, dp, 0)
    dscores = np.where(live, attention * (dp - (attention * dp).sum(-1, keepdims=True) + dlse[..., None]), 0)
    inner = (dscores * slope * scale)[..., None]
    dq = np.where(live[..., None], inner * k[:, :, None], 0).sum(3)
    dk = np.where(live[..., None], inner * q[:, :, :, None], 0).sum(2)
    dk, dv = (x.reshape(B, H // group, group, *x.shape[2:]).sum(2) for x in (dk, dv))
    return values, attention, lse, dq, dk, dv, dscores, empty


# ---- a random problem ------------------------------------------------------------------------------------------------------------------


def pick(rng, values):
    return values[rng.integers(len(values))]


def laid_out(rng, x):
    """The values of x in another memory layout."""
    kind = rng.integers(8)
    if kind == 0:
        order = rng.permutation(x.ndim)
        x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    elif kind == 1:
        x = np.ascontiguousarray(np.flip(x))[tuple(slice(None, None, -1) for _ in x.shape)]
    elif kind == 2 and x.dtype.kind == "f":
        x = x.astype(x.dtype.newbyteorder(">"))
    elif kind == 3:
        x = x.copy()
        x.flags.writeable = False
    elif kind == 4:
        wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
        wide[..., 1::2] = x
        x = wide[..., 1::2]
    elif kind == 5:
        axis = rng.integers(x.ndim)
        x = np.broadcast_to(x.take([0], axis), x.shape) if x.shape[axis] else x
    return x


def mask_shape(rng, scores):
    rank = rng.integers(1, 5)
    return tuple(1 if rng.random() < 0.25 else n for n in scores[4 - rank :])


def added(rng, shape, dtype):
    values = rng.standard_normal(shape) * pick(rng, [1, 1, 10])
    values[rng.random(shape) < pick(rng, [0, 0.3, 0.3, 0.9])] = -np.inf
    return laid_out(rng, values.astype(dtype))


def draw(rng, dtype):
    """q, k, v of four axes and the keyword arguments."""
    long = rng.random() < 0.15
    B, Hk, group = (1, 1, rng.integers(1, 3)) if long else rng.integers(1, 4, 3)
    Tq, Tk = (pick(rng, LONG if long else LENGTHS) for _ in range(2))
    d, dv = (pick(rng, SIZES[:5] if long else SIZES) for _ in range(2))
    if rng.random() < 0.08:
        which = rng.integers(5)
        B, Tq, Tk, d, dv = (0 if which == n else x for n, x in enumerate((B, Tq, Tk, d, dv)))
    H = Hk * group
    q, k, v = (rng.standard_normal(s).astype(dtype) for s in ((B, H, Tq, d), (B, Hk, Tk, d), (B, Hk, Tk, dv)))
    same = rng.random() < 0.15  # one and the same array
    if same:
        group, H, k = 1, Hk, rng.standard_normal((B, Hk, Tk, d)).astype(dtype)
        k = q = v = laid_out(rng, k)
        Tq, dv = Tk, d
    else:
        q, k, v = (laid_out(rng, x) for x in (q, k, v))
    scores = (B, H, Tq, Tk)
    o = {"attn_mask": None, "bias": None, "key_lengths": None, "window": None, "causal_offset": None, "scale": None}
    kind = rng.integers(4)
    if kind == 1:
        o["attn_mask"] = laid_out(rng, rng.random(mask_shape(rng, scores)) < pick(rng, [0.1, 0.3, 0.8, 1]))
    elif kind == 2:
        o["attn_mask"] = added(rng, mask_shape(rng, scores), dtype)
    if rng.random() < 0.4:
        o["bias"] = added(rng, mask_shape(rng, scores), dtype)
    if rng.random() < 0.4:
        o["key_lengths"] = rng.integers(0, Tk + 1, B).astype(pick(rng, ["int64", "int32", "uint8" if Tk < 256 else "int64"]))
    if rng.random() < 0.4:
        o["window"] = tuple(pick(rng, [None, 0, 1, 5, Tk, 10**15]) for _ in range(2))
    if rng.random() < 0.5:
        far = pick(rng, [1, 1, 1, 1, 10**13])
        o["causal_offset"] = far * rng.integers(-Tq - 1, Tk + 2, B) if rng.random() < 0.5 else int(far * rng.integers(-Tq - 1, Tk + 2))
    if rng.random() < 0.4 or d == 0:
        o["scale"] = float(pick(rng, [0.0, -0.7, 0.2, 1.0, 30.0 if dtype == np.float64 else 2.0]))
    o |= {"is_causal": bool(rng.random() < 0.4), "softcap": float(pick(rng, [0, 0, 0.5, 3, 50])), "dropout_p": 0.0}
    o["empty_rows"] = pick(rng, ["zero", "uniform"])
    if rng.random() < 0.2:
        o |= {"dropout_p": pick(rng, [0.2, 0.7, 1.0]), "rng": int(rng.integers(99))}
    return q, k, v, o, same


def poison(rng, q, k, v, o):
    """NaN and infinity into queries without keys, and into keys and values that nobody may attend to."""
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    allowed = allowed_keys((*q.shape[:3], k.shape[2]), o)
    unseen = ~allowed.any(2).reshape(q.shape[0], k.shape[1], group, k.shape[2]).any(2)
    empty = ~allowed.any(-1)
    bad = lambda x, where: np.where(where[..., None], rng.choice([np.nan, np.inf, -np.inf], x.shape), x).astype(x.dtype)
    uniform = o["empty_rows"] == "uniform" and empty.any()  # their mean reads all values
    return bad(q, empty), bad(k, unseen), v if uniform else bad(v, unseen)


# ---- limits -------------------------------------------------------------------------------------------------------------------------------


def check_limits(name, found, expected, dtype, scale=None, factor=1.0):
    """|found - expected| within the dtype's tolerance of the magnitude; NaN and infinity where expected, and nowhere else."""
    found = np.asarray(found).astype(np.float64)
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}"
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite], err_msg=name)
    if finite.any():
        magnitude = max(1.0, np.abs(expected[finite]).max()) if scale is None else np.broadcast_to(scale, expected.shape)[finite]
        error = np.abs(found[finite] - expected[finite]) / magnitude
        limit = TOLERANCE[dtype.name] * factor
        assert (error <= limit).all(), f"{name}: error {error.max():.3g}, allowed {limit:.3g}"


def summed_to(x, shape):
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


def kept_keys(q, k, o):
    """Which weights dropout keeps: with the identity as values the result is the attention after dropout, whatever the values."""
    eye = np.broadcast_to(np.eye(k.shape[2]), (*k.shape[:2], k.shape[2], k.shape[2])).astype(q.dtype)
    flat = {**o, "scale": 0.0, "softcap": 0.0, "bias": None, "attn_mask": None, "window": None, "causal_offset": None, "is_causal": False}
    return np.asarray(attend(q, k, eye, enable_gqa=True, **{**flat, "key_lengths": None})).astype(np.float64) != 0


def check(seed, dtype):
    rng = np.random.default_rng(seed)
    q, k, v, o, same = draw(rng, dtype)
    dirty = not same and rng.random() < 0.4
    if dirty:
        q, k, v = poison(rng, q, k, v, o)
    kept = kept_keys(np.zeros_like(q), np.zeros_like(k), o) if o["dropout_p"] else None
    upstream = [rng.standard_normal(s) for s in ((*q.shape[:3], v.shape[-1]), (*q.shape[:3], k.shape[2]), q.shape[:3])]
    upstream = [x.astype(dtype).astype(np.float64) for x in upstream]
    if dirty:  # what has no part in the result has none in the gradients either, whatever comes from above
        hidden = ~allowed_keys((*q.shape[:3], k.shape[2]), o)
        uniform = hidden.all(-1, keepdims=True) & (o["empty_rows"] == "uniform")
        upstream[0][(hidden.all(-1, keepdims=True) & ~uniform)[..., 0]] = np.nan
        upstream[1][hidden & ~uniform] = np.nan
    which = rng.random(3) < (1.0, 0.3, 0.3)
    *want, empty = definition(q, k, v, o, kept, [x * w for x, w in zip(upstream, which, strict=True)])
    plain = attend(q, k, v, enable_gqa=True, **o)
    assert isinstance(plain, np.ndarray) and plain.dtype == dtype
    tensors = [tc.tensor(x.astype(dtype), requires_grad=True) for x in (q, k, v)]
    if same:
        tensors = tensors[:1] * 3
    terms = {n: tc.tensor(o[n].astype(dtype), requires_grad=True) for n in ("attn_mask", "bias") if o[n] is not None and o[n].dtype != bool}
    results = attend(*tensors, enable_gqa=True, **{**o, **terms}, return_attention=True, return_logsumexp=True)
    np.testing.assert_array_equal(results[0].detach().numpy(), plain)  # the layout, the map and the tape change nothing
    names = ["values", "attention", "lse"]
    for name, found, expected in zip(names, results, want, strict=False):
        check_limits(name, found.detach(), expected, dtype)
    # an empty row's lse is -inf: the sum with `upstream` is made of the others
    losses = [
        tc.where(tc.tensor(np.isfinite(w)), r, 0.0) * tc.tensor(u.astype(dtype)) for r, u, w in zip(results, upstream, want, strict=False)
    ]
    sum(x.sum() for x, w in zip(losses, which, strict=True) if w).backward()
    gradients = [want[3] + want[4] + want[5]] if same else want[3:6]
    steep = max(1.0, abs(o["scale"] or 1.0))
    for name, t, expected in zip(("dq", "dk", "dv"), tensors, gradients, strict=False):
        check_limits(name, t.grad.numpy(), expected, dtype, factor=2 * steep)
    for name, t in terms.items():  # long sums whose terms may cancel
        size = summed_to(np.abs(want[6]) + want[1], t.shape)
        check_limits(f"d{name}", t.grad.numpy(), summed_to(want[6], t.shape), dtype, np.maximum(1, size), factor=2 * steep)
    if empty.any():
        with pytest.raises(ValueError, match="may attend to no key"):
            attend(q, k, v, enable_gqa=True, **{**o, "empty_rows": "raise"})


def beside_pytorch(torch, q, k, v, o):
    """One floating mask for PyTorch replaces all masks here; PyTorch has no soft cap and different dropout."""
    if o["softcap"] or o["dropout_p"] or 0 in q.shape or 0 in k.shape:
        return
    allowed = allowed_keys((*q.shape[:3], k.shape[2]), o)
    mask = np.where(allowed, 0.0, -np.inf)
    for term in (o["attn_mask"], o["bias"]):
        if term is not None and term.dtype != bool:
            mask = mask + term
    tensors = [torch.tensor(np.ascontiguousarray(x.astype(np.float64))) for x in (q, k, v, mask)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, scale=o["scale"], enable_gqa=True).numpy()
    some = allowed.any(-1, keepdims=True)
    found = attend(q, k, v, enable_gqa=True, **o)
    check_limits("values", np.where(some, found, 0), np.where(some, expected, 0), np.dtype("float64"))


def sweep(first, cases):
    dtypes = ["float64", "float64", "float32", "float16"] + ["bfloat16"] * (bfloat16 is not None)
    for seed in range(first, first + cases):
        dtype = np.dtype(bfloat16 if dtypes[seed % len(dtypes)] == "bfloat16" else dtypes[seed % len(dtypes)])
        try:
            with np.errstate(invalid="ignore"):  # NaN and infinity behind masks
                check(seed, dtype)
        except Exception as error:
            raise AssertionError(f"case of seed {seed}, {dtype.name}: {error}") from error


def test_all_arguments_at_once(request):
    given = request.config.getoption("--seed")
    sweep(0 if given is None else given, CASES)


def test_values_beside_pytorch(request):
    torch = pytest.importorskip("torch")
    given, threads = request.config.getoption("--seed"), torch.get_num_threads()
    torch.set_num_threads(1)  # two thread pools on the same cores slow each other
    try:
        for seed in range(given or 0, (given or 0) + CASES):
            rng = np.random.default_rng(seed)
            q, k, v, o, _ = draw(rng, np.dtype("float64"))
            try:
                beside_pytorch(torch, q, k, v, o)
            except Exception as error:
                raise AssertionError(f"case of seed {seed}: {error}") from error
    finally:
        torch.set_num_threads(threads)
