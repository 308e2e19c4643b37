"""Kernels that only another op's backward, an indexing expression or a large size uses, on every instruction set: with one of
them gone wrong, a test fails here that names it."""

import itertools

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference

FLOATS = ["float32", "float64"]
WIDTHS = [1, 3, 8, 16, 17, 33, 70]


def leaf(rng, *shape, dtype):
    return tc.tensor(rng.standard_normal(shape).astype(dtype), requires_grad=True)


def gradient_of(x, y, dy):
    x.grad = None
    y.backward(tc.tensor(dy))
    return x.grad.numpy()


@pytest.mark.parametrize("dtype", FLOATS)
def test_add_in_place(rng, isa, dtype):
    for width in WIDTHS:
        x = leaf(rng, 5, width, dtype=dtype)
        dy = rng.standard_normal((5, width)).astype(dtype)
        assert_close(gradient_of(x, x + x[:, ::-1], dy), dy + dy[:, ::-1], dtype, 2, name=f"{width} summed")
        (x * x.detach()).backward(tc.tensor(dy))
        assert_close(x.grad.numpy(), dy + dy[:, ::-1] + dy * x.numpy(), dtype, 3, name=f"{width} added to")
        assert_close(gradient_of(x, x.T * 2 + x.T, np.ascontiguousarray(dy.T)), 3 * dy, dtype, 2, name=f"{width} by strides")


@pytest.mark.parametrize("dtype", FLOATS)
def test_index_add(rng, isa, dtype):
    for width in WIDTHS:
        x, rows = leaf(rng, 6, width, dtype=dtype), rng.integers(-6, 6, 40)
        dy, expected = rng.standard_normal((40, width)).astype(dtype), np.zeros((6, width))
        np.add.at(expected, rows, dy.astype(np.float64))
        assert_close(gradient_of(x, x[rows], dy), expected, dtype, 40, name=f"rows of {width}")
        columns = rng.integers(0, width, (6, 40))
        dy, expected = rng.standard_normal((6, 40)).astype(dtype), np.zeros((6, width))
        np.add.at(expected, (np.arange(6)[:, None], columns), dy.astype(np.float64))
        assert_close(gradient_of(x, x[np.arange(6)[:, None], columns], dy), expected, dtype, 40, name=f"elements of rows of {width}")


@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "int64", "bool"])
def test_index_gather_and_index_put(rng, isa, dtype):
    for width in WIDTHS:
        values = (rng.standard_normal((6, width)) * 100).astype(dtype)
        rows, columns = rng.integers(-6, 6, 9), rng.integers(0, width, 9)
        x = tc.tensor(values)
        np.testing.assert_array_equal(x[rows].numpy(), values[rows])
        np.testing.assert_array_equal(x[rows, columns].numpy(), values[rows, columns])
        np.testing.assert_array_equal(x[:, columns].numpy(), values[:, columns])
        unlike = ~values.astype(bool) if dtype == "bool" else values + 1
        for place in (rows, (rows, columns), (slice(None), columns), values > 0):
            y, expected = tc.tensor(values), values.copy()
            y[place] = unlike[place]
            expected[place] = unlike[place]
            np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "int64", "bool"])
def test_triangle(rng, isa, dtype):
    for rows, width in itertools.product([1, 5, 27], WIDTHS):
        values = (rng.standard_normal((2, rows, width)) * 100).astype(dtype)
        for k in (-3, -1, 0, 1, 4, 20):
            np.testing.assert_array_equal(tc.triu(tc.tensor(values), k).numpy(), np.triu(values, k), err_msg=f"triu {k}")
            np.testing.assert_array_equal(tc.tril(tc.tensor(values), k).numpy(), np.tril(values, k), err_msg=f"tril {k}")


