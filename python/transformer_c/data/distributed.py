"""The samples of one rank among several."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import distributed
from .._arguments import count
from ..random import Generator, randperm
from .samplers import Sampler


class DistributedSampler(Sampler):
    """One rank's share of the samples: rank r of n takes positions r, r + n, ... of one permutation. The same as PyTorch's.

    So that all ranks have as many, the first samples are repeated at the end, or with `drop_last` the last ones are left out.
    ``Trainer(strategy="ddp")`` needs none: it takes shares of the loader's own order, in which no sample is repeated.

    Parameters
    ----------
    dataset : Dataset
    num_replicas, rank : int, optional
        The number of ranks and the number of this one; those of ``tc.distributed`` by default.
    shuffle : bool, default True
        A new order for every epoch that ``set_epoch`` names.
    seed : int, default 0
        The order's seed is `seed` + epoch, on all ranks.
    drop_last : bool, default False

    Examples
    --------
    >>> import transformer_c as tc
    >>> sampler = tc.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
    >>> list(sampler)
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, bool(shuffle), count("seed", seed, 0), bool(drop_last)
        self.num_replicas = distributed.world_size() if num_replicas is None else count("num_replicas", num_replicas)
        self.rank = distributed.rank() if rank is None else count("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ValueError(f"rank is {self.rank}; expected a number from 0 to {self.num_replicas - 1}")
        self.epoch = 0

    @property
    def num_samples(self) -> int:
        """Samples of this rank per epoch."""
        length = len(self.dataset)
        return length // self.num_replicas if self.drop_last else math.ceil(length / self.num_replicas)

    @property
    def total_size(self) -> int:
        """Samples of all ranks per epoch."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of an epoch; without it, all epochs have the same. A Trainer calls it for the training data."""
        self.epoch = count("epoch", epoch, 0)

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        order = np.asarray(randperm(length, generator=Generator(self.seed + self.epoch))) if self.shuffle else np.arange(length)
        return iter(np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist())  # resize repeats it from its beginning

    def __len__(self) -> int:
        return self.num_samples


__all__ = ["DistributedSampler"]
