"""The common part of several commands' options."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..checkpoint import CheckpointError

MAX_THREADS = 1024


class CommandError(Exception):
    """A command cannot do what was asked; its user needs only the message."""


class UsageError(CommandError):
    """The command was used wrongly: its usage is shown, and the exit status is 2."""


EXPECTED = (CommandError, CheckpointError, OSError, MemoryError)  # told without a traceback


@dataclass(frozen=True)
class Option:
    """One option of a task: its reader, its default and its help text.

    If the default depends on --model, `by_model` has it by the model's name; models that are not in it do not have the option.
    """

    type: Callable[[str], Any]
    default: Any
    help: str
    metavar: str = "N"
    by_model: Mapping[str, Any] | None = None

    @property
    def shown(self) -> str:
        """The default as shown in --help and the documentation; empty without one."""
        if self.by_model is None:
            return "" if self.default is None else str(self.default)
        values = list(dict.fromkeys(self.by_model.values()))
        return ", ".join(f"{value} ({', '.join(m for m, v in self.by_model.items() if v == value)})" for value in values)

    def add_to(self, parser: argparse._ActionsContainer, name: str) -> None:
        """Adds it to a parser. An option that is not given is None; its default is filled in later, when it is known which were given."""
        text = self.help + (f" (default: {self.shown})" if self.shown else "")
        parser.add_argument(flag(name), type=self.type, metavar=self.metavar, help=text.replace("%", "%%"))


def flag(name: str) -> str:
    """An option's name as it is typed."""
    return "--" + name.replace("_", "-")


def choice(*names: str) -> Callable[[str], str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(names)}, got {text!r}")
        return text

    return read


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


def vocabulary_size(text: str) -> int:
    """A whole number from 3: padding, the unknown word and one more."""
    number = int(text)
    if number < 3:
        raise argparse.ArgumentTypeError(f"must be at least 3, got {number}")
    return number


def up_to(most: int) -> Callable[[str], int]:
    """A whole number from 1 to `most`."""

    def read(text: str) -> int:
        number = positive(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {number}")
        return number

    read.__name__ = "int"
    return read


def threads(text: str) -> int:
    """A number of threads."""
    return up_to(MAX_THREADS)(text)


def seed(text: str) -> int:
    """A seed for tc.manual_seed."""
    number = int(text)
    if not -(2**63) <= number < 2**64:
        raise argparse.ArgumentTypeError(f"must be from -2**63 to 2**64 - 1, got {number}")
    return number


def small_seed(text: str) -> int:
    """A seed for np.random.RandomState."""
    number = int(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"must be from 0 to 2**32 - 1, got {number}")
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


for _type, _name in (
    *((read, "int") for read in (positive, at_least_two, vocabulary_size, threads, seed, small_seed)),
    *((read, "float") for read in (share, above_zero)),
):
    _type.__name__ = _name  # argparse says "invalid int value: 'x'"


def check_output(output: str | None, read: Iterable[str]) -> None:
    """Raises if the file to write is one of those that are read."""
    for path in read if output is not None and os.path.exists(output) else ():
        if os.path.exists(path) and os.path.samefile(path, output or ""):
            raise CommandError(f"{path} is read and cannot be the output as well")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds --threads, which main() applies."""
    parser.add_argument(
        "--threads",
        type=threads,
        metavar="N",
        help="threads to compute with (default: the CPUs this process may use); results do not depend on it",
    )
