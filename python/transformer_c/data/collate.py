"""Batches from samples."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from .._core import Tensor
from .._frames import is_array, numbers_of
from .._joining import stack
from .._nested import map_nested
from .._tensor import as_tensor, tensor


def default_collate(samples: Sequence[Any]) -> Any:
    """Stacks samples into a batch, element by element through tuples, lists and mappings, which keep their type where that can be.

    Numbers become float64 if one of them is a float, else int64, or bool if all are; floats of NumPy keep their dtype, and int32 and uint8 do.
    """
    if not len(samples):
        raise ValueError("there are no samples to make a batch of")
    first = samples[0]
    if isinstance(first, (Tensor, np.ndarray)):
        _check_alike("shapes", [s.shape if isinstance(s, (Tensor, np.ndarray)) else np.shape(s) for s in samples])
        return stack(list(samples)) if isinstance(first, Tensor) else as_tensor(np.stack(samples))
    if isinstance(first, (int, float, np.number, np.bool_)):
        return tensor(_numbers(samples))
    if isinstance(first, Mapping):
        return _like(first, {key: default_collate([s[key] for s in samples]) for key in first})
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


def default_convert(sample: Any) -> Any:
    """Makes Tensors of the arrays and numbers of NumPy in a sample, through tuples, lists and dicts; all else stays what it is.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.data.default_convert({"x": np.array([1.0]), "name": "first"})
    {'x': tensor([1.], dtype=float64), 'name': 'first'}
    """
    return map_nested(lambda value: as_tensor(value) if getattr(getattr(value, "dtype", None), "kind", "O") in "biuf" else value, sample)


def _like(mapping: Mapping, items: dict) -> Mapping:
    """The items as a mapping of the same type, or a dict where that type takes none."""
    if type(mapping) is dict:
        return items
    try:
        if not isinstance(mapping, MutableMapping):
            return type(mapping)(items)  # type: ignore[call-arg]
        clone = copy(mapping)  # which has what else is in it
        clone.update(items)
        return clone
    except TypeError:
        return items


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
    """An array of numbers of a dtype that holds all of them, in whatever order they come: bool, int64, or that of NumPy's numbers."""
    if set(map(type, samples)) == {float} or all(isinstance(sample, np.floating) for sample in samples):
        return np.array(samples)
    if all(isinstance(sample, np.integer) for sample in samples) and (found := np.array(samples)).dtype.name in ("int32", "uint8"):
        return found
    kinds = {"i" if isinstance(sample, int) and not isinstance(sample, bool) else np.asarray(sample).dtype.kind for sample in samples}
    if not kinds <= set("biuf"):
        raise _of_types(samples)
    try:
        return np.array(samples, np.float64 if "f" in kinds else np.bool_ if kinds == {"b"} else np.int64)
    except OverflowError:
        largest = max(samples, key=abs)
        raise OverflowError(f"{largest} is too large for a batch of {'float64' if 'f' in kinds else 'int64'}; pass collate_fn=") from None


__all__ = ["default_collate", "default_convert"]
