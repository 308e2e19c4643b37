"""tc.load_torch_checkpoint on hostile files: refused with a reason, without running anything or using more memory or time than the file's size justifies."""

import gc
import io
import os
import pathlib
import pickle
import pickletools
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch_files as t
from transformer_c.checkpoint import CheckpointError, load_torch_checkpoint

STATE_DICT = pathlib.Path(__file__).parent / "golden" / "checkpoints" / "state_dict.pt"
SECONDS = 5  # of the processor, for a file of at most a few megabytes; each takes a fraction of one


@pytest.fixture
def refuses(tmp_path):
    """Loads the bytes of a file, and fails unless that raises CheckpointError with this message, within a few seconds."""

    def refuses(data, message):
        path = tmp_path / "file.pt"
        path.write_bytes(data)
        start = time.process_time()
        with pytest.raises(CheckpointError, match=message) as caught:
            load_torch_checkpoint(path)
        assert time.process_time() - start < SECONDS
        assert str(path) in str(caught.value) and len(str(caught.value)) < 1000

    return refuses


# ---- calls and names ----------------------------------------------------------------------


class Evil:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(refuses, tmp_path, protocol):
    target = tmp_path / "called"
    for function, *arguments in [(os.system, f"touch {target}"), (eval, f"open({str(target)!r}, 'w')"), (pathlib.Path.touch, target)]:
        value = {"state_dict": {"w": Evil(function, *arguments)}}
        refuses(t.archive(t.records(pickle.dumps(value, protocol))), "calls |opcode ")
        assert not target.exists()


CALLED = """os.system posix.system builtins.eval builtins.exec builtins.getattr builtins.__import__ __builtin__.print torch.load
numpy.load subprocess.Popen torch.storage._load_from_bytes torch.hub.load functools.partial copyreg._reconstructor collections.namedtuple
runpy.run_path types.FunctionType torch.nn.Linear torch._utils._rebuild_qtensor builtins.OrderedDict collections.OrderedDict.fromkeys
operator.attrgetter"""


@pytest.mark.parametrize("function", CALLED.split())
def test_unknown_functions(refuses, function):
    refuses(t.checkpoint(t.mapping(x=t.call(function, t.text("x")))), rf"calls '{function.replace('__builtin__', 'builtins')}'")


def test_nothing_is_imported(tmp_path):
    """Names of modules that exist, that do not, and that print when they are imported."""
    names = ["this.s", "antigravity.fly", "lib2to3.main", "no_such_module.x", "turtledemo.__main__"]
    data = t.checkpoint(t.mapping(**{f"x{i}": t.name(name) for i, name in enumerate(names)}))
    (tmp_path / "x.pt").write_bytes(data)
    code = "import sys\nfrom transformer_c.checkpoint import load_torch_checkpoint\nbefore = set(sys.modules)\n"
    code += "print(load_torch_checkpoint(sys.argv[1])['x0'].name, sorted(set(sys.modules) - before))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "x.pt"], env=environment, capture_output=True, text=True)
    assert done.stdout == "this.s []\n" and done.returncode == 0, done.stderr


def test_no_pytorch_needed(tmp_path):
    code = "import sys\nsys.modules['torch'] = None\nfrom transformer_c.checkpoint import load_torch_checkpoint\n"
    code += "print(len(load_torch_checkpoint(sys.argv[1])))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, STATE_DICT], env=environment, capture_output=True, text=True)
    assert done.stdout == "6\n", done.stderr


SIX = t.sizes(6)
ONE = t.sizes(1)
HOOKS = t.call("collections.OrderedDict")
V3 = "torch._utils._rebuild_tensor_v3"

