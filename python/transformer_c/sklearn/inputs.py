"""What the estimators take: tables, sequences and texts, as arrays that the model takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._frames import as_array, is_frame

_LIMIT = 1e6  # standard deviations; a number further away is the last one that counts


def kind_of(X: Any) -> str:
    """ "table", "sequences" or "texts"."""
    if isinstance(X, str):
        raise ValueError("X is one str; several texts are expected, as a list: [text]")
    if not hasattr(X, "shape") and isinstance(X, (list, tuple)):
        return _kind_of_list(X)
    if hasattr(X, "to_numpy") and getattr(X, "ndim", 0) == 1:
        X = X.to_numpy()
    if getattr(X, "ndim", None) == 1 and len(X) and isinstance(X[0], str):
        return "texts"
    return "sequences" if getattr(X, "ndim", None) == 3 else "table"


def _kind_of_list(X: Sequence[Any]) -> str:
    if not X:
        raise ValueError("X has no samples; at least one is expected")
    if all(isinstance(text, str) for text in X):
        return "texts"
    if any(isinstance(text, str) for text in X):
        at = next(i for i, text in enumerate(X) if not isinstance(text, str))
        raise ValueError(f"X has texts, but sample {at} is {X[at]!r:.80} ({type(X[at]).__name__})")
    if not isinstance(X[0], (list, tuple, np.ndarray)):
        return "table"
    lengths = {len(row): i for i, row in reversed([*enumerate(X)]) if isinstance(row, (list, tuple, np.ndarray))}
    if len(lengths) > 1:
        (one, at), (other, elsewhere) = sorted(lengths.items(), key=lambda pair: pair[1])[:2]
        raise ValueError(
            f"the samples of X must have one length, but sample {at} has length {one} and sample {elsewhere} has length {other}"
        )
    return "sequences" if len(X[0]) and isinstance(X[0][0], (list, tuple, np.ndarray)) else "table"


@contextmanager
def names_columns(X: Any) -> Iterator[None]:
    """An error in a frame with columns that are not numbers names these."""
    try:
        yield
    except ValueError as error:
        if is_frame(X):
            try:
                as_array(X)
            except TypeError as named:
                raise ValueError(str(named)) from error
        raise


class Scale:
    """Standardises columns: the mean becomes 0 and the deviation 1; a constant column only loses its mean.

    Numbers are divided by the largest of their column first, so that squares of large ones are finite.

    Parameters
    ----------
    values : ndarray, shape (N, ..., F)
    weights : ndarray, shape (N,)
        Of the samples.
    least : float
        The deviation, as a share of the largest number, above which a column is not constant.
    """

    def __init__(self, values: np.ndarray, weights: np.ndarray, least: float) -> None:
        axes = tuple(range(values.ndim - 1))
        shares = (weights / weights.sum()).reshape(-1, *[1] * (values.ndim - 1)) / max(np.prod(values.shape[1:-1], dtype=int), 1)
        largest = np.abs(values).max(axes)
        self.largest = np.where(largest > 0, largest, 1.0)
        relative = values / self.largest
        self.mean = (relative * shares).sum(axes)
        deviation = np.sqrt(((relative - self.mean) ** 2 * shares).sum(axes))
        self.deviation = np.where(deviation > least, deviation, 1.0)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Float32."""
        with np.errstate(over="ignore"):
            return np.clip((values / self.largest - self.mean) / self.deviation, -_LIMIT, _LIMIT).astype(np.float32)

    def undone(self, values: np.ndarray) -> np.ndarray:
        """Float64, from what the model gives; the largest float where the number is larger."""
        with np.errstate(over="ignore"):
            found = (values * self.deviation + self.mean) * self.largest
        return np.clip(found, -np.finfo(np.float64).max, np.finfo(np.float64).max)


__all__ = ["Scale", "kind_of", "names_columns"]
