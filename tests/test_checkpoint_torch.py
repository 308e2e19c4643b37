"""tc.load_torch_checkpoint on files of PyTorch and Lightning: committed ones, ones written byte by byte, and new ones."""

import argparse
import copy
import datetime
import pathlib
import pickle
import struct
import sys

import numpy as np
import pytest
import torch_files as t
import transformer_c as tc
from golden import load as load_golden
from transformer_c import nn
from transformer_c.checkpoint import CheckpointError, GlobalName, UnknownObject, load_torch_checkpoint

FOLDER = pathlib.Path(__file__).parent / "golden" / "checkpoints"
GOLDEN = {name: arrays for name, (_, arrays) in load_golden("checkpoints").items()}


def leaves(value, where=()):
    """{path: array} of all arrays in nested dicts and lists."""
    if isinstance(value, np.ndarray):
        return {"/".join(where): value}
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {
        name: array
        for key, part in parts
        for name, array in leaves(part, (*where, key.name.rpartition(".")[2] if isinstance(key, GlobalName) else str(key))).items()
    }


def assert_same_arrays(found, expected):
    """Bit for bit, where both have the dtype; half and smaller floats are expected as float32."""
    for name, array in expected.items():
        values = found[name]
        wide = values.astype(np.float32) if values.dtype != array.dtype else values
        assert values.shape == array.shape and wide.dtype == array.dtype, name
        np.testing.assert_array_equal(wide, array, err_msg=name)


@pytest.fixture
def read(tmp_path):
    """Loads the bytes of a file."""

    def read(data):
        (tmp_path / "file.pt").write_bytes(data)
        return load_torch_checkpoint(tmp_path / "file.pt")

    return read


# ---- kept files ----------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_every_tensor_of_the_kept_files(name):
    pytest.importorskip("ml_dtypes")
    found = leaves(load_torch_checkpoint(FOLDER / name))
    assert {key for key in found if not key.startswith(("curve", "grid"))} == set(GOLDEN[name])
    assert_same_arrays(found, GOLDEN[name])
    assert all(array.flags.writeable and array.dtype.isnative for array in found.values())


def test_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, array in load_torch_checkpoint(FOLDER / "dtypes.pt").items():
        expected = {"scalar": "float32", "empty": "float32", "no_axis_empty": "int64"}.get(name, name)
        assert array.dtype == np.dtype(getattr(ml_dtypes, expected, expected)), name


def test_bfloat16_without_ml_dtypes_comes_as_the_same_float32(monkeypatch, read):
    bits = t.storage(kind="torch.BFloat16Storage", count=4)
    data = t.checkpoint(t.tensor((2, 2), (1, 2), 0, bits), data={"0": bytes.fromhex("803fc0bf0000c07f")})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    values = read(data)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, np.array([[1, 0], [-1.5, np.nan]], np.float32))
    with pytest.raises(CheckpointError, match="float8_e4m3fn values, which need the package ml_dtypes"):
        load_torch_checkpoint(FOLDER / "dtypes.pt")


def test_tensors_that_share_memory_still_do():
    values = load_torch_checkpoint(FOLDER / "views.pt")
    values["base"][:] = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(values["row"], np.arange(12, 18))
    np.testing.assert_array_equal(values["transposed"], np.arange(24).reshape(4, 6).T)
    np.testing.assert_array_equal(values["every_other"], [[1, 3, 5], [13, 15, 17]])
    assert values["element"] == 7 and np.shares_memory(values["parameter"], values["tied"]["again"])
    assert not np.shares_memory(values["base"], values["permuted"])
    assert values["expanded"].shape == (3, 5) and values["transposed"].strides == (4, 24)


def test_a_state_dict_goes_into_a_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    names = {"first": "0", "norm": "1", "last": "2"}
    state = {f"{names[k.split('.')[0]]}.{k.split('.')[1]}": v for k, v in load_torch_checkpoint(FOLDER / "state_dict.pt").items()}
    model.load_state_dict(state)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(np.asarray(value), state[key])


