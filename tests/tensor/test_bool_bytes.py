"""Bools whose bytes are not 0 and 1: every nonzero byte is true, in every op that takes a bool, and what is written is 0 or 1.

NumPy's own bools are 0 and 1; a view of other bytes, a file or another library may give any.
"""

import copy
import pickle
import threading

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

F = tc.functional
N = 4
# Arguments of ops that are not tensors, where 1 or the default does not do.
INTEGERS = {"axis": None, "dim": 0, "dim0": 0, "dim1": 1, "axis1": 0, "axis2": 1, "dims": (1, 0), "normalized_shape": (N,), "size": (N, N)}
INTEGERS |= {"shape": (N * N,), "t": 1, "split_size": 2, "num_embeddings": N, "start": 1, "seed": 3, "call": 5}
ROWS = {"mean", "rstd", "shift", "sum", "top", "log_sum", "target"}  # one number per row
# They change a module's state, end with the process, or have nothing to do with values.
NO_VALUES = {"backward", "record_custom", "set_data", "set_grad_slot", "from_dlpack_capsule", "data_ptr", "as_argument", "detach"}
# They give the memory itself.
SHARING = {
    "as_tensor",
    "reshape",
    "view",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "swapaxes",
    "expand",
    "flip",
    "unfold",
    "flatten",
}
SHARING |= {"narrow", "contiguous", "bool", "cpu", "to", "chunk", "split", "unbind", "numpy", "type_as"}
TAKE_BOOLS = """
argsort triu tril matmul add mul maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
bitwise_or bitwise_xor masked_fill sum max min any all argmax argmin reshape view permute float double half bfloat16 long int bool clone
contiguous copy_ fill_ where where_backward cat stack nonzero attention attention_forward attention_backward scaled_dot_product
scaled_dot_product_values full take_array tolist type_as"""


def dirty(clean, rng):
    """The same bools, true ones as any byte."""
    return np.where(clean, rng.integers(1, 256, clean.shape), 0).astype(np.uint8).view(bool)


def ops():
    """{name: the op}, functions and methods."""
    found = {**vars(tc.Tensor), **vars(_core)}
    return {name: op for name, op in found.items() if isinstance(op, _core.op) and not name.startswith("cuda") and name not in NO_VALUES}


def words(op):
    """(name, kind, required, keyword only) of the arguments of an op."""
    keyword = False
    for word in op.spec.split():
        keyword = keyword or word == "|"
        if ":" in word:
            name, kind = word.split(":", 1)
            kind, _, default = kind.partition("=")
            kind = "v" if (op.__name__, name) == ("masked_fill", "value") else kind  # a number, or a Tensor without axes
            yield name, kind, not default and not kind.endswith("?"), keyword


def calls(op):
    """Choices of the arguments that are bools: each one alone, all of those that must be given, and all."""
    tensors = [(name, required) for name, kind, required, _ in words(op) if kind[0] in "taT"]
    if not tensors:
        return []
    choices = [{name} for name, _ in tensors] + [{name for name, required in tensors if required}, {name for name, _ in tensors}]
    return [choice for i, choice in enumerate(choices) if choice and choice not in choices[:i]]


def arguments(op, bools, make, rng, as_tensors):
    args, kwargs, skipped = [], {}, False
    for name, kind, required, keyword in words(op):
        if not required and name not in bools:
            skipped = True
            continue
        if kind[0] in "taT":
            shape = (
                (1,)
                if name == "value" and op.__name__ in ("full", "fill_")
                else (N,)
                if name in ROWS and op.__name__.endswith("_backward")
                else (N, N)
            )
            value = make(rng.random(shape) < 0.5) if name in bools else rng.random(shape).astype(np.float32)
            if as_tensors or name == "self":
                value = tc.as_tensor(value)
            value = [value, value] if kind[0] == "T" else value
        else:
            value = INTEGERS.get(name, 1.0 if kind[0] in "fv" else kind[0] == "b" or 1)
        if keyword or skipped:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def outcome(op, bools, make, as_tensors):
    """What a call gives: arrays, or the error."""
    rng = np.random.default_rng(0)
    try:
        args, kwargs = arguments(op, bools, make, rng, as_tensors)
        result = op(*args, **kwargs)
    except (TypeError, ValueError, IndexError, RuntimeError, NotImplementedError) as error:
        return type(error), str(error)
    return [as_array(x) for x in (result if isinstance(result, (tuple, list)) else [result])]


def as_array(x):
    return np.array(x.detach().numpy() if isinstance(x, tc.Tensor) else x)


def bytes_of(array):
    return np.ascontiguousarray(array).view(np.uint8)


