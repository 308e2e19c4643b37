"""One rank's share of the data: of every batch of all ranks together its own rows, so that no sample is repeated or left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ..data import DataLoader, DistributedSampler


def rows_of(order: Iterable[Any], rank: int, size: int, batch_size: int, drop_last: bool) -> Iterator[list[Any]]:
    """This rank's rows of every batch of size * batch_size: rank r takes rows r, r + size, ...

    The last batch may have fewer rows for some ranks, or none.
    """
    order, whole = iter(order), size * batch_size
    while rows := list(islice(order, whole)):
        if drop_last and len(rows) < whole:
            for _ in order:  # to its end, where some samplers draw once more
                pass
            return
        if own := rows[rank::size]:
            yield own


class SharedLoader(DataLoader):
    """A DataLoader's batches, of which each rank takes its rows. The length is that of rank 0, which has the most batches.

    Parameters
    ----------
    loader : DataLoader
        `batch_size` is the number of rows of one rank. A `batch_sampler` deals its batches out.
    rank, size : int
    """

    def __init__(self, loader: DataLoader, rank: int, size: int) -> None:
        vars(self).update(vars(loader))
        self._rank, self._size = rank, size

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return -(-len(self.batch_sampler) // self._size)  # type: ignore[arg-type]
        samples: Any = self.dataset if self.sampler is None else self.sampler
        full, rest = divmod(len(samples), self.batch_size * self._size)
        return full + (rest > 0 and not self.drop_last)

    def _cut(self, order: Iterable[Any]) -> Iterator[Any]:
        return rows_of(order, self._rank, self._size, self.batch_size, self.drop_last)

    def _slices(self, order: np.ndarray) -> Iterator[Any]:
        whole = self.batch_size * self._size
        parts = (order[i * whole : (i + 1) * whole][self._rank :: self._size] for i in range(len(self)))
        return (own for own in parts if len(own))

    def _deal(self, batches: Iterable[Any]) -> Iterator[Any]:
        return islice(batches, self._rank, None, self._size)


class Dealt:
    """Every size-th batch of a collection that is no DataLoader: rank r takes batches r, r + size, ...

    Parameters
    ----------
    batches : collection of batches
    rank, size : int
    """

    def __init__(self, batches: Any, rank: int, size: int) -> None:
        self._batches, self._rank, self._size = batches, rank, size
        if hasattr(batches, "dataset"):
            self.dataset = batches.dataset

    def __len__(self) -> int:
        return -(-len(self._batches) // self._size)

    def __iter__(self) -> Iterator[Any]:
        return islice(self._batches, self._rank, None, self._size)


def makes_batches_itself(loader: Any) -> bool:
    """Whether a loader's batches do not come from the code of DataLoader."""
    return not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__


def is_shared_already(loader: Any) -> bool:
    """Whether the program shares the samples out itself."""
    return isinstance(getattr(loader, "sampler", None), DistributedSampler)
