"""Checksums of what datasets have in memory: they differ where data differ, read little and draw nothing."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.trainer import same_data

PERMUTED = np.random.default_rng(0).permutation(3_000_000)
VALUES = {
    "array": np.arange(3_000_000.0),
    "strided": np.arange(6_000_000.0).reshape(2, -1).T[::2],
    "strings": np.array([f"{i}" for i in range(1000)]),
    "objects": np.array([None, "a", 3] * 100, dtype=object),
    "tensor": tc.tensor(np.arange(3000.0)).to("bfloat16"),
    "list": list(range(200_000)),
    "list of samples": [(np.full(3, i), f"{i}") for i in range(300)],
}


@pytest.mark.parametrize("name", VALUES)
def test_another_order_has_another_checksum(name):
    value = VALUES[name]
    order = PERMUTED[len(value) > PERMUTED]
    other = [value[i] for i in order] if isinstance(value, list) else value[order]
    assert same_data.checksum(value) == same_data.checksum(value) != same_data.checksum(other)


@pytest.mark.parametrize("place", [slice(1_500_000, None), slice(-1, None)])
def test_another_part_has_another_checksum(place):
    """Of an array that is not read whole: in any place, where it is long enough; the last element always."""
    other = VALUES["array"].copy()
    other[place] += 1
    assert same_data.checksum(other) != same_data.checksum(VALUES["array"])


def test_a_large_array_is_read_in_part():
    class Counted(np.ndarray):
        read = 0

        def tobytes(self, *args):
            Counted.read += self.nbytes
            return super().tobytes(*args)

    large = [np.zeros((4_000_000, 8), np.float32).view(Counted) for _ in range(3)]  # 384 MB
    parts = same_data.data_of("train", tc.data.DataLoader(tc.data.ConcatDataset(large)))
    assert len(parts) == 1 and 0 < Counted.read <= 2**23


def test_a_long_list_of_samples_is_read_in_part(monkeypatch):
    """Its first and last one, too."""
    calls, checksum = [], same_data.checksum
    monkeypatch.setattr(same_data, "checksum", lambda *arguments: calls.append(arguments) or checksum(*arguments))
    samples = [(np.full(4, i), i) for i in range(60_000)]
    same_data.data_of("train", tc.data.DataLoader(samples))
    assert len(calls) <= 1 + 3 * 4096
    found = {checksum(samples)}
    for place in (0, -1):
        samples[place] = samples[100]
        found.add(checksum(samples))
    assert len(found) == 3


def test_nothing_is_drawn():
    class Costly(tc.data.Dataset):
        def __init__(self):
            self.itself, self.paths, self.names, self.lock = self, ["b", "a"], {"b", "a"}, object()

        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise AssertionError("a sample was drawn")

    class Stream(Costly, tc.data.IterableDataset):
        __iter__ = Costly.__getitem__

    found = same_data.data_of("train", tc.data.DataLoader(tc.data.Subset(Costly(), [1, 0])))
    assert {name: is_certain for name, (_, is_certain) in found.items()} == {
        "train.dataset.indices": True,
        "train.dataset.dataset.paths": False,
    }
    assert list(same_data.data_of("train", tc.data.DataLoader(Stream()))) == ["train.dataset.paths"]
