"""Attention, forward and backward, on the emulated GPU, against the float64 reference."""

import ml_dtypes
import numpy as np
import pytest
from cuda_library import NUMBERS, TYPES, CudaError, compute_dtype, fill, normal, small
from tolerance import assert_close
from transformer_c.testing import reference

UNBOUNDED = 1 << 60


@pytest.fixture(autouse=True)
def use_variant(variant):
    """Every case by the plain kernel, on tensor cores, in halves (float16, and bfloat16 where a case has float64's large numbers), and in float32
    by large tiles. Gradients on tensor cores are computed in both ways where heads are short."""
    Attention.variant = variant
    yield
    Attention.variant = "plain"


def operand(array, heads_first=True):
    """(B,H,T,D) in C order, or a view of (B,T,H,D)."""
    x = TYPES["tc_attention_operand"](data=array.pointer)
    steps = array.strides()
    x.batch, x.head, x.row = steps[:3] if heads_first else (steps[0], steps[2], steps[1])
    x.keep = array
    return x


def plane(array, shape):
    """A mask or an additive term broadcast to `shape` (B,H,Tq,Tk); None: none."""
    x = TYPES["tc_attention_plane"]()
    if array is not None:
        full = [1] * (4 - len(array.shape)) + list(array.shape)
        steps = [0] * (4 - len(array.shape)) + array.strides()
        x.data = array.pointer
        x.batch, x.head, x.row, x.column = (
            0 if have == 1 and want != 1 else step for step, have, want in zip(steps, full, shape, strict=True)
        )
        x.keep = array
    return x


class Attention:
    """One case: builds the problem, runs the kernels, and has the reference's results."""

    variant = "plain"

    def __init__(self, cuda, q, k, v, mask=None, additive=(), *, fill_mask=False, causal=False, window=None, offset=0, key_lengths=None,
                 softcap=0.0, empty_rows="zero", dropout=0.0):  # fmt: skip
        if self.variant != "plain" and max(q.shape[-1], v.shape[-1]) > NUMBERS[f"TC_ATTENTION_{self.variant.upper()}_SIZE"]:
            self.variant = "plain"  # as the planner chooses
        if self.variant == "float":
            q, k, v = (x.astype(np.float32) for x in (q, k, v))
        if self.variant == "mma" and q.dtype.itemsize > 2:
            half = np.float16 if q.dtype == np.float32 else ml_dtypes.bfloat16
            q, k, v = (x.astype(half) for x in (q, k, v))
        self.cuda, self.dtype, self.saved = cuda, q.dtype, compute_dtype(q.dtype)
        (B, H, Tq, D), (Hk, Tk), Dv = q.shape, k.shape[1:3], v.shape[-1]
        self.shape, self.Hk, self.Dv = (B, H, Tq, Tk), Hk, Dv
        self.inputs = [q, k, v]
        left, right = window or (UNBOUNDED, UNBOUNDED)
        additive = [np.asarray(term, self.dtype) for term in additive]
        self.planes = [plane(cuda.array(term), self.shape) for term in additive] + [TYPES["tc_attention_plane"]()] * (2 - len(additive))
        self.problem = fill(
            "tc_attention_problem",
            **{name: operand(cuda.array(x)) for name, x in zip("qkv", self.inputs, strict=True)},
            **{"B": B, "H": H, "Hk": Hk, "Tq": Tq, "Tk": Tk, "D": D, "Dv": Dv},
            scale=D**-0.5,
            softcap=softcap,
            mask=plane(cuda.array(None if mask is None else mask.astype(np.uint8)), self.shape),
            mask_kind=NUMBERS["TC_ATTENTION_MASK_FILL" if fill_mask else "TC_ATTENTION_MASK_BOOLEAN"],
            additive=(TYPES["tc_attention_plane"] * 2)(*self.planes),
            left=left,
            right=min(right, 0) if causal else right,
            offset=offset if np.ndim(offset) == 0 else 0,
            offsets=cuda.array(np.asarray(offset, np.int64)) if np.ndim(offset) else None,
            key_lengths=cuda.array(None if key_lengths is None else np.asarray(key_lengths, np.int64)),
            empty_rows=NUMBERS["TC_ATTENTION_EMPTY_ZERO" if empty_rows == "zero" else "TC_ATTENTION_EMPTY_UNIFORM"],
            dropout=dropout,
            seed=42,
            call=3,
            heads=TYPES["tc_places"](max(B * H, 1), 0, 1),
        )
        self.splits_keys, self.large_blocks, self.shares, self.whole_heads = False, True, (1, 1, 1), False
        self.options = {
            "enable_gqa": Hk != H,
            "is_causal": causal,
            "window": None if window is None else tuple(None if side == UNBOUNDED else side for side in window),
            "causal_offset": offset,
            "key_lengths": key_lengths,
            "softcap": softcap,
            "empty_rows": empty_rows,
            "dropout_multiplier": dropout_multiplier(self.shape, dropout, 42, 3) if dropout else None,
        }
        if not fill_mask:
            self.options["attn_mask"] = mask if mask is not None else additive[1] if len(additive) > 1 else None
            self.options["bias"] = additive[0] if additive else None

    def forward(self, want_map=True):
        B, H, Tq, _Tk = self.shape
        empty = self.cuda.empty
        self.values = empty((B, H, Tq, self.Dv), self.dtype)
        self.shift, self.sum, self.lse = (empty((B, H, Tq), self.saved) for _ in range(3))
        self.map = empty(self.shape, self.dtype) if want_map else None
        results = {"values": operand(self.values), "shift": self.shift, "sum": self.sum, "lse": self.lse, "map": self.map}
        self.cuda.run("attention_forward", self.dtype, 0, problem=self.problem, splits_keys=self.splits_keys, large_blocks=self.large_blocks,
                      variant=NUMBERS[f"TC_ATTENTION_{self.variant.upper()}"], **results)  # fmt: skip
        return self.values.numpy(), self.map.numpy() if want_map else None, self.lse.numpy()

    def backward_args(self, dvalues, dmap=None, dlse=None):
        _B, _H, _Tq, _Tk = self.shape
        shapes = [x.shape for x in self.inputs]
        self.gradients = [self.cuda.empty(shape, self.dtype) for shape in shapes]
        most = 0 if self.variant == "plain" else NUMBERS[f"TC_ATTENTION_{self.variant.upper()}_BACKWARD_SIZE"]
        variant = self.variant if max(self.inputs[0].shape[-1], self.Dv) <= most else "plain"
        return fill(
            "tc_attention_backward_args",
            problem=self.problem,
            values=operand(self.values),
            dvalues=operand(self.cuda.array(dvalues.astype(self.dtype))),
            shift=self.shift,
            sum=self.sum,
            map=self.map,
            dmap=self.cuda.array(dmap),
            dlse=self.cuda.array(dlse),
            **{name: operand(d) for name, d in zip(("dq", "dk", "dv"), self.gradients, strict=True)},
            splits=1,
            shares=self.shares,
            variant=NUMBERS[f"TC_ATTENTION_{variant.upper()}"],
            whole_heads=self.whole_heads and variant == "mma",
        )

    def takes_heads(self):
        """As the planner says: tc_attention_backward_takes_heads()."""
        _B, H, Tq, Tk = self.shape
        D = max(self.inputs[0].shape[-1], self.Dv)
        rows = NUMBERS["TC_ATTENTION_HEAD_ROWS" if D <= 64 else "TC_ATTENTION_WIDE_HEAD_ROWS"]
        widest, heads = NUMBERS["TC_ATTENTION_MMA_BACKWARD_SIZE"], NUMBERS["TC_ATTENTION_HEAD_QUERY_HEADS"] * self.Hk
        return self.variant == "mma" and self.shares == (1, 1, 1) and widest >= D and heads >= H and max(Tq, Tk) <= rows

    def backward(self, dvalues, **more):
        args = self.backward_args(dvalues, **more)
        self.cuda.launch("attention_backward", self.dtype, 0, args)
        return [d.numpy() for d in self.gradients]

    def dbias(self, term, dvalues, **more):
        shape = [1] * (4 - term.ndim) + list(term.shape)
        out = self.cuda.array(np.zeros(term.shape, self.dtype))
        sizes = dict(zip(("batches", "heads", "rows"), shape[:3], strict=True))
        args = fill("tc_attention_dbias_args", backward=self.backward_args(dvalues, **more), dbias=plane(out, self.shape), **sizes)
        self.cuda.launch("attention_dbias", self.dtype, 0, args)
        return out.numpy()


