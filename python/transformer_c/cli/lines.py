"""Texts from files or standard input, one per line, and results as JSON lines or an array: what `embed` and `classify` share."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
from tqdm import tqdm

from ..checkpoint import CheckpointError
from ..checkpoint.files import open_regular, write_atomically
from ..trainer.interrupts import Interrupts
from .options import CommandError, add_threads, check_output, choice, positive

_BATCHES = 4  # of one block, whose texts are sorted by length together, and after which Ctrl-C ends
_LINES = ("", ".json", ".jsonl", ".ndjson", ".txt")  # what names of files of JSON lines end in
DTYPES = ("float32", "float16", "bfloat16", "float64")


def add_options(parser: argparse.ArgumentParser, output: str) -> None:
    """Adds the options of both commands; `output` says what an array has."""
    parser.add_argument("folder", metavar="FOLDER", help="the model: config.json, weights, tokenizer")
    parser.add_argument(
        "input", metavar="INPUT", nargs="*", default=(), help="files with a text per line, or .jsonl; - or none: standard input"
    )
    parser.add_argument("--json", action="store_true", help="lines are JSON, as in files named .jsonl: texts, or objects that have one")
    parser.add_argument("--field", metavar="NAME", help="the name of the text in objects of lines of JSON (default: text)")
    parser.add_argument("--output", metavar="FILE", help=f"write the results there instead of printing them; a .npy file gets {output}")
    parser.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="texts computed at once (default: 32); results do not depend on it"
    )
    parser.add_argument(
        "--max-length", type=positive, metavar="N", help="tokens at which texts are cut off (default: what the folder says)"
    )
    parser.add_argument("--dtype", type=choice(*DTYPES), metavar="D", help=f"of the weights: {', '.join(DTYPES)} (default: the file's)")
    add_threads(parser)
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def opened(make: Callable[[], Any], done: int = 0) -> Any:
    """The result of make(). Errors for wrong options, and for texts after the first `done`, become errors for users of the command line."""
    try:
        return make()
    except CheckpointError:
        raise
    except (ImportError, TypeError, ValueError) as error:
        raise CommandError(f"{error}; texts are counted after the first {done}" if done else str(error)) from error


def run(
    options: argparse.Namespace,
    read: Callable[[Any], Any],
    compute: Callable[[list[Any]], np.ndarray | list[Any]],
    describe: Callable[[Any], dict[str, Any]],
    columns: int | None,
    name: str = "text",
) -> int:
    """Computes the results of all lines, block by block.

    Ctrl-C while lines are awaited ends at once, and otherwise after a block: the output has complete lines only.

    Parameters
    ----------
    read : callable
        Makes a text of a line, or of the value of a JSON line; raises ValueError.
    compute : callable
        The result of each text of a list.
    describe : callable
        What a line of JSON says of a result, next to the text.
    columns : int or None
        Of an array of the results; None where they make none.
    name : str
        Of what was read, in the lines of JSON.
    """
    if options.output == "-":  # as INPUT may be
        options.output = None
    is_array = (options.output or "").endswith(".npy")
    if is_array and columns is None:
        raise CommandError("results of words make no array: name a .jsonl file")

    def described(block: list[tuple[dict[str, Any], Any]], results: Any) -> list[dict[str, Any]]:
        pairs = zip(block, results, strict=True)
        return [{**(given or {name: text}), **describe(each)} for (given, text), each in pairs]

    total = _checked(options)
    sink: Any = _Array(options.output, columns or 0) if is_array else _Lines(options.output)
    interrupts, done = _Interrupts(), 0
    with closing(sink), closing(_bar(options, total)) as bar:
        try:
            for block in _blocks(options, read):
                with interrupts.held():
                    found = opened(functools.partial(compute, [text for _, text in block]), done)
                    sink.write(found if is_array else described(block, found))
                    done += len(block)
                    bar.update(len(block))
                if interrupts.pending:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            sink.finish()
            where = f"; they are in {options.output}" if options.output and done else ""
            raise KeyboardInterrupt(f"stopped after {done} {'text' if done == 1 else 'texts'}{where}") from None
        sink.finish()
    if options.output:
        print(f"{options.output}: {done} {'text' if done == 1 else 'texts'}")
    return 0


def _checked(options: argparse.Namespace) -> int | None:
    """How many lines there are, where only files are read and a bar shows it. Raises for anything that would stop a long run at its end."""
    output = options.output
    if sys.stdin is None and "-" in (options.input or ["-"]):
        raise CommandError("standard input is closed; name files with texts")
    if sys.stdout is None and output is None:
        raise CommandError("standard output is closed; --output names a file to write")
    if options.field is not None and not any(_is_json(options, path) for path in options.input or ["-"]):
        raise CommandError(f"--field {options.field} names the text in objects, but no line is JSON: add --json, or name a .jsonl file")
    if output is not None:
        folder, suffix = os.path.dirname(os.path.abspath(output)), os.path.splitext(output)[1]
        if suffix not in (*_LINES, ".npy"):
            raise CommandError(f"--output {output}: expected a name in .npy, or in .jsonl for lines of JSON")
        if not os.path.isdir(folder):
            raise CommandError(f"--output {output}: there is no folder {folder!r}; make it first")
        if not os.path.basename(output) or os.path.isdir(output):
            raise CommandError(f"--output {output}: expected the name of a file to write, got {'a folder' if output else 'nothing'}")
    total, counted = 0, not options.no_progress and bool(options.input) and "-" not in options.input
    for path in options.input:
        if path != "-":
            try:
                with open_regular(path)[0] as file:
                    total += _count(file) if counted else 0
            except FileNotFoundError as error:
                raise CommandError(f"{path}: {error.strerror}; texts are lines of files, or of standard input") from None
    check_output(output, (path for path in options.input if path != "-"))
    return total if counted else None


def _count(file: Any) -> int:
    """The number of lines, with a last one that no line feed ends."""
    number, last = 0, b"\n"
    while data := file.read(1 << 20):
        number, last = number + data.count(b"\n"), data[-1:]
    return number + (last != b"\n")


def _bar(options: argparse.Namespace, total: int | None) -> Any:
    """A bar on standard error; for somebody who types, a word instead."""
    hidden = options.no_progress or sys.stderr is None
    typed = not hidden and total is None and sys.stdin.buffer.isatty()
    if typed:
        print(f"{options.command}: type a text per line; Ctrl-D ends", file=sys.stderr)
    interval = 0.1 if sys.stderr is not None and sys.stderr.isatty() else 30.0  # logs stay short
    return tqdm(desc=options.command, unit=" texts", total=total, disable=hidden or typed, mininterval=interval)


class _Interrupts(Interrupts):
    """Says that the first Ctrl-C was noticed."""

    def _handle(self, number: Any, frame: Any) -> None:
        super()._handle(number, frame)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody listens
            os.write(sys.stderr.fileno(), b"\nstopping after this block of texts; Ctrl-C again stops at once\n")


# ---- reading --------------------------------------------------------------------------------------------------------------------


def _blocks(options: argparse.Namespace, read: Callable[[Any], Any]) -> Iterator[list[tuple[dict[str, Any], Any]]]:
    """Lists of (the object of a line, its text)."""
    size = _BATCHES * options.batch_size
    block: list[tuple[dict[str, Any], Any]] = []
    for path in options.input or ["-"]:
        name, lines = ("standard input", sys.stdin.buffer) if path == "-" else (path, open_regular(path)[0])
        at_once = 1 if path == "-" and lines.isatty() else size  # a person who types waits for each result
        is_json = _is_json(options, path)
        try:
            for number, line in enumerate(lines, 1):
                try:
                    block.append(_parsed(line, is_json, options.field or "text", read))
                except (ValueError, RecursionError) as error:
                    raise CommandError(f"{name}, line {number}: {error}") from error
                if len(block) >= at_once:
                    yield block
                    block = []
        finally:
            if path != "-":
                lines.close()
    if block:
        yield block


def _is_json(options: argparse.Namespace, path: str) -> bool:
    return options.json or path.endswith((".jsonl", ".ndjson"))


def _parsed(line: bytes, is_json: bool, field: str, read: Callable[[Any], Any]) -> tuple[dict[str, Any], Any]:
    from ..models.texts import of_characters

    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        advice = "; it begins as UTF-16 does: iconv -f utf-16 -t utf-8 converts it" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise ValueError(f"it is not text in UTF-8 ({error.reason} at byte {error.start}){advice}") from None
    if not is_json:
        return {}, read(text)
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_float)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected a value in JSON, got {text!r:.80} ({error.msg} at character {error.pos})") from None
    if isinstance(value, dict) and field not in value:
        raise ValueError(f"the object has no {field!r}; --field names what has the text")
    found = read(value[field] if isinstance(value, dict) else value)
    for part in [found] if isinstance(found, str) else found:
        of_characters(part, "the text")
    return value if isinstance(value, dict) else {}, found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number that JSON has")


def _float(text: str) -> float:
    """A number of an object, which is written again with the result: of 1e999 Python makes infinity, which JSON does not have."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


