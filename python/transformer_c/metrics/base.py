"""The base class of metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core import Tensor


def as_array(value: Any) -> np.ndarray:
    """Predictions or targets as an ndarray; bfloat16 and smaller floats in float32, of which NumPy knows that they are floats."""
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


class Metric:
    """Base class: ``update()`` with every batch, ``compute()`` at the end, ``reset()``. Subclasses define ``_start``, ``update``, ``compute``.

    Called, it updates and returns the value of that batch alone.
    """

    def __init__(self) -> None:
        self.reset()

    def _start(self) -> dict[str, Any]:
        """The state before any batch: numbers and arrays by name."""
        raise NotImplementedError(f"{type(self).__name__} has no _start(): define it in the class")

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Takes a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no update(): define it in the class")

    def compute(self) -> Any:
        """The value of all batches since ``reset()``; nan without any."""
        raise NotImplementedError(f"{type(self).__name__} has no compute(): define it in the class")

    def reset(self) -> None:
        """Forgets all batches."""
        self.state = self._start()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Takes a batch; returns the value of this batch alone."""
        with _core.replaced([(vars(self), "state", self._start())]):
            self.update(*args, **kwargs)
            value, found = self.compute(), self.state
        self.join(found)
        return value

    def to(self, *unused: Any, **unused_options: Any) -> Metric:
        """The metric itself, for compatibility with torchmetrics: it takes Tensors of any device."""
        return self

    def join(self, other: dict[str, Any]) -> None:
        """Adds the state of other batches."""
        self.state = {name: value + other[name] for name, value in self.state.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state, for a checkpoint."""
        return dict(self.state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``."""
        self.state = {name: state_dict[name] for name in self._start()}

    def __float__(self) -> float:
        return float(self.compute())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
