"""A row of a result has the same bits however many rows came with it: forwards are planned by widths, never by the number of rows."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

F = tc.functional
ROWS = [*range(1, 34), 63, 64, 65, 100, 128, 168, 169, 255, 256, 299]  # around tiles and items, and where C grows beyond what is split
MANY = 300
# (K, N): one block of k and several, their edges; columns below, at and beyond a vector, a panel and an item; C on both sides of
# TC_GEMM_SPLIT_LARGEST_C, so that some of the numbers of rows are split and others are not
WIDTHS = [(1, 1), (7, 5), (64, 64), (384, 32), (385, 64), (511, 8), (512, 8), (512, 300), (769, 130), (1000, 1), (1024, 513), (2048, 120)]
WIDTHS += [(4096, 400), (9000, 17)]


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


def same_rows(f, x, counts=ROWS, alone=True):
    """f(x[:m]) is f(x)[:m], bit by bit; `alone`: any row may come by itself."""
    whole = np.asarray(f(x))
    for m in counts:
        if m < len(x):
            part = np.asarray(f(x[:m]))
            np.testing.assert_array_equal(part.view(np.uint8), whole[:m].view(np.uint8), err_msg=f"{m} rows of {len(x)}")
    if not alone:
        return
    one = np.asarray(f(x[len(x) // 2 :][:1]))
    np.testing.assert_array_equal(one.view(np.uint8), whole[len(x) // 2 :][:1].view(np.uint8), err_msg="a row from the middle")


def test_a_planted_defect_is_found(rng):
    """Sums in an order that goes by the number of rows, or by where the row is."""
    x = rng.standard_normal((MANY, 200)).astype(np.float32)
    add_up = lambda a: a.cumsum(1)[:, -1].copy()
    same_rows(add_up, x)
    defects = [
        lambda a: add_up(a[:, ::-1] if len(a) == 1 else a),
        lambda a: add_up(a if len(a) >= 64 else np.roll(a, 1, 1)),
        lambda a: np.concatenate([add_up(a[:-1]), add_up(a[-1:, ::-1])]),
        lambda a: add_up(a) * (0.0 if len(a) == 33 else 1.0),
    ]
    for defect in defects:
        with pytest.raises(AssertionError, match="Arrays are not equal"):
            same_rows(defect, x)
    with pytest.raises(AssertionError, match="Arrays are not equal"):  # equal numbers, other bits
        same_rows(lambda a: np.zeros(len(a), np.float32) * (-1.0 if len(a) == 1 else 1.0), x)


def matmul(a, w):
    return _core.matmul(a, w)


@pytest.mark.parametrize("K, N", WIDTHS)
def test_products(K, N, dtype, isa, threads, rng):
    x, w = rng.standard_normal((MANY, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)
    weight, bias = np.ascontiguousarray(w.T), rng.standard_normal(N).astype(dtype)
    counts = ROWS if K * N < 100000 else ROWS[::4]
    same_rows(lambda a: matmul(a, w), x, counts)
    same_rows(lambda a: F.linear(a, weight), x, counts)
    same_rows(lambda a: F.linear(a, weight, bias), x, counts[::3])
    same_rows(lambda a: matmul(a, weight.T), x, counts[::3])
    same_rows(lambda a: matmul(a[:, ::-1], w), x, counts[::3])
    same_rows(lambda a: matmul(a, w[:, 0]), x, counts[::3])
    np.testing.assert_array_equal(F.linear(x, weight), matmul(x, w))  # in whatever form the weight is


@pytest.mark.parametrize("K, N", [(7, 5), (385, 64), (1000, 24), (4096, 40)])
def test_products_of_batches(K, N, dtype, isa, threads, rng):
    x, w = rng.standard_normal((24, 5, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)
    same_rows(lambda a: matmul(a, w), x)
    own = rng.standard_normal((24, K, N)).astype(dtype)
    whole = matmul(x, own)
    for m in (1, 2, 7):
        np.testing.assert_array_equal(matmul(x[:m], own[:m]), whole[:m])
    np.testing.assert_array_equal(np.stack([matmul(a, b) for a, b in zip(x, own, strict=True)]), whole)


@pytest.mark.parametrize("K, N", [(64, 64), (512, 300), (4096, 400)])
def test_gradients_of_inputs(K, N, dtype, isa, rng):
    """dx = dy weight is planned as a forward; the gradient of the weight is a sum over the rows."""
    weight = rng.standard_normal((K, N)).astype(dtype)  # dy (rows, K)
    x = np.zeros((MANY, N), dtype)
    same_rows(lambda dy: _core.linear_backward(dy, x[: len(dy)], weight)[0], rng.standard_normal((MANY, K)).astype(dtype), ROWS[::3])
    other = np.ascontiguousarray(weight.T)
    same_rows(lambda dc: _core.matmul_backward(dc, x[: len(dc)], other)[0], rng.standard_normal((MANY, K)).astype(dtype), ROWS[::3])


def test_a_sum_that_is_minus_zero_stays_so(isa):
    """Products that underflow: adding the parts of a split sum to 0 would lose the sign."""
    x, w = np.full((MANY, 1024), -1e-30, np.float32), np.full((1024, 200), 1e-30, np.float32)
    same_rows(lambda a: matmul(a, w), x)


@pytest.mark.parametrize("C, heads", [(32, 4), (513, 3), (1024, 2)])
def test_qkv_projection(C, heads, dtype, isa, threads, rng):
    weight = rng.standard_normal((3 * 12, C)).astype(dtype)
    x = rng.standard_normal((30, 3, C)).astype(dtype)
    for bias in (None, rng.standard_normal(36).astype(dtype)):
        for part in range(3):
            same_rows(lambda a, part=part, bias=bias: _core.qkv_projection(a, weight, bias, heads)[part], x, ROWS[::3])


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (3, 2)}], ids=str)
@pytest.mark.parametrize("T", [1, 5, 49, 130, 300])
def test_attention(T, options, dtype, isa, threads, rng):
    """A sequence, in a batch of any size."""
    q, k, v = (rng.standard_normal((9, 2, T, 8)).astype(dtype) for _ in range(3))
    attend = lambda a: F.scaled_dot_product_attention(a, k[: len(a)], v[: len(a)], **options)
    whole = attend(q)
    for m in (1, 2, 3, 8):
        np.testing.assert_array_equal(attend(q[:m]).view(np.uint8), whole[:m].view(np.uint8))
    mask = rng.random((9, 1, T, T)) < 0.7
    whole, lengths = F.scaled_dot_product_attention(q, k, v, attn_mask=mask), np.arange(9) % (T + 1)
    padded = F.scaled_dot_product_attention(q, k, v, key_lengths=lengths)
    for m in (1, 4):
        np.testing.assert_array_equal(F.scaled_dot_product_attention(q[:m], k[:m], v[:m], attn_mask=mask[:m]), whole[:m])
        np.testing.assert_array_equal(F.scaled_dot_product_attention(q[:m], k[:m], v[:m], key_lengths=lengths[:m]), padded[:m])


@pytest.mark.parametrize("C", [1, 3, 16, 65, 513, 2000])
def test_functions_of_rows(C, dtype, isa, threads, rng):
    x = rng.standard_normal((MANY, C)).astype(dtype)
    gamma, beta = rng.standard_normal((2, C)).astype(dtype)
    same_rows(lambda a: F.layer_norm(a, (C,), gamma, beta), x)
    same_rows(lambda a: _core.add_layer_norm(a, x[: len(a)], (C,), gamma, beta), x, ROWS[::3], alone=False)
    dropped = {"dropout": 0.3, "seed": 1, "call": 2}  # by where a row is in the batch
    same_rows(lambda a: _core.add_layer_norm(a, x[: len(a)], (C,), gamma, beta, **dropped), x, ROWS[::3], alone=False)
    same_rows(lambda a: F.rms_norm(a, (C,), gamma), x)
    same_rows(lambda a: F.softmax(a, -1), x)
    same_rows(lambda a: F.log_softmax(a, -1), x)
    same_rows(lambda a: _core.cumsum(a, 1), x)
    same_rows(lambda a: F.gelu(a), x, ROWS[::3])
    targets = np.arange(MANY) % C
    same_rows(lambda a: F.cross_entropy(a, targets[: len(a)], reduction="none"), x, ROWS[::3], alone=False)
    for name in ("sum", "mean", "max", "var"):
        same_rows(lambda a, name=name: getattr(tc.as_tensor(a), name)(axis=-1).numpy(), x, ROWS[::3])


@pytest.mark.parametrize(
    "shape", [(70, 5, 3), (70, 129, 4), (70, 300, 1), (70, 300, 17), (65, 9001, 2), (70, 33000), (66, 100, 2, 300)], ids=str
)
def test_reductions(shape, dtype, isa, threads, rng):
    """Over all axes but the first, and but the first and the last: few results are divided among threads, many are not."""
    x = rng.standard_normal(shape).astype(dtype)
    for axis in {(1,), tuple(range(1, x.ndim))}:
        for name in ("sum", "mean", "max", "var"):
            same_rows(lambda a, name=name, axis=axis: getattr(tc.as_tensor(a), name)(axis=axis).numpy(), x, [1, 2, 17, 63, 64, 65])
        exact = x.astype(np.longdouble).sum(axis)
        assert np.abs(tc.as_tensor(x).sum(axis=axis).numpy() - exact).max() <= np.finfo(dtype).eps * 16 * np.sqrt(x[0].size)


@pytest.mark.parametrize("layout", ["transposed", "time first", "channels first", "a part", "backwards", "one apart"])
@pytest.mark.parametrize("length", [1, 129, 700, 9001])
def test_strided_reductions(length, layout, dtype, isa, threads, rng):
    """One row is walked as many are, also where the walk goes along the rows."""
    base = {"transposed": (length, 66), "time first": (length, 66, 3), "channels first": (3, length, 66), "a part": (length, 70),
            "backwards": (length, 66), "one apart": (66, 2 * length)}[layout]  # fmt: skip
    x = tc.tensor(rng.standard_normal(base).astype(dtype))
    whole = {
        "transposed": lambda: x.T, "time first": lambda: x.transpose(0, 1), "channels first": lambda: x.permute(2, 0, 1),
        "a part": lambda: x[:, 2:68].T, "backwards": lambda: x[::-1].T[::-1], "one apart": lambda: x[:, ::2],
    }[layout]()  # fmt: skip
    for axis in {(1,), tuple(range(1, x.ndim))}:
        for name in ("sum", "max", "var"):
            same_rows(lambda a, name=name, axis=axis: getattr(a, name)(axis=axis).numpy(), whole, [1, 2, 64])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_column_alone(dtype, isa, threads, rng):
    """Sums over the first axis: a column is a row of the transposed. Tiles end in one column, too."""
    for length in (2, 5, 131, 9001):
        x = tc.tensor(rng.standard_normal((length, 258)).astype(dtype))
        for name in ("sum", "var", "min"):
            whole = getattr(x, name)(axis=0).numpy()
            for m in (1, 2, 257):
                np.testing.assert_array_equal(getattr(x[:, :m], name)(axis=0).numpy(), whole[:m], err_msg=f"{name} of {m} of {length}")


@pytest.mark.parametrize("module", ["encoder", "encoder, norm first", "decoder", "attention"])
def test_modules(module, isa, threads, rng):
    """A whole model gives a sequence the same bits alone and in a batch."""
    tc.manual_seed(0)
    options = {"input_dim": 24, "num_heads": 3, "dim_feedforward": 600}
    x = rng.standard_normal((40, 11, 24)).astype(np.float32)
    if module == "attention":
        model = tc.MultiheadAttention(24, 24, 3)
    elif module == "decoder":
        layer = tc.nn.TransformerDecoderLayer(24, 3, 600, batch_first=True)
        model = lambda a: layer(a, x[: len(a)])
        layer.eval()
    else:
        model = tc.TransformerEncoder(2, **options, norm_first=module.endswith("first")).eval()
    same_rows(model, x, [1, 2, 3, 7, 16, 31], alone=module != "decoder")
