"""Passes logged values on to loggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..callbacks.callback import Callback
from ..loggers import Logger


class LoggerConnector(Callback):
    """Gives the loggers the hyper-parameters, step values every so many steps, and the means of every epoch.

    A value of a single step has "_step" after its name, so that a curve is either of steps or of epochs.

    Parameters
    ----------
    loggers : sequence of Logger
    every : int
        Steps from one log of step values to the next; 0: there is none.
    """

    def __init__(self, loggers: Sequence[Logger], every: int) -> None:
        self._loggers, self._every = loggers, every
        self._begun: list[Logger] = []  # and not yet finalized

    def on_train_start(self, trainer: Any, model: Any) -> None:
        """Begins a log, or continues one from the step of a checkpoint."""
        self._begun = []
        for logger in self._loggers:
            logger.begin(trainer.global_step or None)
            self._begun.append(logger)
            logger.log_hyperparams(dict(model.hparams.items()))

    def on_train_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Passes on what the step logged."""
        run = trainer.run
        if self._every and run.has_passed(self._every):
            now = {
                f"{name}_step": values[-1][1]
                for name, values in run.step_history.items()
                if values[-1][0] == run.step_of_batch and name not in run.unlogged
            }
            if now:
                self._log(now, run.step_of_batch)

    def on_epoch_completed(self, trainer: Any, model: Any) -> None:
        """Passes on the means of the epoch."""
        run = trainer.run
        self._log({"epoch": run.epoch, **{name: v for name, v in run.latest.items() if name not in run.unlogged}}, run.step - 1)
        for logger in self._loggers:
            logger.save()

    def on_train_end(self, trainer: Any, model: Any) -> None:
        """Ends the log."""
        self._finalize("success")

    def on_exception(self, trainer: Any, model: Any, exception: BaseException) -> None:
        """Ends the log."""
        self._finalize("interrupted" if isinstance(exception, KeyboardInterrupt) else "failed")

    def log_results(self, values: dict[str, float], step: int) -> None:
        """Passes on the means of a validation or test outside of ``fit``."""
        self._log(values, step)
        for logger in self._loggers:
            logger.save()

    def _log(self, values: dict[str, float], step: int) -> None:
        for logger in self._loggers:
            logger.log_metrics(values, step)

    def _finalize(self, status: str) -> None:
        while self._begun:
            self._begun.pop(0).finalize(status)
