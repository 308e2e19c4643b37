"""What the ranks of a run do together. With one rank nothing is exchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from .. import _core, distributed
from .._recording import no_grad
from .._tensor import zeros_like
from ..distributed.arrays import as_numbers, assign, assign_parts, memory_of
from ..distributed.group import Apart, Group
from ..optim.optimizer import by_kind
from . import streams
from .alike import compare_first, compare_lengths
from .averages import Averages, Saved, batch_size_of, restored
from .loaders import steps_of
from .same_data import checksum
from .shares import Dealt, Read, SharedLoader, is_shared_already, makes_batches_itself


@dataclass
class Contribution:
    """What a rank has of the steps since the last exchange, except its gradients."""

    losses: list[tuple[float, float]] = field(default_factory=list)  # with the lengths of the batches
    logged: list[tuple[str, float, float, bool, int]] = field(default_factory=list)  # name, value, weight, on_step, step
    has_gradient: list[bool] = field(default_factory=list)  # by parameter
    of_both: set[str] = field(default_factory=set)  # as Run's, those that are new
    is_summed: bool = False  # the gradients, during the backward
    is_interrupted: bool = False
    is_to_stop: bool = False


class Ranks:
    """The ranks of a run.

    Parameters
    ----------
    group : Group

    Attributes
    ----------
    rank, size : int
    is_writer : bool
        Whether this rank writes files and shows progress: rank 0.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size
        self.is_writer = self.rank == 0

    @classmethod
    def of(cls, strategy: str | None) -> Ranks:
        """All ranks of the program, or this process alone where `strategy` is None."""
        return cls(Group() if strategy is None else distributed.world.group())

    # ---- the beginning -------------------------------------------------------------------------------------------------------

    def share(self, loader: Any) -> Any:
        """A loader of this rank's share of the batches."""
        if self.size == 1 or is_shared_already(loader):
            return loader
        return (Dealt if makes_batches_itself(loader) else SharedLoader)(loader, self.rank, self.size)

    def same_weights(self, model: Any) -> None:
        """Gives all ranks the parameters and buffers of rank 0."""
        if self.size > 1:
            self._give({**model.state_dict(), **dict(model.named_buffers())}.values())

    def same_buffers(self, model: Any) -> None:
        """Gives all ranks the buffers of rank 0 that steps have changed in other ways on other ranks."""
        if self.size > 1 and (buffers := dict(model.named_buffers())):
            of_ranks = self.exchange("the buffers", {name: checksum(value, value.numel() * 16) for name, value in buffers.items()})
            self._give(value for name, value in buffers.items() if len({of_rank.get(name) for of_rank in of_ranks}) > 1)

    def _give(self, values: Iterable[Any]) -> None:
        """Overwrites Tensors with those of rank 0."""
        with no_grad():
            for value in values:
                array = as_numbers(value).copy()
                self.group.broadcast(array)
                assign(value, array)

    def same_streams(self, found: Mapping[str, Any]) -> None:
        """Gives the random streams of all ranks the states of rank 0's."""
        if self.size > 1:
            streams.restore(found, self.group.from_root(streams.capture(found) if self.is_writer else None))

    # ---- steps ---------------------------------------------------------------------------------------------------------------

    def steps_of(self, batches: Iterator[Any], count: int, loader: Any = None) -> Iterator[tuple[Any, float, bool, bool]]:
        """As ``loaders.steps_of``, where a step has `count` batches of each rank, of `loader`.

        A rank that has fewer than others gets a batch of theirs, whose share is 0: it does what they do.
        """
        if self.size == 1:
            yield from steps_of(batches, count)
            return
        read: Read | None = getattr(loader, "read", None)
        had = np.full(self.size, count)  # batches in the last step, of each rank
        while True:
            window = list(islice(batches, count))
            if read is not None and not read.is_compared:
                compare_first(self.group, loader.source, read)
            lengths = np.full(count, -1, np.int64)
            lengths[: len(window)] = [batch_size_of(batch) for batch in window]
            of_all = self.group.all_gather(lengths)
            width, total = int((of_all >= 0).any(0).sum()), int(of_all.clip(0).sum()) or 1
            before, had = had, (of_all >= 0).sum(1)
            if read is not None:
                compare_lengths(self.group, loader.source, read, before, had)
            for i in range(width):
                batch = window[i] if i < len(window) else None
                if of_all[:, i].min() < 0:
                    lent = self.group.from_root(batch, int(of_all[:, i].argmax()))
                    batch = batch if i < len(window) else lent
                yield batch, max(int(lengths[i]), 0) / total, i == 0, i == width - 1
            if not width:
                return

    def as_part(self, batch: Any, share: float) -> AbstractContextManager[Any]:
        """For a ``with`` block: dropout keeps of the rows of a batch what it keeps of them in the batch of all ranks together."""
        if self.size == 1 or not share:
            return nullcontext()
        rows = batch_size_of(batch), self.rank, self.size
        return _core.switched(lambda given: _core.exchange_batch_share(*given), lambda: rows)

    def exchange(self, place: str, own: Any) -> list[Any]:
        """The values of all ranks; raises RuntimeError on all of them where they are not at the same place of the program."""
        return self.group.exchange(place, own)

    def sum_gradients(self, optimizer: Any, used: Sequence[bool]) -> None:
        """Gives every parameter the sum of its gradients on all ranks; none where no rank has one, as `used` says."""
        with no_grad():
            for buffer in optimizer.flat_gradients(used):
                if (memory := memory_of(buffer)) is not None:
                    self.group.all_reduce(memory, out=memory)
                else:
                    assign(buffer, self.group.all_reduce(as_numbers(buffer)))

    def add_up(self, parameters: Sequence[Any]) -> None:
        """Gives parameters the sum of their gradients on all ranks; none where no rank has one."""
        used = np.any(self.exchange("manual_backward()", [p.grad is not None for p in parameters]), axis=0)
        with no_grad():
            for same in by_kind(p for p, is_used in zip(parameters, used, strict=True) if is_used).values():
                gradients = [zeros_like(p.detach()) if p.grad is None else p.grad for p in same]
                assign_parts(gradients, self.group.all_reduce(np.concatenate([as_numbers(gradient) for gradient in gradients])))
                for p, gradient in zip(same, gradients, strict=True):
                    p.grad = gradient

    # ---- values --------------------------------------------------------------------------------------------------------------

    def total(self, averages: Averages) -> Averages:
        """The averages over the batches of all ranks, a new object; itself with one rank."""
        if self.size == 1:
            return averages
        found, metrics = Averages(), dict(averages.metrics)
        for state in self.exchange("the averages of an epoch", averages.state_dict()):
            for name, value in state.items():
                if isinstance(value, list):
                    total, weight = found.sums.setdefault(name, [0.0, 0.0])
                    found.sums[name] = [total + value[0], weight + value[1]]
                elif isinstance(metrics.setdefault(name, restored(**value)), Saved):
                    found.metrics.setdefault(name, metrics[name])
                else:
                    if name not in found.metrics:
                        found.metrics[name] = copy.deepcopy(metrics[name])
                        found.metrics[name].reset()
                    found.metrics[name].join(value["metric"])
        return found

    def of_root(self, value: Any) -> Any:
        """A value of rank 0, on all ranks."""
        return self.group.from_root(value)

    @contextmanager
    def together(self, place: str) -> Iterator[None]:
        """For a ``with`` block that ends on all ranks at once; where it fails on one, all the others raise RuntimeError."""
        error: Exception | None = None
        try:
            yield
        except Apart:
            raise
        except Exception as failure:  # the others wait for this rank
            error = failure
        found = self.exchange(place, error and f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, other in enumerate(found):
            if other is not None:
                raise RuntimeError(f"{place} failed on rank {rank}: {other}")

    def barrier(self) -> None:
        """Waits for all ranks."""
        self.group.barrier()
