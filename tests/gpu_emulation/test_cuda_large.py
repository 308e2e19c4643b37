"""Arrays of more than 2^31 elements and grids near their limit: only the last block runs, on the last rows of arrays that are not
there. An index that is cut to 32 bits anywhere on its way leads out of bounds.
"""

import cuda_library
import numpy as np
import pytest
from cuda_library import NUMBERS, CudaError, compute_dtype, far, fill, normal
from test_cuda_attention import Attention, make, operand
from tolerance import assert_close
from transformer_c.testing import reference


def test_product_of_many_rows(cuda, rng, dtype):
    M, K = 2**32, 33
    here, N = (32, 30) if np.dtype(dtype) == np.float64 else (64, 40)  # rows of the last block; columns of one tile
    before = M - here
    a, b, residual = normal(rng, (here, K), dtype), normal(rng, (K, N), dtype), normal(rng, (here, N), dtype)
    c, pre, sums = cuda.empty((here, N), dtype), cuda.empty((here, N), dtype), cuda.empty((here,), dtype)
    left, added = cuda.array(a), cuda.array(residual)
    arrays = {"a": far(left, before * K), "b": cuda.array(b), "residual": far(added, before * N), "a_sum": far(sums, before)}
    results = {"c": far(c, before * N), "pre": far(pre, before * N)}
    rows = {"a_row": K, "a_col": 1, "b_row": N, "b_col": 1, "c_row": N, "pre_row": N, "residual_row": N}
    sizes = {"M": M, "N": N, "K": K, "k_chunk": K, "k_chunks": 1, "batch": 1, "tile": 64}
    with cuda.last_block_only():
        cuda.run("gemm", dtype, 0, **arrays, **results, **rows, **sizes, b_form=NUMBERS["TC_GEMM_B_ROWS"])
    expected = reference.matmul(a, b)
    assert_close(pre.numpy(), expected, dtype, k=K, name="pre")
    assert_close(c.numpy(), expected + residual.astype(float), dtype, k=K, name="c")
    assert_close(sums.numpy(), a.astype(float).sum(1), dtype, k=K, name="a_sum")


@pytest.mark.parametrize("C, here", [(16, 32), (96, 8), (1031, 1)])  # rows of a block: of 8 lanes, of a warp, of a block each
def test_layer_norm_of_many_rows(cuda, rng, C, here, dtype):
    chunks, saved = 2**31 - 1, compute_dtype(dtype)
    N, before = here * chunks, here * (chunks - 1)
    x, dy, gamma = normal(rng, (here, C), dtype), normal(rng, (here, C), dtype), normal(rng, C, dtype)
    y, dx, mean, rstd = cuda.empty((here, C), dtype), cuda.empty((here, C), dtype), cuda.empty((here,), saved), cuda.empty((here,), saved)
    source, weight, upstream, sums = cuda.array(x), cuda.array(gamma), cuda.array(dy), cuda.empty((C,), saved)
    arrays = {"x": far(source, before * C), "gamma": weight, "mean": far(mean, before), "rstd": far(rstd, before)}
    given = {**arrays, "dy": far(upstream, before * C), "N": N, "C": C, "rows_per_chunk": here}
    whole = C == 16  # chunks of a wider row are more blocks than a grid has, where dx and the weights have a kernel each
    if whole:
        given["dbeta_partial"] = far(sums, (chunks - 1) * C)
    with cuda.last_block_only():
        cuda.run("layer_norm_forward", dtype, N, y=far(y, before * C), **arrays, C=C, eps=1e-5)
        cuda.run("layer_norm_backward", dtype, chunks if whole else 0, dx=far(dx, before * C), **given)
    assert_close(y.numpy(), reference.layer_norm(x, gamma)[0], dtype, k=C, name="y")
    assert_close(dx.numpy(), reference.layer_norm_backward(dy, x, gamma)[0], dtype, k=C, gradient=True, name="dx")
    if whole:
        assert_close(sums.numpy(), dy.astype(float).sum(0), saved, k=here, name="dbeta")


def at_the_end(args, names, batches, dtype):
    """The operands of these names, made for the last batch element, become those of all."""
    for name in names:
        one = getattr(args, name)
        one.data = (one.data - (batches - 1) * one.batch * np.dtype(dtype).itemsize) % 2**64


