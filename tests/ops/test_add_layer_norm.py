"""Layer normalisation, of x, of x + residual and of what dropout keeps of x + residual, forward and backward, on every instruction set."""

import numpy as np
import pytest
import transformer_c as tc
from dropped import multiplier, with_gradients
from golden import load
from tolerance import assert_close
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.testing import reference as R

# rows and features: nothing, one, primes, around the widths, several chunks of rows; short rows of whole vectors, and blocks of rows
SHAPES = [(0, 4), (1, 1), (3, 2), (5, 7), (2, 15), (7, 16), (4, 17), (67, 31), (130, 33), (3, 257), (2, 1031)]
SHAPES += [(n, c) for n in (1, 6, 9, 48, 67) for c in (32, 64, 128)]


def operands(rng, shape, dtype):
    return [(3 * rng.standard_normal(s) + 1).astype(dtype) for s in (shape, shape, shape[-1], shape[-1], shape)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(isa, shape, dtype, rng):
    x, residual, gamma, beta, dy = operands(rng, shape, dtype)
    C = shape[-1]
    for g, b in ((gamma, beta), (gamma, None), (None, None)):
        expected = R.add_layer_norm(x, residual, g, b)
        scale = 1 + np.abs(R.f64(x)).max(initial=0)  # a row of one or two features has a variance near 0
        y, total, mean, rstd = _core.add_layer_norm_forward(x, residual, g, b)
        np.testing.assert_array_equal(total, x + residual)
        assert_close(mean, expected[2], dtype, C, scale=scale, name="mean")
        plain = _core.layer_norm_forward(total, g, b)
        for a, p in zip((y, mean, rstd), plain, strict=True):
            np.testing.assert_array_equal(a, p)
        expected = R.layer_norm(total, g, b)
        for name, got, wanted in zip(("y", "mean", "rstd"), plain, expected, strict=True):
            assert_close(got, wanted, dtype, 4 * C, scale=scale * (np.abs(wanted).max(initial=0) + 1), name=name)
        dx, dresidual, dgamma, dbeta = _core.add_layer_norm_backward(dy, total, g, mean, rstd)
        np.testing.assert_array_equal(dx, dresidual)
        wanted = R.layer_norm_backward(dy, total, np.ones(C) if g is None else g, np.zeros(C))
        for name, got, want in zip(("dx", "dgamma", "dbeta"), (dx, dgamma, dbeta), wanted, strict=True):
            size = np.abs(dy).max(initial=0) * (1 + np.abs(R.f64(gamma)).max(initial=0)) * (1 + np.abs(rstd).max(initial=0))
            assert_close(got, want, dtype, gradient=True, scale=max(size, np.abs(want).max(initial=0)), name=name)


@pytest.mark.parametrize("shape", [(37, 16), (37, 32), (21, 40), (37, 64), (37, 128), (5, 700)], ids=str)
def test_a_row_does_not_depend_on_its_neighbours(isa, shape, rng):
    """Rows are taken together: each has the bits that it has alone, NaN and infinities stay where they are, and nothing is read of others."""
    x, _, gamma, beta, dy = operands(rng, shape, "float32")
    x[3], x[17 % len(x)] = np.inf, np.nan
    together = _core.layer_norm_forward(x, gamma, beta)
    dx = _core.layer_norm_backward(dy, x, gamma, *together[1:])[0]
    for n in range(len(x)):
        alone = _core.layer_norm_forward(x[n : n + 1], gamma, beta)
        assert all(a[0].tobytes() == t[n].tobytes() for a, t in zip(alone, together, strict=True)), n
        assert _core.layer_norm_backward(dy[n : n + 1], x[n : n + 1], gamma, *alone[1:])[0].tobytes() == dx[n].tobytes(), n
    finite = np.isfinite(x).all(1)
    assert np.isfinite(together[0][finite]).all() and np.isfinite(dx[finite]).all() and np.isnan(together[0][~finite]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_recorded(isa, dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, residual, gamma, beta, dy = operands(rng, (6, 5, 40), dtype)
    tensors = [tc.tensor(a, requires_grad=True) for a in (x, residual, gamma, beta)]
    y = _core.add_layer_norm(tensors[0], tensors[1], 40, tensors[2], tensors[3], eps=1e-3)
    assert_close(y.numpy(), R.add_layer_norm(x, residual, gamma, beta, 1e-3)[0], dtype, 40)
    y.backward(tc.tensor(dy))
    expected = R.add_layer_norm_backward(dy, x, residual, gamma, beta, 1e-3)
    for name, tensor, wanted in zip(("dx", "dresidual", "dgamma", "dbeta"), tensors, expected, strict=True):
        assert_close(tensor.grad.numpy(), wanted, dtype, gradient=True, name=name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_without_a_record(isa, threads, dtype, rng):
    """Sums that nobody reads later are written where the result will be: it has the same bits, and the operands keep theirs."""
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for shape in [*SHAPES, (600, 96)]:
        arrays = operands(rng, shape, dtype)[:4]
        tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
        recorded = _core.add_layer_norm(tensors[0], tensors[1], shape[-1], tensors[2], tensors[3])
        with tc.no_grad():
            plain = _core.add_layer_norm(tensors[0], tensors[1], shape[-1], tensors[2], tensors[3])
            twice = _core.add_layer_norm(tensors[0], tensors[0], shape[-1])
        assert recorded.requires_grad and not plain.requires_grad
        assert plain.numpy().tobytes() == recorded.numpy().tobytes(), shape
        assert twice.numpy().tobytes() == _core.add_layer_norm(tensors[0], tensors[0], shape[-1]).numpy().tobytes(), shape
        for tensor, array in zip(tensors, arrays, strict=True):
            assert tensor.numpy().tobytes() == array.tobytes(), shape


def test_memory_without_a_record():
    """The result, and two statistics of each row, which the next one takes over; halves are added up in float32."""
    N, C = 512, 256
    for dtype, size, sums in (("float32", 4, False), ("float64", 8, False), ("float16", 2, True)):
        x = tc.tensor(np.ones((N, C), dtype))
        _core.memory_reset_peak()
        before = _core.memory_stats()["in_use"]
        y = _core.add_layer_norm(x, x, C)
        used = _core.memory_stats()["peak_in_use"] - before - y.numel() * size - sums * 4 * N * C
        assert abs(used) < 128 << 10, dtype  # the peak may miss 64 KiB


def test_each_gradient_alone_and_one_tensor_twice(rng):
    x, residual, gamma, beta, dy = operands(rng, (4, 9), "float64")
    expected = R.add_layer_norm_backward(dy, x, residual, gamma, beta)
    for i in range(4):
        tensors = [tc.tensor(a, requires_grad=i == j) for j, a in enumerate((x, residual, gamma, beta))]
        _core.add_layer_norm(tensors[0], tensors[1], (9,), tensors[2], tensors[3]).backward(tc.tensor(dy))
        assert_close(tensors[i].grad.numpy(), expected[i], "float64", gradient=True)
    t = tc.tensor(x, requires_grad=True)
    _core.add_layer_norm(t, t, 9).backward(tc.tensor(dy))
    assert_close(t.grad.numpy(), 2 * R.add_layer_norm_backward(dy, x, x)[0], "float64", gradient=True)


def test_several_axes_and_strides(isa, rng):
    base = rng.standard_normal((4, 6, 5, 8))
    gamma, beta = rng.standard_normal((5, 8)), rng.standard_normal((5, 8))
    for x in (base, base[::-1, ::2], base.astype(">f8"), base.swapaxes(0, 1), np.broadcast_to(base[0, 0], (3, 5, 8))):
        residual = np.asarray(x)[..., ::-1, :]
        y = _core.add_layer_norm(x, residual, (5, 8), gamma, beta)
        total = R.f64(x) + R.f64(residual)
        assert_close(y, R.layer_norm(total, gamma, beta, normalized_ndim=2)[0], "float64")


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_infinity_stay_in_their_rows(isa, rng):
    x, residual, gamma, beta, _ = operands(rng, (5, 40), "float32")
    x[1, 3], residual[3, 39] = np.nan, np.inf
    y = _core.add_layer_norm(x, residual, 40, gamma, beta)
    assert np.isnan(y[[1, 3]]).all()
    assert_close(y[[0, 2, 4]], R.add_layer_norm(x, residual, gamma, beta)[0][[0, 2, 4]], "float32", 40)


def test_same_bits_for_any_threads(isa, threads):
    x, residual, gamma, beta, dy = operands(np.random.default_rng(4), (900, 130), "float32")

    def run():
        y, total, mean, rstd = _core.add_layer_norm_forward(x, residual, gamma, beta)
        return y, total, mean, rstd, *_core.add_layer_norm_backward(dy, total, gamma, mean, rstd)

    many = run()
    _core.set_num_threads(1)
    for a, b in zip(many, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_golden_layer_norm():
    cases = {name: case for name, case in load("functions").items() if case[0].get("function") == "layer_norm"}
    assert cases
    for name, (options, arrays) in cases.items():
        for dtype in ("float32", "float64"):
            given = {k: tc.tensor(arrays[k].astype(dtype), requires_grad=True) for k in ("x", "gamma", "beta") if k in arrays}
            y = _core.layer_norm(given["x"], 17, given.get("gamma"), given.get("beta"), options["eps"])
            assert_close(y.numpy(), arrays["f64.y"], dtype, 17, name=name)
            y.backward(tc.tensor(arrays["dy"].astype(dtype)))
            for k, t in given.items():
                assert_close(t.grad.numpy(), arrays["f64.d" + k], dtype, gradient=True, name=f"{name} d{k}")


# ---- with dropout ------------------------------------------------------------------------------------------------------------------

# Rows of whole groups of random words, of parts of one, and of one and a part: several share a block of 8 KiB, or one takes several.
DROPPED = [(0, 4), (1, 1), (5, 7), (7, 16), (67, 31), (2048, 32), (130, 33), (5, 64), (4, 96), (3, 257), (3, 4100)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", DROPPED, ids=str)
def test_dropout_has_the_bits_of_the_op_before_it(isa, shape, dtype, rng):
    """A gradient of halves through the mask is rounded once, where the two ops round it twice."""
    is_half = dtype in ("float16", "bfloat16")
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    *arrays, dy = operands(rng, shape, dtype)
    key, C = (0.3, 2**64 - 1, 3), shape[-1]
    options = dict(zip(("dropout", "seed", "call"), key, strict=True))
    at_once = with_gradients(lambda x, r, g, b: _core.add_layer_norm(x, r, C, g, b, **options), arrays, dy)
    apart = with_gradients(lambda x, r, g, b: _core.add_layer_norm(_core.dropout(x, *key), r, C, g, b), arrays, dy)
    for name, one, other in zip(("y", "dx", "dresidual", "dgamma", "dbeta"), at_once, apart, strict=True):
        if is_half and name == "dx":
            assert_close(one, R.f64(other), dtype, gradient=True, scale=1 + np.abs(R.f64(other)).max(initial=0), name=name)
        else:
            assert one.tobytes() == other.tobytes(), name
    with tc.no_grad():
        assert _core.add_layer_norm(*arrays[:2], C, *arrays[2:], **options).tobytes() == at_once[0].tobytes()
    if C > 1 and not is_half:
        scale = multiplier(shape, *key)
        x, residual, gamma, beta = arrays
        sums = 1 + np.abs(R.f64(x)).max(initial=0)
        assert_close(at_once[0], R.add_layer_norm(x, residual, gamma, beta, multiplier=scale)[0], dtype, 40 * C, scale=10 * sums, name="y")
        expected = R.add_layer_norm_backward(dy, x, residual, gamma, beta, multiplier=scale)
        size = 1 + np.abs(R.layer_norm(R.f64(x) * scale + R.f64(residual))[2]).max(initial=0)
        for name, got, wanted in zip(("dx", "dresidual", "dgamma", "dbeta"), at_once[1:], expected, strict=True):
            assert_close(got, wanted, dtype, C, gradient=True, scale=10 * size * (1 + np.abs(wanted).max(initial=0)), name=name)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dropout_and_each_gradient_alone(isa, dtype, rng):
    *arrays, dy = operands(rng, (6, 40), dtype)
    options = {"dropout": 0.4, "seed": 1, "call": 2}
    whole = with_gradients(lambda *t: _core.add_layer_norm(*t[:2], 40, *t[2:], **options), arrays, dy)[1:]
    for wanted in ({0}, {1}, {2}, {0, 1}, {0, 3}):
        tensors = [tc.tensor(a, requires_grad=i in wanted) for i, a in enumerate(arrays)]
        _core.add_layer_norm(*tensors[:2], 40, *tensors[2:], **options).backward(tc.tensor(dy))
        for i, tensor in enumerate(tensors):
            assert tensor.grad is None if i not in wanted else tensor.grad.numpy().tobytes() == whole[i].tobytes(), (wanted, i)
    for weights in ((None, None), (arrays[2], None)):
        _, total, mean, rstd = _core.add_layer_norm_forward(*arrays[:2], *weights, **options)
        dx, dresidual = _core.add_layer_norm_backward(dy, total, weights[0], mean, rstd, **options)[:2]
        same = _core.add_layer_norm_backward(dy, total, weights[0], mean, rstd)
        assert same[0].tobytes() == same[1].tobytes() == dresidual.tobytes()
        kept = multiplier((6, 40), 0.4, 1, 2) != 0
        assert not dx[~kept].any() and dx[kept].any()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_ends_of_dropout(isa, rng):
    """0 keeps all, 1 nothing; what is dropped may be NaN or infinite."""
    x, residual, gamma, beta, dy = operands(rng, (5, 40), "float32")
    plain = _core.add_layer_norm_forward(x, residual, gamma, beta)
    for got, wanted in zip(_core.add_layer_norm_forward(x, residual, gamma, beta, dropout=0, seed=1, call=2), plain, strict=True):
        assert got.tobytes() == wanted.tobytes()
    bad = np.broadcast_to(np.where(np.arange(40) % 2, np.nan, np.inf).astype("float32"), x.shape)
    y, total, mean, rstd = _core.add_layer_norm_forward(bad, residual, gamma, beta, dropout=1.0, seed=256857, call=0)
    assert total.tobytes() == residual.tobytes() and y.tobytes() == _core.layer_norm(residual, 40, gamma, beta).tobytes()
    dx, dresidual, *_ = _core.add_layer_norm_backward(dy, total, gamma, mean, rstd, dropout=1.0, seed=256857, call=0)
    assert not dx.any() and dresidual.any()
    kept = multiplier(x.shape, 0.5, 1, 2) != 0
    some = _core.add_layer_norm_forward(np.where(kept, x, np.nan), residual, dropout=0.5, seed=1, call=2)[0]
    assert some.tobytes() == _core.add_layer_norm_forward(x, residual, dropout=0.5, seed=1, call=2)[0].tobytes()
    for p in (-0.1, 1.1, np.nan):
        for call in (
            lambda p=p: _core.add_layer_norm(x, residual, 40, dropout=p, seed=1, call=2),
            lambda p=p: _core.add_layer_norm_backward(dy, total, gamma, mean, rstd, dropout=p, seed=1, call=2),
            lambda p=p: F.add_layer_norm(x, residual, 40, dropout_p=p),
        ):
            with pytest.raises(ValueError, match="must be between 0 and 1"):
                call()


def test_dropout_for_any_threads(isa, threads):
    arrays = operands(np.random.default_rng(4), (900, 130), "float32")

    def run():
        return with_gradients(lambda *t: _core.add_layer_norm(*t[:2], 130, *t[2:], dropout=0.2, seed=7, call=8), arrays[:4], arrays[4])

    many = run()
    _core.set_num_threads(1)
    for a, b in zip(many, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dropout_draws_as_the_function_does(rng):
    """The mask, and what comes next of the generator, are those of ``dropout``; without dropout nothing is drawn."""
    x, residual, gamma, beta, _ = operands(rng, (5, 40), "float32")
    one, other = tc.Generator(3), tc.Generator(3)
    for p in (0.3, 0.0, 1.0, 1):
        at_once = F.add_layer_norm(x, residual, 40, gamma, beta, dropout_p=p, rng=one)
        apart = F.add_layer_norm(F.dropout(x, p, rng=other), residual, 40, gamma, beta)
        assert at_once.tobytes() == apart.tobytes() and one.get_state() == other.get_state()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("shape", [(6, 7), (6, 64), (12, 3, 43)], ids=str)
def test_dropout_of_a_shared_batch(shape, size, isa):
    """Rows of the batch that ranks share are dropped as in the whole batch, unless they are normalised together."""
    arrays = operands(np.random.default_rng(4), shape, "float32")

    def run(rows, axes=shape[-1:]):
        parts = [a[rows] if a.shape == shape else a for a in arrays]
        call = lambda *t: _core.add_layer_norm(*t[:2], axes, *t[2:], dropout=0.4, seed=11, call=3)
        return with_gradients(call, parts[:4], parts[4])[:3]

    numbers, whole = np.arange(shape[0]).reshape(6, -1), run(slice(None))
    for rank in range(size):
        own = numbers[rank::size].reshape(-1)
        before = _core.exchange_batch_share(6 // size, rank, size)
        try:
            part = run(own)
            together = _core.add_layer_norm(arrays[0][own], arrays[1][own], (len(own), *shape[1:]), dropout=0.4, seed=11, call=3)
        finally:
            _core.exchange_batch_share(*before)
        for got, wanted in zip(part, whole, strict=True):
            assert got.tobytes() == wanted[own].tobytes(), rank
        alone = _core.add_layer_norm(arrays[0][own], arrays[1][own], (len(own), *shape[1:]), dropout=0.4, seed=11, call=3)
        assert together.tobytes() == alone.tobytes()


def test_errors():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"residual has shape \(3,\) but x has \(2, 3\)"):
        _core.add_layer_norm(x, x[0], 3)
    with pytest.raises(TypeError, match="x is float32 but residual is float64"):
        _core.add_layer_norm(x, x.astype(np.float64), 3)
    with pytest.raises(TypeError, match="x is int64"):
        _core.add_layer_norm(np.ones((2, 3), np.int64), x, 3)
    with pytest.raises(ValueError, match=r"normalized_shape is \(2,\), but x has shape \(2, 3\)"):
        _core.add_layer_norm(x, x, 2)
    with pytest.raises(ValueError, match=r"weight \(gamma\) has shape \(2,\)"):
        _core.add_layer_norm_forward(x, x, np.ones(2, np.float32))


def test_squares_that_overflow_give_nan(isa):
    """Zeros would hide that a model has diverged."""
    for dtype, large in (("float32", 1e20), ("float64", 1e200)):
        x = tc.tensor(np.array([[1, 2, 3], [large, 2 * large, 3 * large]], dtype), requires_grad=True)
        y = F.layer_norm(x, 3)
        y.sum().backward()
        for result in (np.asarray(y.detach()), np.asarray(x.grad)):
            assert np.isfinite(result[0]).all() and np.isnan(result[1]).all()
