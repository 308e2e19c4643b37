"""The accepted forms of a module's configure_optimizers() and steps: Lightning's forms, converted to one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .._autocast import autocast
from .._core import Tensor
from .._names import nearest
from ..optim import Optimizer
from ..optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from ..optim.optimizer import parameters_of
from ..tensor_functions import isfinite


@dataclass
class Schedule:
    """A scheduler that the trainer steps every `frequency` epochs or steps, with the value `monitor` if there is one."""

    scheduler: Any
    interval: str = "epoch"
    frequency: int = 1
    monitor: str | None = None
    strict: bool = True


def infinite_gradient(model: Any, optimizer: Optimizer, sums: Iterable[float]) -> str | None:
    """The name of a parameter whose gradient is NaN or infinite, if there is one: a step would make its weights so.

    `sums`, of the optimizer's buffers, are a check that costs little.
    """
    if all(map(math.isfinite, sums)):
        return None
    names = {id(p): name for name, p in model.named_parameters()}
    for p in parameters_of(optimizer):
        if p.grad is not None and not isfinite(p.grad).all():  # a sum of many gradients may also be too large
            return names.get(id(p), f"a parameter of shape {p.shape}")
    return None


def configured(model: Any) -> tuple[list[Optimizer], list[Schedule]]:
    """Calls ``model.configure_optimizers()`` and interprets its result.

    The result is an optimizer, ([optimizer], [schedulers]), or {"optimizer": ..., "lr_scheduler": ...}. A scheduler is given directly (then
    it is stepped every epoch) or as {"scheduler": ..., "interval": "step" or "epoch", "frequency": n, "monitor": the name of a logged value,
    for ReduceLROnPlateau}. With manual optimization there may be several optimizers or dicts, and the module steps the schedules.
    """
    given = model.configure_optimizers()
    where = f"{type(model).__name__}.configure_optimizers()"
    if isinstance(given, (list, tuple)) and len(given) == 2 and all(isinstance(part, (list, tuple)) for part in given):
        optimizers, schedulers = list(given[0]), list(given[1])
    else:
        parts = [_parts_of(part, where) for part in (given if isinstance(given, (list, tuple)) else [given])]
        optimizers, schedulers = [optimizer for optimizer, _ in parts], [s for _, several in parts for s in several]
    if len(optimizers) != 1 and (model.automatic_optimization or not optimizers):
        raise ValueError(
            f"{where} gave {len(optimizers)} optimizers; a trainer steps one: put the parameters into groups of one optimizer, or set "
            "automatic_optimization = False and step them in training_step()"
        )
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{where} gave {type(optimizer).__name__}; expected an optimizer of tc.optim")
    return optimizers, [_schedule(s, where, model.automatic_optimization) for s in schedulers if s is not None]


def _parts_of(given: Any, where: str) -> tuple[Any, list[Any]]:
    """The optimizer and the schedulers of a dict, or of an optimizer alone."""
    if not isinstance(given, dict):
        return given, []
    _check_keys(given, ("optimizer", "lr_scheduler", "monitor"), where, "a dict")
    schedulers = given.get("lr_scheduler", [])
    schedulers = list(schedulers) if isinstance(schedulers, (list, tuple)) else [schedulers]
    if "monitor" in given:  # of schedulers that do not name their own
        named = [s if isinstance(s, dict) else {"scheduler": s} for s in schedulers if s is not None]
        schedulers = [{"monitor": given["monitor"], **s} for s in named]
    return given["optimizer"], schedulers


def _check_keys(given: dict, known: tuple[str, ...], where: str, what: str) -> None:
    """Raises ValueError for keys that are not in `known`, or if the first of these is missing."""
    for key in map(str, given):
        if key not in known:
            near = nearest(key, known)
            hint = f"did you mean {near!r}?" if near else f"expected {', '.join(map(repr, known))}"
            raise ValueError(f"{where} gave {what} with the key {key!r}; {hint}")
    if known[0] not in given:
        raise ValueError(f"{where} gave {what} without {known[0]!r}, with {', '.join(map(repr, given)) or 'nothing'}")


def _schedule(given: Any, where: str, is_stepped: bool) -> Schedule:
    """A schedule from its form; `is_stepped` says whether the trainer steps it."""
    options = {"scheduler": given} if not isinstance(given, dict) else dict(given)
    _check_keys(options, ("scheduler", "interval", "frequency", "monitor", "strict", "name", "reduce_on_plateau"), where, "a schedule")
    for unused in ("name", "reduce_on_plateau"):
        options.pop(unused, None)
    schedule = Schedule(**options)
    if isinstance(schedule.scheduler, ReduceLROnPlateau):
        if schedule.monitor is None and is_stepped:
            raise ValueError(f'{where} gave ReduceLROnPlateau without the value to watch: {{"scheduler": ..., "monitor": "val_loss"}}')
    else:
        schedule.monitor = None  # the others take no value
    if not callable(getattr(schedule.scheduler, "step", None)):
        raise TypeError(f"{where} gave a scheduler of type {type(schedule.scheduler).__name__}, which has no step()")
    if schedule.interval not in ("epoch", "step"):
        raise ValueError(f'{where} gave a schedule with interval {schedule.interval!r}; expected "epoch" or "step"')
    if not schedule.frequency >= 1:
        raise ValueError(f"{where} gave a schedule with frequency {schedule.frequency}; expected at least 1")
    return schedule


def schedulers_of(model: Any, schedules: list[Schedule]) -> list[Any]:
    """All schedulers whose state is in a checkpoint: those returned, then those that the model keeps and steps itself."""
    found = [s.scheduler for s in schedules]
    for value in vars(model).values():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, LRScheduler) and not any(item is f for f in found):
                found.append(item)
    return found


def stepping(optimizers: Sequence[Any], steps: Callable[[], Sequence[Callable]]) -> AbstractContextManager[Any]:
    """For a ``with`` block, in which the optimizers' ``step()`` are what `steps` gives."""

    def exchange(steps: Sequence[Callable | None]) -> list[Callable | None]:
        before = [vars(optimizer).pop("step", None) for optimizer in optimizers]
        for optimizer, step in zip(optimizers, steps, strict=True):
            if step is not None:
                optimizer.step = step
        return before

    return _core.switched(exchange, steps)