def test_lightning():
    found = load_torch_checkpoint(FOLDER / "lightning.ckpt")
    assert (found["epoch"], found["global_step"], found["hparams_name"]) == (9, 3900, "kwargs")
    assert list(found["state_dict"]) == ["first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight", "last.bias"]
    parameters = found["hyper_parameters"]
    assert parameters == {"input_dim": 3, "lr": 5e-4, "dropout": 0.0, "name": "reverse"}
    assert isinstance(parameters, UnknownObject) and parameters.name == "pytorch_lightning.utilities.parsing.AttributeDict"
    assert dict(**parameters) == parameters
    ((callback, state),) = found["callbacks"].items()
    assert callback == GlobalName("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint")
    assert state["best_model_score"] == 1 and state["current_score"] is None
    progress = found["loops"]["progress"]
    assert (progress.name, progress.state, progress) == ("lightning.pytorch.loops.progress.Progress", {"total": 390}, {})
    assert found["lr_schedulers"][0]["_last_lr"] == [2.5e-4] and type(found["lr_schedulers"][0]["_last_lr"][0]) is np.float64
    assert not any(module.startswith(("pytorch_lightning", "lightning")) for module in sys.modules)


def test_values_other_than_tensors():
    found = load_torch_checkpoint(FOLDER / "training.pt")
    assert found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
    assert found["schedule"]["milestones"] == {2: 1, 5: 1} and found["schedule"]["last_epoch"] == 2
    assert type(found["best"]) is np.float64 and found["best"] == 0.5
    curve, grid = found["curve"], found["grid"]
    assert curve.dtype == np.float32 and curve.dtype.isnative and curve.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert grid.tolist() == [[0, 1, 2], [3, 4, 5]] and grid.flags.f_contiguous
    assert found["options"] == {"lr": 0.01, "sizes": (3, 4), "name": "größe"} and found["options"].name == "argparse.Namespace"
    expected = [{1, 2}, frozenset([3]), 1 + 2j, b"\0\xff", bytearray(b"xy"), 2**70, -1, 1e300, None, {"a": 2, "b": 1}, (2, 3)]
    assert found["misc"] == expected and list(map(type, found["misc"]))[:6] == [set, frozenset, complex, bytes, bytearray, int]
    assert (found["where"], found["dtype"]) == ("cuda:1", GlobalName("torch.bfloat16"))
    assert found["path"] == pathlib.PurePosixPath("runs/one")


# ---- files made by hand ----------------------------------------------------------------------


def test_made_by_hand(read):
    """The plainest file there is: other zip writers have no data descriptors, no padding, no zip64 end."""
    np.testing.assert_array_equal(read(t.checkpoint(t.mapping(w=t.tensor())))["w"], [[0, 1, 2], [3, 4, 5]])


def test_no_record_of_the_byte_order(read):
    entries = t.records(t.program(t.tensor()))
    del entries["byteorder"]
    np.testing.assert_array_equal(read(t.archive(entries, folder="модель 1")), [[0, 1, 2], [3, 4, 5]])


BIG = {
    "torch.FloatStorage": (">f4", [0.5, -1.5]),
    "torch.DoubleStorage": (">f8", [0.5, -1.5]),
    "torch.HalfStorage": (">f2", [0.5, -1.5]),
    "torch.LongStorage": (">i8", [1, -(2**40)]),
    "torch.ShortStorage": (">i2", [1, -300]),
    "torch.CharStorage": (">i1", [1, -3]),
    "torch.BoolStorage": (">?", [True, False]),
    "torch.ComplexFloatStorage": (">c8", [1 + 2j, -3j]),
}


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind", BIG)
def test_byte_order(read, kind, order):
    code, values = BIG[kind]
    dtype = np.dtype(code) if order == "big" else np.dtype(code).newbyteorder("<")
    made_of = t.storage(kind=kind, count=2)
    data = t.checkpoint(
        t.mapping(a=t.tensor((2,), (1,), 0, made_of), b=t.tensor((), (), 1, made_of)),
        data={"0": np.array(values, dtype).tobytes()},
        byteorder=order.encode(),
    )
    found = read(data)
    assert found["a"].dtype == dtype.newbyteorder("=") and found["a"].dtype.isnative
    assert found["a"].tolist() == values and found["b"] == values[1]


