"""A Tensor with Python's own functions: numbers, sequences, copies, pickles."""

import copy
import gc
import hashlib
import math
import pickle
import weakref

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c.nn import Parameter

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_element_is_a_number(dtype):
    t = tc.tensor([[1]], dtype=dtype)
    kind = bool if dtype == "bool" else float if "float" in dtype else int
    assert type(t.item()) is kind and t.item() == 1
    assert float(t) == 1.0 and int(t) == 1 and bool(t) is True and complex(t) == 1 + 0j
    row = tc.tensor([0, 1, 1, 0], dtype=dtype)
    assert [x.item() for x in row] == [0, 1, 1, 0] and row[1:][::2].tolist() == [1, 0] and float(row[1:][-1]) == 0 and not row[3:]


def test_the_smallest_integers_are_numbers():
    for dtype in ("int64", "int32"):
        assert tc.tensor(np.array([1, np.iinfo(dtype).min], dtype))[1].item() == np.iinfo(dtype).min


def test_several_elements_are_none():
    t = tc.zeros(2)
    for convert in (bool, int, float, lambda t: t.item(), complex):
        with pytest.raises(ValueError, match=r"\(2,\)"):
            convert(t)
    with pytest.raises(TypeError, match="one integer"):
        range(tc.tensor(1.0))
    assert list(range(tc.tensor(2))) == [0, 1]


def test_large_integers_are_exact():
    assert tc.tensor(2**62 + 1).item() == 2**62 + 1


def test_format():
    assert f"{tc.tensor(0.12345):.3f}" == "0.123"
    assert f"{tc.tensor([2.5]):.1f}" == "2.5"
    assert f"{tc.tensor(7)}" == "7" and f"{tc.tensor(7):03d}" == "007"
    assert f"{tc.tensor([1.0, 2.0])}" == "tensor([1., 2.])"
    with pytest.raises(TypeError, match=r"\(2,\)"):
        format(tc.zeros(2), ".3f")


def test_len_iter_contains():
    t = tc.arange(6).reshape(3, 2)
    assert len(t) == 3 and [r.tolist() for r in t] == [[0, 1], [2, 3], [4, 5]]
    assert 5 in t and 6 not in t
    with pytest.raises(TypeError, match="holds numbers, not NoneType"):
        assert None in t
    a, b, c = t
    assert b.tolist() == [2, 3] and a.data_ptr() == t.data_ptr() and c.shape == (2,)
    for use in (len, iter):
        with pytest.raises(TypeError, match="no axes"):
            use(tc.tensor(1.0))


def test_iteration_is_recorded_in_one_node():
    x = tc.ones(4, 2, requires_grad=True)
    rows = list(x)
    (rows[0] * 2 + rows[3]).sum().backward()
    assert x.grad.tolist() == [[2, 2], [0, 0], [0, 0], [1, 1]]


def test_hash_and_equality():
    a, b = tc.zeros(2), tc.zeros(2)
    assert hash(a) == hash(a) and len({a, b, a}) == 2
    assert (a == b).tolist() == [True, True] and (a != b).dtype == bool
    assert (a == None) is False and (a != None) is True  # noqa: E711
    assert (a == "text") is False


def test_weak_references():
    t = tc.zeros(2)
    ref = weakref.ref(t)
    assert ref() is t
    del t
    gc.collect()
    assert ref() is None


def test_operators_with_numbers_keep_the_dtype():
    for dtype in ("float32", "float64", "float16"):
        t = tc.ones(2, dtype=dtype)
        for other in (2, 2.5, np.float64(2.5), np.float32(2.5), np.int64(2), True):
            assert (t * other).dtype == dtype and (other * t).dtype == dtype
    assert (tc.ones(2, dtype="int64") + 2).dtype == np.int64