def in_precision(step: Callable, dtype: str | None) -> Callable:
    """The step, computed under ``autocast`` if a dtype is given."""
    return step if dtype is None else autocast(dtype=dtype)(step)


def loss_of(value: Any, model: Any) -> Tensor | None:
    """The loss in the result of training_step(): a Tensor, {"loss": Tensor}, or None to skip the batch."""
    loss = value.get("loss") if isinstance(value, dict) else value
    where = f"{type(model).__name__}.training_step()"
    if loss is None:
        if isinstance(value, dict):
            raise ValueError(f'{where} gave a dict with {sorted(map(str, value))}; expected one with "loss"')
        return None
    if isinstance(loss, (np.ndarray, np.generic, int, float)):
        kind = "an ndarray" if isinstance(loss, np.ndarray) else f"a {type(loss).__name__}"
        raise TypeError(
            f"{where} gave {kind}; expected the loss, a Tensor: of arrays and numbers nothing is recorded. Use the Tensors of the batch, "
            "not x.numpy(), and return the loss itself, not loss.item() or float(loss)"
        )
    if not isinstance(loss, Tensor):
        raise TypeError(f"{where} gave {type(loss).__name__}; expected the loss, a Tensor")
    if loss.numel() != 1:
        raise ValueError(f"{where} gave a Tensor of shape {tuple(loss.shape)}; expected one number: take its mean()")
    return loss


def accepted(function: Callable, most: int) -> int:
    """The number of positional arguments that `function` takes, at most `most`."""
    signature = inspect.signature(function)
    for count in range(most, 0, -1):
        try:
            signature.bind(*range(count))
            return count
        except TypeError:
            continue
    return 0