def test_big_endian_bfloat16_and_untyped_storages(read):
    pytest.importorskip("ml_dtypes")
    hooks = t.call("collections.OrderedDict")

    def tensor(key, dtype):
        made_of = t.storage(key, "torch.storage.UntypedStorage", 4)
        arguments = made_of, t.integer(0), t.sizes(2), t.sizes(1), b"\x89", hooks, t.name(dtype)
        return t.call("torch._utils._rebuild_tensor_v3", *arguments)

    data = {"0": b"\x01\x02\x03\x04", "1": bytes.fromhex("3f80bfc0")}
    found = read(t.checkpoint(t.items(tensor("0", "torch.uint16"), tensor("1", "torch.bfloat16")), data=data, byteorder=b"big"))
    assert found[0].tolist() == [0x102, 0x304] and found[1].astype(float).tolist() == [1, -1.5]


def test_protocols_4_and_5(read, rng):
    value = {
        "a": [1, 2.5, "x", b"y", bytearray(b"z"), {3}, frozenset([4]), None, True, -5, 2**200],
        "b": (rng.random((2, 3)), np.float32(1)),
    }
    value["b"] += (value["a"],)
    for protocol in (2, 3, 4, 5):
        found = read(t.archive(t.records(pickle.dumps(value, protocol))))
        assert found["a"] == value["a"] and found["b"][2] is found["a"], protocol
        np.testing.assert_array_equal(found["b"][0], value["b"][0])
        assert found["b"][1] == 1 and type(found["b"][1]) is np.float32


def test_zero_size_and_one_element_tensors_with_odd_strides(read):
    parts = [t.tensor((0, 3), (1000, 1)), t.tensor((2, 0), (1, 1), 6), t.tensor((1, 1), (10**6, 10**6), 5), t.tensor((2, 3), (0, 0), 5)]
    found = read(t.checkpoint(t.items(*parts)))
    assert [a.shape for a in found] == [(0, 3), (2, 0), (1, 1), (2, 3)]
    assert found[2].item() == 5 and (found[3] == 5).all()


def test_objects_of_unknown_classes(read):
    child = t.name("some.where.List") + b")\x81" + b"(" + t.integer(1) + t.integer(2) + b"e"
    parent = t.name("some.Where") + t.items(t.integer(7)) + b"\x81" + t.mapping(child=child) + b"b"
    found = read(t.checkpoint(t.mapping(x=parent, cls=t.name("some.Where"))))
    assert (found["x"].name, found["x"].arguments, found["cls"]) == ("some.Where", (7,), GlobalName("some.Where"))
    assert found["x"].state["child"].elements == [1, 2]
    assert "UnknownObject('some.where.List', {}, elements=[1, 2])" in repr(found)
    for copied in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert repr(copied) == repr(found)


def test_tensor_subclasses_and_parameters_with_attributes(read):
    hooks = t.call("collections.OrderedDict")
    inner = t.items(t.storage(), t.integer(0), t.sizes(6), t.sizes(1), b"\x89", hooks)
    subclass = t.call(
        "torch._tensor._rebuild_from_type_v2", t.name("torch._utils._rebuild_tensor_v2"), t.name("some.Tensor"), inner, t.mapping()
    )
    parameter = t.call("torch._utils._rebuild_parameter_with_state", t.tensor(), b"\x88", hooks, t.mapping(tag=t.text("x")))
    found = read(t.checkpoint(t.items(subclass, parameter)))
    np.testing.assert_array_equal(found[0], range(6))
    np.testing.assert_array_equal(found[1], [[0, 1, 2], [3, 4, 5]])


