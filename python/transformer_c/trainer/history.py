"""The history of a run: a value of every logged name per epoch, and its CSV file."""

from __future__ import annotations

import csv
import io
import math

from ..checkpoint.files import write_atomically


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
