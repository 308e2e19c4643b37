"""Rows of a table and their gradient, one-hot rows, and the largest value over a sequence."""

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

# indices, rows of the table, features: nothing, one, primes, around the widths, many of each
SIZES = [((0,), 3, 2), ((4,), 3, 0), ((1,), 1, 1), ((5, 7), 11, 13), ((), 4, 3), ((2, 3, 4), 5, 15), ((17,), 6, 17), ((3000,), 7, 33)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, V, D", SIZES, ids=str)
def test_embedding(isa, dtype, shape, V, D, rng):
    weight, indices = rng.standard_normal((V, D)).astype(dtype), rng.integers(V, size=shape)
    y = _core.embedding(indices, weight)
    np.testing.assert_array_equal(y, weight[indices])
    dy = rng.standard_normal((*shape, D)).astype(dtype)
    for padding_idx in (None, 0, -1):
        expected = R.embedding_backward(dy, indices, weight, padding_idx)
        dweight = _core.embedding_backward(dy, indices, V, padding_idx)
        assert_close(dweight, expected, dtype, gradient=True)
        t = tc.tensor(weight, requires_grad=True)
        _core.embedding(tc.tensor(indices), t, padding_idx).backward(tc.tensor(dy))
        np.testing.assert_array_equal(t.grad.numpy(), dweight)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    weight, indices = rng.standard_normal((5, 9)).astype(dtype), rng.integers(5, size=(3, 40))
    np.testing.assert_array_equal(_core.embedding(indices, weight), weight[indices])
    dy = rng.standard_normal((3, 40, 9)).astype(dtype)
    assert_close(_core.embedding_backward(dy, indices, 5), R.embedding_backward(dy, indices, weight), dtype, gradient=True)


def test_kinds_of_indices_and_strides(rng):
    weight, indices = rng.standard_normal((6, 8)), rng.integers(6, size=(4, 10))
    for given in (
        indices.astype(np.int32),
        indices.astype(np.uint8),
        indices[::-1, ::2],
        indices.T,
        indices.astype(">i8"),
        indices.tolist(),
    ):
        np.testing.assert_array_equal(_core.embedding(given, weight), weight[np.asarray(given)])
    for table in (weight[::-1, ::2], np.asfortranarray(weight), np.broadcast_to(weight[0], (6, 8))):
        np.testing.assert_array_equal(_core.embedding(indices, table), table[indices])
    dy = rng.standard_normal((8, 10, 4)).T
    assert_close(_core.embedding_backward(dy, indices, 6), R.embedding_backward(dy, indices, weight), "float64", gradient=True)


def test_same_bits_for_any_threads(isa, threads):
    rng = np.random.default_rng(5)
    indices, dy = rng.integers(50, size=20_000), rng.standard_normal((20_000, 40)).astype(np.float32)
    many = _core.embedding_backward(dy, indices, 50)
    _core.set_num_threads(1)
    np.testing.assert_array_equal(_core.embedding_backward(dy, indices, 50), many)


@pytest.mark.parametrize("dtype", [tc.float32, tc.float64, tc.float16, tc.bfloat16], ids=str)
def test_few_rows_of_a_table(isa, threads, dtype, rng):
    """Tables long and short, the indices of which are sorted and counted, give the same bits."""
    long, V = 9000, 40
    for n, D in ((0, 3), (1, 1), (100, 17), (900, 33)):
        indices, dy = tc.tensor(rng.integers(V, size=n)), tc.tensor(rng.standard_normal((n, D))).to(dtype)
        for padding_idx in (None, 3):
            few, all_rows = (_core.embedding_backward(dy, indices, rows, padding_idx) for rows in (long, V))
            assert few.dtype == dtype and few.shape == (long, D)
            np.testing.assert_array_equal(few[:V].double().numpy(), all_rows.double().numpy())
            assert not few[V:].bool().any()


def test_a_row_taken_often_keeps_its_digits(isa):
    dy = np.full((100_000, 3), 0.1, np.float32)
    dweight = _core.embedding_backward(dy, np.zeros(100_000, np.int64), 1)
    assert_close(dweight, dy.astype(np.float64).sum(0, keepdims=True), "float32", gradient=True)


def test_embedding_errors():
    weight = np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match=r"indices has shape \(1, .*\); the result would have more than 16 axes"):
        _core.embedding(np.zeros([1] * 16, np.int64), weight)
    with pytest.raises(ValueError, match="num_embeddings is -1; it cannot be negative"):
        _core.embedding_backward(np.ones((1, 3)), [0], -1)
    for bad in (4, -1):
        with pytest.raises(IndexError, match=rf"index {bad} \(element 1 of indices, shape \(2,\)\) is outside the table, which has 4 rows"):
            _core.embedding([0, bad], weight)
    with pytest.raises(IndexError, match="outside the table"):
        _core.embedding_backward(np.ones((1, 3)), [2], 2)
    for indices in (np.ones(2), np.array([True])):
        with pytest.raises(TypeError, match=f"indices is {indices.dtype}; integers are needed"):
            _core.embedding(indices, weight)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); expected two axes"):
        _core.embedding([0], weight[0])
    with pytest.raises(ValueError, match=r"padding_idx is 4 but weight \(4, 3\) has 4 rows"):
        _core.embedding([0], weight, 4)
    with pytest.raises(ValueError, match=r"dy has shape \(3, 3\); expected that of indices \(2,\)"):
        _core.embedding_backward(np.ones((3, 3)), [0, 1], 4)


