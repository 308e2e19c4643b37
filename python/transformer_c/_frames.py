"""Arrays and tables of other libraries (PyTorch, pandas, polars, ...); none of these libraries is imported here."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_frame(value: Any) -> bool:
    """Is this a table or a column of another library?"""
    return hasattr(value, "to_numpy") or hasattr(value, "__dataframe__")


def is_array(value: Any) -> bool:
    """Is this an array of another library, or memory that np.asarray reads as one? Classes and NumPy's scalars are not."""
    if isinstance(value, (type, np.generic)):
        return False
    return isinstance(value, memoryview) or hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def is_numbers(value: Any) -> bool:
    """Whether `value` is a list, or nested lists, of Python numbers, which np.asarray makes an array."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, (int, float)) or is_numbers(v) for v in value)


def _unusable(value: Any) -> str:
    """The columns that are not numbers, and what to do."""
    kind = type(value).__name__
    wrong = []
    for name in getattr(value, "columns", ()):
        try:
            as_array(value[name])
        except TypeError:
            wrong.append(str(name))
    if not wrong:
        return f"the values of this {kind} are not numbers; convert them first, for instance .to_numpy(dtype='float32')"
    few = ", ".join(map(repr, wrong[:5])) + (", ..." if len(wrong) > 5 else "")
    return f"the {kind} has columns that are not numbers: {few}; leave them out, or encode them as numbers first"


def as_array(value: Any) -> np.ndarray:
    """The numbers of a frame or column, as an ndarray; TypeError that names the columns which are not numbers."""
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if array.dtype.kind == "O":  # columns of several dtypes, or a nullable one
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError(_unusable(value)) from None
    if array.dtype.kind not in "biuf":
        raise TypeError(_unusable(value))
    return array
