"""The command line: one module per command, with ``add(commands)``, which describes it, and ``run(options)``, which runs it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ..distributed.launchers import rank_by_launcher
from . import bench, classify, embed, generate, info, predict, selftest, train, tutorial
from .options import EXPECTED

PROGRAM = "python -m transformer_c"
COMMANDS = (info, tutorial, train, predict, embed, classify, generate, bench, selftest)


class Parser(argparse.ArgumentParser):
    """Of several processes that a launcher started, the first one says what is wrong. An argument that a command does not know is its own error, with
    its usage; files may be named after options."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        rest = next((action.dest for action in self._get_positional_actions() if action.nargs == "*"), None)
        if rest is not None and all(each == "-" or not each.startswith("-") for each in unknown):
            setattr(found, rest, [*getattr(found, rest), *unknown])
            return found, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        if rank_by_launcher() == 0:
            super()._print_message(message, file)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = Parser(prog=PROGRAM, description="Transformers on NumPy arrays.")
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, 1 (it failed), 2 (usage), 130 (Ctrl-C)."""
    top = parser()
    options = top.parse_args(arguments)
    if options.version:
        from .._version import __version__

        print(__version__)
        return 0
    if options.command is None:
        top.print_usage(sys.stderr)
        print(f"{PROGRAM}: error: name a command; --help lists them", file=sys.stderr)
        return 2
    if getattr(options, "threads", None):
        from .. import set_num_threads

        set_num_threads(options.threads)
    try:
        return options.run(options)
    except KeyboardInterrupt as interrupt:
        print(f"\n{str(interrupt) or 'interrupted'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush when Python ends
        return 1
    except EXPECTED as error:
        print(f"{PROGRAM} {options.command}: error: {_said(error)}", file=sys.stderr)
        return 1


def _said(error: BaseException) -> str:
    """The text of an error for users of the command line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename or repr(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


__all__ = ["main", "parser"]
