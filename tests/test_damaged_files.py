"""Every reader of files, on thousands of damaged ones: arrays or a CheckpointError. No other class of error, whatever its parser raises."""

import gzip
import io
import json
import pathlib
import tokenize

import numpy as np
import pytest
import torch_files as t
import transformer_c as tc
from transformer_c.checkpoint import CheckpointError, load_torch_checkpoint
from transformer_c.checkpoint.errors import parsing
from transformer_c.checkpoint.safetensors_file import LAYOUT
from transformer_c.cli.tasks.base import read_array
from transformer_c.cli.tasks.digits import _only_array
from transformer_c.datasets.cifar import _load_part
from transformer_c.datasets.features import load_features
from transformer_c.datasets.mnist import read_idx
from transformer_c.tutorials import keras_book

GOLDEN = pathlib.Path(__file__).parent / "golden"
ENCODER = dict(embed_dim=8, dense_dim=6, num_heads=2)


def features(compressed):
    file = io.BytesIO()
    x, y = np.ones((2, 3)), np.arange(2)
    (np.savez_compressed if compressed else np.savez)(file, train_features=x, train_labels=y, test_features=x, test_labels=y)
    return file.getvalue()


def saved(write, *values):
    file = io.BytesIO()
    write(file, *values)
    return file.getvalue()


IDX = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(6))
READERS = {
    "load_features": ("x.npz", lambda: features(False), load_features),
    "load_features, compressed": ("x.npz", lambda: features(True), load_features),
    "load_torch_checkpoint": ("x.pt", (GOLDEN / "checkpoints" / "state_dict.pt").read_bytes, load_torch_checkpoint),
    "load_mnist": ("x.gz", lambda: gzip.compress(IDX), lambda path: read_idx(path, 2)),
    "predict of .npy": ("x.npy", lambda: saved(np.save, np.ones((2, 3))), read_array),
    "predict of .npz": ("x.npz", lambda: saved(np.savez, np.ones((2, 3))), lambda path: _only_array(path, path.read_bytes())),
}


@pytest.mark.filterwarnings("ignore:Reading:UserWarning")
@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name, tmp_path, rng):
    file, contents, reader = READERS[name]
    check_reader(reader, contents(), tmp_path / file, rng, named=name != "load_mnist")


def check_reader(reader, whole, path, rng, named=True):
    """`reader` takes the whole file, and raises CheckpointError or nothing for 1500 damaged ones; `named`: the error names the file."""
    path.write_bytes(whole)
    reader(path)
    refused = 0
    printable = b"'\"(){}[]:,<>|OSUVfi0123456789\\\n \0\xff"
    for n in range(1500):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 5)):
            data[rng.integers(len(data))] = rng.choice(list(printable)) if n % 2 else rng.integers(256)
        if n % 10 == 0:
            data = data[: rng.integers(len(data))]
        t.overwrite(path, data)
        try:
            reader(path)
        except CheckpointError as error:
            assert str(path) in str(error) or not named
            refused += 1
    assert refused > 200


def test_a_planted_defect_is_found(tmp_path, rng):
    path, whole = tmp_path / "x", json.dumps({"shape": [2, 3], "values": list(range(6))}).encode()

    def read(path):
        with parsing(f"{path} is damaged"):
            return json.loads(path.read_text())

    def no_name(path):
        with parsing("it is damaged"):
            return json.loads(path.read_text())

    def outside(path):
        values = read(path)
        return np.array(values["values"]).reshape(values["shape"])

    check_reader(read, whole, path, rng)
    for defect, error in (
        (lambda path: json.loads(path.read_text()), ValueError),  # what the parser raises
        (outside, (KeyError, ValueError, TypeError)),  # what comes after it
        (no_name, AssertionError),
        (lambda path: path.read_bytes(), AssertionError),  # nothing is checked
    ):
        with pytest.raises(error) as caught:
            check_reader(defect, whole, path, rng)
        assert not isinstance(caught.value, CheckpointError)


