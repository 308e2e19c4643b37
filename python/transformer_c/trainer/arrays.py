"""Data given as arrays and frames: the datasets that a trainer makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core import Tensor
from .._frames import as_array, is_array, is_frame, is_numbers, numbers_of
from .._tensor import as_tensor
from ..data import DataLoader, Dataset


class Rows(Dataset):
    """The rows of one array, or of several of equal length; a batch of several is a list, as a DataLoader's.

    Parameters
    ----------
    name : str
        The argument that the data were given for, for error messages.
    given : array or frame, or sequence of them
    dtype : np.dtype
        The dtype of the model, to which floating arrays are cast.
    """

    def __init__(self, name: str, given: Any, dtype: np.dtype) -> None:
        self.is_single = not isinstance(given, tuple)
        parts = (given,) if self.is_single else given
        self.arrays = [_as_tensor(name if self.is_single else f"{name}[{i}]", part, dtype) for i, part in enumerate(parts)]
        lengths = [len(a) if a.ndim else None for a in self.arrays]
        if None in lengths or len(set(lengths)) != 1:
            raise ValueError(
                f"{name} has arrays of shapes {', '.join(str(a.shape) for a in self.arrays)}: their first axes must be equally long"
            )
        if not lengths[0]:
            raise ValueError(f"{name} has no rows")

    def __repr__(self) -> str:
        return f"Rows({', '.join(f'{a.dtype.name} {a.shape}' for a in self.arrays)})"

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> Any:
        rows = tuple(a[index] for a in self.arrays)
        return rows[0] if self.is_single else rows

    def __getitems__(self, indices: Sequence[int]) -> Any:
        return self[np.asarray(indices, np.int64)]


def are_arrays(given: Any) -> bool:
    """Whether `given` is an array, nested lists of numbers, or a frame, or a tuple of them. The first of a tuple is no list of anything else,
    except of arrays, one per row, if it is followed by a number per row."""
    if not isinstance(given, tuple):
        return _is_array(given)
    if not given or not all(_is_array(part) or isinstance(part, list) for part in given):
        return False
    return _is_array(given[0]) or (all(map(_is_array, given[0])) and any(_are_labels(part, len(given[0])) for part in given[1:]))


def as_loader(name: str, given: Any, dtype: np.dtype, batch_size: int, shuffle: bool = False) -> Any:
    """Arrays, frames and datasets as a DataLoader; anything else is returned unchanged."""
    if are_arrays(given):
        given = Rows(name, given, dtype)
    elif isinstance(given, list) and len(given) > 1 and all(map(_is_array, given)):  # a list is of batches
        shapes = [np.shape(part) for part in given]
        if all(shapes) and len({shape[0] for shape in shapes}) == 1 and len(set(map(len, shapes))) > 1:
            raise TypeError(f"{name} is a list of arrays of one length; arrays that belong together are a tuple: (X, y)")
    elif isinstance(given, (list, tuple)) and given and all(map(_is_row, given)):
        kinds = ", ".join(type(part).__name__ for part in given[0])
        raise TypeError(
            f"{name} is a {type(given).__name__} of rows ({kinds}), where batches are expected; rows become batches by tc.data.DataLoader(rows, batch_size={batch_size}"
            f"{', shuffle=True' if shuffle else ''}), or as two arrays, (X, y)"
        )
    return DataLoader(given, batch_size=batch_size, shuffle=shuffle) if isinstance(given, Dataset) else given


def _is_row(item: Any) -> bool:
    """Is this most likely an input and its target, no batch: something and a number, or a vector and one of a single element?"""
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return False
    if isinstance(item[1], (int, float, np.number)):
        return True
    if not all(isinstance(part, (Tensor, np.ndarray)) or is_array(part) or is_numbers(part) for part in item):
        return False
    try:
        x, y = map(np.shape, item)
    except ValueError:  # nested lists of different lengths
        return False
    return not y or (len(x) == 1 and y == (1,) and x != y)


def _are_labels(value: Any, count: int) -> bool:
    if isinstance(value, (Tensor, np.ndarray)):
        return value.shape == (count,)
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, (int, float, np.number, np.bool_)) or np.shape(v) == () for v in value)
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) or is_frame(value) or is_numbers(value) or is_array(value)


def _as_tensor(name: str, value: Any, dtype: np.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return _cast(value.detach(), dtype)
    if is_frame(value):
        try:
            return _cast(as_tensor(np.ascontiguousarray(as_array(value))), dtype)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
    try:
        array = numbers_of(value, name)
    except ValueError:
        raise ValueError(f"{name} has lists of different lengths, which make no array: pad them to one length") from None
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} has values that are not numbers ({error}): turn text and categories into numbers first") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} is an array of dtype {array.dtype}; expected numbers: turn text and categories into numbers first")
    return _cast(as_tensor(np.ascontiguousarray(array)), dtype)


def _cast(array: Tensor, dtype: np.dtype) -> Tensor:
    """Floating arrays in the model's dtype."""
    return array.to(dtype) if array.dtype.kind in "fV" and array.dtype != dtype else array