def dropout_multiplier(shape, p, seed, call):
    """The factors of csrc/kernels/philox.h, from its text: Philox4x32 with 7 rounds, rows filled up to multiples of 64."""
    B, H, Tq, Tk = shape
    row = np.arange(B * H * Tq, dtype=np.uint64)[:, None] * np.uint64(-(-Tk // 64) * 64)
    element = row + np.arange(Tk, dtype=np.uint64)
    block = element // np.uint64(64) * np.uint64(16) + element % np.uint64(16)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [block & low, block >> half, np.full_like(block, call), np.zeros_like(block)]
    k0, k1 = seed, 0
    for _ in range(7):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> half) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> half) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    word = np.choose((element // np.uint64(16) % np.uint64(4)).astype(int), c)
    return np.where(word >= int(p * 2**32 + 0.5), 1 / (1 - p), 0.0).reshape(shape)


def make(cuda, rng, dtype, B=1, H=2, Tq=5, Tk=7, D=4, Dv=None, Hk=None, large=1.0, **options):
    q, k = normal(rng, (B, H, Tq, D), dtype), normal(rng, (B, Hk or H, Tk, D), dtype)
    v = normal(rng, (B, Hk or H, Tk, Dv or D), dtype)
    return Attention(cuda, (q * large).astype(dtype), k, v, **options)


def check_forward(case, k_terms):
    values, attention, lse = case.forward()
    expected = reference.attention(*case.inputs, **case.options)
    score_digits = 20 if case.dtype.itemsize > 2 else 1  # an error of the score is one of the weight's digits
    assert_close(values, expected[0], case.dtype, k=k_terms * score_digits, name="values")
    assert_close(attention, expected[1], case.dtype, k=k_terms * score_digits, name="map")
    assert_close(lse, expected[2], case.saved, k=k_terms * score_digits, name="lse")


def check_backward(case, rng, least=1, **more):
    """least: of the scale of what the gradients are sums of."""
    dvalues = normal(rng, (*case.shape[:3], case.Dv), case.dtype)
    expected = reference.attention_backward(dvalues, *case.inputs, **case.options, **more)
    loose = 4 if case.dtype.itemsize == 2 else 1  # the values it starts from are rounded to half precision
    for whole_heads in (True, False) if case.takes_heads() else (False,):
        case.whole_heads = whole_heads
        gradients = case.backward(dvalues, **{{"dattention": "dmap"}.get(name, name): value for name, value in more.items()})
        for name, actual, wanted in zip(("dq", "dk", "dv"), gradients, expected[:3], strict=True):
            scale = loose * max(np.abs(wanted).max(initial=0), least)
            assert_close(actual, wanted, case.dtype, gradient=True, scale=scale, name=f"{name}, whole heads: {whole_heads}")


# B, H, Tq, Tk, D, Dv: one of everything, odd, several tiles of either size, more columns than a block has
SHAPES = [(1, 1, 1, 1, 1, 1), small((2, 2, 5, 7, 3, 5)), small((1, 1, 40, 33, 8, 8)), (1, 1, 65, 130, 20, 33), (1, 1, 3, 4, 140, 150)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(cuda, rng, shape, dtype, schedule):
    case = make(cuda, rng, dtype, **dict(zip(("B", "H", "Tq", "Tk", "D", "Dv"), shape, strict=True)))
    check_forward(case, k_terms=shape[3] + shape[4])
    check_backward(case, rng)


MASKS = {
    "causal": {"causal": True},
    "causal-offset": {"causal": True, "offset": 2},
    "offsets-per-batch": {"causal": True, "offset": [1, -3]},
    "window": {"window": (2, 1)},
    "window without keys": {"window": (-3, 1)},
    "window-left-only": {"window": (1, UNBOUNDED), "causal": True},
    "key-lengths": {"key_lengths": [3, 0]},
    "softcap": {"softcap": 1.5},
    "dropout": {"dropout": 0.4},
    "dropout-causal": {"dropout": 0.4, "causal": True},
}


@pytest.mark.parametrize("empty_rows", ["zero", "uniform"])
@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS.keys())
def test_options(cuda, rng, options, empty_rows):
    case = make(cuda, rng, np.float32, B=2, Tq=6, Tk=5, empty_rows=empty_rows, **options)
    check_forward(case, k_terms=8)
    check_backward(case, rng)


OVER_TILES = {
    "causal": {"causal": True},
    "window": {"window": (40, 3)},
    "window without keys": {"window": (-30, 3)},
    "key-lengths": {"key_lengths": [70]},
    "dropout": {"dropout": 0.3},
    "uniform": {"causal": True, "offset": -5, "empty_rows": "uniform"},
}  # the first rows attend to the keys of all tiles


@pytest.mark.parametrize("options", OVER_TILES.values(), ids=OVER_TILES.keys())
def test_options_over_several_tiles(cuda, rng, options):
    case = make(cuda, rng, np.float32, H=1, Tq=100, Tk=90, D=8, **options)
    check_forward(case, k_terms=90)
    check_backward(case, rng)


def over_segments(rng):
    """Two batch elements of 3 queries and 600 keys: three segments. Some of them, and some rows, have nothing that may be attended to."""
    mask, term = rng.random((2, 1, 3, 600)) < 0.1, rng.standard_normal((3, 600))
    mask[0, 0, 0, :256], mask[1, 0, 1], mask[1, 0, 2, 256:] = False, False, False
    term[0, 256:], term[1] = -np.inf, -np.inf
    return {
        "plain": {},
        "causal": {"causal": True, "offset": [597, 250]},
        "causal-nothing": {"causal": True, "offset": [-2, -9]},
        "window": {"window": (20, 3), "offset": 300},
        "key-lengths": {"key_lengths": [300, 0]},
        "softcap": {"softcap": 1.5},
        "dropout": {"dropout": 0.4, "causal": True, "offset": 500},
        "boolean": {"mask": mask},
        "bias": {"additive": [term]},
        "two terms": {"additive": [rng.standard_normal((2, 2, 1, 600)), term]},
        "shared heads, wide": {"Hk": 1, "D": 70, "Dv": 140, "key_lengths": [600, 260]},
    }


def check_split(case, k_terms):
    """Against the reference and, of the plain kernel, bit for bit against blocks that take all segments: on tensor cores none do."""
    if case.variant == "mma":
        case.splits_keys = True
        return check_forward(case, k_terms)
    case.forward(want_map=False)
    whole = [x.numpy() for x in (case.values, case.shift, case.sum, case.lse)]
    case.splits_keys = True
    check_forward(case, k_terms)
    for one, other in zip(whole, (case.values, case.shift, case.sum, case.lse), strict=True):
        np.testing.assert_array_equal(one, other.numpy())


@pytest.mark.parametrize("name", over_segments(np.random.default_rng(0)))
def test_keys_split_among_blocks(cuda, rng, name):
    options = {"B": 2, "Tq": 3, "Tk": 600, **over_segments(rng)[name]}
    case = make(cuda, rng, np.float32, **options)
    check_split(case, k_terms=600)
    check_backward(case, rng)


def test_split_keys_of_the_tutorial_mask(cuda, rng):
    """Rows of which one segment, or all, have nothing but scores of -9e15."""
    mask = rng.random((3, 600)) < 0.1
    mask[0, :256], mask[1] = False, False
    case = make(cuda, rng, np.float32, Tq=3, Tk=600, mask=mask, fill_mask=True)
    case.splits_keys = True
    values, _, _ = case.forward()
    assert_close(values, reference.scaled_dot_product(*case.inputs, mask=mask)[0], case.dtype, k=600, name="values")


@pytest.mark.parametrize("keys", [256, 257, 513], ids=str)
def test_split_keys_in_each_dtype(cuda, rng, keys, dtype, schedule):
    check_split(make(cuda, rng, dtype, H=1, Tq=1, Tk=keys, causal=True, offset=keys - 1), k_terms=keys)


def test_split_keys_that_are_not_finite(cuda, rng):
    """In one segment: what is not finite comes through as from blocks that take all, and a hidden NaN does not."""
    q, k, v = (normal(rng, (1, 1, n, 4), np.float32) for n in (3, 600, 600))
    mask = np.ones((3, 600), bool)
    k[..., 300, :], v[..., 400, 0], mask[0, [300, 400]] = np.nan, np.inf, False
    k[..., 550, :] = np.inf
    mask[:2, 550] = False
    case = Attention(cuda, q, k, v, mask=mask)
    whole = case.forward(want_map=False)
    case.splits_keys = True
    split = case.forward(want_map=False)
    for one, other in zip(whole, split, strict=True):
        if case.variant != "mma" and one is not None:
            np.testing.assert_array_equal(one, other)
        elif one is not None:
            np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
    assert np.isfinite(split[0][0, 0, 0]).all() and np.isnan(split[0][0, 0, 1:]).all()


# Shares of the keys for dq, of the queries for dk and for dv: some gradients whole, more shares than there are tiles, one tile each.
SHARES = [(3, 1, 2), (1, 7, 1), (2, 3, 4)]


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("options", [{}, *OVER_TILES.values()], ids=["plain", *OVER_TILES])
def test_tiles_shared_among_blocks(cuda, rng, options, shares):
    case = make(cuda, rng, np.float32, H=2, Hk=1, Tq=130, Tk=90, D=8, Dv=5, **options)
    case.shares = shares
    case.forward(want_map=False)
    check_backward(case, rng)


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_shared_tiles_in_each_dtype(cuda, rng, shares, dtype, schedule):
    """Wide heads too; rows that attend to nothing take the mean of all values."""
    for options in ({"D": 8}, {"D": 70, "empty_rows": "uniform", "key_lengths": [0], "H": 1}):
        case = make(cuda, rng, dtype, Tq=70, Tk=100, **options)
        case.shares = shares
        case.forward(want_map=False)
        check_backward(case, rng)


def test_one_share_has_the_bits_of_none(cuda, rng):
    """Of one tile the others' shares are zeros."""
    case = make(cuda, rng, np.float32, Tq=30, Tk=30, D=8)
    case.forward(want_map=False)
    dvalues = normal(rng, (1, 2, 30, 8), np.float32)
    whole = case.backward(dvalues)
    case.shares = (2, 3, 4)
    for one, other in zip(whole, case.backward(dvalues), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(2, 2, 6, 5), (1, 1, 6, 5), (2, 1, 1, 5), (1, 2, 6, 1), (6, 5)], ids=str)
def test_boolean_mask(cuda, rng, shape):
    mask = rng.random(shape) < 0.6
    case = make(cuda, rng, np.float32, B=2, Tq=6, Tk=5, mask=mask)
    check_forward(case, k_terms=8)
    check_backward(case, rng)


def test_tutorial_mask(cuda, rng, dtype):
    """Scores of -9e15: a row with every key masked attends to all of them equally."""
    mask = rng.random((2, 1, 6, 5)) < 0.6
    mask[0, :, 2] = False
    case = make(cuda, rng, dtype, B=2, Tq=6, Tk=5, mask=mask, fill_mask=True)
    values, attention, _ = case.forward()
    expected = reference.scaled_dot_product(*case.inputs, mask=mask)
    assert_close(values, expected[0], dtype, k=100, name="values")
    assert_close(attention, expected[1], dtype, k=100, name="map")
    assert np.allclose(attention[0, :, 2].astype(float), 0.2, atol=1e-3)
    dvalues = normal(rng, values.shape, dtype)
    expected = reference.scaled_dot_product_backward(dvalues, *case.inputs, mask=mask)
    for name, actual, wanted in zip(("dq", "dk", "dv"), case.backward(dvalues), expected, strict=True):
        assert_close(actual, wanted, dtype, gradient=True, scale=4 * np.abs(wanted).max(), name=name)


@pytest.mark.parametrize("shape", [(2, 2, 6, 5), (1, 2, 6, 5), (2, 1, 1, 5), (6, 5), (6, 1), (1, 1), (5,)], ids=str)
def test_additive_term_and_its_gradient(cuda, rng, shape, dtype):
    term = rng.standard_normal(shape)
    if term.size > 6:
        term[..., 0] = -np.inf
    case = make(cuda, rng, dtype, B=2, Tq=6, Tk=5, additive=[term])
    check_forward(case, k_terms=8)
    check_backward(case, rng)
    dvalues = normal(rng, case.values.shape, dtype)
    expected = reference.attention_backward(dvalues, *case.inputs, **case.options)[3]
    taken = (
        np.abs(dvalues.astype(float) * case.values.numpy().astype(float)).sum(-1).max()
    )  # from products of dvalues; the values are rounded
    assert_close(case.dbias(term, dvalues), expected, dtype, gradient=True, scale=max(np.abs(expected).max(), 1, taken))


def test_two_additive_terms_over_several_tiles(cuda, rng):
    terms = [rng.standard_normal((1, 1, 1, 70)), rng.standard_normal((40, 70))]
    case = make(cuda, rng, np.float64, H=2, Tq=40, Tk=70, D=6, additive=terms, dropout=0.2)
    check_forward(case, k_terms=70)
    check_backward(case, rng)
    dvalues = normal(rng, case.values.shape, case.dtype)
    expected = reference.attention_backward(dvalues, *case.inputs, **case.options)[3]
    assert_close(case.dbias(terms[0], dvalues), expected, case.dtype, gradient=True, scale=4 * np.abs(expected).max())


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_gradients_of_map_and_lse(cuda, rng, softcap):
    case = make(cuda, rng, np.float64, B=2, Tq=6, Tk=5, causal=True, softcap=softcap)
    case.forward()
    dattention, dlse = normal(rng, case.shape, case.dtype), normal(rng, case.shape[:3], case.saved)
    check_backward(case, rng, dattention=dattention, dlse=dlse)


@pytest.mark.parametrize("H, Hk", [(4, 2), (3, 1)])
def test_heads_that_share_keys(cuda, rng, H, Hk, dtype):
    case = make(cuda, rng, dtype, B=2, H=H, Hk=Hk, causal=True)
    check_forward(case, k_terms=11)
    check_backward(case, rng)


@pytest.mark.parametrize("whole_heads", [False, True])
def test_what_may_not_be_attended_to_is_never_seen(cuda, rng, whole_heads):
    """NaN and infinity in masked keys and values."""
    q, k, v = (normal(rng, (1, 2, n, 4), np.float32) for n in (6, 7, 7))
    k[:, :, 4:] = np.nan
    v[:, :, 4:] = np.inf
    for options in ({"key_lengths": [4]}, {"mask": np.arange(7) < 4}, {"additive": [np.where(np.arange(7) < 4, 0, -np.inf)]}):
        case = Attention(cuda, q, k, v, **options)
        values, attention, lse = case.forward()
        clean = Attention(cuda, q, k[:, :, :4], v[:, :, :4])
        case.whole_heads = clean.whole_heads = whole_heads
        assert np.array_equal(values, clean.forward()[0]), options
        assert np.isfinite(lse).all() and (attention[..., 4:] == 0).all()
        dvalues = normal(rng, values.shape, case.dtype)
        dq, dk, dv = case.backward(dvalues)
        clean_dq, clean_dk, clean_dv = clean.backward(dvalues)
        for one, other in zip((dq, dk[:, :, :4], dv[:, :, :4]), (clean_dq, clean_dk, clean_dv), strict=True):
            if case.variant == "float":  # pairs that a mask or a term may change have weights of another exponential
                assert_close(one, other.astype(np.float64), case.dtype, gradient=True)
            else:
                np.testing.assert_array_equal(one, other)
        assert (dk[:, :, 4:] == 0).all() and (dv[:, :, 4:] == 0).all()


def test_nan_that_is_attended_to_comes_through(cuda, rng):
    q, k, v = (normal(rng, (1, 1, 40, 4), np.float32) for _ in range(3))
    v[0, 0, 35, 1] = np.nan
    values = Attention(cuda, q, k, v).forward()[0]
    assert np.isnan(values[..., 1]).all() and np.isfinite(values[..., [0, 2, 3]]).all()


def test_large_scores(cuda, rng):
    case = make(cuda, rng, np.float64, Tq=9, Tk=40, D=8, large=1e4)
    check_forward(case, k_terms=1)
    check_backward(case, rng, least=1e4 if case.dtype == np.float32 else 1)  # differences of what is multiplied by q


def test_no_keys(cuda, rng):
    values, _, lse = make(cuda, rng, np.float32, Tq=3, Tk=0).forward()
    assert (values == 0).all() and np.isneginf(lse).all()


def test_no_features(cuda, rng):
    """Scores of zero: the mean of the values."""
    case = make(cuda, rng, np.float32, Tq=3, Tk=5, D=1, Dv=4)
    case.problem.D = 0
    mean = case.inputs[2].astype(np.float64).mean(2, keepdims=True)
    assert_close(case.forward()[0], np.broadcast_to(mean, (1, 2, 3, 4)), case.dtype, k=5)


def test_windows_on_a_joint_projection(cuda, rng, variant):
    """q, k and v as the fused projection leaves them: rows of (B, T, H, 3, D)."""
    B, T, H, D = 2, 6, 3, 4
    dtype = np.dtype(np.float16 if variant == "mma" else np.float32)
    joint = normal(rng, (B, T, H, 3, D), dtype)
    device, out = cuda.array(joint), cuda.empty((B, T, H, D), dtype)
    windows = []
    for part in range(3):
        x = TYPES["tc_attention_operand"](data=device.pointer + dtype.itemsize * part * D)
        x.batch, x.head, x.row = T * H * 3 * D, 3 * D, H * 3 * D
        windows.append(x)
    problem = fill(
        "tc_attention_problem",
        q=windows[0],
        k=windows[1],
        v=windows[2],
        B=B,
        H=H,
        Hk=H,
        Tq=T,
        Tk=T,
        D=D,
        Dv=D,
        scale=0.5,
        heads=TYPES["tc_places"](B * H, 0, 1),
    )
    problem.left = problem.right = UNBOUNDED
    shift, total = cuda.empty((B, H, T), np.float32), cuda.empty((B, H, T), np.float32)
    which = {"problem": problem, "variant": NUMBERS[f"TC_ATTENTION_{variant.upper()}"]}
    cuda.run("attention_forward", dtype, 0, values=operand(out, heads_first=False), shift=shift, sum=total, **which)
    q, k, v = (joint[..., part, :].swapaxes(1, 2) for part in range(3))
    assert_close(out.numpy().swapaxes(1, 2), reference.attention(q, k, v)[0], dtype, k=100)


@pytest.mark.parametrize("whole_heads", [False, True])
def test_same_bits_under_every_schedule(cuda, rng, whole_heads):
    case = make(cuda, rng, np.float32, Tq=40, Tk=70, D=8, causal=True)
    dvalues = normal(rng, (1, 2, 40, 8), case.dtype)
    case.whole_heads = whole_heads
    results = []
    for schedule in (("round_robin", 0), ("greedy", 5), ("random", 6)):
        cuda.set_schedule(*schedule)
        results.append([*case.forward(), *case.backward(dvalues)])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_finite_terms_hide_nothing(cuda, rng, variant):
    """The sum of two lowest numbers is beyond the dtype, and still not -inf."""
    dtype = np.dtype(ml_dtypes.bfloat16 if variant == "mma" else np.float32)
    lowest = np.full((5, 7), ml_dtypes.finfo(dtype).min, dtype)
    case = make(cuda, rng, dtype, additive=[lowest, lowest])
    values, attention, _ = case.forward()
    assert_close(attention, np.full((1, 2, 5, 7), 1 / 7), dtype, name="map")
    assert_close(values, np.repeat(case.inputs[2].astype(np.float64).mean(2, keepdims=True), 5, 2), dtype, k=7, name="values")


@pytest.mark.parametrize("whole_heads", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_nan_from_above_stays_with_what_is_seen(cuda, rng, causal, whole_heads):
    """In the gradient of a row that may attend to nothing, or of a hidden weight, it reaches nothing; elsewhere the keys of its row."""
    mask = np.tri(70, dtype=bool)
    mask[3] = False
    case = make(cuda, rng, np.float64, Tq=70, Tk=70, mask=mask, causal=causal)
    case.forward()
    case.whole_heads = whole_heads
    dvalues, dmap = normal(rng, (1, 2, 70, 4), case.dtype), normal(rng, (1, 2, 70, 70), case.dtype)
    clean = case.backward(dvalues, dmap=dmap)
    dirty = dvalues.copy()
    dirty[:, :, 3] = np.nan
    for name, actual, wanted in zip(
        ("dq", "dk", "dv"), case.backward(dirty, dmap=np.where(mask, dmap, case.dtype.type(np.nan))), clean, strict=True
    ):
        assert_close(actual, wanted, case.dtype, gradient=True, name=name)
    dirty[:, :, 20] = np.nan
    dq, dk, dv = case.backward(dirty, dmap=dmap)
    for gradient in (dk, dv):
        np.testing.assert_array_equal(np.isnan(gradient).any((0, 1, 3)), mask[20])
    np.testing.assert_array_equal(np.isnan(dq).any((0, 1, 3)), np.arange(70) == 20)


@pytest.mark.parametrize("kernel", ["forward", "segments", "map", "delta", "gradient", "head", "join", "dbias"])
def test_an_error_of_any_launch_is_given(cuda, rng, kernel):
    """Not only of the last one: a launch that succeeds after one that was refused does not hide it."""
    term = normal(rng, (5, 7), np.float32)
    case = make(cuda, rng, np.float32, additive=[term])
    case.shares, case.whole_heads = (1, 1, 1) if kernel == "head" else (2, 1, 1), kernel == "head"
    dvalues = np.ones((1, 2, 5, 4), case.dtype)
    if kernel == "segments":
        case = make(cuda, rng, np.float32, Tk=257)
        case.splits_keys = True
    if kernel not in ("forward", "segments", "map"):
        case.forward()
    if case.variant == "mma":
        kernel = {"forward": "mma", "map": "map_mma", "gradient": "backward_mma", "head": "backward_head"}.get(kernel, kernel)
    elif kernel == "head":
        pytest.skip("of tensor cores")
    if case.variant == "float":
        kernel = {"forward": "forward_float", "gradient": "gradient_float"}.get(kernel, kernel)
    with cuda.refusing(f"attention_{kernel}_kernel"):
        if kernel in ("forward", "forward_float", "mma", "segments", "map", "map_mma"):
            with pytest.raises(CudaError, match=kernel):
                case.forward()
        if kernel in ("delta", "gradient", "gradient_float", "backward_mma", "backward_head", "join"):
            with pytest.raises(CudaError, match=kernel):
                case.backward(dvalues)
        if kernel in ("delta", "dbias"):
            with pytest.raises(CudaError, match=kernel):
                case.dbias(term, dvalues)


# Queries of one warp, one block and one more; keys of one tile, one segment and one more; features of either width, and filled up.
BORDERS = {
    "one more key than a segment": {"Tq": 33, "Tk": 257, "D": 64, "causal": True, "offset": 224},
    "one more query than a block": {"Tq": 129, "Tk": 289, "D": 20, "window": (200, 30), "offset": 100},
    "wide, five queries": {"Tq": 5, "Tk": 600, "D": 70, "Dv": 100, "key_lengths": [590]},
    "wide, dropout": {"Tq": 70, "Tk": 300, "D": 128, "causal": True, "offset": 230, "dropout": 0.2},
    "wide, four queries": {"Tq": 4, "Tk": 520, "D": 128, "Dv": 33},
}


@pytest.mark.parametrize("options", BORDERS.values(), ids=BORDERS.keys())
def test_borders_of_tiles_and_segments(cuda, rng, options):
    case = make(cuda, rng, np.float32, H=1, **options)
    check_forward(case, k_terms=options["Tk"])
    for case.shares in ((1, 1, 1), (2, 3, 3)):
        check_backward(case, rng)


# Tiles of 64 or 32 keys: all seen, some hidden, none; queries of one, four and eight warps with one fragment of rows or two, of which the last ones may
# have none.
TILES = {
    "one warp": {"Tq": 16, "Tk": 192},
    "causal": {"Tq": 150, "Tk": 150, "causal": True},
    "causal, later": {"Tq": 40, "Tk": 270, "causal": True, "offset": 230},
    "window": {"Tq": 135, "Tk": 200, "window": (70, 65), "offset": 40},
    "lengths": {"B": 2, "Tq": 20, "Tk": 192, "key_lengths": [128, 65]},
}


@pytest.mark.parametrize("width", [64, 96, 128, 256, 72, 136])
@pytest.mark.parametrize("name", TILES)
def test_tiles_of_keys(cuda, rng, name, width):
    """Rows of 16 bytes, in widths that fill a tile and two that do not."""
    dtype = np.float16 if name == "causal" else ml_dtypes.bfloat16
    case = make(cuda, rng, dtype, **{"H": 2, "Hk": 1, "D": width, **TILES[name]})
    check_forward(case, k_terms=width)


def of_each_head(rng, Tq):
    """Of six query heads and 70 keys, in two batch elements."""
    return {
        "causal": {"causal": True, "offset": [66, 20]},
        "window": {"window": (30, 2), "offset": 50},
        "lengths": {"key_lengths": [70, 33]},
        "mask": {"mask": rng.random((2, 6, Tq, 70)) < 0.6},
        "mask of heads": {"mask": rng.random((1, 6, 1, 70)) < 0.6, "empty_rows": "uniform"},
        "bias": {"additive": [rng.standard_normal((6, Tq, 70)), rng.standard_normal((2, 1, 1, 70))]},
        "dropout": {"dropout": 0.4, "causal": True, "offset": 60},
        "softcap": {"softcap": 1.5},
    }


@pytest.mark.parametrize("Tq, Hk", [(1, 1), small(1, 2), (5, 2), (23, 3), (64, 2), (65, 3)])
@pytest.mark.parametrize("name", of_each_head(np.random.default_rng(0), 1))
def test_heads_that_share_keys_and_rows(cuda, rng, name, Tq, Hk):
    """Few queries of six, three or two heads in the rows of one block, of one, four and eight warps."""
    case = make(cuda, rng, np.float16, B=2, H=6, Hk=Hk, Tq=Tq, Tk=70, D=8, **of_each_head(rng, Tq)[name])
    check_forward(case, k_terms=70)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4, "causal": True, "offset": 290}], ids=["plain", "dropout"])
