"""The best value so far, of a loss or a score."""

from __future__ import annotations

import math
from typing import Any


def is_better(mode: str, value: float, other: float | None, margin: float = 0.0) -> bool:
    """Whether a value is better than another by more than `margin`. NaN never is; any number is better than None.

    Parameters
    ----------
    mode : {"min", "max"}
        Whether a smaller or a larger value is better.
    value, other, margin : float
    """
    if other is None:
        return not math.isnan(value)
    return value < other - margin if mode == "min" else value > other + margin


class Best:
    """Follows a value from epoch to epoch.

    Parameters
    ----------
    mode : {"min", "max"}
    min_delta : float
        An improvement must exceed this.

    Attributes
    ----------
    value : float or None
        The last one that was an improvement.
    epoch : int or None
        Its epoch.
    waited : int
        How many values have been seen since then.
    """

    def __init__(self, mode: str, min_delta: float = 0.0) -> None:
        self.mode, self.min_delta = mode, min_delta
        self.value: float | None = None
        self.epoch: int | None = None
        self.waited = 0

    def see(self, value: float, epoch: int | None = None) -> bool:
        """Records a value; returns whether it is an improvement."""
        if not is_better(self.mode, value, self.value, self.min_delta):
            self.waited += 1
            return False
        self.value, self.epoch, self.waited = value, epoch, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"value": self.value, "epoch": self.epoch, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``."""
        self.value, self.epoch, self.waited = state["value"], state["epoch"], int(state["waited"])
