"""The matrix product and the fused QKV projection made of it, on the emulated GPU, against the float64 reference."""

import contextlib

import ml_dtypes
import numpy as np
import pytest
from cuda_library import NUMBERS, TYPES, CudaError, compute_dtype, fill, normal, small
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference

ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}
FUNCTIONS = {
    None: lambda x: x,
    "relu": reference.relu,
    "gelu": reference.gelu,
    "gelu_tanh": lambda x: reference.gelu(x, approximate="tanh"),
}


HALVES = [np.float16, ml_dtypes.bfloat16]
# How each kernel is asked for, with the side of the tile: the plain one has 64 for all but float64, and 128 for float32.
PLAINS, OF_HALVES, TF32, TF32_X3 = ([{"variant": NUMBERS[f"TC_GEMM_{name}"], "tile": tile} for tile in tiles] for name, tiles in (
    ("PLAIN", (32, 64, 128)), ("TENSOR_CORES", (64, 128)), ("TF32", (64, 128)), ("TF32_X3", (64, 128))))  # fmt: skip
PLAIN, PLAIN_64, _ = PLAINS
# Those of float32 alone: by tf32, and by two tf32 for each number.
OF_FLOATS = [*PLAINS, *TF32, *TF32_X3]
IDS = ["plain32", "plain64", "plain128", "tf32-64", "tf32-128", "tf32x3-64", "tf32x3-128"]
IDS_OF_HALVES = ["tensor64", "tensor128"]
plain = pytest.mark.parametrize("how", PLAINS, ids=IDS[:3])
variants = pytest.mark.parametrize("how", [*OF_FLOATS, *OF_HALVES], ids=[*IDS, *IDS_OF_HALVES])
tensor_cores = pytest.mark.parametrize("how", OF_HALVES, ids=IDS_OF_HALVES)
by_tf32 = pytest.mark.parametrize("how", [*TF32, *TF32_X3], ids=IDS[3:])
halves = pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])


def can(how, dtype):
    """Of what the tensor cores do not compute, the product says so."""
    able = how in PLAINS or (dtype == np.float32 if how in OF_FLOATS else dtype in HALVES)
    return contextlib.nullcontext() if able else pytest.raises(CudaError, match="invalid argument")


def rounded(x, how):
    """The numbers that are multiplied: of tf32 the nearest ones, of ties those of the larger magnitude."""
    if how not in TF32:
        return x
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def in_chunk(dtype):
    """Elements of what tensor cores' operands are copied in."""
    return 16 // np.dtype(dtype).itemsize


