"""Schedules along a cosine."""

from __future__ import annotations

import math

from ..._arguments import all_of, count, real, steps
from ..optimizer import Optimizer
from .base import LRScheduler


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base learning rate down to `eta_min` (Loshchilov & Hutter 2017, without restarts); it rises again beyond.

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Steps of the way down.
    eta_min : float, default 0
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [4.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = steps("T_max", T_max), real("eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See LRScheduler. The lowest point has no factor to the step after it, which is therefore a sum."""
        if self._is_initial:
            return self._lrs()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = 1 - math.cos(math.pi / self.T_max)
            return [lr + (base - self.eta_min) * rise / 2 for lr, base in self.each_group(self._lrs(), self.base_lrs)]
        now, before = (1 + math.cos(math.pi * step / self.T_max) for step in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (lr - self.eta_min) + self.eta_min for lr in self._lrs()]

    def _get_closed_form_lr(self) -> list[float]:
        """See LRScheduler."""
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to `eta_min`, again and again (Loshchilov & Hutter 2017).

    Parameters
    ----------
    optimizer : Optimizer
    T_0 : int
        Steps until the first restart.
    T_mult : int, default 1
        Each cycle is so many times as long as the one before.
    eta_min : float, default 0
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 6))
    >>> rates
    [4.0, 8.0, 4.0, 8.0]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_0, self.T_mult, self.eta_min = count("T_0", T_0), count("T_mult", T_mult), eta_min
        self.T_i: int = self.T_0  # the length of the current cycle
        self.T_cur: float = last_epoch  # the place in it
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advances by one step, or to `epoch`, which may lie between two."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i  # several cycles on, where last_epoch was given
                self.T_i *= self.T_mult
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set([float(lr) for lr in self.get_lr()])

    def _go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"epoch must not be negative, got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult


class CosineWarmupScheduler(LRScheduler):
    """A linear warm-up times half a cosine: the schedule of the tutorial. ``RAdam`` trains without a warm-up.

    Parameters
    ----------
    optimizer : Optimizer
    warmup : int
        Steps until the full learning rate; at least 1.
    max_iters : int
        The step at which the learning rate reaches 0. The cosine rises again beyond it.

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.Adam([tc.nn.Parameter(tc.empty(4, 4))], lr=1e-3)
    >>> scheduler = tc.CosineWarmupScheduler(optimizer, warmup=100, max_iters=2000)
    >>> [round(scheduler.get_lr_factor(e), 4) for e in (0, 50, 100, 1000, 2000)]
    [0.0, 0.4992, 0.9938, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, warmup: int, max_iters: int) -> None:
        all_of((real, "warmup", warmup), (real, "max_iters", max_iters))
        if not warmup >= 1:
            raise ValueError(f"warmup must be at least 1 step, got {warmup}")
        if not max_iters >= 1:
            raise ValueError(f"max_iters must be at least 1 step, got {max_iters}")
        self.warmup = warmup
        self.max_num_iters = max_iters
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        factor = self.get_lr_factor(self.last_epoch)
        return [base * factor for base in self.base_lrs]

    def get_lr_factor(self, epoch: float) -> float:
        """The factor at step `epoch`."""
        factor = 0.5 * (1 + math.cos(math.pi * epoch / self.max_num_iters))
        return factor * epoch / self.warmup if epoch <= self.warmup else factor


__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CosineWarmupScheduler"]
