"""Between NumPy and Tensors: memory shared or copied, operators, and functions that would lose a history."""

import operator
import re

import numpy as np
import pytest
import transformer_c as tc


def test_numpy_is_a_detached_read_only_view():
    t = tc.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for a in (t.numpy(), np.asarray(t), np.asarray(t.T).T):
        assert type(a) is np.ndarray and not a.flags.writeable and a.tolist() == [[1, 2], [3, 4]]
        t.data[0, 0] = 1.0
    view = t.numpy()
    t.data[0, 0] = 9.0
    assert view[0, 0] == 9.0
    assert (
        np.array(t).flags.writeable
        and np.asarray(t, np.float32).dtype == np.float32
        and np.asarray(t, dtype=int).tolist() == [[9, 2], [3, 4]]
    )


def test_an_array_outlives_its_tensor():
    t = tc.tensor(np.arange(1000.0))
    a, m = t.numpy(), memoryview(t)
    t.data = tc.zeros(1000, dtype="float64")
    del t
    assert a[999] == 999.0 and m[999] == 999.0 and m.readonly


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
def test_buffers(dtype):
    t = tc.as_tensor(np.ones((2, 3), dtype))
    assert memoryview(t).format == np.dtype(dtype).char.replace("l", "q") and memoryview(t).shape == (2, 3)
    assert np.asarray(memoryview(t.T)).shape == (3, 2)
    with pytest.raises(BufferError):
        np.frombuffer(t.T, np.uint8)
    with pytest.raises(BufferError):
        memoryview(tc.zeros(2, dtype="bfloat16"))


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a,
        lambda a: np.asfortranarray(a),
        lambda a: a[::-1, ::2],
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: (
            np.lib.stride_tricks.as_strided(np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.uint8), (a.nbytes,), (1,))
            .view(a.dtype)
            .reshape(a.shape)
        ),
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a[:0],
    ],
    ids=["plain", "Fortran", "backwards", "big-endian", "unaligned", "repeated", "empty"],
)
@pytest.mark.parametrize("writeable", [True, False])
def test_any_array_comes_in(make, writeable):
    a = make(np.arange(24.0).reshape(4, 6))
    if not writeable:
        a = a[:]
        a.flags.writeable = False
    for x in (tc.tensor(a), tc.as_tensor(a)):
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal((x * 2).numpy(), a * 2)
        assert x.sum().item() == a.sum()


def test_as_tensor_shares_tensor_copies():
    a = np.zeros(3)
    shared, copied = tc.as_tensor(a), tc.tensor(a)
    a[0] = 1
    shared[1] = 2
    assert shared.tolist() == [1, 2, 0] == a.tolist() and copied.tolist() == [0, 0, 0]
    assert tc.as_tensor(shared) is shared


def test_other_dtypes():
    assert tc.tensor(np.zeros(1, np.int8)).dtype == np.int64 and tc.tensor(np.zeros(1, np.uint32)).dtype == np.int64
    assert tc.tensor(np.zeros(1, np.longdouble)).dtype == np.float64
    for bad in (np.zeros(1, complex), np.array(["a"]), np.array([None]), np.zeros(1, np.uint64)):
        with pytest.raises(TypeError, match="dtype"):
            tc.tensor(bad)


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", OPERATORS + COMPARISONS, ids=lambda op: op.__name__)
def test_operators_from_both_sides(rng, op):
    a, b = rng.uniform(1, 3, (2, 3)), rng.uniform(1, 3, 3)
    pairs = [(tc.tensor(a), b), (a, tc.tensor(b)), (tc.tensor(a), tc.tensor(b))]
    if op in OPERATORS:
        pairs += [(a.tolist(), tc.tensor(b)), (tc.tensor(a), b.tolist())]
    for left, right in pairs:
        result = op(left, right)
        assert type(result) is tc.Tensor
        np.testing.assert_allclose(result.numpy(), op(a, b), rtol=1e-6)


def test_the_history_comes_through_from_the_right():
    w = tc.tensor([1.0, 2.0], requires_grad=True)
    (np.array([3.0, 4.0], np.float32) * w).sum().backward()
    assert w.grad.tolist() == [3.0, 4.0]
    (np.ones((2, 2), np.float32) @ w).sum().backward()
    assert w.grad.tolist() == [5.0, 6.0]


@pytest.mark.parametrize("function", [np.argsort, np.argmax, np.argmin, np.shape, np.size])
def test_questions_of_numpy_are_answered(function):
    """As in whisper's beam search, which sorts its scores by np.argsort."""
    x = tc.tensor([[3.0, 1.0, 2.0], [0.5, 7.0, 1.0]], requires_grad=True)
    found = function(x * 1)
    assert not isinstance(found, tc.Tensor) and np.array_equal(found, function(x.detach().numpy()))


@pytest.mark.parametrize(
    ("call", "ours"),
    [
        (lambda t: np.sin(t), r"tc\.sin"),
        (lambda t: np.exp(t), r"tc\.exp"),
        (lambda t: np.concatenate([t, t]), r"tc\.cat"),
        (lambda t: np.stack([t, np.ones(2)]), r"tc\.stack"),
        (lambda t: np.where(t > 0, t, 0), r"tc\.where"),
        (lambda t: np.sum(t), r"tc\.sum"),
        (lambda t: np.add.reduce(t), "t.numpy"),
        (lambda t: np.linalg.norm(t), r"t\.numpy\(\)"),
        (lambda t: np.multiply(t, t, out=np.zeros(2)), r"t\.numpy\(\)"),
        (lambda t: np.triu(t), r"tc\.triu"),
    ],
)
def test_functions_of_numpy_name_ours(call, ours):
    with pytest.raises(TypeError, match=ours):
        call(tc.ones(2, requires_grad=True))