def stored(x, how):
    """A matrix, for tensor cores with NaNs after each row up to a multiple of 16 bytes, and the length of its rows."""
    if how in PLAINS:
        return x, x.shape[1]
    rows = np.full((x.shape[0], -(-x.shape[1] // in_chunk(x.dtype)) * in_chunk(x.dtype)), np.nan, x.dtype)
    rows[:, : x.shape[1]] = x
    return rows, rows.shape[1]


def product(
    cuda, a, b, how=PLAIN, *, a_transposed=False, b_transposed=False, bias=None, residual=None, activation=None, pre=False, k_chunks=1, k_chunk=None,
    a_sum=False, wide=False, mask=None,
):  # fmt: skip
    """c, pre, a_sum of matrices stored directly or transposed. Tensor cores want rows along k to be whole chunks."""
    if how not in PLAINS and (a.shape[1] % in_chunk(a.dtype) or a_sum):
        a_transposed, b_transposed = True, False
    dtype, saved = a.dtype, compute_dtype(a.dtype) if wide or k_chunks > 1 else a.dtype
    (M, K), N = a.shape, b.shape[1]
    k_chunk = k_chunk or -(-K // k_chunks)
    c = cuda.empty((M, N) if k_chunks == 1 else (k_chunks, M, N), saved)
    before = cuda.empty((M, N), dtype) if pre else None
    sums = cuda.empty((k_chunks, M), saved) if a_sum else None
    (left, a_length), (right, b_length) = stored(a.T if a_transposed else a, how), stored(b.T if b_transposed else b, how)
    arrays = {"a": cuda.array(left), "b": cuda.array(right)}
    strides = {
        **dict(zip(("a_row", "a_col"), (1, a_length) if a_transposed else (a_length, 1), strict=True)),
        **dict(zip(("b_row", "b_col"), (1, b_length) if b_transposed else (b_length, 1), strict=True)),
        **{"c_row": N, "pre_row": N, "residual_row": N},
    }
    cuda.run(
        "gemm",
        dtype,
        0,
        struct="tc_gemm_args",
        c=c,
        pre=before,
        a_sum=sums,
        **arrays,
        bias=cuda.array(bias),
        residual=cuda.array(residual),
        **{"M": M, "N": N, "K": K, "k_chunk": k_chunk, "k_chunks": k_chunks, "c_chunk": M * N, "batch": 1},
        **strides,
        b_form=NUMBERS["TC_GEMM_B_ROWS"],
        activation=ACTIVATIONS[activation],
        wide=wide,
        **({} if mask is None else {"mask": mask}),
        **how,
    )
    return c.numpy(), before.numpy() if pre else None, sums.numpy() if a_sum else None


SHAPES = [(0, 3, 2), (1, 1, 1), (3, 5, 0), small((5, 7, 3)), (33, 65, 40), small((70, 33, 31)), (64, 64, 32)]


def check_product(cuda, rng, shape, dtype, how, **options):
    M, N, K = shape
    a, b = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype)
    c = product(cuda, a, b, how, **options)[0]
    a, b = rounded(a, how), rounded(b, how)
    scale = np.abs(a.astype(float)) @ np.abs(b.astype(float))
    assert_close(c, reference.matmul(a, b), dtype, k=K, scale=scale.max(initial=0))


@plain
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(cuda, rng, shape, how, dtype, schedule):
    check_product(cuda, rng, shape, dtype, how)


@by_tf32
@pytest.mark.parametrize("shape", [*SHAPES, (129, 130, 40), small((9, 17, 100))], ids=str)
def test_product_by_tf32(cuda, rng, shape, how, schedule):
    check_product(cuda, rng, shape, np.float32, how)


@halves
@tensor_cores
@pytest.mark.parametrize("shape", [*SHAPES, (129, 130, 40), small((9, 17, 100))], ids=str)
def test_product_on_tensor_cores(cuda, rng, shape, how, dtype, schedule):
    check_product(cuda, rng, shape, dtype, how)


@pytest.mark.parametrize("how", [*OF_HALVES, *TF32, *TF32_X3], ids=[*IDS_OF_HALVES, *IDS[3:]])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("a_transposed", [False, True])
def test_operands_of_tensor_cores_run_along_k_or_across(cuda, rng, a_transposed, b_transposed, how):
    """In 5 steps of k or more, of which the first one has 8 terms: every stage is used again."""
    dtype = np.float32 if how in OF_FLOATS else np.float16
    check_product(cuda, rng, (77, 130, 136), dtype, how, a_transposed=a_transposed, b_transposed=b_transposed)


@plain
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("shape", [(37, 66, 45), (132, 136, 68)], ids=str)  # without and with rows that begin at multiples of 16 bytes
def test_operands_run_along_k_or_across(cuda, rng, shape, a_transposed, b_transposed, how):
    check_product(cuda, rng, shape, np.float32, how, a_transposed=a_transposed, b_transposed=b_transposed)


@plain
def test_operands_of_any_stride(cuda, rng, how):
    """Neither axis of A is contiguous; rows of B are, and begin at odd places. 2 blocks of k."""
    whole, b = normal(rng, (69, 2 * 402), np.float32), normal(rng, (402, 35), np.float32)
    c = cuda.empty((69, 35), np.float32)
    strides = {"a_row": 804, "a_col": 2, "b_row": 35, "b_col": 1, "c_row": 35}
    sizes = {"M": 69, "N": 35, "K": 402, "k_chunk": 402, "k_chunks": 1, "batch": 1, "b_form": NUMBERS["TC_GEMM_B_STRIDED"]}
    cuda.run("gemm", np.float32, 0, c=c, a=cuda.array(whole), b=cuda.array(b), **strides, **sizes, **how)
    a = whole[:, ::2]
    assert_close(c.numpy(), reference.matmul(a, b), np.float32, k=402, scale=(np.abs(a.astype(float)) @ np.abs(b)).max())


@variants
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(cuda, rng, activation, how, dtype):
    M, N, K = 34, 35, 9
    a, b = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype)
    bias, residual = normal(rng, N, dtype), normal(rng, (M, N), dtype)
    with can(how, dtype) as refused:
        c, pre, _ = product(cuda, a, b, how, bias=bias, residual=residual, activation=activation, pre=True)
    if refused:
        return
    before = reference.matmul(rounded(a, how), rounded(b, how)) + bias.astype(float)
    assert_close(pre, before, dtype, k=K, name="pre")
    assert_close(c, FUNCTIONS[activation](before) + residual.astype(float), dtype, k=K, name="c")


MASK = {"p": 0.3, "seed": 2**63 + 5, "call": 9}
# M, N, rows that are numbered together, the first of them and the step: no vectors, and rows that share a block of random words; pairs; vectors with a part of
# a group at the end; whole groups, whose words lanes draw for each other, also beyond a tile; the same of a batch that several share.
DROPPED = [
    (34, 35, 34, 0, 1),
    (9, 38, 9, 0, 1),
    (5, 40, 5, 0, 1),
    small((3, 64, 3, 0, 1)),
    (70, 192, 70, 0, 1),
    (12, 24, 3, 1, 2),
    (6, 64, 2, 1, 3),
    (4, 7, 1, 2, 3),
]


def multiplier(elements, p, seed, call):
    """What dropout multiplies elements with these numbers by."""
    return _core.dropout_forward(np.ones(int(elements.max()) + 1), p, seed, call)[elements]


def elements_of(M, N, rows, first, step):
    """The numbers of a result's elements, tc_place()."""
    row = np.arange(M)
    return ((first + row // rows * step) * rows + row % rows)[:, None] * N + np.arange(N)


def mask_of(N, rows=None, first=0, step=1, **options):
    return fill("tc_mask", places=TYPES["tc_places"](rows * N, first, step), **{**MASK, **options})


def same_bits(x, y):
    np.testing.assert_array_equal(x.view(np.uint8), y.view(np.uint8))


@variants
@pytest.mark.parametrize("shape", DROPPED, ids=str)
def test_dropout_in_the_epilogue(cuda, rng, shape, how, dtype):
    """The mask and the bits of a dropout of the product, to which the residual is added: halves are rounded once. With and without a residual."""
    (M, N, *share), K, activation = shape, 16, "gelu" if shape[1] % 5 else None
    a, b, bias, residual = (normal(rng, s, dtype) for s in ((M, K), (K, N), N, (M, N)))
    compute = compute_dtype(dtype)
    with can(how, dtype) as refused:
        plain, pre, _ = product(cuda, a, b, how, bias=bias, activation=activation, pre=True)
        y, same_pre, _ = product(cuda, a, b, how, bias=bias, activation=activation, pre=True, mask=mask_of(N, *share))
        added = product(cuda, a, b, how, bias=bias, activation=activation, residual=residual, mask=mask_of(N, *share))[0]
    if refused:
        return
    same_bits(same_pre, pre)
    factors = multiplier(elements_of(M, N, *share), **MASK)
    before = FUNCTIONS[activation](reference.matmul(rounded(a, how), rounded(b, how)) + bias.astype(float))
    assert_close(y, before * factors, dtype, k=K, name="y")
    assert_close(added, before * factors + residual.astype(float), dtype, k=K, name="added")
    np.testing.assert_array_equal(y[factors == 0].astype(float), 0)
    same_bits(added[factors == 0], residual[factors == 0])
    if dtype == compute:
        kept = np.where(factors != 0, plain * compute.type(factors.max()), 0).astype(dtype)
        same_bits(y, kept)
        same_bits(added, kept + residual)


@pytest.mark.parametrize("how", [OF_HALVES[0], TF32[0], TF32_X3[0]], ids=["halves", "tf32", "tf32x3"])
@pytest.mark.parametrize("shape", [(1, 33, 8), (13, 64, 64), (16, 40, 264)], ids=str)
def test_dropout_of_few_rows(cuda, rng, shape, how):
    """By tiles of 16 x 32, in which a group of random words is not whole: the bits of the tile of 64."""
    (M, N, K), dtype = shape, np.float32 if how in OF_FLOATS else np.float16
    a, b, residual = (normal(rng, s, dtype) for s in ((M, K), (K, N), (M, N)))
    few, other = (
        product(cuda, a, b, {**how, "tile": tile}, b_transposed=True, residual=residual, activation="relu", mask=mask_of(N, M))[0]
        for tile in (16, 64)
    )
    same_bits(few, other)
    factors = multiplier(elements_of(M, N, M, 0, 1), **MASK)
    same_bits(few[factors == 0], residual[factors == 0])


@pytest.mark.parametrize(
    ("how", "dtype"), [*((how, dtype) for how in OF_HALVES for dtype in HALVES), *((how, np.float32) for how in OF_FLOATS)]
)
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("a_transposed", [False, True])
def test_dropout_with_operands_along_k_or_across(cuda, rng, a_transposed, b_transposed, how, dtype):
    a, b = normal(rng, (40, 16), dtype), normal(rng, (16, 136), dtype)
    order = {"a_transposed": a_transposed, "b_transposed": b_transposed}
    y = product(cuda, a, b, how, **order, mask=mask_of(136, 40))[0]
    factors = multiplier(elements_of(40, 136, 40, 0, 1), **MASK)
    assert_close(y, reference.matmul(rounded(a, how), rounded(b, how)) * factors, dtype, k=16)
    same_bits(y[factors == 0], np.zeros_like(y)[factors == 0])


@variants
@pytest.mark.parametrize("N", [5, 6, 64])
def test_dropout_of_rows_of_their_own_length(cuda, rng, N, how, dtype):
    """An element's number is counted in columns of the result, not by what is between rows in memory; it may begin anywhere there."""
    (M, K), compute = (34, 8), compute_dtype(dtype).type
    a, b = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype)
    right, b_row = stored(b, how)
    operands, factors = {"a": cuda.array(a), "b": cuda.array(right)}, multiplier(elements_of(M, N, M, 0, 1), **MASK)
    sizes = {"M": M, "N": N, "K": K, "k_chunk": K, "k_chunks": 1, "batch": 1, "b_form": NUMBERS["TC_GEMM_B_ROWS"]}
    for between, shift in ((8, 0), (1, 0), (0, 1), (0, 2)):
        width = N + between
        c = cuda.array(np.full(M * width + shift, np.nan, dtype))
        rows = {"a_row": K, "a_col": 1, "b_row": b_row, "b_col": 1, "c_row": width}
        with can(how, dtype) as refused:
            whole = product(cuda, a, b, how)[0]
            cuda.run("gemm", dtype, 0, c=c.pointer + shift * c.dtype.itemsize, **operands, **rows, **sizes, **how, mask=mask_of(N, M))
        if refused:
            return
        y = c.numpy()[shift:].reshape(M, width)[:, :N]
        assert_close(y, whole.astype(float) * factors, dtype, k=K)
        same_bits(y[factors == 0], np.zeros(int((factors == 0).sum()), dtype))
        if dtype == compute:
            same_bits(np.ascontiguousarray(y), np.where(factors != 0, whole * compute(factors.max()), 0).astype(dtype))


@variants
def test_ends_of_dropout_in_the_epilogue(cuda, how, dtype):
    """1 keeps nothing, whatever is there; what is not dropped may be NaN. A graph's own seed and number are read from memory."""
    M, N, K = 8, 64, 8
    a, b = np.full((M, K), np.inf, dtype), np.ones((K, N), dtype)
    with can(how, dtype) as refused:
        nothing = product(cuda, a, b, how, mask=mask_of(N, M, p=1.0))[0]
        drawn = cuda.array(np.array([MASK["seed"], 4], np.uint64))
        some, same = (
            product(cuda, a, b, how, mask=mask_of(N, M, **options))[0] for options in ({}, {"seed": 3, "call": 5, "drawn": drawn})
        )
    if refused:
        return
    same_bits(nothing, np.zeros((M, N), dtype))
    same_bits(same, some)
    factors = multiplier(elements_of(M, N, M, 0, 1), **MASK)
    np.testing.assert_array_equal(some.astype(float), np.where(factors != 0, np.inf, 0))


@variants
@pytest.mark.parametrize("N", [5, 6])
def test_rows_of_their_own_length(cuda, rng, N, how, dtype):
    """c, pre and the residual are views of wider arrays, each of another width; the elements outside them do not change."""
    M, K = 34, 8
    a, b, residual = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype), normal(rng, (M, N + 4), dtype)
    c, pre = (cuda.array(np.full((M, width), np.nan, dtype)) for width in (N + 2, N + 3 + N % 2))
    right, b_row = stored(b, how)
    operands = {"a": cuda.array(a), "b": cuda.array(right), "residual": cuda.array(residual), "c": c, "pre": pre}
    rows = {"a_row": K, "a_col": 1, "b_row": b_row, "b_col": 1, "c_row": N + 2, "pre_row": N + 3 + N % 2, "residual_row": N + 4}
    sizes = {"M": M, "N": N, "K": K, "k_chunk": K, "k_chunks": 1, "batch": 1}
    with can(how, dtype) as refused:
        cuda.run("gemm", dtype, 0, **operands, **rows, **sizes, **how, b_form=NUMBERS["TC_GEMM_B_ROWS"], activation=ACTIVATIONS["relu"])
    if refused:
        return
    before = reference.matmul(rounded(a, how), rounded(b, how))
    assert_close(pre.numpy()[:, :N], before, dtype, k=K, name="pre")
    assert_close(c.numpy()[:, :N], reference.relu(before) + residual[:, :N].astype(float), dtype, k=K, name="c")
    assert np.isnan(pre.numpy()[:, N:].astype(float)).all() and np.isnan(c.numpy()[:, N:].astype(float)).all()


def test_activations_of_large_and_nan(cuda):
    a = np.array([[-1e4], [-30], [0], [30], [1e4], [np.nan]], np.float32)
    for activation in ("relu", "gelu", "gelu_tanh"):
        c = product(cuda, a, np.ones((1, 1), np.float32), activation=activation)[0]
        assert_close(c[:5], FUNCTIONS[activation](a[:5].astype(float)), np.float32)
        assert np.isnan(c[5, 0]), activation


@variants
def test_sum_in_chunks_with_row_sums(cuda, rng, how, dtype):
    """As the gradients of a weight and a bias are made: partial products over chunks of k, and the sums of a's rows."""
    M, N, K, chunks = 40, 35, 100, 3
    a, b = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype)
    with can(how, dtype) as refused:
        c, _, sums = product(cuda, a, b, how, a_transposed=True, k_chunks=chunks, k_chunk=40, a_sum=True)
    if refused:
        return
    wide_a, left, right = (x.astype(float) for x in (a, rounded(a, how), rounded(b, how)))
    for chunk in range(chunks):
        k = slice(40 * chunk, min(40 * (chunk + 1), K))
        assert_close(c[chunk], left[:, k] @ right[k], compute_dtype(dtype), k=40)
        assert_close(sums[chunk], wide_a[:, k].sum(1), compute_dtype(dtype), k=40, scale=np.abs(wide_a).sum())


@variants
@pytest.mark.parametrize("wide", [False, True])
def test_gradients_of_a_weight_and_a_bias(cuda, rng, wide, how, dtype):
    """In one chunk: halves are rounded once, or not at all where a float32 parameter gets the gradient."""
    M, N, K = 40, 35, 100
    a, b = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype)
    with can(how, dtype) as refused:
        c, _, sums = product(cuda, a, b, how, a_transposed=True, a_sum=True, wide=wide)
    if refused:
        return
    result = compute_dtype(dtype) if wide else dtype
    assert c.dtype == sums.dtype == result
    assert_close(c, reference.matmul(rounded(a, how), rounded(b, how)), result, k=K)
    assert_close(sums[0], a.astype(float).sum(1), result, k=K, scale=np.abs(a.astype(float)).sum())


