"""tc.save and tc.load: loading gives what was saved, and a failed save changes nothing."""

import argparse
import errno
import io
import json
import math
import mmap
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from torch_files import overwrite
from transformer_c import checkpoint, nn, random
from transformer_c.checkpoint import CheckpointError, files

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.safetensors"


def same(a, b):
    """Equal, types and dtypes included, in nested data."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and [*map(repr, a)] == [*map(repr, b)]
            and all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def raw(path, tensors, metadata=None):
    """Writes a safetensors file by hand: {name: (dtype, shape, bytes)}."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# ---- what comes back ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (), (0,), (3, 0, 2), (1,), (7, 1, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(path, rng, dtype, shape):
    values = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    checkpoint.save({"x": values, "y": values}, path)
    state = checkpoint.load(path)
    assert list(state) == ["x", "y"] and same(state["x"], values) and state["y"].shape == shape
    assert state["x"].flags.writeable


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_of_ml_dtypes(path, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([0.25, -1.5, 240, np.nan]).astype(getattr(ml_dtypes, dtype))
    try:
        checkpoint.save({"x": values}, path)
    except ValueError as error:  # safetensors 0.4 has no 8-bit floats
        assert "cannot store" in str(error) and dtype != "bfloat16"
        pytest.skip(str(error))
    assert checkpoint.load(path)["x"].tobytes() == values.tobytes()
    assert checkpoint.load(path)["x"].dtype == values.dtype


def test_bfloat16_without_ml_dtypes_comes_as_the_same_float32(path, monkeypatch):
    raw(path, {"x": ("BF16", [2, 2], bytes.fromhex("803fc0bf0000c07f"))})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    values = checkpoint.load(path)["x"]
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, np.array([[1, -1.5], [0, np.nan]], np.float32))
    raw(path, {"x": ("F8_E5M2", [2], b"\0\0")})
    with pytest.raises(CheckpointError, match="pip install -U ml_dtypes"):
        checkpoint.load(path)


VIEWS = {
    "transposed": lambda a: a.T,
    "stepped": lambda a: a[::2, 1::2],
    "reversed": lambda a: a[::-1, ::-1],
    "big-endian": lambda a: a.astype(">f4"),
    "broadcast": lambda a: np.broadcast_to(a[0], (3, 6)),
    "by column": np.asfortranarray,
}


@pytest.mark.parametrize("view", VIEWS)
def test_strides_and_byte_order(path, view):
    values = VIEWS[view](np.arange(24, dtype=np.float32).reshape(4, 6))
    checkpoint.save({"x": values}, path)
    loaded = checkpoint.load(path)["x"]
    np.testing.assert_array_equal(loaded, values)
    assert loaded.dtype == np.float32 and loaded.dtype.isnative


def test_read_only_arrays(path):
    values = np.arange(3.0)
    values.flags.writeable = False
    checkpoint.save({"x": values}, path)
    np.testing.assert_array_equal(checkpoint.load(path)["x"], values)


def test_module_round_trip(path, rng):
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    twin = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    checkpoint.save(model, path)
    twin.load_state_dict(checkpoint.load(path))
    assert [name for name, _ in twin.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for (name, a), (_, b) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), name


def test_other_programs_read_it(path):
    checkpoint.save({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, path, hyper_parameters={"lr": 5e-4, "sizes": [1, 2]})
    np.testing.assert_array_equal(safetensors.numpy.load_file(path)["w"], [[0, 1, 2], [3, 4, 5]])
    with safetensors.safe_open(path, "np") as file:
        assert json.loads(file.metadata()["hyper_parameters"]) == {"lr": 5e-4, "sizes": [1, 2]}


def test_reads_other_programs(path):
    safetensors.numpy.save_file({"w": np.ones((2, 3), np.float16)}, path, {"format": "pt", "hyper_parameters": "no JSON"})
    state = checkpoint.load(path)
    assert same(dict(state), {"w": np.ones((2, 3), np.float16)})
    assert state.hyper_parameters == {} and state.metadata == {"format": "pt", "hyper_parameters": "no JSON"}


def test_files_of_pytorch(path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.5, -2], dtype=torch.bfloat16), "c": torch.tensor(True)}
    save_file(tensors, path)
    state = checkpoint.load(path)
    assert all(np.array_equal(np.asarray(state[k], np.float32), tensors[k].float().numpy()) for k in tensors)
    checkpoint.save(state, path)
    assert all(torch.equal(value, tensors[key]) for key, value in load_file(path).items())