def check_op(op, as_tensors, rng):
    name, succeeded = op.__name__, False
    for bools in calls(op):
        clean = outcome(op, bools, lambda x: x, as_tensors)
        found = outcome(op, bools, lambda x: dirty(x, rng), as_tensors)
        assert isinstance(clean, tuple) == isinstance(found, tuple), (bools, clean, found)
        if isinstance(clean, tuple):
            assert clean == found, bools
            continue
        succeeded = True
        for a, b in zip(clean, found, strict=True):
            assert a.dtype == b.dtype, bools
            if a.dtype == bool:
                np.testing.assert_array_equal(a, bytes_of(b).reshape(b.shape) != 0, err_msg=str(bools))
                if name not in SHARING:
                    assert not b.size or bytes_of(b).max() <= 1, bools
            else:
                np.testing.assert_array_equal(a, b, err_msg=str(bools))
    assert succeeded or name not in TAKE_BOOLS.split()


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("name", sorted(ops()))
def test_any_byte_is_true_in_every_op(name, as_tensors, isa, rng):
    check_op(ops()[name], as_tensors, rng)


class PlantedOp:
    """An op of one argument that may be bools."""

    spec = "x:t"

    def __init__(self, call):
        self.call, self.__name__ = call, "planted"

    def __call__(self, x):
        return self.call(np.asarray(x))


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_a_planted_defect_is_found(as_tensors, rng):
    check_op(PlantedOp(lambda x: x != 0), as_tensors, rng)
    defects = {
        "a byte as a number": lambda x: x.view(np.uint8).astype(np.float32),
        "bytes that are moved": lambda x: x.view(np.uint8)[::-1].copy().view(x.dtype),
        "a mask that counts": lambda x: np.zeros(int(x.view(np.uint8).sum())),
        "an error that goes by the byte": lambda x: x if x.view(np.uint8).max() <= 1 else F.softmax(x, 7),
    }
    for name, defect in defects.items():
        with pytest.raises(AssertionError):
            check_op(PlantedOp(defect), as_tensors, rng)
            pytest.fail(f"{name} is not found", pytrace=False)


def test_the_ops_that_take_bools_exist():
    assert not set(TAKE_BOOLS.split()) - set(ops())
    assert not SHARING - set(ops())


# ---- sizes and strides beyond those of the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (7,), (33, 65), (5000,), (2, 3, 129)])
def test_values_of_any_size_and_stride(shape, isa, threads, rng):
    clean = rng.random(shape) < 0.5
    bytes_ = dirty(clean, rng)
    for a, b in ((clean, bytes_), (clean[..., ::2], bytes_[..., ::2]), (clean.T, bytes_.T), (clean[..., ::-1], bytes_[..., ::-1])):
        t = tc.as_tensor(b)
        for dtype in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool"):
            np.testing.assert_array_equal(as_array(t.to(dtype)).astype(float), a.astype(float))
        for made in (
            tc.tensor(b),
            t.clone(),
            t.to("uint8").bool(),
            tc.cat([t, t])[: len(a)],
            copy.deepcopy(t),
            pickle.loads(pickle.dumps(t)),
        ):
            np.testing.assert_array_equal(bytes_of(as_array(made)).reshape(a.shape), a)
        assert t.sum().item() == a.sum() and t.any().item() == a.any() and t.all().item() == a.all()
        np.testing.assert_array_equal(as_array(t.sum(-1)), a.sum(-1))
        np.testing.assert_array_equal(as_array(~t), ~a)
        np.testing.assert_array_equal(as_array(t == True), a)  # noqa: E712
        np.testing.assert_array_equal(as_array(t * 1.5), a * np.float32(1.5))
        np.testing.assert_array_equal(as_array(tc.where(t, 2, 3)), np.where(a, 2, 3))
        for mine, theirs in zip(tc.where(t), np.nonzero(a), strict=True):
            np.testing.assert_array_equal(as_array(mine), theirs)
        x = rng.standard_normal(a.shape).astype(np.float32)
        np.testing.assert_array_equal(as_array(tc.tensor(x)[b]), x[a])
        written = tc.tensor(x)
        written[b] = 5.0
        np.testing.assert_array_equal(as_array(written), np.where(a, np.float32(5), x))
        np.testing.assert_array_equal(as_array(tc.tensor(x).masked_fill(tc.as_tensor(b), 1.0)), np.where(a, np.float32(1), x))
        order = rng.permutation(len(a))
        np.testing.assert_array_equal(bytes_of(as_array(t[order])).reshape(a.shape), a[order])
        assert t.tolist() == a.tolist() and repr(t) == repr(tc.tensor(a))


def test_a_large_mask_takes_as_many_elements_as_it_has():
    mask = np.full(1 << 20, 255, np.uint8).view(bool)
    x = np.arange(1 << 20, dtype=np.float32)
    np.testing.assert_array_equal(tc.tensor(x)[mask].numpy(), x)


