"""Products of float32 that are split into bfloat16 where the processor multiplies tiles of them (`TRANSFORMER_C_ISA=amx`), with "medium" also
where it adds two products of them (`avx512_bf16`), and are whole on every other instruction set: accuracy, bits, what cannot be split. tests/test_tiles.py tries the same kernels on any processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

# Largest error as a share of |A| |B|, whatever the shape.
LIMITS = {"highest": 4e-7, "high": 2e-5, "medium": 8e-3}
VARIANTS = {"highest": ("tiles x 6",), "high": ("tiles x 3",), "medium": ("tiles", "dots")}


@pytest.fixture(params=LIMITS)
def precision(request):
    tc.set_float32_precision(request.param)
    yield request.param
    tc.set_float32_precision("highest")


def operands(rng, M, N, K):
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((M, K), (N, K), (N,), (M, N))]


def error(got, a, b, bias=0.0):
    exact = a.astype(np.float64) @ b.astype(np.float64) + bias
    return np.max(np.abs(got - exact) / (np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias)))


def splits(isa, precision, side, rows_of_a_gradient=0):
    if precision == "highest":
        return isa == "amx" and side >= 384 and rows_of_a_gradient >= 256
    return (isa == "amx" or (isa, precision) == ("avx512_bf16", "medium")) and side >= 128


def variant():
    return tc.config.last_plans("cpu")["gemm"]["variant"].removesuffix(", split k")


@pytest.mark.parametrize(("M", "N", "K"), [(5, 130, 200), (201, 128, 131), (300, 400, 390), (40, 140, 127)])
def test_accuracy(isa, precision, rng, M, N, K):
    x, weight, bias, dy = operands(rng, M, N, K)
    side = min(N, K)
    y = _core.linear(x, weight, bias)
    assert (variant() in VARIANTS[precision]) == splits(isa, precision, side)
    limit = LIMITS[precision] if side >= 128 else LIMITS["highest"]
    assert error(y, x, weight.T, bias) < limit
    dx = _core.linear_backward(dy, x, weight)[0]
    dweight, dbias = _core.linear_backward(dy, x, weight)[1:]
    assert (variant() in VARIANTS[precision]) == splits(isa, precision, side, M)
    assert error(dx, dy, weight) < limit
    assert error(dweight, np.ascontiguousarray(dy.T), x) < limit
    np.testing.assert_allclose(dbias, dy.sum(0, dtype=np.float64), rtol=0, atol=1e-4)


def test_six_products_are_as_accurate_as_a_float32_product(isa, rng):
    x, weight, _, dy = operands(rng, 300, 400, 390)
    here = error(_core.linear_backward(dy, x, weight)[1], dy.T, x)
    _core.cpu_select("baseline")
    assert here <= (1.0 if isa == "amx" else 2.0) * error(_core.linear_backward(dy, x, weight)[1], dy.T, x)


def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(isa, precision, threads, rng):
    x, weight, bias, dy = operands(rng, 350, 400, 390)
    y, dx = _core.linear(x, weight, bias), _core.linear_backward(dy, x, weight)[0]
    for first, last in ((0, 1), (3, 20), (7, 40), (100, 261), (349, 350)):
        np.testing.assert_array_equal(_core.linear(x[first:last], weight, bias), y[first:last])
        np.testing.assert_array_equal(_core.linear_backward(dy[first:last], x[first:last], weight)[0], dx[first:last])
    gradients = _core.linear_backward(dy, x, weight)
    _core.set_num_threads(1)
    for a, b in zip(_core.linear_backward(dy, x, weight), gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batches_and_strides(isa, precision, rng):
    a = rng.standard_normal((2, 3, 40, 300)).astype(np.float32)[..., ::2]
    b = rng.standard_normal((3, 140, 150)).astype(np.float32).swapaxes(1, 2)
    whole = _core.matmul(a, b)
    assert (variant() in VARIANTS[precision]) == splits(isa, precision, 140)
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(_core.matmul(np.ascontiguousarray(a[i, j]), b[j]), whole[i, j])


@pytest.mark.filterwarnings("ignore:(invalid value|overflow)")
def test_what_cannot_be_split_stays_in_its_row_and_its_columns(isa, precision, rng):
    """Infinities, NaN, huge and tiny numbers: their rows and columns have the digits of float32, the others their bits."""
    x, weight, _, _ = operands(rng, 40, 160, 130)
    clean = _core.linear(x, weight)
    x[3, 7], x[15, 0], x[20], x[30, 5] = np.nan, np.inf, 1e-38, 3.4e38
    weight[70, 9] = -np.inf
    y = _core.linear(x, weight)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    special = np.zeros_like(y, bool)
    special[[3, 15, 20, 30]], special[:, 64:80] = True, True
    np.testing.assert_array_equal(y[~special], clean[~special])
    np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
    finite = np.abs(exact) < 1e38
    np.testing.assert_array_equal(np.isfinite(y[finite]), True)
    size = np.abs(np.nan_to_num(x)).astype(np.float64) @ np.abs(np.nan_to_num(weight)).T.astype(np.float64)
    assert np.max((np.abs(y - exact) / size)[special & finite]) < LIMITS["highest"]


def test_what_cannot_be_split_of_a_sum_in_chunks(isa, rng):
    """The gradient of a weight by many rows, whose sum is split: infinities and NaN of any chunk reach their column. Of numbers of few bits the
    smaller parts are zeros, which say nothing of what is beside them."""
    weight = operands(rng, 1, 400, 390)[1]
    x, dy = (rng.integers(1, 8, (3000, side)).astype(np.float32) for side in (390, 400))
    clean = _core.linear_backward(dy, x, weight)[1]
    x[5, 20], x[1500, 100], x[2999, 389] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        dweight, exact = _core.linear_backward(dy, x, weight)[1], dy.T.astype(np.float64) @ x.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(dweight), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(dweight), np.isinf(exact))
    others = np.setdiff1d(np.arange(390), np.r_[16:32, 96:112, 384:390])
    np.testing.assert_array_equal(dweight[:, others], clean[:, others])


LENGTHS = [130, 5, 0, 127, 128, 1, 200, 129]  # on both sides of what is long


def parts(x, lengths=LENGTHS):
    return np.split(x, np.cumsum(lengths)[:-1])


@pytest.mark.parametrize(("N", "K"), [(400, 390), (400, 383)])
def test_a_long_sequence_is_split_with_full_accuracy(isa, threads, rng, N, K):
    """By its own length, packed with any others or alone; forward and for dx."""
    x, weight, bias, dy = operands(rng, sum(LENGTHS), N, K)
    given = {"sequence_lengths": np.array(LENGTHS)}
    y, pre = _core.linear_forward(x, weight, bias, "gelu", dy, **given)
    dx = _core.linear_backward(dy, x, weight, pre, "gelu", **given)[0]
    assert error(pre, x, weight.T, bias) < LIMITS["highest"]
    for length, *own in zip(LENGTHS, *map(parts, (x, dy, y, pre, dx)), strict=True):
        x0, dy0, y0, pre0, dx0 = own
        alone, before = _core.linear_forward(x0, weight, bias, "gelu", dy0, sequence_lengths=length)
        if length:
            splits_it = isa == "amx" and length >= 128 and K >= 384
            assert (variant() == "tiles x 6") == splits_it
        np.testing.assert_array_equal(alone, y0)
        np.testing.assert_array_equal(before, pre0)
        np.testing.assert_array_equal(_core.linear_backward(dy0, x0, weight, pre0, "gelu", sequence_lengths=length)[0], dx0)
    plain = parts(_core.linear(x, weight, bias))
    for length, a, b in zip(LENGTHS, plain, parts(pre), strict=True):
        assert (a.tobytes() == b.tobytes()) == (isa != "amx" or K < 384 or length < 128)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow)")
def test_what_cannot_be_split_of_a_long_sequence_has_the_bits_of_a_short_one(isa, rng):
    """By rows and by columns, in any group of 16, with all that may follow a product."""
    x, weight, bias, residual = operands(rng, 200, 400, 390)
    rows, cols = [3, 37, 150, 199], [20, 399]
    x[rows[0], 5], x[rows[1]], x[rows[2], 7], x[rows[3], 300] = np.inf, 1e-38, 2.0**60, np.nan
    weight[cols[0], 3], weight[cols[1]] = -np.inf, 1e-38
    x[60, 5], weight[300, 7] = 1e-30, -1e-38  # beside larger ones
    given = weight, bias, "gelu", residual
    whole, short = _core.linear_forward(x, *given, sequence_lengths=200), _core.linear_forward(x, *given)
    for got, expected in zip(whole, short, strict=True):
        np.testing.assert_array_equal(got[rows], expected[rows])
        np.testing.assert_array_equal(got[:, cols], expected[:, cols])
    others = np.setdiff1d(np.arange(400), np.r_[16:32, 384:400])
    assert (whole[1][60, others].tobytes() != short[1][60, others].tobytes()) == (isa == "amx")
    assert (whole[1][:3, 300].tobytes() != short[1][:3, 300].tobytes()) == (isa == "amx")


def test_sequences_of_one_length_in_any_batch(isa, threads, rng):
    x, weight, _, _ = operands(rng, 5 * 130, 400, 390)
    kept = tc.tensor(weight)
    whole = _core.linear(x, weight, sequence_lengths=130)
    assert (variant() == "tiles x 6") == (isa == "amx")
    for count in (1, 2, 3):
        rows = slice(130, 130 * (1 + count))
        np.testing.assert_array_equal(_core.linear(x[rows], weight, sequence_lengths=130), whole[rows])
        np.testing.assert_array_equal(tc.functional.linear(tc.tensor(x[rows]), kept, sequence_lengths=130).numpy(), whole[rows])
    assert error(whole, x, weight.T) < LIMITS["highest"]


def test_gradients_of_packed_sequences(isa, rng):
    """On the tape, where the array of lengths may change after the call."""
    x, weight, bias, dy = operands(rng, sum(LENGTHS), 400, 390)
    lengths = np.array(LENGTHS)
    leaf = tc.tensor(x, requires_grad=True)
    y = tc.functional.linear(leaf, tc.tensor(weight), tc.tensor(bias), sequence_lengths=lengths)
    lengths[:] = 1
    y.backward(tc.tensor(dy))
    np.testing.assert_array_equal(leaf.grad.numpy(), _core.linear_backward(dy, x, weight, sequence_lengths=LENGTHS)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradients_of_packed_sequences_that_meet(dtype, isa, rng):
    """The second of two layers adds its product to the gradient that the first one has left: each row to its own."""
    x, weight, _, dy = operands(rng, sum(LENGTHS), 400, 390)
    weights = [tc.tensor(w).to(dtype) for w in (weight, rng.standard_normal(weight.shape).astype(np.float32))]

    def gradient(*weights):
        leaf = tc.tensor(x).to(dtype).requires_grad_()
        results = [tc.functional.linear(leaf, w, sequence_lengths=LENGTHS) for w in weights]
        sum(results).backward(tc.tensor(dy).to(dtype))
        return leaf.grad.float().numpy()

    both, first, second = gradient(*weights), *(gradient(w) for w in weights)
    largest = np.abs(first).max() + np.abs(second).max()
    np.testing.assert_allclose(both, first + second, rtol=0, atol=largest * {"float32": 1e-6, "bfloat16": 2**-8, "float16": 2**-11}[dtype])


@pytest.mark.parametrize("lengths", [130, [130, 130]])
def test_the_tape_knows_the_lengths(isa, rng, lengths):
    given = {"sequence_lengths": lengths}
    x, weight = operands(rng, 260, 1152, 390)[:2]
    dy = rng.standard_normal((260, 1152)).astype(np.float32)
    heads = [rng.standard_normal((6, 260, 64)).astype(np.float32) for _ in range(3)]
    for f, gradients, expected in (
        (_core.linear, [dy], _core.linear_backward(dy, x, weight, **given)[0]),
        (
            lambda *a, **k: _core.qkv_projection(*a, num_heads=6, **k),
            heads,
            _core.qkv_projection_backward(*heads, x, weight, 6, **given)[0],
        ),
    ):
        leaf = tc.tensor(x, requires_grad=True)
        results = f(leaf, tc.tensor(weight), **given)
        results = results if isinstance(results, tuple) else (results,)
        sum((y * tc.tensor(d)).sum() for y, d in zip(results, gradients, strict=True)).backward()
        assert (variant() == "tiles x 6") == (isa == "amx")
        np.testing.assert_array_equal(leaf.grad.numpy(), expected)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (-1, "sequence_lengths is -1; a length is not negative"),
        ([3, 4], r"together they are the rows of x; x \(2, 4, 384\) has 8 rows"),
        ([9, -1], "are not negative"),
        ([2**62, 2**62, 8], "has 8 rows"),
        ([[8]], r"sequence_lengths is int64 of shape \(1, 1\); it needs an integer, or one for each sequence"),
        (8.0, r"sequence_lengths is float64 of shape \(\)"),
        ([7.5, 0.5], r"sequence_lengths is float64 of shape \(2,\)"),
        ([True] * 8, "sequence_lengths is bool"),
    ],
)
def test_lengths_that_are_refused(lengths, message):
    x, weight = np.ones((2, 4, 384), np.float32), np.ones((768, 384), np.float32)
    for f in (_core.linear, lambda *a, **k: _core.linear_backward(np.ones((2, 4, 768), np.float32), *a, **k), _core.qkv_projection):
        with pytest.raises((TypeError, ValueError), match=message):
            f(x, weight, sequence_lengths=lengths)


@pytest.mark.parametrize("kind", ["bert", "layer", "layer, time first", "block"])
def test_long_texts_in_any_batch(isa, kind, rng):
    """Models of widths that are split: a text alone, with others of its length, packed, and padded."""
    tc.manual_seed(0)
    texts = [n for n in LENGTHS if n]
    if kind == "bert":
        sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 390, "num_hidden_layers": 1, "vocab_size": 60}
        model = tc.models.create({"model_type": "bert", "max_position_embeddings": 240, **sizes}).eval()
        x = rng.integers(0, 60, (len(texts), 220))
    elif kind == "block":
        model = tc.EncoderBlock(384, 6, 390).eval()
        x = rng.standard_normal((3, 130, 384)).astype(np.float32)
        assert model(x).tobytes() == b"".join(model(part[None]).tobytes() for part in x)
        return
    else:
        model = tc.nn.TransformerEncoderLayer(384, 6, 390, batch_first=kind == "layer").eval()
        x = rng.standard_normal((len(texts), 220, 384)).astype(np.float32)
    turn = (lambda a: a.swapaxes(0, 1)) if kind.endswith("first") else lambda a: a
    packed = turn(model(turn(x), lengths=texts))
    for i, n in enumerate(texts):
        alone = turn(model(turn(x[i : i + 1, :n])))
        assert (variant() == "tiles x 6") == (isa == "amx" and n >= 128)
        np.testing.assert_array_equal(packed[i, :n], alone[0])
    two = turn(model(turn(x[:2, :130])))
    np.testing.assert_array_equal(two[:1], turn(model(turn(x[:1, :130]))))
    if kind == "bert":
        masked = model(x, mask=np.arange(220) < np.array(texts)[:, None])
        np.testing.assert_array_equal(masked, packed)
    else:  # with a mask T is that of the batch
        for width in (132, 220):
            padding = np.arange(width) >= np.array([[130]])
            model(turn(x[:1, :width]), src_key_padding_mask=padding)
            assert variant() != "tiles x 6"


@pytest.mark.parametrize("zeros", [slice(0, 40), slice(50, 51)])
def test_long_texts_beside_one_with_zeros_elsewhere_than_at_its_end(isa, zeros, rng):
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 390, "num_hidden_layers": 1, "vocab_size": 60}
    model = tc.models.create({"model_type": "bert", "max_position_embeddings": 240, **sizes}).eval()
    ids, lengths = rng.integers(0, 60, (4, 220)), np.array([150, 140, 100, 0])
    mask = np.arange(220) < lengths[:, None]
    mask[1, zeros] = False
    together = model(ids, mask=mask)
    for i, n in enumerate(lengths[:3]):
        alone = model(ids[i : i + 1, :n], mask=mask[i : i + 1, :n])
        assert (variant() == "tiles x 6") == (isa == "amx" and n >= 128)
        np.testing.assert_array_equal(together[i, :n], alone[0])


@pytest.mark.parametrize("part", ["self_attn.qkv_proj", "self_attn.o_proj", "linear_net.0", "linear_net.1", "linear_net.3"])
def test_a_hook_changes_no_bit_of_a_long_text(isa, part, rng):
    block = tc.EncoderBlock(384, 6, 390).eval()
    x = rng.standard_normal((1, 130, 384)).astype(np.float32)
    without = block(x)
    with block.get_submodule(part).register_forward_hook(lambda *unused: None):
        np.testing.assert_array_equal(block(x), without)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_forward_that_was_replaced_is_told_no_lengths(hooked, rng):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    x = rng.standard_normal((1, 3, 8)).astype(np.float32)
    expected = layer(x)
    for part in (layer.self_attn.out_proj, layer.linear1, layer.linear2):
        part.forward = lambda x, part=part: tc.functional.linear(x, part.weight, part.bias)
        if hooked:
            part.register_forward_hook(lambda *unused: None)
    np.testing.assert_array_equal(layer(x), expected)


@pytest.mark.parametrize("axes", [2, 3])
def test_long_texts_with_masks_in_any_batch(isa, axes, rng):
    """Of one mask for all, and of one for each sequence and head, whether anything is padded or not."""
    layer = tc.nn.TransformerEncoderLayer(384, 6, 390, batch_first=True).eval()
    x = rng.standard_normal((2, 130, 384)).astype(np.float32)
    mask = rng.random((12, 130, 130)) < 0.2
    whole, one = (mask, mask[:6]) if axes == 3 else (mask[0], mask[0])
    alone = layer(x[:1], src_mask=one)
    assert (variant() == "tiles x 6") == (isa == "amx" and axes == 2)  # one of each sequence may be padding
    for lengths in ([130, 130], [130, 7]):
        np.testing.assert_array_equal(layer(x, src_mask=whole, lengths=lengths)[:1], alone)


def test_a_cache_is_filled_with_the_same_bits_at_once_and_in_pieces(isa, rng):
    layer = tc.nn.TransformerEncoderLayer(384, 6, 390, batch_first=True).eval()
    x = rng.standard_normal((1, 260, 384)).astype(np.float32)
    caches = [tc.nn.KeyValueCache() for _ in range(2)]
    at_once = layer(x, is_causal=True, past_key_value=caches[0])
    pieces = [layer(part, is_causal=True, past_key_value=caches[1]) for part in np.split(x, [100, 230], axis=1)]
    np.testing.assert_array_equal(np.concatenate(pieces, 1), at_once)


@pytest.mark.parametrize("given", ["x x x", "x y y", "x x y"])
def test_attention_of_long_texts_in_any_batch(isa, given, rng):
    """To themselves and to others, where only the arrays say which of both it is."""
    layer = tc.nn.MultiheadAttention(384, 6, batch_first=True).eval()
    arrays = {name: rng.standard_normal((2, 130, 384)).astype(np.float32) for name in "xy"}
    batch, first, packed = (
        layer(*map({name: part(a) for name, a in arrays.items()}.get, given.split()), need_weights=False, **lengths)[0]
        for part, lengths in (
            (lambda a: a, {}),
            (lambda a: a[:1], {}),
            (lambda a: a.reshape(260, 384), {"sequence_lengths": [130, 130]}),
        )
    )
    np.testing.assert_array_equal(batch[:1], first)
    np.testing.assert_array_equal(packed.reshape(2, 130, 384), batch)


def test_parts_of_a_weight_follow_the_weight_and_the_precision(isa, rng):
    x = tc.tensor(rng.standard_normal((200, 130)).astype(np.float32))
    weight = tc.tensor(rng.standard_normal((140, 130)).astype(np.float32))
    try:
        for _ in range(2):
            for precision in LIMITS:
                tc.set_float32_precision(precision)
                y = tc.functional.linear(x, weight).numpy()
                assert error(y, x.numpy(), weight.numpy().T) < max(LIMITS[precision], 6e-7)  # of one sum, where nothing is split
            weight *= 2
    finally:
        tc.set_float32_precision("highest")


PROGRAM = """
import os, threading
import numpy as np
def product(out):
    go.wait()
    out.append(_core.linear(x, w).tobytes())
go, early, late = threading.Event(), [], []
thread = threading.Thread(target=product, args=(early,))
thread.start()
import transformer_c as tc
from transformer_c import _core
tc.set_float32_precision("high")
tc.set_num_threads(2)
rng = np.random.default_rng(0)
x, w = (rng.standard_normal((n, 160)).astype(np.float32) for n in (400, 300))
first = _core.linear(x, w).tobytes()
go.set()
thread.join()
thread = threading.Thread(target=product, args=(late,))
thread.start()
thread.join()
assert early == late == [first]
child = os.fork()
if child == 0:
    os._exit(_core.linear(x, w).tobytes() != first)
assert os.waitpid(child, 0)[1] == 0
"""


def test_threads_from_before_and_after_the_import_and_a_fork():
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], check=True, timeout=60)


def test_tiles_that_are_not_there_are_an_error():
    if _core.cpu_isas().get("amx"):
        return
    done = subprocess.run(
        [sys.executable, "-c", "import transformer_c"], env={**os.environ, "TRANSFORMER_C_ISA": "amx"}, capture_output=True, text=True
    )
    assert done.returncode and "TRANSFORMER_C_ISA: 'amx'" in done.stderr and "usable here" in done.stderr
