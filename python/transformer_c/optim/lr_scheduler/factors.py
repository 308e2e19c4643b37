"""Schedules that multiply learning rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ..._arguments import listed, real, steps
from ..._core import Tensor
from ..optimizer import Optimizer
from .base import LRScheduler, checked_optimizer


class LambdaLR(LRScheduler):
    """The base learning rate times a function of the step.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable or sequence of callables
        Maps a step to a factor; one function for all groups, or one per group.
    last_epoch : int, default -1
        As for every schedule: the step to continue from.

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [4.0]
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]], last_epoch: int = -1
    ) -> None:
        groups = len(checked_optimizer(optimizer).param_groups)
        if not callable(lr_lambda) and not (isinstance(lr_lambda, Sequence) and all(map(callable, lr_lambda))):
            raise TypeError(f"lr_lambda must be a function of the epoch, or a list of one for each group, got {lr_lambda!r:.80}")
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{len(self.lr_lambdas)} functions for {groups} parameter groups; give one, or one each")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        return [base * function(self.last_epoch) for base, function in self.each_group(self.base_lrs, self.lr_lambdas)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions; of objects that are called in their place, the attributes that are data."""
        return {**super().state_dict(), "lr_lambdas": [_state_of(function) for function in self.lr_lambdas]}

    def _take_state(self, state_dict: dict[str, Any]) -> None:
        for function, state in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if state:
                vars(function).update(deepcopy(state))
        super()._take_state({k: v for k, v in state_dict.items() if k != "lr_lambdas"})


class MultiplicativeLR(LambdaLR):
    """The learning rate of the step before times a function of the step. Parameters as for ``LambdaLR``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [4.0]
    """

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        if self._is_initial:
            return self._lrs()
        return [lr * function(self.last_epoch) for lr, function in self.each_group(self._lrs(), self.lr_lambdas)]


def _state_of(function: Callable[[int], float]) -> dict[str, Any] | None:
    """The attributes of an object that is called; None for functions, methods and classes."""
    if isinstance(function, (FunctionType, MethodType, type)) or not hasattr(function, "__dict__"):
        return None
    return deepcopy({name: value for name, value in vars(function).items() if _is_data(value)})


def _is_data(value: Any) -> bool:
    """Whether files hold a value: it consists of numbers, strings and arrays."""
    if isinstance(value, dict):
        return all(map(_is_data, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    if isinstance(value, Tensor):
        return value.is_leaf
    return value is None or isinstance(value, (int, float, str, np.number, np.bool_, np.ndarray))


class _Factor(LRScheduler):
    """Multiplies the learning rate of the step before by ``_factor()``, so that several schedules may act on one optimizer."""

    def _factor(self) -> float | None:
        """From the step before to ``last_epoch``; None for no change."""
        raise NotImplementedError

    def _total_factor(self) -> float:
        """From the base learning rate to ``last_epoch``."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        factor = self._factor()
        return self._lrs() if factor is None else [lr * factor for lr in self._lrs()]

    def _get_closed_form_lr(self) -> list[float]:
        """See LRScheduler."""
        factor = self._total_factor()
        return [base * factor for base in self.base_lrs]


class StepLR(_Factor):
    """Multiplies the learning rate by `gamma` every `step_size` steps.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
    gamma : float, default 0.1
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [2.0]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = steps("step_size", step_size), real("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _total_factor(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_Factor):
    """Multiplies the learning rate by `gamma` at each milestone.

    Parameters
    ----------
    optimizer : Optimizer
    milestones : iterable of int
        Steps; one that is given twice counts twice.
    gamma : float, default 0.1
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> for _ in range(4):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [2.0]
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones: dict[int, int] = dict(Counter(listed("milestones", milestones, "ints, such as [30, 80]")))
        self.gamma = real("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return self.gamma ** self.milestones[self.last_epoch] if self.last_epoch in self.milestones else None

    def _total_factor(self) -> float:
        return self.gamma ** sum(times for step, times in self.milestones.items() if step <= self.last_epoch)


class ConstantLR(_Factor):
    """The base learning rate times `factor` until step `total_iters`, and the base learning rate from then on.

    Parameters
    ----------
    optimizer : Optimizer
    factor : float, default 1/3
        From 0 to 1.
    total_iters : int, default 5
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> tc.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=3).get_last_lr()
    [4.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0.0 <= real("factor", factor) <= 1.0:
            raise ValueError(f"factor must be from 0 to 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _total_factor(self) -> float:
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(_Factor):
    """A factor that changes linearly from `start_factor` to `end_factor`, which it has from step `total_iters` on: a warm-up.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor : float, default 1/3
        Above 0, at most 1.
    end_factor : float, default 1
        From 0 to 1.
    total_iters : int, default 5
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [6.0]
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0.0 < real("start_factor", start_factor) <= 1.0:
            raise ValueError(f"start_factor must be above 0 and at most 1, got {start_factor}")
        if not 0.0 <= real("end_factor", end_factor) <= 1.0:
            raise ValueError(f"end_factor must be from 0 to 1, got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def _total_factor(self) -> float:
        done = min(self.total_iters, self.last_epoch)
        return self.start_factor + (self.end_factor - self.start_factor) * done / self.total_iters


class ExponentialLR(_Factor):
    """Multiplies the learning rate by `gamma` at every step.

    Parameters
    ----------
    optimizer : Optimizer
    gamma : float
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [4.0]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = real("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _total_factor(self) -> float:
        return self.gamma**self.last_epoch


class PolynomialLR(_Factor):
    """The base learning rate times (1 - step / total_iters) ** power, and 0 from step `total_iters` on.

    Parameters
    ----------
    optimizer : Optimizer
    total_iters : int, default 5
    power : float, default 1
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [6.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = steps("total_iters", total_iters), power
        super().__init__(optimizer, last_epoch)

    def _left(self, step: int) -> float:
        return 1.0 - step / self.total_iters

    def _factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        return (self._left(self.last_epoch) / self._left(self.last_epoch - 1)) ** self.power

    def _total_factor(self) -> float:
        return self._left(min(self.total_iters, self.last_epoch)) ** self.power


__all__ = [
    "ConstantLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
]