@variants
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("shape", [(1, 16, 9), (40, 35, 100), (40, 36, 100)], ids=str)
def test_a_gradient_is_added_to_those_before(cuda, rng, shape, wide, how, dtype):
    """Of a weight, with that of the bias beside it: halves are rounded once, after the addition, or not at all. NaN stays where it was."""
    M, N, K = shape
    result = compute_dtype(dtype) if wide else dtype
    a, b, before = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype), normal(rng, (M, N), result)
    before[0, 3] = np.nan
    with can(how, dtype) as refused:
        c, _, sums = product(cuda, a, b, how, a_transposed=True, a_sum=True, wide=wide, residual=before)
        alone = product(cuda, a, b, how, a_transposed=True, a_sum=True, wide=True)[0]
    if refused:
        return
    np.testing.assert_array_equal(np.argwhere(np.isnan(c.astype(float))), [[0, 3]])
    expected, before[0, 3], c[0, 3] = reference.matmul(rounded(a, how), rounded(b, how)), 0, 0
    expected[0, 3] = alone[0, 3] = 0
    assert_close(c, expected + before.astype(float), result, k=K)
    assert_close(sums[0], a.astype(float).sum(1), result, k=K, scale=np.abs(a.astype(float)).sum())
    np.testing.assert_array_equal(c.view(np.uint8), (alone + before.astype(alone.dtype)).astype(result).view(np.uint8))


