"""Schedules that rise and fall, with the momentum the other way round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..._arguments import count, one_of
from ..optimizer import Optimizer
from .base import LRScheduler, checked_optimizer, per_group


class _Cycle(LRScheduler):
    """Sets the momentum of every group too: Adam's first beta, or "momentum"."""

    def _prepare_momentum(self, base: float | list[float], largest: float | list[float], is_new: bool) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError(f"{type(self.optimizer).__name__} has neither momentum nor betas: pass cycle_momentum=False")
        self.use_beta1 = "betas" in defaults
        self.base_momentums = per_group("base_momentum", base, self.optimizer)
        self.max_momentums = per_group("max_momentum", largest, self.optimizer)
        if is_new:
            for group, low, high in self.each_group(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                group["base_momentum"], group["max_momentum"] = low, high
                self._set_momentum(group, high)

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(_Cycle):
    """One rise and one fall of the learning rate over a whole run (Smith & Topin 2018). It is stepped after every batch.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float or list of float
    total_steps : int, optional
        Or give `epochs` and `steps_per_epoch`. In a TrainingModule, ``self.trainer.estimated_stepping_batches``.
    pct_start : float, default 0.3
        The share of the steps until `max_lr` is reached.
    anneal_strategy : {"cos", "linear"}
    cycle_momentum : bool, default True
        Move the momentum, or Adam's first beta, from `max_momentum` down to `base_momentum` and back.
    base_momentum, max_momentum : float or list of float, default 0.85, 0.95
    div_factor : float, default 25
        The first learning rate is ``max_lr / div_factor``.
    final_div_factor : float, default 1e4
        The last one is the first one divided by this.
    three_phase : bool, default False
        Fall to the first learning rate as fast as it rose, then to the last one.
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.Adam([tc.nn.Parameter([1.0])])
    >>> schedule = tc.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=11, pct_start=0.5)
    >>> for _ in range(5):
    ...     schedule.step()
    >>> round(schedule.get_last_lr()[0], 3)
    0.98
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked_optimizer(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = count("epochs", epochs) * count("steps_per_epoch", steps_per_epoch)
        self.total_steps = count("total_steps", total_steps)
        if not 0.0 <= pct_start <= 1.0:
            raise ValueError(f"pct_start must be from 0 to 1, got {pct_start}")
        self.anneal_strategy = one_of("anneal_strategy", anneal_strategy, ("cos", "linear"))
        self.cycle_momentum = cycle_momentum
        rise, last = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        # Each phase: its last step; learning rate and momentum at its beginning and at its end, as keys of a group.
        up = (rise, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            back = (float(2 * pct_start * self.total_steps) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
            self.phases = [up, back, (last, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        else:
            self.phases = [up, (last, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        if last_epoch == -1:
            for group, largest in zip(optimizer.param_groups, per_group("max_lr", max_lr, optimizer), strict=True):
                group["initial_lr"], group["max_lr"] = largest / div_factor, largest
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._prepare_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"this is step {step} of a OneCycleLR of {self.total_steps} steps")
        number = next((i for i, phase in enumerate(self.phases) if step <= phase[0]), len(self.phases) - 1)
        start = self.phases[number - 1][0] if number else 0.0
        end, lr_before, lr_after, momentum_before, momentum_after = self.phases[number]
        share, rates = (step - start) / (end - start), []
        for group, _ in self.each_group(self.optimizer.param_groups, self.base_lrs):
            rates.append(self._between(group[lr_before], group[lr_after], share))
            if self.cycle_momentum:
                self._set_momentum(group, self._between(group[momentum_before], group[momentum_after], share))
        return rates


class CyclicLR(_Cycle):
    """Rises and falls between two learning rates again and again (Smith 2017). It is stepped after every batch.

    Parameters
    ----------
    optimizer : Optimizer
    base_lr, max_lr : float or list of float
    step_size_up : int, default 2000
        Steps of a rise.
    step_size_down : int, optional
        Steps of a fall; by default as many.
    mode : {"triangular", "triangular2", "exp_range"}
        All cycles of the same height, each half as high as the one before, or scaled by ``gamma ** step``.
    gamma : float, default 1
    scale_fn : callable, optional
        Maps the number of the cycle or the step to a factor, instead of `mode`.
    scale_mode : {"cycle", "iterations"}
    cycle_momentum : bool, default True
        Move the momentum, or Adam's first beta, from `max_momentum` down to `base_momentum` and back.
    base_momentum, max_momentum : float or list of float, default 0.8, 0.9
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.Adam([tc.nn.Parameter([1.0])])
    >>> schedule = tc.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=4)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked_optimizer(optimizer)
        base_lrs = per_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs, strict=True):
                group["lr"] = lr
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        up, down = float(step_size_up), float(step_size_up if step_size_down is None else step_size_down)
        self.total_size, self.step_ratio = up + down, up / (up + down)
        self.mode = one_of("mode", mode, ("triangular", "triangular2", "exp_range"))
        self.gamma, self.scale_fn = gamma, scale_fn
        by_step = scale_mode == "iterations" if scale_fn is not None else mode == "exp_range"
        self.scale_mode = one_of("scale_mode", "iterations" if by_step else "cycle", ("cycle", "iterations"))
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._prepare_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _scale(self, x: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else 1.0, "exp_range": self.gamma**x}[
            self.mode
        ]

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self._scale(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in self.each_group(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                self._set_momentum(group, high - (high - low) * share * scale)
        return [low + (high - low) * share * scale for low, high in self.each_group(self.base_lrs, self.max_lrs)]


__all__ = ["CyclicLR", "OneCycleLR"]