def test_heads_that_share_keys_and_rows_in_segments(cuda, rng, options):
    case = make(cuda, rng, ml_dtypes.bfloat16, B=2, H=6, Hk=2, Tq=7, Tk=300, D=64, **options)
    case.splits_keys = True
    check_forward(case, k_terms=300)


@pytest.mark.parametrize("options", [{"causal": True}, {"dropout": 0.3}], ids=["causal", "dropout"])
def test_small_blocks_have_the_bits_of_large_ones(cuda, rng, options):
    """Of wide heads, on GPUs with less shared memory."""
    case = make(cuda, rng, ml_dtypes.bfloat16, H=1, Tq=130, Tk=140, D=200, Dv=256, **options)
    check_forward(case, k_terms=200)
    large = case.values.numpy()
    case.large_blocks = False
    np.testing.assert_array_equal(case.forward(want_map=False)[0], large)


@pytest.mark.parametrize("width", [64, 96, 128])
@pytest.mark.parametrize("options", [{"causal": True, "offset": 21}, {"window": (70, 30), "offset": 9}, {"key_lengths": [163]}], ids=str)
def test_few_rows_have_the_bits_of_many(cuda, rng, options, width):
    """Blocks of few rows have one fragment a warp, those of many two."""
    many = make(cuda, rng, ml_dtypes.bfloat16, H=1, Tq=150, Tk=171, D=width, **options)
    q, k, v = many.inputs
    values, _, lse = many.forward(want_map=False)
    for rows in (48, 16):
        few = Attention(cuda, q[:, :, :rows], k, v, **options).forward(want_map=False)
        np.testing.assert_array_equal(few[0], values[:, :, :rows])
        np.testing.assert_array_equal(few[2], lse[:, :, :rows])


