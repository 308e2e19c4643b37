"""linear: the product with its epilogues, forward and backward, on every instruction set."""

import numpy as np
import pytest
import transformer_c as tc
from dropped import multiplier, with_gradients
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

ACTIVATIONS = [None, "relu", "gelu", "gelu_tanh"]
# M, K, N: nothing, one, primes, vector and tile heights +-1
SMALL = [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (2, 3, 5), (7, 13, 11), (15, 31, 33), (17, 16, 15), (29, 5, 47), (31, 65, 129)]
# two blocks of k; several items; B packed before; A packed; k of the weight's gradient split into chunks, of many columns as well
LARGE = [(5, 800, 19), (400, 70, 40), (180, 530, 515), (1100, 33, 17), (1050, 20, 150), (40, 385, 700)]
ONE_FEATURE = [(37, 18, 1), (1100, 800, 1)]  # computed as a row


def operands(rng, M, K, N, dtype):
    arrays = [rng.standard_normal(shape) for shape in [(M, K), (N, K), (N,), (M, N)]]
    return [a.astype(dtype) for a in arrays]


def magnitude(x, weight, bias, residual=None):
    """|x| |weight|^T + |bias| + |residual|: the magnitude to which a rounding error of the product is relative."""
    total = np.abs(R.f64(x)) @ np.abs(R.f64(weight)).T + np.abs(R.f64(bias)) + 1e-30
    return total if residual is None else total + np.abs(R.f64(residual))