@pytest.mark.parametrize("byte", [1, 2, 128, 255])
def test_one_number(byte):
    t = tc.as_tensor(np.array([byte], np.uint8).view(bool))
    assert t.item() is True and bool(t) and int(t) == 1 and float(t) == 1.0 and t.tolist() == [True]
    assert (True in t) and (False not in t)


def test_written_into_other_memory(rng):
    clean = rng.random((6, 9)) < 0.5
    bytes_ = dirty(clean, rng)
    for key in (slice(None), np.arange(6), np.ones((6, 9), bool)):
        target = tc.zeros(6, 9, dtype=bool)
        target[key] = bytes_ if not isinstance(key, np.ndarray) or key.dtype != bool else bytes_.reshape(-1)
        np.testing.assert_array_equal(bytes_of(target.numpy()), clean)
    target = tc.zeros(6, 9, dtype=bool)
    target |= tc.as_tensor(bytes_)
    np.testing.assert_array_equal(bytes_of(target.numpy()), clean)
    target = np.zeros((6, 9), bool)
    tc.as_tensor(target).copy_(tc.as_tensor(bytes_))
    np.testing.assert_array_equal(bytes_of(target), clean)


def test_from_other_libraries(rng):
    clean = rng.random((5, 8)) < 0.5
    bytes_ = dirty(clean, rng)
    for t in (tc.from_dlpack(bytes_), tc.as_tensor(np.frombuffer(bytes_.tobytes(), bool).reshape(5, 8))):
        assert t.sum().item() == clean.sum()
        np.testing.assert_array_equal(bytes_of(t.clone().numpy()), clean)


@pytest.mark.parametrize("kind", ["attention", "block", "padding"])
def test_masks_of_modules(kind, isa, rng):
    x = tc.tensor(rng.standard_normal((2, 9, 8)).astype(np.float32))
    clean = rng.random((2, 9, 9)) < 0.7
    tc.manual_seed(0)
    if kind == "padding":
        module, clean = tc.nn.MultiheadAttention(8, 2, batch_first=True), clean[:, 0]
        clean[:, 0] = False
        call = lambda m: module(x, x, x, key_padding_mask=m)[0]
    else:
        module = tc.EncoderBlock(8, 2, 16) if kind == "block" else tc.MultiheadAttention(8, 8, 2)
        call = lambda m: module(x, mask=m)
    expected = as_array(call(clean))
    for mask in (dirty(clean, rng), tc.as_tensor(dirty(clean, rng))):
        np.testing.assert_array_equal(as_array(call(mask)), expected)


@pytest.mark.parametrize("kind", ["module", "array", "tensor"])
def test_files_contain_zeros_and_ones(kind, tmp_path, rng):
    clean = rng.random(40) < 0.5
    module = tc.nn.Module()
    module.register_buffer("mask", tc.as_tensor(dirty(clean, rng)))
    values = {"module": module, "array": {"mask": dirty(clean, rng)}, "tensor": {"mask": tc.as_tensor(dirty(clean, rng))}}[kind]
    tc.save(values, tmp_path / "file")
    read = tc.load(tmp_path / "file")["mask"]
    np.testing.assert_array_equal(bytes_of(as_array(read)), clean)


# ---- memory that changes meanwhile -----------------------------------------------------------------------------------------------


def test_a_mask_that_changes_during_the_call():
    """Counting and gathering agree: whatever the result, nothing is read or written outside the arrays."""
    mask = np.zeros(1 << 18, bool)
    x = tc.tensor(np.ones(1 << 18, np.float32))
    stop = threading.Event()

    def flip():
        while not stop.is_set():
            mask.view(np.uint8)[:] = 255
            mask[:] = False

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(200):
            chosen = x[mask]
            assert chosen.numel() <= 1 << 18 and (chosen == 1).all()
            assert len(_core.nonzero(tc.as_tensor(mask))) <= 1 << 18
            tc.as_tensor(mask).sum()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 1, 0), (1, 0, 2, 3)], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (2, 17, 33, 47), (3, 2, 40, 100)], ids=str)
def test_copies_of_permuted_bools(isa, shape, axes):
    """By tiles, in short runs and one after another: each byte becomes 0 or 1, and those beside stay."""
    values = np.random.default_rng(0).integers(0, 4, shape).astype(np.uint8) * 85
    permuted = tc.from_numpy(values.view(bool)).permute(axes)
    expected = (values != 0).transpose(axes).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(permuted.contiguous()).view(np.uint8), expected)
    around = np.full((*expected.shape[:3], expected.shape[3] + 2), 7, np.uint8)
    tc.from_numpy(around.view(bool))[..., 1:-1].copy_(permuted)
    np.testing.assert_array_equal(around[..., 1:-1], expected)
    assert (around[..., 0] == 7).all() and (around[..., -1] == 7).all()
    np.testing.assert_array_equal(np.asarray(permuted + tc.zeros(permuted.shape)), expected)
