"""The best epoch, and early stopping."""

from __future__ import annotations

import math
from typing import Any


class Watch:
    """Follows one number from epoch to epoch.

    Parameters
    ----------
    monitor : str
        The number's name.
    mode : {"min", "max"}
    patience : int or None
        Number of consecutive epochs without an improvement after which ``exhausted`` is True; None: never.
    min_delta : float
        An improvement must exceed this to count for `patience`; the best epoch is the best by any margin.
    """

    def __init__(self, monitor: str, mode: str, patience: int | None, min_delta: float) -> None:
        self.monitor, self.mode = monitor, mode
        self._sign = -1.0 if mode == "max" else 1.0
        self._patience, self._min_delta = patience, min_delta
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._reference: float | None = None  # the last value that was an improvement by min_delta
        self._waited = 0

    def see(self, value: float, epoch: int) -> bool:
        """Records an epoch's value; returns whether it is the best so far. NaN never is."""
        if self._is_below(value, self._reference, self._min_delta):
            self._reference, self._waited = value, 0
        else:
            self._waited += 1
        if not self._is_below(value, self.best, 0.0):
            return False
        self.best, self.best_epoch = value, epoch
        return True

    def _is_below(self, value: float, other: float | None, margin: float) -> bool:
        if math.isnan(value):
            return False
        return other is None or self._sign * value < self._sign * other - margin

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self._patience is not None and self._waited >= self._patience

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"best": self.best, "best_epoch": self.best_epoch, "reference": self._reference, "waited": self._waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``."""
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        self._reference, self._waited = state["reference"], int(state["waited"])
