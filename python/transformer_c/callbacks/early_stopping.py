"""Stops a run that no longer improves."""

from __future__ import annotations

import math
from typing import Any

from .._arguments import count, one_of
from .callback import Callback


class EarlyStopping(Callback):
    """Ends ``fit`` after `patience` epochs in a row in which a logged value did not improve. ``Trainer(patience=)`` does the same.

    Parameters
    ----------
    monitor : str
        Name of the logged value.
    min_delta : float, default 0
        An improvement must exceed this.
    patience : int, default 3
        Epochs that did not log the value are not counted.
    verbose : bool
        Print why the run was ended.
    mode : {"min", "max"}
    strict : bool, default True
        Raise when no epoch logs the value.
    check_finite : bool, default True
        Stop when the value is NaN or infinite.
    stopping_threshold : float, optional
        Stop as soon as the value is better.
    divergence_threshold : float, optional
        Stop as soon as the value is worse.
    check_on_train_epoch_end, log_rank_zero_only
        Accepted for compatibility with Lightning; ignored.

    Attributes
    ----------
    stopped_epoch : int
        The epoch after which the run was ended, counted from 0 as in Lightning; 0 if it was not.
    best_score : float
    wait_count : int

    Examples
    --------
    >>> import transformer_c as tc
    >>> trainer = tc.Trainer(10, callbacks=[tc.callbacks.EarlyStopping("val_loss", patience=2)])
    >>> trainer.early_stopping_callback.patience
    2
    """

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        self.monitor, self.mode = monitor, one_of("mode", mode, ("min", "max"))
        self.min_delta, self.patience = abs(min_delta), count("patience", patience, 0)
        self.verbose, self.strict, self.check_finite = verbose, strict, check_finite
        self.stopping_threshold, self.divergence_threshold = stopping_threshold, divergence_threshold
        self._forget()

    def _forget(self) -> None:
        self.best_score = math.inf if self.mode == "min" else -math.inf
        self.wait_count, self.stopped_epoch = 0, 0
        self._has_stopped = False

    def _is_better(self, value: float, other: float) -> bool:
        return value < other if self.mode == "min" else value > other

    def on_fit_start(self, trainer: Any, model: Any) -> None:
        """Starts anew; a resumed run then loads its state."""
        self._forget()

    def on_train_start(self, trainer: Any, model: Any) -> None:
        """A run that was stopped stays stopped when it is resumed."""
        if self._has_stopped:
            trainer.should_stop = True

    def on_epoch_completed(self, trainer: Any, model: Any) -> None:
        """Looks at the epoch's value."""
        values = trainer.epoch_metrics
        if self.monitor not in values:
            if self.strict and trainer.current_epoch % trainer.check_val_every_n_epoch == 0:
                raise ValueError(
                    f"EarlyStopping monitors {self.monitor!r}, which nothing logs; logged: {', '.join(sorted(values)) or 'nothing'}"
                )
            return
        if reason := self._reason_to_stop(values[self.monitor]):
            self.stopped_epoch, self._has_stopped, trainer.should_stop = trainer.current_epoch - 1, True, True
            if self.verbose:
                print(f"EarlyStopping: {reason}")

    def _reason_to_stop(self, value: float) -> str:
        shown = f"{self.monitor} is {value:.6g}"
        if self.check_finite and not math.isfinite(value):
            return f"{shown}, not finite"
        if self.stopping_threshold is not None and self._is_better(value, self.stopping_threshold):
            return f"{shown}, better than {self.stopping_threshold}"
        if self.divergence_threshold is not None and self._is_better(self.divergence_threshold, value):
            return f"{shown}, worse than {self.divergence_threshold}"
        if self._is_better(value + (self.min_delta if self.mode == "min" else -self.min_delta), self.best_score):
            self.best_score, self.wait_count = value, 0
            return ""
        self.wait_count += 1
        return f"{shown}, no better than {self.best_score:.6g} for {self.wait_count} epochs" if self.wait_count >= self.patience else ""

    def state_dict(self) -> dict[str, Any]:
        """See Callback."""
        return {
            "best_score": self.best_score,
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "has_stopped": self._has_stopped,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See Callback."""
        self.best_score, self.wait_count = float(state_dict["best_score"]), int(state_dict["wait_count"])
        self.stopped_epoch, self._has_stopped = int(state_dict["stopped_epoch"]), bool(state_dict["has_stopped"])


__all__ = ["EarlyStopping"]