def check_backward(dy, x, weight, pre, activation, bias):
    got = _core.linear_backward(dy, x, weight, pre, activation)
    expected = R.linear_backward(dy, x, weight, bias, activation)
    for name, g, e in zip(("dx", "dweight", "dbias"), got, expected, strict=False):
        assert_close(g, e, x.dtype, gradient=True, name=name, scale=max(1e-30, np.abs(e).max(initial=0)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SMALL + LARGE + ONE_FEATURE, ids=str)
def test_forward_and_backward(isa, shape, dtype, rng):
    M, K, N = shape
    x, weight, bias, residual = operands(rng, M, K, N, dtype)
    dy = rng.standard_normal((M, N)).astype(dtype)
    for activation in ACTIVATIONS:
        scale = magnitude(x, weight, bias, residual)
        for b, r in ((bias, residual), (bias, None), (None, residual), (None, None)):
            y, pre = _core.linear_forward(x, weight, b, activation, r)
            assert_close(y, R.linear(x, weight, b, activation, r), dtype, K, scale=scale, name=f"y, {activation}")
            if activation:
                assert_close(pre, R.linear(x, weight, b), dtype, K, scale=scale, name="pre")
                without = _core.linear(x, weight, b, activation, r)  # the same without pre: another way through the kernel
                np.testing.assert_array_equal(without, y)
            else:
                assert pre is None
        y, pre = _core.linear_forward(x, weight, bias, activation)
        check_backward(dy, x, weight, pre, activation, bias)


@pytest.mark.parametrize("shape", [(200, 40, 70), (2100, 33, 17), (300, 520, 600), (3, 700, 900)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_for_any_number_of_threads(isa, threads, shape, dtype, rng):
    x, weight, bias, residual = operands(np.random.default_rng(3), *shape, dtype)
    dy = residual[::-1].copy()

    def run():
        y, pre = _core.linear_forward(x, weight, bias, "gelu", residual)
        return y, pre, *_core.linear_backward(dy, x, weight, pre, "gelu")

    many = run()
    _core.set_num_threads(1)
    for a, b in zip(many, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_element_does_not_depend_on_its_neighbours(isa, rng):
    """The same bits wherever a row is among tiles, items and forms of packing."""
    x, weight, bias, _ = operands(rng, 700, 130, 90, "float32")
    whole = _core.linear(x, weight, bias)
    for first, last in ((0, 1), (0, 13), (5, 29), (100, 269), (699, 700)):
        np.testing.assert_array_equal(_core.linear(x[first:last], weight, bias), whole[first:last])
    for first, last in ((0, 1), (3, 20), (15, 80), (89, 90)):
        np.testing.assert_array_equal(_core.linear(x, weight[first:last], bias[first:last]), whole[:, first:last])


def test_leading_axes_and_strides(isa, rng):
    weight, bias = rng.standard_normal((6, 5)), rng.standard_normal(6)
    base = rng.standard_normal((4, 3, 8, 10))
    for x in (
        base[0, 0, 0, :5],
        base[0, 0, ::2, ::2],
        base[..., 5:],
        base[:, ::-1, :, ::-2],
        base.swapaxes(1, 3)[:, :5, :, :].swapaxes(1, 3)[..., :5],
        np.broadcast_to(base[0, 0, 0, :5], (7, 2, 5)),
        base.astype(">f8")[..., :5],
        base[:, 1:2, :, :5],
    ):
        for w in (
            weight,
            np.asfortranarray(weight),
            weight[::-1, ::-1],
            np.broadcast_to(weight[:1], (6, 5)),
            np.repeat(weight, 2, 1)[:, ::2],
        ):
            y = _core.linear(x, w, bias)
            assert_close(y, R.linear(x, w, bias), "float64", scale=magnitude(x, w, bias))
            dy = rng.standard_normal((*x.shape[:-1], 6)).swapaxes(0, -1).copy().swapaxes(0, -1)
            dx, dweight, dbias = _core.linear_backward(dy, x, w)
            for got, expected in zip((dx, dweight, dbias), R.linear_backward(dy, x, w, bias), strict=False):
                assert_close(got, expected, "float64", gradient=True)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_infinity_stay_in_their_rows_and_columns(isa):
    x, weight = np.ones((20, 40), np.float32), np.ones((50, 40), np.float32)
    x[3, 7], x[15, 0] = np.nan, np.inf
    weight[9, 39] = -np.inf
    for activation in ACTIVATIONS:
        y = _core.linear(x, weight, activation=activation)
        expected = R.linear(x, weight, activation=activation)
        clean = np.ones((20, 50), bool)
        clean[[3, 15]], clean[:, 9] = False, False
        assert np.isfinite(y[clean]).all()
        assert np.isnan(y[3]).all()
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(y), np.isinf(expected))


def test_large_and_tiny_values(isa):
    x = np.array([[3e38, -3e38, 1.0], [1e-42, 1e-42, 0.0]], np.float32)
    y = _core.linear(x, np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(y, [[1.0, 1.0], [x[1, 0] * 2] * 2])
    values = np.array([[-1e4], [-50.0], [-5.0], [-1e-30], [-0.0], [1e-30], [5.0], [1e4]], np.float32)
    for activation in ACTIVATIONS:
        assert_close(
            _core.linear(values, np.ones((1, 1), np.float32), activation=activation),
            R.linear(values, [[1.0]], activation=activation),
            "float32",
            scale=np.abs(values) + 1e-30,
        )


# ---- on the tape ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("with_residual", [False, True])
def test_gradients(activation, with_residual, rng):
    arrays = [rng.standard_normal(s) for s in [(2, 3, 5), (4, 5), (4,)] + [(2, 3, 4)] * with_residual]
    dy = rng.standard_normal((2, 3, 4))
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    x, weight, bias, *residual = tensors
    _core.linear(x, weight, bias, activation, *residual).backward(tc.tensor(dy))
    expected = R.linear_backward(dy, *arrays[:3], activation, *arrays[3:])
    for tensor, e in zip(tensors, expected, strict=False):
        assert_close(tensor.grad.numpy(), e, "float64", gradient=True)
    numeric = R.numerical_gradient(lambda *a: R.linear(*a[:3], activation, *a[3:]), arrays, dy)
    for tensor, e in zip(tensors, numeric, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), e, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wanted", range(4))
def test_one_gradient_alone(wanted, rng):
    arrays = [rng.standard_normal(s) for s in [(6, 5), (4, 5), (4,), (6, 4)]]
    tensors = [tc.tensor(a, requires_grad=i == wanted) for i, a in enumerate(arrays)]
    y = _core.linear(*tensors[:3], "gelu", tensors[3])
    dy = rng.standard_normal((6, 4))
    y.backward(tc.tensor(dy))
    assert_close(tensors[wanted].grad.numpy(), R.linear_backward(dy, *arrays[:3], "gelu", arrays[3])[wanted], "float64", gradient=True)
    assert all(t.grad is None for i, t in enumerate(tensors) if i != wanted)


def test_relu_saves_its_result_and_notices_that_it_was_written_to():
    x, weight = tc.tensor(np.ones((2, 3)), requires_grad=True), tc.tensor(np.ones((4, 3)))
    y = _core.linear(x, weight, None, "relu")
    y.detach().fill_(0)
    with pytest.raises(RuntimeError, match="linear"):
        y.backward(tc.tensor(np.ones((2, 4))))


@pytest.mark.parametrize("N", [40, 1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(isa, dtype, N, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, weight, bias, residual = operands(rng, 20, 30, N, dtype)
    for b in (bias, None):
        y = _core.linear(x, weight, b, "relu", residual)
        assert_close(y, R.linear(x, weight, b, "relu", residual), dtype)
        for i in range(0, 20 if N == 1 else 0, 7):  # a single row has the bits that it has among others, which are one row
            np.testing.assert_array_equal(_core.linear(x[i : i + 1], weight, b, "relu", residual[i : i + 1]), y[i : i + 1])
    tensors = [tc.as_tensor(a).requires_grad_() for a in (x, weight, bias)]
    _core.linear(*tensors).backward(tc.as_tensor(residual))
    for tensor, expected in zip(tensors, R.linear_backward(residual, x, weight, bias), strict=False):
        assert_close(tensor.grad.numpy(), expected, dtype)


# ---- packed weights ------------------------------------------------------------------------------------------------


def test_packed_weights_follow_the_weight(isa, rng):
    x = tc.tensor(rng.standard_normal((300, 80)))
    weight = tc.tensor(rng.standard_normal((60, 80)))
    whole = tc.tensor(rng.standard_normal((120, 80)))

    def right():
        for w in (
            weight,
            whole.narrow(0, 0, 60),
            whole.narrow(0, 60, 60),
            whole.narrow(0, 10, 33),
        ):
            for _ in range(2):
                assert_close(_core.linear(x, w).numpy(), R.linear(x.numpy(), w.numpy()), "float64", k=80)

    right()
    weight.fill_(0.5)
    whole.copy_(tc.tensor(rng.standard_normal((120, 80))))
    right()


def test_packed_weights_are_kept_and_freed(rng):
    x, held = tc.tensor(rng.standard_normal((300, 256))), _core.memory_stats()["in_use"]
    weight = tc.tensor(rng.standard_normal((512, 256)))
    _core.linear(x, weight)
    kept = _core.memory_stats()["in_use"]
    assert kept - held >= 2 * weight.numel() * 8
    for _ in range(3):
        weight.fill_(1.0)
        _core.linear(x, weight)
    assert _core.memory_stats()["in_use"] <= kept
    del weight
    assert _core.memory_stats()["in_use"] <= held
    trained = tc.tensor(rng.standard_normal((512, 256)), requires_grad=True)
    before = _core.memory_stats()["in_use"]
    y = _core.linear(x, trained)
    del y
    assert _core.memory_stats()["in_use"] <= before


def test_arrays_may_change_between_calls(rng):
    x, weight = rng.standard_normal((300, 80)), rng.standard_normal((60, 80))
    for _ in range(2):
        assert_close(_core.linear(x, weight), R.linear(x, weight), "float64", k=80)
        assert_close(_core.linear(tc.as_tensor(x), tc.as_tensor(weight)).numpy(), R.linear(x, weight), "float64", k=80)
        weight *= 3


def test_packed_weights_from_many_threads(rng):
    import threading

    x, weight = tc.tensor(rng.standard_normal((200, 64))), tc.tensor(rng.standard_normal((96, 64)))
    expected, wrong = R.linear(x.numpy(), weight.numpy()), []

    def work():
        with tc.no_grad():
            for _ in range(30):
                if not np.allclose(_core.linear(x, weight).numpy(), expected, atol=1e-10):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- with dropout ---------------------------------------------------------------------------------------------------

# Results of whole groups of random words, of parts of one, of a group and a part; of none; the last is several items.
DROPPED = [(0, 3, 4), (1, 1, 1), (5, 7, 3), (7, 5, 64), (6, 9, 33), (67, 40, 70), (260, 20, 130)]
P, SEED, CALL = 0.3, 2**64 - 1, 3


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", DROPPED, ids=str)
def test_dropout_has_the_bits_of_the_ops_one_by_one(isa, shape, dtype, with_residual, rng):
    """A result of halves is rounded once: it is that of float32, rounded."""
    is_half = dtype in ("float16", "bfloat16")
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    arrays = operands(rng, *shape, dtype)[: 3 + with_residual]
    dy = rng.standard_normal((shape[0], shape[2])).astype(dtype)
    kept = multiplier(dy.shape, P, SEED, CALL)
    for activation in ACTIVATIONS:

        def at_once(x, w, b, r=None, activation=activation):
            return _core.linear(x, w, b, activation, r, dropout=P, seed=SEED, call=CALL)

        def apart(x, w, b, r=None, activation=activation):
            y = _core.dropout(_core.linear(x, w, b, activation), P, SEED, CALL)
            return y if r is None else y + r

        one, other = with_gradients(at_once, arrays, dy), with_gradients(apart, arrays, dy)
        if is_half:
            other[0] = apart(*(a.astype(np.float32) for a in arrays)).astype(dtype)
        for name, a, b in zip(("y", "dx", "dweight", "dbias", "dresidual"), one, other, strict=False):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (activation, name)
        assert at_once(*arrays).tobytes() == one[0].tobytes()  # nothing is saved
        x, weight, bias, *residual = arrays
        scale = magnitude(*arrays) / (1 - P)
        assert_close(one[0], R.linear(*arrays[:3], activation, *residual, multiplier=kept), dtype, shape[1], scale=scale, name=activation)
        y, pre = _core.linear_forward(x, weight, bias, activation, *residual, dropout=P, seed=SEED, call=CALL)
        assert y.tobytes() == one[0].tobytes()
        given = y if activation == "relu" and not residual and not is_half else pre
        for got, wanted in zip(
            _core.linear_backward(dy, x, weight, given, activation, dropout=P, seed=SEED, call=CALL), one[1:4], strict=True
        ):
            assert got.tobytes() == wanted.tobytes()
        expected = R.linear_backward(dy, x, weight, bias, activation, multiplier=kept)
        for name, got, wanted in zip(("dx", "dweight", "dbias"), one[1:], expected, strict=False):
            size = 1e-30 + np.abs(wanted).max(initial=0)
            assert_close(got, wanted, dtype, gradient=True, scale=size / (1 - P) * (4 if is_half else 1), name=name)


@pytest.mark.parametrize("wanted", range(4))
def test_dropout_and_one_gradient_alone(wanted, rng):
    """That of a residual is dy, whatever is dropped."""
    arrays, dy = [rng.standard_normal(s) for s in [(6, 5), (40, 5), (40,), (6, 40)]], rng.standard_normal((6, 40))
    tensors = [tc.tensor(a, requires_grad=i == wanted) for i, a in enumerate(arrays)]
    _core.linear(*tensors[:3], "gelu", tensors[3], dropout=0.4, seed=1, call=2).backward(tc.tensor(dy))
    expected = R.linear_backward(dy, *arrays[:3], "gelu", arrays[3], multiplier((6, 40), 0.4, 1, 2))[wanted]
    assert_close(tensors[wanted].grad.numpy(), expected, "float64", gradient=True)
    assert all(t.grad is None for i, t in enumerate(tensors) if i != wanted)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_ends_of_dropout(isa, dtype, rng):
    """0 keeps all, 1 nothing; what is dropped may be NaN or infinite, and so may its gradient."""
    x, weight, bias, residual = operands(rng, 5, 8, 40, dtype)
    dy = residual[::-1].copy()
    for activation in ACTIVATIONS:
        plain = _core.linear_forward(x, weight, bias, activation, residual)
        for got, wanted in zip(_core.linear_forward(x, weight, bias, activation, residual, dropout=0, seed=1, call=2), plain, strict=True):
            assert (got is wanted is None) or got.tobytes() == wanted.tobytes()
        bad = bias.copy()
        bad[::2], bad[1::4] = np.nan, np.inf
        y = _core.linear(x, weight, bad, activation, residual, dropout=1.0, seed=256857, call=0)
        assert y.tobytes() == (residual + np.zeros((), dtype)).tobytes()
        assert not _core.linear(x, weight, bad, activation, dropout=1.0, seed=256857, call=0).any()
        for gradient in with_gradients(
            lambda *t, activation=activation: _core.linear(*t, activation, dropout=1.0, seed=1, call=0), (x, weight, bias), dy * np.inf
        )[1:]:
            assert not gradient.any()
        kept = multiplier(dy.shape, 0.5, 1, 2) != 0
        clean = _core.linear_forward(x, weight, bias, activation, residual, dropout=0.5, seed=1, call=2)[0]
        some = _core.linear(x * np.inf, weight, bias, activation, residual, dropout=0.5, seed=1, call=2)
        assert some[~kept].tobytes() == clean[~kept].tobytes() and not np.isfinite(some[kept & (residual > -9)]).all()


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_probabilities_that_are_refused(p):
    x, weight = np.ones((2, 3)), np.ones((5, 3))
    for call in (
        lambda: _core.linear(x, weight, dropout=p, seed=1, call=2),
        lambda: _core.linear_forward(x, weight, dropout=p, seed=1, call=2),
        lambda: _core.linear_backward(np.ones((2, 5)), x, weight, dropout=p, seed=1, call=2),
    ):
        with pytest.raises(ValueError, match="dropout probability p must be between 0 and 1"):
            call()


def test_dropout_for_any_threads(isa, threads):
    arrays = operands(np.random.default_rng(4), 900, 20, 130, "float32")

    def run():
        call = lambda *t: _core.linear(*t[:3], "gelu", t[3], dropout=0.2, seed=7, call=8)
        return with_gradients(call, arrays, arrays[3][::-1].copy())

    many = run()
    _core.set_num_threads(1)
    for a, b in zip(many, run(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("shape", [(6, 7), (6, 64), (12, 3, 43)], ids=str)
def test_dropout_of_a_shared_batch(shape, size, isa):
    """Rows of the batch that ranks share are dropped as in the whole batch, and so are their gradients."""
    rng = np.random.default_rng(4)
    x, dy, weight = (rng.standard_normal(s).astype(np.float32) for s in ((*shape[:-1], 5), shape, (shape[-1], 5)))
    call = lambda x, w, r: _core.linear(x, w, None, "relu", r, dropout=0.4, seed=11, call=3)
    run = lambda rows: with_gradients(call, (x[rows], weight, dy[rows]), dy[rows])
    numbers, whole = np.arange(shape[0]).reshape(6, -1), run(slice(None))
    for rank in range(size):
        own = numbers[rank::size].reshape(-1)
        before = _core.exchange_batch_share(6 // size, rank, size)
        try:
            part = run(own)
        finally:
            _core.exchange_batch_share(*before)
        for i in (0, 1, 3):
            assert part[i].tobytes() == whole[i][own].tobytes(), rank
        if rank:
            assert part[0].tobytes() != run(own)[0].tobytes()


@pytest.mark.parametrize("lengths", [None, [130, 5, 465]])
def test_out_of_memory_with_dropout_leaves_no_trace(rng, lengths):
    x, weight, bias, residual = operands(rng, 600, 20, 30, "float32")
    options = {"dropout": 0.3, "seed": 1, "call": 2, "sequence_lengths": lengths}
    expected, failures = _core.linear(x, weight, bias, "gelu", residual, **options), 0
    for n in range(1, 40):
        _core.memory_fail_after(n)
        try:
            _, pre = _core.linear_forward(x, weight, bias, "gelu", residual, **options)
            _core.linear_backward(residual, x, weight, pre, "gelu", **options)
        except MemoryError:
            failures += 1
        finally:
            _core.memory_fail_after(0)
    assert failures >= 6
    np.testing.assert_array_equal(_core.linear(x, weight, bias, "gelu", residual, **options), expected)


# ---- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(x=np.ones((2, 4))), ValueError, r"x has 4 features but weight takes 3.*\(2, 4\).*\(5, 3\)"),
        (dict(x=np.float64(1)), ValueError, "x has no axes"),
        (dict(weight=np.ones(3)), ValueError, r"weight has shape \(3,\); expected two axes"),
        (dict(bias=np.ones(4)), ValueError, r"bias has shape \(4,\).*expected \(5,\)"),
        (dict(bias=np.ones((1, 5))), ValueError, "bias has shape"),
        (dict(residual=np.ones((2, 4))), ValueError, "residual has shape"),
        (dict(residual=np.ones(5)), ValueError, "residual has shape"),
        (dict(weight=np.ones((5, 3), np.float32)), TypeError, "float64.*float32"),
        (dict(x=np.ones((2, 3), np.int64)), TypeError, "x is int64"),
        (dict(activation="swish"), ValueError, "activation is 'swish'; expected None, 'relu', 'gelu' or 'gelu_tanh'"),
    ],
)
def test_bad_input(arguments, error, message):
    good = dict(x=np.ones((2, 3)), weight=np.ones((5, 3)), bias=np.ones(5), residual=np.ones((2, 5)))
    with pytest.raises(error, match=message):
        _core.linear(**{**good, **arguments})


def test_bad_input_of_the_backward():
    x, weight = np.ones((2, 3)), np.ones((5, 3))
    with pytest.raises(ValueError, match=r"dy has shape \(2, 4\)"):
        _core.linear_backward(np.ones((2, 4)), x, weight)
    with pytest.raises(ValueError, match="pre is None"):
        _core.linear_backward(np.ones((2, 5)), x, weight, None, "gelu")
    with pytest.raises(ValueError, match="pre has shape"):
        _core.linear_backward(np.ones((2, 5)), x, weight, np.ones((2, 4)), "gelu")


@pytest.mark.parametrize("lengths", [None, [130, 5, 465]])
def test_out_of_memory_is_an_error_and_leaves_no_trace(rng, lengths):
    x, weight, bias, residual = operands(rng, 600, 520, 530, "float32")
    expected = _core.linear(x, weight, bias, "gelu", residual, sequence_lengths=lengths)
    failures = 0
    for n in range(1, 60):
        _core.memory_fail_after(n)
        try:
            _, pre = _core.linear_forward(x, weight, bias, "gelu", residual, sequence_lengths=lengths)
            _core.linear_backward(residual, x, weight, pre, "gelu", sequence_lengths=lengths)
        except MemoryError:
            failures += 1
        finally:
            _core.memory_fail_after(0)
    assert failures >= 6
    np.testing.assert_array_equal(_core.linear(x, weight, bias, "gelu", residual, sequence_lengths=lengths), expected)


@pytest.mark.parametrize("rows", [19200, 18000, 9999])
def test_weight_gradient_of_many_rows(rows):
    """The rows are summed in chunks, the last of them shorter: its blocks must not exceed the scratch that the others need."""
    layer = tc.nn.Linear(32, 64)
    x = np.random.default_rng(1).standard_normal((rows, 32)).astype(np.float32)
    layer(tc.tensor(x)).sum().backward()  # an expanded gradient, so that its blocks are copied
    expected = np.broadcast_to(x.sum(0, dtype=np.float64), (64, 32))
    np.testing.assert_allclose(layer.weight.grad.numpy(), expected, atol=1e-5 * rows**0.5 * 4)
    np.testing.assert_allclose(layer.bias.grad.numpy(), rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 300, 5000, 30_001])
def test_gradients_of_one_feature(isa, dtype, rows, rng):
    """A product of a row and a column, whose sums over many rows are split."""
    x, dy = rng.standard_normal((2, rows, 1)).astype(dtype)
    dx, dweight, dbias = _core.linear_backward(dy, x, np.full((1, 1), 3, dtype))
    assert_close(dx, 3 * dy, dtype)
    assert_close(dweight, dy.T.astype(np.float64) @ x, dtype, rows, scale=np.abs(dy.T) @ np.abs(x))
    assert_close(dbias, dy.sum(0, dtype=np.float64), dtype, rows, scale=np.abs(dy).sum(0))


@pytest.mark.unsanitized  # 16 GFLOP, by kernels that the tests before it run
@pytest.mark.parametrize("turned", [False, True])
def test_bias_gradient_of_many_equal_rows(turned, isa):
    """100,000 times 0.1, added one after the other, has an error of 1.4e-4."""
    rows, features = 100_000, 200
    row = tc.full((1, features), 0.1)
    dy = row.expand(rows, features) if not turned else tc.full((features, 1), 0.1).expand(features, rows).T
    x = tc.ones(1, features).expand(rows, features)
    _, dweight, dbias = _core.linear_backward(dy, x, tc.ones(features, features))
    exact = rows * float(np.float32(0.1))
    np.testing.assert_allclose(dbias.numpy(), exact, rtol=2e-5)
    np.testing.assert_allclose(dweight.numpy(), exact, rtol=2e-5)
