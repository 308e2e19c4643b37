"""x[...] and x[...] = v against NumPy, on hundreds of random expressions, with gradients."""

import warnings

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.testing import gradcheck

CASES = 300


def random_shape(rng, most=4):
    return tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, size=rng.integers(1, most + 1)))


def random_slice(rng, length):
    def end():
        return None if rng.random() < 0.4 else int(rng.integers(-length - 2, length + 3))

    step = None if rng.random() < 0.5 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
    return slice(end(), end(), step)


def random_index(rng, shape):
    """An expression for arrays of this shape; arrays in it broadcast together."""
    entries, axis, count = [], 0, int(rng.integers(1, 4))
    ellipsis = False
    while axis < len(shape) and len(entries) < len(shape) + 2:
        kind = rng.choice(
            ["int", "slice", "array", "mask", "new", "ellipsis", "stop", "row", "bool"],
            p=[0.2, 0.3, 0.15, 0.08, 0.08, 0.06, 0.04, 0.07, 0.02],
        )
        length = shape[axis]
        if kind == "stop":
            break
        if kind == "new":
            entries.append(None)
        elif kind == "bool":
            entries.append(bool(rng.random() < 0.7))
        elif kind == "ellipsis":
            if ellipsis:
                continue
            ellipsis = True
            entries.append(...)
            axis += int(rng.integers(0, len(shape) - axis + 1))
        elif kind == "mask":
            rank = int(rng.integers(1, len(shape) - axis + 1))
            entries.append(rng.random(shape[axis : axis + rank]) < 0.5)
            axis += rank
        else:
            if kind == "slice":
                entries.append(random_slice(rng, length))
            elif length == 0:
                entries.append(np.zeros(0, np.int64) if kind == "array" else slice(None))
            elif kind == "int":
                entries.append(int(rng.integers(-length, length)))
            else:
                entries.append(rng.integers(-length, length, size=(count,) if kind == "array" else (2, 1)))
            axis += 1
    return tuple(entries)


def dressed(rng, index):
    """The same expression with its arrays as Tensors, lists or ndarrays of other dtypes."""
    out = []
    for entry in index:
        if isinstance(entry, np.ndarray):
            choice = rng.integers(4)
            if choice == 0:
                entry = tc.tensor(entry)
            elif choice == 1 and entry.size:
                entry = entry.tolist()
            elif choice == 2 and entry.dtype != bool:
                entry = entry.astype(np.int32)
        out.append(entry)
    return tuple(out) if len(out) != 1 or rng.random() < 0.5 or isinstance(out[0], tuple) else out[0]


def layouts(rng, array):
    """The array under another layout: transposed, stepped, backwards."""
    kind = rng.integers(4)
    if kind == 1:
        return np.asfortranarray(array)
    if kind == 2:
        return np.repeat(array, 2, axis=0)[::2]
    if kind == 3:
        return array[::-1].copy()[::-1]
    return array


def numpy_result(array, index):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy 1 only warns of an index out of range where the result is empty
        try:
            return array[index]
        except (IndexError, ValueError, DeprecationWarning) as error:
            return error


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.float16])
def test_reading_is_numpys(rng, dtype):
    for case in range(CASES):
        shape = random_shape(rng)
        array = layouts(rng, (rng.standard_normal(shape) * 50).astype(dtype))
        index = random_index(rng, shape)
        expected = numpy_result(array, index)
        x = tc.as_tensor(array)
        if isinstance(expected, Exception):
            with pytest.raises((IndexError, ValueError)):
                x[dressed(rng, index)]
            continue
        actual = x[dressed(rng, index)]
        assert isinstance(actual, tc.Tensor) and actual.dtype == array.dtype
        np.testing.assert_array_equal(actual.numpy(), expected, err_msg=f"case {case}: shape {shape}, index {index}")