MALFORMED_CALLS = {
    "a value is called": (t.text("os.system") + t.items() + b"R", "calls a str"),
    "a tensor is called": (t.tensor() + t.items() + b"R", "calls a ndarray"),
    "an object is called": (t.name("a.b") + b")\x81" + t.items() + b"R", "calls a 'a.b'"),
    "arguments are no tuple": (t.name("collections.OrderedDict") + b"]R", "without a tuple"),
    "an object of no class": (t.text("x") + b")\x81", "not a class"),
    "keywords are no dict": (t.name("a.b") + b")]\x92", "not a class"),
    "state of a dict": (b"}}b", "state of a dict"),
    "state of a list": (b"]" + t.mapping(x=b"N") + b"b", "state of a list"),
    "state of a tensor": (t.tensor() + t.items(t.integer(1), t.sizes(2), b"N", b"N", b"N") + b"b", "state of a ndarray"),
    "state of a name": (t.name("torch.Tensor") + t.mapping(__reduce__=b"N") + b"b", "state of a 'torch.Tensor'"),
    "items of a list": (b"]NNs", "sets items of a list"),
    "items of a tensor": (t.tensor() + t.integer(0) + t.integer(0) + b"s", "sets items of a ndarray"),
    "items of a name": (t.name("os.environ") + t.text("A") + t.text("B") + b"s", "sets items of a 'os.environ'"),
    "appended to a name": (t.name("sys.path") + t.text("A") + b"a", "appends to a 'sys.path'"),
    "appended to a tuple": (b")Na", "appends to a tuple"),
    "added to a list": (b"](N\x90", "elements to a list"),
    "a key without a value": (b"}(Nu", "a key without a value"),
    "numpy's __setstate__ by name": (t.call("numpy.ndarray.__setstate__", t.tensor(), t.items()), "calls 'numpy.ndarray.__setstate__'"),
    "OrderedDict of something": (t.call("collections.OrderedDict", b"]"), "OrderedDict with 1"),
    "set of a tuple": (t.call("builtins.set", t.items(b"N")), "set with arguments"),
    "bytearray of a number": (t.call("builtins.bytearray", t.integer(2**31 - 1)), "bytearray with arguments"),
    "bytes of a number": (t.call("builtins.bytes", t.integer(2**31 - 1)), "bytes with arguments"),
    "another codec": (t.call("_codecs.encode", t.text("x"), t.text("zip")), "other than latin-1"),
    "not latin-1": (t.call("_codecs.encode", t.text("€"), t.text("latin1")), "other than latin-1"),
    "Size of text": (t.call("torch.Size", t.items(t.text("x"))), "not a tuple of at most 32 sizes"),
    "device of a list": (t.call("torch.device", b"]"), "torch.device with arguments"),
    "path of a number": (t.call("pathlib.PosixPath", t.integer(1)), "pathlib with arguments"),
    "tensor of nothing": (t.call("torch._utils._rebuild_tensor_v2"), r"arguments \(\)"),
    "tensor of a list": (t.call("torch._utils._rebuild_tensor_v2", b"]", t.integer(0), SIX, ONE), "arguments .list"),
    "parameter of text": (t.call("torch._utils._rebuild_parameter", t.text("x"), b"\x89", HOOKS), "other than a tensor"),
    "subclass by an unknown function": (
        t.call("torch._tensor._rebuild_from_type_v2", t.name("os.system"), b"N", t.items(), b"N"),
        "a tensor by 'os.system', which is not known",
    ),
    "subclass by itself": (
        t.call("torch._tensor._rebuild_from_type_v2", t.name("torch._tensor._rebuild_from_type_v2"), b"N", t.items(), b"N"),
        "which is not known",
    ),
    "v3 without a dtype": (t.call(V3, t.storage(), t.integer(0), SIX, ONE), "tensor of dtype None"),
    "v3 of an unknown dtype": (t.call(V3, t.storage(), t.integer(0), SIX, ONE, b"N", b"N", t.name("torch.qint8")), "dtype 'torch.qint8'"),
    "a conjugate": (t.tensor((6,), (1,), 0, None, t.mapping(conj=b"\x88")), "marked as a conjugate"),
    "a bare storage": (b"](" + t.storage() + b"e", "bare storage"),
    "a whole module": (t.name("torch.nn.Linear") + b")\x81" + b"}b", "'torch.nn.Linear', perhaps a whole module"),
    "a NumPy dtype of objects": (
        t.call("numpy.core.multiarray.scalar", t.call("numpy.dtype", t.text("O8")), b"C\x08" + bytes(8)),
        "dtype other",
    ),
    "a NumPy dtype of text": (
        t.call("numpy.core.multiarray.scalar", t.call("numpy.dtype", t.text("U2")), b"C\x08" + bytes(8)),
        "dtype other",
    ),
    "a NumPy scalar too short": (
        t.call("numpy.core.multiarray.scalar", t.call("numpy.dtype", t.text("f8")), b"C\x07" + bytes(7)),
        "do not make 1",
    ),
    "a NumPy array without contents": (
        t.call("numpy.core.multiarray._reconstruct", t.name("numpy.ndarray"), t.sizes(0), b"C\x01b"),
        "without contents",
    ),
    "a NumPy array of another kind": (
        t.call("numpy.core.multiarray._reconstruct", t.name("numpy.memmap"), t.sizes(0), b"C\x01b"),
        "'numpy.memmap'",
    ),
    "a NumPy scalar of nothing": (t.call("numpy.core.multiarray.scalar"), "a NumPy scalar from something other"),
    "a NumPy array whose contents are no tuple": (
        t.call("numpy.core.multiarray._reconstruct", t.name("numpy.ndarray"), t.sizes(0), b"C\x01b") + b"Nb",
        "contents are malformed",
    ),
    "booleans of NumPy": (t.call("numpy.core.multiarray.scalar", t.call("numpy.dtype", t.text("b1")), b"C\x01\x02"), "booleans other than"),
}