INSTEAD = {
    "the arguments of a command": (argparse.Namespace(lr=0.1), r"Namespace; .*: store vars\(value\)"),
    "a module": (nn.Linear(2, 2), r"Linear; .*: store its state_dict\(\)"),
    "a path": (Path("x"), r"Path; .*: store str\(value\)"),
    "the state of a generator": (random.Generator(0).get_state(), r"bytes; .*: store np\.frombuffer\(value, np\.uint8\)"),
    "a function": (len, "of arrays$"),
}


@pytest.mark.parametrize("name", INSTEAD)
def test_an_object_inside_says_what_to_store(path, name):
    value, message = INSTEAD[name]
    with pytest.raises(TypeError, match=f"has at 'args' a value of type .*{message}"):
        checkpoint.save({"args": value}, path)


def test_tensors_of_pytorch_are_stored(path):
    torch = pytest.importorskip("torch")
    checkpoint.save({"a": torch.arange(6.0, requires_grad=True).reshape(2, 3).T}, path)
    np.testing.assert_array_equal(checkpoint.load(path)["a"], np.arange(6.0, dtype=np.float32).reshape(2, 3).T)


def test_nested_data(path, rng):
    value = {
        "model": {"weight": rng.random((2, 3)), "bias": np.zeros(0)},
        "optimizer": {
            "state": {0: {"step": 3, "exp_avg": rng.random(4)}, 1: {}},
            "param_groups": [{"betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "history": {"loss": [0.5, math.nan, -math.inf, 1e-310], "none": None, "flag": True, "big": 2**100},
        "empty": [{}, [], ()],
        "keys": {True: 1, None: 2, 2.5: 3, "$": 4},
        "a word of the format": {"$": "tensor", "name": "x"},
        "text": "größe\n\0\ud800",
        "__metadata__": np.ones(2),
        "model.weight": np.full(1, 7.0),
        "model~2": {"weight": np.full(1, 8.0)},
    }
    checkpoint.save(value, path)
    assert same(dict(checkpoint.load(path)), value)
    assert {"model.weight", "optimizer.state.0.exp_avg", "model.weight~2"} <= set(safetensors.numpy.load_file(path))


def test_empty_mapping(path):
    checkpoint.save({}, path)
    assert checkpoint.load(path) == {}


# ---- hyper-parameters ----------------------------------------------------------------------


class Module:
    def __init__(self, hparams):
        self.hparams = hparams

    def state_dict(self):
        return {"w": np.ones(2)}


@pytest.mark.parametrize("kind", [dict, lambda d: types.SimpleNamespace(**d)])
def test_hyper_parameters_of_a_module(path, kind):
    parameters = {"lr": 5e-4, "layers": 2, "name": "x", "none": None, "sizes": (1, 2), "nan": math.nan, "nested": {"a": [True]}}
    checkpoint.save(Module(kind(parameters)), path)
    assert same(checkpoint.load(path).hyper_parameters, parameters)


def test_hyper_parameters_of_numpy_become_python_numbers(path):
    checkpoint.save(Module({"a": np.float32(0.1), "b": np.int64(3), "c": np.bool_(True), "d": np.float64(0.5)}), path)
    assert same(checkpoint.load(path).hyper_parameters, {"a": float(np.float32(0.1)), "b": 3, "c": True, "d": 0.5})


def test_given_hyper_parameters_go_before_the_modules(path):
    checkpoint.save(Module({"lr": 1.0}), path, hyper_parameters={"lr": 2.0})
    assert checkpoint.load(path).hyper_parameters == {"lr": 2.0}


def test_hyper_parameters_survive_another_round(path):
    checkpoint.save(Module({"lr": 1.0}), path)
    checkpoint.save(checkpoint.load(path), path)
    assert checkpoint.load(path).hyper_parameters == {"lr": 1.0}


@pytest.mark.parametrize(
    "value", [print, object(), {1, 2}, b"x", 1j, np.ones(2), {"a": {(1, 2): 3}}], ids=lambda value: type(value).__name__
)
def test_hyper_parameters_that_do_not_fit(path, value):
    with pytest.raises(TypeError, match=r"hyper_parameters has at 'odd.*' a (value|key) of type"):
        checkpoint.save(Module({"lr": 1.0, "odd": value}), path)
    assert not path.exists()


# ---- refusals ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, {1, 2}, "text", None])
def test_what_is_no_module_and_no_mapping(path, value):
    with pytest.raises(TypeError, match="expected a module"):
        checkpoint.save(value, path)


@pytest.mark.parametrize(
    "values", [np.ones(2, "c16"), np.array(["a"]), np.array([None]), np.ones(2, "M8[s]"), np.ones(2, "f4,i4")], ids=lambda a: str(a.dtype)
)
def test_dtypes_that_do_not_fit(path, values):
    with pytest.raises(TypeError, match=r"'x' has dtype .*convert it"):
        checkpoint.save({"x": values}, path)
    assert not path.exists()


def test_a_value_that_contains_itself(path):
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        checkpoint.save({"x": loop}, path)


def test_missing_file_and_folder(tmp_path):
    for name in ("nowhere.safetensors", "no/where"):
        with pytest.raises(FileNotFoundError, match=name):
            checkpoint.load(tmp_path / name)
    with pytest.raises(IsADirectoryError, match="got a folder"):
        checkpoint.load(tmp_path)
    with pytest.raises(IsADirectoryError, match="got a folder"):
        checkpoint.save({}, tmp_path)
    with pytest.raises(FileNotFoundError):
        checkpoint.save({}, tmp_path / "no" / "where")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as error:
        checkpoint.save({}, tmp_path / "file" / "x")
    assert error.value.filename == os.fspath(tmp_path / "file")  # and no temporary name


@pytest.mark.parametrize("load", [checkpoint.load, checkpoint.load_torch_checkpoint])
def test_pipes_and_devices_do_not_hang(tmp_path, load):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(CheckpointError, match="a pipe, a socket or a device"):
            load(name)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\xff" * 64, b"PK\3\4" + bytes(60), struct.pack("<Q", 2**62) + b"{}", struct.pack("<Q", 2) + b"{}x"]
)
def test_what_is_no_safetensors_file(path, data):
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="load_torch_checkpoint" if data[:2] == b"PK" else "not a safetensors file"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"transformer_c": "2"}, "layout '2'"),
        ({"transformer_c": "1", "tree": "{"}, "not JSON"),
        ({"transformer_c": "1", "tree": "[" * 200_000}, "not JSON"),
        ({"transformer_c": "1", "tree": "[" * 500 + "]" * 500}, "nested more than"),
        ({"transformer_c": "1", "tree": "9" * 5000}, "not JSON|not a mapping"),
        ({"transformer_c": "1", "tree": "[]"}, "not a mapping"),
        ({"transformer_c": "1", "hyper_parameters": "3"}, "not a mapping"),
        ({"transformer_c": "1", "tree": '{"a": {"$": "tensor", "name": "y"}}'}, "tensor 'y', which the file does not hold"),
        ({"transformer_c": "1", "tree": '{"a": {"$": "tensor", "name": ["x"]}}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"a": {"$": "tensor"}}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"a": {"$": "object"}}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"a": {"$": "float", "value": "2"}}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"$": "dict", "items": [[1]]}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"$": "dict", "items": [[[1], 2]]}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"$": "dict", "items": [[18446744073709551616, 2]]}'}, "malformed"),
        ({"transformer_c": "1", "tree": '{"$": "tuple", "items": 3}'}, "malformed"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_malformed_descriptions(path, metadata, message):
    raw(path, {"x": ("F32", [1], bytes(4))}, metadata)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(path)


def test_booleans_are_0_and_1(path):
    raw(path, {"x": ("BOOL", [2], b"\1\2")})
    with pytest.raises(CheckpointError, match="'x' have values other than 0 and 1"):
        checkpoint.load(path)


def test_a_dtype_that_numpy_has_not(path):
    raw(path, {"x": ("F4", [2], b"\0")})
    with pytest.raises(
        CheckpointError, match=r"dtype F4, which NumPy has no equivalent of|not a safetensors file"
    ):  # safetensors 0.6 reads it
        checkpoint.load(path)


def test_a_file_that_becomes_shorter_while_it_is_read(path):
    path.write_bytes(b"abc")
    with files.open_regular(path)[0] as file, pytest.raises(CheckpointError, match="became shorter"):
        files.read_exactly(file, 1, bytearray(3))


def test_truncation_at_every_byte(path, rng):
    checkpoint.save({"model": {"w": rng.random(3)}, "epoch": 1}, path, hyper_parameters={"lr": 1.0})
    data = path.read_bytes()
    for length in range(len(data)):
        overwrite(path, data[:length])
        with pytest.raises(CheckpointError):
            checkpoint.load(path)


def test_flipped_bytes(path, rng):
    """The format has no checksum: values may come out changed, but nothing other than a mapping or a CheckpointError."""
    checkpoint.save({"model": {"w": rng.random(3)}, "epoch": (1, math.nan)}, path, hyper_parameters={"lr": 1.0})
    data = path.read_bytes()
    refused = 0
    for _ in range(3000):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            changed[at] = rng.integers(0, 256)
        overwrite(path, changed)
        try:
            assert isinstance(checkpoint.load(path), dict)
        except CheckpointError:
            refused += 1
    assert 300 < refused < 3000


# ---- whole or not at all ----------------------------------------------------------------------

OLD, NEW = {"x": np.zeros(1000)}, {"x": np.ones(2000)}


class Failure(Exception):
    pass


def only_old_file(path):
    assert os.listdir(path.parent) == [path.name], "a temporary file was left behind"
    np.testing.assert_array_equal(checkpoint.load(path)["x"], OLD["x"])


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken disk"), Failure(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("call", ["replace", "fsync", "fchmod", "stat"])
def test_a_failed_save_leaves_the_old_file(path, monkeypatch, call, error):
    checkpoint.save(OLD, path)

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, fail)
        if call == "stat":  # os.path.isdir calls it as well
            patch.setattr(files.os.path, "isdir", lambda _: False)
        with pytest.raises(type(error)):
            checkpoint.save(NEW, path)
    only_old_file(path)


