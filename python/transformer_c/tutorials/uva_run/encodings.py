"""Cells 9 to 13: positional encodings, the schedule of the learning rate."""

from __future__ import annotations

import math

from ... import plot
from ..._tensor import empty
from ...encoder import PositionalEncoding
from ...nn import Parameter
from ...optim import Adam, CosineWarmupScheduler
from .report import Report, numbers


def run(report: Report) -> None:
    """Runs them, with their three pictures."""
    report.head("Cells 9 to 11", "positional encoding")
    encoding = PositionalEncoding(d_model=48, max_len=96)
    exact = [math.sin(1), math.cos(1), math.sin(10000 ** (-2 / 48)), math.cos(10000 ** (-2 / 48))]
    report.compare(9, "position 2, hidden dimensions 1 to 4", numbers(exact), numbers(encoding.pe[0, 1, :4]))
    report.picture("cell_10_positional_encoding", lambda: plot.positional_encoding(encoding))
    report.picture("cell_11_encoding_curves", lambda: plot.positional_encoding(encoding, dimensions=[1, 2, 3, 4], positions=16))

    report.head("Cells 12 and 13", "cosine warm-up schedule")
    schedule = CosineWarmupScheduler(Adam([Parameter(empty(4, 4))], lr=1e-3), warmup=100, max_iters=2000)
    at = [0, 50, 100, 1000, 1999]
    exact = [0.5 * (1 + math.cos(math.pi * i / 2000)) * min(1.0, i / 100) for i in at]
    report.compare(12, f"factor at steps {', '.join(map(str, at))}", numbers(exact), numbers([schedule.get_lr_factor(i) for i in at]))
    report.picture("cell_13_learning_rate", lambda: plot.learning_rate(schedule))