@variants
@pytest.mark.parametrize("wide", [False, True])
def test_chunks_are_added_to_the_gradients_before(cuda, rng, wide, how, dtype):
    """By the pass that joins them, after their sum."""
    M, N, K = 33, 35, 100
    result = compute_dtype(dtype) if wide else dtype
    a, b, before = normal(rng, (M, K), dtype), normal(rng, (K, N), dtype), normal(rng, (M, N), result)
    with can(how, dtype) as refused:
        parts = product(cuda, a, b, how, a_transposed=True, k_chunks=3, k_chunk=40)[0]
    if refused:
        return
    c, joined = cuda.empty((M, N), result), {"partial": cuda.array(parts), "chunks": 3, "C": M * N}
    cuda.run("sum_partials", result, 0, out=c, before=cuda.array(before), **joined)
    assert_close(c.numpy(), reference.matmul(rounded(a, how), rounded(b, how)) + before.astype(float), result, k=K)
    expected = parts[0] + parts[1] + parts[2] + before.astype(parts.dtype)
    np.testing.assert_array_equal(c.numpy().view(np.uint8), expected.astype(result).view(np.uint8))


@variants
def test_batch_with_broadcast_and_strides(cuda, rng, how):
    """(2, 3) products: a differs everywhere, b is the same for all of the second axis."""
    dtype = np.float32 if how in OF_FLOATS else np.float16
    a, b = normal(rng, (2, 3, 5, 16), dtype), normal(rng, (2, 1, 16, 8), dtype)
    c = cuda.empty((2, 3, 5, 8), dtype)
    args = fill("tc_gemm_args", c=c, a=cuda.array(a), b=cuda.array(b), M=5, N=8, K=16, a_row=16, a_col=1, b_row=8, b_col=1, c_row=8, **how)
    args.k_chunk, args.k_chunks, args.batch_dims, args.batch = 16, 1, 2, 6
    args.b_form = NUMBERS["TC_GEMM_B_STRIDED"]
    for name, values in {"batch_shape": (2, 3), "a_batch": (240, 80), "b_batch": (128, 0), "c_batch": (120, 40)}.items():
        getattr(args, name)[:2] = values
    cuda.launch("gemm", dtype, 0, args)
    assert_close(c.numpy(), reference.matmul(rounded(a, how), rounded(b, how)), dtype, k=16)