def save_new_in_a_process(path, before):
    """Runs `before` and then saves NEW in another process."""
    code = f"import os, resource, signal, sys, numpy as np\nfrom transformer_c import checkpoint\n{before}\n"
    code += "checkpoint.save({'x': np.ones(2000)}, sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code, path], env=environment, capture_output=True, text=True)


def test_a_disk_that_fills_up_leaves_the_old_file(path):
    """The process may not write files over 4 KiB: a write ends in the middle, as on a full disk."""
    checkpoint.save(OLD, path)
    done = save_new_in_a_process(
        path, "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    )
    assert done.returncode == 1 and "OSError: [Errno 27] File too large" in done.stderr
    only_old_file(path)


def test_a_killed_save_leaves_the_old_file(path):
    checkpoint.save(OLD, path)
    done = save_new_in_a_process(path, "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    np.testing.assert_array_equal(checkpoint.load(path)["x"], OLD["x"])


def test_order_of_a_save(path, monkeypatch):
    """The data are synced, then the file is renamed, then the folder is synced."""
    steps = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else f"file of {os.fstat(descriptor).st_size}"
        steps.append(f"sync {kind}")
        fsync(descriptor)

    def watched_replace(source, target):
        assert os.path.dirname(source) == str(path.parent)
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", watched_fsync)
    monkeypatch.setattr(files.os, "replace", watched_replace)
    checkpoint.save(OLD, path)
    assert steps == [f"sync file of {path.stat().st_size}", "rename", "sync folder"]


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_folder_that_cannot_be_synced_is_no_failed_save(path, monkeypatch, call):
    """The file is in place: to raise would say that it is not."""
    checkpoint.save(OLD, path)
    real = getattr(os, call)

    def fail(what, *args):
        if what == str(path.parent) or (isinstance(what, int) and stat.S_ISDIR(os.fstat(what).st_mode)):
            raise OSError(errno.EIO, "broken disk")
        return real(what, *args)

    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="is written, but .* could not be synced: .*broken disk"):
        patch.setattr(files.os, call, fail)
        checkpoint.save(NEW, path)
    np.testing.assert_array_equal(checkpoint.load(path)["x"], NEW["x"])
    assert os.listdir(path.parent) == [path.name] and len(os.listdir("/proc/self/fd")) == descriptors


def test_no_descriptor_is_closed_twice(path, monkeypatch):
    """Whatever fails while a file is opened: a descriptor that is closed twice may be another thread's by then."""
    path.write_bytes(b"abc")
    closed = []
    close = os.close

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(files.os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))
    for name, broken in [("fstat", fail), ("open", fail), ("fspath", fail)]:
        with monkeypatch.context() as patch:
            patch.setattr(files.os, name, broken)
            before = sorted(os.listdir("/proc/self/fd"))
            with pytest.raises(MemoryError):
                files.open_regular(path)
            assert sorted(os.listdir("/proc/self/fd")) == before
    assert len(closed) == 1  # by the check inside of the opening; the file closes its own
    with files.open_regular(path)[0] as file:
        assert file.read() == b"abc"


