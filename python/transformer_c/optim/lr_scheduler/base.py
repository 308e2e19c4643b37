"""The base class of learning-rate schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._arguments import real
from ..._graph import noted
from ..._names import Explaining
from ..optimizer import Optimizer


def _whole(step: Callable) -> Callable:
    """A step that changes nothing where it raises."""

    @functools.wraps(step)
    def run(self: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        take_back = self._kept()
        try:
            return step(self, *args, **kwargs)
        except BaseException:
            take_back()
            raise

    return run


class LRScheduler(Explaining):
    """Base class: sets the learning rate of each parameter group from ``get_lr()``, when it is created and at every ``step()``.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int, default -1
        The step to continue from; the groups of the optimizer then have an "initial_lr".

    Attributes
    ----------
    base_lrs : list of float
        The learning rates of the groups before any schedule.
    last_epoch : int
        The number of steps taken.
    """

    _instead = dict.fromkeys(("lr", "learning_rate", "current_lr"), "scheduler.get_last_lr()")
    _is_initial = False  # whether step() is the one that __init__ takes

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked_optimizer(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param_groups[{number}] has no 'initial_lr', which last_epoch={last_epoch} needs: load the optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.initial_step()

    def initial_step(self) -> None:
        """Sets the learning rates of the first step."""
        self._is_initial = True
        self._step_count = 0
        try:
            self.step()
        finally:
            del self._is_initial

    def get_lr(self) -> list[float]:
        """The learning rates at ``last_epoch``; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(): define it in the class")

    def _get_closed_form_lr(self) -> list[float]:
        """The learning rates at ``last_epoch``, whatever those of the step before were. As in PyTorch, a schedule that multiplies those defines
        it."""
        return self.get_lr()

    def get_last_lr(self) -> list[float]:
        """The current learning rates."""
        return self._last_lr

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = noted(_whole(cls.step))  # type: ignore[method-assign]

    @noted
    @_whole
    def step(self, epoch: int | None = None) -> None:
        """Advances by one step, or to `epoch`."""
        if epoch is not None:
            real("epoch", epoch)
        self._step_count = getattr(self, "_step_count", 0) + 1
        self.set_step(epoch)

    def set_step(self, epoch: int | None = None) -> None:
        """Sets the learning rates of the next step, or of `epoch`."""
        if epoch is None:
            self.last_epoch += 1
            found = self.get_lr()
        else:
            self.last_epoch = epoch
            found = self._get_closed_form_lr()
        self._set([float(lr) for lr in found])

    def _set(self, rates: list[float]) -> None:
        for group, lr in self.each_group(self.optimizer.param_groups, rates):
            group["lr"] = lr
        self._last_lr = rates

    def each_group(self, *values: Sequence) -> Iterator[tuple]:
        """What belongs to each parameter group, of lists for all."""
        groups = len(self.optimizer.param_groups)
        for own in values:
            if len(own) != groups:
                raise ValueError(
                    f"{type(self).__name__} has {len(own)} values for {groups} parameter groups: make it after optimizer.add_param_group()"
                )
        return zip(*values, strict=True)

    def _lrs(self) -> list[float]:
        """The optimizer's learning rates."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _kept(self) -> Callable[[], None]:
        """A function that takes back what a step from now on changes: attributes, and options of the optimizer's groups."""
        own = dict(vars(self))
        groups = [(group, dict(group)) for group in own["optimizer"].param_groups] if "optimizer" in own else []  # a subclass may have none
        parts = [part._kept() for part in own.get("_schedulers", ()) if isinstance(part, LRScheduler)]

        def take_back() -> None:
            vars(self).clear()
            vars(self).update(own)
            for group, options in groups:
                group.update(options)
            for part in parts:
                part()

        return take_back

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas") and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``, of this library or of torch.optim, and sets its learning rates.

        Raises
        ------
        ValueError
            When it is no dict, or one of another number of groups or of combined schedules. Nothing is loaded in that case.
        """
        self._check_state(state_dict)
        self._take_state(state_dict)
        self._set(list(self._last_lr))

    def _check_state(self, state_dict: Any) -> None:
        """Raises ValueError for a state that does not fit."""
        if not isinstance(state_dict, dict):
            raise ValueError(f"the state of a {type(self).__name__} is a dict, not {type(state_dict).__name__}")
        rates, groups = state_dict.get("_last_lr", self._last_lr), self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ValueError(f"the state has learning rates of {len(rates)} parameter groups, the optimizer has {len(groups)}")

    def _take_state(self, state_dict: dict[str, Any]) -> None:
        """Takes what a state that fits holds."""
        self.__dict__.update(state_dict)


def checked_optimizer(optimizer: Any) -> Optimizer:
    """Raises TypeError for anything but an Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a scheduler takes an Optimizer, not {type(optimizer).__name__}")
    return optimizer


def per_group(name: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """A value for each parameter group: one for all, or a list of as many."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(f"{name} has {len(value)} values for {groups} parameter groups; give one, or one each")
    return list(value)


__all__ = ["LRScheduler", "checked_optimizer", "per_group"]