CASTS = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("source", CASTS)
def test_copy(rng, isa, source):
    for width, to in itertools.product(WIDTHS, CASTS):
        values = rng.integers(0, 100, (4, width)).astype(source)
        for view in (values, values.T, values[::-1, ::2]):
            np.testing.assert_array_equal(tc.as_tensor(view).to(to).numpy(), view.astype(to), err_msg=f"{view.shape} to {to}")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_attention_sum_splits(rng, isa, dtype, kv_heads):
    q, k, v = (rng.standard_normal((1, h, t, 5)).astype(dtype) for h, t in ((2, 700), (kv_heads, 70), (kv_heads, 70)))
    dvalues = rng.standard_normal(q.shape).astype(dtype)
    tensors = [tc.tensor(x, requires_grad=True) for x in (q, k, v)]
    tc.functional.scaled_dot_product_attention(*tensors, enable_gqa=True).backward(tc.tensor(dvalues))
    expected = reference.attention_backward(dvalues, q, k, v, enable_gqa=True)
    for x, gradient, name in zip(tensors, expected, ("dq", "dk", "dv"), strict=False):
        assert_close(x.grad.numpy(), gradient, dtype, gradient=True, name=name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_partials_of_a_long_product(rng, isa, dtype):
    for m, n in ((3, 5), (17, 33)):
        a, b = rng.standard_normal((m, 1500)).astype(dtype), rng.standard_normal((1500, n)).astype(dtype)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        assert_close(_core.matmul(a, b), expected, dtype, 1500, scale=np.abs(a) @ np.abs(b), name=f"{m} x 1500 x {n}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_argsort(rng, isa, dtype):
    for width in [*WIDTHS, 300]:
        x = rng.permuted(np.tile(np.arange(width, dtype=dtype) // 2, (4, 1)), axis=1)
        np.testing.assert_array_equal(_core.argsort(x), np.argsort(x, kind="stable"))
        np.testing.assert_array_equal(_core.argsort(x, 0), np.argsort(x, 0, kind="stable"))


def test_every_float16_is_cast_as_numpy_casts_it(isa, rng):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    floats = rng.integers(0, 1 << 32, 100_003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    between = np.concatenate([halves[1:].astype(np.float32) / 2 + halves[:-1].astype(np.float32) / 2, floats])  # ties, and anything
    with np.errstate(all="ignore"):
        for x, dtype in ((halves, np.float32), (between, np.float16)):
            for given in (x, x[1:], x[::-3]):
                np.testing.assert_array_equal(tc.tensor(given).to(dtype=dtype).numpy(), given.astype(dtype))


def test_every_dtype_is_cast_to_and_from_float16(isa, rng):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = {
        "float64": rng.standard_normal(5000) * 10.0 ** rng.uniform(-9, 6, 5000),
        "int64": rng.integers(-(2**40), 2**40, 5000) >> rng.integers(0, 40, 5000),
        "int32": rng.integers(-70_000, 70_000, 5000).astype(np.int32),
        "uint8": rng.integers(0, 256, 5000).astype(np.uint8),
    }
    with np.errstate(over="ignore"):
        for dtype, x in numbers.items():
            for given in (x, x[1:], x[::-3]):
                expected = given.astype(np.float32).astype(np.float16)
                np.testing.assert_array_equal(tc.as_tensor(given).to("float16").numpy(), expected, err_msg=dtype)
    for dtype in ("float64", "int64", "int32", "bool"):
        x = halves if dtype == "float64" else halves[np.isfinite(halves)]
        for given in (x, x[1:], x[::-3]):
            np.testing.assert_array_equal(tc.as_tensor(given).to(dtype).numpy(), given.astype(dtype), err_msg=dtype)
    widened = tc.tensor(halves).to("bfloat16")
    np.testing.assert_array_equal(widened.float().numpy(), tc.tensor(halves).float().to("bfloat16").float().numpy())
    for dtype in ("float16", "float64", "int64", "int32", "uint8", "bool"):
        for given in (widened, widened[1:], widened.flip(0)[:-5:3]):
            np.testing.assert_array_equal(given.to(dtype).numpy(), given.float().to(dtype).numpy(), err_msg=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_int64_is_rounded_once(isa, rng, dtype):
    x = rng.integers(-(2**63), 2**63 - 1, 3000) >> rng.integers(0, 63, 3000)
    edges = [s * 2**e + d for s in (1, -1) for e in (24, 31, 32, 52, 53, 54, 62) for d in range(-3, 4)]
    x = np.concatenate([x, [0, 1, -1, 2**63 - 1, 2**63 - 513, -(2**63), *edges]])
    for given in (x, x[1:], x[::2], x[::-3]):
        np.testing.assert_array_equal(tc.as_tensor(given).to(dtype).numpy(), given.astype(dtype))
