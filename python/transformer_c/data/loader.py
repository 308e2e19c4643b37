"""Batches of a dataset, perhaps prepared ahead on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from .._arguments import all_of, count, switch
from .._names import explained
from ..random import as_generator, one_source
from .collate import default_collate, default_convert
from .datasets import IterableDataset, batches_of
from .prefetching import ahead
from .samplers import BatchSampler, RandomSampler, SequentialSampler


class DataLoader:
    """Iterates over a dataset in batches of Tensors.

    Parameters
    ----------
    dataset : Dataset
        Any object with ``__getitem__`` and ``__len__``.
    batch_size : int or None, default 1
        None: the samples themselves, one by one, where a dataset gives whole batches. Their arrays become Tensors.
    shuffle : bool, default False
        Draw a new order for every epoch. From the same seed, it is PyTorch's order.
    drop_last : bool, default False
        Drop the last batch if it is not full.
    rng : int, np.random.Generator, tc.Generator or None
        Draws the orders; None is the default generator. `generator` is PyTorch's name for it.
    prefetch : int, default 0
        How many batches a thread prepares ahead. The thread has its own default generator, like PyTorch's workers: if the dataset or `collate_fn`
        draws from it, a seed gives the same batches in every run, but other ones than without a thread. Generators of Python, NumPy and the
        dataset are shared with the loop.
    collate_fn : callable, optional
        Makes a batch from a list of samples; with ``batch_size=None`` it gets one sample.
    sampler : iterable of int, optional
        The order of the samples, instead of `shuffle`: a Sampler, or any collection of indices. The attribute of this name is a Sampler where
        none was given.
    batch_sampler : iterable of lists of int, optional
        The batches, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    num_workers, pin_memory, persistent_workers, timeout, worker_init_fn, multiprocessing_context, prefetch_factor
        Accepted for compatibility with PyTorch; ignored.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> loader = tc.data.DataLoader(tc.data.TensorDataset(np.arange(5)), batch_size=2)
    >>> [batch[0].tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    @explained({}, harmless={"in_order": (True, False), "pin_memory_device": ("",)})
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        rng=None,
        prefetch: int = 0,
        *,
        collate_fn: Callable[[list], Any] | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        generator=None,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
    ) -> None:
        size, prefetch, num_workers, *_ = all_of(
            (self._check_size, batch_size, drop_last),
            (count, "prefetch", prefetch, 0),
            (count, "num_workers", num_workers, 0),
            (switch, "shuffle", shuffle),
            (switch, "drop_last", drop_last),
            (self._check_order, dataset, batch_size, shuffle, drop_last, sampler, batch_sampler),
            (self._check_dataset, dataset, sampler, batch_sampler),
            *([(self._check_samples, dataset)] if collate_fn is None and batch_size is not None else []),
        )
        source = one_source(rng, generator)
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, size, bool(shuffle), bool(drop_last)
        self.prefetch, self.collate_fn = int(prefetch), collate_fn
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.generator = None if source is None else as_generator(source)

    @property
    def sampler(self) -> Any:
        """The order of the samples: what was given, or a Sampler that gives the loader's; None of an IterableDataset."""
        given = vars(self)["sampler"]  # under this name, which the states of random streams in checkpoints have
        if given is not None or isinstance(self.dataset, IterableDataset):
            return given
        return RandomSampler(self.dataset, generator=self.generator) if self.shuffle else SequentialSampler(self.dataset)

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        vars(self)["sampler"] = sampler

    @staticmethod
    def _check_size(batch_size: int | None, drop_last: bool) -> int | None:
        if batch_size is None and drop_last:
            raise ValueError("drop_last=True drops a batch that is not full; with batch_size=None there are no batches")
        return None if batch_size is None else int(count("batch_size", batch_size))

    @staticmethod
    def _check_dataset(dataset: Any, sampler: Any, batch_sampler: Any) -> None:
        """Raises for what has no samples by index, and no order to walk over them."""
        if isinstance(dataset, IterableDataset):
            return
        kind = type(dataset).__name__
        if isinstance(dataset, type):
            raise TypeError(f"dataset is the class {dataset.__name__}; call it to make a dataset")
        if not hasattr(dataset, "__getitem__"):
            hint = "; make a list of it, or an IterableDataset" if isinstance(dataset, Iterable) else ""
            raise TypeError(f"dataset is of type {kind}; expected a Dataset, an object with __getitem__ and __len__{hint}")
        if sampler is None and batch_sampler is None and not hasattr(dataset, "__len__"):
            raise TypeError(f"the dataset, a {kind}, has no __len__: define it, give a sampler, or make it an IterableDataset")

    @staticmethod
    def _check_samples(dataset: Any) -> None:
        """Raises for arrays that are meant as columns: they have one length, and samples of other shapes make no batch."""
        if isinstance(dataset, (tuple, list)) and 2 <= len(dataset) <= 16:
            shapes: list[Any] = [getattr(value, "shape", None) for value in dataset]
            if all(shapes) and len({shape[0] for shape in shapes}) == 1 and len(set(map(tuple, shapes))) > 1:
                raise TypeError(f"dataset is a {type(dataset).__name__} of arrays of one length; write TensorDataset(X, y)")

    @staticmethod
    def _check_order(dataset: Any, batch_size: int | None, shuffle: bool, drop_last: bool, sampler: Any, batch_sampler: Any) -> None:
        """Raises if the order is given twice."""
        if isinstance(dataset, IterableDataset) and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("an IterableDataset has an order of its own: it takes no shuffle, sampler or batch_sampler")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler takes the place of batch_size, shuffle, sampler and drop_last: give it alone")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle=True both give an order: give one of them")
        for name, order in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if order is not None and (not hasattr(order, "__iter__") or isinstance(order, Iterator)):
                raise TypeError(
                    f"{name} is of type {type(order).__name__}; expected a Sampler, or a collection that can be walked over again"
                )

    def __repr__(self) -> str:
        return f"DataLoader({self.dataset!r}, batch_size={self.batch_size}, shuffle={self.shuffle}, drop_last={self.drop_last})"

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if isinstance(self.dataset, IterableDataset) and not hasattr(self.dataset, "__len__"):
            raise TypeError(f"the length of a {type(self.dataset).__name__} is not known")
        samples: Any = self.dataset if vars(self)["sampler"] is None else self.sampler
        full, rest = divmod(len(samples), self.batch_size or 1)
        return full + (rest > 0 and not self.drop_last)

    def _batch(self, indices: Any) -> Any:
        if self.batch_size is None:
            return (self.collate_fn or default_convert)(indices if isinstance(self.dataset, IterableDataset) else self._sample(indices))
        if isinstance(self.dataset, IterableDataset):
            return (self.collate_fn or default_collate)(indices)
        if self.collate_fn is None and (make := batches_of(self.dataset)):
            batch = make(indices)
            if isinstance(batch, list):
                return default_collate(batch)
            return list(batch) if isinstance(batch, tuple) and not hasattr(batch, "_fields") else batch
        return (self.collate_fn or default_collate)([self._sample(index) for index in indices])

    def _sample(self, index: Any) -> Any:
        return self.dataset[index.__index__() if hasattr(index, "__index__") else index]

    def _parts(self) -> Iterable[Any]:
        """The indices of each batch; for an IterableDataset, its samples."""
        if isinstance(self.dataset, IterableDataset):
            return self._cut(self.dataset)
        if self.batch_sampler is not None:
            return self._deal(self.batch_sampler)
        return self._slices() if vars(self)["sampler"] is None else self._cut(self.sampler)

    def _cut(self, order: Iterable[Any]) -> Iterable[Any]:
        """The indices of each batch, from those of all samples."""
        return order if self.batch_size is None else BatchSampler(order, self.batch_size, self.drop_last)

    def _deal(self, batches: Iterable[Any]) -> Iterable[Any]:
        """Of the batches of a batch_sampler, those that are made: all."""
        return batches

    def _slices(self) -> Iterator[Any]:
        """As ``_cut``, of the order that the loader's own sampler gives, in arrays."""
        orders = RandomSampler(self.dataset, generator=self.generator).orders() if self.shuffle else iter([np.arange(len(self.dataset))])
        order, size = next(orders, np.arange(0)), self.batch_size
        whole = len(order) if size is None else len(order) // size * size  # samples in full batches
        yield from order if size is None else (order[i : i + size] for i in range(0, whole, size))
        if self.generator is not None:
            next(orders, None)  # is not used, but advances the generator: there PyTorch's sampler ends
        if whole < len(order) and not self.drop_last:
            yield order[whole:]

    def __iter__(self) -> Iterator[Any]:
        seed = as_generator(self.generator).seed64()  # as PyTorch draws one for its workers; here it is for the thread
        parts = iter(self._parts())
        if self.num_workers and not isinstance(self.dataset, IterableDataset):  # PyTorch gives workers their first indices here
            parts = chain(list(islice(parts, 1)), parts)
        return self._batches(parts, seed)

    def _batches(self, parts: Iterable[Any], seed: int) -> Iterator[Any]:
        if self.prefetch == 0:
            return (self._batch(indices) for indices in parts)
        jobs = (partial(self._batch, indices) for indices in parts)
        return ahead(jobs, self.prefetch, seed, isinstance(self.dataset, IterableDataset))


__all__ = ["DataLoader"]
