"""matmul: NumPy's meaning of @, on every instruction set."""

import numpy as np
import pytest
import transformer_c as tc
from bfloat16_products import BFLOAT16_PRODUCTS
from tolerance import assert_close, tolerance
from transformer_c import _core
from transformer_c.testing import reference as R

SHAPES = [  # of a and b
    ((1, 1), (1, 1)), ((2, 3), (3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)),
    ((17, 31), (31, 13)), ((33, 15), (15, 47)),
    ((3,), (3,)), ((0,), (0,)), ((5,), (5, 7)), ((7, 5), (5,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((4, 2, 1, 3), (3,)),
    ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)), ((1, 3, 4), (5, 4, 2)), ((3, 1, 2, 4), (1, 5, 4, 3)),
    ((2, 1, 3, 4), (4, 5)), ((0, 3, 4), (4, 5)), ((2, 0, 4), (2, 4, 3)), ((128, 16, 32), (128, 32, 16)), ((2, 2, 65, 130), (2, 2, 130, 33)),
    ((3, 400, 20), (3, 20, 70)), ((2, 700), (700, 300)), ((300, 2), (2, 300)), ((9, 1000), (1000, 9)), ((2, 180, 40), (1, 40, 600)),
]  # fmt: skip


def magnitude(a, b):
    return np.abs(R.f64(a)) @ np.abs(R.f64(b)) + 1e-30


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values(isa, shapes, dtype, rng):
    a, b = (rng.standard_normal(s).astype(dtype) for s in shapes)
    assert_close(_core.matmul(a, b), R.matmul(a, b), dtype, a.shape[-1], scale=magnitude(a, b))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gradients(shapes, rng):
    a, b = (rng.standard_normal(s) for s in shapes)
    dc = rng.standard_normal(np.shape(a @ b))
    x, y = tc.tensor(a, requires_grad=True), tc.tensor(b, requires_grad=True)
    _core.matmul(x, y).backward(tc.tensor(dc))
    # vectors as matrices for the reference
    a2, b2 = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    shape = [*np.broadcast_shapes(a2.shape[:-2], b2.shape[:-2]), a2.shape[-2], b2.shape[-1]]
    da, db = R.matmul_backward(dc.reshape(shape), a2, b2)
    assert_close(x.grad.numpy(), da.reshape(a.shape), "float64", gradient=True, scale=max(1, np.abs(da).max(initial=0)))
    assert_close(y.grad.numpy(), db.reshape(b.shape), "float64", gradient=True, scale=max(1, np.abs(db).max(initial=0)))


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_gradient_alone(wanted, rng):
    arrays = [rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5))]
    tensors = [tc.tensor(a, requires_grad=i == wanted) for i, a in enumerate(arrays)]
    dc = rng.standard_normal((2, 3, 5))
    _core.matmul(*tensors).backward(tc.tensor(dc))
    assert_close(tensors[wanted].grad.numpy(), R.matmul_backward(dc, *arrays)[wanted], "float64", gradient=True)
    assert tensors[1 - wanted].grad is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_few_rows_by_strips(dtype, isa, threads, rng):
    """Rows of b lie pages apart and are read from end to end; the bits are those of many rows, and of a weight in panels. The shapes have
    several blocks of k, strips that end before a block does, and columns beyond the last vector, strip and item."""
    kind = BFLOAT16_PRODUCTS.get(isa) if dtype == "bfloat16" else None
    wide = tc.tensor(rng.standard_normal((2100, 1090)).astype(np.float32)).to(dtype)
    for b in (wide[:, :1037], wide[1:1990, 5:]):
        a = tc.tensor(rng.standard_normal((18, b.shape[0])).astype(np.float32)).to(dtype)
        whole = tc.matmul(a, b)
        assert tc.config.last_plans("cpu")["gemm"]["variant"] == (kind or "rows")
        for few in (a[:1], a[:3], a[:9], a[:16], a[:5, :].T.contiguous().T):
            c = tc.matmul(few, b)
            assert tc.config.last_plans("cpu")["gemm"]["variant"] == (f"{kind}, strips" if kind else "strips")
            assert tc.all(c == whole[: len(few)])
        x, y = a.double().numpy(), b.double().numpy()
        if dtype in ("float32", "float64"):
            assert_close(c.numpy(), R.matmul(x[:5], y), dtype, x.shape[1], scale=magnitude(x[:5], y))
        panels = tc.functional.linear(a, b.T.contiguous().detach())
        assert tc.all(panels == whole)
        bias = tc.tensor(rng.standard_normal(b.shape[1]).astype(np.float32)).to(dtype)
        whole = tc.functional.linear(a, b.T, bias)
        for few in (a[:1], a[:3], a[:16]):
            c = tc.functional.linear(few, b.T, bias)
            assert tc.config.last_plans("cpu")["gemm"]["variant"] == (kind or "strips")  # of a weight that is kept
            assert tc.all(c == whole[: len(few)])