def test_temporaries_of_living_processes_stay(path):
    """A writer locks its temporary file until it has its name; the file of a killed one is unlocked at once."""
    code = "import os, sys, time, numpy as np\nfrom transformer_c import checkpoint\nfrom transformer_c.checkpoint import files\n"
    code += "files.os.replace = lambda *_: (print('here', flush=True), time.sleep(60))\n"
    code += "checkpoint.save({'x': np.ones(2000)}, sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code, path], env=environment, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "here\n"
            (name,) = os.listdir(path.parent)
            os.utime(path.parent / name, (0, 0))  # its age says nothing
            files.remove_leftovers(path.parent)
            assert os.listdir(path.parent) == [name]
        finally:
            writer.kill()
    files.remove_leftovers(path.parent)
    assert os.listdir(path.parent) == []


def test_a_child_of_a_fork_that_ends_leaves_the_folder_held(tmp_path):
    code = """
import os, sys
from transformer_c.checkpoint import files
with files.held_by_one(sys.argv[1]):
    child = os.fork()
    if child == 0:
        sys.exit()
    os.waitpid(child, 0)
    try:
        with files.held_by_one(sys.argv[1]):
            print("lost")
    except RuntimeError:
        print("held")
with files.held_by_one(sys.argv[1]):
    print("free")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "held\nfree\n"


def test_a_temporary_that_was_taken_for_a_leftover_is_made_again(path, monkeypatch):
    flock, calls = files.fcntl.flock, []

    def slow(descriptor, flags):
        if not calls:  # another process is faster
            (name,) = os.listdir(path.parent)
            os.unlink(path.parent / name)
        calls.append(flags)
        return flock(descriptor, flags)

    monkeypatch.setattr(files.fcntl, "flock", slow)
    checkpoint.save(NEW, path)
    assert len(calls) == 2 and os.listdir(path.parent) == [path.name]


def test_an_interrupt_as_a_temporary_is_made_leaves_none(path, monkeypatch):
    made = os.open

    def interrupts(name, flags, *mode):
        os.close(made(name, flags, *mode))
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "open", interrupts)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(NEW, path)
    assert os.listdir(path.parent) == []


def test_without_locks_a_leftover_waits_an_hour(path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(files.fcntl, "flock", none)
    checkpoint.save(NEW, path)
    for name, age in [(".transformer_c-old.tmp", 4000), (".transformer_c-new.tmp", 3000)]:
        (path.parent / name).write_bytes(b"x")
        os.utime(path.parent / name, (time.time() - age,) * 2)
    files.remove_leftovers(path.parent)
    assert sorted(os.listdir(path.parent)) == [".transformer_c-new.tmp", path.name]


def test_a_value_that_does_not_fit_leaves_the_old_file(path):
    checkpoint.save(OLD, path)
    with pytest.raises(TypeError, match="'y' has dtype"):
        checkpoint.save({"x": np.ones(2), "y": np.ones(2, "c16")}, path)
    only_old_file(path)


def test_permissions_and_links(path):
    before = os.umask(0o027)
    try:
        checkpoint.save(OLD, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640  # as `open` would have made it
    path.chmod(0o604)
    link = path.with_name("link")
    link.symlink_to(path.name)
    checkpoint.save(NEW, link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o604
    np.testing.assert_array_equal(checkpoint.load(path)["x"], NEW["x"])


def test_paths_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = "x" * 255  # no room for a suffix
    for name in ("plain", "größe und mehr", long, tmp_path / "path"):
        checkpoint.save(OLD, name)
        np.testing.assert_array_equal(checkpoint.load(name)["x"], OLD["x"])
    with pytest.raises(TypeError):
        checkpoint.load(3)


def test_equal_content_is_equal_bytes(path):
    """safetensors alone writes the metadata in another order every time."""
    state = {"größe.\U0001f600": np.arange(3), "b": {"a": np.ones(2, np.float32), "n": 3}}
    written = set()
    for _ in range(20):
        checkpoint.save(state, path, hyper_parameters={"lr": 0.1, "name": "größe"})
        written.add(path.read_bytes())
    assert len(written) == 1
    data = written.pop()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0 and list(json.loads(data[8 : 8 + length])["__metadata__"]) == ["hyper_parameters", "transformer_c", "tree"]
    assert same(dict(checkpoint.load(path)), state)
    assert np.array_equal(safetensors.numpy.load_file(path)["größe.\U0001f600"], np.arange(3))


def test_arrays_begin_at_multiples_of_their_item_size(path):
    """Whatever the names' order, so that a program may map them."""
    state = {
        "a": np.ones(3, np.bool_),
        "b": np.ones(5, np.float64),
        "c": np.ones(1, np.int16),
        "d": np.array(1, np.float32),
        "e": np.ones((0, 2)),
    }
    checkpoint.save(state, path)
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    places = {name: [begin + at for at in header[name]["data_offsets"]] for name in state}
    assert all(first % state[name].itemsize == 0 and last - first == state[name].nbytes for name, (first, last) in places.items())
    found = safetensors.numpy.load_file(path)
    assert all(same(found[name], value) for name, value in state.items())


