"""Means, and metrics of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import Metric, as_array


class Mean(Metric):
    """The mean of values, perhaps weighted.

    Examples
    --------
    >>> import transformer_c as tc
    >>> mean = tc.metrics.Mean()
    >>> mean.update([1.0, 2.0])
    >>> mean.update(6.0, weight=2)
    >>> mean.compute()
    3.75
    """

    def _start(self) -> dict[str, Any]:
        return {"total": 0.0, "weight": 0.0}

    def update(self, value: Any, weight: Any = 1.0) -> None:
        """Takes values and their weights, arrays that broadcast."""
        values, weights = np.broadcast_arrays(as_array(value).astype(np.float64), as_array(weight).astype(np.float64))
        self.state["total"] += float((values * weights).sum())
        self.state["weight"] += float(weights.sum())

    def compute(self) -> float:
        """The mean."""
        return self.state["total"] / self.state["weight"] if self.state["weight"] else math.nan


class _Error(Mean):
    def update(self, preds: Any, target: Any) -> None:  # type: ignore[override]
        """Takes predictions and targets of one shape."""
        a, b = as_array(preds).astype(np.float64), as_array(target).astype(np.float64)
        if a.shape != b.shape:
            raise ValueError(f"preds has shape {a.shape}, target {b.shape}; expected the same")
        super().update(self._error(a - b))

    def _error(self, difference: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class MeanSquaredError(_Error):
    """The mean of squared differences; with `squared` False its root.

    Examples
    --------
    >>> import transformer_c as tc
    >>> metric = tc.metrics.MeanSquaredError(squared=False)
    >>> metric([1.0, 2.0], [1.0, 4.0]) ** 2
    2.0000000000000004
    """

    def __init__(self, squared: bool = True) -> None:
        self._squared = squared
        super().__init__()

    def _error(self, difference: np.ndarray) -> np.ndarray:
        return difference**2

    def compute(self) -> float:
        """The mean, or its root."""
        found = super().compute()
        return found if self._squared else math.sqrt(found)


class MeanAbsoluteError(_Error):
    """The mean of absolute differences.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.MeanAbsoluteError()([1.0, 2.0], [1.0, 4.0])
    1.0
    """

    def _error(self, difference: np.ndarray) -> np.ndarray:
        return np.abs(difference)


class R2Score(Metric):
    """The share of the targets' variance that the predictions explain.

    ``update(preds, target)`` takes arrays (N,), or (N, D), of whose D columns the mean is given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.R2Score()([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.7857142857142857
    """

    def _start(self) -> dict[str, Any]:
        return {"count": 0.0, "mean": 0.0, "spread": 0.0, "error": 0.0}

    def update(self, preds: Any, target: Any) -> None:
        """Takes predictions and targets of one shape."""
        a, b = as_array(preds).astype(np.float64), as_array(target).astype(np.float64)
        if a.shape != b.shape:
            raise ValueError(f"preds has shape {a.shape}, target {b.shape}; expected the same")
        if b.ndim > 2:
            raise ValueError(f"target has shape {b.shape}; expected (N,), or (N, D) for D outputs: reshape both")
        a, b = np.atleast_1d(a, b)
        if b.size:
            mean = b.mean(0)
            self.join({"count": float(len(b)), "mean": mean, "spread": ((b - mean) ** 2).sum(0), "error": ((a - b) ** 2).sum(0)})

    def join(self, other: dict[str, Any]) -> None:
        """Means and sums of squares of two parts together (Chan et al. 1979)."""
        one, total = self.state, self.state["count"] + other["count"]
        if not total:
            return
        apart = other["mean"] - one["mean"]
        self.state = {
            "count": total,
            "mean": one["mean"] + apart * other["count"] / total,
            "spread": one["spread"] + other["spread"] + apart**2 * one["count"] * other["count"] / total,
            "error": one["error"] + other["error"],
        }

    def compute(self) -> float:
        """The score; nan where all targets of an output are equal."""
        error, spread = np.asarray(self.state["error"]), np.asarray(self.state["spread"])
        return float((1 - error / spread).mean()) if spread.all() else math.nan


__all__ = ["Mean", "MeanAbsoluteError", "MeanSquaredError", "R2Score"]
