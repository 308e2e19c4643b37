"""How weights reach a model: mapped files, bytes, no random draws, memory, hostile files."""

import io
import json
import os
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
import safetensors.numpy
import transformer_c as tc
from folders import CONFIG, own_text_encoders, sizes
from transformer_c.checkpoint.safetensors_file import release
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.folder import read_weights
from words import write_tokenizer

ARRAYS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(3),
    "c": np.ones((2, 0), np.float64),
    "d": np.array([True, False]),
}


def test_mapped_files(tmp_path):
    path = tmp_path / "x.safetensors"
    tc.save(ARRAYS, path)
    before = path.read_bytes()
    mapped = tc.load(path, mmap=True)
    for name, array in ARRAYS.items():
        assert mapped[name].dtype == array.dtype and np.array_equal(mapped[name], array)
    mapped["a"][0] = -1
    tc.tensor(0)
    layer = tc.nn.Linear(4, 3)
    tc._core.set_data(layer.weight, tc.as_tensor(mapped["a"]))
    layer.weight.data += 1
    assert mapped["a"][0, 0] == 0 and path.read_bytes() == before
    tc.save({"a": np.zeros(2, "f4")}, path)  # replaces the file; what is mapped stays
    assert mapped["a"][2, 3] == 12 and tc.load(path, mmap=True)["a"].shape == (2,)
    with pytest.raises(TypeError, match="mmap=True maps a file"):
        tc.load(before, mmap=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_is_read_keeps_its_weights_when_the_file_is_overwritten(tmp_path, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    ids = np.array([[1, 2, 3]])
    tc.models.save(tc.models.create(CONFIG).to(dtype=dtype), tmp_path)
    model = tc.models.load(tmp_path, mmap=False)
    mapped = tc.models.load(tmp_path)
    expected = model(ids)
    np.testing.assert_array_equal(mapped(ids), expected)
    assert {p.dtype for p in model.parameters()} == {p.dtype for p in mapped.parameters()}
    del mapped
    path = tmp_path / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(size))
    np.testing.assert_array_equal(model(ids), expected)
    path.write_bytes(b"")
    np.testing.assert_array_equal(model(ids), expected)


def test_weights_that_are_read_are_packed_once(tmp_path):
    """Arrays of the user are packed at each call, as nobody says when they are changed; what a file gave is the model's alone."""
    ids, state = np.array([[1, 2, 3]]), tc.convert.to_hf(tc.models.create(CONFIG))
    tc.models.save(tc.convert.from_hf(state, CONFIG), tmp_path)
    arrays = {name: array.numpy().copy() for name, array in state.items()}
    for model, variant in ((tc.models.load(tmp_path), "panels"), (tc.convert.from_hf(arrays, CONFIG), "strided")):
        model.requires_grad_(False)
        before = model(ids)
        assert tc.config.last_plans()["gemm"]["variant"] == variant
        model.layers[0].linear1.weight.mul_(-1)
        negated = model(ids)
        assert not np.array_equal(negated, before)
        np.from_dlpack(model.layers[0].linear1.weight)[:] *= -1  # by code outside the library
        np.testing.assert_array_equal(model(ids), before)
    arrays["encoder.layer.0.intermediate.dense.weight"] *= -1
    np.testing.assert_array_equal(model(ids), negated)


def test_parameters_have_memory_of_their_own(tmp_path):
    """A pytorch_model.bin may have one array under two names."""
    torch = pytest.importorskip("torch")
    arrays = {name: array.numpy().copy() for name, array in tc.convert.to_hf(tc.models.create(CONFIG)).items()}
    first, second = (f"encoder.layer.{i}.intermediate.dense.weight" for i in (0, 1))
    arrays[second] = arrays[first]
    tc.models.save(tc.convert.from_hf(arrays, CONFIG), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    torch.save({**state, second: state[first][:]}, tmp_path / "pytorch_model.bin")
    for model in (tc.models.load(tmp_path), tc.convert.from_hf(arrays, CONFIG)):
        one, other = (layer.linear1.weight for layer in model.layers)
        np.testing.assert_array_equal(one.detach(), other.detach())
        with tc.no_grad():
            one.add_(1.0)
        np.testing.assert_allclose((one - other).detach(), np.ones(one.shape), atol=1e-6)


def test_arrays_of_the_user_are_kept(tmp_path):
    """What a model is made of gives its memory back; what the user has mapped, and perhaps written to, does not."""
    tc.models.save(tc.models.create({**CONFIG, "vocab_size": 65536}), tmp_path)
    name = "embeddings.word_embeddings.weight"
    state = tc.load(tmp_path / "model.safetensors", mmap=True)
    state[name][:] = 2
    model = tc.convert.from_hf(state, {**CONFIG, "vocab_size": 65536}, dtype="float64")
    assert (model.words.weight.numpy() == 2).all() and (state[name] == 2).all() and len(state) > 10
    release(state[name])  # of the file again, but for the pages at its ends
    assert np.array_equal(state[name][2048:-2048], tc.load(tmp_path / "model.safetensors")[name][2048:-2048])
    for other in (np.ones(3), np.ones((2, 3))[1], state, 3):
        release(other)


READERS = {
    "SentenceEncoder": (tc.models.SentenceEncoder.from_pretrained, None, lambda read: read.encode(["abc", "z"])),
    "CrossEncoder": (tc.models.CrossEncoder.from_pretrained, "text-classification", lambda read: read.predict([("a", "bc")])),
    "TextClassifier": (tc.models.TextClassifier, "text-classification", lambda read: read.predict_proba(["abc", "z"])),
    "TokenClassifier": (tc.models.TokenClassifier, "token-classification", lambda read: read.predict_proba([["abc"]])[0]),
}


@pytest.mark.parametrize("name", READERS)
def test_what_reads_texts_keeps_weights_that_are_read(tmp_path, name):
    pytest.importorskip("tokenizers")
    read, task, use = READERS[name]
    tc.models.save(tc.models.create({**CONFIG, "initializer_range": 0.3}, task=task), tmp_path)
    write_tokenizer(tmp_path)
    one, mapped = read(tmp_path, mmap=False), read(tmp_path)
    expected = use(one)
    np.testing.assert_array_equal(use(mapped), expected)
    del mapped
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(use(one), expected)


def test_assigned_states(tmp_path):
    def make():
        layer = tc.nn.Linear(3, 4)
        return tc.nn.Sequential(layer, tc.nn.LayerNorm(4), tc.nn.Linear(4, 3), layer)

    source, path = make(), tmp_path / "x.safetensors"
    tc.save(source.state_dict(), path)
    state = tc.load(path, mmap=True)
    with tc.nn.init.skip():
        model = make()
    weight = model[0].weight
    assert model.load_state_dict(state, assign=True) == ([], [])
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(model.parameters(), source.parameters(), strict=True))
    assert model[0].weight is weight is model[3].weight and weight.requires_grad
    assert np.shares_memory(weight.numpy(), state["3.weight"]) and not np.shares_memory(source[0].weight.numpy(), weight.numpy())
    layer = tc.nn.Linear(3, 4)
    layer.load_state_dict({"weight": np.ones((4, 3)), "bias": np.arange(4)}, assign=True)
    assert layer.weight.dtype == "float64" and layer.bias.dtype == "float32" and layer.bias.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="shapes"):
        layer.load_state_dict({"weight": np.zeros((4, 3), "f4"), "bias": np.zeros(3, "f4")}, assign=True)
    assert layer.weight.numpy().all()
    frozen = np.ones((4, 3), np.float32)
    frozen.flags.writeable = False
    layer.load_state_dict({"weight": frozen, "bias": np.zeros(4, "f4")}, assign=True)
    with tc.no_grad():
        layer.weight.fill_(2)
    assert frozen.all() and frozen[0, 0] == 1


