"""Reports comparisons: lines as they are made, pictures, a table at the end, results.json."""

from __future__ import annotations

import contextlib
import csv
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import __version__
from ...checkpoint.files import write_atomically
from ...config import get_num_threads

# Entries of the last column.
SAME = "same"  # determined by the tutorial, and equal to all printed digits
DIFFERS = "DIFFERS"
OTHER_DATA = "other images"  # the tutorial's number is for CIFAR100, ours for the stand-ins
OURS = ""  # the tutorial gives no number


@dataclass(frozen=True)
class Row:
    """One comparison."""

    cell: int
    what: str
    tutorial: str
    ours: str
    verdict: str


class Report:
    """Collects rows and pictures."""

    def __init__(self, output: Path, plots: bool) -> None:
        self.output, self.plots = output, plots
        self.rows: list[Row] = []
        self.pictures: list[str] = []
        output.mkdir(parents=True, exist_ok=True)

    @property
    def differing(self) -> list[Row]:
        """The rows whose determined number differs from the tutorial's."""
        return [row for row in self.rows if row.verdict == DIFFERS]

    def head(self, cells: str, title: str) -> None:
        """Begins a group of cells."""
        print(f"\n{cells}: {title}", flush=True)

    def note(self, text: str) -> None:
        """Prints a line without a comparison."""
        print(f"  {text}", flush=True)

    def add(self, cell: int, what: str, tutorial: str, ours: str, verdict: str = OURS) -> None:
        """Adds a row whose number is not determined by the tutorial."""
        self.rows.append(Row(cell, what, tutorial, ours, verdict))
        beside = f"{ours}   (tutorial: {tutorial})" if tutorial else ours
        print(f"  [{cell}] {what}: {beside}{f'   {verdict}' if verdict in (SAME, DIFFERS) else ''}", flush=True)

    def compare(self, cell: int, what: str, tutorial: str, ours: str, agree: bool | None = None) -> None:
        """Adds a row whose number the tutorial determines; texts agree if they are equal, unless `agree` is given."""
        self.add(cell, what, tutorial, ours, SAME if (tutorial == ours if agree is None else agree) else DIFFERS)

    def picture(self, name: str, draw: Callable[[], Any]) -> None:
        """Draws and writes a figure, unless pictures are turned off."""
        if not self.plots:
            return
        path = self.output / f"{name}.png"
        draw().savefig(path, dpi=110)
        self.pictures.append(path.name)
        self.note(f"picture: {path}")

    def history(self, task: str) -> dict[str, np.ndarray]:
        """The trainer's history of a task; empty if nothing was trained."""
        path = self.output / task / "history.csv"
        if not path.exists():
            return {}
        with open(path, newline="") as file:
            names, *rows = csv.reader(file)
        return {name: np.array(column, np.float64) for name, column in zip(names, zip(*rows, strict=True), strict=True)}

    def finish(self, seconds: float, options: dict[str, Any]) -> None:
        """Prints the table and writes results.json."""
        print(f"\n{table(self.rows)}")
        same = sum(row.verdict == SAME for row in self.rows)
        print(
            f"\n{same} numbers that the tutorial determines are the same, {len(self.differing)} differ; {seconds:.0f} s; output in {self.output}/"
        )
        held = {
            "transformer_c": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "cpu": cpu_model(),
            "threads": get_num_threads(),
            **options,
            "seconds": round(seconds, 1),
            "pictures": self.pictures,
            "rows": [asdict(row) for row in self.rows],
        }
        write_atomically(str(self.output / "results.json"), (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode())


def cpu_model() -> str:
    """The name of this machine's CPU, if the system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def table(rows: list[Row]) -> str:
    """All rows under each other."""
    head = ("cell", "what", "tutorial", "transformer_c", "")
    lines = [head, *((str(r.cell), r.what, r.tutorial, r.ours, r.verdict) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(part.rjust(w) if i == 0 else part.ljust(w) for i, (part, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    text.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in text)


def numbers(values: Any, decimals: int = 4) -> str:
    """A few numbers with the decimals that the tutorial prints."""
    return " ".join(f"{v:.{decimals}f}" for v in np.asarray(values, np.float64).reshape(-1).tolist())


def shape(value: Any) -> str:
    """A shape as text."""
    return str(tuple(value.shape))


def print_history(report: Report, history: dict[str, np.ndarray]) -> None:
    """Prints one line per epoch for at most ten epochs, including the last."""
    count = len(history.get("epoch", ()))
    for i in sorted({*range(0, count, max(1, -(-count // 10))), count - 1} if count else ()):
        report.note(
            f"epoch {int(history['epoch'][i]):3}  loss {history['train_loss'][i]:.5f}  val accuracy {100 * history['val_acc'][i]:6.2f} %"
        )
