"""PyTorch's and Lightning's names that programs begin with: devices, seeds, switches, tensors by their types, utils.data, saved tensors."""

import copy
import gc
import importlib
import math
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import transformer_c as tc


def test_a_device_compares_and_prints_as_its_name():
    device = tc.device("cuda:0") if tc.cuda.is_available() else tc.device("cpu")
    x = tc.zeros(2, device=tc.device("cpu")).to(tc.device("cpu"))
    assert x.device == tc.device("cpu") == "cpu" and {tc.device("cpu"): 1}["cpu"] == 1
    assert f"Device: {device}" == f"Device: {device!s}" and str(device).startswith(("cpu", "cuda"))
    assert tc.nn.Linear(2, 2).to(tc.device("cpu")).weight.device == tc.device("cpu") != tc.device("cuda")
    assert (repr(tc.device("cpu")), repr(tc.device("cuda", 1))) == ("device(type='cpu')", "device(type='cuda', index=1)")
    assert tc.device(1) == tc.device("cuda:1") == tc.device(tc.device("cuda"), 1) == "cuda:1"
    for made in (copy.deepcopy(device), pickle.loads(pickle.dumps(device)), tc.device(device)):
        assert made == device and made.type == device.type and made.index == device.index
    for arguments, error in ((("tpu",), ValueError), (("cuda:1", 2), ValueError), ((None,), TypeError), ((True,), TypeError)):
        with pytest.raises(error):
            tc.device(*arguments)


def test_the_device_of_a_tensor_has_a_type_and_an_index():
    x = tc.zeros(2)
    assert type(x.device) is tc.device and isinstance(x.device, str) and (x.device.type, x.device.index) == ("cpu", None)
    assert x.device == "cpu" and f"{x.device}" == "cpu" and tc.zeros(2, device=x.device).device is x.device


def test_the_cpu_may_have_a_number():
    for device in ("cpu:0", tc.device("cpu", 0), tc.device("cpu:0")):
        model = tc.nn.Linear(2, 2).to(device)
        for made in (
            tc.zeros(2, device=device),
            tc.ones(2).to(device),
            tc.ones(2).to(device=device),
            tc.arange(2, device=device),
            model.weight,
        ):
            assert made.device == "cpu"
    for refused in (lambda: tc.zeros(2, device="cpu:1"), lambda: tc.ones(2).to("cpu:1"), lambda: tc.nn.Linear(2, 2).to("cpu:1")):
        with pytest.raises(ValueError, match="device 'cpu:1' is unknown"):
            refused()


@pytest.mark.parametrize("arguments", [("cpu",), ("cpu:0",), ("cuda",), ("cuda:1",), ("cuda", 1)])
def test_devices_are_pytorchs(arguments):
    torch = pytest.importorskip("torch")
    ours, theirs = tc.device(*arguments), torch.device(*arguments)
    assert (str(ours), repr(ours), ours.type, ours.index) == (str(theirs), repr(theirs), theirs.type, theirs.index)


def test_a_block_with_a_state_of_its_own():
    """The masks of dropout are part of it."""
    x = tc.ones(50)
    for enabled in (True, False):
        tc.manual_seed(1)
        with pytest.raises(ZeroDivisionError), tc.random.fork_rng(devices=[], enabled=enabled):
            inside = tc.rand(3), tc.F.dropout(x, 0.5), 1 / 0
        with tc.random.fork_rng(enabled=enabled):
            inside = tc.rand(3), tc.F.dropout(x, 0.5)
        for found, expected in zip((tc.rand(3), tc.F.dropout(x, 0.5)), inside, strict=True):
            assert tc.equal(found, expected) is enabled


@pytest.mark.parametrize("enabled", [True, False])
def test_a_function_with_a_state_of_its_own(enabled):
    """Each call is a block, also within another one, and leaves nothing of it."""

    @tc.random.fork_rng(enabled=enabled)
    def drawn(depth):
        return [tc.rand(1).item(), *(drawn(depth - 1) if depth else [])]

    kind = type(tc.random.fork_rng())
    gc.collect()  # what earlier tests left in cycles
    references = sys.getrefcount(kind)
    tc.manual_seed(1)
    first = [drawn(2) for _ in range(20)]
    assert (first[0] == first[-1]) is enabled and drawn.__name__ == "drawn" and len({*first[0]}) == 3
    gc.collect()
    assert sys.getrefcount(kind) == references


