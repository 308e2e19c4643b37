"""float16 and bfloat16 in products, norms and attention: read as they are stored, computed in float32, rounded once when they are written.

So a result of halves is that of the same numbers in float32, rounded: bit by bit, on every instruction set but one that multiplies tiles of
bfloat16, however the operands are laid out, and whether a weight's prepared form is kept or not.
"""

import numpy as np
import pytest
import transformer_c as tc
from bfloat16_products import BFLOAT16_PRODUCTS
from tolerance import assert_close
from transformer_c import _core

F = tc.functional
ROWS = [1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 28, 29, 32, 100, 168, 170, 337]
# (K, N): one block of k and several; columns within a vector, a panel, a group, eight vectors; beyond the columns whose sums are kept together
WIDTHS = [(1, 1), (5, 3), (16, 16), (64, 33), (384, 100), (385, 64), (385, 124), (513, 7), (1024, 600), (800, 1100)]


@pytest.fixture(params=["bfloat16", "float16"])
def half(request):
    return getattr(tc, request.param)


def bits(tensor):
    return tensor.contiguous().numpy().view(np.uint16)


def multiplies_halves(half):
    return half == tc.bfloat16 and _core.cpu_isa() in BFLOAT16_PRODUCTS


def same(actual, wide):
    """`actual`, halves, are the rounded `wide`; NaN where it is NaN. Products of bfloat16 add in another order than those of float32, so there
    sums that are nearly in the middle between two halves may become the other one."""
    assert actual.dtype in (tc.float16, tc.bfloat16) and wide.dtype == tc.float32
    expected = wide.to(actual.dtype)
    if multiplies_halves(actual.dtype):
        most = np.max(np.abs(wide.numpy()), initial=0, where=np.isfinite(wide.numpy()))
        np.testing.assert_allclose(actual.float().numpy(), expected.float().numpy(), rtol=2.0**-7, atol=2.0**-20 * most)
        return
    nan = np.isnan(wide.numpy())
    np.testing.assert_array_equal(np.isnan(actual.float().numpy()), nan)
    np.testing.assert_array_equal(np.where(nan, 0, bits(actual)), np.where(nan, 0, bits(expected)))


def halves(rng, half, *shape, scale=1.0):
    return tc.tensor(rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).to(half)


@pytest.mark.parametrize("K, N", WIDTHS)
def test_linear(K, N, half, isa, threads, rng):
    x, weight, bias = halves(rng, half, max(ROWS), K), halves(rng, half, N, K, scale=K**-0.5), halves(rng, half, N)
    residual = halves(rng, half, max(ROWS), N)
    x32, weight32, bias32, residual32 = (t.float() for t in (x, weight, bias, residual))
    for m in ROWS if K * N < 100000 else ROWS[::2]:
        same(F.linear(x[:m], weight), F.linear(x32[:m], weight32))
        for activation, r, r32 in (("relu", None, None), ("gelu", None, None), (None, residual[:m], residual32[:m])):
            y = _core.linear(x[:m], weight, bias, activation, r)
            same(y, _core.linear(x32[:m], weight32, bias32, activation, r32))
    y, pre = _core.linear_forward(x[:29], weight, bias, "gelu", residual[:29])
    y32, pre32 = _core.linear_forward(x32[:29], weight32, bias32, "gelu", residual32[:29])
    same(y, y32)
    np.testing.assert_allclose(pre.float().numpy(), pre32.numpy(), rtol=0, atol=1e-5 if multiplies_halves(half) else 0)


@pytest.mark.parametrize("K, N", WIDTHS)
def test_a_row_has_the_same_bits_in_any_batch(K, N, half, isa, threads, rng):
    x, weight, bias = halves(rng, half, max(ROWS), K), halves(rng, half, N, K, scale=K**-0.5), halves(rng, half, N)
    other = weight.T.contiguous()
    for f in (
        lambda a: F.linear(a, weight, bias),
        lambda a: F.linear(a, weight),
        lambda a: tc.matmul(a, other),
        lambda a: tc.matmul(a, weight.T),
    ):
        whole = bits(f(x))
        for m in ROWS[:-1:2]:
            np.testing.assert_array_equal(bits(f(x[:m])), whole[:m], err_msg=f"{m} rows")
        np.testing.assert_array_equal(bits(f(x[100:101])), whole[100:101])


