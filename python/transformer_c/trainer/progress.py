"""Progress bars, and the table that ``test`` prints."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping

from tqdm import tqdm

SECONDS_BETWEEN_VALUES = 0.1
FORMAT = "{desc} |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"  # leaves room for two values in 80 columns


class Bar:
    """One line for a pass over batches, followed by values; used as a context manager.

    Where standard error is neither a terminal nor a notebook, the line is written rarely, so that logs stay short.
    """

    def __init__(self, enabled: bool, label: str, total: int | None, done: int = 0, leave: bool = True) -> None:
        on_terminal = sys.stderr is not None and sys.stderr.isatty()
        watched = on_terminal or type(sys.stderr).__module__.startswith("ipykernel")  # a notebook
        # A temporary line is not written to a log; a process without standard error (pythonw, a service) shows nothing.
        enabled = enabled and sys.stderr is not None and (leave or on_terminal)
        columns, rows = shutil.get_terminal_size() if on_terminal else (None, None)  # 80 and 24 if a terminal reports 0
        self._shown = 0.0
        self._bar = tqdm(
            total=total, initial=done, desc=label, bar_format=FORMAT, disable=not enabled, leave=leave,
            ncols=columns, nrows=rows, mininterval=SECONDS_BETWEEN_VALUES if watched else 30.0,
        )  # fmt: skip

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *unused) -> None:
        self._bar.close()

    def due(self) -> bool:
        """Whether it is time to show values again."""
        return not self._bar.disable and time.monotonic() - self._shown >= SECONDS_BETWEEN_VALUES

    def advance(self) -> None:
        """Counts one batch as done."""
        self._bar.update()

    def show(self, values: Mapping[str, float]) -> None:
        """Shows values after the bar."""
        if not self._bar.disable:
            self._bar.set_postfix_str(", ".join(f"{name}={text(v)}" for name, v in values.items()), refresh=False)
            self._shown = time.monotonic()


def text(value: float) -> str:
    """A number formatted for bars and tables."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"


def print_table(results: list[dict[str, float]], heading: str) -> None:
    """Prints names and values of every loader on standard output."""
    for index, values in enumerate(results):
        title = heading if len(results) == 1 else f"{heading} {index}"
        width = max([len(title), *map(len, values)])
        rule = f"{'-' * width}  {'-' * 10}"
        print(f"{title:{width}}  {'value':>10}\n{rule}")
        for name, value in values.items():
            print(f"{name:{width}}  {text(value):>10}")
