"""Datasets and loaders, with PyTorch's names and, given the same seed, PyTorch's shuffles."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ._arguments import count
from ._core import Tensor
from ._tensor import as_tensor, no_grad, stack, tensor
from .random import as_generator, randperm


class Dataset:
    """Samples by index: subclasses define ``__getitem__`` and ``__len__``.

    A subclass may also define ``__getitems__(indices)``, which returns a whole batch, already collated; the loader calls it
    instead of ``__getitem__`` once per sample.
    """

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__(): define it in the class")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__(): define it in the class")


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
        lengths = {len(t) for t in self.tensors}
        if len(lengths) != 1:
            raise ValueError(f"the Tensors have different lengths along their first axis: {[len(t) for t in self.tensors]}")

    def __repr__(self) -> str:
        return f"TensorDataset({', '.join(f'{t.dtype.name} {t.shape}' for t in self.tensors)})"

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        return self[np.asarray(indices, np.int64)]

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a dataset at the given indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {self.dataset!r})"

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


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
    if math.isclose(sum(lengths), 1.0) and all(0 <= s <= 1 for s in lengths):
        sizes = [math.floor(total * s) for s in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(s) for s in lengths]
    if sum(sizes) != total:
        raise ValueError(f"the lengths {list(lengths)} add up to {sum(sizes)}, but the dataset has {total} samples")
    order = randperm(total, rng=rng if generator is None else generator).tolist()
    ends = np.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def default_collate(samples: Sequence[Any]) -> Any:
    """Stacks samples into a batch, element by element through tuples, lists and dicts."""
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(list(samples))
    if isinstance(first, np.ndarray):
        return as_tensor(np.stack(samples))
    if isinstance(first, (bool, np.bool_)):
        return tensor(np.array(samples, np.bool_))
    if isinstance(first, (int, np.integer)):
        return tensor(np.array(samples, np.int64))
    if isinstance(first, float):
        return tensor(np.array(samples, np.float64))
    if isinstance(first, np.floating):
        return tensor(np.array(samples))
    if isinstance(first, dict):
        return {key: default_collate([s[key] for s in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(column)) for column in zip(*samples, strict=True)))
    if isinstance(first, (tuple, list)):
        return [default_collate(list(column)) for column in zip(*samples, strict=True)]
    if isinstance(first, (str, bytes)):
        return list(samples)
    raise TypeError(f"samples of type {type(first).__name__} cannot be stacked into a batch; pass collate_fn=")


class DataLoader:
    """Batches of a dataset; yields Tensors.

    Parameters
    ----------
    dataset : Dataset
        Any object with ``__getitem__`` and ``__len__``.
    batch_size : int, default 1
    shuffle : bool
        A new order every epoch; given the same seed, it is PyTorch's.
    drop_last : bool
        Drop the last batch if it is not full.
    rng : int, np.random.Generator, tc.Generator or None
        The source of the shuffles; None is the default generator. `generator` is PyTorch's name for it.
    prefetch : int, default 0
        The number of batches that a thread prepares ahead.
    collate_fn : callable, optional
        Makes a batch from a list of samples.
    num_workers, pin_memory, persistent_workers
        Accepted for compatibility with PyTorch; ignored.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> loader = tc.data.DataLoader(tc.data.TensorDataset(np.arange(5)), batch_size=2)
    >>> [batch[0].tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        rng=None,
        prefetch: int = 0,
        *,
        collate_fn: Callable[[list], Any] | None = None,
        generator=None,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        batch_size = count("batch_size", batch_size)
        if prefetch < 0 or num_workers < 0:
            raise ValueError(f"prefetch and num_workers must not be negative, got {prefetch} and {num_workers}")
        source = rng if generator is None else generator
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, int(batch_size), bool(shuffle), bool(drop_last)
        self.prefetch, self.collate_fn = int(prefetch), collate_fn
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.generator = None if source is None else as_generator(source)

    def __repr__(self) -> str:
        return f"DataLoader({self.dataset!r}, batch_size={self.batch_size}, shuffle={self.shuffle}, drop_last={self.drop_last})"

    def __len__(self) -> int:
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def _order(self) -> np.ndarray:
        """The indices of an epoch. PyTorch draws one seed for its workers, then, to shuffle, one for the sampler's generator."""
        generator = as_generator(self.generator)
        generator.seed64()
        if not self.shuffle:
            return np.arange(len(self.dataset))
        sampler = self.generator if self.generator is not None else as_generator(generator.seed64())
        return np.asarray(randperm(len(self.dataset), rng=sampler))

    def _batch(self, indices: np.ndarray) -> Any:
        with no_grad():
            if hasattr(self.dataset, "__getitems__") and self.collate_fn is None:
                batch = self.dataset.__getitems__(indices)
                return list(batch) if isinstance(batch, tuple) and not hasattr(batch, "_fields") else batch
            samples = [self.dataset[int(i)] for i in indices]
            return (self.collate_fn or default_collate)(samples)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        parts = [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(len(self))]
        batches: Iterator[Any]
        if self.prefetch == 0:
            batches = (self._batch(indices) for indices in parts)
        else:
            batches = _ahead((partial(self._batch, indices) for indices in parts), self.prefetch)
        return batches if self.generator is None or not self.shuffle else self._use_up(batches)

    def _use_up(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Ends an epoch as PyTorch's sampler does: by drawing one more order, which is not used but advances the generator."""
        yield from batches
        randperm(len(self.dataset), rng=self.generator)


def _ahead(jobs: Iterator[Callable[[], Any]], depth: int) -> Iterator[Any]:
    """Runs the jobs in order on a thread, at most `depth` results ahead of the consumer."""
    results: queue.Queue = queue.Queue(depth)
    stop = threading.Event()
    process = os.getpid()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                results.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for job in jobs:
                if not put((job(), None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:
            put((None, error))

    thread = threading.Thread(target=work, name="transformer_c-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            if os.getpid() != process:
                raise RuntimeError(
                    "this iterator over a DataLoader was begun before a fork, and its thread is in the parent: call iter() again"
                )
            value, error = results.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield value
    finally:
        if os.getpid() == process:
            stop.set()
            thread.join()
