"""Batches from samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core import Tensor
from .._tensor import as_tensor, stack, tensor


def default_collate(samples: Sequence[Any]) -> Any:
    """Stacks samples into a batch, element by element through tuples, lists and dicts."""
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(list(samples))
    if isinstance(first, np.ndarray):
        return as_tensor(np.stack(samples))
    if isinstance(first, (bool, np.bool_)):
        return tensor(np.array(samples, np.bool_))
    if isinstance(first, (int, np.integer)):
        return tensor(np.array(samples, np.int64))
    if isinstance(first, float):
        return tensor(np.array(samples, np.float64))
    if isinstance(first, np.floating):
        return tensor(np.array(samples))
    if isinstance(first, dict):
        return {key: default_collate([s[key] for s in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(column)) for column in zip(*samples, strict=True)))
    if isinstance(first, (tuple, list)):
        return [default_collate(list(column)) for column in zip(*samples, strict=True)]
    if isinstance(first, (str, bytes)):
        return list(samples)
    raise TypeError(f"samples of type {type(first).__name__} cannot be stacked into a batch; pass collate_fn=")


__all__ = ["default_collate"]