@pytest.mark.whole
@pytest.mark.parametrize("tiles", [PLAINS, TF32, TF32_X3], ids=["plain", "tf32", "tf32x3"])
def test_tiles_of_float32_give_the_same_bits(cuda, rng, tiles):
    """Of any size, with any number of rows, with operands of any order: 404 terms are two blocks."""
    a, b = normal(rng, (70, 404), np.float32), normal(rng, (404, 72), np.float32)
    orders = [{"a_transposed": left, "b_transposed": right} for left in (False, True) for right in (False, True)]
    whole, *others = (product(cuda, a[:rows], b, how, **order)[0].view(np.uint32)
                      for how, order in zip((*tiles, *tiles)[-4:], orders, strict=True) for rows in (70, 1, 33))  # fmt: skip
    for other in others:
        np.testing.assert_array_equal(other, whole[: len(other)])


def test_how_accurate_tf32_is(cuda, rng):
    """As a share of |A| |B|, of 300 terms: one rounding of both numbers each; of three products nearly as float32's own."""
    a, b = normal(rng, (64, 300), np.float32), normal(rng, (300, 64), np.float32)
    exact, scale = reference.matmul(a, b), np.abs(a.astype(float)) @ np.abs(b.astype(float))
    errors = [np.max(np.abs(product(cuda, a, b, how)[0] - exact) / scale) for how in (PLAIN_64, TF32_X3[0], TF32[0])]
    assert errors[0] < 1e-6 and errors[1] < 1.5e-6 and 2e-5 < errors[2] < 2.0**-10, errors


