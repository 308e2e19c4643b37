"""Views: the shapes and values of NumPy and PyTorch, shared memory, gradients, and what is refused."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.testing import gradcheck

X = np.arange(24.0).reshape(2, 3, 4)

VIEWS = [
    ("reshape", lambda t: t.reshape(4, 6), lambda a: a.reshape(4, 6)),
    ("reshape -1", lambda t: t.reshape((-1, 2)), lambda a: a.reshape(-1, 2)),
    ("view", lambda t: t.view(6, -1), lambda a: a.reshape(6, 4)),
    ("flatten", lambda t: t.flatten(1), lambda a: a.reshape(2, 12)),
    ("permute", lambda t: t.permute(2, 0, -2), lambda a: a.transpose(2, 0, 1)),
    ("transpose", lambda t: t.transpose(-1, 0), lambda a: a.swapaxes(-1, 0)),
    ("swapaxes", lambda t: t.swapaxes(1, 2), lambda a: a.swapaxes(1, 2)),
    ("T", lambda t: t.T, lambda a: a.T),
    ("mT", lambda t: t.mT, lambda a: a.swapaxes(-1, -2)),
    ("backwards", lambda t: t[::-1, :, ::-1], lambda a: np.flip(a, (0, -1))),
    ("unsqueeze", lambda t: t.unsqueeze(-1), lambda a: a[..., None]),
    ("squeeze", lambda t: t[:, :1].squeeze(1), lambda a: a[:, 0]),
    ("squeeze all", lambda t: t[:1, :, :1].squeeze(), lambda a: a[0, :, 0]),
    ("expand", lambda t: t[:, :1].expand(5, -1, 3, 4), lambda a: np.broadcast_to(a[:, :1], (5, 2, 3, 4))),
    ("narrow", lambda t: t.narrow(2, 1, 2), lambda a: a[:, :, 1:3]),
    ("narrow to all", lambda t: t.narrow(2, 0, 4), lambda a: a),
    ("narrow to the end", lambda t: t.narrow(-1, -3, 3), lambda a: a[:, :, 1:]),
    ("chunk", lambda t: t.chunk(3, dim=2)[0], lambda a: a[:, :, :2]),
    ("split", lambda t: t.split(2, 1)[1], lambda a: a[:, 2:]),
    ("split sizes", lambda t: t.split([1, 3], -1)[1], lambda a: a[..., 1:]),
    ("unbind", lambda t: t.unbind(1)[2], lambda a: a[:, 2]),
    ("unfold", lambda t: t.unfold(2, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=2)),
    ("unfold with gaps", lambda t: t.unfold(1, 1, 2), lambda a: a[:, ::2, :, None]),
]


@pytest.mark.parametrize(("ours", "numpys"), [v[1:] for v in VIEWS], ids=[v[0] for v in VIEWS])
@pytest.mark.parametrize("layout", ["C", "Fortran", "backwards"])
def test_values_memory_and_gradient(ours, numpys, layout):
    array = {"C": X.copy(), "Fortran": np.asfortranarray(X), "backwards": X[::-1].copy()[::-1]}[layout]
    x = tc.as_tensor(array)
    try:
        y = ours(x)
    except ValueError:
        assert layout != "C"  # view() of memory that cannot be read so
        return
    np.testing.assert_array_equal(y.numpy(), numpys(array))
    if not (y.is_contiguous() and not x.is_contiguous()):
        assert np.shares_memory(np.asarray(y), array)
    assert gradcheck(lambda t: ours(t * 1.0) * 2.0, tc.tensor(array))


def test_view_never_copies_reshape_may():
    x = tc.arange(6).reshape(2, 3).T
    with pytest.raises(ValueError, match=r"\(3, 2\) cannot be read as \(6,\) without a copy"):
        x.view(6)
    y = x.reshape(6)
    assert y.tolist() == [0, 3, 1, 4, 2, 5] and y.data_ptr() != x.data_ptr()


LAYOUTS = {  # of an array of shape (4, 6, 2)
    "gaps": lambda a: a[:, :4],
    "gaps everywhere": lambda a: a[::2, ::3, :1],
    "an axis of one in between": lambda a: a[:, 1:2],
    "new axes": lambda a: a[:, None, :, ::2, None],
    "backwards": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.transpose(1, 0, 2),
    "fronts exchanged": lambda a: a.reshape(2, 2, 6, 2).transpose(1, 0, 2, 3),
    "repeated": lambda a: np.broadcast_to(a[:, :1], (4, 3, 2)),
}


def factorisations(n, axes):
    if axes == 1:
        return [(n,)]
    return [(d, *rest) for d in range(1, n + 1) if n % d == 0 for rest in factorisations(n // d, axes - 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reshapes_are_numpys_and_views_where_its_are(layout):
    base = np.arange(48.0).reshape(4, 6, 2)
    array = LAYOUTS[layout](base)
    x = tc.as_tensor(array)
    for shape in [shape for axes in (1, 2, 3, 4) for shape in factorisations(array.size, axes)]:
        np.testing.assert_array_equal(x.reshape(shape), array.reshape(shape))
        if np.shares_memory(array.reshape(shape), base):
            np.testing.assert_array_equal(x.view(shape), array.reshape(shape))
        else:
            with pytest.raises(ValueError, match="without a copy"):
                x.view(shape)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 10, 17])
def test_few_and_many_pieces(count):
    x = tc.tensor(np.arange(2.0 * count).reshape(count, 2), requires_grad=True)
    for pieces in (x.unbind(), x.split(1), x.chunk(count)):
        assert [p.reshape(-1).tolist() for p in pieces] == x.tolist()
        x.grad = None
        tc.stack([p.reshape(-1) * n for n, p in enumerate(pieces)]).sum().backward()
        assert x.grad.tolist() == [[n, n] for n in range(count)]


def test_gradients_of_windows_in_any_memory():
    x = tc.tensor(np.arange(6.0), requires_grad=True)
    weights = np.arange(12.0).reshape(3, 4)
    for memory in (tc.tensor(weights.T.copy()), tc.as_tensor(weights.T.copy()[::-1])[::-1], tc.tensor(weights).T):
        x.grad = None
        x.unfold(0, 3, 1).backward(memory)
        assert x.grad.tolist() == [sum(weights[j, i - j] for j in range(3) if 0 <= i - j < 4) for i in range(6)]
    x.grad = None
    x.unfold(0, 3, 1).sum().backward()
    assert x.grad.tolist() == [1, 2, 3, 3, 2, 1]


def test_zero_size_and_no_axes():
    e = tc.zeros(2, 0, 3, requires_grad=True)
    assert e.reshape(0, 5).shape == (0, 5) and e.permute(2, 1, 0).shape == (3, 0, 2) and e.flip(0).shape == e[::-1].shape == (2, 0, 3)
    e.transpose(0, 1).sum().backward()
    assert e.grad.shape == (2, 0, 3)
    s = tc.tensor(3.0, requires_grad=True)
    assert s.T.item() == 3.0 and s.reshape(1, 1).shape == (1, 1) and s.unsqueeze(0).shape == (1,) and s.expand(2).tolist() == [3, 3]
    s.expand(4).sum().backward()
    assert s.grad.item() == 4.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.reshape(5, 5), ValueError, r"\(2, 3, 4\) \(24 elements\) cannot be given the shape \(5, 5\)"),
        (lambda t: t.reshape(-1, -1), ValueError, "cannot be given"),
        (lambda t: t[:0].reshape(0, -1), ValueError, r"\(0, 3, 4\) \(0 elements\) cannot be given the shape \(0, -1\)"),
        (lambda t: t.expand(-1, 2, 3, 4), ValueError, "cannot be expanded"),
        (lambda t: t[:0].expand(5, 3, 4), ValueError, "cannot be expanded"),
        (lambda t: t.narrow(0, 3, 0), IndexError, "outside"),
        (lambda t: t.narrow(0, -3, 1), IndexError, "outside"),
        (lambda t: t.permute(0, 1), ValueError, "2 axes were given for a tensor of 3"),
        (lambda t: t.permute(0, 1, 1), ValueError, "named twice"),
        (lambda t: t.transpose(0, 3), IndexError, "3 is out of range for a tensor of 3 axes"),
        (lambda t: t.flip(0, -3), ValueError, "named twice"),
        (lambda t: t.unsqueeze(4), IndexError, "out of range"),
        (lambda t: t.flatten(2, 1), ValueError, "start_dim 2 comes after end_dim 1"),
        (lambda t: t.split(1, 3), IndexError, "out of range"),
        (lambda t: tc.ones(1).expand(2**32).split(1), ValueError, "4294967296 pieces are too many"),
        (lambda t: t.expand(2, 5, 4), ValueError, r"\(2, 3, 4\) cannot be expanded to \(2, 5, 4\)"),
        (lambda t: t.split([1, 1], 2), ValueError, r"split_size is \[1, 1\]; .* add up to the length of axis 2"),
        (lambda t: t.chunk(0), ValueError, "at least 1"),
        (lambda t: t.narrow(0, 1, 5), IndexError, "outside"),
        (lambda t: t.unfold(0, 3, 1), ValueError, "windows of 3"),
        (lambda t: tc.zeros([1] * 16).unfold(0, 1, 1), ValueError, "a tensor has at most 16 axes; unfold adds one"),
        (lambda t: t.sum().narrow(0, 0, 1), ValueError, "narrow needs a tensor of at least one axis"),
        (lambda t: t.sum().split(1), ValueError, "needs a tensor of at least one axis"),
        (lambda t: tc.cat([tc.zeros(2**61, 0, dtype=tc.uint8)] * 4), ValueError, "along axis 0 add up to more than memory can address"),
        (lambda t: t.size(7), IndexError, "out of range"),
        (lambda t: t.sum().size(0), IndexError, r"without axes .* shape is \(\)"),
        (lambda t: t.sum().stride(-1), IndexError, "without axes"),
        (lambda t: tc.zeros(2).mT, ValueError, "at least 2 axes"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(tc.tensor(X))


def test_a_number_has_one_axis_for_what_asks_for_one():
    x = tc.tensor(3.0)
    for y in (x.flip(0), x.flip(-1), x.squeeze(0), x.squeeze(-1), x.transpose(0, -1), x.unsqueeze(0).squeeze(0)):
        assert y.shape == () and y.item() == 3
    assert x.flatten().tolist() == x.flatten(0, -1).tolist() == [3]


def test_all_pieces_of_a_split_have_a_gradient():
    x = tc.tensor(X, requires_grad=True)
    q, k, v = x.split([1, 1, 2], -1)
    (q * 2 + v.sum(-1, keepdims=True) * 3).sum().backward()  # nothing comes back through k
    assert k.requires_grad
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to([2.0, 0.0, 3.0, 3.0], X.shape))


def test_a_split_into_any_number_of_pieces():
    x = tc.tensor(np.arange(5050.0), requires_grad=True)
    pieces = x.split(list(range(1, 101)))
    assert [len(p) for p in pieces] == list(range(1, 101))
    sum(p.sum() * n for n, p in enumerate(pieces)).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.repeat(np.arange(100.0), np.arange(1, 101)))
    assert len(x.split(2**70)) == len(x.split(2**63 - 1)) == 1 and len(x.chunk(2**63 - 1)) == 5050
    assert tc.zeros(0).split([]) == () and len(tc.zeros(6).split(np.array([2, 4]))) == 2


def test_a_view_of_another_dtype_says_what_to_write():
    x = tc.tensor([1.0, -2.0])
    advice = r"t\.to\(dtype\) converts values; tc\.as_tensor\(t\.numpy\(\)\.view\(dtype\)\) reads the same bytes"
    for call in (lambda: x.view(tc.int32), lambda: x.view(dtype=tc.int32), lambda: x.view(tc.bfloat16)):
        with pytest.raises(TypeError, match=advice):
            call()
    assert tc.as_tensor(x.numpy().view(tc.int32)).tolist() == np.float32([1, -2]).view(np.int32).tolist()


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (list(range(20)), ValueError, r"split_size is \[0, 1, 2, 3, 4, 5, 6, 7\] and more; sizes .* length of axis 0, 2"),
        ([3, -1], ValueError, "at least 0"),
        ([2**63 - 1, 2**63 - 1, 4], ValueError, "add up to"),
        ([1.5, 0.5], TypeError, "float"),
        (1.5, TypeError, "split_size must be an int or a sequence of ints, not float"),
        ("mean", TypeError, "split_size must be an int or a sequence of ints, not str"),
        ([1, "x"], TypeError, "split_size must be .* ints; number 1 of the sequence is 'x', a str"),
        (0, ValueError, "at least 1, got 0"),
    ],
)
def test_sizes_of_a_split(sizes, error, message):
    with pytest.raises(error, match=message):
        tc.tensor(X).split(sizes)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_and_stack(rng, dim):
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    np.testing.assert_array_equal(tc.cat([a, b], dim), np.concatenate([a, b], dim))
    np.testing.assert_array_equal(tc.stack([a, b], axis=dim), np.stack([a, b], dim))
    assert gradcheck(lambda a, b: tc.cat([a, b * 2.0, a], dim), (a, b)) and gradcheck(lambda a, b: tc.stack([a, b * 2.0], dim), (a, b))


@pytest.mark.parametrize("join", ["cat", "where", "add"])
def test_gradients_have_the_dtypes_of_what_was_joined(join):
    """Also those that a hook sees on the way."""
    a, b, seen = tc.ones(2, 2, requires_grad=True), tc.ones(2, 2, dtype="float64", requires_grad=True), []
    x, y = a * 2.0, b * 3.0
    for t in (x, y):
        t.register_hook(lambda gradient: seen.append((gradient.dtype.name, gradient.tolist())))
    weights = tc.arange(8, dtype="float64").reshape(4, 2)
    if join == "cat":  # what is skipped takes no place
        joined = tc.cat([tc.zeros(0, requires_grad=True), x, tc.zeros(0, requires_grad=True), y])
    else:
        joined = tc.where(tc.tensor([[True], [False]]), x, y) if join == "where" else x + y
    (joined * weights[: len(joined)]).sum().backward()
    of_x, of_y = {
        "cat": ([[0, 1], [2, 3]], [[4, 5], [6, 7]]),
        "where": ([[0, 1], [0, 0]], [[0, 0], [2, 3]]),
        "add": ([[0, 1], [2, 3]],) * 2,
    }[join]
    assert sorted(seen) == [("float32", of_x), ("float64", of_y)] and a.grad.dtype == "float32" and b.grad.dtype == "float64"


def test_cat_of_other_dtypes_and_shapes():
    joined = tc.cat([tc.ones(2, dtype="int64"), tc.ones(1, dtype="float32"), tc.tensor([])])
    assert joined.dtype == np.float32 and joined.shape == (3,)
    many = [tc.ones(1, requires_grad=True) for _ in range(100)]
    tc.cat(many).sum().backward()
    assert all(m.grad.item() == 1.0 for m in many)
    nothing, something = tc.zeros(0, requires_grad=True), tc.ones(2, 2, requires_grad=True)
    tc.cat([nothing, something]).sum().backward()
    assert something.grad.numpy().all()
    with pytest.raises(ValueError, match=r"tensors\[0\] has shape \(2, 3\) but tensors\[1\] has \(2, 2\)"):
        tc.cat([np.ones((2, 3)), np.ones((2, 2))])
    with pytest.raises(ValueError, match="equal shapes"):
        tc.stack([np.ones(2), np.ones(3)])
    with pytest.raises(ValueError, match="empty"):
        tc.cat([])
    with pytest.raises(ValueError, match="stack"):
        tc.cat([np.float64(1), np.float64(2)])


def test_gradients_of_joined_dtypes_are_of_each_input():
    """The casts are part of the one node: each gradient comes back in its input's dtype."""
    half, single = tc.ones(2, 3, dtype="float16").requires_grad_(), tc.ones(1, 3).requires_grad_()
    whole = tc.ones(1, 3, dtype="int64")
    joined = tc.cat([half, single, whole])
    assert joined.dtype == np.float32 and joined.grad_fn == "cat"
    (joined * tc.arange(12, dtype="float32").reshape(4, 3)).sum().backward()
    assert half.grad.dtype == np.float16 and single.grad.dtype == np.float32
    np.testing.assert_array_equal(half.grad.numpy(), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(single.grad.numpy(), [[6, 7, 8]])


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (2, 3, 4), (0, 3), (3, 0)])
@pytest.mark.parametrize("diagonal", [0, 1, -2, 100, -100])
def test_triangles(rng, shape, diagonal):
    a = rng.standard_normal(shape)
    np.testing.assert_array_equal(tc.triu(a, diagonal), np.triu(a, diagonal))
    np.testing.assert_array_equal(tc.tril(a, diagonal), np.tril(a, diagonal))
    if a.size:
        assert gradcheck(lambda x: tc.triu(x.mT, diagonal) * 3.0, a)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_casts(dtype):
    x = tc.tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = x.to(dtype)
    assert y._dtype_name == dtype and y.requires_grad == ("float" in dtype)
    assert y.tolist() == ([False, True, True] if dtype == "bool" else [0, 1, 2])
    if y.requires_grad:
        y.sum().backward()
        assert x.grad.dtype == np.float32 and x.grad.tolist() == [1, 1, 1]


def test_to_and_its_kin():
    x = tc.zeros(2)
    assert x.to("cpu") is x and x.float() is x and x.contiguous() is x and x.cpu() is x
    assert x.to(tc.zeros(1, dtype="float64")).dtype == np.float64 and x.type_as(tc.zeros(1, dtype="int64")).dtype == np.int64
    assert x.to("cpu", np.float64).dtype == np.float64 and x.to(dtype="float16").dtype == np.float16
    assert x.clone().data_ptr() != x.data_ptr() and x.detach().data_ptr() == x.data_ptr()


def test_squeeze_of_no_axis_removes_none():
    x = tc.zeros(1, 2, 1)
    assert x.squeeze().shape == (2,) and x.squeeze(()).shape == x.squeeze([]).shape == (1, 2, 1) and x.squeeze((0, 1)).shape == (2, 1)
