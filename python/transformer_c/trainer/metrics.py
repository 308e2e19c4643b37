"""Means of logged values over an epoch, the history of epochs, and its CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core import Tensor
from ..checkpoint.files import write_atomically


class Averages:
    """Means weighted by batch size, in float64."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}  # name: [sum of weight * value, sum of weights]

    def add(self, name: str, value: float, weight: float) -> None:
        """Adds one value."""
        sums = self._sums.setdefault(name, [0.0, 0.0])
        sums[0] += weight * value
        sums[1] += weight

    def means(self) -> dict[str, float]:
        """The mean of every name."""
        return {name: total / weight if weight else math.nan for name, (total, weight) in self._sums.items()}

    def state_dict(self) -> dict[str, list[float]]:
        """The state for a checkpoint in the middle of an epoch."""
        return {name: list(sums) for name, sums in self._sums.items()}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restores a state from ``state_dict()``."""
        self._sums = {str(name): [float(total), float(weight)] for name, (total, weight) in state.items()}


def batch_size_of(batch: Any) -> int:
    """The length of the first array in a batch, at any depth; 1 if there is none."""
    first = next(_arrays(batch), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1


def _arrays(batch: Any) -> Iterator[Tensor | np.ndarray]:
    if isinstance(batch, (Tensor, np.ndarray)):
        yield batch
    elif isinstance(batch, (dict, list, tuple)):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(item)


def append_row(history: dict[str, list], row: dict[str, float]) -> None:
    """Adds an epoch to the history; values that it did not log are nan, so that all lists have the same length."""
    length = max(map(len, history.values()), default=0)
    for name in row:
        if name not in history:
            history[name] = [math.nan] * length
    for name, values in history.items():
        values.append(row.get(name, math.nan))


def write_csv(history: dict[str, list], path: str) -> None:
    """Writes a header of names and one row per epoch; floats are written in full, so that reading restores them exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(history)
    writer.writerows(zip(*history.values(), strict=True))
    write_atomically(path, text.getvalue().encode())