@pytest.mark.whole
def test_sums_of_positive_numbers_keep_their_accuracy(cuda, rng):
    """Tensor cores round sums towards zero, as the emulation does: of three products the error hardly grows with the number of terms. Equal terms,
    whose roundings have one sign, are the worst; also of a bias's gradient, which is summed up in float32."""
    for K, each in ((2048, None), (16384, 0.1)):
        a, b = (np.full(s, each, np.float32) if each else rng.random(s, np.float32) for s in ((8, K), (K, 8)))
        exact, sums = reference.matmul(a, b), a.astype(float).sum(1)
        for how in (*TF32, *TF32_X3):
            c, _, row_sums = product(cuda, a, b, how, a_sum=True)
            assert np.max(np.abs(c / exact - 1)) < ((5e-6 if each else 2e-6) if how in TF32_X3 else 1e-3)
            np.testing.assert_allclose(row_sums[0], sums, rtol=2e-6 if K < 4096 else 1e-4)


@by_tf32
def test_row_sums_keep_what_is_not_a_number(cuda, how):
    """Whatever bits it has; and infinities."""
    a = np.ones((6, 8), np.float32)
    a.view(np.uint32)[:3, 2] = 0x7F800001, 0xFF801FFF, 0x7FC00000
    a[3, 1], a[4, 5] = np.inf, -np.inf
    sums = product(cuda, a, np.ones((8, 4), np.float32), how, a_sum=True)[2][0]
    np.testing.assert_array_equal(sums, [np.nan, np.nan, np.nan, np.inf, -np.inf, 8])


