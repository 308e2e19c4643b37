"""Several schedules as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..._arguments import listed
from ..optimizer import Optimizer
from .base import LRScheduler
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """Schedules of one optimizer."""

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        schedulers = listed("schedulers", schedulers, "schedules")
        if not schedulers:
            raise ValueError(f"{type(self).__name__} needs at least one schedule")
        for number, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"schedulers[{number}] is of type {type(scheduler).__name__}; expected a schedule")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"schedulers[{number}] is ReduceLROnPlateau, whose step() takes a value: step it by itself")
            if scheduler.optimizer is not (optimizer or schedulers[0].optimizer):
                raise ValueError(f"schedulers[{number}] has another optimizer: the schedules must have one in common")
        self._schedulers = schedulers
        self.optimizer = schedulers[0].optimizer

    def state_dict(self) -> dict[str, Any]:
        """Those of the schedules, and the place."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def _check_state(self, state_dict: Any) -> None:
        super()._check_state(state_dict)
        states = state_dict.get("_schedulers", ())
        if len(states) != len(self._schedulers):
            raise ValueError(f"the state is of {len(states)} schedules, the {type(self).__name__} has {len(self._schedulers)}")
        for scheduler, state in zip(self._schedulers, states, strict=True):
            scheduler._check_state(state)

    def _take_state(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super()._take_state({k: v for k, v in state_dict.items() if k != "_schedulers"})


class SequentialLR(_Combined):
    """One schedule after another.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
    milestones : sequence of int
        The steps at which the second, third, ... schedule begin, as if at its step 0.
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> from transformer_c.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> parts = [LinearLR(optimizer, 0.25, total_iters=3), CosineAnnealingLR(optimizer, T_max=2)]
    >>> schedule, rates = SequentialLR(optimizer, parts, milestones=[3]), []
    >>> for _ in range(6):
    ...     rates.append(round(schedule.get_last_lr()[0], 6))
    ...     schedule.step()
    >>> rates
    [2.0, 4.0, 6.0, 8.0, 4.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones, got {len(milestones)}")
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _take_back(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first.initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Advances by one step."""
        if epoch is not None:
            raise TypeError("SequentialLR.step() takes no epoch")
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler.set_step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _take_back(scheduler: LRScheduler) -> None:
    """Takes back the step that each schedule took when it was created."""
    if isinstance(scheduler, _Combined):
        for part in scheduler._schedulers:
            _take_back(part)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """Schedules that all act at every step: their factors multiply.

    Parameters
    ----------
    schedulers : sequence of LRScheduler
    optimizer : Optimizer, optional

    Examples
    --------
    >>> import transformer_c as tc
    >>> from transformer_c.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = ChainedScheduler([ConstantLR(optimizer, 0.5, total_iters=9), ExponentialLR(optimizer, 0.5)])
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [2.0]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._take(schedulers, optimizer)
        self._last_lr = self._lrs()

    def step(self, epoch: int | None = None) -> None:
        """Advances every schedule by one step."""
        if epoch is not None:
            raise TypeError("ChainedScheduler.step() takes no epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._lrs()


__all__ = ["ChainedScheduler", "SequentialLR"]
