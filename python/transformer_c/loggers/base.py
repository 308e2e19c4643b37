"""The base class of loggers, and folders with a number for every run."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class Logger:
    """Receives the values of a run. Subclasses define ``log_metrics`` and what else they need.

    A trainer calls ``begin``, ``log_hyperparams``, ``log_metrics`` at steps and at the end of every epoch, ``save`` after an epoch and
    ``finalize``.
    """

    name: str | None = None
    version: int | str | None = None
    save_dir: str | None = None

    @property
    def log_dir(self) -> str | None:
        """The folder of the current run's files; None if there is none."""
        return self.save_dir

    def begin(self, step: int | None) -> None:
        """A run begins, anew (None) or from a checkpoint made after `step` steps: what was logged for later ones is void."""

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Records the model's hyper-parameters."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Records values for a step."""

    def save(self) -> None:
        """Writes what is not yet written."""

    def finalize(self, status: str) -> None:
        """The run has ended; `status` is "success", "failed" or "interrupted"."""


class HistoryLog(Logger):
    """What ``trainer.logger`` is without a logger: it writes nothing, since the trainer's history has all values."""

    def __init__(self, folder: str | None) -> None:
        self.save_dir = folder


class FolderLogger(Logger):
    """A logger with a folder for every run: ``save_dir/name/version_0``, ``version_1``, ...

    Parameters
    ----------
    save_dir : path-like
    name : str, optional
    version : int or str, optional
        Of the folder. None: a new number for a new run, the last number for a resumed one.
    """

    def __init__(self, save_dir: str | os.PathLike, name: str | None = "logs", version: int | str | None = None) -> None:
        self.save_dir, self.name = os.fspath(save_dir), name or ""
        self._given, self.version = version, version
        self._params: dict[str, Any] = {}  # all hyper-parameters of a run; those logged before the first one are that run's, too
        self._has_begun, self._are_params_written = False, True

    @property
    def root_dir(self) -> str:
        """The folder of all runs of this name."""
        return os.path.join(self.save_dir or "", self.name or "")

    @property
    def log_dir(self) -> str:
        """The folder of the current run."""
        if self.version is None:
            self.version = self._latest() + 1
        return os.path.join(self.root_dir, self.version if isinstance(self.version, str) else f"version_{self.version}")

    def begin(self, step: int | None) -> None:
        """See Logger."""
        if self._given is None:
            self.version = max(self._latest(), 0) if step is not None else self._latest() + 1
        os.makedirs(self.log_dir, exist_ok=True)
        if self._has_begun:
            self._params = {}  # of the run before
        self._has_begun = True

    def log_hyperparams(self, params: Any) -> None:
        """Records hyper-parameters: a dict, or what ``argparse`` gives. Those from before the first run are written with the run's own."""
        self._params.update(vars(params) if isinstance(params, SimpleNamespace | Namespace) else params or {})
        self._are_params_written = self._has_begun or not self._params
        if self._has_begun:
            self._write_params()

    def save(self) -> None:
        """See Logger."""
        if not self._are_params_written:  # a program logs without a trainer
            self._write_params()
            self._are_params_written = True

    def _write_params(self) -> None:
        """Writes the hyper-parameters."""

    def _latest(self) -> int:
        """The largest number of an existing folder; -1 without any."""
        names = os.listdir(self.root_dir) if os.path.isdir(self.root_dir) else []
        return max((int(found[1]) for name in names if (found := re.fullmatch(r"version_(\d+)", name))), default=-1)


__all__ = ["FolderLogger", "HistoryLog", "Logger"]