def test_strides_are_read_in_place(isa, rng):
    base = rng.standard_normal((6, 40, 50))
    lefts = [
        base[0],
        base[0].T[:40, ::-1][:, :40],
        base[:, ::4, ::5],
        base[::-1, :10, :50:5],
        base.transpose(2, 0, 1)[:6, :, :10],
        np.broadcast_to(base[0, :1, :10], (6, 3, 10)),
    ]
    for a in lefts:
        K = a.shape[-1]
        for b in (
            rng.standard_normal((K, 7)),
            rng.standard_normal((7, K)).T,
            rng.standard_normal((2 * K, 14))[::-2, ::2],
            rng.standard_normal((K, 1)).repeat(7, 1),
        ):
            assert_close(_core.matmul(a, b), R.matmul(a, b), "float64", scale=magnitude(a, b))
            assert_close(_core.matmul(b.T, a.swapaxes(-1, -2)), R.matmul(b.T, R.swap(a)), "float64", scale=magnitude(b.T, R.swap(a)))


def test_single_rows_that_lie_apart(rng):
    """A batch of one row each is one product with all of them, wherever they are."""
    a, b = rng.standard_normal((5, 3, 4)), rng.standard_normal((4, 6))
    x, w = tc.tensor(a, requires_grad=True), tc.tensor(b)
    for part in (slice(1, 2), slice(2, 3)):
        y = x[:, part] @ w
        assert_close(y.detach(), a[:, part] @ b, "float64", 4)
    y.sum().backward()
    assert_close(x.grad[:, 2], np.broadcast_to(b.sum(1), (5, 4)), "float64", 6)


def test_a_transposed_view_is_not_copied(rng):
    """The scores of attention, q k^T: peak memory is that of the result plus scratch."""
    q, k = (tc.tensor(rng.standard_normal((64, 64, 32))) for _ in range(2))
    transposed = k.transpose(-1, -2)
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    scores = _core.matmul(q, transposed)
    assert _core.memory_stats()["peak_in_use"] - before < 1.5 * scores.numel() * 8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_for_any_number_of_threads(isa, threads, dtype):
    rng = np.random.default_rng(5)
    for shapes in [((300, 200), (200, 400)), ((9, 5000), (5000, 9)), ((40, 30, 50), (40, 50, 20)), ((3, 900), (900, 800))]:
        a, b = (rng.standard_normal(s).astype(dtype) for s in shapes)
        many = _core.matmul(a, b)
        before = _core.get_num_threads()
        _core.set_num_threads(1)
        one = _core.matmul(a, b)
        _core.set_num_threads(before)
        np.testing.assert_array_equal(many, one)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3), (3, 4)),
        ((4,), (4,)),
        ((5, 1, 7, 9), (3, 9, 2)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
        ((60, 50), (50, 40)),
        ((3, 7, 300), (3, 300, 133)),  # blocks of rows of b, and several panels
        ((9, 300), (300,)),
        ((2, 300), (300, 133)),  # b read in place
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["rows", "columns", "spread"])
def test_integers(isa, shapes, dtype, layout, rng):
    limits = np.iinfo(dtype) if dtype != "bool" else None
    a, b = ((rng.integers(limits.min, limits.max, s, dtype=dtype, endpoint=True) if limits else rng.random(s) < 0.3) for s in shapes)
    strided = {"rows": np.ascontiguousarray, "columns": lambda x: x.T.copy().T, "spread": lambda x: np.repeat(x, 2, axis=-1)[..., ::2]}[
        layout
    ]
    c = _core.matmul(strided(a), strided(b))
    assert c.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(c, np.matmul(a, b))  # wraps around as NumPy does


