"""Layer norm, sums of partials and the library's interface on the emulated GPU, against the float64 reference.

Here as in the other test_cuda files the cases are small, and the sanitizer flavours run them again.
"""

import ctypes

import cuda_library
import emulation
import numpy as np
import pytest
import transformer_c as tc
from cuda_library import TYPES, CudaError, compute_dtype, fill, normal, small
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference

# ---- layer norm ----


def layer_norm_forward(cuda, x, gamma, beta, eps=1e-5):
    (N, C), saved = x.shape, compute_dtype(x.dtype)
    y, mean, rstd = cuda.empty((N, C), x.dtype), cuda.empty((N,), saved), cuda.empty((N,), saved)
    weights = {"gamma": cuda.array(gamma), "beta": cuda.array(beta)}
    cuda.run("layer_norm_forward", x.dtype, N, y=y, mean=mean, rstd=rstd, x=cuda.array(x), **weights, C=C, eps=eps)
    return y.numpy(), mean.numpy(), rstd.numpy()


def layer_norm_backward(cuda, dy, x, gamma, mean, rstd, rows_per_chunk):
    (N, C), saved = x.shape, compute_dtype(x.dtype)
    chunks = -(-N // rows_per_chunk)
    dx = cuda.empty((N, C), x.dtype)
    partials = [cuda.empty((chunks, C), saved) for _ in range(2)]
    arrays = {"dy": cuda.array(dy), "x": cuda.array(x), "gamma": cuda.array(gamma), "mean": cuda.array(mean), "rstd": cuda.array(rstd)}
    sizes = {"N": N, "C": C, "rows_per_chunk": rows_per_chunk}
    cuda.run("layer_norm_backward", x.dtype, chunks, dx=dx, dgamma_partial=partials[0], dbeta_partial=partials[1], **arrays, **sizes)
    sums = [cuda.empty((C,), x.dtype) for _ in range(2)]
    for out, partial in zip(sums, partials, strict=True):
        cuda.run("sum_partials", x.dtype, -(-C // 64), out=out, partial=partial, chunks=chunks, C=C)
    return dx.numpy(), sums[0].numpy(), sums[1].numpy()


# rows and columns: nothing, one element, odd, vectors, around some lanes, one warp and one block per row, and longer than what they keep
LAYER_NORM_SHAPES = [(0, 4), (1, 1), small((5, 3)), small((9, 32)), (37, 64), (2, 257), (3, 1024), small((2, 1032)), (2, 1031), (1, 2051)]
LAYER_NORM_SHAPES += [(2, 8200)]


@pytest.mark.parametrize("shape", LAYER_NORM_SHAPES, ids=str)
def test_layer_norm(cuda, rng, shape, dtype, schedule):
    N, C = shape
    x = (normal(rng, shape, np.float64) * 3 + 1).astype(dtype)
    dy, gamma, beta = normal(rng, shape, dtype), normal(rng, C, dtype), normal(rng, C, dtype)
    y, mean, rstd = layer_norm_forward(cuda, x, gamma, beta)
    expected = reference.layer_norm(x, gamma, beta)
    saved = compute_dtype(dtype)
    for name, actual, wanted, kind in zip(["y", "mean", "rstd"], [y, mean, rstd], expected, [dtype, saved, saved], strict=True):
        assert_close(actual, wanted, kind, k=C, name=name)
    gradients = layer_norm_backward(cuda, dy, x, gamma, mean, rstd, rows_per_chunk=4)
    for name, actual, wanted in zip(["dx", "dgamma", "dbeta"], gradients, reference.layer_norm_backward(dy, x, gamma, beta), strict=True):
        assert_close(actual, wanted, dtype, k=max(N, C), gradient=True, name=name)


@pytest.mark.parametrize("shape", [(5, 3), (2, 32), (2, 1032)], ids=str)
def test_layer_norm_without_weights(cuda, rng, shape):
    x, dy = normal(rng, shape, np.float32), normal(rng, shape, np.float32)
    y, mean, rstd = layer_norm_forward(cuda, x, None, None)
    assert_close(y, reference.layer_norm(x)[0], np.float32, k=shape[1])
    dx = layer_norm_backward(cuda, dy, x, None, mean, rstd, rows_per_chunk=2)[0]
    assert_close(dx, reference.layer_norm_backward(dy, x)[0], np.float32, gradient=True)


@pytest.mark.parametrize("rows_per_chunk, C", [(3, 16), (70, 24), (11, 512), (3, 1040)])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_gradients_of_a_norm_at_once_are_those_of_two_launches(cuda, rng, rows_per_chunk, C, kind):
    """In one launch each row is read once; dx alone, and the gradients of weights alone, have kernels of their own."""
    dtype, N = cuda_library.DTYPES[kind], 150 if C < 512 else 9
    x, dy, gamma = normal(rng, (N, C), dtype), normal(rng, (N, C), dtype), normal(rng, C, dtype)
    chunks, saved = -(-N // rows_per_chunk), compute_dtype(dtype)
    mean, rstd = (cuda.array(a) for a in (x.astype(saved).mean(1), 1 / x.astype(saved).std(1)))
    given = {"dy": cuda.array(dy), "x": cuda.array(x), "gamma": cuda.array(gamma), "mean": mean, "rstd": rstd, "N": N, "C": C}

    def run(dx, *partials):
        made = [cuda.empty((N, C), dtype) if dx else None, *(cuda.empty((chunks, C), saved) if wanted else None for wanted in partials)]
        names = ("dx", "dgamma_partial", "dbeta_partial")
        wanted = {name: array for name, array in zip(names, made, strict=True) if array}
        cuda.run("layer_norm_backward", dtype, chunks, **wanted, **given, rows_per_chunk=rows_per_chunk)
        return [array and array.numpy() for array in made]

    dx, *sums = run(True, True, True)
    np.testing.assert_array_equal(run(True, False, False)[0], dx)
    for one, other in zip(run(False, True, True)[1:], sums, strict=True):
        assert_close(other, one.astype(np.float64), np.float32, k=rows_per_chunk)
    np.testing.assert_array_equal(run(True, False, True)[2], sums[1])


@pytest.mark.parametrize("shape", [(5, 3), (2, 32), (2, 1032), (1, 8200)], ids=str)
def test_add_layer_norm(cuda, rng, shape, dtype):
    (N, C), saved = shape, compute_dtype(dtype)
    x, residual, gamma, beta = normal(rng, shape, dtype), normal(rng, shape, dtype), normal(rng, C, dtype), normal(rng, C, dtype)
    inputs = {name: cuda.array(a) for name, a in {"x": x, "residual": residual, "gamma": gamma, "beta": beta}.items()}
    y, total, mean, rstd = cuda.empty(shape, dtype), cuda.empty(shape, dtype), cuda.empty((N,), saved), cuda.empty((N,), saved)
    cuda.run("layer_norm_forward", dtype, N, y=y, sum=total, mean=mean, rstd=rstd, **inputs, C=C, eps=1e-5)
    assert_close(total.numpy(), x.astype(float) + residual.astype(float), dtype, name="sum")
    expected = reference.layer_norm(total.numpy(), gamma, beta)  # the sum as rounded for the backward is normalised
    for name, actual, wanted, kind in zip(["y", "mean", "rstd"], [y, mean, rstd], expected, [dtype, saved, saved], strict=True):
        assert_close(actual.numpy(), wanted, kind, k=C, name=name)


# ---- dropout -----------------------------------------------------------------------------------------------------------------------------

MASK = {"p": 0.3, "seed": 2**63 + 5, "call": 9}


def mask_of(row, first=0, step=1, **options):
    return fill("tc_mask", places=TYPES["tc_places"](row, first, step), **{**MASK, **options})


def multiplier(elements, p, seed, call):
    """Of these numbers of elements."""
    whole = _core.dropout_forward(np.ones(int(elements.max(initial=0)) + 1), p, seed, call)
    return whole[elements]


def numbers_of(n, row, first=0, step=1):
    """tc_place() of all elements."""
    i = np.arange(n)
    return (first + i // row * step) * row + i % row


def dropped(x, factors, compute):
    """What dropout makes of x, rounded to its dtype."""
    return np.where(factors != 0, x.astype(compute) * compute(factors.max(initial=1)), 0).astype(x.dtype)


# Elements, those of a row of the places, the first row and the step: whole groups of random words and rows, a part of a group at the end, groups that
# rows share, no whole vectors; of a batch that several share.
PLACES = [(4096, 4096, 0, 1), (1000, 1000, 0, 1), (1001, 1001, 0, 1), (8, 8, 0, 1), (640, 128, 3, 2), (640, 128, 1, 1), (96, 32, 0, 1)]
PLACES += [(160, 32, 1, 3), (70, 7, 2, 2), (40, 40, 0, 2)]


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("shifted", [False, True], ids=["aligned", "shifted"])
def test_dropout(cuda, rng, places, shifted, dtype, schedule):
    n, row, first, step = places
    compute, x = compute_dtype(dtype).type, normal(rng, n, dtype)
    given, y = cuda.array(np.concatenate([np.zeros(int(shifted), dtype), x])), cuda.empty((n,), dtype)
    cuda.run("dropout_forward", dtype, 0, y=y, x=given.pointer + shifted * y.dtype.itemsize, n=n, mask=mask_of(row, first, step))
    factors = multiplier(numbers_of(n, row, first, step), **MASK)
    np.testing.assert_array_equal(y.numpy(), dropped(x, factors, compute))


# rows and columns: no whole vectors; some lanes, a warp and a block for each row; rows that begin with a group of random words and others; longer
# than what is kept
DROPOUT_NORM_SHAPES = [small((5, 3)), small((9, 32)), (7, 64), small((5, 128)), (3, 96), (5, 768), (2, 1032), small((2, 1088)), (2, 8200)]


@pytest.mark.parametrize("shape", DROPOUT_NORM_SHAPES, ids=str)
@pytest.mark.parametrize("share", [(0, 1), (2, 3)], ids=["whole", "share"])
def test_add_layer_norm_with_dropout(cuda, rng, shape, share, dtype, schedule):
    """The same mask as that of the op alone, and its bits: what is kept is rounded before it is added."""
    (N, C), saved, compute = shape, compute_dtype(dtype), compute_dtype(dtype).type
    x, residual, gamma, beta = normal(rng, shape, dtype), normal(rng, shape, dtype), normal(rng, C, dtype), normal(rng, C, dtype)
    inputs = {name: cuda.array(a) for name, a in {"x": x, "residual": residual, "gamma": gamma, "beta": beta}.items()}
    y, total, mean, rstd = cuda.empty(shape, dtype), cuda.empty(shape, dtype), cuda.empty((N,), saved), cuda.empty((N,), saved)
    factors = multiplier(numbers_of(N * C, C, *share), **MASK).reshape(shape)
    cuda.run("layer_norm_forward", dtype, N, y=y, sum=total, mean=mean, rstd=rstd, **inputs, C=C, eps=1e-5, mask=mask_of(C, *share))
    kept = dropped(x, factors, compute)
    np.testing.assert_array_equal(total.numpy(), (kept.astype(compute) + residual.astype(compute)).astype(dtype))
    alone = cuda.empty(shape, dtype)
    cuda.run(
        "layer_norm_forward", dtype, N, y=alone, mean=mean, rstd=rstd, x=total, gamma=inputs["gamma"], beta=inputs["beta"], C=C, eps=1e-5
    )
    np.testing.assert_array_equal(y.numpy(), alone.numpy())
    assert_close(y.numpy(), reference.layer_norm(total.numpy(), gamma, beta)[0], dtype, k=C, name="y")
    cuda.run("layer_norm_forward", dtype, N, y=y, sum=y, mean=mean, rstd=rstd, **inputs, C=C, eps=1e-5, mask=mask_of(C, *share))
    np.testing.assert_array_equal(y.numpy(), alone.numpy())


@pytest.mark.parametrize("shape", DROPOUT_NORM_SHAPES, ids=str)
def test_gradients_of_add_layer_norm_with_dropout(cuda, rng, shape, dtype, schedule):
    """dx of the sum is that without dropout; through the mask it is that of the op alone, in halves rounded at most once less."""
    (N, C), saved = shape, compute_dtype(dtype)
    x, dy, gamma = normal(rng, shape, dtype), normal(rng, shape, dtype), normal(rng, C, dtype)
    _, mean, rstd = layer_norm_forward(cuda, x, gamma, None)
    given = {name: cuda.array(a) for name, a in {"x": x, "dy": dy, "gamma": gamma, "mean": mean, "rstd": rstd}.items()}
    factors, rows_per_chunk = multiplier(numbers_of(N * C, C), **MASK).reshape(shape), 4
    chunks = -(-N // rows_per_chunk)

    def run(dx=True, ddropped=True, weights=True, mask=True):
        made = {"dx": cuda.empty(shape, dtype) if dx else None, "ddropped": cuda.empty(shape, dtype) if ddropped else None}
        made |= {f"{name}_partial": cuda.empty((chunks, C), saved) if weights else None for name in ("dgamma", "dbeta")}
        options = {"mask": mask_of(C)} if mask else {}
        wanted = {name: array for name, array in made.items() if array}
        cuda.run("layer_norm_backward", dtype, chunks, **wanted, **given, N=N, C=C, rows_per_chunk=rows_per_chunk, **options)
        return [array and array.numpy() for array in made.values()]

    plain, whole = run(ddropped=False, mask=False), run()
    for i in (0, 2, 3):
        np.testing.assert_array_equal(whole[i], plain[i])
    exact = reference.layer_norm_backward(dy, x, gamma)[0] * factors
    assert_close(whole[1], exact, dtype, k=C, gradient=True, name="ddropped")
    if saved == dtype:
        np.testing.assert_array_equal(whole[1], dropped(whole[0], factors, saved.type))
    assert not whole[1][factors == 0].any()
    for options in ({"dx": False}, {"weights": False}, {"dx": False, "weights": False}):
        for got, wanted in zip(run(**options), whole, strict=True):
            if got is not None:
                assert_close(got, wanted.astype(np.float64), got.dtype, k=C, gradient=True)


def test_a_graph_draws_for_add_layer_norm(cuda, rng):
    """Its seed and number are those in the GPU's memory."""
    x, dy = normal(rng, (3, 128), np.float32), normal(rng, (3, 128), np.float32)
    results = []
    for seed, call, drawn in [(5, 9, None), (1, 2, [5, 7]), (1, 2, None)]:
        y, total, dx = (cuda.empty(x.shape, np.float32) for _ in range(3))
        mean, rstd, partial = cuda.empty((3,), np.float32), cuda.empty((3,), np.float32), cuda.empty((1, 128), np.float32)
        given = cuda.array(x)
        mask = mask_of(x.size, seed=seed, call=call, drawn=cuda.array(np.array(drawn, np.uint64)) if drawn else None)
        cuda.run(
            "layer_norm_forward", np.float32, 3, y=y, sum=total, mean=mean, rstd=rstd, x=given, residual=given, C=128, eps=1e-5, mask=mask
        )
        sizes = {"N": 3, "C": 128, "rows_per_chunk": 8, "mask": mask}
        saved = {"x": total, "dy": cuda.array(dy), "mean": mean, "rstd": rstd, "dgamma_partial": partial}
        cuda.run("layer_norm_backward", np.float32, 1, ddropped=dx, **saved, **sizes)
        results.append((y.numpy(), dx.numpy()))
    np.testing.assert_array_equal(results[1], results[0])
    assert (results[2][0] != results[0][0]).any() and (results[2][1] != results[0][1]).any()


@pytest.mark.parametrize("shifted", ["x", "y", "gamma", "dy", "dx"])
def test_layer_norm_of_rows_that_start_anywhere(cuda, rng, shifted, dtype):
    """Rows of a whole number of vectors, but one array starts an element later: no vector may be moved (the access flavour looks)."""
    N, C, saved = 3, 32, compute_dtype(dtype)
    hosts = {"x": normal(rng, (N, C), dtype), "dy": normal(rng, (N, C), dtype), "gamma": normal(rng, C, dtype)}
    hosts |= {"y": np.zeros((N, C), dtype), "dx": np.zeros((N, C), dtype)}
    arrays = {name: cuda.array(np.concatenate([np.zeros(int(name == shifted), dtype), host.ravel()])) for name, host in hosts.items()}
    address = {name: array.pointer + (name == shifted) * array.dtype.itemsize for name, array in arrays.items()}
    mean, rstd = cuda.empty((N,), saved), cuda.empty((N,), saved)
    kept = {"x": address["x"], "gamma": address["gamma"], "mean": mean, "rstd": rstd, "C": C}
    cuda.run("layer_norm_forward", dtype, N, y=address["y"], **kept, eps=1e-5)
    cuda.run("layer_norm_backward", dtype, 0, dx=address["dx"], dy=address["dy"], **kept, N=N, rows_per_chunk=N)
    y, dx = (arrays[name].numpy()[-N * C :].reshape(N, C) for name in ("y", "dx"))
    assert_close(y, reference.layer_norm(hosts["x"], hosts["gamma"])[0], dtype, k=C, name="y")
    assert_close(dx, reference.layer_norm_backward(hosts["dy"], hosts["x"], hosts["gamma"])[0], dtype, k=C, gradient=True, name="dx")


def test_layer_norm_keeps_its_digits_for_a_large_mean(cuda, rng):
    x = (normal(rng, (3, 64), np.float64) + 1e4).astype(np.float32)
    y = layer_norm_forward(cuda, x, None, None)[0]
    assert_close(y, reference.layer_norm(x)[0], np.float32, k=64, scale=1e4 * 2**-3)  # the mean itself is rounded


def test_layer_norm_passes_nan_on_within_its_row(cuda, rng):
    x = normal(rng, (4, 40), np.float32)
    x[1, 7] = np.nan
    x[2, 0] = np.inf
    x[3] *= np.float32(1e20)  # the squares overflow
    y = layer_norm_forward(cuda, x, None, None)[0]
    assert np.isnan(y[1:]).all() and np.isfinite(y[0]).all()


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("chunks, C", [(0, 5), (1, 1), (7, 33), (100, 64)])
def test_sum_partials(cuda, rng, chunks, C, adds, dtype):
    partial, before = normal(rng, (chunks, C), compute_dtype(dtype)), normal(rng, (C,), dtype) if adds else None
    out = cuda.empty((C,), dtype)
    cuda.run("sum_partials", dtype, -(-C // 64), out=out, partial=cuda.array(partial), before=cuda.array(before), chunks=chunks, C=C)
    expected = partial.astype(np.float64).sum(0) + (before.astype(np.float64) if adds else 0)
    assert_close(out.numpy(), expected, dtype, k=chunks)


# ---- bools whose bytes are not 0 and 1, as another library may write them ----


@pytest.fixture
def bools(cuda, emulated_gpu):
    """(a Tensor on the GPU, the same as an array): true is any byte."""
    clean = np.arange(35).reshape(5, 7) % 3 > 0
    given = tc.tensor(clean, device=emulated_gpu)
    bytes_ = np.where(clean, np.arange(35).reshape(5, 7) * 7 % 255 + 1, 0).astype(np.uint8)
    cuda.check(cuda.api.copy_from_host(given.data_ptr(), bytes_.ctypes.data, 35, None))
    cuda.check(cuda.api.synchronize(None))
    return given, clean


def bytes_of(x):
    return np.ascontiguousarray(x.cpu().numpy()).view(np.uint8)


@pytest.mark.parametrize("target", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_casts_and_copies_of_bools(bools, target):
    given, clean = bools
    for t, a in ((given, clean), (given.T, clean.T), (given[::2, 1:], clean[::2, 1:])):
        np.testing.assert_array_equal(t.to(target).cpu().numpy(), a.astype(target))
        np.testing.assert_array_equal(bytes_of(t.clone()), a)
        np.testing.assert_array_equal(bytes_of(t), a)


def test_ops_on_bools(bools):
    given, clean = bools
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    there = tc.tensor(x, device=given.device)
    assert given.sum().item() == clean.sum() and given.any().item() and not given.all().item()
    np.testing.assert_array_equal(given.sum(0).cpu().numpy(), clean.sum(0))
    np.testing.assert_array_equal((there * given).cpu().numpy(), x * clean)
    np.testing.assert_array_equal((given + 2).cpu().numpy(), clean + 2)
    np.testing.assert_array_equal(tc.where(given, there, 0.5).cpu().numpy(), np.where(clean, x, np.float32(0.5)))
    np.testing.assert_array_equal(tc.where(given, 2, 3).cpu().numpy(), np.where(clean, 2, 3))
    np.testing.assert_array_equal(there.masked_fill(given, 9.0).cpu().numpy(), np.where(clean, np.float32(9), x))
    np.testing.assert_array_equal(there[given].cpu().numpy(), x[clean])
    for made, wanted in (
        (~given, ~clean),
        (given & given, clean),
        (given == True, clean),  # noqa: E712
        (given[[2, 0]], clean[[2, 0]]),
        (given.tril(), np.tril(clean)),
        (tc.cat([given, given]), np.concatenate([clean, clean])),
        (given.any(1), clean.any(1)),
        (given @ given.T, clean @ clean.T),
    ):
        np.testing.assert_array_equal(bytes_of(made), wanted)
    np.testing.assert_array_equal(given.argsort().cpu().numpy(), clean.argsort(kind="stable"))
    q = tc.tensor(x[:, :3] / 9, device=given.device)
    k = tc.tensor(np.resize(x, (7, 3)) / 9, device=given.device)
    found = tc.scaled_dot_product(q, k, k, given)[0].cpu().numpy()
    np.testing.assert_array_equal(found, tc.scaled_dot_product(q, k, k, tc.tensor(clean, device=given.device))[0].cpu().numpy())


# ---- indices that another thread has changed since they were checked ----


@pytest.mark.parametrize("wrong", [-1, 4, 10**12, -(10**12)])
def test_indices_out_of_range_do_no_harm(cuda, rng, wrong):
    """Nothing is read or written outside the arrays; rows of right indices are right."""
    indices, weight, dy = np.array([1, wrong, 3, 1]), normal(rng, (4, 3), np.float32), normal(rng, (4, 3), np.float32)
    y = cuda.empty((4, 3), np.float32)
    given = cuda.array(indices)
    cuda.run("embedding_forward", np.float32, 1, y=y, weight=cuda.array(weight), indices=given, n=4, V=4, row_bytes=12)
    np.testing.assert_array_equal(y.numpy(), [weight[1], [0, 0, 0], weight[3], weight[1]])
    order, start, dweight = cuda.empty((4,), np.int64), cuda.empty((5,), np.int64), cuda.empty((4, 3), np.float32)
    cuda.run("embedding_order", np.float32, 1, order=order, start=start, indices=given, n=4, V=4)
    cuda.run("embedding_backward", np.float32, 4, dweight=dweight, dy=cuda.array(dy), order=order, start=start, n=4, D=3, padding_idx=-1)
    assert_close(dweight.numpy()[1], dy[0] + dy[3], np.float32)
    assert_close(dweight.numpy()[3], dy[2], np.float32)
    assert not dweight.numpy()[[0, 2]].any()
    out = cuda.empty((4, 4), np.int64)
    cuda.run("one_hot", np.float32, 1, out=out, indices=given, n=4, classes=4)
    np.testing.assert_array_equal(out.numpy(), np.eye(5, dtype=np.int64)[[1, 4, 3, 1], :4])
    x, saved = normal(rng, (4, 4), np.float32), {name: cuda.empty((4,), np.float32) for name in ("top", "log_sum")}
    loss, dx = cuda.empty((4,), np.float32), cuda.empty((4, 4), np.float32)
    common = {"x": cuda.array(x), "target": given, "weight": cuda.array(np.ones(4, np.float32)), "C": 4, "ignore_index": -100}
    cuda.run("cross_entropy_forward", np.float32, 4, loss=loss, **saved, **common)
    cuda.run("cross_entropy_backward", np.float32, 4, dx=dx, dloss=cuda.array(np.ones(4, np.float32)), **saved, **common)
    assert loss.numpy()[1] == 0 and not dx.numpy()[1].any() and loss.numpy()[0] > 0


# ---- the interface ----


def test_every_listed_kernel_is_there_for_every_dtype(cuda):
    for name in cuda_library.CUDA_KERNELS:
        for code in cuda_library.STORAGE.values():
            assert cuda.api.kernels(code).contents.run[cuda_library.KERNEL_IDS[name]], (name, code)
    assert not cuda.api.kernels(4)  # int64


def test_no_block_is_larger_than_its_launch_bounds(cuda, rng):
    """g++ ignores __launch_bounds__, so the tests pass them to the emulator: a GPU refuses a block with more threads."""
    bounds = emulation.launch_bounds()
    assert bounds["gemm_kernel"] == 16 * 16 and bounds["sum_partials_kernel"] == 32 * 8 and len(bounds) > 20
    out, partial = cuda.empty((1,), np.float32), cuda.array(normal(rng, (2, 1), np.float32))
    said = r"vector_rows.cuh:\d+: .*sum_partials_kernel.* blocks of 256 threads, .* allow 1"
    with cuda.refusing("sum_partials_kernel"), pytest.raises(CudaError, match=said):
        cuda.run("sum_partials", np.float32, 0, out=out, partial=partial, chunks=2, C=1)


@pytest.mark.parametrize(
    "C, kernel", [(33, "norm_input_gradient_kernel"), (33, "norm_weight_gradient_kernel"), (32, "norm_gradients_kernel")]
)
def test_an_error_of_any_launch_is_given(cuda, rng, C, kernel):
    """The backward has two launches where rows are not aligned; so have those of test_cuda_attention.py."""
    x = normal(rng, (2, C), np.float32)
    _, mean, rstd = layer_norm_forward(cuda, x, None, None)
    with cuda.refusing(kernel), pytest.raises(CudaError, match=kernel):
        layer_norm_backward(cuda, x, x, None, mean, rstd, rows_per_chunk=2)


@pytest.mark.skipif(emulation.FLAVOUR in ("address", "hardware"), reason="AddressSanitizer ends the process; a GPU notices nothing")
def test_the_emulator_notices_a_wrong_size(cuda, rng):
    """Tests the check itself: a kernel that gets too many rows must not pass."""
    x = cuda.array(normal(rng, (2, 32), np.float32))
    y, mean, rstd = cuda.empty((2, 32), np.float32), cuda.empty((2,), np.float32), cuda.empty((2,), np.float32)
    with pytest.raises(CudaError, match="out of bounds"):
        cuda.run("layer_norm_forward", np.float32, 3, y=y, mean=mean, rstd=rstd, x=x, C=32, eps=1e-5)


# ---- numbers that change from start to start of a graph ---------------------------------------------------------------------------------


def test_dropout_takes_its_seed_and_number_from_memory(cuda, rng):
    x = normal(rng, 300, np.float32)
    results = []
    for seed, call, drawn in [(5, 9, None), (1, 2, [5, 7]), (1, 2, None)]:
        y = cuda.empty(x.shape, np.float32)
        places = TYPES["tc_places"](x.size, 0, 1)
        drawn = cuda.array(np.array(drawn, np.uint64)) if drawn else None
        mask = fill("tc_mask", p=0.5, seed=seed, call=call, drawn=drawn, places=places)
        cuda.run("dropout_forward", np.float32, 5, y=y, x=cuda.array(x), n=x.size, mask=mask)
        results.append(y.numpy())
    np.testing.assert_array_equal(results[1], results[0])
    assert (results[2] != results[0]).any()


NUMBERS_OF_STEPS = {
    "sgd": [dict(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.2, nesterov=True, first=True), dict(lr=1.0, momentum=0.5)],
    "adam": [
        dict(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.2, correction1=0.1, correction2=0.01, decoupled=True),
        dict(lr=1.0, beta1=0.5, beta2=0.5, eps=1.0, correction1=1.0, correction2=1.0),
    ],
    "rmsprop": [dict(lr=0.1, alpha=0.9, eps=1e-8, momentum=0.9, maximize=True), dict(lr=1.0, alpha=0.5, eps=1.0, eps_inside_sqrt=True)],
}


@pytest.mark.parametrize("rule", NUMBERS_OF_STEPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_takes_its_numbers_from_memory(cuda, rule, dtype):
    wanted, others = NUMBERS_OF_STEPS[rule]
    struct = f"tc_{rule}_args"
    results = []
    for numbers, at in [(wanted, None), (others, wanted), (others, None)]:
        rng = np.random.default_rng(3)
        arrays = [cuda.array(np.abs(normal(rng, 5000, dtype))) for _ in range(4)]
        kind = 1 if dtype == np.float64 else 0
        chunk = fill("tc_optimizer_chunk", parameter=arrays[0], gradient=arrays[1], gradient_dtype=kind, n=5000)
        chunk.state[0], chunk.state[1] = arrays[2].pointer, arrays[3].pointer
        if at is not None:
            kept = fill(struct, **at)
            at = cuda.array(np.frombuffer(bytes(kept), np.uint8))
        cuda.run(f"{rule}_step", dtype, 2, struct, chunks=ctypes.addressof(chunk), chunk_count=1, at=at, **numbers)
        results.append(np.stack([array.numpy() for array in arrays]))
    np.testing.assert_array_equal(results[1], results[0])
    assert (results[2][0] != results[0][0]).any()


@pytest.mark.parametrize("rule", NUMBERS_OF_STEPS)
@pytest.mark.parametrize("kind, gradients", [("float32", "float32"), ("float32", "bfloat16"), ("float64", "float64")])
def test_arrays_of_a_step_may_start_anywhere(cuda, rule, kind, gradients):
    """Vectors are moved where all arrays of a parameter begin at multiples of 16 bytes, the last elements alone; the bits are the same."""
    dtype, gradients, n = cuda_library.DTYPES[kind], cuda_library.DTYPES[gradients], 4099
    kinds = [dtype, gradients, dtype, dtype, dtype, gradients]  # parameter, gradient, three of state, halves
    halves, results = gradients != dtype, []
    for shifted in (None, 0, 1, 4, 5):
        rng = np.random.default_rng(3)
        arrays = [cuda.array(np.abs(normal(rng, n + 1, kind))) for kind in kinds]
        at = [array.pointer + (i == shifted) * array.dtype.itemsize for i, array in enumerate(arrays)]
        for i, array in enumerate(arrays):  # the same numbers, wherever they start
            values = np.abs(normal(np.random.default_rng(i), n, array.dtype)) + array.dtype.type(20 * (i == 2))  # squares above a mean's
            cuda.check(cuda.api.copy_from_host(at[i], values.ctypes.data, values.nbytes, None))
        codes = [cuda_library.STORAGE[np.dtype(kind).name] for kind in (gradients, gradients)]
        chunk = fill("tc_optimizer_chunk", parameter=at[0], gradient=at[1], n=n, gradient_dtype=codes[0], half_dtype=codes[1])
        chunk.half = at[5] if halves else None
        chunk.state[0], chunk.state[1], chunk.state[2] = at[2:5]
        cuda.run(f"{rule}_step", dtype, 2, f"tc_{rule}_args", chunks=ctypes.addressof(chunk), chunk_count=1, **NUMBERS_OF_STEPS[rule][0])
        partial = cuda.empty((2,), np.float64)
        cuda.run("gradient_norm", dtype, 2, "tc_norm_args", chunks=ctypes.addressof(chunk), chunk_count=1, partial=partial, power=2.0)
        cuda.run("gradient_scale", dtype, 2, "tc_scale_args", chunks=ctypes.addressof(chunk), chunk_count=1, factor=0.5, limit=0.3)
        assert partial.numpy().sum() == pytest.approx(
            np.square(normal(np.random.default_rng(1), n, gradients).astype(float)).sum(), rel=1e-6
        )
        first = [int(i == shifted) for i in range(len(arrays))]
        results.append([array.numpy()[f : f + n] for f, array in zip(first, arrays, strict=True)])
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)
