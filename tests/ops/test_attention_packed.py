"""Attention of packed sequences (sequence_lengths): every option against the float64 reference of each sequence alone, and the same bits as
alone and as in a padded batch."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.functional import scaled_dot_product_attention
from transformer_c.testing import reference

H, D, DV = 4, 8, 6
LENGTHS = [
    [1],
    [5, 1, 3],
    [0, 7, 0, 2, 0],
    [48, 49, 47, 1],
    [129, 3, 257, 128],
    [16] * 5,
    [],
]
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"window": (3, 1), "causal_offset": 1},
    "offsets": {"is_causal": True, "causal_offset": "per sequence"},
    "key lengths": {"key_lengths": "half"},
    "mask": {"attn_mask": (1, 1, "T", "T")},
    "mask of each": {"attn_mask": ("S", 1, 1, "T")},
    "added mask": {"attn_mask": (1, H, "T", "T"), "added": True},
    "bias": {"bias": (1, H, "T", "T")},
    "bias of each": {"bias": ("S", 1, "T", 1), "softcap": 2.0},
    "bias of keys": {"bias": ("T",), "scale": 0.7},
    "everything": {
        "attn_mask": ("S", 1, "T", "T"), "bias": (H, "T", "T"), "is_causal": True, "window": (40, None), "softcap": 5.0, "key_lengths": "half",
    },
    "uniform": {"attn_mask": ("S", H, "T", "T"), "empty_rows": "uniform", "key_lengths": "half"},
}  # fmt: skip


class Case:
    """Packed arrays (1, H, N, d), the options for them, and the arguments of each sequence alone."""

    def __init__(self, lengths, options="plain", dtype=np.float64, shared=False, seed=0):
        rng = np.random.default_rng(seed)
        self.lengths, self.T = np.array(lengths, int), max(lengths, default=0)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        N = int(self.starts[-1])
        Hk = H // 2 if shared else H
        self.q, self.k, self.v = (rng.standard_normal((1, heads, N, d)).astype(dtype) for heads, d in ((H, D), (Hk, D), (Hk, DV)))
        given = dict(OPTIONS[options])
        sizes = {"S": len(lengths), "T": self.T}
        added = given.pop("added", False)
        for name in ("attn_mask", "bias"):
            if name not in given:
                continue
            shape = tuple(sizes.get(n, n) for n in given[name])
            if name == "bias" or added:
                given[name] = np.where(rng.random(shape) < 0.8, rng.standard_normal(shape), -np.inf).astype(dtype)
            else:
                given[name] = rng.random(shape) < 0.6
        if given.get("causal_offset") == "per sequence":
            given["causal_offset"] = rng.integers(-2, 4, len(lengths))
        if "key_lengths" in given:
            given["key_lengths"] = self.lengths // 2
        self.options = {"enable_gqa": shared, **given}

    def rows(self, b):
        return slice(self.starts[b], self.starts[b + 1])

    def alone(self, b):
        """q, k, v and options of sequence number b."""
        n = self.lengths[b]
        options = dict(self.options)
        for name in ("attn_mask", "bias"):
            if name in options:
                full = options[name].reshape((1,) * (4 - options[name].ndim) + options[name].shape)
                batch = slice(b, b + 1) if full.shape[0] > 1 or len(self.lengths) == 1 else slice(None)
                options[name] = full[batch, :, : n if full.shape[2] > 1 else None, : n if full.shape[3] > 1 else None]
        for name in ("key_lengths", "causal_offset"):
            if np.ndim(options.get(name, 0)):
                options[name] = options[name][b : b + 1]
        return *(x[:, :, self.rows(b)] for x in (self.q, self.k, self.v)), options

    def padded(self, x):
        """(1, h, N, d) as (S, h, T, d), NaN at padded positions, which nothing may read."""
        out = np.full((len(self.lengths), x.shape[1], self.T, x.shape[3]), np.nan, x.dtype)
        for b, n in enumerate(self.lengths):
            out[b, :, :n] = x[0, :, self.rows(b)]
        return out

    def attend(self, **more):
        return scaled_dot_product_attention(self.q, self.k, self.v, sequence_lengths=self.lengths, **self.options, **more)


def gradients(arrays, upstream, bias=None, **options):
    """dq, dk, dv and dbias, after the result."""
    leaves = [None if x is None else tc.tensor(x, requires_grad=True) for x in (*arrays, bias)]
    results = scaled_dot_product_attention(*leaves[:3], bias=leaves[3], **options)
    results = results if isinstance(results, tuple) else (results,)
    for n, (result, dy) in enumerate(zip(results, upstream, strict=True)):
        result.backward(gradient=tc.tensor(dy), retain_graph=n + 1 < len(results))
    return [None if x is None else x.grad.numpy() for x in leaves]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_results_are_those_of_each_sequence(lengths, options, isa):
    case = Case(lengths, options)
    values, attention, lse = case.attend(return_attention=True, return_logsumexp=True)
    assert values.shape == (1, H, sum(lengths), DV) and attention.shape == (len(lengths), H, case.T, case.T)
    seen = np.zeros_like(attention, bool)
    for b, n in enumerate(lengths):
        q, k, v, own = case.alone(b)
        expected = reference.attention(q, k, v, **own)
        assert_close(values[:, :, case.rows(b)], expected[0], "float64", k=n, name="values")
        assert_close(attention[b : b + 1, :, :n, :n], expected[1], "float64", k=n, name="attention")
        assert_close(lse[:, :, case.rows(b)], expected[2], "float64", k=n, name="lse")
        seen[b, :, :n, :n] = True
    assert not attention[~seen].any()


@pytest.mark.parametrize("shared", [False, True], ids=["own heads", "shared heads"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_are_those_of_each_sequence(lengths, options, shared, isa):
    case = Case(lengths, options, shared=shared)
    rng = np.random.default_rng(1)
    values, attention, lse = case.attend(return_attention=True, return_logsumexp=True)
    upstream = [rng.standard_normal(x.shape) for x in (values, attention, lse)]
    upstream[2][np.isinf(lse)] = 0
    asked = {"sequence_lengths": case.lengths, "return_attention": True, "return_logsumexp": True}
    dq, dk, dv, dbias = gradients((case.q, case.k, case.v), upstream, **asked, **case.options)
    total = None if dbias is None else np.zeros((1,) * (4 - dbias.ndim) + dbias.shape)
    for b, n in enumerate(lengths):
        q, k, v, own = case.alone(b)
        up = upstream[0][:, :, case.rows(b)], upstream[1][b : b + 1, :, :n, :n], upstream[2][:, :, case.rows(b)]
        expected = reference.attention_backward(up[0], q, k, v, dattention=up[1], dlse=up[2], **own)
        for name, got, want in zip(("dq", "dk", "dv"), (dq, dk, dv), expected, strict=False):
            assert_close(got[:, :, case.rows(b)], want, "float64", k=n, scale=max(1, np.abs(want).max(initial=0)), name=name)
        if total is not None:
            at = slice(b, b + 1) if total.shape[0] > 1 else slice(None)
            total[at, :, : expected[3].shape[2], : expected[3].shape[3]] += expected[3]
    if total is not None:
        assert_close(dbias, total.reshape(dbias.shape), "float64", k=sum(lengths), scale=max(1, np.abs(total).max(initial=0)), name="dbias")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("options", [name for name in OPTIONS if name != "uniform"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_same_bits_as_padded(dtype, options, dropout, isa):
    """Of the batch padded to the longest sequence: dropout too keeps the same weights, and empty rows are zero in both."""
    case = Case([129, 3, 0, 257, 64], options, dtype)
    more = {"dropout_p": dropout, "rng": 5}
    packed = case.attend(**more)
    lengths = {**case.options, "key_lengths": case.options.get("key_lengths", case.lengths)}
    arrays = [case.padded(x) for x in (case.q, case.k, case.v)]
    padded = scaled_dot_product_attention(*arrays, **lengths, **more)
    for b, n in enumerate(case.lengths):
        np.testing.assert_array_equal(packed[0, :, case.rows(b)], padded[b, :, :n])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_same_bits_alone_at_any_place_and_thread_count(dtype, isa):
    """Of values and gradients, for each sequence."""
    rng = np.random.default_rng(2)
    case = Case([129, 3, 257, 64, 1, 300], dtype=dtype)
    dvalues = rng.standard_normal((1, H, sum(case.lengths), DV)).astype(dtype)
    threads = tc.get_num_threads()
    found = []
    try:
        for count in (1, 2, 5):
            tc.set_num_threads(count)
            packed = (case.q, case.k, case.v)
            found.append([case.attend(), *gradients(packed, [dvalues], sequence_lengths=case.lengths)[:3]])
    finally:
        tc.set_num_threads(threads)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    for order in ([4, 2], [5, 0, 1, 3]):
        rows = np.concatenate([np.arange(case.starts[b], case.starts[b + 1]) for b in order])
        arrays = [x[:, :, rows] for x in (case.q, case.k, case.v)]
        some = {"sequence_lengths": case.lengths[order]}
        np.testing.assert_array_equal(scaled_dot_product_attention(*arrays, **some), found[0][0][:, :, rows])
        for got, all_of_it in zip(gradients(arrays, [dvalues[:, :, rows]], **some)[:3], found[0][1:], strict=True):
            np.testing.assert_array_equal(got, all_of_it[:, :, rows])


def test_gradients_with_dropout():
    """By central differences, with the weights that are kept fixed by the seed."""
    case = Case([5, 1, 3])
    tc.testing.gradcheck(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, sequence_lengths=[5, 1, 3], dropout_p=0.4, rng=3), (case.q, case.k, case.v)
    )


def test_parts_of_one_projection(isa):
    """q, k, v as views of one product, values with heads inside rows: what a model has."""
    rng = np.random.default_rng(3)
    lengths = [3, 60, 8]
    x, weight = rng.standard_normal((1, 71, 16)), rng.standard_normal((48, 16))
    for packing in ("qkv", "head"):
        inputs = [tc.tensor(a, requires_grad=True) for a in (x, weight)]
        q, k, v = _core.qkv_projection(*inputs, None, num_heads=H, packing=packing)
        y = scaled_dot_product_attention(q, k, v, sequence_lengths=lengths)
        (y * y).sum().backward()
        parts = [tc.tensor(a, requires_grad=True) for a in (x, weight)]
        begin = 0
        for n in lengths:
            q, k, v = _core.qkv_projection(parts[0][:, begin : begin + n], parts[1], None, num_heads=H, packing=packing)
            z = scaled_dot_product_attention(q, k, v)
            np.testing.assert_allclose(y.numpy()[:, :, begin : begin + n], z.numpy(), rtol=1e-12, atol=1e-13)
            (z * z).sum().backward()
            begin += n
        for a, b in zip(inputs, parts, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_other_sequences_do_not_matter():
    """NaN in one sequence stays there."""
    case = Case([4, 6, 2])
    clean = case.attend()
    for x in (case.q, case.k, case.v):
        x[:, :, case.rows(1)] = np.nan
    values = case.attend()
    assert np.isnan(values[:, :, case.rows(1)]).all()
    for b in (0, 2):
        np.testing.assert_array_equal(values[:, :, case.rows(b)], clean[:, :, case.rows(b)])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.dtype(">i8")])
def test_lengths_of_any_integer_type_and_strides(dtype):
    case = Case([5, 1, 3])
    lengths = np.array([5, 0, 1, 0, 3], dtype)[::2]
    values = scaled_dot_product_attention(case.q, case.k, case.v, sequence_lengths=lengths)
    np.testing.assert_array_equal(values, case.attend())


def test_lengths_may_change_after_the_call():
    case = Case([5, 1, 3])
    lengths = np.array([5, 1, 3])
    q = tc.tensor(case.q, requires_grad=True)
    values = scaled_dot_product_attention(q, case.k, case.v, sequence_lengths=lengths)
    lengths[:] = [1 << 40, -7, 3]
    values.sum().backward()
    expected = gradients((case.q, case.k, case.v), [np.ones(values.shape)], sequence_lengths=[5, 1, 3])[0]
    np.testing.assert_array_equal(q.grad.numpy(), expected)


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([5, 1, 4], ValueError, "sequence_lengths holds 4 after 6 tokens in 2 sequences; lengths are not negative, and together they are the 9"),
        ([10, -1], ValueError, "sequence_lengths holds 10 after 0 tokens"),
        ([5, -1, 5], ValueError, "sequence_lengths holds -1 after 5 tokens"),
        ([1 << 62, 1 << 62], ValueError, "sequence_lengths holds 4611686018427387904"),
        ([5, 1], ValueError, "sequence_lengths add up to 6; the arrays have 9 positions"),
        (np.array([], int), ValueError, "sequence_lengths add up to 0; the arrays have 9 positions"),
        (9, ValueError, r"sequence_lengths is int64 of shape \(\); it needs one integer for each sequence"),
        ([[9]], ValueError, r"shape \(1, 1\)"),
        ([9.0], TypeError, r"sequence_lengths is float64 of shape \(1,\); it needs one integer"),
        ([True], TypeError, "sequence_lengths is bool"),
    ],
)  # fmt: skip
def test_bad_lengths(lengths, error, message):
    case = Case([5, 1, 3])
    with pytest.raises(error, match=message):
        scaled_dot_product_attention(case.q, case.k, case.v, sequence_lengths=lengths)


def test_bad_shapes():
    x = np.zeros((1, 2, 6, 4))
    for q, k in ((x[0], x[0]), (np.zeros((2, 2, 6, 4)), x), (x[:, :, :5], x)):
        with pytest.raises(ValueError, match=r"packed sequences \(sequence_lengths\) are side by side .* got \("):
            scaled_dot_product_attention(q, k, k, sequence_lengths=[6])
    with pytest.raises(ValueError, match=r"does not broadcast to the scores .* = \(2, 2, 4, 4\)"):
        scaled_dot_product_attention(x, x, x, np.ones((6, 6), bool), sequence_lengths=[4, 2])
    with pytest.raises(ValueError, match=r"key_lengths has shape \(1,\); it needs one integer for each batch element: \(2\)"):
        scaled_dot_product_attention(x, x, x, key_lengths=[3], sequence_lengths=[4, 2])
    long = tc.zeros(1, 1, 1, 8).expand(1, 1, 2**32, 8)
    with pytest.raises(ValueError, match=r"\(1, 1, 4294967296, 4294967296\) has more elements than memory can address"):
        scaled_dot_product_attention(long, long, long, sequence_lengths=[2**32])
