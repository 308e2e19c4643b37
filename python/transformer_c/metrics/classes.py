"""Metrics of classes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._arguments import count, one_of
from .._names import nearest
from .base import Metric, as_array


class _Classes(Metric):
    """What metrics of classes have in common.

    Parameters
    ----------
    ignore_index : int, optional
        Targets that do not count.
    dim : int, default 1
        The axis of the classes, where the predictions are scores.
    threshold : float, default 0.5
        For probabilities of one class.
    """

    def __init__(self, ignore_index: int | None = None, dim: int = 1, threshold: float = 0.5) -> None:
        self._ignore_index, self._dim, self._threshold = ignore_index, dim, threshold
        super().__init__()

    def _scores(self, preds: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        """Scores (N, C) of the targets that count; None where the predictions are classes, or probabilities of one."""
        if preds.ndim != target.ndim + 1:
            return None
        if np.moveaxis(preds, self._dim, -1).shape[:-1] != target.shape:
            raise ValueError(f"preds has shape {preds.shape}, target {target.shape}; expected the classes along axis {self._dim} (dim=)")
        return np.moveaxis(preds, self._dim, -1).reshape(target.size, -1)[self._counted(target)]

    def _counted(self, target: np.ndarray) -> np.ndarray:
        return np.ones(target.size, bool) if self._ignore_index is None else target.reshape(-1) != self._ignore_index

    def _pairs(self, preds: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predicted and true classes, flat."""
        preds, target = as_array(preds), as_array(target)
        scores = self._scores(preds, target)
        true = target.reshape(-1)[self._counted(target)].astype(np.int64)
        if scores is not None:
            return scores.argmax(-1), true
        if preds.shape != target.shape:
            raise ValueError(f"preds has shape {preds.shape}, target {target.shape}; expected the same, or scores with one more axis")
        flat = preds.reshape(-1)[self._counted(target)]
        return (flat > self._threshold).astype(np.int64) if flat.dtype.kind == "f" else flat.astype(np.int64), true


class Accuracy(_Classes):
    """The share of correct predictions.

    ``update(preds, target)`` takes classes, scores with one more axis (`dim`) than the targets, or probabilities of one class.

    Parameters
    ----------
    top_k : int, default 1
        The true class is among the `top_k` highest scores.
    ignore_index : int, optional
        Targets that do not count.
    dim : int, default 1
        The axis of the classes in scores.
    threshold : float, default 0.5
        For probabilities of one class.

    Examples
    --------
    >>> import transformer_c as tc
    >>> accuracy = tc.metrics.Accuracy()
    >>> accuracy.update([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    >>> accuracy.update([0, 1], [0, 1])
    >>> accuracy.compute()
    0.75
    """

    def __init__(self, top_k: int = 1, ignore_index: int | None = None, dim: int = 1, threshold: float = 0.5) -> None:
        self._top_k = count("top_k", top_k)
        super().__init__(ignore_index, dim, threshold)

    def _start(self) -> dict[str, Any]:
        return {"right": 0, "count": 0}

    def update(self, preds: Any, target: Any) -> None:
        """Takes predictions and true classes."""
        if self._top_k > 1:
            scores, true = self._scores(as_array(preds), as_array(target)), as_array(target).reshape(-1)[self._counted(as_array(target))]
            if scores is None:
                raise ValueError("top_k needs scores of all classes")
            right = (scores > np.take_along_axis(scores, true[:, None], 1)).sum(1) < self._top_k
        else:
            found, true = self._pairs(preds, target)
            right = found == true
        self.state["right"] += int(right.sum())
        self.state["count"] += int(right.size)

    def compute(self) -> float:
        """The share."""
        return self.state["right"] / self.state["count"] if self.state["count"] else math.nan


