"""Whether the ranks of a run were started alike, and read the same data: exchanges that raise on all of them, or warn on rank 0."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..callbacks import EarlyStopping, ModelCheckpoint
from ..distributed.group import Group
from .loaders import number_of_batches
from .same_data import SEED_SPLITS, are_other_samples, data_of, differences
from .shares import Read, share_of

_OPTIONS = (
    "max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "strategy", "precision",
    "check_val_every_n_epoch", "checkpoint_every_n_steps", "limit_train_batches", "limit_val_batches", "patience", "monitor",
)  # fmt: skip
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions, in the text of a module


# ---- at the start --------------------------------------------------------------------------------------------------------------------


def check_equal(group: Group, facts: Mapping[str, Any]) -> None:
    """Raises ValueError on all ranks if they were not started alike.

    Parameters
    ----------
    group : Group
    facts : mapping of str to object
        What must be equal, by its name in the error.
    """
    first, *others = group.exchange("a comparison of what ranks were started with", dict(facts))
    for rank, other in enumerate(others, 1):
        for name in [*other, *(name for name in first if name not in other)]:
            if name not in first or name not in other or first[name] != other[name]:
                raise ValueError(
                    f"{name} is {first.get(name, 'missing')} on rank 0 but {other.get(name, 'missing')} on rank {rank}: "
                    "all ranks must run the same script on the same data"
                )


def facts_of(options: Any, model: Any, loaders: Mapping[str, Any], callbacks: Iterable[Any]) -> dict[str, Any]:
    """What must be equal on all ranks before the first step, by name."""
    return {
        **{name: getattr(options, name) for name in _OPTIONS},
        "whether checkpoint_dir is given": options.checkpoint_dir is not None,
        "the list of callbacks that all ranks need": [
            type(c).__name__ for c in callbacks if isinstance(c, (EarlyStopping, ModelCheckpoint))
        ],
        **_facts_of_parameters(model),
        **{key: value for name, loader in loaders.items() for key, value in _facts_of_loader(name, loader).items()},
        **_facts_of_modules(model),
    }


def _facts_of_parameters(model: Any) -> dict[str, Any]:
    return {
        "the model's class": type(model).__name__,
        **{f"the model's {name}": f"{value.dtype.name} {tuple(value.shape)}" for name, value in model.state_dict().items()},
        **{f"requires_grad of {name}": p.requires_grad for name, p in model.named_parameters()},
        "the order of the parameters": [name for name, _ in model.named_parameters()],
    }


def _facts_of_modules(model: Any) -> dict[str, str]:
    """The options of modules without parts, as their texts have them."""
    parts = ((name, module) for name, module in model.named_modules() if name and not any(True for _ in module.children()))
    return {f"the model's {name}": _ADDRESS.sub("", repr(module)) for name, module in parts}


def _facts_of_loader(name: str, loader: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    dataset: Any = getattr(loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        found[f"len({name}.dataset)"] = len(dataset)
    options = {a: getattr(loader, a) for a in ("batch_size", "shuffle", "drop_last") if hasattr(loader, a)}
    return {**found, **{f"{name}.{option}": value for option, value in options.items()}, f"len({name})": number_of_batches(loader, None)}


def facts_of_steps(optimizers: Iterable[Any], schedules: Iterable[Any], schedulers: Iterable[Any]) -> dict[str, Any]:
    """What must be equal of the optimizers, of when a fit steps their schedules, and of all schedulers."""
    return {
        **{f"optimizer {i}": (type(o).__name__, list(map(_facts_of_group, o.param_groups))) for i, o in enumerate(optimizers)},
        **{f"schedule {i}": (type(s.scheduler).__name__, s.interval, s.frequency, s.monitor) for i, s in enumerate(schedules)},
        **{f"scheduler {i}": (type(s).__name__, repr(getattr(s, "state_dict", dict)())) for i, s in enumerate(schedulers)},
    }


def _facts_of_group(group: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The options of an optimizer's group, and how many parameters it has."""
    return {k: v for k, v in group.items() if k != "params"}, len(group["params"])


def check_data(group: Group, loaders: Mapping[str, Any], stacklevel: int) -> None:
    """Raises ValueError on all ranks, or warns on rank 0, if the loaders have other data than on rank 0."""
    if group.size == 1:
        return
    own = {key: part for name, loader in loaders.items() for key, part in data_of(name, loader).items()}
    shares = {name: share for name, loader in loaders.items() if (share := share_of(loader)) is not None}
    found = group.exchange("a comparison of the data", (own, shares))
    _check_shares([shares for _, shares in found])
    errors, doubts = differences([data for data, _ in found])
    if errors:
        raise ValueError(f"{'; '.join(errors[:3])}: {SEED_SPLITS}")
    if doubts and group.rank == 0:
        warnings.warn(f"{'; '.join(doubts[:3])}; if samples come from it: {SEED_SPLITS}", stacklevel=stacklevel)


def _check_shares(of_ranks: Sequence[Mapping[str, tuple[int, int]]]) -> None:
    """Raises ValueError where a DistributedSampler is not that of its rank."""
    for rank, shares in enumerate(of_ranks):
        for name, share in shares.items():
            if share != (rank, len(of_ranks)):
                raise ValueError(
                    f"the DistributedSampler of {name} on rank {rank} of {len(of_ranks)} is that of rank {share[0]} of {share[1]}: make it "
                    "without num_replicas and rank, or with those of tc.distributed"
                )


# ---- while batches are read ----------------------------------------------------------------------------------------------------------


def compare_first(group: Group, source: Any, read: Read) -> None:
    """Raises ValueError on all ranks if their batches are of other orders; warns on rank 0 if one that ranks read begins with other samples."""
    found = group.exchange("a comparison of the first batch", (read.first, read.order))
    read.is_compared = True
    (first, *others), orders = [fields for fields, _ in found], [order for _, order in found]
    for rank, order in enumerate(orders):
        if order != orders[0] and None not in (order, orders[0]):
            raise ValueError(
                f"the train loader's sampler gives another order on rank {rank} than on rank 0, so that samples would come twice or not at all: "
                "give its generator a seed, or keep it as an attribute, which gets rank 0's state"
            )
    other = [rank for rank, fields in enumerate(others, 1) if first and fields and are_other_samples(first, fields)]
    if other and group.rank == 0:
        warnings.warn(
            f"train ({type(source).__name__}) begins with other samples on rank {other[0]} than on rank 0. Each rank takes its share "
            "of what it reads, so that every rank must read all samples: data that the program shares out itself are trained on in part only",
            stacklevel=2,
        )


def compare_lengths(group: Group, source: Any, read: Read, before: np.ndarray, now: np.ndarray) -> None:
    """Warns on rank 0, once, if a rank reads another number of batches, as only the last one of an epoch may be without rows for it.

    Parameters
    ----------
    group : Group
    source : object
        Where the samples come from.
    read : Read
    before, now : ndarray of int (ranks,)
        The batches of each rank in the step before, and in this one.
    """
    other = np.flatnonzero((now > now[0]) | ((before < before[0]) & (now[0] > 0)))
    if len(other) and group.rank == 0 and not read.is_uneven:
        read.is_uneven = True
        which = "more" if now[other[0]] > now[0] else "fewer"
        warnings.warn(
            f"train ({type(source).__name__}) has {which} samples on rank {other[0]} than on rank 0: each rank takes its share of what it "
            "reads, so that every rank must read all samples",
            stacklevel=2,
        )
