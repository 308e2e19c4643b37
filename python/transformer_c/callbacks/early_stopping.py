"""Stops a run that no longer improves."""

from __future__ import annotations

import math
from typing import Any

from .._arguments import count, one_of, real
from .._best import Best, is_better
from .._names import explained
from .callback import Callback


class EarlyStopping(Callback):
    """Ends ``fit`` after `patience` epochs in a row in which a logged value did not improve.

    ``Trainer(patience=)`` adds one that differs in one option: ``check_finite=False``, so that NaN is waited through.

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

    @explained({})
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
        self.min_delta, self.patience = abs(real("min_delta", min_delta)), count("patience", patience, 0)
        self.verbose, self.strict, self.check_finite = verbose, strict, check_finite
        self.stopping_threshold, self.divergence_threshold = stopping_threshold, divergence_threshold
        self._forget()

    def _forget(self) -> None:
        self._best, self.stopped_epoch = Best(self.mode, self.min_delta), 0
        self._has_stopped = False  # at once, rather than after some epochs

    @property
    def best_score(self) -> float:
        """The best value; inf or -inf before any."""
        return self._best.value if self._best.value is not None else math.inf if self.mode == "min" else -math.inf

    @property
    def wait_count(self) -> int:
        """Epochs in a row that did not improve."""
        return self._best.waited

    def _has_waited(self) -> bool:
        return self.wait_count >= max(self.patience, 1)

    def on_fit_start(self, trainer: Any, model: Any) -> None:
        """Starts anew; a resumed run then loads its state."""
        self._forget()

    def on_train_start(self, trainer: Any, model: Any) -> None:
        """A run that was stopped stays stopped when it is resumed, unless with more patience."""
        if self._has_stopped or self._has_waited():
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
            self.stopped_epoch, trainer.should_stop = trainer.current_epoch - 1, True
            if self.verbose:
                print(f"EarlyStopping: {reason}")

    def _reason_to_stop(self, value: float) -> str:
        shown, self._has_stopped = f"{self.monitor} is {value:.6g}", True
        if self.check_finite and not math.isfinite(value):
            return f"{shown}, not finite"
        if self.stopping_threshold is not None and is_better(self.mode, value, self.stopping_threshold):
            return f"{shown}, better than {self.stopping_threshold}"
        if self.divergence_threshold is not None and is_better(self.mode, self.divergence_threshold, value):
            return f"{shown}, worse than {self.divergence_threshold}"
        self._has_stopped = False
        if self._best.see(value) or not self._has_waited():
            return ""
        return f"{shown}, no better than {self.best_score:.6g} for {self.wait_count} epochs"

    def state_dict(self) -> dict[str, Any]:
        """See Callback."""
        return {
            "best": self._best.state_dict(),
            "stopped_epoch": self.stopped_epoch,
            "has_stopped": self._has_stopped,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See Callback."""
        self._best.load_state_dict(state_dict["best"])
        self.stopped_epoch, self._has_stopped = int(state_dict["stopped_epoch"]), bool(state_dict["has_stopped"])


__all__ = ["EarlyStopping"]