def test_what_has_no_two_parts_is_multiplied_as_it_is(cuda):
    """Infinities, the largest numbers, and those whose second part is lost below the smallest one."""
    largest, tiny = np.finfo(np.float32).max, np.float32(1e-38)
    a = np.array([[np.inf, 1], [-np.inf, 2], [largest, 0], [tiny, 0], [np.inf, -np.inf]], np.float32)
    for how in TF32_X3:
        c = product(cuda, a, np.ones((2, 3), np.float32), how)[0]
        np.testing.assert_array_equal(c[:2], np.repeat([[np.inf], [-np.inf]], 3, 1).astype(np.float32))
        np.testing.assert_allclose(c[2], largest, rtol=2.0**-22)  # its last two bits are cut off
        np.testing.assert_allclose(c[3], tiny, rtol=1e-3)
        assert np.isnan(c[4]).all()


@pytest.mark.parametrize(
    ("tiles", "dtype"),
    [*((OF_HALVES, dtype) for dtype in HALVES), (TF32, np.float32), (TF32_X3, np.float32)],
    ids=["float16", "bfloat16", "tf32", "tf32x3"],
)
def test_tiles_of_tensor_cores_give_the_same_bits(cuda, rng, dtype, tiles):
    """Of any size and with any number of rows, as the planner may choose each for the same row. That of few rows takes operands along k."""
    a, b = normal(rng, (70, 312), dtype), normal(rng, (312, 72), dtype)
    few = {**tiles[0], "tile": 16}
    whole, *others = (product(cuda, a[:rows], b, how, b_transposed=how == few)[0].view(np.uint16)
                      for how in (*tiles, few) for rows in (70, 1, 33))  # fmt: skip
    for other in others:
        np.testing.assert_array_equal(other, whole[: len(other)])


@pytest.mark.parametrize("how", [OF_HALVES[0], TF32[0], TF32_X3[0]], ids=["halves", "tf32", "tf32x3"])
@pytest.mark.parametrize("shape", [small((1, 33, 8)), (16, 32, 64), (17, 70, 1032)], ids=str)
def test_products_of_few_rows(cuda, rng, shape, how, schedule):
    """By tiles of 16 x 32: one step, and more than there are stages. With bias, activation and residual."""
    how, (M, N, K), dtype = {**how, "tile": 16}, shape, np.float32 if how in OF_FLOATS else np.float16
    a, b, bias, residual = (normal(rng, s, dtype) for s in ((M, K), (K, N), N, (M, N)))
    c = product(cuda, a, b, how, b_transposed=True, bias=bias, residual=residual, activation="relu")[0]
    same_numbers = {**how, "tile": 64}
    before = reference.matmul(rounded(a, same_numbers), rounded(b, same_numbers)) + bias.astype(float)
    assert_close(
        c, reference.relu(before) + residual.astype(float), dtype, k=K, scale=(np.abs(a.astype(float)) @ np.abs(b.astype(float))).max()
    )


def test_tiles_that_there_are(cuda):
    """Few rows have none for operands across k."""
    x = normal(np.random.default_rng(0), (8, 8), np.float32)
    for how in ({**TF32[0], "tile": 16}, {**TF32_X3[0], "tile": 256}, {**TF32[0], "tile": 32}):
        with pytest.raises(CudaError, match="invalid argument"):
            product(cuda, x, x, how)


@pytest.mark.parametrize(
    ("how", "dtype"), [*((how, dtype) for how in OF_HALVES for dtype in HALVES), *((how, np.float32) for how in OF_FLOATS)]
)
def test_not_a_number_stays_in_its_row_and_column(cuda, how, dtype):
    """0 x NaN is NaN, also where the other operand is zero; what is beyond the matrices, NaN in memory, meets zeros in both."""
    a, b = np.zeros((70, 43), dtype), np.zeros((43, 70), dtype)
    a[3, 42], b[42, 69], a[64, 0], b[0, 65] = np.nan, np.nan, np.inf, 1
    c = product(cuda, a, b, how)[0].astype(float)
    expected = np.zeros((70, 70))
    expected[3], expected[:, 69], expected[64] = np.nan, np.nan, np.nan
    expected[64, 65] = np.inf
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize(
    ("how", "dtype"), [(OF_HALVES[0], np.float16), (TF32[0], np.float32), (TF32_X3[0], np.float32)], ids=["halves", "tf32", "tf32x3"]
)
@pytest.mark.parametrize("wrong", [{"a_row": 14}, {"b_row": 10}, {"a": 4}, {"b": 8}, {"K": 10, "k_chunk": 10}, {"batch": 1}], ids=str)
def test_tensor_cores_refuse_what_they_cannot_copy(cuda, wrong, how, dtype):
    x = cuda.empty((64,), dtype)
    args = fill("tc_gemm_args", c=x, a=x, b=x, M=2, N=2, K=16, a_row=16, a_col=1, b_row=8, b_col=1, c_row=2, k_chunk=16, **how)
    args.k_chunks, args.batch, args.b_form = 1, 1, NUMBERS["TC_GEMM_B_STRIDED"]
    for name, value in wrong.items():
        setattr(args, name, x.pointer + value if name in ("a", "b") else value)
    if "batch" in wrong:
        args.batch_dims, args.batch_shape[0], args.a_batch[0] = 1, 1, 6
    with pytest.raises(CudaError, match="invalid argument"):
        cuda.launch("gemm", dtype, 0, args)