@pytest.mark.parametrize(
    "error", [tokenize.TokenError("x"), ValueError("x"), KeyError("x"), AssertionError("x"), OSError("x"), OSError(22, "x")], ids=repr
)
def test_what_becomes_a_checkpoint_error(error):
    with pytest.raises(CheckpointError, match=r"it is damaged \(.*x") as caught, parsing("it is damaged"):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [MemoryError("x"), OSError(5, "x"), KeyboardInterrupt("x"), CheckpointError("x")], ids=repr)
def test_what_stays_itself(error):
    with pytest.raises(type(error)) as caught, parsing("it is damaged"):
        raise error
    assert caught.value is error


def bad(*_, **__):
    raise KeyError("bad bytes")


def cifar(path, patch):
    patch.setattr("transformer_c.datasets.cifar.PickleMachine", bad)
    path.write_bytes(b"x")
    _load_part(str(path), "fine")


def torch(path, patch):
    patch.setattr("transformer_c.checkpoint.torch_file.PickleMachine", bad)
    path.write_bytes(READERS["load_torch_checkpoint"][1]())
    load_torch_checkpoint(path)


def safetensors(path, patch):
    header = json.dumps({"__metadata__": {"transformer_c": LAYOUT, "tree": "{"}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    tc.load(path)


def keras(path, patch):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["x"] = np.ones(3)
    patch.setattr("transformer_c.tutorials.keras_weights._array_names", bad)
    keras_book.TransformerEncoder(**ENCODER).load_keras_weights(path)


def cut_off(name):
    _, contents, reader = READERS[name]

    def read(path, patch):
        path.write_bytes(contents()[:-20])
        reader(path)

    return read


@pytest.mark.parametrize(
    "read",
    [*map(cut_off, READERS), cifar, torch, safetensors, keras],
    ids=[*READERS, "load_cifar100", "load_torch_checkpoint, inside", "load", "load_keras_weights"],
)
@pytest.mark.parametrize("outer", [FileNotFoundError(2, "another file"), MemoryError("before")], ids=repr)
def test_what_the_caller_handles_is_not_the_files(read, outer, tmp_path, monkeypatch):
    """One file is missing, so the caller reads another, which is damaged: the error is about the second."""
    try:
        raise outer
    except Exception:
        with pytest.raises(CheckpointError):
            read(tmp_path / "x.npz", monkeypatch)


def test_a_broken_disk_while_the_caller_handles_an_error():
    """What the parser itself met still comes out."""
    try:
        raise FileNotFoundError(2, "another file")
    except OSError:
        with pytest.raises(OSError, match="broken disk"), parsing("it is damaged"):
            try:
                raise OSError(5, "broken disk")
            except OSError:
                raise ValueError("not a zip file")  # noqa: B904


def test_no_memory_is_no_damage(tmp_path, monkeypatch):
    """Memory that runs out, or a broken disk, while a file is parsed does not make it a damaged one."""
    for name, (file, contents, reader) in READERS.items():
        path = tmp_path / file
        path.write_bytes(contents())
        with monkeypatch.context() as patch:
            if name == "load_torch_checkpoint":
                patch.setattr(
                    "transformer_c.checkpoint.torch_file.PickleMachine", lambda *_: (_ for _ in ()).throw(MemoryError("no memory"))
                )
            else:
                patch.setattr(np, "frombuffer", lambda *_, **__: (_ for _ in ()).throw(MemoryError("no memory")))
                patch.setattr(np.lib.format, "read_array", lambda *_, **__: (_ for _ in ()).throw(MemoryError("no memory")))
            with pytest.raises(MemoryError, match="no memory"):
                reader(path)


def test_keras_weights(tmp_path, rng, monkeypatch):
    """Whatever h5py raises for damaged bytes."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.weights.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones(3)
    for error in (ValueError("bad"), TypeError("bad"), OSError("bad"), KeyError("bad")):
        with monkeypatch.context() as patch:
            patch.setattr("transformer_c.tutorials.keras_weights._array_names", lambda *_, error=error: (_ for _ in ()).throw(error))
            with pytest.raises(CheckpointError, match="is damaged .*bad"):
                keras_book.TransformerEncoder(**ENCODER).load_keras_weights(path)
    assert isinstance(tc.CheckpointError("x"), ValueError)