def test_gradient_counts_every_visit(rng):
    """The gradient of sum(x[index] * w) is w added up where it was read."""
    for case in range(CASES):
        shape = random_shape(rng)
        array = rng.standard_normal(shape)
        index = random_index(rng, shape)
        expected = numpy_result(array, index)
        if isinstance(expected, Exception):
            continue
        w = rng.standard_normal(np.shape(expected))
        gradient = np.zeros(shape)
        np.add.at(gradient, index, w)
        base = tc.tensor(layouts(rng, array), requires_grad=True)
        x = base.clone() if case % 3 else (base * 1.0)[::-1].contiguous()[::-1]
        x[dressed(rng, index)].backward(tc.tensor(w))
        np.testing.assert_allclose(
            base.grad.numpy(), gradient, rtol=1e-12, atol=1e-12, err_msg=f"case {case}: shape {shape}, index {index}"
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_writing_is_numpys(rng, dtype):
    for case in range(CASES):
        shape = random_shape(rng)
        array = layouts(rng, (rng.standard_normal(shape) * 50).astype(dtype)).copy(order="K")
        index = random_index(rng, shape)
        selected = numpy_result(array, index)
        if isinstance(selected, Exception):
            continue
        value = (rng.standard_normal(np.shape(selected)) * 50).astype(np.float64)
        if value.ndim and rng.random() < 0.3:
            value = value[:1]
        if rng.random() < 0.2:
            value = float(rng.standard_normal())
        x = tc.as_tensor(array.copy(order="K"))
        try:
            with np.errstate(invalid="ignore"):
                array[index] = value
        except ValueError:
            with pytest.raises(ValueError):
                x[dressed(rng, index)] = value
            continue
        x[dressed(rng, index)] = tc.tensor(value) if isinstance(value, np.ndarray) and rng.random() < 0.5 else value
        np.testing.assert_array_equal(x.numpy(), array, err_msg=f"case {case}: shape {shape}, index {index}")


def test_gradient_of_writing(rng):
    """Central differences of both the target and the value, repeated places among them."""
    for _ in range(60):
        shape = random_shape(rng, 3)
        array, index = rng.standard_normal(shape), random_index(rng, shape)
        selected = numpy_result(array, index)
        if isinstance(selected, Exception) or not array.size:
            continue
        value = rng.standard_normal(np.shape(selected))
        if value.ndim and rng.random() < 0.4:
            value = value[:1]
        w = rng.standard_normal(shape)

        def written(x, v, index=index, w=w):
            y = x * 1.0
            y[index] = v
            return (y * w).sum()

        if value.size:
            assert gradcheck(written, (array, value))


def test_repeated_places_give_the_same_bits(rng, threads):
    index = rng.integers(0, 7, size=5000)
    x = tc.tensor(rng.standard_normal((7, 33)).astype(np.float32), requires_grad=True)
    w = rng.standard_normal((5000, 33)).astype(np.float32)
    gradients = []
    for _ in range(2):
        x.grad = None
        x[index].backward(tc.tensor(w))
        gradients.append(x.grad.numpy().copy())
    expected = np.zeros((7, 33), np.float32)
    np.add.at(expected, index, w)  # the same order of additions
    np.testing.assert_array_equal(gradients[0], gradients[1])
    np.testing.assert_array_equal(gradients[0], expected)


def test_half_gradients_add_up_in_float32():
    x = tc.zeros(1, 2, dtype="float16", requires_grad=True)
    x[np.zeros(3000, np.int64)].sum().backward()
    assert x.grad.tolist() == [[3000.0, 3000.0]]
    long = tc.zeros(100_000, 2, dtype="float16", requires_grad=True)  # of which less than one element in eight is taken
    long[np.full(3000, 77_777)].sum().backward()
    assert long.grad[77_777].tolist() == [3000.0, 3000.0] and long.grad.sum().item() == 6000


def test_every_instruction_set(isa, rng):
    array = rng.standard_normal((5, 6, 7))
    x = tc.tensor(array, requires_grad=True)
    index = rng.integers(0, 6, size=(2, 3))
    y = x[:, index]
    np.testing.assert_array_equal(y.numpy(), array[:, index])
    y.sum().backward()
    expected = np.zeros(array.shape)
    np.add.at(expected, (slice(None), index), 1.0)
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8])
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3), (50, 4), (7, 50), (7, 50, 5), (3, 50, 2, 9), (50, 5000), (2000, 50)])
@pytest.mark.parametrize("layout", ["C", "F", "stepped"])
def test_many_points_in_every_instruction_set(isa, rng, dtype, shape, layout):
    """More elements than one item of a kernel has, whose first and last one may lie within a row."""
    array = np.asarray((rng.standard_normal(shape) * 50).astype(dtype), order="F" if layout == "F" else "C")
    if layout == "stepped":
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    index = rng.integers(-50, 50, size=10 if shape in ((50, 5000), (2000, 50)) else 3000)
    key = (slice(None),) * shape.index(50) + (index,)
    x, expected = tc.as_tensor(array), array.copy()
    np.testing.assert_array_equal(x[key].numpy(), expected[key])
    y = tc.as_tensor(np.copy(array, order="K"))
    for value in (array.dtype.type(3), (rng.standard_normal(expected[key].shape) * 50).astype(dtype)):
        expected[key] = y[key] = value
        np.testing.assert_array_equal(y.numpy(), expected)
    if dtype != np.float64:
        return
    weight, counted = rng.standard_normal(expected[key].shape), np.zeros(shape)
    (x := x.requires_grad_())[key].backward(tc.as_tensor(weight))
    np.add.at(counted, key, weight)
    np.testing.assert_array_equal(x.grad.numpy(), counted)


