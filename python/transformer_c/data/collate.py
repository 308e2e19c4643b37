"""Batches from samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core import Tensor
from .._frames import is_array, numbers_of
from .._tensor import as_tensor, stack, tensor


def default_collate(samples: Sequence[Any]) -> Any:
    """Stacks samples into a batch, element by element through tuples, lists and dicts.

    Numbers become float64 if one of them is a float, else int64, or bool if all are; floats of NumPy keep their dtype.
    """
    if not len(samples):
        raise ValueError("there are no samples to make a batch of")
    first = samples[0]
    if isinstance(first, (Tensor, np.ndarray)):
        _check_alike("shapes", [np.shape(sample) for sample in samples])
        return stack(list(samples)) if isinstance(first, Tensor) else as_tensor(np.stack(samples))
    if isinstance(first, (int, float, np.number, np.bool_)):
        return tensor(_numbers(samples))
    if isinstance(first, dict):
        return {key: default_collate([s[key] for s in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        if not all(hasattr(sample, "__len__") for sample in samples):
            raise _of_types(samples)
        _check_alike("lengths", [len(s) for s in samples])
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(column)) for column in zip(*samples, strict=True)))
    if isinstance(first, (tuple, list)):
        return [default_collate(list(column)) for column in zip(*samples, strict=True)]
    if isinstance(first, (str, bytes)):
        return list(samples)
    if is_array(first):
        return default_collate([numbers_of(sample, "a sample") for sample in samples])
    raise TypeError(f"samples of type {type(first).__name__} cannot be stacked into a batch; pass collate_fn=")


def _check_alike(what: str, sizes: list[Any]) -> None:
    """Raises if the samples differ in their lengths or shapes."""
    for i, size in enumerate(sizes):
        if size != sizes[0]:
            raise ValueError(
                f"samples of different {what} make no batch: {sizes[0]} and, at place {i} of the batch, {size}; pad them to one length, "
                "or pass collate_fn="
            )


def _of_types(samples: Sequence[Any]) -> TypeError:
    names = sorted({type(sample).__name__ for sample in samples})
    return TypeError(f"samples of types {', '.join(names)} cannot be stacked into a batch; pass collate_fn=")


def _numbers(samples: Sequence[Any]) -> np.ndarray:
    """An array of numbers of a dtype that holds all of them, in whatever order they come: bool, int64, or the dtype of the floats."""
    if all(isinstance(sample, np.floating) for sample in samples):
        return np.array(samples)
    kinds = {"i" if isinstance(sample, int) and not isinstance(sample, bool) else np.asarray(sample).dtype.kind for sample in samples}
    if not kinds <= set("biuf"):
        raise _of_types(samples)
    try:
        return np.array(samples, np.float64 if "f" in kinds else np.bool_ if kinds == {"b"} else np.int64)
    except OverflowError:
        largest = max(samples, key=abs)
        raise OverflowError(f"{largest} is too large for a batch of {'float64' if 'f' in kinds else 'int64'}; pass collate_fn=") from None


__all__ = ["default_collate"]