# ---- live ----------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_the_kept_files_are_what_pytorch_writes(torch, tmp_path):
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the files are of PyTorch 2.13")
    from golden import make_checkpoints

    before = set(sys.modules)
    try:
        make_checkpoints.main(tmp_path)
    finally:
        for module in set(sys.modules) - before:
            if module.startswith(("pytorch_lightning", "lightning")):
                del sys.modules[module]
    for name in GOLDEN:
        assert (tmp_path / "checkpoints" / name).read_bytes() == (FOLDER / name).read_bytes(), name
    fresh = load_golden("checkpoints", tmp_path)
    assert all(np.array_equal(fresh[name][1][key], array) for name, arrays in GOLDEN.items() for key, array in arrays.items())


def equal(torch, found, expected):
    """Is what was loaded what was saved?"""
    if isinstance(expected, torch.Tensor):
        return found.shape == expected.shape and np.array_equal(np.asarray(found, np.float64), expected.detach().double().numpy())
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(equal(torch, found[key], expected[key]) for key in expected)
    if isinstance(expected, (list, tuple)):
        return (
            type(found) is type(expected)
            and len(found) == len(expected)
            and all(equal(torch, a, b) for a, b in zip(found, expected, strict=True))
        )
    return type(found) is type(expected) and found == expected


MODULES = {
    "encoder": lambda torch: torch.nn.TransformerEncoderLayer(8, 2, 16),
    "convolution": lambda torch: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)),
    "recurrent": lambda torch: torch.nn.LSTM(3, 4, 2),
    "embedding": lambda torch: torch.nn.EmbeddingBag(5, 3),
    "empty": lambda torch: torch.nn.Identity(),
    "half": lambda torch: torch.nn.Linear(3, 4).half(),
    "bfloat16": lambda torch: torch.nn.Linear(3, 4).bfloat16(),
}


@pytest.mark.parametrize("module", MODULES)
def test_state_dicts_of_modules(torch, tmp_path, module):
    state = MODULES[module](torch).state_dict()
    torch.save(state, tmp_path / "x.pt")
    assert equal(torch, load_torch_checkpoint(tmp_path / "x.pt"), state)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_state_dicts_of_optimizers(torch, tmp_path, optimizer):
    model = torch.nn.Linear(3, 4)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    made.step()
    torch.save({"optimizer": made.state_dict()}, tmp_path / "x.pt")
    assert equal(torch, load_torch_checkpoint(tmp_path / "x.pt"), {"optimizer": made.state_dict()})


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols_of_pytorch(torch, tmp_path, protocol):
    value = {"a": torch.arange(6.0).reshape(2, 3), "b": [torch.tensor(3), {"c": torch.ones(2, 3, dtype=torch.float64).T}], "d": b"x" * 300}
    torch.save(value, tmp_path / "x.pt", pickle_protocol=protocol)
    assert equal(torch, load_torch_checkpoint(tmp_path / "x.pt"), value)


def test_without_checksums(torch, tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(6.0)}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    np.testing.assert_array_equal(load_torch_checkpoint(tmp_path / "x.pt")["a"], np.arange(6))


def test_many_records(torch, tmp_path):
    """More than 65,535 would need the zip64 end alone; PyTorch always writes it."""
    value = {str(i): torch.full((i % 3,), float(i)) for i in range(1500)}
    torch.save(value, tmp_path / "x.pt")
    assert equal(torch, load_torch_checkpoint(tmp_path / "x.pt"), value)


