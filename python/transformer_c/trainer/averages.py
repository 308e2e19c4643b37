"""Means of logged values over an epoch."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .. import _core
from .._core import Tensor
from ..metrics import Metric


class Saved:
    """Stands for a metric that was not logged again since a checkpoint was loaded, which has its state and value.

    The run knows metrics by what is logged alone: with no batch left in the epoch, nothing leads to the metric itself.
    """

    def __init__(self, metric: dict[str, Any], value: float = math.nan) -> None:  # files of earlier versions have no value
        self.state, self.value = metric, value

    def compute(self) -> float:
        """The value."""
        return self.value

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        return self.state

    def reset(self) -> None:
        """The metric itself has no batch."""


class Reduced(Metric):
    """The sum, the least or the largest of values.

    Parameters
    ----------
    reduction : {"sum", "min", "max"}
    """

    def __init__(self, reduction: str) -> None:
        self._reduction, self._reduce = reduction, {"sum": np.add, "min": np.minimum, "max": np.maximum}[reduction]
        super().__init__()

    def _start(self) -> dict[str, Any]:
        return {"count": 0, "value": math.nan}

    def update(self, value: float) -> None:
        """Takes a value."""
        self.join({"count": 1, "value": value})

    def join(self, other: dict[str, Any]) -> None:
        """Adds the state of other values."""
        count, value = self.state["count"], other["value"]
        if count and other["count"]:
            value = float(self._reduce(self.state["value"], value))
        elif count:
            value = self.state["value"]
        self.state = {"count": count + other["count"], "value": value}

    def compute(self) -> float:
        """The value; nan without any."""
        return self.state["value"]

    def state_dict(self) -> dict[str, Any]:
        """The state, and which reduction it is of."""
        return {**self.state, "reduction": self._reduction}


def restored(metric: dict[str, Any], value: float = math.nan) -> Saved | Reduced:
    """A metric that continues from its state, of a checkpoint or of another rank."""
    if "reduction" not in metric:
        return Saved(metric, value)
    reduced = Reduced(metric["reduction"])
    reduced.join(metric)
    return reduced


class Averages:
    """Means weighted by batch size, in float64, and the values of metrics."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}  # name: [sum of weight * value, sum of weights]
        self.metrics: dict[str, Any] = {}

    def add(self, name: str, value: float, weight: float, reduction: str = "mean") -> None:
        """Adds one value to the mean of its name, or to what another reduction makes of all."""
        if reduction != "mean":
            if not isinstance(reduced := self.metrics.get(name), Reduced):
                reduced = Reduced(reduction)
                self.watch(name, reduced)
            reduced.update(value)
            return
        sums = self.sums.setdefault(name, [0.0, 0.0])
        sums[0] += weight * value
        sums[1] += weight

    def watch(self, name: str, metric: Any) -> None:
        """Takes the metric's own value at the end."""
        if isinstance(earlier := self.metrics.get(name), Saved):
            metric.join(earlier.state)
        self.metrics[name] = metric

    def means(self) -> dict[str, float]:
        """The mean, or the metric's value, of every name."""
        found = {name: total / weight if weight else math.nan for name, (total, weight) in self.sums.items()}
        return found | {name: float(metric.compute()) for name, metric in self.metrics.items()}

    def reset_metrics(self) -> None:
        """Lets the metrics begin anew."""
        for metric in self.metrics.values():
            metric.reset()

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint in the middle of an epoch."""
        sums = {name: list(sums) for name, sums in self.sums.items()}
        return sums | {name: {"metric": metric.state_dict(), "value": float(metric.compute())} for name, metric in self.metrics.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``."""
        self.metrics = {str(name): restored(**value) for name, value in state.items() if isinstance(value, dict)}
        sums = {name: value for name, value in state.items() if not isinstance(value, dict)}
        self.sums = {str(name): [float(total), float(weight)] for name, (total, weight) in sums.items()}


def unchanged_metrics(model: Any) -> AbstractContextManager[None]:
    """For a ``with`` block whose batches do not count in the metrics that a model and its parts have."""
    held = [value for _, part in model.named_modules() for value in vars(part).values()]
    lists = [value.values() if isinstance(value, dict) else value for value in held if isinstance(value, (dict, list, tuple))]
    found = {id(m): m for m in (*held, *itertools.chain.from_iterable(lists)) if isinstance(m, Metric)}
    return _core.replaced([(vars(m), "state", copy.deepcopy(m.state)) for m in found.values()])


def batch_size_of(batch: Any) -> int:
    """The length of the first array in a batch, at any depth; 1 if there is none."""
    first = next(_arrays(batch), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1


def _arrays(batch: Any) -> Iterator[Tensor | np.ndarray]:
    if isinstance(batch, (Tensor, np.ndarray)):
        yield batch
    elif isinstance(batch, (dict, list, tuple)):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(item)
