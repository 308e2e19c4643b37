"""Samplers: the order of the samples, with PyTorch's names and, given the same seed, PyTorch's orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from .._arguments import count
from ..random import as_generator, one_source, randint, randperm


class Sampler:
    """The indices of an epoch: subclasses define ``__iter__``, and ``__len__`` if they know it."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__(): define it in the class")


class SequentialSampler(Sampler):
    """The samples in order."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """The samples in random order.

    Parameters
    ----------
    data_source : Dataset
    replacement : bool, default False
        Draw each sample from all of them.
    num_samples : int, optional
        Samples per epoch; all by default.
    generator, rng : int, np.random.Generator, tc.Generator or None
        None: a new one for every epoch, with a seed from the default generator.

    Examples
    --------
    >>> import transformer_c as tc
    >>> sampler = tc.data.RandomSampler(range(4), replacement=True, num_samples=6, rng=0)
    >>> len(list(sampler)), len(sampler)
    (6, 6)
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator=None, *, rng=None) -> None:
        self.data_source, self.replacement = data_source, bool(replacement)
        self._num_samples = None if num_samples is None else count("num_samples", num_samples)
        source = one_source(rng, generator)
        self.generator = None if source is None else as_generator(source)

    @property
    def num_samples(self) -> int:
        """Samples per epoch."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def orders(self) -> Iterator[np.ndarray]:
        """The indices in arrays; each is drawn when the one before it is used up, and the last may be empty, as in PyTorch."""
        total = len(self.data_source)
        generator = as_generator(as_generator(None).seed64()) if self.generator is None else self.generator
        if not total:
            return
        length = 32 if self.replacement else total
        whole, rest = divmod(self.num_samples, length)
        for taken in chain(repeat(length, whole), (rest,)):
            if self.replacement:
                yield np.asarray(randint(total, (taken,), generator=generator))
            else:
                yield np.asarray(randperm(total, generator=generator))[:taken]

    def __iter__(self) -> Iterator[int]:
        for order in self.orders():
            yield from order.tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some samples in random order.

    Parameters
    ----------
    indices : sequence of int
    generator, rng : int, np.random.Generator, tc.Generator or None
        None is the default generator.
    """

    def __init__(self, indices: Sequence[int], generator=None, *, rng=None) -> None:
        self.indices = indices
        source = one_source(rng, generator)
        self.generator = None if source is None else as_generator(source)

    def __iter__(self) -> Iterator[int]:
        for place in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Samples drawn with probabilities in proportion to weights: for classes of different sizes.

    With replacement, the same seed gives PyTorch's samples; without it, others with the same probabilities.

    Parameters
    ----------
    weights : array_like of float
        One per sample; not negative, not all 0. They need not add up to 1.
    num_samples : int
        Samples per epoch.
    replacement : bool, default True
    generator, rng : int, np.random.Generator, tc.Generator or None
        None is the default generator.

    Examples
    --------
    Rare and frequent classes alike:

    >>> import numpy as np, transformer_c as tc
    >>> labels = np.array([0] * 90 + [1] * 10)
    >>> weights = 1 / np.bincount(labels)[labels]
    >>> sampler = tc.data.WeightedRandomSampler(weights, num_samples=1000, rng=0)
    >>> 450 < labels[list(sampler)].sum() < 550
    True
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator=None, *, rng=None) -> None:
        self.weights = np.array(weights, np.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights has shape {self.weights.shape}; expected one weight per sample")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all() and self.weights.any()):
            raise ValueError("weights must be finite, not negative, and not all 0")
        if not 1e-290 < self.weights.max() < 1e290:  # sums and quotients of these would overflow
            self.weights /= self.weights.max()
        self.num_samples, self.replacement = count("num_samples", num_samples), bool(replacement)
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise ValueError(f"{num_samples} samples without replacement, but {np.count_nonzero(self.weights)} have a weight above 0")
        source = one_source(rng, generator)
        self.generator = None if source is None else as_generator(source)

    def __iter__(self) -> Iterator[int]:
        generator = as_generator(self.generator)
        if self.replacement and self.num_samples > 1:
            upto = np.cumsum(self.weights)
            upto /= upto[-1]
            drawn = np.asarray(generator.uniform((self.num_samples,), 0.0, 1.0, "float64"))
            return iter(np.searchsorted(upto, drawn, side="left").tolist())
        # The samples whose exponential waiting times at these rates are the shortest (Efraimidis & Spirakis 2006).
        waited = -np.log1p(-np.asarray(generator.uniform((len(self.weights),), 0.0, 1.0, "float64")))
        with np.errstate(divide="ignore"):  # logarithms: those of tiny weights stay finite, that of 0 is infinite
            times = np.log(waited) - np.log(self.weights)
        return iter(np.argsort(times, kind="stable")[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of the indices of another sampler: the batches.

    Parameters
    ----------
    sampler : iterable of int
    batch_size : int
    drop_last : bool
        Drop the last batch if it is not full.

    Examples
    --------
    >>> import transformer_c as tc
    >>> list(tc.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, count("batch_size", batch_size), bool(drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        full, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return full + (rest > 0 and not self.drop_last)


__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"]