@pytest.mark.parametrize("case", MALFORMED_CALLS)
def test_malformed_calls(refuses, case):
    parts, message = MALFORMED_CALLS[case]
    refuses(t.checkpoint(parts), message)


def numpy_array(shape, code, data):
    state = t.items(t.integer(1), shape, t.call("numpy.dtype", t.text(code)), b"\x89", b"C" + bytes([len(data)]) + data)
    return t.call("numpy.core.multiarray._reconstruct", t.name("numpy.ndarray"), t.sizes(0), b"C\x01b") + state + b"b"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (t.sizes(3), "do not make 3"),
        (t.sizes(2**40, 2**40), "too large"),
        (t.sizes(2**40, 2**40, 0), "too large"),
        (t.sizes(-1, -2), "not a tuple"),
        (t.sizes(*[1] * 40), "at most 32"),
        (t.text("ab"), "not a tuple"),
    ],
)
def test_malformed_numpy_arrays(refuses, shape, message):
    refuses(t.checkpoint(numpy_array(shape, "f4", bytes(8))), message)


def test_the_state_of_a_numpy_array_is_set_once(refuses):
    again = t.items(t.integer(1), t.sizes(1), t.call("numpy.dtype", t.text("f4")), b"\x89", b"C\x04" + bytes(4))
    refuses(t.checkpoint(numpy_array(t.sizes(2), "f4", bytes(8)) + again + b"b"), "state of a ndarray")


# ---- opcodes ----------------------------------------------------------------------


def test_every_opcode_is_run_or_refused_by_name(tmp_path):
    """Alone on an empty stack, each raises CheckpointError or nothing else."""
    refused = set()
    for opcode in pickletools.opcodes:
        (tmp_path / "x.pt").write_bytes(t.archive(t.records(opcode.code.encode("latin-1") + bytes(16))))
        with pytest.raises(CheckpointError) as caught:
            load_torch_checkpoint(tmp_path / "x.pt")
        if f"opcode {opcode.name}, which" in str(caught.value):
            refused.add(opcode.name)
    protocol_0 = {"INT", "LONG", "STRING", "UNICODE", "FLOAT", "GET", "PUT", "PERSID", "LIST", "DICT", "INST"}
    python_2 = {"BINSTRING", "SHORT_BINSTRING"}
    never_written = {"OBJ", "EXT1", "EXT2", "EXT4", "POP", "POP_MARK", "DUP", "NEXT_BUFFER", "READONLY_BUFFER"}
    assert refused == protocol_0 | python_2 | never_written


