"""Logs learning rates."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .._names import explained
from .callback import Callback


class LearningRateMonitor(Callback):
    """Logs the learning rate of every parameter group: under "lr-Adam", with several groups "lr-Adam/pg1", "lr-Adam/pg2".

    A group that has a "name" is called by it, "lr-Adam/encoder", and a second optimizer of the class "lr-Adam-1".

    Parameters
    ----------
    logging_interval : {"epoch", "step"}, optional
        "epoch" logs to the history, "step" to ``trainer.step_history``; both go to the loggers. None: both.
    log_momentum, log_weight_decay : bool, default False
        Also log these, under "lr-Adam-momentum" and "lr-Adam-weight_decay".

    Examples
    --------
    >>> import transformer_c as tc
    >>> trainer = tc.Trainer(10, callbacks=[tc.callbacks.LearningRateMonitor("step")])
    """

    @explained({})
    def __init__(self, logging_interval: str | None = None, log_momentum: bool = False, log_weight_decay: bool = False) -> None:
        if logging_interval not in (None, "epoch", "step"):
            raise ValueError(f'logging_interval must be "epoch", "step" or None, got {logging_interval!r}')
        self.logging_interval, self.log_momentum, self.log_weight_decay = logging_interval, log_momentum, log_weight_decay

    def on_train_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int) -> None:
        """Logs the rates of the step."""
        if self.logging_interval != "epoch":
            for name, value in self._values(trainer):
                model.log(name, value, on_step=True, on_epoch=False)

    def on_train_epoch_start(self, trainer: Any, model: Any) -> None:
        """Logs the rates at the beginning of the epoch."""
        if self.logging_interval != "step":
            for name, value in self._values(trainer):
                model.log(name, value, on_step=False, on_epoch=True)

    def _values(self, trainer: Any) -> list[tuple[str, float]]:
        found, counts = [], Counter[str]()
        for optimizer in trainer.optimizers:
            kind, groups = type(optimizer).__name__, optimizer.param_groups
            counts[kind] += 1
            if counts[kind] > 1:
                kind = f"{kind}-{counts[kind] - 1}"
            for number, group in enumerate(groups, 1):
                part = f"/{group['name']}" if "name" in group else f"/pg{number}" if len(groups) > 1 else ""
                found.append((f"lr-{kind}{part}", group["lr"]))
                if self.log_momentum:
                    found.append((f"lr-{kind}-momentum{part}", group["betas"][0] if "betas" in group else group.get("momentum", 0.0)))
                if self.log_weight_decay:
                    found.append((f"lr-{kind}-weight_decay{part}", group.get("weight_decay", 0.0)))
        return found


__all__ = ["LearningRateMonitor"]