def test_an_odd_header(tmp_path):
    """Files of other programs may have headers of any length: arrays at odd addresses are copied."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * ((-len(header)) % 8 + 1)
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(header)) + header + np.array([1.5, 2.5], "<f4").tobytes())
    found = tc.load(tmp_path / "x", mmap=True)["a"]
    assert found.flags.aligned and found.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("mapped", [False, True])
def test_empty_files(tmp_path, mapped):
    for data in (b"", b"\0" * 7, b"\0" * 8):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(tc.CheckpointError, match="not a safetensors file"):
            tc.load(tmp_path / "x", mmap=mapped)


class Unsought(io.RawIOBase):
    """A stream like a socket's: it cannot be sought in, and gives few bytes at a time."""

    def __init__(self, data):
        self._data = io.BytesIO(data)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._data.readinto(memoryview(buffer)[:7])


class Short(io.BytesIO):
    """Takes at most 7 bytes at once, as a raw file may."""

    def write(self, data):
        return super().write(memoryview(data)[:7])


class Silent:
    """Says nothing of how much it took."""

    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += bytes(data)


def test_files_that_take_a_part_or_say_nothing():
    short, silent, whole = Short(), Silent(), io.BytesIO()
    for file in (short, silent, whole):
        tc.save({**ARRAYS, "empty": np.zeros((0, 3)), "scalar": np.float32(2)}, file)
    assert short.getvalue() == silent.data == whole.getvalue()
    assert tc.load(silent.data)["scalar"] == 2


