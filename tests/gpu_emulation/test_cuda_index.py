"""x[indices] on a GPU: one kernel, whatever the indices, and gradients and writes that many points are put in order for."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import FLOATS, array, host
from tolerance import ROUNDING
from transformer_c import functional as F

pytestmark = pytest.mark.usefixtures("nothing_is_left")

MANY = 2600  # more than TC_SORT_MANY
ROUNDED = {"float32": 1e-5, "float64": 1e-12, **ROUNDING}


def launched(library, function):
    """The kernels, without their template arguments and namespaces."""
    library.launches()
    function()
    return [name.split("<")[0].split("::")[-1] for name in library.launches()]


EXPRESSIONS = {
    "rows": lambda i, j: np.s_[i],
    "columns": lambda i, j: np.s_[:, i],
    "pairs": lambda i, j: np.s_[i, j],
    "broadcast": lambda i, j: np.s_[i[:, None], j],
    "broadcast the other way": lambda i, j: np.s_[i, j[:, None]],
    "apart, with a step": lambda i, j: np.s_[i, ::-2, j],
    "not contiguous": lambda i, j: np.s_[i[::2], j[::-2]],
    "three": lambda i, j: np.s_[i, j, i],
}


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_selection_is_one_launch(emulated_gpu, emulated_library, name, kind, rng):
    """With and without a gradient, of any strides of x; a write finds its points by one kernel more."""
    values = array(rng, (3, 4, 5), "float32")
    i, j = np.array([2, 0, 1, 1], kind), np.array([1, 3, 3, 0], kind)
    if kind != "uint8":
        i, j = i - np.array([0, 3, 0, 3], kind), j - np.array([4, 0, 4, 0], kind)
    expression = EXPRESSIONS[name]
    index = expression(tc.tensor(i, device=emulated_gpu), tc.tensor(j, device=emulated_gpu))
    if name == "not contiguous":
        index = tuple(tc.tensor(part, device=emulated_gpu)[::step] for part, step in ((i, 2), (j, -2)))
    x = tc.tensor(values, device=emulated_gpu, requires_grad=True)
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    for whole in (x.detach(), x, turned):
        found = []
        assert launched(emulated_library, lambda w=whole, f=found: f.append(w[index])) == ["gather_kernel"]
        np.testing.assert_array_equal(host(found[0]), values[expression(i, j)])
    written, expected = x.detach().clone(), values.copy()
    assert launched(emulated_library, lambda: written.__setitem__(index, 7.0))[-2:] == ["points_kernel", "put_kernel"]
    expected[expression(i, j)] = 7
    np.testing.assert_array_equal(host(written), expected)


@pytest.mark.parametrize("where", ["cpu", "cuda:emulated"])
def test_a_recorded_write_finds_its_points_once(emulated_gpu, emulated_library, where, rng):
    """Of any strides of what is written to, with indices on either side; the gradients of both are those of the CPU."""
    values, written, dy = (array(rng, shape, "float32") for shape in ((3, 4, 5), (4, 5), (4, 3, 5)))
    rows, columns, results = np.array([2, 0, 1, 1]), np.array([1, 3, 3, 3]), []
    for device in ("cpu", emulated_gpu):
        for turned in (False, True):
            x, value = (tc.tensor(part, device=device, requires_grad=True) for part in (values.transpose(1, 0, 2), written))
            y = x * 1 if not turned else (x.transpose(0, 1).contiguous() * 1).transpose(0, 1)
            assert y.is_contiguous() != turned
            index = tuple(tc.tensor(part, device=where) for part in (columns, rows))
            names = launched(emulated_library, lambda y=y, i=index, v=value: y.__setitem__(i, v))
            y.backward(tc.tensor(dy, device=device))
            results.append([host(part) for part in (y.detach(), x.grad, value.grad)])
            if device != "cpu":
                assert names.count("points_kernel") == (where != "cpu")
    for result in results:
        for found, expected in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(found, expected)


def gradient(gpu, values, index, dy):
    x = tc.tensor(values, device=gpu, requires_grad=True)
    x[tuple(tc.tensor(part, device=gpu) for part in index)].backward(tc.tensor(dy, device=gpu))
    return host(x.grad)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("points", [40, MANY])
def test_gradients_of_repeated_points(emulated_gpu, emulated_library, points, dtype, rng):
    """Added in the order of the points: the bits of the CPU; beside float64."""
    values = array(rng, (7, 3), dtype)
    rows = rng.integers(-7, 7, points)
    dy = rng.standard_normal((points, 3)).astype(values.dtype)
    results = []
    names = launched(emulated_library, lambda: results.append(gradient(emulated_gpu, values, [rows], dy)))
    found = results[0]
    np.testing.assert_array_equal(found.view(np.uint8), gradient("cpu", values, [rows], dy).view(np.uint8))
    expected = np.zeros((7, 3))
    np.add.at(expected, rows, dy.astype(np.float64))
    rounding = ROUNDED[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=4 * rounding, atol=points * rounding)
    assert names.count("argsort_kernel") == (5 if points == MANY else 0)
    assert ("add_ordered_kernel" in names) == (points == MANY)


def test_gradients_of_many_elements(emulated_gpu, rng):
    """One place of two axes, and all points at one place."""
    values = array(rng, (5, 6), "float32")
    dy = rng.standard_normal(MANY).astype(np.float32)
    for rows, columns in ((rng.integers(0, 5, MANY), rng.integers(-6, 6, MANY)), (np.full(MANY, 3), np.full(MANY, -1))):
        found = gradient(emulated_gpu, values, [rows, columns], dy)
        np.testing.assert_array_equal(found, gradient("cpu", values, [rows, columns], dy))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_the_last_of_many_points_is_written(emulated_gpu, emulated_library, dtype, rng):
    values = array(rng, (7, 3), dtype)
    rows, written = rng.integers(-7, 7, MANY), array(rng, (MANY, 3), dtype)
    x, expected = tc.tensor(values, device=emulated_gpu), values.copy()
    index, source = tc.tensor(rows, device=emulated_gpu), tc.tensor(written, device=emulated_gpu)
    assert launched(emulated_library, lambda: x.__setitem__(index, source))[-1] == "put_ordered_kernel"
    for row, value in zip(rows, written, strict=True):
        expected[row] = value
    np.testing.assert_array_equal(host(x), expected)


@pytest.mark.parametrize("points", [5, MANY])
def test_an_index_out_of_range_counts_as_zeros(emulated_gpu, points, rng):
    """And is written nowhere; the error names the first one, of the first array that has one, with its axis."""
    values = array(rng, (4, 6), "float32")
    rows, columns = rng.integers(0, 4, points), rng.integers(0, 6, points)
    columns[[1, 3]] = 6, -9
    on_gpu = [tc.tensor(part, device=emulated_gpu) for part in (rows, columns)]
    x = tc.tensor(values, device=emulated_gpu, requires_grad=True)
    target = x.detach().clone()
    y = x[tuple(on_gpu)]
    y.backward(tc.ones(points, device=emulated_gpu))
    target[tuple(on_gpu)] = 100.0
    with pytest.raises(RuntimeError, match="index 6 is out of range for axis 1 of length 6 .in an earlier call"):
        tc.cuda.synchronize(emulated_gpu)
    good = np.delete(np.arange(points), [1, 3])
    expected, counts, written = np.zeros(points, np.float32), np.zeros((4, 6)), values.copy()
    expected[good] = values[rows[good], columns[good]]
    np.add.at(counts, (rows[good], columns[good]), 1)
    written[rows[good], columns[good]] = 100
    np.testing.assert_array_equal(host(y), expected)
    np.testing.assert_array_equal(host(x.grad), counts)
    np.testing.assert_array_equal(host(target), written)


def test_indices_of_nothing_are_checked(emulated_gpu):
    x, index = tc.zeros(3, 0, device=emulated_gpu, requires_grad=True), tc.tensor([0, 5], device=emulated_gpu)
    y = x[index]
    y.backward(tc.zeros(2, 0, device=emulated_gpu))
    assert y.shape == (2, 0) and x.grad.shape == (3, 0)
    with pytest.raises(RuntimeError, match="index 5 is out of range for axis 0 of length 3"):
        tc.cuda.synchronize(emulated_gpu)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_gradient_of_many_rows_of_a_table(emulated_gpu, emulated_library, dtype, rng):
    """Positions are sorted, which takes fewer steps than each row of the table reading all indices; the same sums."""
    indices = rng.integers(0, 50, MANY)
    table, dy = array(rng, (50, 3), dtype), rng.standard_normal((MANY, 3)).astype(array(rng, 1, dtype).dtype)
    found, names = [], []
    for place in ("cpu", emulated_gpu):
        weight, index = tc.tensor(table, device=place, requires_grad=True), tc.tensor(indices, device=place)
        y = F.embedding(index, weight, padding_idx=3)
        names = launched(emulated_library, lambda y=y, p=place: y.backward(tc.tensor(dy, device=p)))
        found.append(host(weight.grad))
    expected = np.zeros((50, 3))
    np.add.at(expected, indices, dy.astype(np.float64))
    expected[3] = 0
    rounding = ROUNDED[dtype]
    for result in found:
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=4 * rounding, atol=100 * rounding)
    assert names == ["argsort_kernel"] * 5 + ["start_of_sorted_kernel", "backward_kernel"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_writes_through_views_have_the_cpus_gradients(emulated_gpu, dtype, rng):
    values, results = array(rng, (3, 4), dtype), []
    for device in ("cpu", emulated_gpu):
        x = tc.tensor(values, device=device, requires_grad=True)
        y = x * 2
        column = y[:, 1]
        y[0].add_(1)
        y.T[2].mul_(x[:, 0])
        y[1][1:] *= 0.5
        column.mul_(column.detach().clone())
        (y.sum() + column.sum()).backward()
        results.append([host(part) for part in (y.detach(), column.detach(), x.grad)])
    for ours, expected in zip(*reversed(results), strict=True):
        np.testing.assert_array_equal(ours, expected)