def test_basic_index_is_a_view():
    x = tc.zeros(3, 4)
    x[1][2:] = 5
    assert x[1].tolist() == [0, 0, 5, 5]
    assert x[::-1].stride() == (-4, 1)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (5, "index 5 is out of range for axis 0 of length 3"),
        ((0, -5), "index -5 is out of range for axis 1 of length 4"),
        ((0, 0, 0), "too many indices: 3 for a tensor of 2 axes"),
        ([0, 3], "index 3 is out of range for axis 0 of length 3"),
        ((..., ...), "one ellipsis"),
        (1.5, "not with float of dtype float64"),
        ("a", "indexed with ints"),
        (np.ones(3), "an array of dtype float64"),
        (np.ones((3, 5), bool), r"length 5 where axis 1 of the tensor \(3, 4\) has length 4"),
        (np.ones(2, bool), r"length 2 where axis 0 of the tensor \(3, 4\) has length 3"),
        (np.ones((3, 3), bool), r"length 3 where axis 1 of the tensor \(3, 4\) has length 4"),
        ((slice(None), np.ones(3, bool)), r"length 3 where axis 1 of the tensor \(3, 4\) has length 4"),
        ((None,) * 15, "the selection has more than 16 axes"),
        ((None,) * 33, "the selection has more than 16 axes"),
        (np.zeros((1,) * 16, int), "the selection has 17 axes; at most 16 are supported"),
        ((None,) * 7 + (np.zeros((1,) * 9, int),), "the selection has 17 axes; at most 16 are supported"),
        (([0, 1], [0, 1, 2]), r"index arrays of shapes \(2,\) and \(3,\) do not broadcast"),
    ],
)
def test_errors_say_what_came(index, message):
    x = tc.zeros(3, 4)
    with pytest.raises(IndexError, match=message):
        x[index]
    with pytest.raises(IndexError, match=message):
        x[index] = 1
    assert not x.numpy().any()


def test_a_selection_has_up_to_16_axes():
    x = tc.tensor([[1.0, 2.0]])
    for index in ((None,) * 14, (0, ..., *(None,) * 15), np.zeros((1,) * 15, int), ((None,) * 7 + (np.zeros((1,) * 8, int),))):
        y = x[index]
        assert y.ndim == 16 and y.reshape(2).tolist() == [1.0, 2.0]


def test_index_arrays_of_too_many_points():
    x, one, two = tc.zeros(3, 4), tc.zeros(2**40, 1, 0, dtype=tc.int64), tc.zeros(1, 2**40, 0, dtype=tc.int64)
    with pytest.raises(ValueError, match="the index arrays select too many elements"):
        x[one, two]
    with pytest.raises(ValueError, match="the index arrays select too many elements"):
        x[one, two] = 1


def test_float_tensor_is_no_index():
    with pytest.raises(IndexError, match="must be of integers or bools, this one is float32"):
        tc.zeros(3)[tc.zeros(2)]


def test_zero_step_and_deletion():
    with pytest.raises(ValueError, match="step"):
        tc.zeros(3)[::0]
    x = tc.zeros(3)
    with pytest.raises(TypeError, match="deleted"):
        del x[0]


