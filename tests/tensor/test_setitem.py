"""Writing in place: how the tape records it, and what it refuses."""

import operator

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core


def test_a_buffer_filled_row_by_row_keeps_the_history():
    w = tc.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = tc.zeros(3, 2)
    for i in range(3):
        out[i] = w[i] * (i + 1)
    assert out.requires_grad and not out.is_leaf
    out.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0, 6.0]


def test_what_is_written_over_has_no_gradient():
    x = tc.ones(4, requires_grad=True)
    y = x * 3
    y[1:3] = 7.0
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 0.0, 0.0, 3.0]


def test_the_last_of_repeated_places_gets_the_gradient():
    v = tc.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = tc.zeros(2)
    x[[0, 0, 1]] = v
    assert x.tolist() == [2.0, 3.0]
    x.sum().backward()
    assert v.grad.tolist() == [0.0, 1.0, 1.0]


def test_value_is_summed_over_what_it_was_spread_along():
    v = tc.ones(1, requires_grad=True)
    x = tc.zeros(3, 4)
    x[:, [0, 2]] = v
    (x * 2).sum().backward()
    assert v.grad.tolist() == [12.0]


def test_value_is_cast_and_its_gradient_cast_back():
    v = tc.tensor(np.ones(2), requires_grad=True)
    x = tc.zeros(2, dtype="float32")
    x[:] = v
    x.sum().backward()
    assert v.grad.dtype == np.float64 and v.grad.tolist() == [1.0, 1.0]


def test_integers_take_values_but_no_history():
    v = tc.tensor([1.5, 2.5], requires_grad=True)
    x = tc.zeros(2, dtype="int64")
    x[:] = v
    assert x.tolist() == [1, 2] and not x.requires_grad


def test_leading_axes_of_length_one_are_dropped():
    v = tc.ones(1, 1, 3, requires_grad=True)
    x = tc.zeros(2, 3)
    x[0] = v
    x.sum().backward()
    assert v.grad.shape == (1, 1, 3) and v.grad.numpy().all()


def test_a_number_that_does_not_fit_is_not_written():
    x = tc.tensor([1, 2], dtype="uint8")
    for write in (
        lambda: x.__setitem__(0, 300),
        lambda: x.__setitem__([0, 1], -1),
        lambda: x.fill_(256),
        lambda: x[1:].copy_(np.float32(1e9)),
    ):
        with pytest.raises(ValueError, match="does not fit uint8, whose numbers are 0 to 255"):
            write()
    x[0] = np.array([300])  # an array is cast as NumPy casts it
    assert x.tolist() == [44, 2]


@pytest.mark.parametrize("further", [-5000, -64, -17, -1, 1, 15, 16, 63, 64, 513, 4099, 5000, 8195])
def test_copies_to_addresses_near_those_in_their_pages(further):
    """Contiguous ones, some in pieces; memory may overlap, and what is beside it stays as it was."""
    whole = np.random.default_rng(0).integers(0, 256, 20000).astype(np.uint8)
    for length in (1, 512, 513, 3000, 4099):
        memory, expected = whole.copy(), whole.copy()
        to, source = slice(6000 + further, 6000 + further + length), slice(6000, 6000 + length)
        t = tc.from_numpy(memory)
        t[to].copy_(t[source])
        expected[to] = whole[source]
        np.testing.assert_array_equal(memory, expected)


def test_overlapping_memory_is_read_first():
    a = np.arange(6.0)
    x = tc.as_tensor(a)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    b = np.arange(6.0)
    tc.as_tensor(b)[1:] = b[:-1]  # two Tensors over one array
    assert b.tolist() == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("step", [1, 2, -1, -2])
@pytest.mark.parametrize("to_step", [1, 3, -1, -3])
def test_two_arrays_over_one_memory_are_read_first(step, to_step):
    def part(a, first, step):
        return a[first:][: 3 * step : step] if step > 0 else a[: first - 3 * step][::step][:3]

    for first in range(9):
        for to in range(9):
            a, expected = np.arange(18.0), np.arange(18.0)
            part(expected, to, to_step)[:] = part(expected, first, step).copy()
            tc.as_tensor(part(a, to, to_step))[:] = part(a, first, step)
            np.testing.assert_array_equal(a, expected)