# Of gradients: tiles of 32 for blocks of 64 queries or keys, all seen, some hidden, none; blocks of which the last warps have no rows; heads of
# 16 bytes, in widths that fill a tile and one that does not.
GRADIENT_TILES = {
    "all": {"D": 64, "Tq": 130, "Tk": 161},
    "all, wide": {"D": 128, "Tq": 100, "Tk": 100},
    "causal": {"D": 96, "Tq": 150, "Tk": 150, "causal": True},
    "causal, later": {"D": 128, "Tq": 40, "Tk": 230, "causal": True, "offset": 190},
    "window": {"D": 72, "Tq": 135, "Tk": 200, "window": (70, 65), "offset": 40},
    "lengths": {"D": 64, "B": 2, "Tq": 70, "Tk": 192, "key_lengths": [128, 65]},
}


@pytest.mark.parametrize("name", GRADIENT_TILES)
def test_tiles_of_gradients(cuda, rng, name):
    """In one block and shared among several; and the same bits again."""
    dtype = np.float16 if name == "causal" else ml_dtypes.bfloat16
    case = make(cuda, rng, dtype, **{"H": 2, "Hk": 1, **GRADIENT_TILES[name]})
    case.forward(want_map=False)
    dvalues = normal(rng, (*case.shape[:3], case.Dv), case.dtype)
    again = case.backward(dvalues)
    for one, other in zip(case.backward(dvalues), again, strict=True):
        np.testing.assert_array_equal(one, other)
    for case.shares in ((1, 1, 1), (2, 3, 3)):
        check_backward(case, rng)


