"""On a GPU too a batch element of attention has the same bits in any batch, and a sequence whatever it is padded or packed with."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host

F = tc.functional
VARIANTS = {"float32": "float32", "bfloat16": "tensor_cores", "float16": "tensor_cores"}
pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.parametrize("dtype", VARIANTS)]
# Tq, Tk, heads of the keys of four: one query and few of long sequences, whose keys are split; several tiles of rows and of keys
SHAPES = [(1, 300, 1), (5, 300, 2), (20, 70, 2), (66, 70, 4)]
LENGTHS = [130, 1, 64, 17, 16]


def attend(gpu, q, k, v, **options):
    """Values, map and log-sum-exp."""
    arrays = (tc.tensor(x, device=gpu) for x in (q, k, v))
    options = {name: tc.tensor(x, device=gpu) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    results = F.scaled_dot_product_attention(*arrays, enable_gqa=True, return_logsumexp=True, return_attention=True, **options)
    return [host(x) for x in results]


def gradients(gpu, q, k, v, dvalues, **options):
    """Of q, k and v."""
    tensors = [tc.tensor(x, device=gpu, requires_grad=True) for x in (q, k, v)]
    F.scaled_dot_product_attention(*tensors, enable_gqa=True, **options).backward(tc.tensor(dvalues, device=gpu))
    return [host(x.grad) for x in tensors]


def same_bits(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(np.ascontiguousarray(one).view(np.uint8), np.ascontiguousarray(other).view(np.uint8))


def operands(rng, dtype, B, Tq, Tk, Hk, D=24):
    return [array(rng, (B, H, T, D), dtype) for H, T in ((4, Tq), (Hk, Tk), (Hk, Tk))]


@pytest.mark.whole
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_any_batch(emulated_gpu, rng, dtype, shape):
    Tq, Tk, Hk = shape
    q, k, v = operands(rng, dtype, 3, Tq, Tk, Hk)
    offset, mask = np.array([Tk - Tq, 0, -2]), rng.random((3, 1, Tq, Tk)) < 0.8
    for options in ({}, {"causal_offset": offset, "is_causal": True}, {"attn_mask": mask}):
        own = lambda rows: {name: x[rows] if isinstance(x, np.ndarray) else x for name, x in options.items()}
        whole = attend(emulated_gpu, q, k, v, **options)
        assert tc.cuda.last_variants()["attention_forward"] == VARIANTS[dtype]
        for rows in (slice(0, 1), slice(1, 3)):
            same_bits(attend(emulated_gpu, q[rows], k[rows], v[rows], **own(rows)), [x[rows] for x in whole])


@pytest.mark.parametrize("shape", [(16, 16, 4), (20, 70, 2), (128, 100, 4)], ids=str)
def test_gradients_in_any_batch(emulated_gpu, rng, dtype, shape):
    """Of heads that a block takes whole, whatever the number of blocks."""
    if dtype == "float32":
        pytest.skip("the plain kernel shares the sums of few heads among blocks")
    Tq, Tk, Hk = shape
    arrays = [*operands(rng, dtype, 3, Tq, Tk, Hk), array(rng, (3, 4, Tq, 24), dtype)]
    for options in ({}, {"is_causal": True}):
        whole = gradients(emulated_gpu, *arrays, **options)
        for rows in (slice(0, 1), slice(1, 3)):
            same_bits(gradients(emulated_gpu, *(x[rows] for x in arrays), **options), [x[rows] for x in whole])


def test_gradients_whatever_it_is_packed_with(emulated_gpu, rng, dtype):
    if dtype == "float32":
        pytest.skip("the plain kernel shares the sums of few heads among blocks")
    lengths = [100, 1, 64, 17, 16]
    N = sum(lengths)
    arrays = [*operands(rng, dtype, 1, N, N, 2), array(rng, (1, 4, N, 24), dtype)]
    packed = gradients(emulated_gpu, *arrays, sequence_lengths=lengths, is_causal=True)
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        rows = slice(end - length, end)
        alone = gradients(emulated_gpu, *(x[:, :, rows] for x in arrays), sequence_lengths=[length], is_causal=True)
        same_bits(alone, [x[:, :, rows] for x in packed])


def test_however_far_it_is_padded(emulated_gpu, rng, dtype):
    q, k, v = operands(rng, dtype, 5, 3, 300, 2)
    padded = attend(emulated_gpu, q, k, v, key_lengths=np.array(LENGTHS))
    for i, length in enumerate(LENGTHS):
        alone = attend(emulated_gpu, q[i : i + 1], k[i : i + 1, :, :length], v[i : i + 1, :, :length])
        same_bits(alone, [padded[0][i : i + 1], padded[1][i : i + 1, ..., :length], padded[2][i : i + 1]])


def test_whatever_it_is_packed_with(emulated_gpu, rng, dtype):
    q, k, v = operands(rng, dtype, 1, sum(LENGTHS), sum(LENGTHS), 2)
    packed = attend(emulated_gpu, q, k, v, sequence_lengths=LENGTHS, is_causal=True)
    for i, (end, length) in enumerate(zip(np.cumsum(LENGTHS), LENGTHS, strict=True)):
        rows = slice(end - length, end)
        alone = attend(emulated_gpu, q[:, :, rows], k[:, :, rows], v[:, :, rows], sequence_lengths=[length], is_causal=True)
        same_bits(alone, [packed[0][:, :, rows], packed[1][i : i + 1, :, :length, :length], packed[2][:, :, rows]])