def test_a_number_is_written_at_a_mask_without_a_list_of_the_places():
    x = tc.ones(1 << 10, 1 << 10)
    mask = tc.tensor(np.arange(1 << 20).reshape(x.shape) % 3 > 0)
    before = _core.memory_stats()["in_use"]
    _core.memory_reset_peak()
    x[mask] = 5.0
    x[mask[:, 0]] = x[0, 1]
    assert _core.memory_stats()["peak_in_use"] - before < x.nbytes / 8
    assert tc.equal(x, tc.where(mask | mask[:, :1], 5.0, 1.0))


def test_the_gradient_of_a_number_written_at_a_mask():
    x, v = tc.ones(2, 3, requires_grad=True), tc.tensor([4.0], requires_grad=True)
    y, mask = x * 2, tc.tensor([[True, False, True], [False, True, False]])
    y[mask] = v
    y[mask[:, 1]] = 7.0
    mask[...] = False  # the backward has a copy
    (y * y).sum().backward()
    assert x.grad.tolist() == [[0.0, 8.0, 0.0], [0.0, 0.0, 0.0]] and v.grad.tolist() == [16.0]


WRITES_AT_A_MASK = {
    "index": lambda x, mask: operator.setitem(x, mask, 5.0),
    "number": lambda x, mask: x.masked_fill_(mask, 5.0),
    "tensor": lambda x, mask: x.masked_fill_(mask, tc.tensor(5.0)),
    "recorded": lambda x, mask: x.masked_fill_(mask, tc.tensor(5.0, requires_grad=True)),
}


@pytest.mark.parametrize("write", WRITES_AT_A_MASK.values(), ids=WRITES_AT_A_MASK)
@pytest.mark.parametrize("n", [8, 100_003])
def test_a_mask_of_windows_that_overlap(n, write):
    """What one window has outside the mask is not written back over what another one has in it."""
    x, expected = tc.zeros(n), np.zeros(n, np.float32)
    windows = x.unfold(0, 3, 1)
    mask = np.zeros(windows.shape, bool)
    mask[::2, 1] = True
    write(windows, tc.as_tensor(mask))
    np.lib.stride_tricks.sliding_window_view(expected, 3, writeable=True)[mask] = 5.0
    np.testing.assert_array_equal(x.detach(), expected)


@pytest.mark.parametrize("name", ["scatter_", "scatter_add_", "index_add_"])
def test_scattering_to_windows_that_overlap_is_refused(name):
    """What is not named would be written back over what is."""
    x = tc.arange(6.0)
    index = tc.tensor([0]) if name == "index_add_" else tc.zeros(1, 3, dtype="int64")
    with pytest.raises(ValueError, match="repeats its elements"):
        getattr(x.unfold(0, 3, 1), name)(0, index, tc.ones(1, 3))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_mask_in_the_memory_that_is_written():
    b = tc.tensor([True, False, True, True])
    b[1:][b[:-1]] = False
    assert b.tolist() == [True, False, True, False]
    b[b] = False
    assert not b.any()
    before = np.random.default_rng(0).random(3000) < 0.4
    for value in (True, False):
        for to, mask in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None)), (slice(None), slice(None, None, -1))):
            b, expected = tc.from_numpy(before.copy()), before.copy()
            b[to][tc.from_numpy(b.numpy()[mask])] = value
            expected[to][before[mask]] = value
            np.testing.assert_array_equal(b, expected)


def test_leaves_that_require_a_gradient_are_refused_while_recording():
    w = tc.ones(3, requires_grad=True)
    for write in (lambda: w.__setitem__(0, 5.0), lambda: w[1:].fill_(5.0), lambda: w[::2][1:].zero_(), lambda: w.__iadd__(1.0)):
        with pytest.raises(RuntimeError, match="leaf tensor that requires a gradient"):
            write()
    assert w.tolist() == [1, 1, 1]
    with tc.no_grad():
        w[0] = 5.0
        w[1:].fill_(2.0)
    w.data[2] = 9.0
    assert w.tolist() == [5, 2, 9] and w.is_leaf