def test_a_save_copies_no_array(path):
    state = {f"w{i}": np.ones(250_000, np.float32) for i in range(4)}
    tracemalloc.start()
    try:
        checkpoint.save({"nested": state, "n": 1}, path)
        assert tracemalloc.get_traced_memory()[1] < 500_000 < state["w0"].nbytes
    finally:
        tracemalloc.stop()


def test_arrays_keep_their_order(path):
    values = {"b": np.ones(3, np.int8), "a": np.ones(2), "c.0": np.float32([1]), "A": np.ones((0, 2))}
    checkpoint.save(values, path)
    assert list(checkpoint.load(path)) == list(values)
    assert {k: v.tolist() for k, v in checkpoint.load(path).items()} == {k: v.tolist() for k, v in values.items()}


def test_a_class_and_hyper_parameters_without_names(path):
    with pytest.raises(TypeError, match="is the class Linear; pass an instance"):
        checkpoint.save(nn.Linear, path)
    with pytest.raises(TypeError, match="hyper_parameters is of type list; expected a mapping"):
        checkpoint.save({"a": np.ones(1)}, path, hyper_parameters=[1])


def test_a_module_names_its_class(path):
    checkpoint.save(nn.Linear(2, 3), path)
    assert checkpoint.load(path).metadata["class"] == "Linear"
    checkpoint.save(nn.Linear(2, 3).state_dict(), path)
    assert "class" not in checkpoint.load(path).metadata