BROKEN = {
    "no opcode": (b"\x80\x02\xffN.", "0xff at byte 2 is not an opcode"),
    "protocol 6": (b"\x80\x06N.", "protocol 6"),
    "an empty pickle": (b"", "cut off"),
    "no end": (b"\x80\x02N", "cut off"),
    "two values": (b"\x80\x02NN.", "goes on after its value"),
    "bytes after the end": (b"\x80\x02N.N.", "goes on after its value"),
    "an open mark": (b"\x80\x02(N.", "goes on after its value"),
    "an empty stack": (b"\x80\x02.", "more from its stack"),
    "below a mark": (b"\x80\x02N(a.", "more from its stack"),
    "no mark": (b"\x80\x02Nt.", "lacks a mark"),
    "a memo entry that is not there": (b"\x80\x02h\0.", "has not made"),
    "a memo with a gap": (b"\x80\x02Nr\xff\xff\xff\x7f.", "gaps in its memo"),
    "an integer of a gigabyte": (b"\x80\x02\x8b\0\0\0\x40" + bytes(100), "integer of 1073741824 bytes"),
    "text of 4 gigabytes": (b"\x80\x02X\xff\xff\xff\xff.", "claims 4294967295 bytes"),
    "text of 2^62 bytes": (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".", "claims 4611686018427387904 bytes"),
    "bytes of 2^62 bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".", "claims"),
    "a bytearray of 2^63 bytes": (b"\x80\x05\x96" + struct.pack("<Q", 2**63) + b".", "claims"),
    "a frame of 2^63 bytes": (b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.", "claims"),
    "text that is not UTF-8": (b"\x80\x02X\x01\0\0\0\xff.", "not UTF-8"),
    "a name that is not UTF-8": (b"\x80\x02ca\n\xff\n.", "not UTF-8"),
    "a name without an end": (b"\x80\x02c" + b"a" * 10**6, "without an end"),
    "a name of numbers": (b"\x80\x04K\1K\2\x93.", "other than a module and a name"),
    "a name of 60,000 characters": (b"\x80\x04" + t.text("a" * 60000) + t.text("b") + b"\x93.", "other than a module and a name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_pickles(refuses, case):
    pickled, message = BROKEN[case]
    refuses(t.archive(t.records(pickled)), message)


# ---- tensors and storages ----------------------------------------------------------------------

TENSORS = {
    "past the end": t.tensor((2, 4), (4, 1)),
    "by its offset": t.tensor((6,), (1,), 1),
    "by one stride": t.tensor((2, 1), (6, 1)),
    "far away": t.tensor((2,), (2**58,)),
    "a negative offset": t.tensor((6,), (1,), -1),
    "empty, behind the end": t.tensor((0,), (1,), 7),
    "empty, before the start": t.tensor((0,), (1,), -1),
    "a huge offset": t.tensor((1,), (1,), 2**62),
}
SHAPES = {
    "a negative stride": t.tensor((2,), (-1,)),
    "a negative size": t.tensor((-2,), (1,)),
    "two negative sizes": t.tensor((-2, -3), (3, 1)),
    "no strides": t.tensor((2, 3), ()),
    "too many strides": t.tensor((2,), (1, 1)),
    "a product beyond 64 bits": t.tensor((2**40, 2**40), (0, 0)),
    "the same, but empty": t.tensor((2**40, 2**40, 0), (0, 0, 0)),
    "40 axes": t.tensor((1,) * 40, (1,) * 40),
    "a stride of 2^60": t.tensor((1,), (2**60,)),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_outside_their_storage(refuses, case):
    refuses(t.checkpoint(TENSORS[case]), "in a storage of 6 elements")


@pytest.mark.parametrize("case", SHAPES)
def test_impossible_sizes_and_strides(refuses, case):
    refuses(t.checkpoint(SHAPES[case]), "size|strides that do not fit")


def test_sizes_of_other_types(refuses):
    arguments = t.storage(), t.integer(0), t.items(t.text("2")), t.sizes(1)
    refuses(t.checkpoint(t.call("torch._utils._rebuild_tensor_v2", *arguments)), "not a tuple of at most 32 sizes")
    arguments = t.storage(), t.integer(0), t.sizes(1), t.items(t.text("2"))
    refuses(t.checkpoint(t.call("torch._utils._rebuild_tensor_v2", *arguments)), "strides that do not fit")
    arguments = t.storage(), b"\x88", t.sizes(1), t.sizes(1)  # True is no offset
    refuses(t.checkpoint(t.call("torch._utils._rebuild_tensor_v2", *arguments)), "arguments")


def test_expanded_tensors_are_bounded(refuses):
    """No memory here, but as soon as somebody copies it."""
    refuses(t.checkpoint(t.tensor((2**20, 2**20), (0, 0))), "expanded tensors")
    refuses(t.checkpoint(b"](" + t.tensor((2**22, 5), (0, 1)) * 4 + b"e"), "expanded tensors")


STORAGES = {
    "a name for the kind": (
        t.items(t.text("storage"), t.text("torch.FloatStorage"), t.text("0"), t.text("cpu"), t.integer(6)),
        "kind that is not read",
    ),
    "an unknown kind": (
        t.items(t.text("storage"), t.name("torch.QInt8Storage"), t.text("0"), t.text("cpu"), t.integer(6)),
        "torch.QInt8Storage",
    ),
    "a key that is a number": (
        t.items(t.text("storage"), t.name("torch.FloatStorage"), t.integer(0), t.text("cpu"), t.integer(6)),
        "not read",
    ),
    "a count that is text": (t.items(t.text("storage"), t.name("torch.FloatStorage"), t.text("0"), t.text("cpu"), t.text("6")), "not read"),
    "four parts": (t.items(t.text("storage"), t.name("torch.FloatStorage"), t.text("0"), t.text("cpu")), "other than a storage"),
    "another kind of reference": (t.items(t.text("module"), b"N", b"N", b"N", b"N"), "other than a storage"),
    "no tuple": (t.text("0"), "other than a storage"),
}


@pytest.mark.parametrize("case", STORAGES)
def test_malformed_storages(refuses, case):
    reference, message = STORAGES[case]
    refuses(t.checkpoint(t.tensor((1,), (1,), 0, reference + b"Q")), message)


@pytest.mark.parametrize("key", ["1", "", "../data.pkl", "../../archive/data/0", "./0", "/etc/passwd", "0\0", "00", "data.pkl"])
def test_storage_keys_are_names_in_the_archive(refuses, key):
    refuses(t.checkpoint(t.tensor(made_of=t.storage(key))), "which the file does not hold")


@pytest.mark.parametrize("count", [5, 7, 0, -6, 2**62])
def test_storages_have_the_size_that_they_claim(refuses, count):
    refuses(t.checkpoint(t.tensor((1,), (1,), 0, t.storage(count=count))), "which has 24 bytes")


def test_one_storage_of_two_kinds(refuses):
    other = t.tensor((3,), (1,), 0, t.storage(kind="torch.DoubleStorage", count=3))
    refuses(t.checkpoint(t.items(t.tensor(), other)), "contradicts itself about storage '0'")


def test_a_tensor_in_part_of_an_element(refuses):
    untyped = t.storage(kind="torch.storage.UntypedStorage", count=6)
    tensor = t.call(V3, untyped, t.integer(0), ONE, ONE, b"\x89", HOOKS, t.name("torch.uint32"))
    refuses(t.checkpoint(tensor, data={"0": bytes(6)}), "uint32 in a storage of 6 bytes")


def test_two_dtypes_in_a_storage_of_the_other_byte_order(refuses):
    untyped = t.storage(kind="torch.storage.UntypedStorage", count=8)
    tensors = [t.call(V3, untyped, t.integer(0), ONE, ONE, b"\x89", HOOKS, t.name(f"torch.uint{bits}")) for bits in (16, 32)]
    refuses(t.checkpoint(t.items(*tensors), data={"0": bytes(8)}, byteorder=b"big"), "several dtypes in one storage")


def test_booleans_are_0_and_1(refuses):
    made_of = t.storage(kind="torch.BoolStorage", count=2)
    refuses(t.checkpoint(t.tensor((1,), (1,), 0, made_of), data={"0": b"\1\2"}), "values other than 0 and 1")


# ---- shapes of data ----------------------------------------------------------------------

CYCLES = {
    "a list": b"]q\0h\0a",
    "a dict": b"}q\0" + t.text("x") + b"h\0s",
    "a list in a tuple": b"]q\0(h\0ta",
    "an object by its state": t.name("a.b") + b")\x81q\0h\0b",
    "an object by its elements": b"](" + t.name("a.b") + b")\x81q\0h\0ae",
    "two dicts": b"}q\0" + t.text("x") + b"}" + t.text("y") + b"h\0ss",
}


@pytest.mark.parametrize("case", CYCLES)
def test_cycles(refuses, case):
    refuses(t.checkpoint(b"](" + CYCLES[case] + b"e"), "contains itself")


DEEP = {
    "lists": lambda n: b"]" * n + b"a" * (n - 1),
    "tuples": lambda n: b")" + b"\x85" * n,
    "dicts": lambda n: b"}" + (t.text("x") + b"}") * n + b"s" * n,
    "objects by their state": lambda n: (t.name("a.b") + b"q\0)\x81") + b"h\0)\x81" * n + b"b" * n,
    "objects by their arguments": lambda n: t.name("a.b") + b"q\0" + b"h\0)\x81" + b"".join([b"q\1h\0h\1\x85\x81"] * n),
}


@pytest.mark.parametrize("case", DEEP)
@pytest.mark.parametrize("count", [150, 20_000])
def test_depth(refuses, case, count):
    parts = DEEP[case](count)
    if case == "objects by their arguments":
        parts = b"](" + parts + b"e"
    refuses(t.checkpoint(b"](" + parts + b"e"), "nested more than 100 levels")
    gc.collect()


def test_a_hundred_levels_are_read(tmp_path):
    (tmp_path / "x.pt").write_bytes(t.checkpoint(DEEP["lists"](100)))
    value, depth = load_torch_checkpoint(tmp_path / "x.pt"), 1
    while value:
        (value,) = value
        depth += 1
    assert depth == 100


def test_sharing_that_multiplies(refuses):
    """50 lists, each with the one before it twice: 2^50 values when printed."""
    parts = b"](NNeq\0" + b"".join(b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(50))
    count = parts.count(b"](")
    refuses(t.checkpoint(b"(" + parts + b"t"), "over and over")
    assert count == 51


KEYS = {
    "a tuple": t.sizes(1, 2),
    "a list": b"]",
    "a dict": b"}",
    "a tensor": t.tensor(),
    "an object": t.name("a.b") + b")\x81",
    "a complex number": t.call("builtins.complex", b"G" + bytes(8), b"G" + bytes(8)),
    "a frozenset": b"(\x91",
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_are_plain(refuses, case):
    key = KEYS[case]
    for parts in (b"}" + key + b"Ns", b"\x8f(" + key + b"\x90", b"(" + key + b"\x91", t.call("builtins.set", b"]" + key + b"a")):
        refuses(t.checkpoint(parts), "as a key")


def test_keys_whose_hashes_collide(refuses):
    """Python's integers that differ by 2^61 - 1 have the same hash: a dict of n of them takes time n squared."""
    keys = b"".join(b"\x8a\x0c" + (i * (2**61 - 1)).to_bytes(12, "little") + b"N" for i in range(100_000))
    refuses(t.checkpoint(b"}(" + keys + b"u"), "more than 64 bits as a key")


def test_long_keys_that_are_equal(refuses):
    """Two equal texts of a megabyte are compared in full each time."""
    long = t.text("a" * 10**6)
    refuses(t.checkpoint(long + b"q\0" + long + b"q\1" + b"}(" + b"h\0Nh\1N" * 10**5 + b"u"), "key of 1000000 characters")


# ---- memory and time ----------------------------------------------------------------------

COUNT = 100_000
EXHAUSTING = {
    "dicts": b"](" + b"}" * 4 * COUNT + b"e",
    "lists": b"](" + b"]" * 4 * COUNT + b"e",
    "sets": b"](" + b"\x8f" * 4 * COUNT + b"e",
    "marks": b"(" * 8 * COUNT,
    "tuples": b")" + b"\x85" * 4 * COUNT,
    "ordered dicts": b"](" + t.name("collections.OrderedDict") + b"q\0" + b"h\0)R" * COUNT + b"e",
    "objects": b"](" + t.name("a.b") + b"q\0" + b"h\0)\x81" * COUNT + b"e",
    "copies of a list": b"](" + b"K\1" * COUNT + b"eq\0" + t.name("builtins.set") + b"q\1" + b"](" + b"h\1h\0\x85R" * COUNT + b"e\x86",
    "copies of text": t.text("a" * COUNT)
    + b"q\0"
    + t.text("latin1")
    + b"q\1"
    + t.name("_codecs.encode")
    + b"q\2"
    + b"](h\0"
    + b"h\2h\0h\1\x86R" * COUNT
    + b"e",
    "copies of an array": (
        b"B" + struct.pack("<I", COUNT) + bytes(COUNT) + b"q\0" + t.name("builtins.bytearray") + b"q\1](" + b"h\1h\0\x85R" * COUNT + b"e"
    ),
    "tensors": t.name("torch._utils._rebuild_tensor")
    + b"q\0"
    + t.items(t.storage(), t.integer(0), b"))")
    + b"q\1]("
    + b"h\0h\1R" * COUNT
    + b"e",
    "scalars": b"](" + t.name("numpy.dtype") + b"q\0" + t.items(t.text("f8")) + b"q\1" + b"h\0h\1R" * COUNT + b"e",
}


@pytest.mark.parametrize("case", EXHAUSTING)
def test_memory_is_bounded(tmp_path, case):
    """At most 16 MiB and 48 times the pickle, and a reason, whatever it repeats."""
    parts = EXHAUSTING[case]
    path = tmp_path / "x.pt"
    path.write_bytes(t.checkpoint(parts))
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(CheckpointError, match="exhaust memory"):
            load_torch_checkpoint(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (16 << 20) + 48 * len(parts), f"{peak >> 20} MiB for a pickle of {len(parts) >> 10} KiB"
    assert time.process_time() - start < 10 * SECONDS  # tracemalloc makes it several times slower


def test_memory_of_the_densest_file_that_loads(tmp_path):
    pickled = b"](" + b"}" * 76_000 + b"e"
    (tmp_path / "x.pt").write_bytes(t.checkpoint(pickled))
    tracemalloc.start()
    try:
        assert load_torch_checkpoint(tmp_path / "x.pt") == [{}] * 76_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (16 << 20) + 48 * len(pickled), f"{peak >> 20} MiB"


def test_memory_of_an_honest_file(tmp_path):
    data = np.arange(2_000_000, dtype=np.float32)
    pickled = t.mapping(w=t.tensor((2_000_000,), (1,), 0, t.storage(count=2_000_000)))
    (tmp_path / "x.pt").write_bytes(t.checkpoint(pickled, data={"0": data.tobytes()}))
    tracemalloc.start()
    try:
        found = load_torch_checkpoint(tmp_path / "x.pt")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found["w"], data) and peak < 1.1 * data.nbytes


# ---- archives ----------------------------------------------------------------------

GOOD = t.records(t.program(t.mapping(w=t.tensor())))


def patched(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def directory_entry(data, entry):
    """Where the directory's entry of a record begins."""
    return data.rindex(f"archive/{entry}".encode()) - 46


def with_names(*names):
    """A good archive and more records of these names (of the whole path)."""
    return t.archive([*((f"archive/{name}", value) for name, value in GOOD.items()), *((name, b"x") for name in names)], folder="")


NAMES = {
    "a folder above": "archive/../x",
    "only the folder above": "../x",
    "no folder": "x",
    "an absolute path": "/etc/x",
    "an empty part": "archive//x",
    "the same folder": "archive/./x",
    "a folder": "archive/x/",
    "another separator": "archive/..\\x",
    "a control character": "archive/a\nb",
    "an escape sequence": "archive/\x1b[2J",
}


@pytest.mark.parametrize("case", NAMES)
def test_names_of_records(refuses, case):
    refuses(with_names(NAMES[case]), "expected a plain name in a folder")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_occur_twice(refuses):
    refuses(with_names("archive/data.pkl"), "two records with the name 'archive/data.pkl'")
    refuses(with_names("other/data.pkl"), "records in two folders, 'archive' and 'other'")


def test_compressed_records(refuses):
    """A zip bomb: 8 MiB of zeros in 8 KiB."""
    records = {**GOOD, "data/0": bytes(8 << 20)}
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refuses(t.archive(records, method=method), "is compressed")


def archive_fields():
    """(what, file): a good file with one field of its directory, or of a local header, replaced."""
    data = t.archive(GOOD)
    entry, local = directory_entry(data, "data/0"), data.index(b"archive/data/0") - 30
    other = data.index(b"archive/byteorder") - 30
    end = len(data) - 22
    directory = struct.unpack_from("<L", data, end + 16)[0]
    yield "another method", patched(data, entry + 10, struct.pack("<H", 8))
    yield "another local method", patched(data, local + 8, struct.pack("<H", 8))
    yield "encrypted", patched(patched(data, entry + 8, b"\1\0"), local + 6, b"\1\0")
    yield "other local flags", patched(data, local + 6, b"\0\x08")
    yield "sizes that differ", patched(data, entry + 24, struct.pack("<L", 48))
    yield "4 GiB", patched(data, entry + 20, struct.pack("<2L", 2**32 - 2, 2**32 - 2))
    yield "2^64 without the field for it", patched(data, entry + 20, struct.pack("<2L", 2**32 - 1, 2**32 - 1))
    yield "another local size", patched(data, local + 18, struct.pack("<2L", 48, 48))
    yield "a record behind the end", patched(data, entry + 42, struct.pack("<L", len(data)))
    yield "a record in the directory", patched(data, entry + 42, struct.pack("<L", directory))
    yield "a record on another", patched(data, entry + 42, struct.pack("<L", other))
    yield "another local name", patched(data, local + 30, b"archivX")
    yield "no local signature", patched(data, local, b"PK\3\5")
    yield "on another disk", patched(data, entry + 34, b"\1\0")
    yield "no directory signature", patched(data, entry, b"PK\1\3")
    yield "a longer name", patched(data, directory_entry(data, "version") + 28, struct.pack("<H", 1000))
    yield "a name that is not UTF-8", data.replace(b"archive/version", b"archive/v\xffrsion")
    yield "fewer entries", patched(data, end + 8, struct.pack("<2H", 3, 3))
    yield "more entries", patched(data, end + 8, struct.pack("<2H", 5, 5))
    yield "65,535 entries", patched(data, end + 8, b"\xff" * 4)
    yield "entries on two disks", patched(data, end + 8, struct.pack("<2H", 3, 4))
    yield "a directory elsewhere", patched(data, end + 16, struct.pack("<L", directory - 1))
    yield "a longer directory", patched(data, end + 12, struct.pack("<L", len(data)))
    yield "a comment", data[:-2] + b"\4\0note"
    yield "bytes after the end", data + b"\0"
    yield "bytes before the start", b"PK" + data
    yield "a damaged tensor", patched(data, data.index(t.SIX), b"\x01")
    yield "a damaged pickle", patched(data, data.index(b"rebuild"), b"R")


@pytest.mark.parametrize(("case", "data"), list(archive_fields()), ids=lambda value: value if isinstance(value, str) else "")
def test_fields_of_the_archive(refuses, case, data):
    refuses(data, "zip archive|its records? ")


def test_overlapping_records(refuses, tmp_path):
    """A record inside another: the inner header is in the outer's data, and each is consistent."""
    inner = t.archive({"data/1": t.SIX})
    inner = inner[: inner.index(b"PK\1\2")]
    records = {**GOOD, "data/2": inner}
    data = t.archive({**records, "data/1": t.SIX})
    start = data.index(inner)
    data = patched(data, directory_entry(data, "data/1") + 42, struct.pack("<L", start))
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        outer = zipped.getinfo("archive/data/2")
        assert outer.header_offset < zipped.getinfo("archive/data/1").header_offset < outer.header_offset + outer.file_size
    refuses(data, "'archive/data/2' and 'archive/data/1' overlap")


def test_zip64_fields(refuses):
    """PyTorch's own files end in the 64-bit form; it must agree with the short form and with the file."""
    data = STATE_DICT.read_bytes()
    end_64, locator, end = data.rindex(b"PK\6\6"), data.rindex(b"PK\6\7"), data.rindex(b"PK\5\6")
    assert (end_64 + 56, locator + 20) == (locator, end)
    for at in (24, 32, 40, 48):
        refuses(patched(data, end_64 + at, struct.pack("<Q", 2**63 - 1)), "zip archive")
    refuses(patched(data, locator + 8, struct.pack("<Q", end_64 - 1)), "zip archive's end is damaged")
    refuses(patched(data, end + 16, struct.pack("<L", 1)), "contradicts itself")
    huge = struct.pack("<2H2Q", 1, 16, 2**63, 2**63)
    entry = data.rindex(b"state_dict/data/0") - 46
    name = data[entry + 46 : entry + 46 + 17]
    grown = data[: entry + 20] + b"\xff" * 8 + struct.pack("<2H", 17, 20) + data[entry + 32 : entry + 46] + name + huge + data[entry + 63 :]
    length = struct.unpack_from("<Q", data, end_64 + 40)[0] + 20
    shifted = end_64 + 20
    grown = patched(grown, shifted + 40, struct.pack("<Q", length))
    grown = patched(grown, locator + 20 + 8, struct.pack("<Q", shifted))
    grown = patched(grown, end + 20 + 12, struct.pack("<L", length))
    refuses(grown, f"'state_dict/data/0' claims {2**63} bytes")


# ---- damage at random ----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["torch", "plain"])
def test_truncation_at_every_byte(tmp_path, source):
    data = STATE_DICT.read_bytes() if source == "torch" else t.archive(GOOD)
    path = tmp_path / "x.pt"
    for length in range(len(data)):
        t.overwrite(path, data[:length])
        with pytest.raises(CheckpointError):
            load_torch_checkpoint(path)
    for start in range(1, len(data), 7):
        t.overwrite(path, data[start:])
        with pytest.raises(CheckpointError):
            load_torch_checkpoint(path)


def damage(data, rng):
    """A few bytes replaced, removed, or put elsewhere."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, other, length = rng.integers(0, len(changed), 3) % [len(changed), len(changed), 9]
        match rng.integers(5):
            case 0:
                changed[at] = rng.integers(0, 256)
            case 1:
                changed[at] ^= 1 << rng.integers(0, 8)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = changed[other : other + length]
            case 4:
                changed[at : at + length] = bytes([rng.choice([0, 1, 127, 128, 255])]) * length
        if not changed:
            return b""
    return bytes(changed)


def test_damaged_files(tmp_path, rng):
    """A record's checksum protects it: if it loads, it is what was saved."""
    data = STATE_DICT.read_bytes()
    path = tmp_path / "x.pt"
    t.overwrite(path, data)
    expected = load_torch_checkpoint(path)
    loaded = 0
    for _ in range(2500):
        t.overwrite(path, damage(data, rng))
        start = time.process_time()
        try:
            found = load_torch_checkpoint(path)
        except CheckpointError:
            pass
        else:
            loaded += 1
            assert list(found) == list(expected) and all(np.array_equal(found[key], expected[key]) for key in expected)
        assert time.process_time() - start < SECONDS
    assert 0 < loaded < 2400


@pytest.mark.parametrize("name", ["state_dict.pt", "dtypes.pt", "views.pt", "training.pt", "lightning.ckpt"])
def test_damaged_pickles(tmp_path, rng, name):
    """With the checksum made good again, whatever the pickle says: data, or CheckpointError, in time."""
    with zipfile.ZipFile(STATE_DICT.with_name(name)) as zipped:
        records = {info.filename.partition("/")[2]: zipped.read(info) for info in zipped.infolist()}
    path = tmp_path / "x.pt"
    loaded = 0
    for _ in range(500):
        t.overwrite(path, t.archive({**records, "data.pkl": damage(records["data.pkl"], rng)}))
        start = time.process_time()
        try:
            value = load_torch_checkpoint(path)
        except CheckpointError:
            pass
        else:
            loaded += 1
            repr(value)
        assert time.process_time() - start < SECONDS
    assert 0 < loaded < 500


def test_random_pickles(tmp_path, rng):
    """Opcodes in random order, most with fitting arguments."""
    opcodes = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
    good = [
        b"N",
        b"]",
        b"}",
        b")",
        b"K\1",
        b"(",
        b"e",
        b"u",
        b"t",
        b"\x94",
        b"h\0",
        b"a",
        b"s",
        b"\x81",
        b"R",
        b"b",
        b"\x85",
        b"\x86",
        t.name("a.b"),
    ]
    good += [t.storage(), t.tensor(), HOOKS, t.text("x"), b"\x8f", b"\x90", b"\x91", t.name("builtins.set"), t.name("numpy.dtype"), ONE]
    loaded = 0
    path = tmp_path / "x.pt"
    for _ in range(2000):
        parts = [
            good[i] if rng.random() < 0.97 else opcodes[rng.integers(len(opcodes))] for i in rng.integers(0, len(good), rng.integers(1, 12))
        ]
        t.overwrite(path, t.checkpoint(*parts))
        try:
            repr(load_torch_checkpoint(path))
            loaded += 1
        except CheckpointError:
            pass
    assert loaded > 50