def parts_written_in_place(library):
    """Values and gradients after y[k] op= v, which Python runs as v = y[k], v op= ..., y[k] = v."""
    a = library.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = a * 1
    y[1:] *= 2
    y[0] += y[1] + a.sum()
    y[::2] -= a[:2]
    y[[0, 2]] *= 3
    y[..., None] /= 4
    y[3:] += 1
    y[()] += 1
    view = y[:2]
    for factor in (2, 3):
        view *= factor
        y[:2] = view
    with library.no_grad():
        y[2] *= 5  # the history stays
    zeros = library.zeros(2, 3)
    zeros[0] += 1
    zeros[0, 1:] += a[1:] * y[0]
    zeros[:, 0] -= a[0]
    whole = y * 1
    loose = whole.detach()
    whole[0] = a[0] * 3
    loose[1] *= a[1]  # which the history of the whole does not know
    (loose.sum() + whole.sum()).backward(retain_graph=True)
    (zeros * zeros).sum().backward(retain_graph=True)
    (y * y).sum().backward()
    return y.tolist(), zeros.tolist(), a.grad.tolist()


def test_a_part_written_in_place_takes_the_history_along():
    a = tc.ones(3, requires_grad=True)
    y = a * 1
    y[1:] *= 2
    y[0] += a.sum()
    assert y.tolist() == [4.0, 2.0, 2.0]
    (y * y).sum().backward()
    assert a.grad.tolist() == [16.0, 16.0, 16.0]
    parts_written_in_place(tc)