def test_packed_panels_are_refused(cuda):
    args = fill("tc_gemm_args", M=1, N=1, K=1, k_chunk=1, k_chunks=1, batch=1)  # b_form 0: panels
    with pytest.raises(CudaError, match="invalid argument"):
        cuda.launch("gemm", np.float32, 0, args)


@variants
@pytest.mark.parametrize("packing", ["per_head", "stacked"])
def test_qkv_projection(cuda, rng, packing, how, dtype):
    """One product with the bias in its epilogue writes every head: q, k and v are views of the result."""
    B, T, C, H, D = 2, 7, 12, 3, 5
    x, weight, bias = normal(rng, (B, T, C), dtype), normal(rng, (3 * H * D, C), dtype), normal(rng, 3 * H * D, dtype)
    with can(how, dtype) as refused:
        joint = product(cuda, x.reshape(B * T, C), weight.T, how, b_transposed=True, bias=bias)[0]
    if refused:
        return
    joint = joint.reshape((B, T, H, 3, D) if packing == "per_head" else (B, T, 3, H, D))
    x, weight = rounded(x, how), rounded(weight, how)
    for part, expected in enumerate(reference.qkv_projection(x, weight, bias, H, packing)):
        window = joint[..., part, :] if packing == "per_head" else joint[:, :, part]
        assert_close(window.swapaxes(1, 2), expected, dtype, k=C, name="qkv"[part])


@plain
@pytest.mark.parametrize("M", [1, 40])
def test_a_sum_split_into_its_blocks_has_the_same_bits(cuda, rng, M, how, dtype):
    """So a forward may be split or not, whatever the number of rows. 770 terms are three blocks, of 258, 258 and 254."""
    a, b = normal(rng, (M, 770), dtype), normal(rng, (770, 5), dtype)
    whole = product(cuda, a, b, how)[0]
    parts, c = product(cuda, a, b, how, k_chunks=3, k_chunk=258)[0], cuda.empty((M, 5), dtype)
    cuda.run("sum_partials", dtype, 0, out=c, partial=cuda.array(parts), chunks=3, C=M * 5)
    np.testing.assert_array_equal(c.numpy().view(np.uint8), whole.view(np.uint8))
    np.testing.assert_array_equal(product(cuda, a[:1], b, how)[0].view(np.uint8), whole[:1].view(np.uint8))


@pytest.mark.parametrize("packing", ["per_head", "stacked"])
def test_qkv_projection_backward(cuda, rng, packing, dtype):
    B, T, C, H, D = 2, 7, 12, 3, 5
    x, weight = normal(rng, (B, T, C), dtype), normal(rng, (3 * H * D, C), dtype)
    dq, dk, dv = (normal(rng, (B, H, T, D), dtype) for _ in range(3))
    order = reference.head_order(H, D, packing)
    joint = np.empty((B, T, 3 * H * D), dtype)
    joint[..., order] = np.stack([d.swapaxes(1, 2) for d in (dq, dk, dv)], axis=-3)
    dy, rows = joint.reshape(B * T, -1), x.reshape(B * T, C)
    dx = product(cuda, dy, weight)[0].reshape(x.shape)
    partial, _, sums = product(cuda, np.ascontiguousarray(dy.T), rows, k_chunks=2, a_sum=True)
    dweight, dbias = cuda.empty(weight.shape, dtype), cuda.empty((3 * H * D,), dtype)
    cuda.run("sum_partials", dtype, 0, out=dweight, partial=cuda.array(partial), chunks=2, C=weight.size)
    cuda.run("sum_partials", dtype, 0, out=dbias, partial=cuda.array(sums), chunks=2, C=3 * H * D)
    expected = reference.qkv_projection_backward(dq, dk, dv, x, weight, np.zeros(3 * H * D), H, packing)
    for name, actual, wanted in zip(("dx", "dweight", "dbias"), (dx, dweight.numpy(), dbias.numpy()), expected, strict=True):
        assert_close(actual, wanted, dtype, k=45, gradient=True, name=name)