def test_the_state_is_that_of_the_generator_in_use():
    from transformer_c.random import drawing_from

    x = tc.ones(50)
    with drawing_from(tc.Generator(3)):
        state, dropped = tc.get_rng_state(), tc.F.dropout(x, 0.5)
        with tc.random.fork_rng():
            tc.set_rng_state(state)
            assert tc.equal(tc.F.dropout(x, 0.5), dropped)
        assert not tc.equal(tc.F.dropout(x, 0.5), dropped)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.Categorical(tc.zeros(2)), "probs must not be negative or NaN, and have a positive, finite sum"),
        (lambda d: d.Categorical(tc.tensor([math.inf, 1.0])), "a positive, finite sum"),
        (lambda d: d.Categorical(logits=tc.tensor([math.nan, 1.0])), "logits must be below infinity and not NaN"),
        (lambda d: d.Categorical(logits=tc.full((2,), -math.inf)), "one of each K above -infinity"),
        (lambda d: d.Categorical(tc.ones(3)).log_prob(tc.tensor(0.5)), "value must be whole numbers from 0 to K - 1"),
        (lambda d: d.Normal(math.nan, 1.0), "loc must not be NaN"),
    ],
    ids=range(6),
)
def test_distributions_refuse_what_gives_nan(call, message):
    with pytest.raises(ValueError, match=message):
        call(tc.distributions)


def test_seed_everything():
    assert tc.seed_everything(42) == 42
    drawn = random.random(), np.random.rand(), tc.rand(2).tolist()
    random.seed(42)
    np.random.seed(42)
    tc.manual_seed(42)
    assert drawn == (random.random(), np.random.rand(), tc.rand(2).tolist())
    assert tc.seed_everything() == 0 and tc.seed_everything(np.int64(3), workers=True) == 3
    for seed, error in ((-1, ValueError), (2**32, ValueError), ("42", TypeError)):
        with pytest.raises(error, match="seed"):
            tc.seed_everything(seed)


def test_constants_and_the_types_of_shapes_and_dtypes():
    assert (tc.inf, tc.pi, tc.e) == (math.inf, math.pi, math.e) and math.isnan(tc.nan)
    x = tc.zeros(2, 3).masked_fill_(tc.tensor([True, False, True]), -tc.inf)
    assert x.softmax(-1).tolist() == [[0.0, 1.0, 0.0]] * 2
    assert isinstance(x.shape, tc.Size) and tc.Size([2, 3]) == x.shape == x.size()
    assert all(isinstance(kind, tc.dtype) for kind in (x.dtype, tc.float32, tc.bool, tc.bfloat16))


def test_limits_of_dtypes():
    for dtype in ("float16", "float32", "float64"):
        found, numpys = tc.finfo(dtype), np.finfo(dtype)
        assert (found.min, found.max, found.eps, found.tiny) == (numpys.min, numpys.max, numpys.eps, numpys.tiny)
    assert tc.finfo().dtype == "float32" == tc.finfo(tc.zeros(1).dtype).dtype and tc.iinfo(tc.long).max == 2**63 - 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_limits_are_pytorchs(dtype):
    theirs = pytest.importorskip("torch").finfo(getattr(sys.modules["torch"], dtype))
    for name, value in vars(tc.finfo(getattr(tc, dtype))).items():
        assert value == getattr(theirs, name) and type(value) is type(getattr(theirs, name)), name


def test_calls_of_cuda_without_a_gpu():
    """What programs call whether there is a GPU or not."""
    if tc.cuda.is_available():
        tc.cuda.manual_seed_all(3)
        assert tc.rand(2).tolist() == tc.rand(2, rng=3).tolist() and tc.cuda.is_bf16_supported()
        return
    state = tc.random.default_generator.get_state()
    for call in (tc.cuda.manual_seed, tc.cuda.manual_seed_all):
        assert call(3) is None and tc.random.default_generator.get_state() == state
    assert tc.cuda.empty_cache() is None and tc.cuda.is_bf16_supported() is False
    for call in (lambda: tc.cuda.empty_cache("cuda"), lambda: tc.ones(1).type("torch.cuda.FloatTensor")):
        with pytest.raises(RuntimeError, match="CUDA is not available"):
            call()