def test_reflected_operators():
    t = tc.tensor([4.0, 9.0])
    assert (1 - t).tolist() == [-3, -8] and (36 / t).tolist() == [9, 4] and (2**t).tolist() == [16, 512]
    assert (10 // t).tolist() == [2, 1] and (10 % t).tolist() == [2, 1] and [x.tolist() for x in divmod(t, 4)] == [[1, 2], [0, 1]]
    assert (-t).tolist() == [-4, -9] and (+t) is t and abs(-t).tolist() == [4, 9] and (t**0.5).tolist() == [2, 3]


def test_logic():
    a, b = tc.tensor([True, False]), tc.tensor([True, True])
    assert (
        (~a).tolist() == [False, True]
        and (a & b).tolist() == [True, False]
        and (a | b).tolist() == [True, True]
        and (a ^ b).tolist() == [False, True]
    )
    n = tc.tensor([5, 6])
    assert (~n).tolist() == [-6, -7] and (n & 4).tolist() == [4, 4] and (n | 1).tolist() == [5, 7] and (1 ^ n).tolist() == [4, 7]


def test_operators_refuse_what_is_no_array():
    t = tc.zeros(2)
    for other in (None, object(), {}):
        with pytest.raises(TypeError):
            t + other
        with pytest.raises(TypeError):
            other @ t


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickle(dtype, protocol):
    t = tc.tensor([[0.0, 1.0], [math.inf, 3.0]] if "float" in dtype else [[0, 1], [1, 0]], dtype=dtype).T
    back = pickle.loads(pickle.dumps(t, protocol))
    assert type(back) is tc.Tensor and back._dtype_name == dtype and back.tolist() == t.tolist() and not back.requires_grad
    if "float" in dtype:
        assert pickle.loads(pickle.dumps(t.detach().requires_grad_(), protocol)).requires_grad


def test_pickle_of_a_gpu_that_is_not_here():
    rebuild, (*before, device, requires_grad, attributes) = tc.tensor([1.0]).__reduce_ex__(4)
    assert device == "cpu" and rebuild(*before, device, requires_grad, attributes).tolist() == [1]
    with pytest.raises(
        RuntimeError, match=r"the pickle has a Tensor of cuda:99, which .*; call \.cpu\(\) before pickling, or tc\.save\(\)"
    ):
        rebuild(*before, "cuda:99", requires_grad, attributes)


def test_ops_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(tc.ops.add_backward)) is tc.ops.add_backward
    assert repr(_core.exp) == "<transformer_c op exp(x)>"


def test_the_arguments_of_array():
    t = tc.arange(6.0).reshape(2, 3)
    assert np.shares_memory(t.__array__(), t.numpy()) and np.shares_memory(t.__array__("float32", copy=False), t.numpy())
    for copied in (t.__array__(copy=True), t.__array__("float64"), t.__array__(dtype=np.int64, copy=None)):
        np.testing.assert_array_equal(copied, t.numpy())
        assert not np.shares_memory(copied, t.numpy())
    assert t.__array__(dtype=np.int64).dtype == np.int64
    with pytest.raises(ValueError, match="a copy is needed to change the dtype, and copy=False forbids it"):
        t.__array__(dtype="float64", copy=False)
    with pytest.raises(TypeError, match="nonsense"):
        t.__array__("nonsense")


def test_memory_that_is_lent_in_one_piece():
    t = tc.arange(6.0).reshape(2, 3)
    assert memoryview(t.t()).shape == (3, 2) and hashlib.sha256(t.flatten()).digest() == hashlib.sha256(t.numpy().tobytes()).digest()
    with pytest.raises(BufferError, match="the memory is not contiguous; use contiguous"):
        hashlib.sha256(t.t())


def test_pickle_of_a_parameter():
    p = Parameter([1.0, 2.0])
    back = pickle.loads(pickle.dumps(p))
    assert type(back) is Parameter and back.requires_grad and back.tolist() == [1.0, 2.0]
    frozen = pickle.loads(pickle.dumps(Parameter([1.0], requires_grad=False)))
    assert type(frozen) is Parameter and not frozen.requires_grad


class Tagged(tc.Tensor):
    """A subclass whose instances have attributes."""


def test_subclasses_keep_their_attributes():
    t = Tagged([1.0])
    t.tag = ["a"]
    for made in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(made) is Tagged and made.tag == ["a"] and made.tolist() == [1.0]
    assert copy.copy(t).tag is t.tag and copy.deepcopy(t).tag is not t.tag