def test_bytes_and_file_objects(tmp_path):
    path = tmp_path / "x.safetensors"
    tc.save(ARRAYS, path)
    data = path.read_bytes()
    with open(path, "rb") as file:
        given = [data, bytearray(data), memoryview(data), io.BytesIO(data), file, io.BufferedReader(Unsought(data))]
        moved = io.BytesIO(b"12345" + data)
        moved.seek(5)
        for source in (*given, moved):
            loaded = tc.load(source)
            assert all(np.array_equal(loaded[name], array) for name, array in ARRAYS.items())
    written = io.BytesIO(b"12345")
    written.seek(5)
    tc.save(ARRAYS, written)
    assert written.getvalue() == b"12345" + data
    with open(tmp_path / "raw", "wb", buffering=0) as file:
        tc.save(ARRAYS, file)
    assert (tmp_path / "raw").read_bytes() == data
    with open(tmp_path / "text", "w") as file, pytest.raises(TypeError, match='binary mode, "wb"'):
        tc.save(ARRAYS, file)
    source = bytearray(data)
    loaded = tc.load(source)
    source[:] = bytes(len(source))
    assert np.array_equal(loaded["a"], ARRAYS["a"])
    with open(path) as file, pytest.raises(TypeError, match='binary mode, "rb"'):
        tc.load(file)
    with pytest.raises(tc.CheckpointError, match="the bytes object cannot be loaded"):
        tc.load(data[:-1])
    with pytest.raises(TypeError, match="expected a path, bytes or a file object"):
        tc.load(3)
    checkpoint = os.path.join(os.path.dirname(__file__), "..", "golden", "checkpoints", "state_dict.pt")
    with open(checkpoint, "rb") as file:
        data = file.read()
    for source in (data, io.BytesIO(data)):
        assert len(tc.load_torch_checkpoint(source)) == 6


def test_files_of_other_programs():
    for data, word in (
        (b"GGUF\3\0\0\0" + bytes(16), "GGUF"),
        (b"\x08\x08\x12\x07pytorch\x1a\x05", "ONNX"),
        (b"\x89HDF\r\n\x1a\n" + bytes(9), "HDF5"),
    ):
        for read in (tc.load, tc.load_torch_checkpoint):
            with pytest.raises(tc.CheckpointError, match=f"an? {word} file.*safetensors"):
                read(data)


