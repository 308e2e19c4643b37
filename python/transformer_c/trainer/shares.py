"""One rank's share of the data: of every batch of all ranks together its own rows, so that no sample is repeated or left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..data import DataLoader, DistributedSampler, IterableDataset
from .same_data import checksum, fields_of, fields_of_batch


@dataclass
class Read:
    """What a rank has read of a loader, to be compared with the others."""

    first: list[list[int]] | None = None  # checksums of the first whole batch of samples that were not asked for by index
    order: int | None = None  # the checksum of the first whole batch's indices
    is_compared: bool = False
    is_uneven: bool = False  # the ranks found that they read different numbers of samples

    @property
    def is_new(self) -> bool:
        """Whether the first batch is still to be noted."""
        return not self.is_compared and self.first is None and self.order is None


class SharedLoader(DataLoader):
    """A DataLoader's batches, of which each rank takes its rows. The length is that of rank 0, which has the most batches.

    Parameters
    ----------
    loader : DataLoader
        `batch_size` is the number of rows of one rank. A `batch_sampler` deals its batches out.
    rank, size : int

    Attributes
    ----------
    read : Read
    """

    def __init__(self, loader: DataLoader, rank: int, size: int) -> None:
        if loader.batch_size is None:
            raise ValueError("ranks share the rows of batches, and a DataLoader with batch_size=None has none: give it a batch_size")
        vars(self).update(vars(loader))
        self.read = Read()
        self._rank, self._size = rank, size
        self.batch_size *= size

    @property
    def source(self) -> Any:
        """Where the samples come from."""
        return self.dataset

    def __len__(self) -> int:
        return super().__len__() if self.batch_sampler is None else -(-super().__len__() // self._size)

    def _own(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Of the rows of whole batches r, r + size, ...; the last batch may have fewer for some ranks, or none."""
        return (own for rows in batches if len(own := rows[self._rank :: self._size]))

    def _cut(self, order: Iterable[Any]) -> Iterator[Any]:
        return self._own(self._noting(super()._cut(order)))

    def _noting(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if self.read.is_new and isinstance(self.dataset, IterableDataset):
                self.read.first = fields_of(batch)
            elif self.read.is_new:
                self.read.order = checksum(list(batch))
            yield batch

    def _slices(self) -> Iterator[Any]:
        return self._own(self._noting(super()._slices()))

    def _deal(self, batches: Iterable[Any]) -> Iterator[Any]:
        return islice(self._noting(batches), self._rank, None, self._size)


class Dealt:
    """Every size-th batch of a collection that is no DataLoader: rank r takes batches r, r + size, ...

    Parameters
    ----------
    batches : collection of batches
    rank, size : int

    Attributes
    ----------
    read : Read
    """

    def __init__(self, batches: Any, rank: int, size: int) -> None:
        self._batches, self._rank, self._size = batches, rank, size
        self.read = Read()
        if hasattr(batches, "dataset"):
            self.dataset = batches.dataset

    @property
    def source(self) -> Any:
        """The collection of batches."""
        return self._batches

    def __len__(self) -> int:
        return -(-len(self._batches) // self._size)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._batches):
            if self.read.is_new:
                self.read.first = fields_of_batch(batch)
            if number % self._size == self._rank:
                yield batch


def makes_batches_itself(loader: Any) -> bool:
    """Whether a loader's batches do not come from the code of DataLoader."""
    return not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__


def is_shared_already(loader: Any) -> bool:
    """Whether the program shares the samples out itself."""
    return share_of(loader) is not None


def share_of(loader: Any) -> tuple[int, int] | None:
    """Of which rank, and of how many, the DistributedSampler of a loader is; None without one."""
    shares = [(s.rank, s.num_replicas) for s in _samplers_of(loader) if isinstance(s, DistributedSampler)]
    return shares[0] if shares else None


def name_epoch(loader: Any, epoch: int) -> None:
    """Tells a loader's sampler which epoch begins, where it has ``set_epoch``."""
    for sampler in _samplers_of(loader):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


def _samplers_of(loader: Any) -> list[Any]:
    """The sampler of a loader and that of its batch_sampler; None where there is none."""
    return [getattr(holder, "sampler", None) for holder in (loader, getattr(loader, "batch_sampler", None))]