# Of heads that a block takes whole: one tile of 16 and its edges, several, as many as there may be, and the first that are too long; in the widths
# that a kernel is compiled for, and others.
HEAD_SIZES = [
    small((1, 1, 8)),
    (15, 16, 8),
    small((16, 16, 64)),
    (17, 5, 40),
    (1, 33, 32),
    (63, 64, 72),
    (64, 65, 128),
    (65, 17, 33),
    (127, 128, 64),
    (128, 129, 64),
    (64, 64, 128),
]
HEAD_OPTIONS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": (20, 3), "offset": 4},
    "lengths": {"key_lengths": [9, 0]},
    "lengths, uniform": {"key_lengths": [9, 0], "empty_rows": "uniform"},
    "dropout": {"dropout": 0.3},
    "softcap": {"softcap": 1.5},
}


def sizes_with_options():
    """Every size, and every option with sizes of one tile and of several."""
    for size in HEAD_SIZES:
        sizes = size.values[0] if hasattr(size, "values") else size
        for name in HEAD_OPTIONS:
            if name in ("all", "causal") or sizes in ((17, 5, 40), (63, 64, 72), (16, 16, 64)):
                yield pytest.param(sizes, name, marks=getattr(size, "marks", ()), id=f"{'x'.join(map(str, sizes))}-{name}")


