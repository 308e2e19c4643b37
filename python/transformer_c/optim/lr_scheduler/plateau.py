"""A schedule that watches a value."""

from __future__ import annotations

import math
from typing import Any

from ..._arguments import one_of, real
from ..._best import is_better
from ..optimizer import Optimizer
from .base import LRScheduler, checked_optimizer, per_group


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the learning rate by `factor` once a value has not improved for more than `patience` steps.

    ``step(value)`` takes the value. For a trainer: ``{"scheduler": ..., "monitor": "val_loss"}`` in ``configure_optimizers``.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Whether a smaller or a larger value is better.
    factor : float, default 0.1
        Below 1.
    patience : int, default 10
    threshold : float, default 1e-4
        An improvement must exceed this.
    threshold_mode : {"rel", "abs"}
        As a share of the best value, or as it is.
    cooldown : int, default 0
        Steps after a change in which nothing is counted.
    min_lr : float or list of float, default 0
        One number is that of groups which are added later as well.
    eps : float, default 1e-8
        Smaller changes are not made.

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [4.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if not real("factor", factor) < 1.0:
            raise ValueError(f"factor must be below 1, got {factor}")
        self.optimizer = checked_optimizer(optimizer)
        self.mode, self.threshold_mode = one_of("mode", mode, ("min", "max")), one_of("threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor, self.patience, self.threshold, self.cooldown, self.eps = factor, patience, threshold, cooldown, eps
        self.min_lrs = per_group("min_lr", min_lr, optimizer)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0
        self._last_lr = self._lrs()

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Advances by one step, at which the watched value is `metrics`."""
        value = float(real("metrics", metrics))
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if is_better(self.mode, value, self._bar()):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._set([self._reduced(lr, least) for lr, least in self.each_group(self._lrs(), self._least())])
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._lrs()

    def _least(self) -> list[float]:
        """The smallest learning rate of each group."""
        if self.default_min_lr is not None and len(self.min_lrs) != len(self.optimizer.param_groups):
            self.min_lrs = per_group("min_lr", self.default_min_lr, self.optimizer)
        return self.min_lrs

    def _reduced(self, lr: float, least: float) -> float:
        new = max(lr * self.factor, least)
        return new if lr - new > self.eps else lr

    def _bar(self) -> float:
        """What an improvement must be better than."""
        change = -self.threshold if self.mode == "min" else self.threshold
        return self.best * (1.0 + change) if self.threshold_mode == "rel" else self.best + change


__all__ = ["ReduceLROnPlateau"]
