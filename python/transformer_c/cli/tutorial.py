"""tutorial: the UvA tutorial, its numbers beside ours."""

from __future__ import annotations

import argparse

from .options import add_threads, positive


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser("tutorial", help="the UvA tutorial's numbers beside ours, and its Reverse task trained")
    parser.add_argument("--seed", type=int, default=42, help="seed of data, weights and shuffles (default: 42)")
    parser.add_argument("--epochs", type=positive, default=10, help="passes over the training data (default: 10)")
    add_threads(parser)
    parser.add_argument("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints and trains."""
    from ..tutorials import run_uva

    return run_uva.run(seed=options.seed, epochs=options.epochs, progress=not options.no_progress)