@pytest.mark.parametrize(
    ("call", "ours", "same"),
    [
        (lambda t: np.repeat(t, 2, 1), "tc.repeat_interleave", lambda t: tc.repeat_interleave(t, 2, 1)),
        (lambda t: np.split(t, 3, 1)[1], "tc.chunk", lambda t: tc.chunk(t, 3, 1)[1]),
        (lambda t: np.vstack([t[0], t[1]]), "tc.vstack", lambda t: tc.vstack([t[0], t[1]])),
        (lambda t: np.argwhere(t), "tc.nonzero", tc.nonzero),
        (lambda t: np.nonzero(t), "tc.nonzero(t, as_tuple=True)", lambda t: tc.stack(tc.nonzero(t, as_tuple=True))),
        (lambda t: np.sort(t), "t.sort(axis=-1).values", lambda t: t.sort(axis=-1).values),
        (lambda t: np.std(t, 0), "t.std(axis, correction=0)", lambda t: t.std(0, correction=0)),
        (lambda t: np.transpose(t, (1, 0)), "t.permute(axes)", lambda t: t.permute((1, 0))),
        (lambda t: np.meshgrid(t[0], t[1])[0], 'tc.meshgrid(..., indexing="xy")', lambda t: tc.meshgrid(t[0], t[1], indexing="xy")[0]),
        (lambda t: np.moveaxis(t, 0, 1), "tc.movedim", lambda t: tc.movedim(t, 0, 1)),
    ],
)
def test_what_is_named_gives_what_numpys_does(call, ours, same):
    t = tc.tensor([[3.0, 0.0, 1.0], [5.0, 4.0, 0.0]])
    with pytest.raises(TypeError, match=f"use {re.escape(ours)}"):
        call(t)
    np.testing.assert_allclose(same(t), call(t.numpy()), rtol=1e-6)


def test_in_place_on_an_array_is_refused():
    a = np.zeros(2)
    with pytest.raises(TypeError, match="cannot write a Tensor's values into an ndarray"):
        a += tc.ones(2)
    a[:] = tc.ones(2)  # plain values, asked for
    assert a.tolist() == [1.0, 1.0]


def test_questions_are_answered():
    t = tc.zeros(2, 3)
    assert np.shape(t) == (2, 3) and np.ndim(t) == 2 and np.size(t) == 6


def test_a_list_of_recorded_tensors_is_not_read_as_numbers():
    w = tc.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"tc\.stack"):
        tc.zeros(2) + [w[0], w[1]]
    with tc.no_grad():
        assert (tc.zeros(2) + [w[0], w[1]]).tolist() == [1, 1]


class OnlyArray:
    """What offers nothing but `__array__`, as frames do."""

    def __array__(self, dtype=None, copy=None):
        return np.array([0.1, 0.2], dtype)


def test_arrays_of_other_libraries_keep_their_dtype():
    for make in (tc.tensor, tc.as_tensor):
        assert make(OnlyArray()).dtype == np.float64 and make(OnlyArray()).tolist() == [0.1, 0.2]
        assert make([0.1, 0.2]).dtype == make(0.1).dtype == np.float32
    torch = pytest.importorskip("torch")
    assert tc.tensor(torch.tensor([0.1], dtype=torch.float64)).tolist() == [0.1]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int64", "int32", "uint8"])
def test_casts_of_what_no_integer_is(source, target, isa):
    """As NumPy and PyTorch have it on x86-64: the smallest integer, of which uint8 gets the low byte."""
    values = [np.inf, -np.inf, np.nan, 300.0, -1.5, 0.9, 60000.0] + ([3e9, -3e9, 1e20, -1e20, 2147483520.0] if source != "float16" else [])
    values = np.array(values * 3, source)
    low = np.iinfo(np.int64 if target == "int64" else np.int32).min
    wide = values.astype(np.float64)
    inside = (wide > low - (target != "int64")) & (wide < -float(low))
    expected = np.array([int(v) if ok else low for v, ok in zip(wide, inside, strict=True)]).astype(target)
    np.testing.assert_array_equal(tc.as_tensor(values).to(target).numpy(), expected)
    np.testing.assert_array_equal(tc.as_tensor(values)[::2].to(target).numpy(), expected[::2])


@pytest.mark.parametrize("make", [tc.tensor, tc.as_tensor])
def test_a_list_has_the_dtype_of_its_arrays(make):
    """As in PyTorch: float64 that NumPy made stays float64, whatever Python's numbers it is among."""
    double, single = np.ones(2), np.ones(2, np.float32)
    for data in (
        [np.float64(1.5)],
        [1, [np.float64(2)][0], 0.5],
        [double, double],
        [double, [1.0, 2.0]],
        [[double], [single]],
        (single, double),
    ):
        assert make(data).dtype == np.float64
    for data in ([1.5, 2], [[0.5], [np.float32(1)]], [single, [1.0, 2.0]], [np.float16(1), 2.5], [np.int64(1), np.float32(0.5)], 0.5):
        assert make(data).dtype == np.float32
    assert make([np.int32(1), np.int32(2)]).dtype == np.int32 and make([np.float64(1)], dtype="float32").dtype == np.float32
    assert make([0.1], dtype="float64").item() == 0.1 and make(0.1, dtype="float64").item() == 0.1
