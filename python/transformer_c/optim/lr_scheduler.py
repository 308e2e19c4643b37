"""Learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .optimizer import Optimizer


class LRScheduler:
    """Base class: sets the learning rate of each parameter group from ``get_lr()``, when it is created and at every ``step()``.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int, default -1
        The step to continue from.

    Attributes
    ----------
    base_lrs : list of float
        The learning rates of the groups before any schedule.
    last_epoch : int
        The number of steps taken.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler takes an Optimizer, not {type(optimizer).__name__}")
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rates at ``last_epoch``; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(): define it in the class")

    def get_last_lr(self) -> list[float]:
        """The current learning rates."""
        return self._last_lr

    def step(self) -> None:
        """Advances by one step."""
        self.last_epoch += 1
        self._last_lr = [float(lr) for lr in self.get_lr()]
        for group, lr in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v) and k != "lr_lambdas"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()`` and sets its learning rates."""
        self.__dict__.update(state_dict)
        for group, lr in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = lr


class LambdaLR(LRScheduler):
    """The base learning rate times a function of the step.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable or sequence of callables
        Maps a step to a factor; one function for all groups, or one per group.
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]], last_epoch: int = -1
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{len(self.lr_lambdas)} functions for {groups} parameter groups; give one, or one each")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class CosineWarmupScheduler(LRScheduler):
    """A linear warm-up times half a cosine: the schedule of the tutorial.

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


_LRScheduler = LRScheduler  # PyTorch's older name, used by the tutorial