class ConfusionMatrix(_Classes):
    """How often each true class (row) is predicted as each class (column).

    Parameters
    ----------
    num_classes : int, optional
        None: as many as are seen.
    ignore_index, dim, threshold
        As for ``Accuracy``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.ConfusionMatrix()([0, 1, 1], [0, 0, 1])
    array([[1, 1],
           [0, 1]])
    """

    def __init__(self, num_classes: int | None = None, ignore_index: int | None = None, dim: int = 1, threshold: float = 0.5) -> None:
        self._num_classes = None if num_classes is None else count("num_classes", num_classes)
        super().__init__(ignore_index, dim, threshold)

    def _start(self) -> dict[str, Any]:
        size = self._num_classes or 0
        return {"counts": np.zeros((size, size), np.int64)}

    def update(self, preds: Any, target: Any) -> None:
        """Takes predictions and true classes."""
        found, true = self._pairs(preds, target)
        size = max(found.max(initial=-1), true.max(initial=-1)) + 1
        if min(found.min(initial=0), true.min(initial=0)) < 0 or (self._num_classes is not None and size > self._num_classes):
            raise ValueError(f"a class is not from 0 to {'num_classes' if self._num_classes is None else self._num_classes} - 1")
        self.join({"counts": np.bincount(true * size + found, minlength=size * size).reshape(size, size)})

    def join(self, other: dict[str, Any]) -> None:
        size = max(len(self.state["counts"]), len(other["counts"]))
        total = np.zeros((size, size), np.int64)
        for counts in (self.state["counts"], other["counts"]):
            total[: len(counts), : len(counts)] += counts
        self.state = {"counts": total}

    def compute(self) -> Any:
        """The matrix."""
        return self.state["counts"].copy()


class _Ratio(ConfusionMatrix):
    """A ratio of counts for each class, averaged over the classes.

    Parameters
    ----------
    average : {"macro", "micro", "weighted"} or None, default "macro"
        The mean of the classes' values, the value of all predictions together, the mean weighted by the classes' sizes, or an array of all.
    num_classes, ignore_index, dim, threshold
        As for ``ConfusionMatrix``. "macro" leaves out classes that are neither predicted nor true.
    """

    def __init__(
        self,
        average: str | None = "macro",
        num_classes: int | None = None,
        ignore_index: int | None = None,
        dim: int = 1,
        threshold: float = 0.5,
    ) -> None:
        self._average = None if average is None else one_of("average", average, ("macro", "micro", "weighted"))
        super().__init__(num_classes, ignore_index, dim, threshold)

    def _ratio(self, right: Any, predicted: Any, true: Any) -> tuple[Any, Any]:
        """Numerator and denominator."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The value, or an array of one per class; 0 where nothing is counted."""
        counts = self.state["counts"]
        right, predicted, true = np.diag(counts), counts.sum(0), counts.sum(1)
        if not counts.sum():
            return math.nan
        if self._average == "micro":
            right, predicted, true = right.sum(), predicted.sum(), true.sum()
        above, below = (np.asarray(v, np.float64) for v in self._ratio(right, predicted, true))
        values = np.divide(above, below, out=np.zeros_like(below), where=below > 0)
        if self._average is None:
            return values
        if self._average == "weighted":
            return float((values * true).sum() / true.sum())
        return float(values[(predicted + true) > 0].mean() if self._average == "macro" else values)


class Precision(_Ratio):
    """Of the predictions of a class, the share that is right. Parameters as for ``F1Score``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.Precision(average=None)([0, 1, 1], [0, 0, 1])
    array([1. , 0.5])
    """

    def _ratio(self, right: Any, predicted: Any, true: Any) -> tuple[Any, Any]:
        return right, predicted


class Recall(_Ratio):
    """Of a class, the share that is predicted. Parameters as for ``F1Score``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.Recall(average=None)([0, 1, 1], [0, 0, 1])
    array([0.5, 1. ])
    """

    def _ratio(self, right: Any, predicted: Any, true: Any) -> tuple[Any, Any]:
        return right, true


class F1Score(_Ratio):
    """The harmonic mean of precision and recall.

    Parameters
    ----------
    average : {"macro", "micro", "weighted"} or None, default "macro"
        The mean of the classes' values, the value of all predictions together, the mean weighted by the classes' sizes, or an array of all.
        "macro" leaves out classes that are neither predicted nor true.
    num_classes : int, optional
        None: as many as are seen.
    ignore_index, dim, threshold
        As for ``Accuracy``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> f1 = tc.metrics.F1Score()
    >>> f1.update([0, 1, 1], [0, 0, 1])
    >>> round(f1.compute(), 4)
    0.6667
    """

    def _ratio(self, right: Any, predicted: Any, true: Any) -> tuple[Any, Any]:
        return 2 * right, predicted + true


__all__ = ["Accuracy", "ConfusionMatrix", "F1Score", "Precision", "Recall"]
