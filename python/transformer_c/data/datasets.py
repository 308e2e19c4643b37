"""Datasets: samples by index, or one after the other."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .._arguments import listed, real
from .._core import Tensor
from .._tensor import as_tensor
from ..random import one_source, randperm


class Dataset:
    """Samples by index: subclasses define ``__getitem__`` and ``__len__``.

    A subclass may also define ``__getitems__(indices)``, which the loader calls instead of ``__getitem__`` once per sample, but not that of a
    class whose subclass has a ``__getitem__`` of its own. It returns a list of samples, as in PyTorch, or anything else that is a whole batch,
    already collated, such as a tuple of Tensors.
    """

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__(): define it in the class")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__(): define it in the class")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


def batches_of(dataset: Any) -> Callable[[Sequence[int]], Any] | None:
    """``dataset.__getitems__``, where it makes of samples what ``__getitem__`` does: unless a subclass has another ``__getitem__``."""
    for kind in type(dataset).__mro__:
        if "__getitems__" in vars(kind):
            break
        if "__getitem__" in vars(kind):
            return None
    return getattr(dataset, "__getitems__", None)


class IterableDataset:
    """Samples one after the other: subclasses define ``__iter__``. A DataLoader cuts them into batches; it cannot shuffle them.

    Examples
    --------
    >>> import transformer_c as tc
    >>> class Squares(tc.data.IterableDataset):
    ...     def __iter__(self):
    ...         return (i * i for i in range(5))
    >>> [batch.tolist() for batch in tc.data.DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4, 9], [16]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__(): define it in the class")

    def __add__(self, other: Iterable[Any]) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """Iterable datasets, one after the other."""

    def __init__(self, datasets: Iterable[Iterable[Any]]) -> None:
        self.datasets = listed("datasets", datasets, "datasets")

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class TensorDataset(Dataset):
    """Tensors or ndarrays of equal length; sample i is the tuple of their rows i.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> data = tc.data.TensorDataset(np.arange(3), np.arange(3) ** 2)
    >>> [int(v) for v in data[2]]
    [2, 4]
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ValueError("TensorDataset needs at least one Tensor")
        self.tensors = tuple(as_tensor(t) for t in tensors)
        for i, t in enumerate(self.tensors):
            if not t.ndim:
                raise ValueError(
                    f"TensorDataset takes arrays whose first axis is that of the samples; argument {i} is one number, without axes"
                )
        lengths = {len(t) for t in self.tensors}
        if len(lengths) != 1:
            raise ValueError(f"the Tensors have different lengths along their first axis: {[len(t) for t in self.tensors]}")

    def __repr__(self) -> str:
        return f"TensorDataset({', '.join(f'{t.dtype.name} {t.shape}' for t in self.tensors)})"

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        places = np.asarray(indices)
        if places.size and places.dtype.kind not in "iu":
            raise IndexError(f"samples are taken by ints, got {places.dtype}; np.flatnonzero(mask) gives the ints of a mask")
        return self[places.astype(np.int64)]

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a dataset at the given indices. A list of places goes to the dataset as a list of indices, as in PyTorch."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {self.dataset!r})"

    def __getitem__(self, index: int | list[int]) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> Any:
        places = [self.indices[i] for i in indices]
        make = batches_of(self.dataset)
        return make(places) if make else [self.dataset[i] for i in places]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets, one after the other.

    Examples
    --------
    >>> import transformer_c as tc
    >>> both = tc.data.ConcatDataset([[1, 2, 3], [4, 5]])
    >>> len(both), both[3], both[-1]
    (5, 4, 5)
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = listed("datasets", datasets, "datasets")
        if not self.datasets:
            raise ValueError("ConcatDataset needs at least one dataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        number = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[number][place - (self.cumulative_sizes[number - 1] if number else 0)]


class StackDataset(Dataset):
    """Datasets of equal length side by side: sample i is the tuple of their samples i, or the dict where they were given by name.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.data.StackDataset(image=[1, 2], text=["a", "b"])[1]
    {'image': 2, 'text': 'b'}
    """

    def __init__(self, *datasets: Any, **named: Any) -> None:
        if bool(datasets) == bool(named):
            raise ValueError("StackDataset takes datasets, or datasets by name")
        self.datasets: Any = datasets or named
        lengths = [len(d) for d in datasets or named.values()]
        if len(set(lengths)) != 1:
            raise ValueError(f"the datasets have different lengths: {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.datasets.values())) if isinstance(self.datasets, dict) else self.datasets[0])

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)


def random_split(dataset: Any, lengths: Sequence[int | float], rng=None, generator=None) -> list[Subset]:
    """Splits a dataset at random.

    Parameters
    ----------
    dataset : Dataset
    lengths : sequence of int or of float
        Sizes that add up to the whole, or fractions that add up to 1.
    rng, generator : int, np.random.Generator, tc.Generator or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> parts = tc.data.random_split(tc.data.TensorDataset(np.arange(10)), [0.8, 0.2], rng=0)
    >>> [len(p) for p in parts]
    [8, 2]
    """
    total = len(dataset)
    lengths = [real("a length", length) for length in listed("lengths", lengths, "sizes or of fractions")]
    if any(s < 0 for s in lengths):
        raise ValueError(f"lengths must not be negative, got {lengths}")
    if math.isclose(sum(lengths), 1.0) and all(0 <= s <= 1 for s in lengths):
        sizes = [math.floor(total * s) for s in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    elif any(s % 1 for s in lengths):
        raise ValueError(f"the fractions {lengths} add up to {sum(lengths):g}, not to 1")
    else:
        sizes = [int(s) for s in lengths]
    if sum(sizes) != total:
        raise ValueError(f"the lengths {lengths} add up to {sum(sizes)}, but the dataset has {total} samples")
    order = randperm(total, rng=one_source(rng, generator)).tolist()
    ends = np.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "random_split"]
