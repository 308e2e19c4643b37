"""bench: runs the repository's benchmarks on this machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from .options import CommandError

REPOSITORY = Path(__file__).resolve().parents[3]


def add(commands) -> None:
    """Describes the command. All arguments after its name are passed to the benchmarks, which have options of their own."""
    parser = commands.add_parser(
        "bench",
        help="times the workloads, and PyTorch's where it is installed; needs a checkout of the repository",
        add_help=False,
        prefix_chars="\0",
    )
    parser.add_argument("arguments", nargs="*", metavar="...")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs them in a process of their own, as they time processes."""
    if not (REPOSITORY / "benchmarks" / "__main__.py").is_file() or not (REPOSITORY / "csrc").is_dir():
        raise CommandError(
            "the benchmarks are in the repository, not in the installed package: in a checkout of it run `make bench`, "
            "or `python -m benchmarks` with a Python that has transformer_c"
        )
    return subprocess.call([sys.executable, "-m", "benchmarks", *options.arguments], cwd=REPOSITORY)
