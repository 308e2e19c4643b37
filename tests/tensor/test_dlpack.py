"""DLPack in both directions: memory is shared, kept alive, and freed once."""

import gc
import weakref

import numpy as np
import pytest
import transformer_c as tc


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
def test_numpy_both_ways(dtype):
    a = np.array([[0, 1, 2], [3, 0, 5]]).astype(dtype)
    t = tc.from_dlpack(a.T)
    assert t.dtype == a.dtype and np.shares_memory(t.numpy(), a)
    np.testing.assert_array_equal(t.numpy(), a.T)
    back = np.from_dlpack(t)
    assert np.shares_memory(back, a)
    np.testing.assert_array_equal(back, a.T)


def test_writes_are_seen():
    a = np.zeros(2)
    t = tc.from_dlpack(a)
    t[0] = 1
    a[1] = 2
    assert a.tolist() == t.tolist() == [1, 2]


def test_shapes_of_all_kinds():
    for shape in [(), (0,), (2, 0, 3), (1, 1)]:
        assert tc.from_dlpack(np.ones(shape)).shape == shape and np.from_dlpack(tc.ones(shape)).shape == shape
    assert np.from_dlpack(tc.arange(4).flip(0)).tolist() == [3, 2, 1, 0]


def test_memory_lives_as_long_as_it_is_used():
    class Owner(np.ndarray):
        pass

    a = np.ones(1000).view(Owner)
    gone = weakref.ref(a)
    t = tc.from_dlpack(a)
    del a
    gc.collect()
    assert gone() is not None and t.sum().item() == 1000
    del t
    gc.collect()
    assert gone() is None
    view = np.from_dlpack(tc.ones(1000))
    gc.collect()
    assert view.sum() == 1000


def test_a_capsule_is_taken_once():
    capsule = tc.arange(3).__dlpack__(max_version=(1, 0))
    assert tc.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="nobody has taken"):
        tc.from_dlpack(capsule)
    for version in (None, (0, 8), (1, 0)):
        tc.arange(3).__dlpack__(max_version=version)  # dropped unused


