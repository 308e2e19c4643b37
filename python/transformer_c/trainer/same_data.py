"""Whether all ranks were given the same data: checksums of what the datasets have in memory, at most a few megabytes of it.

Nothing is drawn from a dataset, whose samples may be random, slow or gone once they were read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .._core import Tensor
from ..data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from ..distributed.arrays import as_numbers
from .arrays import Rows

_READ = 2**23  # bytes of all arrays together
_PLACES, _RUN = 1024, 512  # runs and elements of each, at even distances, of an array that is not read completely
_NUMBERS, _ITEMS = 2**16, 2**12  # of a list of numbers and texts, of a list of anything else
_PARTS = 1000  # of a loader
_DEPTH = 6  # of lists in lists
_ROWS = 64  # of the first batch

# What these have decides which samples they give: a difference is an error. Attributes of other classes may be anything, such as a cache.
_OWN: Mapping[type, tuple[str, ...]] = {
    TensorDataset: ("tensors",),
    Rows: ("arrays",),
    Subset: ("indices", "dataset"),
    ConcatDataset: ("datasets",),
    ChainDataset: ("datasets",),
    StackDataset: ("datasets",),
    SubsetRandomSampler: ("indices",),
    WeightedRandomSampler: ("weights",),
    BatchSampler: ("sampler",),
    RandomSampler: (),
    SequentialSampler: (),
    DistributedSampler: (),
}


# ---- what a loader has ---------------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """An array or a list that a loader has."""

    name: str
    value: Any
    is_certain: bool  # whether another one on another rank is an error


def data_of(name: str, loader: Any) -> dict[str, tuple[int, bool]]:
    """What a loader has in memory, by name: a checksum, and whether another one on another rank is an error.

    Parameters
    ----------
    name : str
        Of the loader.
    loader : DataLoader, or another collection of batches
    """
    seen: set[int] = set()
    roots = {f"{name}.{part}": getattr(loader, part, None) for part in ("dataset", "sampler", "batch_sampler")}
    if roots[f"{name}.dataset"] is None:
        roots[name] = loader
    found = [part for root, value in roots.items() if value is not None for part in islice(_walk(root, value, True, seen), _PARTS)]
    return {part.name: (checksum(part.value, _READ // len(found)), part.is_certain) for part in found}


def _walk(name: str, value: Any, is_certain: bool, seen: set[int], depth: int = 0) -> Iterator[Part]:
    """The arrays and lists that a value has, or is."""
    if depth > _DEPTH or id(value) in seen:
        return
    seen.add(id(value))
    own = next((attributes for kind, attributes in _OWN.items() if isinstance(value, kind)), None)
    if own is not None:
        held, is_certain = {f".{attribute}": getattr(value, attribute) for attribute in own}, True
    elif _is_dataset(value) or (depth == 0 and not _is_plain(value)):
        held, is_certain = {f".{attribute}": part for attribute, part in sorted(getattr(value, "__dict__", {}).items())}, False
    elif isinstance(value, dict) and len(value) <= 64:
        held = {f"[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, (list, tuple)) and len(value) <= _PARTS and any(map(_is_dataset, value)):
        held = {f"[{i}]": part for i, part in enumerate(value)}
    else:
        if _is_plain(value) and not isinstance(value, dict):
            yield Part(name, value, is_certain)
        return
    for place, part in held.items():
        yield from _walk(name + place, part, is_certain, seen, depth + 1)


def _is_dataset(value: Any) -> bool:
    is_indexed = hasattr(type(value), "__getitem__") and hasattr(type(value), "__len__") and hasattr(value, "__dict__")
    return isinstance(value, (Dataset, IterableDataset, Sampler)) or (is_indexed and not _is_plain(value))


def _is_plain(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor, list, tuple, dict, range)) or _is_frame(value)


def _is_frame(value: Any) -> bool:
    """Whether this is a frame or series of pandas, which need not be installed."""
    return hasattr(value, "iloc") and hasattr(value, "to_numpy")


# ---- checksums -----------------------------------------------------------------------------------------------------------------------


def checksum(value: Any, budget: int = _READ, depth: int = 0) -> int:
    """A number that differs where values differ, of which about `budget` bytes are read; of unknown objects that of their class."""
    if isinstance(value, Tensor):
        step = -(-len(value) // _PLACES) if value.ndim and value.numel() * value.dtype.itemsize > budget else 1
        value = as_numbers(value[::step] if step > 1 else value)
    if _is_frame(value):
        value = value.iloc[:: -(-len(value) // _PLACES) or 1].to_numpy()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return zlib.crc32(_sample(value, budget).tobytes(), zlib.crc32(f"{value.dtype} {value.shape}".encode()))
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)
    if isinstance(value, (list, tuple, np.ndarray)) and depth <= _DEPTH:
        return _checksum_of_items(value, budget, depth)
    is_value = value is None or isinstance(value, (bool, int, float, complex, str, bytes, range, np.generic))
    return zlib.crc32((repr(value) if is_value else type(value).__name__).encode())


def _checksum_of_items(items: Sequence[Any] | np.ndarray, budget: int, depth: int) -> int:
    found, most = len(items) & 0xFFFFFFFF, max(16, budget // 64)
    chosen = _spread(items, min(_NUMBERS, most))
    if all(type(item) in (int, float, str, bool) for item in chosen):
        return zlib.crc32(repr(chosen).encode(), found)
    chosen = _spread(items, min(_ITEMS, most))
    for item in chosen:
        found = zlib.crc32(checksum(item, budget // len(chosen), depth + 1).to_bytes(4, "little"), found)
    return found


def _spread(items: Sequence[Any] | np.ndarray, most: int) -> list[Any]:
    """At most `most` items, at even distances from the first to the last."""
    return list(items) if len(items) <= most else [items[int(i)] for i in np.linspace(0, len(items) - 1, most)]


def _sample(array: np.ndarray, budget: int) -> np.ndarray:
    """Some elements of an array, at most `budget` bytes or one run; all of a small one."""
    if array.nbytes <= budget:
        return array
    run = min(_RUN, array.size)
    places = min(_PLACES, budget // (run * array.itemsize) or 1)
    starts = np.linspace(0, array.size - run, places).astype(np.int64)
    flat = (starts[:, None] + np.arange(run)).reshape(-1)
    return array[np.unravel_index(flat, array.shape)]  # of any strides, or mapped from a file


# ---- of all ranks --------------------------------------------------------------------------------------------------------------------


def differences(of_ranks: Sequence[Mapping[str, tuple[int, bool]]]) -> tuple[list[str], list[str]]:
    """What differs between rank 0 and another one: what must not, and what may be meant so."""
    found: tuple[list[str], list[str]] = [], []
    for rank, data in enumerate(of_ranks[1:], 1):
        for name in [*of_ranks[0], *(name for name in data if name not in of_ranks[0])]:
            first, other = of_ranks[0].get(name), data.get(name)
            if first != other:
                is_certain = all(part is None or part[1] for part in (first, other))
                found[0 if is_certain else 1].append(f"{name} differs between rank 0 and rank {rank}")
    return found


SEED_SPLITS = (
    "all ranks must make the same data; give what is random there a seed, such as train_test_split(random_state=0) or "
    "random_split(generator=0)"
)


# ---- samples one after the other -----------------------------------------------------------------------------------------------------


def fields_of(samples: Sequence[Any]) -> list[list[int]]:
    """The checksums of the first samples of a batch, a list for each field of a sample."""
    rows = [list(s.values()) if isinstance(s, dict) else list(s) if isinstance(s, (list, tuple)) else [s] for s in samples[:_ROWS]]
    return [[checksum(value) for value in column] for column in zip(*rows, strict=False)]


def fields_of_batch(batch: Any) -> list[list[int]]:
    """As ``fields_of``, of the rows of a batch that was made already."""
    columns = list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, (list, tuple)) else [batch]
    return [[checksum(row) for row in column[:_ROWS]] for column in columns if getattr(column, "shape", ()) or isinstance(column, list)]


def are_other_samples(first: list[list[int]], other: list[list[int]]) -> bool:
    """Whether two ranks were given other samples: all fields that vary differ. Random samples differ in some, and labels do not."""
    pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(first, other, strict=False)]
    varying = [a != b for a, b in pairs if len({*a, *b}) > 1]
    return bool(varying) and all(varying)