def test_switches_have_no_effect(monkeypatch):
    """A training step gives the same bits, whatever they say."""

    def step():
        tc.manual_seed(0)
        layer, x = tc.nn.Linear(64, 64), tc.randn(32, 64)
        tc.F.dropout(layer(x), 0.5).square().sum().backward()
        return layer.weight.grad.numpy().tobytes()

    before = step()
    for holder, name in ((tc.backends.cudnn, "deterministic"), (tc.backends.cudnn, "benchmark"), (tc.backends.cuda.matmul, "allow_tf32")):
        for value in (True, False):
            monkeypatch.setattr(holder, name, value)
            assert getattr(holder, name) is value and step() == before
    assert tc.backends.cuda.enable_flash_sdp(False) is None
    with tc.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False):
        assert step() == before
    with tc.nn.attention.sdpa_kernel([tc.nn.attention.SDPBackend.FLASH_ATTENTION, tc.nn.attention.SDPBackend.MATH]):
        assert step() == before
    assert tc.nn.attention.sdpa_kernel(tc.nn.attention.SDPBackend.MATH)(step)() == before
    assert importlib.import_module("transformer_c.backends.cudnn") is tc.backends.cudnn
    assert not tc.backends.mps.is_available() and not tc.backends.cudnn.is_built()
    with pytest.raises(AttributeError, match="'xla'; it has cuda, cudnn"):
        _ = tc.backends.xla


def test_autocast_and_scalers_of_gpus_do_nothing_without_one():
    from transformer_c.cuda.amp import GradScaler, autocast

    assert tc.cuda.amp.autocast is autocast and issubclass(autocast, tc.autocast) and issubclass(GradScaler, tc.amp.GradScaler)
    layer, x = tc.nn.Linear(3, 2), tc.tensor([[1 + 2**-12, 0.0, 0.0]])
    with autocast():
        assert tc.equal(layer(x), tc.F.linear(x, layer.weight, layer.bias)) is not tc.cuda.is_available()
    assert autocast(enabled=False)(layer)(x).dtype == "float32"
    assert GradScaler(2.0**3).is_enabled() is tc.cuda.is_available() and not GradScaler(enabled=False).is_enabled()


def test_a_script_is_the_function_itself():
    assert tc.jit.script(math.sin) is math.sin and importlib.import_module("transformer_c.jit") is tc.jit