def test_nothing_is_drawn(tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    tc.manual_seed(4)
    expected = tc.rand(3).tolist()
    tc.manual_seed(4)
    tc.models.load(tmp_path)
    with tc.nn.init.skip():
        tc.nn.TransformerEncoderLayer(8, 2)
        with pytest.raises(ValueError), tc.nn.init.skip():
            raise ValueError
        tc.nn.Embedding(5, 3, padding_idx=0)
    assert tc.rand(3).tolist() == expected
    assert tc.nn.Linear(50, 50).weight.numpy().any()


@pytest.mark.parametrize("kind", [kind for kind in own_text_encoders() if ARCHITECTURES[kind].table.tied])
def test_a_file_may_have_the_second_name_of_an_array_alone(tmp_path, kind):
    """Of two names that are one array, a program may have written either."""
    values = {"model_type": kind, **sizes(width=16, heads=2, hidden=24, layers=1, words=64, positions=40)}
    task = next(task for task in ARCHITECTURES[kind].table.heads if task in ("fill-mask", "text-generation"))
    model = tc.models.create({**values, "initializer_range": 0.3, "tie_word_embeddings": True}, task=task)
    if task == "fill-mask":
        tc.nn.init.uniform_(model.bias)
    tc.models.save(model, tmp_path)
    path, table = tmp_path / "model.safetensors", ARCHITECTURES[kind].table
    state = tc.load(path)
    for copy, name in table.tied.items():
        state[copy] = state.pop(table.full(name))
    tc.save(state, path)
    expected = model([[4, 5, 6]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(tc.models.load(tmp_path, task=task)([[4, 5, 6]]), expected)
        np.testing.assert_array_equal(tc.models.load(tmp_path)([[4, 5, 6]]), model.encoder([[4, 5, 6]]))


def test_a_model_that_is_not_as_its_configuration_says_is_not_saved(tmp_path):
    """It could not be loaded, and what was in the folder would be lost."""
    task, folder = "text-classification", tmp_path / "folder"
    tc.models.save(tc.models.create(CONFIG, task=task), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    changes = {
        "num_labels": (3, lambda model: setattr(model, "out", tc.nn.Linear(16, 3)), "2 labels but 'classifier.weight' has shape"),
        "num_hidden_layers": (1, lambda model: model.encoder.layers.__delitem__(1), "num_hidden_layers = 2; the weights have 1 layers"),
        "vocab_size": (70, lambda model: setattr(model.encoder, "words", tc.nn.Embedding(70, 16)), "vocab_size = 64 but"),
    }
    for name, (value, change, message) in changes.items():
        model = tc.models.load(folder, task=task)
        change(model)
        with pytest.raises(ValueError, match=rf"the folder could not be loaded: config.json has {message}.*model.config is what"):
            tc.models.save(model, folder)
        assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
        model.config[name] = value
        tc.models.save(model, tmp_path / name)
        assert np.array_equal(tc.models.load(tmp_path / name, task=task)([[1, 2]]), model([[1, 2]]))


@pytest.mark.parametrize("value", [np.float32(0.5), {1}, b"a", tc.tensor(1.0)], ids=lambda value: type(value).__name__)
def test_a_configuration_that_json_has_not_is_not_saved(tmp_path, value):
    """The weights were in the folder then, beside the config.json of others or none."""
    model = tc.models.create(CONFIG)
    model.config["scores"] = [value]
    message = rf"config\.json cannot have .* \({type(value).__name__}\); int, float, str, bool, None, and lists and dicts of them"
    with pytest.raises(TypeError, match=message):
        tc.models.save(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_parameters_without_a_name_in_transformers_are_refused(tmp_path):
    model = tc.models.create(CONFIG, task="text-classification")
    model.encoder.layers[1].qkv = tc.nn.Sequential(model.encoder.layers[1].qkv)
    message = "parameter 'layers.1.qkv.0.weight' is none that transformers has a name for: the model has other layers than Bert; put"
    for refused in (lambda: tc.models.save(model, tmp_path), lambda: tc.convert.to_hf(model)):
        with pytest.raises(ValueError, match=message):
            refused()
    model = tc.models.create(CONFIG)
    model.layers[1].qkv.low_rank = tc.nn.Parameter(tc.zeros(48, 1))  # as of a subclass of Linear
    with pytest.raises(ValueError, match=r"parameter 'layers.1.qkv.low_rank' is none that transformers has a name for"):
        tc.models.save(model, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", [None, "text-classification"])
def test_a_model_without_arrays_that_its_configuration_asks_for_is_not_saved(tmp_path, task):
    changes = {
        "out": (tc.nn.Linear(16, 16, bias=False), r"attention\.output\.dense\.bias' is not there; by config\.json it has shape \(16,\)"),
        "linear2": (tc.nn.Linear(25, 16), r"output\.dense\.weight' has shape \(16, 25\); by config\.json it has shape \(16, 24\)"),
    }
    for name, (layer, message) in changes.items():
        model = tc.models.create(CONFIG, task=task)
        setattr((model.encoder if task else model).layers[1], name, layer)
        with pytest.raises(ValueError, match=message):
            tc.models.save(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_parameters_are_the_mapped_memory(tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    for dtype in ("float32", "bfloat16", "float64"):
        model = tc.models.load(tmp_path, dtype=dtype)
        assert {p.dtype.name for p in model.parameters()} == {dtype} and all(p.requires_grad for p in model.parameters())
    model = tc.models.load(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    optimizer = tc.optim.SGD(model.parameters(), lr=1.0)
    model(tc.tensor([[1, 2, 3]])).square().sum().backward()
    optimizer.step()
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not np.array_equal(model.words.weight.numpy(), tc.models.load(tmp_path).words.weight.numpy())


def test_memory(tmp_path):
    """The peak of a process that loads is below the file's size; queries, keys and values are all that is copied."""
    wide = {**CONFIG, "vocab_size": 30000, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 2}
    tc.models.save(tc.models.create(wide), tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    code = """if True:
        import re, sys, numpy as np, transformer_c as tc
        tc.models.load
        peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # ru_maxrss counts the parent's
        before = peak()
        model = tc.models.load(sys.argv[1])
        loaded = peak() - before
        model(np.ones((1, 4), int))
        print(loaded, peak() - before)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, capture_output=True, text=True)
    loaded, used = map(int, done.stdout.split())
    assert loaded < 0.4 * size and used < 1.1 * size, (size, loaded, used)


# ---- shards -----------------------------------------------------------------------------------------------------------------


def sharded(folder, **index):
    tc.models.save(tc.models.create(CONFIG), folder)
    state = safetensors.numpy.load_file(folder / "model.safetensors")
    os.unlink(folder / "model.safetensors")
    names = sorted(state)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        safetensors.numpy.save_file({name: state[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {**files, **index}}))
    return state


def test_shards(tmp_path):
    state = sharded(tmp_path)
    assert read_weights(str(tmp_path)).keys() == state.keys()
    found = tc.convert.to_hf(tc.models.load(tmp_path))
    assert all(np.array_equal(found[name].numpy(), value) for name, value in state.items())


def test_shards_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    state = sharded(tmp_path)
    names = sorted(state)
    files = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(names)}
    for file in set(files.values()):
        torch.save({name: torch.from_numpy(state[name].copy()) for name in names if files[name] == file}, tmp_path / file)
    for path in tmp_path.glob("*.safetensors*"):
        path.unlink()
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    found = tc.convert.to_hf(tc.models.load(tmp_path))
    assert found.keys() == state.keys() and all(np.array_equal(found[name].numpy(), value) for name, value in state.items())
    (tmp_path / files[names[0]]).unlink()
    with pytest.raises(tc.CheckpointError, match=f"names '{files[names[0]]}', which the folder does not have"):
        tc.models.load(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"x": "model-00001-of-00002.safetensors"}, "lacks 'x'"),
        ({"x": "model-00003-of-00002.safetensors"}, "which the folder does not have"),
        ({"x": "../model.safetensors"}, "files of its own folder"),
        ({"x": "/etc/passwd"}, "files of its own folder"),
        ({"x": ".."}, "files of its own folder"),
        ({"x": 3}, "no weight_map"),
        ({"pooler.dense.bias": "model-00001-of-00002.safetensors"}, "pooler.dense.bias"),
    ],
)
def test_wrong_indices(tmp_path, index, message):
    sharded(tmp_path, **index)
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.load(tmp_path)