def test_parts_written_in_place_are_pytorchs():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(parts_written_in_place(tc), parts_written_in_place(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_gradients_of_parts_written_in_place():
    def f(a, b):
        y, zeros = a * b, tc.zeros(4, 5, dtype="float64")
        y[1:, ::2] *= weights[0][1:, ::2]
        y[0] -= b[1]
        y[..., -1] += y[..., 0]
        zeros[:, 1] += y[:, 1]
        zeros[::-1] += b
        return y, zeros

    rng = np.random.default_rng(0)
    a, b = (tc.tensor(rng.normal(size=(4, 5)), requires_grad=True) for _ in range(2))
    weights = [tc.tensor(rng.normal(size=(4, 5))) for _ in range(2)]

    def total(a, b):
        return sum((w * r * r).sum() for w, r in zip(weights, f(a, b), strict=True))

    assert tc.testing.gradcheck(total, [a, b])
    large = tc.ones(200, 300, requires_grad=True)  # without the GIL
    y = large * 1
    y[:150] *= 2
    y[50:] += large[:150]
    y.sum().backward()
    assert large.grad.numpy()[:150].min() == 3.0 and large.grad[199, 0].item() == 1.0


def test_what_was_saved_before_a_part_was_written_is_refused():
    a = tc.ones(3, requires_grad=True)
    y = a * 2
    z = y * y
    y[1:] *= 2
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        z.sum().backward()
    z = y * y  # what is saved now is true
    z.sum().backward()
    assert a.grad.tolist() == [8.0, 32.0, 32.0]


def test_a_refused_write_to_a_part_changes_nothing():
    a = tc.ones(3, requires_grad=True)
    y, number = a * 1, tc.zeros(2, dtype="int64")
    with pytest.raises(ValueError, match=r"\(2,\)"):
        y[0] += tc.ones(2)
    with pytest.raises(TypeError, match=r"float32.*int64"):
        number[0] += 1.5
    with pytest.raises(RuntimeError, match="leaf tensor that requires a gradient"):
        a[1:] *= 2
    assert a.tolist() == y.tolist() == [1.0, 1.0, 1.0] and number.tolist() == [0, 0]
    y.sum().backward()
    assert a.grad.tolist() == [1.0, 1.0, 1.0]


def test_a_saved_value_that_was_overwritten_is_an_error():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y[0] = 5.0
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        z.sum().backward()
    assert x.grad is None


def test_a_saved_gradient_that_another_was_added_to_is_an_error():
    x = tc.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    y = x * x.grad
    (x * 100).sum().backward()
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        y.sum().backward()
    assert x.grad.tolist() == [102.0, 104.0]


def test_a_parameter_that_changed_after_the_forward_is_an_error():
    w = tc.ones(2, requires_grad=True)
    loss = (w * w).sum()
    with tc.no_grad():
        w.fill_(3.0)
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        loss.backward()


def test_results_may_be_written_without_recording():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    with tc.no_grad():
        y[0] = 100.0  # the caller knows: the history stays
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_operators_in_place():
    x = tc.ones(3, requires_grad=True)
    y = x * 1
    same = y
    y += x
    y *= 3
    y -= np.ones(3, np.float32)
    y /= 2
    assert y is same and y.tolist() == [2.5, 2.5, 2.5]
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_operators_in_place_take_no_memory(dtype):
    x, y = tc.ones(1 << 20, dtype=dtype), tc.arange(1024, dtype=dtype)
    part = x.view(1024, 1024)[::2]
    before = _core.memory_stats()["in_use"]
    _core.memory_reset_peak()
    x *= 3
    x += x
    part -= y  # broadcast
    assert _core.memory_stats()["peak_in_use"] - before < x.nbytes / 8
    assert tc.equal(part[7], 6 - y) and tc.equal(x[1024:2048], tc.full((1024,), 6, dtype=dtype))
    x[1:] += x[:-1]  # reads what it writes: a sum first
    assert x[:4].tolist() == [6, 11, 9, 7]


def test_in_place_keeps_shape_and_dtype():
    x = tc.zeros(3)
    x += np.ones(3)  # float64 into float32
    assert x.dtype == np.float32
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3,\)"):
        x += tc.ones(2, 3)
    n = tc.zeros(2, dtype="int64")
    with pytest.raises(TypeError, match=r"float32.*int64"):
        n += 1.5
    n += 2
    assert n.tolist() == [2, 2] and x.tolist() == [1, 1, 1]


def test_read_only_and_repeated_memory_is_refused():
    a = np.zeros(3)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only memory"):
        tc.as_tensor(a)[0] = 1
    with pytest.raises(ValueError, match="repeats its elements"):
        tc.zeros(1).expand(3)[:] = 1.0
    assert not a.any()


def test_a_value_that_does_not_fit_changes_nothing():
    x = tc.zeros(2, 3)
    with pytest.raises(ValueError, match=r"a value of shape \(2,\) cannot be written to a selection of shape \(2, 3\)"):
        x[:] = np.ones(2)
    with pytest.raises(ValueError, match=r"selection of shape \(2, 2\)"):
        x[:, [0, 1]] = np.ones(3)
    assert not x.numpy().any()


def test_fill_and_copy():
    x = tc.zeros(2, 2, dtype="int64")
    assert x.fill_(2**53 + 1) is x and x[0, 0].item() == 2**53 + 1
    assert x.zero_().tolist() == [[0, 0], [0, 0]]
    assert x.copy_(np.array([1, 2])).tolist() == [[1, 2], [1, 2]]
    with pytest.raises(ValueError, match="one number"):
        x.fill_([1, 2])


def test_new_data_has_no_past():
    """A gradient of another dtype goes, and what was written to the new memory before does not count."""
    p, v = tc.tensor([1.0, 2.0], requires_grad=True), tc.tensor(3.0, requires_grad=True)
    written = tc.zeros(2)
    written[0] = v
    p.data = written.detach()
    (p * 3.0).sum().backward()
    assert p.tolist() == [3.0, 0.0] and p.grad.tolist() == [3.0, 3.0] and v.grad is None
    p.data = p.data + 1.0
    assert p.grad.tolist() == [3.0, 3.0]
    p.data = p.data.double()
    assert p.grad is None
    (p * 3.0).sum().backward()
    assert p.grad.dtype == "float64"


def test_data_is_the_same_memory():
    p = tc.tensor([1.0, 2.0], requires_grad=True)
    p.data.fill_(3.0)
    assert p.tolist() == [3.0, 3.0] and p.is_leaf and not p.data.requires_grad
    other = tc.tensor([7.0, 8.0])
    view = p.numpy()
    p.data = other
    other[0] = 9.0
    assert p.tolist() == [9.0, 8.0] and view.tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        p.data = tc.zeros(3)
    with pytest.raises(TypeError, match="must be a Tensor"):
        p.data = np.zeros(2)


def test_rows_without_elements():
    """A recorded write looks for places that are written to twice: rows of nothing have places, in no memory."""
    x, value = tc.zeros(2**40, 0), tc.ones(2, 0, requires_grad=True)
    x[tc.tensor([5, 2**40 - 1])] = value
    x.sum().backward()
    assert value.grad.shape == (2, 0)