def test_what_is_no_file_is_not_replaced(tmp_path):
    """A rename puts a file in the place of a pipe, or, by the superuser, of /dev/null."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="got a device, pipe or socket"):
        checkpoint.save({"w": np.ones(2)}, path)
    assert path.is_fifo() and [*tmp_path.iterdir()] == [path]


class _Raw(io.RawIOBase):
    """Takes so many bytes, and then none."""

    def __init__(self, room, then):
        super().__init__()
        self.room, self.then = room, then

    def writable(self):
        return True

    def write(self, data):
        taken = min(len(data), self.room, 7)
        self.room -= taken
        return taken or self.then


@pytest.mark.parametrize("then", [None, 0])
def test_a_file_object_that_takes_no_more(then):
    checkpoint.save({"a": np.ones(3)}, _Raw(10**6, then))
    with pytest.raises(BlockingIOError, match="takes no more bytes"):
        checkpoint.save({"a": np.ones(3)}, _Raw(100, then))


def test_a_path_that_can_write(tmp_path):
    """As those of the package py do: a path is replaced as a whole."""

    class Path(type(tmp_path)):
        def write(self, data):
            raise AssertionError("the path was taken for a file object")

    checkpoint.save({"a": np.arange(3)}, Path(tmp_path / "x.safetensors"))
    assert checkpoint.load(tmp_path / "x.safetensors")["a"].tolist() == [0, 1, 2]


def test_a_file_that_cannot_be_mapped_for_want_of_addresses(path, monkeypatch):
    def refuse(*unused, **options):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    checkpoint.save({"x": np.ones(3)}, path)
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match=rf"out of memory: to map {re.escape(str(path))} takes \d+ bytes"):
        checkpoint.load(path, mmap=True)