def test_random_tensors(torch, tmp_path, rng):
    """Views of views of every kind, in shared storages."""
    for _ in range(30):
        base = torch.arange(int(rng.integers(1, 200))).to([torch.float32, torch.int16, torch.float64, torch.bool][rng.integers(4)])
        views = [base]
        for _ in range(6):
            view = views[rng.integers(len(views))]
            if view.ndim:
                axis, size = (i := int(rng.integers(view.ndim))), view.shape[i]
                steps = [
                    lambda v=view: v[int(rng.integers(v.shape[0])) :: int(rng.integers(1, 4))] if v.shape[0] else v,
                    lambda v=view, a=axis: v.transpose(0, a),
                    lambda v=view, a=axis: v.unsqueeze(a).expand(*v.shape[:a], 2, *v.shape[a:]),
                    lambda v=view, a=axis, s=size: v.narrow(a, s // 2, s - s // 2),
                    lambda v=view, a=axis, s=size: v.select(a, s - 1) if s else v,
                ]
                views.append(steps[rng.integers(len(steps))]())
        torch.save(views, tmp_path / "x.pt")
        assert equal(torch, load_torch_checkpoint(tmp_path / "x.pt"), views)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_refused_for_what_they_are(torch, tmp_path):
    path = tmp_path / "x.pt"
    linear = torch.nn.Linear(2, 2)
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    refused = {
        r"'torch.nn.modules.linear.Linear', perhaps a whole module: save the state dict alone": linear,
        r"bare storage": [torch.ones(2).untyped_storage()],
        r"calls 'torch._utils._rebuild_sparse_tensor'": {"x": torch.eye(3).to_sparse()},
        r"marked as a conjugate": {"x": conjugate},
        r"calls 'torch._utils._rebuild_meta_tensor_no_storage'": {"x": torch.ones(2, device="meta")},
        r"calls 'datetime.date'": {"x": datetime.date(2026, 1, 2)},
        r"state_dict\['x'\]\['y'\] is of 'argparse.Namespace'": {"state_dict": {"x": {"y": argparse.Namespace(a=1)}}},
        r"state_dict is of 'argparse.Namespace'": {"state_dict": argparse.Namespace(a=1)},
        r"state_dict\['x'\]\[0\] is of 'torch.float16'": {"state_dict": {"x": [torch.float16]}},
    }
    for message, value in refused.items():
        torch.save(value, path)
        with pytest.raises(CheckpointError, match=message):
            load_torch_checkpoint(path)
    torch.jit.script(linear).save(path)
    with pytest.raises(CheckpointError, match="if it is a TorchScript program, save its state dict"):
        load_torch_checkpoint(path)


# ---- other formats ----------------------------------------------------------------------


def test_legacy_files_are_refused_with_the_fix():
    with pytest.raises(
        CheckpointError, match=r"before 1\.6: load it with PyTorch 1\.6 or newer .*torch\.save\(torch\.load\(path\), new_path\)"
    ):
        load_torch_checkpoint(FOLDER / "legacy.pt")
    for load in (tc.load, tc.TransformerPredictor.load_from_checkpoint):
        with pytest.raises(CheckpointError, match=r"a pickle: tc\.load_torch_checkpoint\(path\) says what to do"):
            load(FOLDER / "legacy.pt")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"hello", "those are zip archives"),
        (bytes(257) + b"ustar\0" + bytes(300), "before 1.6"),
        (pickle.dumps({"a": 1}), "a plain pickle"),
        (struct.pack("<Q", 2) + b'{"', r"use tc\.load\(path\)"),
        (t.archive({"x": b"y"}), "has no data.pkl"),
        (t.archive({"data.pkl": b"N.", "byteorder": b"middle"}), "'byteorder' says b'middle'"),
    ],
    ids=["empty", "text", "tar", "pickle", "safetensors", "zip", "byte order"],
)
def test_other_files(read, data, message):
    with pytest.raises(CheckpointError, match=message):
        read(data)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.ckpt"):
        load_torch_checkpoint(tmp_path / "nowhere.ckpt")
    with pytest.raises(IsADirectoryError, match="got a folder"):
        load_torch_checkpoint(tmp_path)


def test_versions_of_modules_are_read(tmp_path):
    """Hooks of modules see them, as after torch.load; what has another form is ignored."""
    torch = pytest.importorskip("torch")
    state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
    torch.save({"state_dict": state}, tmp_path / "file.pt")
    found = load_torch_checkpoint(tmp_path / "file.pt")["state_dict"]
    assert dict(found._metadata) == {"": {"version": 1}, "0": {"version": 2}} == dict(state._metadata)
    for metadata in ("junk", {"0": {"version": 2}}, type(state)([("0", "junk")]), type(state)([("0", {"version": [1]})])):
        state._metadata = metadata
        torch.save(state, tmp_path / "file.pt")
        found = load_torch_checkpoint(tmp_path / "file.pt")
        assert not hasattr(found, "_metadata") and list(found) == list(state)
        nn.Sequential(nn.BatchNorm1d(2)).load_state_dict(found)
