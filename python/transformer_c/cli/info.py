"""info: prints facts about this build and its settings."""

from __future__ import annotations

import argparse


def add(commands) -> None:
    """Describes the command."""
    commands.add_parser("info", help="version, compiler, instruction sets, threads, CUDA").set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints it."""
    from .. import show_config

    show_config()
    return 0