def test_where_of_a_condition_gives_indices(rng):
    mask = rng.random((4, 5)) < 0.4
    for ours, numpys in zip(tc.where(tc.tensor(mask)), np.where(mask), strict=True):
        assert isinstance(ours, tc.Tensor) and ours.dtype == np.int64
        np.testing.assert_array_equal(ours.numpy(), numpys)
    assert all(type(i) is np.ndarray for i in tc.where(mask))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_the_indices_of_a_mask(rng, share):
    """Rows of all lengths around the eight bytes that are skipped at once; axes without elements; not contiguous; numbers."""
    for shape in [(n,) for n in range(30)] + [(3, n) for n in range(20)] + [(4, 0, 5), (2, 3, 17), (5, 1, 1, 8), (40, 16), (3000,)]:
        whole = rng.random(shape) < share
        for mask in (whole, whole.T, whole[::-1], whole[..., ::2]):
            rows, apart = np.argwhere(mask), np.nonzero(mask)
            for x in (tc.tensor(mask.copy()), tc.from_numpy(mask), tc.tensor(mask * -1.5)):
                found = tc.nonzero(x)
                assert found.is_contiguous() and found.shape == rows.shape and found.dtype == np.int64
                np.testing.assert_array_equal(found.numpy(), rows)
                for ours, numpys in zip(tc.nonzero(x, as_tuple=True), apart, strict=True):
                    np.testing.assert_array_equal(ours.numpy(), numpys)
            values = rng.standard_normal(mask.shape)
            np.testing.assert_array_equal(tc.tensor(values)[tc.tensor(mask.copy())].numpy(), values[mask])
    assert [tuple(tc.nonzero(tc.tensor(x)).shape) for x in (1.0, 0.0)] == [(1, 0), (0, 0)]
    assert [place.tolist() for place in tc.nonzero(tc.tensor(2), as_tuple=True)] == [[0]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_elements_where_a_mask_is_set(rng, dtype):
    """With the bits of what a recorded selection, and NumPy, choose; of views, and by masks over fewer axes, as well."""
    for shape in ((0,), (7,), (8, 9), (3, 1, 21), (50, 64)):
        for share in (0.0, 0.05, 0.5, 1.0):
            x, mask = tc.tensor(rng.standard_normal(shape) * 5).to(dtype), rng.random(shape) < share
            chosen = x.double().numpy()[mask]
            m = tc.tensor(mask)
            for given, by in ((x, m), (x.clone().permute(*range(x.ndim)[::-1]), m.permute(*range(x.ndim)[::-1])), (x[::1], m)):
                found = given[by]
                assert found.dtype == x.dtype and found.is_contiguous()
                np.testing.assert_array_equal(found.double().numpy(), given.double().numpy()[by.numpy()])
            np.testing.assert_array_equal(x.masked_select(m).double().numpy(), chosen)
            np.testing.assert_array_equal(x.requires_grad_(x.is_floating_point())[m].detach().double().numpy(), chosen)
            if shape[0]:
                np.testing.assert_array_equal(
                    x.detach()[m[:, 0] if m.ndim == 2 else m].double().numpy(),
                    x.detach().double().numpy()[mask[:, 0] if m.ndim == 2 else mask],
                )
    bytes_ = np.arange(16, dtype=np.uint8)  # of which all but one are true
    truth = tc.as_tensor(bytes_.view(np.bool_))
    assert truth[truth].numpy().view(np.uint8).tolist() == [1] * 15
    x = tc.arange(16)
    y = x[truth]
    y += 1
    assert x.tolist() == list(range(16)) and y.tolist() == list(range(2, 17))


def test_the_last_of_repeated_places_gets_the_gradient(rng):
    for shape, count in (((7,), 30), ((9, 5), 100), ((4, 8, 3), 1), ((300, 300), 500)):
        places = [rng.integers(0, n, count) for n in shape[:2]]
        values, whole = rng.standard_normal((count, *shape[2:])), rng.standard_normal(shape)
        x, v = tc.tensor(whole).requires_grad_(), tc.tensor(values).requires_grad_()
        y = x.index_put(tuple(map(tc.tensor, places)), v)
        slope = rng.standard_normal(shape)
        y.backward(tc.tensor(slope))
        last = {place: k for k, place in enumerate(zip(*places, strict=True))}
        dx, dv, expected = slope.copy(), np.zeros_like(values), whole.copy()
        for place, k in last.items():
            dx[place], dv[k], expected[place] = 0, slope[place], values[k]
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        np.testing.assert_array_equal(x.grad.numpy(), dx)
        np.testing.assert_array_equal(v.grad.numpy(), dv)


def test_an_array_is_indexed_by_a_tensor():
    assert np.arange(5)[tc.tensor([1, 3])].tolist() == [1, 3]
    assert [10, 20, 30][tc.tensor(2)] == 30


def test_index_arrays_are_copied_for_the_backward():
    x = tc.ones(3, requires_grad=True)
    index = np.array([0, 1])
    y = x[index]
    index[:] = 10**9
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 0]
