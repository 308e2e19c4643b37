"""What the options of several commands have in common."""

from __future__ import annotations

import argparse
import math
import re

MAX_THREADS = 1024


class CommandError(Exception):
    """A command cannot do what it was asked for; the message is all that its user needs."""


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def at_least_two(text: str) -> int:
    """A whole number from 2."""
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"must be at least 2, got {number}")
    return number


def threads(text: str) -> int:
    """A number of threads."""
    number = positive(text)
    if number > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_THREADS}, got {number}")
    return number


def seed(text: str) -> int:
    """What tc.manual_seed takes."""
    number = int(text)
    if not -(2**63) <= number < 2**64:
        raise argparse.ArgumentTypeError(f"must be from -2**63 to 2**64 - 1, got {number}")
    return number


def share(text: str) -> float:
    """A number from 0 to 1, 1 excluded: a dropout rate."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return number


def above_zero(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text}")
    return number


def device(text: str) -> str:
    """A device's name."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:0, got {text!r}")
    return text


for _type, _name in ((positive, "int"), (at_least_two, "int"), (threads, "int"), (seed, "int"), (share, "float"), (above_zero, "float")):
    _type.__name__ = _name  # argparse says "invalid int value: 'x'"


def add_threads(parser: argparse.ArgumentParser) -> None:
    """--threads, which main() puts in force."""
    parser.add_argument(
        "--threads",
        type=threads,
        metavar="N",
        help="threads to compute with (default: the CPUs this process may use); results do not depend on it",
    )