@pytest.mark.parametrize("K", [1, 2, 7, 8, 9, 15, 33, 383, 767, 769, 1151])
def test_odd_and_even_numbers_of_features(K, half, isa, rng):
    """Kept weights of bfloat16 contain two rows in a word: the last one may be alone, blocks of k begin with a whole word. Special values
    stay what they are."""
    weight, x = halves(rng, half, 49, K, scale=K**-0.5), halves(rng, half, 200, K)
    with tc.no_grad():
        for n in (1, 16, 17, 33, 49):
            for m in (1, 2, 4, 7, 15, 29, 42, 43, 200):
                same(F.linear(x[:m], weight[:n]), F.linear(x[:m].float(), weight[:n].float()))
        for value in (np.inf, -np.inf, np.nan, 1e-40 if half is tc.bfloat16 else 6e-8):
            for k in {0, K // 2, K - 1}:
                special = weight.clone()
                special[3, k] = value
                same(F.linear(x[:5], special), F.linear(x[:5].float(), special.float()))
                same(F.linear(x, special), F.linear(x.float(), special.float()))


def test_items_whose_rows_are_the_same_memory(half, isa, threads, rng):
    """Rows copied for one item serve the next where they are the same ones: not those of other lengths at the same place."""
    weight, row = halves(rng, half, 300, 600, scale=0.05), halves(rng, half, 1, 600)
    for x in (row.expand(400, 600), row.expand(5, 600), row[:, :1].expand(350, 600), halves(rng, half, 9, 600)):
        same(F.linear(x, weight), F.linear(x.float(), weight.float()))
        same(tc.matmul(x[None].expand(3, *x.shape), weight.T), tc.matmul(x[None].float().expand(3, *x.shape), weight.float().T))


@pytest.mark.parametrize("kept", [True, False])
def test_a_weight_that_changes(kept, half, isa, rng):
    """With `kept`, a prepared form may be there from the call before; a weight in training has none."""
    x, weight = halves(rng, half, 3, 200), halves(rng, half, 70, 200)
    weight.requires_grad_(not kept)
    for _ in range(3):
        with tc.no_grad():
            for m in (1, 3):
                same(F.linear(x[:m], weight), F.linear(x[:m].float(), weight.float()))
            weight[:, ::3] = halves(rng, half, 70, 67)
    parts = weight.detach()[10:60]
    same(F.linear(x, parts), F.linear(x.float(), parts.float()))


def layouts(tensor):
    """The same matrix in memory of other strides."""
    rows, cols = tensor.shape
    wide = tc.zeros((2 * rows, 3 * cols)).to(tensor.dtype)
    wide[::2, ::3] = tensor
    return {
        "plain": tensor, "transposed": tensor.T.contiguous().T, "apart": wide[::2, ::3], "backwards": tensor[::-1].contiguous()[::-1],
        "columns backwards": tensor[:, ::-1].contiguous()[:, ::-1], "one row": tensor[:1].expand(rows, cols),
    }  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 40, 35), (5, 400, 50), (40, 33, 130), (200, 385, 20)], ids=str)
def test_strides(shape, half, isa, rng):
    M, K, N = shape
    a, b = halves(rng, half, M, K), halves(rng, half, K, N)
    for first in layouts(a).values():
        for second in layouts(b).values():
            same(tc.matmul(first, second), tc.matmul(first.float(), second.float()))
            same(F.linear(first, second.T), F.linear(first.float(), second.float().T))


def test_batches_and_vectors(half, isa, threads, rng):
    for a, b in [
        ((4, 1, 7, 20), (3, 20, 33)),
        ((2, 3, 40, 64), (2, 3, 64, 128)),
        ((5,), (5,)),
        ((30,), (2, 30, 9)),
        ((6, 1, 30), (30,)),
        ((9, 1, 64), (9, 64, 40)),
    ]:
        first, second = halves(rng, half, *a), halves(rng, half, *b)
        same(tc.matmul(first, second), tc.matmul(first.float(), second.float()))


