"""Runs ``python -m transformer_c COMMAND``; see cli."""

import io
import os
import sys

from .cli import main


def prepare() -> None:
    """What standard output cannot encode, such as the name of a file, is escaped and ends no run; errors never go where results go."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # closed: print() would take standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open until Python ends)


if __name__ == "__main__":
    prepare()
    sys.exit(main())
