"""The UvA tutorial from its first computing cell to its last, as a command that compares each cell's results with the tutorial's.

report       the comparisons: printed as they are made, as a table at the end, and saved as JSON
attention    cells 4 to 8
encodings    cells 9 to 13
reverse      cells 14 to 25
anomaly      cells 26 to 42
"""

from __future__ import annotations

import time
from pathlib import Path

from . import anomaly, attention, encodings, reverse
from .report import Report

ANOMALY_EPOCHS = 20


def run(
    seed: int = 42,
    epochs: int = 10,
    anomaly_epochs: int = ANOMALY_EPOCHS,
    output: str | Path = "tutorial_output",
    plots: bool = True,
    progress: bool = True,
) -> int:
    """Runs all cells; returns 0 if every determined number is the tutorial's, else 1.

    Parameters
    ----------
    seed : int, default 42
        Of data, weights, shuffles and dropout; the tutorial's is 42. Cell 5 is drawn from 42 whatever `seed` is.
    epochs, anomaly_epochs : int
        Passes over the training data of the two tasks; the tutorial has 10 and 100.
    output : path-like
        The folder for pictures, checkpoints, histories and ``results.json``.
    plots : bool, default True
        Draw the pictures, which needs matplotlib.
    progress : bool, default True
        Show bars.
    """
    started = time.perf_counter()
    report = Report(Path(output), plots)
    attention.run(report)
    encodings.run(report)
    reverse.run(report, seed, epochs, progress)
    anomaly.run(report, seed, anomaly_epochs, progress)
    report.finish(time.perf_counter() - started, {"seed": seed, "epochs": epochs, "anomaly_epochs": anomaly_epochs})
    return 1 if report.differing else 0


__all__ = ["ANOMALY_EPOCHS", "run"]