def test_two_dtypes(half, isa, rng):
    """They promote: the half is read as it is stored, and the result is that of the wider one."""
    a, b = halves(rng, half, 40, 70), tc.tensor(rng.standard_normal((70, 33)).astype(np.float32))
    for dtype in (tc.float32, tc.float64):
        np.testing.assert_array_equal(tc.matmul(a, b.to(dtype)).numpy(), tc.matmul(a.to(dtype), b.to(dtype)).numpy())
        np.testing.assert_array_equal(tc.matmul(b.T.to(dtype), a.T).numpy(), tc.matmul(b.T.to(dtype), a.T.to(dtype)).numpy())
    whole = tc.tensor(np.arange(140).reshape(2, 70) % 5)
    other = halves(rng, half, 70, 8)
    same(tc.matmul(whole, other), tc.matmul(whole.float(), other.float()))


@pytest.mark.parametrize("C, heads", [(24, 2), (400, 3)])
@pytest.mark.parametrize("packing", ["head", "qkv"])
def test_qkv_projection(C, heads, packing, half, isa, threads, rng):
    weight, bias = halves(rng, half, 3 * heads * 8, C, scale=C**-0.5), halves(rng, half, 3 * heads * 8)
    for shape in ((1, 1, C), (3, 40, C)):
        x = halves(rng, half, *shape)
        parts = F.qkv_projection(x, weight, bias, heads, packing=packing)
        for part, wide in zip(parts, F.qkv_projection(x.float(), weight.float(), bias.float(), heads, packing=packing), strict=True):
            same(part, wide)


def all_of(half):
    """Every number of the dtype: denormals, infinities and NaN as well."""
    array = np.arange(65536, dtype=np.uint16).view(tc.zeros(1).to(half).numpy().dtype)
    return tc.tensor(array)


@pytest.mark.parametrize("m", [1, 3, 9, 30])
def test_every_number_is_read_as_it_is(m, half, isa):
    """But -0, which is added to 0."""
    every, one = all_of(half), tc.ones((1, 1)).to(half)
    wide = every.float() + 0.0
    same(tc.matmul(one, every.reshape(1, -1)), wide.reshape(1, -1))  # as B, in rows
    same(F.linear(one.expand(m, 1), every.reshape(-1, 1)), wide.reshape(1, -1).expand(m, 65536))  # as B, in panels
    same(F.linear(every.reshape(-1, 1), one), wide.reshape(-1, 1))  # as A
    same(F.linear(tc.zeros((m, 1)).to(half), one.expand(65536, 1), every), wide.reshape(1, -1).expand(m, 65536))  # as a bias
    same(_core.linear(tc.zeros((1, 1)).to(half), one.expand(65536, 1), None, None, every.reshape(1, -1)), wide.reshape(1, -1))


@pytest.mark.parametrize("m", [1, 33])
def test_results_are_rounded_to_nearest_even(m, half, isa, rng):
    """Sums of two halves are exact in float32 and fall on, just below and just above the middle between two halves."""
    high = all_of(half).float().numpy()
    high = high[np.isfinite(high)]
    for step in (-1.5, -1, -0.5, 0, 0.5, 1, 1.0625):
        with np.errstate(over="ignore"):
            low = tc.tensor(
                step
                * np.abs(
                    np.spacing(np.clip(high, -65000, 65000).astype(np.float16)).astype(np.float32) if half == tc.float16 else high * 2.0**-8
                )
            ).to(half)
        pair = tc.stack([tc.tensor(high).to(half), low], -1)
        expected = (pair[:, 0].float() + pair[:, 1].float() + 0.0).reshape(1, -1).expand(m, len(high))
        same(F.linear(tc.ones((m, 2)).to(half), pair), expected)


