"""Reads the answers to texts that a training or a score is given: classes, several labels of each text, or numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._core import Tensor
from .problems import MULTI, REGRESSION, SINGLE, Head, Problem
from .texts import listed


class Given(NamedTuple):
    """Answers to texts: labels, or an array (N, C) and the names of its columns where it has some."""

    problem: Problem
    values: Any
    names: list[str] | None = None


def read(y: Any, number: int, problem: Problem | None, what: str = "text") -> Given:
    """The answers to `number` texts, or of what else there is one of each.

    Without a problem the values decide, as in scikit-learn: two dimensions of 0 and 1 are several labels of each text, floats are numbers to
    be predicted, str and int are classes.
    """
    names = None
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        names, y = _columns(y), y.to_numpy()
    values = listed(y.toarray() if hasattr(y, "toarray") else np.asarray(y) if isinstance(y, Tensor) else y, "labels", "y")
    if len(values) != number:
        raise ValueError(f"there are {number} {what}s but {len(values)} labels")
    values = [np.asarray(value) if _is_row(value) and hasattr(value, "__array__") else value for value in values]
    rows = [i for i, value in enumerate(values) if _is_row(value)]
    if rows and len(rows) == len(values):
        return _table(values, names, problem)
    if rows:
        raise TypeError(f"labels must be all of one kind, but number {rows[0]} is {values[rows[0]]!r:.80} and others are single values")
    return _column(values, problem)


def arranged(given: Given, head: Head) -> np.ndarray:
    """The columns of a table in the order of a head's outputs."""
    own = [str(name) for name in head.classes.tolist()]
    of = f"the {head.problem.outputs} are {len(own)}: {', '.join(own):.200}"
    if given.values.shape[1] != len(own):
        raise ValueError(f"y has {given.values.shape[1]} {'column' if given.values.shape[1] == 1 else 'columns'}, but {of}")
    if given.names is None or head.classes.dtype.kind in "iu":
        return given.values
    if set(given.names) != set(own):
        raise ValueError(f"y has the columns {', '.join(given.names):.200}, but {of}")
    return given.values[:, [given.names.index(name) for name in own]]


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) or getattr(value, "ndim", 0) > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_numeric(row: Any) -> bool:
    if isinstance(row, np.ndarray) and row.dtype.kind != "O":
        return row.dtype.kind in "biuf"
    return not isinstance(row, (set, frozenset)) and all(_is_number(value) or isinstance(value, (bool, np.bool_)) for value in row)


def _columns(frame: Any) -> list[str] | None:
    """The names of a frame's columns; None where they are only counted."""
    columns = list(frame.columns)
    names = list(map(str, columns))
    if len(set(names)) < len(names):
        raise ValueError(f"y has two columns of one name: {', '.join(names):.200}")
    return None if columns == list(range(len(columns))) else names


def _column(values: list[Any], problem: Problem | None) -> Given:
    """Of one value for each text."""
    if problem is None:
        floats = any(isinstance(value, (float, np.floating)) for value in values)
        problem = REGRESSION if floats and all(map(_is_number, values)) else SINGLE
    if problem is SINGLE:
        return Given(SINGLE, values)
    if problem is MULTI:
        raise TypeError(f"for {MULTI.name!r} y must be an array of 0 and 1, (texts, labels); got single values, such as {values[:1]!r:.80}")
    for i, value in enumerate(values):
        if not _is_number(value):
            raise TypeError(f"for {REGRESSION.name!r} y must be numbers, but number {i} is {value!r:.80} ({type(value).__name__})")
    return Given(REGRESSION, _finite(np.array(values, np.float64)[:, None]))


def _table(rows: list[Any], names: list[str] | None, problem: Problem | None) -> Given:
    """Of a list of values for each text."""
    for i, row in enumerate(rows):
        if not _is_numeric(row):
            raise TypeError(
                f"labels number {i} are {row!r:.80}; for several labels of a text y is an array of 0 and 1, (texts, labels), which "
                "scikit-learn's MultiLabelBinarizer makes of lists of labels, or a frame whose columns are named as the labels"
            )
        if len(row) != len(rows[0]):
            raise ValueError(f"labels number {i} are {len(row)} values, but number 0 are {len(rows[0])}; expected as many for each text")
    table = np.array([np.asarray(row) for row in rows], np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"y must have one label of each text or a column of each label, got the shape {table.shape}")
    binary = bool(((table == 0) | (table == 1)).all())
    if problem is None:
        problem = MULTI if binary else REGRESSION
        if table.shape[1] == 1:
            raise ValueError(f"y has the shape {table.shape}; one label of each text is y[:, 0]")
    if problem is SINGLE:
        raise TypeError(f"for {SINGLE.name!r} y must be one label of each text, but it has the shape {table.shape}")
    if problem is MULTI and not binary:
        raise ValueError(f"for {MULTI.name!r} y must be 0 and 1, but it has {table[(table != 0) & (table != 1)][0]:g}")
    return Given(problem, _finite(table), names)


def _finite(table: np.ndarray) -> np.ndarray:
    whole = np.isfinite(table)
    if not whole.all():
        row = int(np.argmin(whole.all(1)))
        raise ValueError(f"labels must be finite numbers, but number {row} is {table[row][~whole[row]][0]}")
    return table
