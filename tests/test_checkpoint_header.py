"""The reader of safetensors headers: what the format demands, on files written by hand and on damaged ones, compared with the package."""

import contextlib
import json
import os

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from transformer_c import checkpoint
from transformer_c.checkpoint import CheckpointError

F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


REFUSED = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "no header": bytes(8),
    "a header of all ones": b"\xff" * 8 + b"{}",
    "a header longer than the file": (3).to_bytes(8, "little") + b"{}",
    "a header that begins with a space": file_of(b" {}"),
    "a list": file_of(b"[]"),
    "not UTF-8": file_of(b'{"\xff": 1}'),
    "cut off": file_of(b'{"x": {'),
    "two values": file_of(b"{}{}"),
    "NaN": file_of(b'{"__metadata__": NaN}'),
    "deep": file_of(b'{"x":' + b"[" * 10**6),
    "a long integer": file_of(b'{"x": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}', bytes(4)),
    "a name twice": file_of(b'{"x": %s, "x": %s}' % ((json.dumps(F32).encode(),) * 2), bytes(4)),
    "a field twice": file_of(b'{"x": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', bytes(4)),
    "metadata of numbers": file_of({"__metadata__": {"a": 1}}),
    "metadata of a list": file_of({"__metadata__": [1]}),
    "no dtype": file_of({"x": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "an unknown dtype": file_of({"x": entry("F33")}, bytes(4)),
    "a dtype of no name": file_of({"x": entry(3)}, bytes(4)),
    "a negative size": file_of({"x": entry(shape=(-1, -1))}, bytes(4)),
    "a size that is true": file_of({"x": entry(shape=(True,))}, bytes(4)),
    "a size with a point": file_of({"x": entry(shape=(1.0,))}, bytes(4)),
    "a shape that is a number": file_of({"x": {**F32, "shape": 1}}, bytes(4)),
    "a product that overflows": file_of({"x": entry(shape=(2**32, 2**32))}, bytes(4)),
    "a product that overflows with a zero": file_of({"x": entry(shape=(2**32, 2**32, 0), offsets=(0, 0))}),
    "a product that overflows to the size": file_of({"x": entry(shape=(2**62 + 1,))}, bytes(4)),
    "too many bytes": file_of({"x": entry(offsets=(0, 8))}, bytes(8)),
    "too few bytes": file_of({"x": entry(shape=(2,))}, bytes(4)),
    "ends before it begins": file_of({"x": entry(shape=(0,), offsets=(4, 0))}, bytes(4)),
    "three offsets": file_of({"x": entry(offsets=(0, 4, 4))}, bytes(4)),
    "negative offsets": file_of({"x": entry(offsets=(-4, 0))}, bytes(4)),
    "an overlap": file_of({"x": F32, "y": entry(offsets=(2, 6))}, bytes(8)),
    "twice the same bytes": file_of({"x": F32, "y": F32}, bytes(4)),
    "a hole at the beginning": file_of({"x": entry(offsets=(4, 8))}, bytes(8)),
    "a hole": file_of({"x": F32, "y": entry(offsets=(8, 12))}, bytes(12)),
    "bytes behind the last": file_of({"x": F32}, bytes(5)),
    "bytes of no array": file_of({}, bytes(4)),
    "outside the file": file_of({"x": F32, "y": entry(offsets=(4, 8))}, bytes(4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    (tmp_path / "x").write_bytes(REFUSED[name])
    with pytest.raises(CheckpointError, match="'.*' cannot be loaded: it is not a safetensors file, or is damaged"):
        checkpoint.load(tmp_path / "x")


def test_a_header_of_more_than_100_mb(tmp_path):
    with open(tmp_path / "x", "wb") as file:  # sparse
        file.write((100_000_001).to_bytes(8, "little") + b"{")
        file.truncate(100_000_100)
    with pytest.raises(CheckpointError, match="header at most 100000000"):
        checkpoint.load(tmp_path / "x")


def test_what_is_accepted(tmp_path):
    header = {
        "__metadata__": {"a": "b"},
        "y": entry("I64", (), (8, 16)),
        "x": entry("F32", (1, 2), more=1, offsets=(0, 8)),
        "z": entry("U8", (0, 3), (16, 16)),
    }
    (tmp_path / "x").write_bytes(file_of(json.dumps(header).encode() + b"  \n", np.float32([1, 2]).tobytes() + np.int64(7).tobytes()))
    found = checkpoint.load(tmp_path / "x")
    assert found.metadata == {"a": "b"} and list(found) == ["y", "x", "z"] and found["y"] == 7 and found["z"].shape == (0, 3)
    np.testing.assert_array_equal(found["x"], [[1, 2]])
    assert all(array.flags.writeable and array.flags.aligned for array in found.values())


@pytest.mark.parametrize("name", sorted(checkpoint.safetensors_file._STORED))
def test_every_dtype_that_the_package_writes(name, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = (
        np.dtype(name)
        if name in np.sctypeDict or name == "bool"
        else np.dtype(getattr(ml_dtypes, name, None) or pytest.skip("older ml_dtypes"))
    )
    array = np.arange(6).astype(dtype).reshape(2, 3) > 2 if name == "bool" else np.arange(6).astype(np.float32).astype(dtype).reshape(2, 3)
    try:
        safetensors.numpy.save_file({"x": array}, tmp_path / "x")
    except (safetensors.SafetensorError, KeyError, ValueError):
        checkpoint.save({"x": array}, tmp_path / "x")
    found = checkpoint.load(tmp_path / "x")["x"]
    assert found.dtype == dtype and found.tobytes() == array.tobytes()


def test_damaged_files_as_the_package_reads_them(tmp_path, rng):
    """3,000 files with bytes changed, most of them in the header: accepted here only with the package's own arrays."""
    path = tmp_path / "x"
    checkpoint.save(
        {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3), "nested": {"e": 1.5, "f": np.ones(2, bool)}}, path
    )
    whole = path.read_bytes()
    accepted = 0
    length = int.from_bytes(whole[:8], "little")
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(8, 8 + length) if rng.random() < 0.8 else rng.integers(0, len(data))
            data[at] = rng.choice(list(b'0123456789{}[]",:')) if rng.random() < 0.7 else rng.integers(0, 256)
        if rng.random() < 0.2:
            data = data[: rng.integers(0, len(data))]
        path.write_bytes(data)
        try:
            theirs = dict(safetensors.deserialize(bytes(data)))
        except safetensors.SafetensorError:
            theirs = None
        try:
            ours, _, begin = read(path)
        except checkpoint.safetensors_header.NotSafetensors as error:
            assert theirs is None or "twice" in str(error), (data, error)
            with pytest.raises(CheckpointError):
                checkpoint.load(path)
            continue
        accepted += 1
        assert theirs is not None, data
        assert {n: (e.dtype, list(e.shape), bytes(data[begin + e.begin :][: e.size])) for n, e in ours.items()} == {
            n: (t["dtype"], t["shape"], bytes(t["data"])) for n, t in theirs.items()
        }
        with contextlib.suppress(CheckpointError):
            checkpoint.load(path)
    assert 100 < accepted < 2900


def read(path):
    file, size = checkpoint.files.open_regular(path)
    with file:
        return checkpoint.safetensors_header.read_header(file, size)


def test_memory_is_that_of_the_file(tmp_path):
    import tracemalloc

    array = np.zeros(1 << 20, np.float64)
    checkpoint.save({"x": array}, tmp_path / "x")
    tracemalloc.start()
    try:
        checkpoint.load(tmp_path / "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * os.path.getsize(tmp_path / "x")
