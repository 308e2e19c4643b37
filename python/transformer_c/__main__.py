"""The command line: python -m transformer_c COMMAND."""

from __future__ import annotations

import argparse
import sys


def _info(options: argparse.Namespace) -> int:
    from . import show_config

    show_config()
    return 0


def _tutorial(options: argparse.Namespace) -> int:
    from .tutorials.run_uva import run

    return run(seed=options.seed, epochs=options.epochs, progress=not options.no_progress)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _threads(text: str) -> int:
    number = _positive(text)
    if number > 1024:
        raise argparse.ArgumentTypeError(f"must be at most 1024, got {number}")
    return number


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m transformer_c", description="Transformers on NumPy arrays.")
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    info = commands.add_parser("info", help="version, compiler, instruction sets, threads, CUDA")
    info.set_defaults(run=_info)

    tutorial = commands.add_parser("tutorial", help="the UvA tutorial's numbers beside ours, and its Reverse task trained")
    tutorial.add_argument("--seed", type=int, default=42, help="seed of data, weights and shuffles (default: 42)")
    tutorial.add_argument("--epochs", type=_positive, default=10, help="passes over the training data (default: 10)")
    tutorial.add_argument("--threads", type=_threads, help="threads to compute with (default: the CPUs this process may use)")
    tutorial.add_argument("--no-progress", action="store_true", help="no progress bars")
    tutorial.set_defaults(run=_tutorial)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; gives the exit status: 0, 1 (it failed), 2 (usage), 130 (Ctrl-C)."""
    top = parser()
    options = top.parse_args(arguments)
    if options.version:
        from . import __version__

        print(__version__)
        return 0
    if options.command is None:
        top.print_usage(sys.stderr)
        print("python -m transformer_c: error: name a command; --help lists them", file=sys.stderr)
        return 2
    if getattr(options, "threads", None):
        from . import set_num_threads

        set_num_threads(options.threads)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