# ---- writing --------------------------------------------------------------------------------------------------------------------


class _Lines:
    """JSON lines, to a file or standard output; a block is written at once."""

    def __init__(self, path: str | None) -> None:
        self._path, self._file = path, None if path else sys.stdout.buffer

    def write(self, block: list[dict[str, Any]]) -> None:
        if self._file is None:
            self._file = open(self._path or "", "wb")  # noqa: SIM115 (close() closes it; made only when there is something to write)
        try:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in block)
        except RecursionError:  # one level deeper than could be read
            raise CommandError("an object has too many objects inside one another to be written") from None
        self._file.write(text.encode(errors="backslashreplace"))  # halves of surrogates, in fields that are kept: \\ud800, as JSON has them
        self._file.flush()

    def finish(self) -> None:
        if self._file is None:
            self.write([])

    def close(self) -> None:
        if self._path and self._file is not None:
            self._file.close()


class _Array:
    """A .npy file, written when all rows are there, or at Ctrl-C with those that are."""

    def __init__(self, path: str, columns: int) -> None:
        self._path, self._rows = path, [np.empty((0, columns), np.float32)]

    def write(self, rows: np.ndarray) -> None:
        self._rows.append(rows.astype(np.float32))

    def finish(self) -> None:
        data = io.BytesIO()
        np.save(data, np.concatenate(self._rows))
        write_atomically(self._path, data.getvalue())

    def close(self) -> None:
        pass


def number(x: Any) -> float:
    """The float whose text is the shortest that means this float32."""
    return float(str(np.float32(x)))