class Older:
    """A producer that knows no versions of DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_capsules_without_a_version():
    t = tc.arange(6.0).reshape(2, 3)
    for take in (tc.from_dlpack, np.from_dlpack):
        taken = take(Older(t.t()))
        np.testing.assert_array_equal(taken, t.numpy().T)
        t[0, 1] += 1
        assert taken[1, 0] == t[0, 1]
    memory = np.zeros(1000)
    owner = weakref.ref(memory)
    taken = tc.from_dlpack(Older(tc.from_numpy(memory)))
    del memory
    gc.collect()
    assert owner() is not None and taken.sum() == 0
    del taken
    gc.collect()
    assert owner() is None


def test_read_only_memory_says_so():
    a = np.zeros(2)
    a.flags.writeable = False
    t = tc.as_tensor(a)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # earlier ones do not know DLPack 1
        assert not np.from_dlpack(t).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    with pytest.raises(ValueError, match="read-only"):
        tc.from_dlpack(t)[0] = 1


def test_copies():
    a = np.zeros(2)
    assert not np.shares_memory(tc.from_dlpack(a, copy=True).numpy(), a) and np.shares_memory(tc.from_dlpack(a, copy=False).numpy(), a)
    t = tc.zeros(2)
    assert not np.shares_memory(tc.from_dlpack(t.__dlpack__(max_version=(1, 0), copy=True)).numpy(), t.numpy())


def test_refusals():
    with pytest.raises(BufferError, match="gradient"):
        tc.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="stream"):
        tc.ones(2).__dlpack__(stream=1)
    with pytest.raises(BufferError, match="device"):
        tc.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="__dlpack__"):
        tc.from_dlpack([1, 2])
    a = np.zeros(2, np.complex128)
    with pytest.raises(TypeError, match="no dtype here"):
        tc.from_dlpack(a)
    assert tc.ones(2).__dlpack_device__() == (1, 0)


def test_pytorch_both_ways():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    t = tc.from_dlpack(x)
    t[0, 0] = 9
    assert x[0, 0] == 9 and torch.from_dlpack(t.T).shape == (3, 2)
    half = torch.ones(2, dtype=torch.bfloat16)
    assert tc.from_dlpack(half)._dtype_name == "bfloat16" and torch.from_dlpack(tc.ones(2, dtype="bfloat16")).dtype == torch.bfloat16


def test_negative_strides_are_copied():
    """PyTorch ends the process when it gets one."""
    a = np.arange(6.0).reshape(2, 3)
    for t in (tc.as_tensor(a[::-1]), tc.as_tensor(a[:, ::-1]), tc.as_tensor(a).T[::-1]):
        np.testing.assert_array_equal(np.from_dlpack(t), t.numpy())
        assert not np.shares_memory(np.from_dlpack(t), a)
        with pytest.raises(BufferError, match="negative stride"):
            t.__dlpack__(copy=False)
    single = tc.as_tensor(a[:1][::-1])  # its stride is never used
    assert np.shares_memory(np.from_dlpack(single), a)


def test_pytorch_takes_what_was_flipped():
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(tc.as_tensor(np.arange(3.0)[::-1])).tolist() == [2, 1, 0]


def test_bfloat16_of_pytorch():
    torch = pytest.importorskip("torch")
    theirs = torch.tensor([[1.0, 2.5], [-3.0, 4.0]], dtype=torch.bfloat16)
    for ours in (tc.tensor(theirs), tc.as_tensor(theirs.T).T, tc.tensor(theirs.clone().requires_grad_()), tc.from_dlpack(theirs)):
        assert ours.float().tolist() == [[1.0, 2.5], [-3.0, 4.0]] and ours._dtype_name == "bfloat16"
        assert torch.equal(torch.from_dlpack(ours), theirs)
    assert tc.tensor(theirs, dtype="float32").dtype == np.float32
    shared = tc.as_tensor(theirs)
    theirs[0, 0] = 9
    assert shared[0, 0].item() == 9


def test_tensors_of_pytorch_that_numpy_cannot_read():
    """What PyTorch raises does not say which argument it is, nor that bfloat16 can stay what it is."""
    torch = pytest.importorskip("torch")
    wants, half = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, dtype=torch.bfloat16)
    layer, x = tc.nn.Linear(3, 2), tc.ones(2, 3)
    trained = tc.TrainingModule()
    trained.net, trained.training_step = layer, lambda batch, index: layer(batch[0]).sum()
    trained.configure_optimizers = lambda: tc.optim.SGD(trained.parameters(), lr=0.1)
    calls = {
        "data": tc.tensor,
        "x": tc.functional.relu,
        "an argument": layer,
        "the second argument": lambda t: x + t,
        r"tensors\[0\]": lambda t: tc.cat([t, t]),
        "value": lambda t: x.__setitem__(0, t),
        "fill_value": lambda t: tc.full((2,), t),
        "a sample": lambda t: tc.data.default_collate([t]),
        r"train\[0\]": lambda t: tc.Trainer(max_epochs=1).fit(trained, (t, t)),
    }
    for name, call in calls.items():
        gradient = rf"{name} is a PyTorch tensor of float32, with a gradient that would not reach PyTorch; pass tensor\.detach\(\)$"
        with pytest.raises(TypeError, match=gradient):
            call(wants)
        if name != "data":  # which is read by DLPack
            with pytest.raises(TypeError, match=rf"{name} is a PyTorch tensor of bfloat16, a dtype that NumPy .*; pass tensor\.float\(\)"):
                call(half)
    both = r"bfloat16, a dtype .* have, with a gradient .*; pass tensor\.detach\(\)\.float\(\), or tc\.from_dlpack\(tensor\.detach\(\)\)"
    with pytest.raises(TypeError, match=both):
        layer(half.clone().requires_grad_())
    with pytest.raises(TypeError, match="data is a PyTorch tensor of bfloat16"):
        tc.tensor([[half]])
    assert np.array_equal(layer(wants.detach()), layer(half.float())) and tc.relu(tc.from_dlpack(half))._dtype_name == "bfloat16"
    with pytest.raises(TypeError, match="Sparse layout"):  # PyTorch's own words say what to write
        tc.relu(torch.eye(3).to_sparse())


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
def test_pairs_are_tuples(name):
    with pytest.raises(TypeError, match=f"{name} must be a tuple of two ints, got list"):
        tc.ones(2).__dlpack__(**{name: [1, 0]})
