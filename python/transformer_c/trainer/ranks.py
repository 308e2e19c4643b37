"""What the ranks of a run do together. With one rank nothing is exchanged."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from .. import _core, distributed
from .._tensor import no_grad, zeros_like
from ..callbacks import EarlyStopping, ModelCheckpoint
from ..distributed.arrays import as_numbers, assign, assign_parts, memory_of
from ..distributed.group import Apart, Group
from ..optim.optimizer import by_kind
from . import streams
from .averages import Averages, batch_size_of
from .loaders import number_of_batches, steps_of
from .same_data import SEED_SPLITS, are_other_samples, checksum, data_of, differences
from .shares import Dealt, SharedLoader, is_shared_already, makes_batches_itself, share_of

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions, in the text of a module


@dataclass
class Contribution:
    """What a rank has of the steps since the last exchange, beside its gradients."""

    losses: list[tuple[float, float]] = field(default_factory=list)  # with the lengths of the batches
    logged: list[tuple[str, float, float, bool, int]] = field(default_factory=list)  # name, value, weight, on_step, step
    has_gradient: list[bool] = field(default_factory=list)  # by parameter
    is_summed: bool = False  # the gradients, during the backward
    is_interrupted: bool = False


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

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Raises ValueError on all ranks if they were not started alike.

        Parameters
        ----------
        facts : mapping of str to object
            What must be equal, by its name in the error.
        """
        first, *others = self.exchange("a comparison of what ranks were started with", dict(facts))
        for rank, other in enumerate(others, 1):
            for name in [*other, *(name for name in first if name not in other)]:
                if name not in first or name not in other or first[name] != other[name]:
                    raise ValueError(
                        f"{name} is {first.get(name, 'missing')} on rank 0 but {other.get(name, 'missing')} on rank {rank}: "
                        "all ranks must run the same script on the same data"
                    )

    def check_data(self, loaders: Mapping[str, Any], stacklevel: int = 4) -> None:
        """Raises ValueError on all ranks, or warns on rank 0, if the loaders have other data than on rank 0."""
        if self.size == 1:
            return
        own = {key: part for name, loader in loaders.items() for key, part in data_of(name, loader).items()}
        shares = {name: share for name, loader in loaders.items() if (share := share_of(loader)) is not None}
        found = self.exchange("a comparison of the data", (own, shares))
        for rank, (_, shares) in enumerate(found):
            for name, share in shares.items():
                if share != (rank, self.size):
                    raise ValueError(
                        f"the DistributedSampler of {name} on rank {rank} of {self.size} is that of rank {share[0]} of {share[1]}: make it without "
                        "num_replicas and rank, or with those of tc.distributed"
                    )
        of_ranks = [data for data, _ in found]
        errors, doubts = differences(of_ranks)
        if errors:
            raise ValueError(f"{'; '.join(errors[:3])}: {SEED_SPLITS}")
        if doubts and self.is_writer:
            warnings.warn(f"{'; '.join(doubts[:3])}; if samples come from it: {SEED_SPLITS}", stacklevel=stacklevel)

    def _compare_first(self, loader: Any) -> None:
        """Raises ValueError on all ranks if their batches are of other orders; warns on rank 0 if one that ranks read begins with other samples."""
        found = self.exchange("a comparison of the first batch", (loader.first, loader.order))
        loader.is_compared = True
        (first, *others), orders = [fields for fields, _ in found], [order for _, order in found]
        for rank, order in enumerate(orders):
            if order != orders[0] and None not in (order, orders[0]):
                raise ValueError(
                    f"the train loader's sampler gives another order on rank {rank} than on rank 0, so that samples would come twice or not at all: "
                    "give its generator a seed, or keep it as an attribute, which gets rank 0's state"
                )
        other = [rank for rank, fields in enumerate(others, 1) if first and fields and are_other_samples(first, fields)]
        if other and self.is_writer:
            warnings.warn(
                f"train ({type(loader.source).__name__}) begins with other samples on rank {other[0]} than on rank 0. Each rank takes its share "
                "of what it reads, so that every rank must read all samples: data that the program shares out itself are trained on in part only",
                stacklevel=2,
            )

    def _compare_lengths(self, loader: Any, before: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Warns on rank 0, once, if a rank reads another number of batches, as only the last one of an epoch may be without rows for it; gives `now`."""
        other = np.flatnonzero((now > now[0]) | ((before < before[0]) & (now[0] > 0)))
        if len(other) and self.is_writer and not getattr(loader, "is_uneven", True):
            loader.is_uneven = True
            which = "more" if now[other[0]] > now[0] else "fewer"
            warnings.warn(
                f"train ({type(loader.source).__name__}) has {which} samples on rank {other[0]} than on rank 0: each rank takes its share of what it "
                "reads, so that every rank must read all samples",
                stacklevel=2,
            )
        return now

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
        had = np.full(self.size, count)  # batches in the step before, of each rank
        while True:
            window = list(islice(batches, count))
            if not getattr(loader, "is_compared", True):
                self._compare_first(loader)
            lengths = np.full(count, -1, np.int64)
            lengths[: len(window)] = [batch_size_of(batch) for batch in window]
            of_all = self.group.all_gather(lengths)
            width, total = int((of_all >= 0).any(0).sum()), int(of_all.clip(0).sum()) or 1
            had = self._compare_lengths(loader, had, (of_all >= 0).sum(1))
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
        """What every rank has; raises RuntimeError on all of them where they are not at the same place of the program."""
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
                elif name in metrics:
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


def facts_of(options: Any, model: Any, loaders: Mapping[str, Any], callbacks: Iterable[Any]) -> dict[str, Any]:
    """What must be equal on all ranks before the first step, by name."""
    found: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "strategy", "precision",
                     "check_val_every_n_epoch", "checkpoint_every_n_steps", "limit_train_batches", "limit_val_batches", "patience", "monitor")
    }  # fmt: skip
    found["whether checkpoint_dir is given"] = options.checkpoint_dir is not None
    found["the list of callbacks that all ranks need"] = [
        type(c).__name__ for c in callbacks if isinstance(c, (EarlyStopping, ModelCheckpoint))
    ]
    found["the model's class"] = type(model).__name__
    for name, value in model.state_dict().items():
        found[f"the model's {name}"] = f"{value.dtype.name} {tuple(value.shape)}"
    for name, p in model.named_parameters():
        found[f"requires_grad of {name}"] = p.requires_grad
    for name, loader in loaders.items():
        dataset: Any = getattr(loader, "dataset", None)
        if hasattr(dataset, "__len__"):
            found[f"len({name}.dataset)"] = len(dataset)
        for attribute in ("batch_size", "shuffle", "drop_last"):
            if hasattr(loader, attribute):
                found[f"{name}.{attribute}"] = getattr(loader, attribute)
        found[f"len({name})"] = number_of_batches(loader, None)
    for name, module in model.named_modules():
        if name and not any(True for _ in module.children()):
            found[f"the model's {name}"] = _ADDRESS.sub("", repr(module))
    return {**found, "the order of the parameters": [name for name, _ in model.named_parameters()]}


def facts_of_steps(optimizers: Iterable[Any], schedules: Iterable[Any], schedulers: Iterable[Any]) -> dict[str, Any]:
    """What must be equal of the optimizers, of when a fit steps their schedules, and of all schedulers."""
    return {
        **{
            f"optimizer {i}": (
                type(o).__name__,
                [({k: v for k, v in g.items() if k != "params"}, len(g["params"])) for g in o.param_groups],
            )
            for i, o in enumerate(optimizers)
        },
        **{f"schedule {i}": (type(s.scheduler).__name__, s.interval, s.frequency, s.monitor) for i, s in enumerate(schedules)},
        **{f"scheduler {i}": (type(s).__name__, repr(getattr(s, "state_dict", dict)())) for i, s in enumerate(schedulers)},
    }