@pytest.mark.parametrize("size, name", list(sizes_with_options()))
def test_gradients_of_whole_heads(cuda, rng, size, name, schedule):
    """Two heads that read the same keys, in two batch elements: the same bits as of each alone, and again."""
    if Attention.variant != "mma":
        pytest.skip("of tensor cores")
    Tq, Tk, D = size
    dtype = ml_dtypes.bfloat16 if name == "causal" else np.float16
    options = {"causal": True, "offset": Tk - Tq} if name == "causal" else HEAD_OPTIONS[name]
    case = make(cuda, rng, dtype, B=2, H=2, Hk=1, Tq=Tq, Tk=Tk, D=D, Dv=max(D - 8, 1) if name == "window" else D, **options)
    case.forward(want_map=False)
    assert case.takes_heads() == (max(Tq, Tk) <= (128 if D <= 64 else 64))
    check_backward(case, rng)
    if not case.takes_heads():
        return
    dvalues = normal(rng, (*case.shape[:3], case.Dv), case.dtype)
    case.whole_heads = True
    whole = case.backward(dvalues)
    for one, other in zip(case.backward(dvalues), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    if name == "dropout":  # of which each row has its own
        return
    for b in range(2):
        own = {key: [x[b]] if isinstance(x, list) else x for key, x in options.items()}
        alone = Attention(cuda, *(x[b : b + 1] for x in case.inputs), **own)
        alone.forward(want_map=False)
        alone.whole_heads = True
        for one, other in zip(alone.backward(dvalues[b : b + 1]), whole, strict=True):
            np.testing.assert_array_equal(one, other[b : b + 1])


def test_gradients_of_heads_as_long_as_others_in_the_batch(cuda, rng, variant):
    """A short head has the same bits alone and padded, beside one that is longer."""
    if variant == "plain":
        pytest.skip("of tensor cores")
    q, k, v, dvalues = (normal(rng, (1, 2, 90, 24), np.float16) for _ in range(4))
    results = []
    for rows, options in ((20, {}), (90, {"key_lengths": [20]})):
        case = Attention(cuda, *(x[:, :, :rows] for x in (q, k, v)), **options)
        case.forward(want_map=False)
        case.whole_heads = True
        of_rows = dvalues[:, :, :rows].copy()
        of_rows[:, :, 20:] = 0
        results.append([x[:, :, :20] for x in case.backward(of_rows)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("whole_heads", [False, True])
@pytest.mark.parametrize("hidden_by", ["causal", "mask"])
def test_what_is_not_finite_reaches_the_gradients_of_who_sees_it(cuda, rng, hidden_by, whole_heads):
    """A query, a key and a gradient of values that are infinite or NaN, in tiles of which some pairs are hidden: the gradients of all that does
    not see them are as without."""
    q, k, v, dvalues = (normal(rng, (1, 1, 100, 8), np.float16) for _ in range(4))
    sees = np.tri(100, dtype=bool)
    if hidden_by == "mask":
        sees[66:, 5] = False
    options = {"causal": True} if hidden_by == "causal" else {"mask": sees}

    def gradients(*inputs):
        case = Attention(cuda, *inputs[:3], **options)
        case.forward(want_map=False)
        case.whole_heads = whole_heads
        return case.backward(inputs[3])

    clean = gradients(q, k, v, dvalues)
    for of, row, bad in (
        (0, 70, np.nan),
        (0, 40, np.inf),
        (1, 5, np.nan),
        (1, 90, np.inf),
        (2, 60, np.nan),
        (3, 70, -np.inf),
        (3, 3, np.nan),
    ):
        dirty = [x.copy() for x in (q, k, v, dvalues)]
        dirty[of][0, 0, row, 3] = bad
        queries = np.arange(100) == row if of in (0, 3) else sees[:, row]  # whose weights or gradients it changes
        keys = sees[queries].any(0)
        changed = gradients(*dirty)
        for name, actual, wanted, reached in zip(("dq", "dk", "dv"), changed, clean, (queries, keys, keys), strict=True):
            np.testing.assert_array_equal(actual[0, 0, ~reached], wanted[0, 0, ~reached], err_msg=f"{name} of {of}, {row}")
        np.testing.assert_array_equal(np.isfinite(changed[0]).all((0, 1, 3)), ~queries)


@pytest.mark.parametrize("rows", [70, 150])
@pytest.mark.parametrize("hidden_by", ["causal", "mask"])
def test_values_that_are_not_finite_reach_who_sees_them(cuda, rng, hidden_by, rows):
    """NaN and infinities in a tile that some rows see in part, and each row gets what it sees: the others are as without."""
    q, k, v = (normal(rng, (1, 1, rows, 8), np.float16) for _ in range(3))
    mask = np.tri(rows, dtype=bool)
    mask[66:, 5] = False
    options = {"causal": True} if hidden_by == "causal" else {"mask": mask}
    clean = Attention(cuda, q, k, v, **options).forward()[0]
    dirty = v.copy()
    dirty[0, 0, 5, 2], dirty[0, 0, 20, 3], dirty[0, 0, 40, 3], dirty[0, 0, 65, 7] = np.nan, np.inf, -np.inf, -np.inf
    values = Attention(cuda, q, k, dirty, **options).forward()[0]
    expected = clean.copy()
    expected[0, 0, (mask if hidden_by == "mask" else np.tri(rows, dtype=bool))[:, 5], 2] = np.nan
    expected[0, 0, 20:40, 3], expected[0, 0, 40:, 3], expected[0, 0, 65:, 7] = np.inf, np.nan, -np.inf
    np.testing.assert_array_equal(values, expected)


def test_an_error_of_the_mean_is_given(cuda, rng, variant):
    case = make(cuda, rng, np.float16, empty_rows="uniform", key_lengths=[0])
    with cuda.refusing("attention_mean_kernel"):
        if variant != "plain":
            with pytest.raises(CudaError, match="mean"):
                case.forward()
        else:
            case.forward()