def test_copy_shares_memory_deepcopy_does_not():
    t = tc.tensor([1.0, 2.0], requires_grad=True)
    (t * t).sum().backward()
    shallow, deep = copy.copy(t), copy.deepcopy(t)
    t.data[0] = 5.0
    assert shallow.tolist() == [5.0, 2.0] and shallow.requires_grad
    assert deep.tolist() == [1.0, 2.0] and deep.requires_grad and deep.grad.tolist() == [2.0, 4.0] and deep.grad is not t.grad


def test_deepcopy_keeps_shared_objects_shared():
    p = Parameter([1.0])
    a, b = copy.deepcopy([p, p])
    assert a is b and a is not p and type(a) is Parameter


VIEWS = {
    "a row": lambda x: x[1],
    "a column": lambda x: x[:, 2],
    "transposed": lambda x: x.T,
    "backwards": lambda x: x[::-2, ::-1],
    "repeated": lambda x: x[:, :1].expand(-1, 5),
    "detached": lambda x: x.detach(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
@pytest.mark.parametrize("leaf", [False, True])
def test_deepcopy_keeps_shared_memory_shared(view, dtype, leaf):
    x = tc.arange(12).reshape(3, 4).to(dtype)
    if leaf and x.is_floating_point():
        x.requires_grad_()
    part = VIEWS[view](x.detach())
    for first, second in ((0, 1), (1, 0)):
        given = [x, part]
        both = copy.deepcopy([given[first], given[second]])
        whole, copied = both[first], both[second]
        assert tc.equal(whole, x) and tc.equal(copied, part) and copied.stride() == part.stride() and whole.requires_grad == x.requires_grad
        whole.data.zero_()
        assert not copied.any() and x[1].any() and copied.data_ptr() - whole.data_ptr() == part.data_ptr() - x.data_ptr()
    alone = copy.deepcopy(part)
    assert tc.equal(alone, part)
    if view != "repeated":
        alone.fill_(0)
        assert part.any()


def test_deepcopy_of_borrowed_memory():
    """No more of it is read than the array has."""
    array = np.arange(12.0).reshape(3, 4)
    whole, rows, columns, back = (tc.as_tensor(a) for a in (array, array[1:], array[:, ::2], array[::-1, ::-1]))
    assert copy.deepcopy(whole[:0]).shape == (0, 4)
    for x in (whole, rows, columns, back, columns[1:], back[:1], rows[:, 1]):
        same = copy.deepcopy({"x": x, "y": x.T})
        assert tc.equal(same["x"], x) and tc.equal(same["y"], x.T)
        same["x"].fill_(-1.0)
        assert array.min() == 0
    both = copy.deepcopy([whole, whole[1]])
    both[0].zero_()
    assert not both[1].any()
    with pytest.raises(TypeError, match="memo must be a dict"):
        tc._core.copied_with_memory(whole, None)


def test_deepcopy_of_tensors_that_live_only_while_they_are_copied():
    """Another Tensor may get the address of one that was copied before."""

    class Made:
        def __init__(self, length, value):
            self.values = tc.full((length,), value)

        def __deepcopy__(self, memo):
            made = Made(0, 0.0)
            made.values = (self.values * 1).__deepcopy__(memo)
            return made

    for lengths in ((10, 1000, 100_000, 50), (64,) * 20):
        found = copy.deepcopy([Made(n, float(i)) for i, n in enumerate(lengths)])
        for i, (made, n) in enumerate(zip(found, lengths, strict=True)):
            assert made.values.shape == (n,) and (made.values == i).all()


def test_deepcopy_with_a_memo_of_others():
    """What is no copy of this memory under the key is not taken for one."""
    x = tc.arange(4.0)
    memo = {}
    x[1:].__deepcopy__(memo)
    (key,) = [name for name in memo if isinstance(name, str)]
    for other in (tc.zeros(2), None, (tc.zeros(2), tc.zeros(2)), (1, 2), (tc.zeros(4),), ()):
        memo = {key: other}
        assert tc.equal(x.__deepcopy__(memo), x) and tc.equal(memo[key][0], x)


def test_deepcopy_of_modules_with_shared_parameters_and_buffers():
    class Tied(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = tc.nn.Embedding(5, 3), tc.nn.Linear(3, 5, bias=False)
            self.out.weight = self.table.weight
            self.register_buffer("mask", tc.ones(4, 4))
            self.register_buffer("first", self.mask[0])

    for made in (copy.deepcopy(Tied()), copy.deepcopy([Tied()])[0]):
        assert made.out.weight is made.table.weight and len(list(made.parameters())) == 1
        made.mask.zero_()
        assert not made.first.any()


def test_deepcopy_of_a_result_is_refused():
    with pytest.raises(RuntimeError, match="only leaf Tensors"):
        copy.deepcopy(tc.ones(2, requires_grad=True) * 2)


def test_no_grad_is_a_context_a_decorator_and_for_generators():
    x = tc.ones(1, requires_grad=True)
    with tc.no_grad():
        assert not tc.is_grad_enabled() and not (x * 2).requires_grad
        with tc.enable_grad():
            assert (x * 2).requires_grad
        assert not tc.is_grad_enabled()
    assert tc.is_grad_enabled()

    @tc.no_grad()
    def plain():
        return (x * 2).requires_grad

    @tc.no_grad
    def bare():
        return (x * 2).requires_grad

    @tc.no_grad()
    def steps():
        try:
            sent = yield (x * 2).requires_grad
            yield sent, (x * 2).requires_grad
        except KeyError:
            yield "caught", tc.is_grad_enabled()
        return 7

    assert plain() is False and bare() is False and tc.is_grad_enabled()
    g = steps()
    assert next(g) is False and tc.is_grad_enabled() and g.send(3) == (3, False) and tc.is_grad_enabled()
    g = steps()
    next(g)
    assert g.throw(KeyError()) == ("caught", False)
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value == 7
    g = steps()
    next(g)
    g.close()
    assert tc.is_grad_enabled()


@pytest.mark.parametrize("make", [tc.empty, tc.zeros, tc.ones, tc.rand, tc.randn])
def test_a_shape_is_lengths_or_one_sequence_or_a_keyword(make):
    for shape in ((2, 3), [2, 3], np.array([2, 3]), tc.tensor([2, 3])):
        assert make(shape).shape == make(size=shape).shape == make(2, 3).shape == (2, 3)
    assert make(size=2).shape == make(np.int32(2)).shape == make(tc.tensor(2)).shape == (2,) and make(size=()).shape == make().shape == ()
    with pytest.raises(TypeError, match=r"size is given twice: \(2,\) and size=\(2, 3\)"):
        make(2, size=(2, 3))
    for wrong in (2.0, "a", None):
        with pytest.raises(TypeError, match="size must be ints or one sequence of ints, got"):
            make(wrong)
    with pytest.raises(TypeError, match="write the dtype by name"):
        make((2,), "float64")


def test_python_numbers_fit_the_dtype():
    """What does not fit is an error, as in NumPy, PyTorch and full(); it became another number."""
    wrong = [
        ([1, 300], "uint8"),
        (-1, "uint8"),
        ([2**40], "int32"),
        ([[1.5e10, 0.0]], "int32"),
        (float("nan"), "int64"),
        (2.0**63, "int64"),
    ]
    for data, dtype in wrong:
        for make in (tc.tensor, tc.as_tensor):
            with pytest.raises(ValueError, match=f"does not fit {dtype}, whose numbers are "):
                make(data, dtype=dtype)
    assert tc.tensor([255, 0], dtype="uint8").tolist() == [255, 0] and tc.tensor([-1.7, 2.0], dtype="int32").tolist() == [-1, 2]
    assert (
        tc.tensor([-0.9, 255.9], dtype="uint8").tolist() == [0, 255] == tc.zeros(2, dtype="uint8").copy_(tc.tensor([-0.9, 255.9])).tolist()
    )
    assert tc.zeros(2, dtype="uint8").fill_(-0.9).tolist() == [0, 0] and tc.zeros(1, dtype="uint8").fill_(255.9).tolist() == [255]
    assert tc.tensor([], dtype="uint8").shape == (0,) and tc.tensor(2**63 - 1, dtype="int64").item() == 2**63 - 1
    assert tc.tensor(np.array([300]), dtype="uint8").tolist() == [44]  # an array is cast as NumPy's astype casts it


def test_integers_beyond_64_bits_are_named():
    for number in (2**63, 2**64, -(2**63) - 1):
        for call in (
            lambda n: tc.tensor([n, n]),
            lambda n: tc.tensor(n),
            lambda n: tc.as_tensor([[n]]),
            lambda n: tc.full((2,), n, dtype="int64"),
            lambda n: tc.tensor([n], dtype="float32"),
            lambda n: tc.relu([n]),
        ):
            with pytest.raises(ValueError, match=rf"has {number}, which does not fit int64, whose numbers are .*; write it as a float$"):
                call(number)
    with pytest.raises(ValueError, match=f"data has {2**63}, which does not fit int64"):  # NumPy makes floats of these
        tc.tensor([[1, 2**63], [-1, 0]])
    assert tc.tensor([2**63, 0.5]).dtype == tc.tensor([1, 2**63], dtype="float32").dtype == np.float32
    with pytest.raises(ValueError, match="data has an integer of 40001 bits, which does not fit int64"):
        tc.tensor([2**40000])
    assert tc.tensor([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)] and tc.tensor([float(2**63)]).item() == 2.0**63
    with pytest.raises(TypeError, match=r"data has dtype uint64; .*: convert it with \.astype\(\)"):  # an array has a dtype of its own
        tc.tensor(np.array([2**63]))


def test_making_tensors():
    assert tc.tensor([1.5]).dtype == np.float32 and tc.tensor([1]).dtype == np.int64 and tc.tensor([True]).dtype == bool
    assert tc.tensor(np.ones(2)).dtype == np.float64 and tc.tensor(np.float64(1)).dtype == np.float64
    assert tc.tensor([tc.ones(2), tc.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert tc.zeros().shape == () and tc.zeros((2, 3)).shape == tc.zeros(2, 3).shape == (2, 3)
    assert tc.full((2,), 2**60 + 1).tolist() == [2**60 + 1] * 2 and tc.full((), 1.5).dtype == np.float32
    assert tc.ones_like(np.zeros((2, 2), np.int32)).dtype == np.int32
    assert all(make([1.5]).dtype == np.float32 for make in (tc.ones_like, tc.zeros_like, tc.empty_like, tc.rand_like, tc.randn_like))
    assert (
        tc.arange(5).tolist() == [0, 1, 2, 3, 4]
        and tc.arange(1, 2, 0.5).tolist() == [1.0, 1.5]
        and tc.arange(3, 0, -1).tolist() == [3, 2, 1]
    )
    assert tc.arange(3.0).dtype == np.float32 and tc.arange(0).shape == (0,)
    for wrong in (lambda: tc.arange(3, 0), lambda: tc.arange(0, 3, 0), lambda: tc.zeros(-1), lambda: tc.zeros(2**40, 2**40)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError, match="only floating tensors"):
        tc.tensor([1], requires_grad=True)
    with pytest.raises(TypeError, match="not a dtype"):
        tc.zeros(2, dtype="float12")


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
@pytest.mark.parametrize(
    "bounds", [(1, 8.3, 1), (0.5, 7.8, 1), (0.5, 9, 1.5), (0, 5.5, 2.5), (5.5, 0.2, -1.5), (0.2, 0.9, 1), (7,), (6.5,)]
)
def test_arange_of_fractions_is_pytorchs(bounds, dtype):
    torch = pytest.importorskip("torch")
    assert tc.arange(*bounds, dtype=dtype).tolist() == torch.arange(*bounds, dtype=getattr(torch, dtype)).tolist()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_step_that_is_0_in_the_dtype_is_named(dtype):
    with pytest.raises(ValueError, match=f"a step other than 0, which 0.5 is in {dtype}"):
        tc.arange(0, 3, 0.5, dtype=dtype)


def test_no_silent_fall_back_to_the_cpu():
    if tc.tensor(0.0).is_cuda:
        pytest.skip("there is a GPU")
    try:
        made = tc.zeros(2, device="cuda")
    except RuntimeError as error:
        assert "cuda" in str(error).lower()
    else:
        assert made.is_cuda
    with pytest.raises(ValueError, match="unknown"):
        tc.zeros(2, device="tpu")
    assert not hasattr(tc.zeros(2), "__cuda_array_interface__")
