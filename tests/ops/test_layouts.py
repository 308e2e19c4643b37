"""Operands of any layout, above all with short innermost axes, which are walked across: against NumPy."""

import itertools

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]


def views(rng, dtype, count):
    """Arrays of two to four axes, most of them short, with axes that are exchanged, reversed, repeated and stepped over."""
    for _ in range(count):
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 15, 16, 40, 130], rng.integers(2, 5))]
        while np.prod(shape) > 30_000:
            shape[int(np.argmax(shape))] = 2
        base = (rng.standard_normal([2 * n for n in shape]) * 9).astype(dtype)
        x = base[tuple(slice(None, None, int(rng.choice([2, -2]))) if rng.random() < 0.3 else slice(n) for n in shape)]
        x = x.transpose(rng.permutation(x.ndim))
        axis = int(rng.integers(x.ndim))
        yield np.broadcast_to(x.take([0], axis), x.shape) if rng.random() < 0.1 else x


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_and_casts(isa, dtype, rng):
    for x in views(rng, dtype, 60):
        t = tc.as_tensor(x)
        np.testing.assert_array_equal(t.contiguous(), x)
        other = str(rng.choice(["float32", "float64", "int64", "int32", "bool"]))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(t.to(other), x.astype(other))
        to = tc.zeros(*x.shape[::-1], dtype=dtype).permute(*range(x.ndim)[::-1])
        np.testing.assert_array_equal(to.copy_(t), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_views(isa, dtype, rng):
    for x in views(rng, dtype, 60):
        y = np.roll(x, 1, 0)[:, :1]
        np.testing.assert_array_equal(_core.le(x, y), x <= y)
        if dtype == "bool":
            np.testing.assert_array_equal(_core.logical_xor(x, y), x ^ y)
            continue
        np.testing.assert_array_equal(_core.maximum(x, y), np.maximum(x, y))
        to = tc.zeros(*x.shape[::-1], dtype=dtype).permute(*range(x.ndim)[::-1])
        to += tc.as_tensor(x)
        np.testing.assert_array_equal(to, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_writes_of_rows_that_are_alike(isa, dtype, rng):
    """Numbers and rows, which are cast once, and columns, to rows with gaps, stepped over and across."""
    for length, source in itertools.product((2, 3, 5, 16, 17, 33, 130), ("float32", dtype)):
        row = (rng.standard_normal(2 * length) * 9).astype(source)
        for value in (row[:1], row[:length], row[::2], row[::-2]):
            memory = np.zeros((7, 40, length + 3), dtype)
            for view in (
                lambda t: t[:, :, 1:-2],
                lambda t: t[::2, ::2, 2:-1],
                lambda t: t.swapaxes(0, 1)[:, :, 1:-2],
                lambda t: t[:, 1, 3:],
            ):
                t, whole = tc.tensor(memory), memory.copy()
                view(t).copy_(tc.tensor(np.ascontiguousarray(value)))
                view(whole)[...] = value.astype(dtype)
                np.testing.assert_array_equal(t.numpy(), whole)
                column = np.arange(view(whole)[..., 0].size).reshape(view(whole)[..., :1].shape).astype(source)
                view(t).copy_(tc.tensor(column))
                view(whole)[...] = column.astype(dtype)
                np.testing.assert_array_equal(t.numpy(), whole)
            for step in (-1, -2):
                array, whole = memory.copy(), memory.copy()
                tc.from_numpy(array[:, ::step, 1:-2]).copy_(tc.tensor(np.ascontiguousarray(value)))
                whole[:, ::step, 1:-2] = value.astype(dtype)
                np.testing.assert_array_equal(array, whole)


def test_copies_to_any_address(rng):
    memory = np.zeros(20_000, np.float32)
    values = rng.standard_normal(9000).astype(np.float32)
    for start, first in itertools.product(range(1, 20), (0, 1, 5)):
        memory[:] = 0
        tc.from_numpy(memory)[start : start + 8000].copy_(tc.from_numpy(values)[first : first + 8000])
        np.testing.assert_array_equal(memory[start : start + 8000], values[first : first + 8000])
        assert not memory[:start].any() and not memory[start + 8000 :].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_repeated_elements(isa, dtype, rng):
    """Computed once where all operands repeat theirs, with the bits that copies have."""
    for axes in itertools.product((False, True), repeat=3):
        base = tc.tensor((rng.standard_normal((9, 11, 13)) * 9).astype(dtype))
        x = base[tuple(slice(2, 3) if repeats else slice(None) for repeats in axes)].expand(9, 11, 13)
        y = base[tuple(slice(0, 1) if repeats else slice(None) for repeats in axes)].flip(0).expand(9, 11, 13)
        for a, b in ((x, y), (x.permute(2, 0, 1), y.permute(2, 0, 1)), (x, base), (base, y), (x, 1)):
            copy_of_a, copy_of_b = (t.contiguous() if isinstance(t, tc.Tensor) else t for t in (a, b))
            for function in (_core.maximum, _core.le):
                np.testing.assert_array_equal(function(a, b).numpy(), function(copy_of_a, copy_of_b).numpy())
        if x.is_floating_point():
            np.testing.assert_array_equal(x.exp().numpy(), x.contiguous().exp().numpy())
            np.testing.assert_array_equal(tc.lerp(x, y, 0.25).numpy(), tc.lerp(x.contiguous(), y.contiguous(), 0.25).numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
def test_rows_and_columns(isa, dtype, rng):
    """Broadcast over as many elements as several blocks have, dense and not, beside each other and alone."""
    for length in (2, 15, 16, 19, 64, 255, 256, 257, 300):
        x = (rng.standard_normal((20_000 // length, length + 1)) * 3).astype(dtype)
        row, column = x[3, :-1].copy(), x[:, :1].copy()
        for a in (x[:, :-1].copy(), x[:, :-1], x[1:2, :-1]):
            for b in (row, row[::-1], column[: len(a)], x[: len(a), -1:]):
                np.testing.assert_array_equal(_core.le(a, b), a <= b)
                np.testing.assert_array_equal(_core.gt(b, a), b > a)
        np.testing.assert_array_equal(_core.where(row > 0, column, x[:, :-1]), np.where(row > 0, column, x[:, :-1]))
        np.testing.assert_array_equal(_core.eq(row, column), row == column)
        if dtype[:5] == "float":
            t = tc.tensor(x[:, :-1])
            t *= tc.tensor(column)
            t += tc.tensor(row)
            expected = x[:, :-1] * column
            np.testing.assert_array_equal(t, expected + row)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_long_runs_of_outer_axes(isa, threads, dtype, rng):
    """Runs that follow one another along the axis outside of them: of each operand, a number for each, of another dtype; also written."""
    for rows, length in ((1, 40), (5, 32), (40, 33), (9, 700)):
        x, y = ((rng.standard_normal((n, length + 3)) * 9).astype(dtype)[:, 1:-2] for n in (rows, 6))
        column, casted = x[:, None, :1], (x[:, None, :1] > 3).astype("int32")
        heads = np.lib.stride_tricks.as_strided(y, (2, 3, length), (y.strides[0], 2 * y.strides[0], y.strides[1]))
        for a, b in (
            (x[:, None], y),
            (y, column),
            (y, casted),
            (np.repeat(column, 6, 1), y),
            (heads, heads.copy()),
            (heads, heads[:, :, :1]),
        ):
            a, b = np.broadcast_arrays(a, b)
            np.testing.assert_array_equal(_core.maximum(a, b.astype(dtype)), np.maximum(a, b.astype(dtype)))
            np.testing.assert_array_equal(_core.lt(a, b), a < b)
        to = tc.zeros(rows, 6, length + 5, dtype=dtype)[:, :, 2:-3]
        to += tc.as_tensor(y)
        np.testing.assert_array_equal(to, np.broadcast_to(y, to.shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_of_views(isa, dtype, rng):
    for x in views(rng, dtype, 60):
        axis = int(rng.integers(x.ndim))
        for ours, theirs in (
            (tc.any, np.any),
            (tc.all, np.all),
            (tc.argmax, np.argmax),
            (tc.argmin, np.argmin),
            (tc.amax, np.max),
            (tc.amin, np.min),
        ):
            if dtype == "bool" and ours in (tc.argmax, tc.argmin, tc.amax, tc.amin):
                continue
            np.testing.assert_array_equal(ours(x, axis), theirs(x, axis), strict=True)
        if np.dtype(dtype).kind not in "f":
            np.testing.assert_array_equal(tc.sum(x, axis=axis), x.sum(axis, dtype=np.int64))


def test_nan_in_short_rows(isa, rng):
    for n in (1, 2, 5, 15, 16):
        x = rng.standard_normal((300, n)).astype(np.float32)
        x[rng.random(x.shape) < 0.2] = np.nan
        np.testing.assert_array_equal(tc.amax(x, 1), x.max(1))
        np.testing.assert_array_equal(tc.amin(x, 1), x.min(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_number_everywhere(isa, dtype):
    for n in (1, 3, 31, 5000):
        x = tc.zeros(3, n, 2, dtype=dtype)
        x.fill_(1)
        np.testing.assert_array_equal(x, np.ones((3, n, 2), dtype))
        x[1, :, 1] = 0
        assert x.long().sum().item() == 5 * n
        np.testing.assert_array_equal(tc.ones(n, dtype=dtype), np.ones(n, dtype))


def test_functions_of_bools(isa, rng):
    """Dense bools are read as bytes: any byte but 0 is true."""
    for n in (1, 7, 64, 20_001):
        a, b = (rng.choice(np.array([0, 1, 7, 128], np.uint8), n).view(np.bool_) for _ in range(2))
        x, y = a.view(np.uint8) != 0, b.view(np.uint8) != 0
        for name in ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"):
            expected = {"and": x & y, "or": x | y, "xor": x ^ y}[name.split("_")[1]]
            got = np.asarray(getattr(_core, name)(a, b))
            np.testing.assert_array_equal(got.view(np.uint8), expected.astype(np.uint8))
        for name, function in (
            ("eq", np.equal),
            ("ne", np.not_equal),
            ("lt", np.less),
            ("le", np.less_equal),
            ("gt", np.greater),
            ("ge", np.greater_equal),
        ):
            np.testing.assert_array_equal(np.asarray(getattr(_core, name)(a, b)).view(np.uint8), function(x, y).astype(np.uint8))
            for number in (False, True):
                np.testing.assert_array_equal(getattr(_core, name)(tc.as_tensor(a), number), function(x, number))
        np.testing.assert_array_equal(~tc.as_tensor(a), ~x)
        np.testing.assert_array_equal(_core.maximum(a, b), x | y)
        t = tc.tensor(x)
        t &= tc.tensor(y)
        np.testing.assert_array_equal(t, x & y)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("n", "length", "step"), [(10, 3, 1), (5000, 5, 2), (1000, 15, 1), (200_000, 5, 2)])
def test_the_last_of_overlapping_windows_stays(n, length, step, threads, request):
    """In C order, as if they were written one after another."""
    before = tc.get_num_threads()
    request.addfinalizer(lambda: tc.set_num_threads(before))
    tc.set_num_threads(threads)
    expected = np.zeros(n, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(expected, length, writeable=True)[::step]
    values = np.arange(windows.size, dtype=np.float64).reshape(windows.shape)
    for row, value in zip(windows, values, strict=True):
        row[:] = value
    for given in (values, values.astype(np.float32)):
        x = tc.zeros(n)
        x.unfold(0, length, step)[...] = tc.tensor(given)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(("length", "step"), [(3, 1), (5, 2), (15, 4), (5, 7)])
def test_the_last_of_windows_that_run_backwards_stays(isa, length, step, rng):
    memory, expected = np.zeros((2, 400), np.float32)
    row = rng.standard_normal(length).astype(np.float32)
    windows = [np.lib.stride_tricks.sliding_window_view(a, length, writeable=True)[::-step] for a in (memory, expected)]
    tc.from_numpy(windows[0]).copy_(tc.tensor(row))
    for window in windows[1]:
        window[:] = row
    np.testing.assert_array_equal(memory, expected)


# ---- matrices that are read down their columns: moved by tiles -----------------------------------------------------------

SHAPES = [(16, 16), (17, 33), (31, 129), (40, 15), (130, 257), (3, 20, 33), (20, 3, 33), (5, 64, 4, 18), (16, 1, 300)]


def bits(a):
    return np.ascontiguousarray(a).view(np.uint8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_transposed_copies(isa, threads, dtype, rng):
    """Every order of the axes, backwards along each, from memory with gaps and into it; NaN keeps its bits."""
    for shape in SHAPES:
        whole = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize)).astype(np.uint8)
        whole = (rng.random(shape) < 0.5) if dtype == "bool" else whole.view(dtype)[..., 0]
        for order in itertools.permutations(range(len(shape))):
            x = tc.from_numpy(whole).permute(*order)
            expected = whole.transpose(order)
            np.testing.assert_array_equal(bits(x.contiguous().numpy()), bits(expected))
            backwards = tc.as_tensor(whole[..., ::-1].transpose(order))
            np.testing.assert_array_equal(bits(backwards.contiguous().numpy()), bits(whole[..., ::-1].transpose(order)))
            around = np.full((2, *[n + 3 for n in expected.shape]), 7).astype(dtype)
            inside = (1, *[slice(1, n + 1) for n in expected.shape])
            wanted = around.copy()
            wanted[inside] = expected
            tc.from_numpy(around)[inside] = x
            np.testing.assert_array_equal(bits(around), bits(wanted))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_short_and_reversed_runs(isa, threads, dtype, rng):
    """Runs of all lengths around those that are moved in pieces, forward and backward, over several axes; any byte of a bool is true."""
    for length in (*range(1, 40), 63, 64, 65, 127, 128, 129, 300):
        whole = rng.integers(0, 256, (3, 7, 5, length * np.dtype(dtype).itemsize)).astype(np.uint8).view(dtype)
        for x in (whole, whole[..., 1:], whole[..., ::-1], whole[:, ::-1, :, ::-1], whole[..., :0:-1]):
            for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)):
                expected = np.ascontiguousarray(x.transpose(order))
                expected = (expected.view(np.uint8) != 0) if dtype == "bool" else expected
                np.testing.assert_array_equal(bits(tc.as_tensor(x).permute(*order).clone().numpy()), bits(expected))
        np.testing.assert_array_equal(
            bits(tc.cat([tc.as_tensor(whole)] * 2, 2).numpy()),
            bits(np.concatenate([whole.view(np.uint8) != 0 if dtype == "bool" else whole] * 2, 2)),
        )


@pytest.mark.parametrize("to", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_transposed_casts(isa, to, rng):
    for dtype in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool"):
        whole = tc.tensor(rng.integers(0, 2 if dtype == "bool" else 100, (40, 3, 150)).astype(dtype))
        for order in itertools.permutations(range(3)):
            x = whole.permute(*order)
            np.testing.assert_array_equal(x.to(to).double().numpy(), whole.to(to).permute(*order).contiguous().double().numpy())


@pytest.mark.parametrize("to", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_casts_of_pieces(isa, to, rng):
    """Short runs, gathered before they are cast, from any place on; and runs that are not."""
    for dtype in ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]:
        for shape in ((3, 5, 7, 1), (2, 33, 3, 64), (70, 9, 17), (5, 4, 300), (41, 3, 130)):
            x = tc.tensor(rng.integers(0, 3, shape)).to(dtype).transpose(0, 1)
            for view in (x, x[1:], x[..., 1:], x[:, ::2]):
                assert tc.equal(view.to(to), view.contiguous().to(to)), (dtype, shape)


def test_the_last_element_stays_where_a_copy_overlaps_itself(rng):
    x = rng.standard_normal((20, 33, 40)).astype(np.float32)
    for strides in ((1, 40, 1), (0, 40, 1), (3, 64, 1), (40, 1, 2)):
        memory = np.zeros(40 * 40 * 40, np.float32)
        expected = memory.copy()
        for place in np.ndindex(20, 40, 33):
            expected[np.dot(place, strides)] = x.swapaxes(1, 2)[place]
        view = np.lib.stride_tricks.as_strided(memory, (20, 40, 33), [4 * s for s in strides])
        if strides == (0, 40, 1):
            with pytest.raises(ValueError, match="repeats its elements"):
                tc.from_numpy(view).copy_(tc.tensor(x).transpose(1, 2))
            continue
        tc.from_numpy(view).copy_(tc.tensor(x).transpose(1, 2))
        np.testing.assert_array_equal(memory, expected)


ELEMENTWISE = {
    "neg": lambda x, y, m: -x,
    "exp": lambda x, y, m: x.exp(),
    "isnan": lambda x, y, m: tc.isnan(x),
    "scaled": lambda x, y, m: 2 - x,
    "add": lambda x, y, m: x + y,
    "twice": lambda x, y, m: x * x,
    "compare": lambda x, y, m: x < y,
    "where": lambda x, y, m: tc.where(m, x, y),
    "clamp": lambda x, y, m: x.clamp(-0.5, 0.5),
    "clamp by tensors": lambda x, y, m: x.clamp(-y.abs(), y.abs()),
    "addcmul": lambda x, y, m: x.addcmul(y, y),
    "lerp": lambda x, y, m: x.lerp(y, 0.3),
    "row": lambda x, y, m: x + y[..., :1],
    "mask": lambda x, y, m: x.masked_fill(m, 2.0),
    "logical": lambda x, y, m: m & (x > 0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_permuted_elements(name, dtype, threads, rng):
    """With the bits and the layout of what is contiguous; gradients as well, and in place."""
    function = ELEMENTWISE[name]
    for shape in ((128, 70), (20, 30, 40), (16, 32, 4, 32), (3, 7000)):
        values = [tc.tensor(rng.standard_normal(shape)).to(dtype) for _ in range(2)] + [tc.tensor(rng.random(shape) < 0.5)]
        values[0].view(-1)[::7] = float("nan")
        for order in itertools.permutations(range(len(shape))):
            permuted = [t.permute(*order) for t in values]
            dense = [t.contiguous() for t in permuted]
            for given in (permuted, [permuted[0], dense[1], permuted[2]], [dense[0], permuted[1], dense[2]]):
                found, expected = function(*given), function(*dense)
                assert found.is_contiguous()
                np.testing.assert_array_equal(found.double().numpy(), expected.double().numpy())
        leaves = [[t.clone().requires_grad_() for t in values[:2]] for _ in range(2)]
        found = function(*(t.permute(*order) for t in leaves[0]), permuted[2])
        if found.requires_grad:
            slope = tc.tensor(rng.standard_normal(tuple(found.shape))).to(dtype)
            found.backward(slope)
            function(*(t.permute(*order).contiguous() for t in leaves[1]), dense[2]).backward(slope)
            for one, other in zip(*leaves, strict=True):
                if one.grad is not None:
                    np.testing.assert_array_equal(one.grad.double().numpy(), other.grad.double().numpy())
        if dtype != "bfloat16" and found.dtype == values[0].dtype:
            target = permuted[0].clone()
            target += permuted[1]
            np.testing.assert_array_equal(target.numpy(), (dense[0] + dense[1]).numpy())
            turned = values[0].clone()
            turned.permute(*order).mul_(dense[1])
            np.testing.assert_array_equal(turned.permute(*order).numpy(), (dense[0] * dense[1]).numpy())


def test_functions_of_permuted_integers(threads, rng):
    x = tc.tensor(rng.integers(-100, 100, (20, 30, 40)))
    for order in itertools.permutations(range(3)):
        y = x.permute(*order)
        for function in (lambda x: x + x, lambda x: -x, lambda x: x % 7, lambda x: x > 3, lambda x: x / 3, lambda x: x.float().sqrt()):
            np.testing.assert_array_equal(function(y).numpy(), function(y.contiguous()).numpy())
            np.testing.assert_array_equal(function(y.int()).numpy(), function(y.contiguous().int()).numpy())