def test_dtypes_promote(rng):
    a = rng.standard_normal((3, 4))
    for left, right, result in [
        ("float32", "float64", "float64"),
        ("int64", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("bool", "int32", "int32"),
    ]:
        c = _core.matmul(a.astype(left), a.T.astype(right))
        assert c.dtype == np.dtype(result)
        expected = a.astype(left).astype(np.float64) @ a.T.astype(right).astype(np.float64)
        np.testing.assert_allclose(c.astype(np.float64), expected, rtol=2e-3 if result == "float16" else 1e-6, atol=1e-3)


def test_nan_stays_in_its_row_and_column(isa):
    a, b = np.ones((30, 20)), np.ones((20, 40))
    a[4, 3], b[5, 6] = np.nan, np.inf
    c = _core.matmul(a, b)
    np.testing.assert_array_equal(c, R.matmul(a, b))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.ones((2, 3)), np.ones((4, 5)), r"a has 3 columns but b has 4 rows; they must be equal \(a \(2, 3\), b \(4, 5\)\)"),
        (np.ones(3), np.ones(4), "3 columns but b has 4 rows"),
        (np.ones((2, 3, 4)), np.ones((3, 4, 5)), r"leading axes of a \(2, 3, 4\) and b \(3, 4, 5\) do not broadcast"),
        (np.float64(2), np.ones((2, 2)), "at least one axis"),
    ],
)
def test_bad_input(a, b, message):
    with pytest.raises(ValueError, match=message):
        _core.matmul(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_column_has_the_bits_of_its_elements_alone(isa, dtype, rng):
    """It is computed as a row of the transposed product, whatever the strides, the batch and the number of rows."""
    for m, k in ((2, 1), (3, 7), (64, 33), (129, 400), (1000, 16), (5, 3000), (700, 1700)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal(k).astype(dtype)
        alone = np.array([_core.matmul(a[i : i + 1], b)[0] for i in range(min(m, 40))])
        for x in (a, np.asfortranarray(a), np.repeat(a, 2, 1)[:, ::2]):
            for y in (b, b[::-1].copy()[::-1]):
                np.testing.assert_array_equal(_core.matmul(x, y)[:40], alone)
                np.testing.assert_array_equal(_core.matmul(x, y[:, None])[:40, 0], alone)
                np.testing.assert_array_equal(_core.matmul(np.stack([x, x]), y)[1, :40], alone)
        assert_close(alone, R.matmul(a[:40], b), dtype, k, scale=magnitude(a[:40], b))
        batch = _core.matmul(np.stack([a, 2 * a]), np.stack([b, b])[:, :, None])
        np.testing.assert_array_equal(batch[1, :40, 0], 2 * alone)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_of_rows_by_columns_has_the_bits_of_each_alone(isa, threads, dtype, rng):
    """Several are computed at once, one per lane, wherever the operands lie in memory."""
    for shape in ((1, 1), (3, 7), (2, 5, 16), (35, 33), (4, 9, 400), (19, 1000), (8, 3000)):
        a, b = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        alone = np.array([_core.matmul(x, y) for x, y in zip(a.reshape(-1, shape[-1]), b.reshape(-1, shape[-1]), strict=True)])
        apart = np.repeat(b, 2, 0)[::2]
        for x, y in ((a, b), (a, apart), (np.asfortranarray(a), b), (a[::-1].copy()[::-1], apart)):
            np.testing.assert_array_equal(_core.matmul(x[..., None, :], y[..., None]).ravel(), alone)
        one = b[:1] if len(shape) == 3 else b[0]
        np.testing.assert_array_equal(_core.matmul(a[..., None, :], one[..., None]).ravel()[0], alone[0])
        product = _core.matmul(a[..., None, :], np.broadcast_to(one, shape)[..., None])
        np.testing.assert_array_equal(product, _core.matmul(a[..., None, :], one[..., None]))
    assert np.isnan(_core.matmul(np.array([[[np.inf]], [[1.0]]]), np.array([[[0.0]], [[2.0]]]))).ravel().tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_batch_of_small_products_has_the_bits_of_each_alone(isa, threads, dtype, rng):
    """Few rows by few columns, of as many elements of the batch as a vector has lanes."""
    for B, H, M, N, K in (
        (20, 1, 2, 2, 33),
        (7, 5, 1, 3, 16),
        (19, 2, 4, 1, 770),
        (33, 1, 4, 4, 64),
        (3, 2, 2, 2, 5),
        (40, 1, 3, 5, 256),
        (1, 18, 2, 3, 1),
    ):
        a, b = (tc.tensor(rng.standard_normal(s).astype(np.float32)).to(dtype) for s in ((B, M, H, K), (B, N, H, K)))
        q, k = a.transpose(1, 2), b.transpose(1, 2)  # (B, H, M, K) and (B, H, N, K)
        alone = [[q[i, j].contiguous() @ k[i, j].contiguous().T for j in range(H)] for i in range(B)]
        alone = tc.stack([tc.stack(heads) for heads in alone])
        for x, y in ((q, k), (q.contiguous(), k.contiguous()), (q, k.contiguous()), (q.contiguous(), k)):
            assert tc.all(x @ y.transpose(2, 3) == alone)
        assert tc.all((q @ k[:1].transpose(2, 3))[0] == alone[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_row_by_columns_along_memory_has_the_bits_of_many_rows(isa, threads, dtype, rng):
    """Its sums are computed side by side: of columns, and of blocks of k. Also where columns begin a power of two apart."""
    for K in (1, 2, 5, 33, 256, 384, 385, 1024, 2050, 300000):
        for N in (1, 2, 3, 4, 6, 8, 15, 16, 17, 33, 70) if K < 2050 else (1, 3, 5):
            x, w = (tc.tensor(rng.standard_normal(s).astype(np.float32)).to(dtype) for s in ((3, K), (N + 1, K)))
            whole = x @ w[:N].T
            bias = whole[0].detach() * 0 + 0.5
            biased = tc.functional.linear(x, w[:N], bias)
            apart = tc.stack([w, w + 1], 2)[:, :, 0]
            w.requires_grad = True  # so that no panels are kept
            for row in (x[1], x[1].expand(2, K).T.contiguous().T[0]):
                assert tc.all(row @ w[:N].T == whole[1])
                assert tc.all(w[:N] @ row == whole[1])
                assert tc.all(apart[:N] @ row == whole[1])
                assert tc.all(tc.functional.linear(row, w[:N], bias) == biased[1])
                assert tc.all(row @ w[0] == whole[1, 0])
                assert tc.all(row @ w[:1].expand(N, K).T == whole[1, 0])
    tiny = np.full((20, 1026), 1e-30, np.float32)  # products that become -0: sums of which the sign is part
    whole = np.signbit(_core.matmul(-tiny, tiny.T))
    assert (np.signbit(_core.matmul(-tiny[0], tiny.T)) == whole[0]).all() and np.signbit(_core.matmul(-tiny[0], tiny[0])) == whole[0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_rows_by_numbers_have_the_bits_of_each_alone(isa, threads, dtype, rng):
    """A batch of products over one k, which the gradient of a vector is."""
    for B, H, N in ((5, 1, 1), (7, 3, 8), (20, 1, 5), (3, 4, 33), (2, 1, 130)):
        x, w = (tc.tensor(rng.standard_normal(s).astype(np.float32)).to(dtype) for s in ((B, H, N), (B, H)))
        w[0, 0] = -0.0
        alone = tc.stack([tc.stack([w[i, j].reshape(1, 1) @ x[i, j].reshape(1, N) for j in range(H)]) for i in range(B)])
        for rows in (x, tc.stack([x, x], 0)[1], x.transpose(0, 1).contiguous().transpose(0, 1)):
            results = w[..., None, None] @ rows[:, :, None], (rows[..., None] @ w[..., None, None]).transpose(2, 3)
            for result in results:
                result, one = result.double().numpy(), alone.double().numpy()
                assert (result == one).all() and (np.signbit(result) == np.signbit(one)).all()
    a, v = tc.tensor(rng.standard_normal((40, 1, 8))).to(dtype), tc.tensor(rng.standard_normal(8)).to(dtype)
    v.requires_grad = True
    (a @ v).sum().backward()
    sums, most = (x.double().numpy().sum((0, 1)) for x in (a, a.abs()))
    assert (np.abs(v.grad.double().numpy() - sums) <= tolerance(dtype, 40, gradient=True) * most).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_few_rows_or_columns_along_memory_have_the_bits_of_many(isa, threads, dtype, rng):
    """What is read of the many is used for all of the few at once; with several blocks of k lanes are blocks."""
    if dtype == "bfloat16" and isa in BFLOAT16_PRODUCTS:
        dtype = "float16"  # the number of columns decides what multiplies bfloat16
    for K in (4, 5, 19, 64, 256, 383, 386, 512, 770, 1000, 1155, 2048, 4096):
        x, w = (tc.tensor(rng.standard_normal((60, K)).astype(np.float32)).to(dtype) for _ in range(2))
        whole, bias = x @ w.T, tc.arange(60).to(dtype)
        biased = tc.functional.linear(x, w, bias)
        apart = tc.stack([w, w + 1], 1)[:, 0]
        w.requires_grad = True  # so that no panels are kept
        for few in (1, 2, 3, 4, 5, 8):
            for many in (2, 3, 4, 7, 9, 16, 17, 33, 60):
                assert tc.all(x[:few] @ w[:many].T == whole[:few, :many])
                assert tc.all(x[:many] @ w[:few].T == whole[:many, :few])
                assert tc.all(x[-many:] @ apart[:few].T == whole[-many:, :few])
            assert tc.all(tc.functional.linear(x[:few], w[:33], bias[:33]) == biased[:few, :33])
            assert tc.all(tc.functional.linear(x, w[:few], bias[:few]) == biased[:, :few])
            kept = w[:few].detach().clone()  # of few rows by few columns nothing is kept either
            assert tc.all(tc.functional.linear(x, kept, bias[:few]) == biased[:, :few])
            assert tc.all(tc.functional.linear(x[:9], kept, bias[:few]) == biased[:9, :few])
    for K in (50, 1000):  # more than wait at a time, and pieces of the last lanes
        for many in (127, 129, 131, 260, 271):
            x, w = (tc.tensor(rng.standard_normal((n, K)).astype(np.float32)).to(dtype) for n in (20, many))
            whole = x @ w.T
            assert tc.all(x[:3] @ w.T == whole[:3]) and tc.all(w @ x[:3].T == whole[:3].T)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_sums_of_few_k_have_the_bits_of_narrow_products(isa, threads, dtype, rng):
    """Wide rows of C are written from end to end."""
    for K in range(1, 10):
        for M, N in ((1, 64), (2, 400), (3, 133), (20, 70), (171, 65), (40, 2100)):
            x, w = (tc.tensor(rng.standard_normal(s).astype(np.float32)).to(dtype) for s in ((M, K), (K, N)))
            x[0, 0], w[0, N // 2] = -0.0, np.inf
            whole = tc.cat([x @ w[:, n : n + 7] for n in range(0, N, 7)], 1)
            for a in (x, x.T.contiguous().T, tc.stack([x, x], 2)[:, :, 1]):
                for b in (w, w.T.contiguous().T, tc.stack([w, w], 2)[:, :, 1]):
                    np.testing.assert_array_equal((a @ b).double().numpy(), whole.double().numpy())
            bias = tc.arange(N).to(dtype)
            biased = tc.cat([tc.functional.linear(x, w.T[n : n + 7], bias[n : n + 7]) for n in range(0, N, 7)], 1)
            np.testing.assert_array_equal(tc.functional.linear(x, w.T, bias).double().numpy(), biased.double().numpy())


def test_few_columns_after_others_copy_their_rows(isa, rng):
    """The last item of a row block is narrow and goes through tiles, whose copy of A none before it has made."""
    threads = tc.get_num_threads()
    try:
        for count in (1, 2, 3, 5):
            tc.set_num_threads(count)
            for M, K, N in ((129, 2, 769), (65, 3, 385), (129, 7, 129), (33, 6, 385)):
                x, w = (tc.tensor(rng.standard_normal(s).astype(np.float32)).to("bfloat16") for s in ((M, K), (K, N)))
                np.testing.assert_array_equal((x @ w)[:, -1].double().numpy(), (x @ w[:, -1:])[:, 0].double().numpy())
    finally:
        tc.set_num_threads(threads)