def test_attention_of_many_sequences(cuda, rng, dtype):
    """Forward with the map, and the three gradients."""
    B, H, Tq, Tk = 2**29, 2, 5, 7
    case = make(cuda, rng, dtype, B=1, H=H, Tq=Tq, Tk=Tk)
    dvalues = normal(rng, (1, H, Tq, case.Dv), dtype)
    values, map_, _ = case.forward()
    gradients = case.backward(dvalues)
    wanted = values.copy(), map_, *gradients, case.lse.numpy()

    many = Attention(cuda, *case.inputs)
    at_the_end(many.problem, "qkv", B, dtype)
    many.problem.B = B
    rows, saved = H * Tq * (B - 1), many.saved
    values[:, -1] = np.nan  # to be made
    values, map_ = cuda.array(values), cuda.empty((1, H, Tq, Tk), dtype)
    kept = {name: cuda.empty((H * Tq,), saved) for name in ("shift", "sum", "lse")}
    addresses = {name: far(array, rows) for name, array in kept.items()}
    args = fill("tc_attention_forward_args", problem=many.problem, values=operand(values), map=far(map_, rows * Tk), **addresses)
    at_the_end(args, ["values"], B, dtype)
    dq, dk, dv = (cuda.empty(x.shape, dtype) for x in case.inputs)
    upstream, delta = cuda.array(dvalues), cuda.empty((H * Tq,), saved)
    operands = {"values": operand(values), "dvalues": operand(upstream), "dq": operand(dq), "dk": operand(dk), "dv": operand(dv)}
    del addresses["lse"]
    backward = fill("tc_attention_backward_args", problem=many.problem, **operands, **addresses, splits=1, shares=(1, 1, 1))
    at_the_end(backward, operands, B, dtype)
    with cuda.last_block_only():  # of every kernel: the last head
        cuda.launch("attention_forward", dtype, 0, args)
        cuda.launch("attention_backward", dtype, 0, backward, scratch=far(delta, rows))
    got = values.numpy(), map_.numpy(), dq.numpy(), dk.numpy(), dv.numpy(), kept["lse"].numpy().reshape(1, H, Tq)
    for name, one, other in zip(("values", "map", "dq", "dk", "dv", "lse"), got, wanted, strict=True):
        assert np.array_equal(one[:, -1], other[:, -1]), name
        assert name == "values" or np.isnan(one[:, 0].astype(float)).all(), name  # not written


def copy_args(cuda, to, start, shape, to_strides, from_strides):
    args = fill("tc_copy_args", to=to, **{"from": start}, ndim=len(shape), numel=int(np.prod(shape, dtype=np.int64)))
    args.to_dtype = args.from_dtype = cuda_library.STORAGE["float32"]
    for name, values in {"shape": shape, "to_strides": to_strides, "from_strides": from_strides}.items():
        getattr(args, name)[: len(values)] = values
    return args


@pytest.mark.parametrize("turns", [2, 2**7])
def test_elements_beyond_the_largest_grid(cuda, turns):
    """The largest grid has 2^27 threads, which take several turns; 2^7 of them are 2^34 elements."""
    blocks, threads = 2**20, 128
    ones, out = cuda.array(np.ones((turns, threads), np.float32)), cuda.empty((turns, threads), np.float32)
    args = fill("tc_copy_args", to=out, **{"from": ones}, ndim=3, numel=turns * blocks * threads)
    args.to_dtype = args.from_dtype = cuda_library.STORAGE["float32"]
    args.shape[:3], args.to_strides[:3], args.from_strides[:3] = (turns, blocks, threads), (threads, 0, 1), (threads, 0, 1)
    with cuda.last_block_only():
        cuda.launch("copy", np.float32, 0, args)
    assert (out.numpy() == 1).all()


def test_reductions_with_many_results(cuda, rng):
    kept, columns, here = 2**32 + 4, 3, 4
    x = normal(rng, (here, columns), np.float32)
    source, out = cuda.array(x), cuda.empty((here,), np.float32)
    args = fill(
        "tc_reduce_args", out=far(out, kept - here), x=far(source, (kept - here) * columns), divisor=1.0, kept=kept, reduced=columns
    )
    args.kept_ndim = args.reduced_ndim = args.segments = 1
    args.segment = args.reduced_shape[0] = columns
    args.kept_shape[0], args.kept_strides[0], args.reduced_strides[0] = kept, columns, 1
    with cuda.last_block_only():
        cuda.launch("reduce_rows", np.float32, 0, args)
    assert_close(out.numpy(), x.astype(float).sum(1), np.float32, k=columns)


def test_a_grid_that_no_launch_can_have_is_refused(cuda, rng):
    """2^32 + 1 blocks: truncated to 32 bits that would be one."""
    partial, out = cuda.array(normal(rng, (1, 32), np.float32)), cuda.empty((32,), np.float32)
    with pytest.raises(CudaError, match=r"invalid launch .*sum_partials_kernel"):
        cuda.run("sum_partials", np.float32, 0, out=out, partial=partial, chunks=1, C=32 * (2**32 + 1))
    assert np.isnan(out.numpy()).all()
