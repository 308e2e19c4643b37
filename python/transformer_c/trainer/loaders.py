"""Data for a trainer: accepted loaders, limits, moving batches to their device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._core import Tensor
from .._tensor import as_tensor
from . import arrays
from .averages import batch_size_of


def check_loader(loader: Any, name: str) -> Any:
    """Returns the loader; raises if it cannot be iterated over repeatedly."""
    if isinstance(loader, (str, bytes, dict)) or not hasattr(loader, "__iter__"):
        raise TypeError(f"{name} is of type {type(loader).__name__}; expected a tc.data.DataLoader, or another collection of batches")
    if isinstance(loader, Iterator):
        raise TypeError(f"{name} can be walked over only once ({type(loader).__name__}); pass a DataLoader or a list of batches")
    return loader


def train_and_val(model: Any, train: Any, val: Any, dtype: np.dtype, batch_size: int) -> tuple[Any, list[Any]]:
    """The loaders for fit(), from its arguments, a data module or the model."""
    if arrays.are_arrays(train) and not isinstance(train, tuple) and arrays.are_arrays(val) and not isinstance(val, tuple):
        raise TypeError("train and val are arrays; inputs and targets belong together, in a tuple: fit(model, (X, y))")
    source = model if train is None else train
    if hasattr(source, "train_dataloader"):
        train = source.train_dataloader()
        val = source.val_dataloader() if val is None and hasattr(source, "val_dataloader") else val
    if train is None:
        raise ValueError(f"training data is missing: pass train=, or give {type(model).__name__} a train_dataloader()")
    train = check_loader(arrays.as_loader("train", train, dtype, batch_size, shuffle=True), "train")
    return train, [] if val is None else as_loaders(val, "val", dtype, batch_size)


def as_loaders(value: Any, name: str, dtype: np.dtype, batch_size: int) -> list[Any]:
    """One loader, or a list of them, as a list. A list of batches is one loader."""
    if isinstance(value, (list, tuple)) and value and all(hasattr(v, "dataset") and hasattr(v, "__iter__") for v in value):
        return [check_loader(v, f"{name}[{i}]") for i, v in enumerate(value)]
    return [check_loader(arrays.as_loader(name, value, dtype, batch_size), name)]


def _length(loader: Any) -> int | None:
    """The number of batches; None if it is not known."""
    try:
        return len(loader)
    except TypeError:
        return None


def number_of_batches(loader: Any, limit: int | float | None) -> int | None:
    """The number of batches per pass; None if it is not known in advance."""
    length = _length(loader)
    if limit is None:
        return length
    if isinstance(limit, float):
        if length is None:
            raise ValueError(f"a share of the batches ({limit}) needs a loader with a length; give a number of batches")
        return max(1, math.floor(length * limit)) if limit > 0 else 0
    return int(limit) if length is None else min(int(limit), length)


def batches(loader: Any, count: int | None) -> Generator[Any, None, None]:
    """The first `count` batches, or all; closing the generator also ends the loader's thread.

    If all batches are taken, the loader runs to its end, where a shuffling DataLoader draws once more, as PyTorch's does.
    """
    iterator = iter(loader)
    taken = 0
    try:
        while count is None or taken < count:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            taken += 1
            yield batch
        if taken == _length(loader):
            next(iterator, None)
    finally:
        if hasattr(iterator, "close"):
            iterator.close()


def steps_of(batches: Iterator[Any], count: int) -> Iterator[tuple[Any, float, bool, bool]]:
    """Each batch with its share of the optimizer step that it belongs to, and whether it is the step's first and last one.

    A step takes `count` batches, the last step what is left; their shares are by their lengths. The batches of a step are drawn together.
    """
    if count == 1:
        for batch in batches:
            yield batch, 1.0, True, True
        return
    while window := list(itertools.islice(batches, count)):
        lengths = [batch_size_of(batch) for batch in window]
        total, last = sum(lengths) or 1, len(window) - 1
        for i, batch in enumerate(window):
            yield batch, lengths[i] / total, i == 0, i == last


@dataclass(frozen=True)
class DeviceAndDtype:
    """The device of the model and the dtype in which it computes."""

    device: str = "cpu"
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @classmethod
    def of(cls, model: Any) -> DeviceAndDtype:
        """The DeviceAndDtype of the first parameter."""
        first = next(iter(model.parameters()), None)
        return cls() if first is None else cls(first.device, first.dtype)

    def bring(self, batch: Any) -> Any:
        """Moves a batch: its Tensors and ndarrays become Tensors on the device, floating ones in the dtype; the rest is unchanged."""
        return mapped(self._leaf, batch)

    def _leaf(self, item: Any) -> Any:
        if isinstance(item, Tensor):
            return item if item.device == self.device else item.to(self.device)
        if not isinstance(item, np.ndarray) or item.dtype.kind not in "biuf":
            return item
        return self._leaf(as_tensor(item.astype(self.dtype, copy=False) if item.dtype.kind == "f" else item))


def mapped(function: Callable[[Any], Any], batch: Any) -> Any:
    """The dicts, lists and tuples of a batch, with what the function gives for each item in them."""
    if type(batch) is Tensor:
        return function(batch)
    if isinstance(batch, dict):
        return {key: mapped(function, item) for key, item in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[mapped(function, item) for item in batch])
    if isinstance(batch, (list, tuple)):
        return type(batch)([mapped(function, item) for item in batch])
    return function(batch)