@pytest.mark.parametrize("m", [1, 6, 50])
def test_nan_and_infinity_reach_their_own_row_and_column_only(m, half, isa, rng):
    x, weight = halves(rng, half, m, 500), halves(rng, half, 90, 500)
    x[m // 2, 7] = float("nan")
    weight[33, 450] = float("inf")
    y = F.linear(x, weight).float().numpy()
    wrong = np.zeros((m, 90), bool)
    wrong[m // 2] = wrong[:, 33] = True
    np.testing.assert_array_equal(~np.isfinite(y), wrong)
    assert np.isnan(y[m // 2]).all()


@pytest.mark.parametrize("m", [1, 4, 20, 70])
def test_accuracy(m, half, isa, rng):
    x, weight, bias = halves(rng, half, m, 900), halves(rng, half, 75, 900), halves(rng, half, 75)
    exact = x.float().numpy().astype(float) @ weight.float().numpy().astype(float).T + bias.float().numpy()
    assert_close(F.linear(x, weight, bias).numpy(), exact, half.name, 900)


def test_gradients(half, isa, rng):
    """Those of the same numbers in float32, rounded."""
    tensors = [halves(rng, half, 30, 40), halves(rng, half, 20, 40), halves(rng, half, 20)]
    given = halves(rng, half, 30, 20)
    for f in (lambda x, w, b: F.linear(x, w, b), lambda x, w, b: tc.matmul(x, w.T) + b, lambda x, w, b: _core.linear(x, w, b, "gelu")):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        wide = [t.float().requires_grad_() for t in tensors]
        f(*leaves).backward(given)
        f(*wide).backward(given.float())
        for leaf, exact in zip(leaves, wide, strict=True):
            assert_close(leaf.grad.numpy(), exact.grad.numpy().astype(float), half.name, 40)


def through(activation, pre, dy):
    """dy f'(pre), float32."""
    functions = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}
    leaf = pre.detach().clone().requires_grad_()
    functions[activation](leaf).backward(dy)
    return leaf.grad


# (rows, in, out): one step of k and several, blocks and chunks of rows, odd sizes, too narrow to be read as they are
GRADIENTS = [(70, 64, 96), (65, 256, 130), (600, 130, 67), (129, 385, 400), (2, 512, 600), (33, 63, 40), (40, 32, 1030)]


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize(("rows", "C", "N"), GRADIENTS)
def test_gradients_of_a_linear_layer(rows, C, N, activation, half, isa, threads, rng):
    """Those of the same numbers in float32, rounded, where what comes out of the activation is rounded first."""
    dy, x, weight = halves(rng, half, rows, N), halves(rng, half, rows, C), halves(rng, half, N, C, scale=C**-0.5)
    dy[rows // 2, N // 3] = 1000
    p = dy.float()
    more = ()
    if activation:
        pre = tc.tensor(rng.standard_normal((rows, N), dtype=np.float32))
        more = (pre, activation)
        p = through(activation, pre, p).to(half).float()
    got, wide = _core.linear_backward(dy, x, weight, *more), _core.linear_backward(p, x.float(), weight.float())
    for one, exact in zip(got, wide, strict=True):
        same(one, exact)


def test_gradients_of_a_linear_layer_with_strides(half, isa, rng):
    row, x, weight = halves(rng, half, 90), halves(rng, half, 80, 70), halves(rng, half, 80, 90)
    spread = halves(rng, half, 70, 180)
    for dy in (row.expand(70, 90), spread[:, ::2], spread[:, 1:91], halves(rng, half, 90, 70).T):
        wide = _core.linear_backward(dy.float(), x.T.float(), weight.T.float())
        for one, exact in zip(_core.linear_backward(dy, x.T, weight.T), wide, strict=True):
            same(one, exact)


def test_a_nan_of_a_gradient_reaches_its_own_row_and_column_only(half, isa, rng):
    dy, x, weight = halves(rng, half, 90, 300), halves(rng, half, 90, 260), halves(rng, half, 300, 260)
    dy[7, 33] = float("nan")
    weight[44, 5] = float("inf")
    dx, dweight, dbias = (np.isfinite(t.float().numpy()) for t in _core.linear_backward(dy, x, weight))
    assert not dx[7].any() and not dx[:, 5].any() and np.delete(np.delete(dx, 7, 0), 5, 1).all()
    assert not dweight[33].any() and np.delete(dweight, 33, 0).all()
    assert not dbias[33] and np.delete(dbias, 33).all()


def test_which_gradients_are_products_of_bfloat16(isa, rng):
    """By the widths and, where the sum is over them, by the rows."""
    kind = BFLOAT16_PRODUCTS.get(isa, "none")
    for rows, C, N, kinds in (
        (64, 256, 128, ("tiles", "dots")), (63, 256, 128, ()), (64, 128, 128, ("dots",)), (64, 64, 64, ("dots",)), (64, 64, 63, ())
    ):  # fmt: skip
        _core.linear_backward(*(halves(rng, tc.bfloat16, *shape) for shape in ((rows, N), (rows, C), (N, C))))
        assert tc.config.last_plans("cpu")["gemm"]["variant"].startswith(kind) == (kind in kinds)


@pytest.mark.parametrize("C", [1, 7, 16, 65, 384, 1000])
def test_norms(C, half, isa, threads, rng):
    x, residual, gamma, beta = halves(rng, half, 37, C), halves(rng, half, 37, C), halves(rng, half, C), halves(rng, half, C)
    x32, residual32, gamma32, beta32 = (t.float() for t in (x, residual, gamma, beta))
    same(F.layer_norm(x, (C,), gamma, beta), F.layer_norm(x32, (C,), gamma32, beta32))
    same(F.layer_norm(x, (C,)), F.layer_norm(x32, (C,)))
    same(F.rms_norm(x, (C,), gamma), F.rms_norm(x32, (C,), gamma32))
    same(F.rms_norm(x, (C,)), F.rms_norm(x32, (C,)))
    for gammas in ((None, None), (gamma, beta)):
        y = _core.add_layer_norm(x, residual, (C,), *gammas)
        same(y, _core.add_layer_norm(x32, residual32, (C,), *(None if g is None else g.float() for g in gammas)))
    for m in (1, 5, 36):
        np.testing.assert_array_equal(bits(F.layer_norm(x[:m], (C,), gamma)), bits(F.layer_norm(x, (C,), gamma))[:m])


def test_norms_of_every_number(half, isa):
    x = all_of(half).reshape(4096, 16)
    same(F.layer_norm(x, (16,)), F.layer_norm(x.float(), (16,)))
    same(F.rms_norm(x, (16,)), F.rms_norm(x.float(), (16,)))


@pytest.mark.parametrize(
    "shape", [(1, 2, 1, 40, 8), (2, 3, 50, 50, 17), (1, 2, 130, 300, 33), (2, 4, 1, 1, 64), (3, 2, 1, 260, 64), (1, 1, 5, 0, 4)], ids=str
)
def test_attention(shape, half, isa, threads, rng):
    B, H, Tq, Tk, D = shape
    q, k, v = halves(rng, half, B, H, Tq, D), halves(rng, half, B, H, Tk, D), halves(rng, half, B, H, Tk, D + 3)
    mask = tc.tensor(rng.random((B, 1, Tq, Tk)) < 0.6)
    attend, wide = F.scaled_dot_product_attention, [t.float() for t in (q, k, v)]
    all_options = [
        {},
        {"is_causal": True},
        {"attn_mask": mask},
        {"softcap": 5.0},
        {"empty_rows": "uniform", "attn_mask": mask[:, :, :, :0].expand(B, 1, Tq, 0) if Tk == 0 else mask},
    ]
    for options in all_options:
        same(attend(q, k, v, **options), attend(*wide, **options))
    values, attention = attend(q, k, v, return_attention=True)
    values32, attention32 = attend(*wide, return_attention=True)
    same(values, values32)
    same(attention, attention32)
    one = attend(q[:1], k[:1], v[:1])
    np.testing.assert_array_equal(bits(one), bits(attend(q, k, v))[:1])


def test_attention_reads_heads_inside_rows(half, isa, rng):
    """q, k and v as a projection gives them, and values laid out likewise, without copies."""
    joint = halves(rng, half, 2, 70, 3, 4, 16)
    parts = [joint[:, :, i].transpose(1, 2) for i in range(3)]
    values = F.scaled_dot_product_attention(*parts)
    same(values, F.scaled_dot_product_attention(*(p.float() for p in parts)))
    assert values.transpose(1, 2).is_contiguous()
    fewer = [parts[0], parts[1][:, :2], parts[2][:, :2]]
    same(
        F.scaled_dot_product_attention(*fewer, enable_gqa=True),
        F.scaled_dot_product_attention(*(p.float() for p in fewer), enable_gqa=True),
    )


def test_a_nan_that_is_masked_is_not_read(half, isa, rng):
    q, k, v = (halves(rng, half, 1, 1, 60, 16) for _ in range(3))
    v[0, 0, 40:] = float("nan")
    assert np.isfinite(F.scaled_dot_product_attention(q, k, v, key_lengths=tc.tensor([40])).float().numpy()).all()


@pytest.mark.parametrize("K", [1001, 1009])  # the last step of 32 k ends after an odd k, in its first half and in its second
def test_products_of_halves_read_nothing_beside_their_operands(half, isa, rng, K):
    """Windows of arrays of NaN; few rows of b by strips, and more."""
    wide = {name: tc.full(shape, np.nan, dtype=half) for name, shape in {"a": (40, 1100), "b": (1100, 2100), "weight": (300, 1100)}.items()}
    a, b, weight = wide["a"][1:21, 2 : 2 + K], wide["b"][1 : 1 + K, 3:1040], wide["weight"][1:271, 2 : 2 + K]
    for window in (a, b, weight):
        window[...] = tc.tensor(rng.standard_normal(window.shape).astype(np.float32)).to(half)
    for rows in (a, a[:3]):
        assert tc.all(tc.isfinite(tc.matmul(rows, b))) and tc.all(tc.isfinite(tc.functional.linear(rows, weight)))


FUNCTIONS = {
    "add": lambda x, y: tc.add(x, y, alpha=0.3),
    "sub": lambda x, y: tc.sub(x, y, alpha=-3),
    "addcmul": lambda x, y: tc.addcmul(y, x, y, value=0.7),
    "addcdiv": lambda x, y: tc.addcdiv(y, x, y, value=0.7),
    "lerp": lambda x, y: tc.lerp(x, y, 0.3),
    "round": lambda x, y: tc.round(x, decimals=2),
    "prod": lambda x, y: tc.prod(x, 1),
    "logsumexp": lambda x, y: tc.logsumexp(x, 1),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "selu": lambda x, y: F.selu(x),
    "celu": lambda x, y: F.celu(x, 0.6),
    "glu": lambda x, y: F.glu(x, 0),
    "mish": lambda x, y: F.mish(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "softsign": lambda x, y: F.softsign(x),
    "softshrink": lambda x, y: F.softshrink(x, 0.1),
    "tanhshrink": lambda x, y: F.tanhshrink(x),
    "softplus": lambda x, y: F.softplus(x, 1.3, 2.0),
    "normalize": lambda x, y: F.normalize(x, p=1.0),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y),
    "huber_loss": lambda x, y: F.huber_loss(x, y, delta=0.7),
    "kl_div": lambda x, y: F.kl_div(x, y.abs(), reduction="batchmean"),
    "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, tc.ones(40)),
    "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, x.detach().sign(), margin=0.3),
    "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, y.flip(0), swap=True),
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, y.abs(), full=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1.0, 300.0])  # beyond 255, whose square a float16 does not have
def test_a_function_made_of_several_rounds_once(name, scale, half, rng):
    x, y = halves(rng, half, 40, 6, scale=scale).requires_grad_(), halves(rng, half, 40, 6, scale=scale)
    wide = x.detach().float().requires_grad_()
    result, expected = FUNCTIONS[name](x, y), FUNCTIONS[name](wide, y.float())
    same(result, expected)
    same(FUNCTIONS[name](x.detach(), y), expected)  # unrecorded, some take another way
    (result.float() * 0.5).sum().backward()
    (expected * 0.5).sum().backward()
    same(x.grad, wide.grad)


def test_what_does_not_fit_between_the_steps_of_a_function(half):
    zeros = tc.zeros(1, 100000, dtype=half)
    same(tc.logsumexp(zeros, 1), tc.logsumexp(zeros.float(), 1))
    x = tc.tensor([300.0, 300.0, 2.0**-10]).to(half)
    same(tc.prod(x), tc.prod(x.float()))
    same(tc.round(tc.tensor([1000.5]).to(half), decimals=2), tc.tensor([1000.5]).to(half).float())
    parameter = tc.zeros(1).add_(tc.tensor([2.0**-14]).to(half), alpha=2.0**-14)
    assert parameter.item() == 2.0**-28