def test_compiled_is_the_module_or_function_itself():
    layer = tc.nn.Linear(2, 2)
    assert tc.compile(layer, mode="reduce-overhead", fullgraph=True) is layer and layer.compile(dynamic=True) is None
    assert tc.compile(math.sin) is math.sin and tc.compile(dynamic=False)(math.sin) is math.sin

    @tc.compile
    def double(x):
        return x + x

    assert double(2) == 4
    for call, message in (
        (lambda: tc.compile(3), r"a module or a function, got 3 \(int\)"),
        (lambda: tc.compile(model=layer, mod=1), "'mod'"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


LOGITS = [[0.5, -1.0, 2.0], [0.0, 3.0, -math.inf]]


@pytest.mark.parametrize("given", ["logits", "probs"])
def test_classes_are_drawn_as_in_pytorch(given):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.distributions")
    found = []
    for library in (tc, torch):
        x = library.tensor(LOGITS if given == "logits" else np.exp(LOGITS).tolist(), requires_grad=True)
        classes = library.distributions.Categorical(**{given: x})
        library.manual_seed(3)
        drawn = [classes.sample(), classes.sample((5,))]
        values = [library.tensor(v) for v in ([2, 1], 1, [[0, 1], [1, 1], [2, 0]], [[1], [0]], [1.0, 0.0])]
        numbers = [*map(classes.log_prob, values), classes.entropy(), classes.probs, classes.logits]
        (numbers[0] * classes.log_prob(values[4])).sum().backward()
        found.append(([d.tolist() for d in drawn], [n.detach().numpy() for n in (*numbers, x.grad)]))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("loc", "scale"), [(0.5, 2), ([1.0, -2.0], [[0.5, 2.0], [1.0, 3.0]]), ([1.0, 2.0], 0.5), (0, [0.5, 4.0]), ([0.0] * 20, 1.0)]
)
def test_normal_distributions_are_pytorchs(loc, scale):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.distributions")
    found = []
    for library in (tc, torch):
        mean, std = (library.tensor(x, requires_grad=True) if isinstance(x, list) else x for x in (loc, scale))
        normal = library.distributions.Normal(mean, std)
        library.manual_seed(3)
        drawn = [normal.sample(), normal.sample((3,)), normal.rsample((2,))]
        assert not isinstance(mean, float) or not drawn[0].requires_grad
        numbers = [*drawn, normal.log_prob(drawn[0]), normal.log_prob(library.tensor(0.25)), normal.entropy(), normal.loc]
        leaves = [x for x in (mean, std) if isinstance(x, library.Tensor)]
        if leaves:
            (drawn[2].sum() + numbers[4].sum() + numbers[5].sum()).backward()
        found.append([np.asarray(n.detach()) for n in (*numbers, *(x.grad for x in leaves))])
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
    with pytest.raises(ValueError, match="scale must be positive"):
        tc.distributions.Normal(0.0, tc.zeros(2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either probs or logits"),
        ({"probs": [1.0], "logits": [1.0]}, "either probs or logits"),
        ({"logits": 1.0}, r"shape \(\.\.\., K\), got float32 of shape \(\)"),
        ({"probs": [1, 2]}, "got int64"),
        ({"probs": [0.5, -0.5]}, "not be negative or NaN"),
        ({"probs": [0.5, math.nan]}, "not be negative or NaN"),
    ],
)
def test_weights_that_no_classes_have(given, message):
    with pytest.raises(ValueError, match=message):
        tc.distributions.Categorical(**{name: tc.tensor(value) for name, value in given.items()})


def test_functional_is_imported_as_in_pytorch():
    """In a process of its own, where nothing else has imported it."""
    program = "import transformer_c.nn.functional as F; from transformer_c.nn.functional import relu; import transformer_c; assert F is transformer_c.F"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_layers_are_imported_from_modules_too():
    program = "from transformer_c.nn.modules import Linear, Module; from transformer_c import nn; assert (Linear, Module) == (nn.Linear, nn.Module)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""
    for file in ("html", "transformer", "activation"):  # not a second time those of the folder
        with pytest.raises(ModuleNotFoundError, match=rf"No module named 'transformer_c\.nn\.modules\.{file}'"):
            importlib.import_module(f"transformer_c.nn.modules.{file}")


def test_a_cast_to_bytes():
    """As programs from before there were bools make masks."""
    mask = tc.from_numpy(np.triu(np.ones((2, 2)), 1)).byte()
    assert mask._dtype_name == "uint8" and mask.tolist() == [[0, 1], [0, 0]] and tc.tensor([-1, 300]).byte().tolist() == [255, 44]


DTYPES = {
    "bool": "bool",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
}


def test_dtypes_have_pytorchs_names():
    for name, dtype in DTYPES.items():
        assert tc.zeros(2, dtype=getattr(tc, name))._dtype_name == dtype
        assert tc.zeros(2).to(getattr(tc, name))._dtype_name == dtype
    assert tc.zeros(2, dtype=tc.bool).dtype == tc.bool and tc.short == np.int16 and tc.int8 == np.int8
    with tc.autocast("cpu", dtype=tc.bfloat16):
        assert tc.nn.Linear(2, 2)(tc.zeros(1, 2)).float().shape == (1, 2)
    with pytest.raises(TypeError, match="int16.*expected one of float32"):
        tc.zeros(2, dtype=tc.short)


def test_bfloat16_trains_without_ml_dtypes():
    program = """
import copy, pickle, sys
sys.modules["ml_dtypes"] = None
import transformer_c as tc
x = tc.ones(2, 5, 8)
for whole in (True, False):
    model = tc.nn.Sequential(tc.nn.Linear(8, 8), tc.EncoderBlock(8, 2, 16), tc.nn.LayerNorm(8))
    model = model.bfloat16() if whole else model
    optimizer = tc.optim.AdamW(model.parameters(), lr=0.1)
    with tc.autocast(enabled=not whole):
        y = model(x.bfloat16() if whole else x)
    y.float().sum().backward()
    tc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    model.load_state_dict(model.state_dict())
    tc.summary(model)
b = x.bfloat16()
assert b.dtype == tc.bfloat16 == "bfloat16" == b.dtype.name == str(b.dtype) and b.dtype != x.dtype and b.dtype.itemsize == 2
assert tc.zeros_like(b).dtype == b.to(tc.bfloat16).dtype == b.new_ones(2).dtype == tc.zeros(2, dtype=b.dtype).dtype == "bfloat16"
F = tc.functional
for y in (b.softmax(-1), b.add(b, alpha=2), b.logsumexp(-1), F.mish(b), F.prelu(b, 0.5), F.gaussian_nll_loss(b, b, 1.0), tc.cat([b, b]), copy.deepcopy(b), pickle.loads(pickle.dumps(b))):
    assert y.dtype == tc.bfloat16 and "bfloat16" in repr(y)
try:
    b.numpy()
except ImportError as error:
    assert "need the package ml_dtypes: pip install ml_dtypes" in str(error)
else:
    raise AssertionError("an array of bfloat16")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_bytes_of_an_element():
    for dtype in DTYPES.values():
        x = tc.zeros(2, 3, dtype=dtype)
        assert type(x.element_size()) is int and x.element_size() == (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)
    model = tc.nn.Linear(2, 3).half()
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == 18


def test_from_numpy_shares_memory():
    array = np.arange(6.0).reshape(2, 3)
    x = tc.from_numpy(array)
    x[0, 0] = 7
    assert array[0, 0] == 7 and x.dtype == np.float64 and tc.from_numpy(array.T).shape == (3, 2)
    with pytest.raises(TypeError, match="takes an ndarray, not list"):
        tc.from_numpy([1.0])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("FloatTensor", "float32"), ("DoubleTensor", "float64"), ("LongTensor", "int64"), ("IntTensor", "int32"), ("BoolTensor", "bool"), ("ByteTensor", "uint8")],
)  # fmt: skip
def test_tensors_by_their_types(name, dtype):
    make = getattr(tc, name)
    assert make([[1, 0], [0, 1]]).tolist() == np.eye(2, dtype=dtype).tolist() and make([1.0]).dtype.name == dtype
    assert make(2, 3).shape == (2, 3) and make().shape == (0,) and make(np.ones(3)).dtype.name == dtype
    assert tc.ones(2).type(make)._dtype_name == tc.ones(2).type(dtype)._dtype_name == dtype
    assert (
        make(2).type() == f"torch.{name}"
        and tc.ones(2).type(f"torch.{name}")._dtype_name == dtype == tc.ones(2).type(make(1).type())._dtype_name
    )
    with pytest.raises(TypeError, match=f"{name}\\(\\) takes data"):
        make([1], [2])


def test_ints_alone_are_the_lengths_of_a_tensor():
    """As in nn.Parameter(torch.Tensor(8)): never a number that broadcasts."""
    for lengths in ((), (8,), (np.int64(3),), (2, 3), (0, 3), (1,) * 16):
        made = tc.Tensor(*lengths)
        assert made.shape == (lengths or (0,)) and made.dtype == "float32"
    assert tc.nn.Parameter(tc.Tensor(8)).shape == (8,) and tc.nn.Parameter([8.0]).tolist() == [8.0]
    for data in (2.5, True, [2, 3], (2, 3), np.array(3), tc.tensor(3)):
        assert tc.Tensor(data).tolist() == tc.tensor(data).tolist()
    assert tc.Tensor(3, "float64").tolist() == 3 == tc.Tensor(data=3).tolist()
    for lengths, error, message in (
        ((-1,), ValueError, "negative length"),
        ((1,) * 17, ValueError, "at most 16 axes"),
        ((2**70,), OverflowError, "too big"),
    ):
        with pytest.raises(error, match=message):
            tc.Tensor(*lengths)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "float16"])
def test_a_saved_tensor_is_loaded_as_an_array(tmp_path, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tc.save(tc.tensor(array), tmp_path / "x")
    loaded = tc.load(tmp_path / "x")
    assert type(loaded) is np.ndarray and loaded.dtype == dtype and np.array_equal(loaded, array)
    tc.save(np.full((), 2.5), tmp_path / "x")
    assert tc.load(tmp_path / "x") == 2.5
    tc.save(tc.nn.Parameter([1.0]), tmp_path / "x")
    assert tc.load(tmp_path / "x").tolist() == [1.0]
    tc.save([tc.tensor(array), {"a": (array, 3)}], tmp_path / "x")
    first, second = tc.load(tmp_path / "x")
    assert np.array_equal(first, array) and np.array_equal(second["a"][0], array) and second["a"][1] == 3


def test_a_damaged_saved_tensor(tmp_path):
    import safetensors.numpy

    with pytest.raises(tc.CheckpointError, match="contains a ndarray"):
        tc.save(np.ones(2), tmp_path / "x")
        tc.TransformerPredictor.load_from_checkpoint(tmp_path / "x")
    safetensors.numpy.save_file({"other": np.ones(2)}, tmp_path / "x", {"transformer_c": "1", "contains": "value"})
    with pytest.raises(tc.CheckpointError, match="does not contain alone"):
        tc.load(tmp_path / "x")


def test_utils_data_is_data():
    import transformer_c.utils.data as data
    from transformer_c.utils.data import DataLoader, Dataset, TensorDataset, random_split

    assert DataLoader is tc.data.DataLoader is tc.utils.data.DataLoader and data.__all__ == tc.data.__all__
    for part, name in (
        ("dataloader", "DataLoader"),
        ("dataset", "Dataset"),
        ("distributed", "DistributedSampler"),
        ("sampler", "RandomSampler"),
    ):
        assert getattr(importlib.import_module(f"transformer_c.utils.data.{part}"), name) is getattr(tc.data, name)
    assert Dataset is tc.data.Dataset and TensorDataset is tc.data.TensorDataset and random_split is tc.data.random_split


def test_lightnings_names():
    assert tc.LightningModule is tc.TrainingModule and issubclass(tc.callbacks.ModelCheckpoint, tc.callbacks.Callback)

    class Data(tc.LightningDataModule):
        def __init__(self, size=3, *, seed=0):
            super().__init__()
            self.save_hyperparameters(ignore="seed")

    assert dict(Data(5).hparams.items()) == {"size": 5}

    class Model(tc.LightningModule):
        def __init__(self, config, *names, **options):
            super().__init__()
            self.save_hyperparameters(*(config if name == "config itself" else name for name in names), **options)

    config = {"lr": 0.1}
    for options in ({"logger": False}, {"ignore": None}, {"ignore": ["other"]}):
        assert Model(config, **options).hparams.config is config
    assert list(Model(config, "config").hparams) == ["config"]
    with pytest.raises(
        TypeError, match=r"names of arguments of __init__, not a dict; write save_hyperparameters\('config'\), which is self\."
    ):
        Model(config, "config itself")
    with pytest.raises(ValueError, match="__init__ has no such argument; it has config"):
        Model(config, "lr")


def test_they_are_loaded_on_first_use():
    code = "import sys, transformer_c; print([n for n in ('amp', 'backends', 'callbacks', 'data', 'loggers', 'metrics', 'optim', 'testing', 'trainer', 'training', 'utils') if f'transformer_c.{n}' in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_there_is_instead_of_a_scaler():
    with pytest.raises(AttributeError, match="tc.amp.GradScaler"):
        _ = tc.GradScaler


DISTRIBUTIONS = {  # parameters, values, and the same of another distribution
    "Normal": ({"loc": [0.5, -1.0], "scale": [[0.5], [2.0]]}, [0.25, 0.75], {"loc": [1.0, 0.0], "scale": [1.5, 0.25]}),
    "Uniform": ({"low": [0.0, 0.2], "high": [1.0, 1.5]}, [0.25, 0.75], {"low": [-1.0, 0.5], "high": [2.0, 2.0]}),
    "Bernoulli": ({"probs": [0.0, 0.25, 0.5, 0.75, 1.0]}, [0.0, 1.0, 1.0, 0.0, 1.0], {"probs": [0.0, 1.0, 0.25, 0.5, 0.75]}),
    "Bernoulli by logits": ({"logits": [-1.0, 0.0, 3.0]}, [1.0, 0.0, 1.0], {"logits": [0.5, -0.5, 2.0]}),
    "Categorical": ({"probs": [[0.25, 0.0, 0.75], [0.5, 0.25, 0.25]]}, [2, 1], {"probs": [0.25, 0.25, 0.5]}),
    "Categorical by logits": ({"logits": [[0.5, -1.0, 2.0]]}, [2], {"logits": [[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]]}),
}


def use_distributions(library, name):
    parameters, values, others = DISTRIBUTIONS[name]
    kind = getattr(library.distributions, name.split()[0])
    leaves = {key: library.tensor(value, requires_grad=True) for key, value in parameters.items()}
    p, q, values = kind(**leaves), kind(**{k: library.tensor(v) for k, v in others.items()}), library.tensor(values)
    assert isinstance(p, library.distributions.Distribution)
    library.manual_seed(4)
    found = [p.sample(), p.sample((3,)), p.log_prob(values), p.entropy(), p.perplexity(), p.mode]
    found += [p.mean, p.variance, p.stddev, library.distributions.kl_divergence(p, q), library.distributions.kl_divergence(q, p)]
    larger = p.expand((4, *p.batch_shape))
    assert type(larger) is kind and larger.batch_shape == (4, *p.batch_shape) and not larger.event_shape
    found += [larger.log_prob(values), larger.sample(), larger.mean]
    if kind.__name__ in ("Normal", "Uniform"):
        found += [p.rsample((2,)), p.cdf(values), p.icdf(values), q.cdf(library.tensor(1.0))]
    if kind.__name__ == "Categorical":
        found += [
            p.enumerate_support(),
            p.enumerate_support(expand=False),
            *(library.tensor(list(s)) for s in (p.param_shape, p.batch_shape)),
        ]
    gradients = []
    if "Bernoulli" != name != "Categorical":  # there is none where a probability is 0
        for x in found[:5] + found[6:]:  # without the mode
            if x.requires_grad:
                gradients += library.autograd.grad(x.sum(), list(leaves.values()), retain_graph=True, materialize_grads=True)
    assert p.has_rsample == (kind.__name__ in ("Normal", "Uniform"))
    return [np.asarray(x.detach()) for x in (*found, *gradients)]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.distributions")
    for ours, theirs in zip(use_distributions(tc, name), use_distributions(torch, name), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_numbers_beside_parameters_have_their_dtype(dtype):
    d, tensor = tc.distributions, tc.tensor([0.25], dtype=dtype)
    for made, names in (
        (d.Normal(0.1, tensor), ("loc", "scale")),
        (d.Normal(tensor, 0.1), ("loc", "scale")),
        (d.Uniform(0.1, tensor), ("low", "high")),
    ):
        assert all(getattr(made, name).dtype == tensor.dtype for name in names) and made.sample().dtype == tensor.dtype
        assert made.log_prob(0.2).dtype == tensor.dtype and made.log_prob(0.2) == made.log_prob(tc.tensor([0.2], dtype=dtype))
    assert d.Normal(tensor, 0.1).scale == tc.tensor(0.1, dtype=dtype)
    assert d.Bernoulli(tensor).log_prob(1).dtype == tensor.dtype and d.Normal(0.1, 1).loc.dtype == tc.float32


def test_what_distributions_refuse():
    d = tc.distributions
    for error, match, call in (
        (ValueError, "low must be below high", lambda: d.Uniform(1.0, tc.tensor([2.0, 1.0]))),
        (ValueError, "from low to high", lambda: d.Uniform(0.0, 1.0).log_prob(2.0)),
        (ValueError, "either probs or logits", lambda: d.Bernoulli()),
        (ValueError, "probs must be from 0 to 1", lambda: d.Bernoulli(tc.tensor([0.5, math.nan]))),
        (ValueError, "logits must not be NaN", lambda: d.Bernoulli(logits=math.nan)),
        (ValueError, "floating numbers, got int64", lambda: d.Bernoulli(tc.tensor([1, 0]))),
        (ValueError, "value must be 0 or 1", lambda: d.Bernoulli(0.5).log_prob(0.5)),
        (ValueError, r"loc \(2,\) and scale \(3,\) do not broadcast", lambda: d.Normal(tc.ones(2), tc.ones(3))),
        (NotImplementedError, "what Categorical draws has no gradient", lambda: d.Categorical(tc.ones(2)).rsample()),
        (NotImplementedError, "the divergence of Normal and Uniform", lambda: d.kl_divergence(d.Normal(0.0, 1.0), d.Uniform(0.0, 1.0))),
        (AttributeError, "has no attribute 'crf'", lambda: d.Normal(0.0, 1.0).crf),
    ):
        with pytest.raises(error, match=match):
            call()
    assert d.Uniform(0.0, 1.0, validate_args=False).log_prob(tc.tensor([2.0, 0.5])).tolist() == [-math.inf, 0.0]
    assert d.Normal(0.0, 1.0).icdf(tc.tensor([0.0, 1.0, 2.0])).isfinite().any().item() is False
    assert repr(d.Normal(tc.zeros(3), 1.5)) == "Normal(loc: (3,), scale: (3,))" and repr(d.Bernoulli(0.5)) == "Bernoulli(probs: 0.5)"


def test_matrices():
    rng = np.random.default_rng(0)
    linalg = tc.linalg
    for shape in ((4, 3), (2, 3, 4), (3, 3)):
        a = rng.standard_normal(shape)
        x = tc.tensor(a)
        for mode, name in (("reduced", "reduced"), ("complete", "complete")):
            found = linalg.qr(x, mode=mode)
            np.testing.assert_allclose((found.Q @ found.R).numpy(), a, atol=1e-12)
            assert found.Q.shape == np.linalg.qr(a, name)[0].shape
        assert linalg.qr(x, "r").Q.numel() == 0 and isinstance(linalg.qr(a).Q, np.ndarray)
        found = linalg.svd(x, full_matrices=False)
        np.testing.assert_allclose((found.U * found.S.unsqueeze(-2) @ found.Vh).numpy(), a, atol=1e-12)
    square = rng.standard_normal((2, 3, 3)).astype(np.float32)
    x = tc.tensor(square)
    assert linalg.inv(x).dtype == tc.float32
    np.testing.assert_allclose((linalg.inv(x) @ x).numpy(), np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-4)
    np.testing.assert_allclose((x @ linalg.solve(x, x * 2)).numpy(), 2 * square, atol=1e-4)
    values, vectors = linalg.eigh(x + x.mT)
    np.testing.assert_allclose((vectors * values.unsqueeze(-2) @ vectors.mT).numpy(), (x + x.mT).numpy(), atol=1e-4)
    for name in "UuLl":
        triangle = (np.tril if name in "Ll" else np.triu)(square)
        both = triangle + triangle.swapaxes(-1, -2) - triangle * np.eye(3)
        np.testing.assert_allclose(linalg.eigh(x, name).eigenvalues.numpy(), np.linalg.eigvalsh(both), atol=1e-5)
    assert tc.equal(linalg.norm(x, dim=np.int64(1)), linalg.norm(x, dim=1))
    x.requires_grad_()
    (
        linalg.norm(x) + linalg.vector_norm(x, 1, dim=(0, 1)).sum() + linalg.norm(x, "fro", dim=(1, 2)).sum() + linalg.norm(x[0, 0], 1)
    ).backward()
    assert x.grad is not None
    for error, match, call in (
        (RuntimeError, r"linalg.qr\(\) has no gradient: use detach\(\)", lambda: linalg.qr(x)),
        (TypeError, r"linalg.inv\(\) takes float32 and float64, got float16", lambda: linalg.inv(x.detach().half())),
        (ValueError, "mode must be 'reduced'", lambda: linalg.qr(x.detach(), "full")),
        (ValueError, "no matrix norm 'nuc'", lambda: linalg.norm(x, "nuc", dim=(0, 1))),
        (ValueError, "no matrix norm 1", lambda: linalg.norm(x.detach(), 1)),
        (linalg.LinAlgError, "Singular", lambda: linalg.inv(tc.zeros(2, 2))),
        (ValueError, "UPLO must be 'L' or 'U', got 'X'", lambda: linalg.eigh(x.detach(), "X")),
        (TypeError, "got int64; give an ndarray of float64", lambda: linalg.inv([[1, 2], [3, 4]])),
        (TypeError, "dim must be an int, not float", lambda: linalg.norm(x, dim=0.5)),
    ):
        with pytest.raises(error, match=match):
            call()


def test_solutions_are_pytorchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for a, b in (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3)), ((3, 3, 3), (3, 3)), ((2, 3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (2, 3, 1)), ((3, 3), (2, 3, 2))):  # fmt: skip
        a, b = rng.standard_normal(a) + 4 * np.eye(3), rng.standard_normal(b)
        found = []
        for library in (tc, torch):
            x, y = library.tensor(a).requires_grad_(), library.tensor(b).requires_grad_()
            solution = library.linalg.solve(x, y)
            (solution**3).sum().backward()
            found.append([solution.detach().numpy(), x.grad.numpy(), y.grad.numpy()])
        for ours, theirs in zip(*found, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        with tc.no_grad():
            plain = tc.linalg.solve(tc.tensor(a).requires_grad_(), tc.tensor(b))
        assert not plain.requires_grad and (plain.numpy() == found[0][0]).all()
        alone = tc.tensor(a).requires_grad_()
        assert tc.linalg.solve(alone, b.tolist()).requires_grad
        (tc.linalg.solve(alone, b) ** 3).sum().backward()
        np.testing.assert_allclose(alone.grad.numpy(), found[1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_inverses_are_pytorchs(dtype):
    torch, found = pytest.importorskip("torch"), []
    a = (np.random.default_rng(0).standard_normal((2, 3, 3)) + 4 * np.eye(3)).astype(dtype)
    for library in (tc, torch):
        x = library.tensor(a).requires_grad_()
        (library.linalg.inv(x) ** 2).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4 if dtype == "float32" else 1e-10, atol=1e-7)


def test_norms_are_pytorchs():
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for options in ({}, {"dim": 1}, {"dim": (0, 1), "keepdim": True}, {"ord": "fro"}, {"ord": 1, "dim": 0}, {"ord": math.inf, "dim": -1}):
        found = [library.linalg.norm(library.tensor(a), **options).numpy() for library in (tc, torch)]
        np.testing.assert_allclose(*found, rtol=1e-6)
    for order in (0, 1, 2, 3.5, math.inf, -math.inf):
        found = [library.linalg.vector_norm(library.tensor(a), order, dim=-1).numpy() for library in (tc, torch)]
        np.testing.assert_allclose(*found, rtol=1e-5)