def test_golden_embedding():
    cases = {name: case for name, case in load("functions").items() if case[0].get("function") == "embedding"}
    assert cases
    for name, (options, arrays) in cases.items():
        weight = tc.tensor(arrays["weight"], requires_grad=True)
        y = _core.embedding(arrays["indices"], weight, options["padding_idx"])
        np.testing.assert_array_equal(y.numpy(), arrays["f32.y"])
        y.backward(tc.tensor(arrays["dy"]))
        assert_close(weight.grad.numpy(), arrays["f64.dweight"], "float32", gradient=True, name=name)


def test_one_hot(isa, rng):
    for shape, classes in [((), 3), ((0,), 4), ((5,), 1), ((33,), 10), ((3, 7), 17), ((2, 0, 3), 2)]:
        x = rng.integers(classes, size=shape)
        y = _core.one_hot(x, classes)
        assert y.dtype == np.int64
        np.testing.assert_array_equal(y, R.one_hot(x, classes))
        if x.size:
            np.testing.assert_array_equal(_core.one_hot(x.astype(np.int32)), R.one_hot(x, x.max() + 1))
    x = rng.integers(4, size=(6, 8))
    for given in (x[::-1, ::3], x.T, x.astype(np.uint8), x.astype(">i4")):
        np.testing.assert_array_equal(_core.one_hot(given, 4), R.one_hot(given, 4))
    assert isinstance(_core.one_hot(tc.tensor(x)), tc.Tensor)


def test_one_hot_errors():
    with pytest.raises(ValueError, match=r"x has shape \(1, .*\); the result would have more than 16 axes"):
        _core.one_hot(np.zeros([1] * 16, np.int64), 2)
    with pytest.raises(ValueError, match="x has 3 as its element 1 but num_classes is 3; expected 0 to 2"):
        _core.one_hot([0, 3], 3)
    with pytest.raises(ValueError, match="x has -1 as its element 0; classes are not negative"):
        _core.one_hot([-1, 3])
    with pytest.raises(ValueError, match="num_classes must be given"):
        _core.one_hot(np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="num_classes is -2"):
        _core.one_hot([0], -2)
    with pytest.raises(TypeError, match="x is float64; integers are needed"):
        _core.one_hot(np.ones(2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_global_max_pool1d(isa, dtype, rng):
    for shape in [(1, 1, 1), (2, 5, 3), (3, 17, 33), (0, 2, 3), (2, 3, 0)]:
        x = rng.integers(-3, 3, size=shape).astype(dtype)  # equal maxima: the first gets the gradient
        dy = rng.standard_normal((shape[0], shape[2])).astype(dtype)
        t = tc.tensor(x, requires_grad=True)
        y = _core.global_max_pool1d(t)
        np.testing.assert_array_equal(y.numpy(), x.max(1))
        y.backward(tc.tensor(dy))
        np.testing.assert_array_equal(t.grad.numpy(), R.global_max_pool1d_backward(dy, x))
    x = np.array([[[1.0], [np.nan], [3.0]]], dtype)
    assert np.isnan(_core.global_max_pool1d(x)).all()
    np.testing.assert_array_equal(_core.global_max_pool1d(x[:, ::2]), np.array([[3.0]], dtype))


def test_global_max_pool1d_errors():
    for shape in [(2, 0, 3), (2, 3), (1, 2, 3, 4)]:
        with pytest.raises(ValueError, match=r"expected \(B, T, C\) with T at least 1"):
            _core.global_max_pool1d(np.ones(shape))
    with pytest.raises(TypeError, match="x is int64"):
        _core.global_max_pool1d(np.ones((1, 2, 3), np.int64))
