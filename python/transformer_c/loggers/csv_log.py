"""Logs as tables."""

from __future__ import annotations

import csv
import io
import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

from .._core import Tensor
from ..checkpoint.files import set_aside, write_atomically
from .base import FolderLogger

METRICS, HPARAMS = "metrics.csv", "hparams.json"


class CSVLogger(FolderLogger):
    """Writes ``metrics.csv``, a row for every step or epoch that logged values, and ``hparams.json``.

    Parameters
    ----------
    save_dir : path-like
    name : str, optional
    version : int or str, optional
        The files are in ``save_dir/name/version_0``; without a version, a new run has a new number.

    Examples
    --------
    >>> import tempfile, transformer_c as tc
    >>> logger = tc.loggers.CSVLogger(tempfile.mkdtemp())
    >>> logger.begin(None)
    >>> logger.log_metrics({"loss": 0.5}, step=0)
    >>> logger.log_metrics({"loss": 0.25, "accuracy": 1.0}, step=1)
    >>> logger.save()
    >>> print(open(logger.log_dir + "/metrics.csv").read().strip())
    step,loss,accuracy
    0,0.5,
    1,0.25,1.0
    """

    def __init__(self, save_dir: str | os.PathLike, name: str | None = "logs", version: int | str | None = None) -> None:
        super().__init__(save_dir, name, version)
        self._columns: list[str] = ["step"]
        self._rows: list[dict[str, Any]] = []  # not yet written
        self._is_new = True  # the header is not written, or another one; or a save was broken off
        self._written: int | None = None  # the number of rows that the file has; None: all that are there

    @property
    def _path(self) -> str:
        return os.path.join(self.log_dir, METRICS)

    def begin(self, step: int | None) -> None:
        """See Logger."""
        ahead = [] if self._has_begun else self._rows  # logged before the first run
        super().begin(step)
        self._columns, self._rows, self._is_new, self._written = ["step"], [], True, None
        if step is None:
            if aside := set_aside(self.log_dir, (METRICS, HPARAMS)):
                warnings.warn(f"{self.log_dir} had the log of an earlier run: its files are in {aside} now", stacklevel=2)
        elif os.path.exists(self._path):  # the rows from `step` on are void
            rows = [row for row in self._read() if int(row["step"]) < step]
            self._see(rows)
            write_atomically(self._path, self._text(rows, header=True).encode())
            self._is_new, self._written = False, len(rows)
        self._rows = ahead
        self._see(ahead)

    def _write_params(self) -> None:
        os.makedirs(self.log_dir, exist_ok=True)
        write_atomically(os.path.join(self.log_dir, HPARAMS), (json.dumps(self._params, indent=2, default=repr) + "\n").encode())

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """See Logger."""
        values = {name: value.item() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        self._rows.append({**values, "step": 0 if step is None else step})
        self._see(self._rows[-1:])

    def _see(self, rows: list[dict[str, Any]]) -> None:
        for name in (name for row in rows for name in row):
            if name not in self._columns:
                self._columns.append(name)
                self._is_new = True

    def save(self) -> None:
        """Appends the new rows; when a name is new, writes the table again."""
        super().save()
        if self._is_new:
            found = self._read()
            self._written = len(found) if self._written is None else self._written
            rows = [*found[: self._written], *self._rows]  # a save that was broken off may have written the new ones
            self._see(rows)
            os.makedirs(self.log_dir, exist_ok=True)
            write_atomically(self._path, self._text(rows, header=True).encode())
        elif self._rows:
            self._is_new = True  # until these are counted
            with open(self._path, "a", newline="") as file:
                file.write(self._text(self._rows))
        count = len(self._rows) + (self._written or 0)
        self._rows, self._is_new, self._written = [], False, count

    def finalize(self, status: str) -> None:
        """See Logger."""
        self.save()

    def _text(self, rows: list[dict[str, Any]], header: bool = False) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def _read(self) -> list[dict[str, Any]]:
        if not os.path.exists(self._path):
            return []
        with open(self._path, newline="") as file:
            text = file.read()
        lines = io.StringIO(text[: text.rfind("\n") + 1], newline="")  # a kill while rows are appended leaves a part of one
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(lines)]


__all__ = ["CSVLogger"]
