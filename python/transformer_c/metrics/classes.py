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
    dim : int
        The axis of the classes, where the predictions are scores.
    threshold : float
        For probabilities of one class.
    task : {"multiclass", "binary"}, optional
        With "binary", predictions outside of 0 to 1 are logits.
    num_classes : int or None
        Scores of one class are taken only where this is 1.
    unknown : mapping of str to object
        Arguments that the metric does not have.
    """

    def __init__(
        self, ignore_index: int | None, dim: int, threshold: float, task: str | None, num_classes: int | None, unknown: Mapping[str, Any]
    ) -> None:
        for name in unknown:
            known = [p.name for p in inspect.signature(type(self)).parameters.values() if p.kind is not p.VAR_KEYWORD]
            near = nearest(name, known)
            raise TypeError(
                f"{type(self).__name__}() has no argument {name!r}"
                + (f"; did you mean {near!r}?" if near else f"; it has {', '.join(known)}")
            )
        self._task = None if task is None else one_of("task", task, ("multiclass", "binary"))
        self._ignore_index, self._dim, self._threshold, self._num_classes = ignore_index, dim, threshold, num_classes
        super().__init__()

    def _scores(self, preds: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Scores (N, C) and classes (N) of the targets that count; None where the predictions are classes, or probabilities of one."""
        if preds.ndim != target.ndim + 1:
            return None
        last = np.moveaxis(preds, self._dim, -1)
        if last.shape[:-1] != target.shape:
            raise ValueError(f"preds has shape {preds.shape}, target {target.shape}; expected the classes along axis {self._dim} (dim=)")
        if last.shape[-1] == 1 and self._num_classes != 1:
            column = f"preds[{':, ' * (self._dim % preds.ndim)}0]"
            raise ValueError(
                f"preds has shape {preds.shape}, scores of one class, which is always the highest; expected at least 2 along axis {self._dim} "
                f'(dim=). For one score per sample, as of a sigmoid, pass {column} with task="binary"'
            )
        counted = self._counted(target)
        scores, true = last.reshape(target.size, last.shape[-1])[counted], _whole(target.reshape(-1)[counted])
        wrong = true[(true < 0) | (true >= scores.shape[1])]
        if wrong.size:
            raise ValueError(f"target has the class {wrong[0]}; expected 0 to {scores.shape[1] - 1}, or ignore_index={wrong[0]}")
        return scores, true

    def _as_arrays(self, preds: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
        """Both as arrays; of a binary task's predictions in one column, (N, 1) with targets (N), the column."""
        preds, target = as_array(preds), as_array(target)
        if self._task == "binary" and preds.ndim == target.ndim + 1:
            last = np.moveaxis(preds, self._dim, -1)
            if last.shape == (*target.shape, 1):
                preds = last[..., 0]
        return preds, target

    def _counted(self, target: np.ndarray) -> np.ndarray:
        return np.ones(target.size, bool) if self._ignore_index is None else target.reshape(-1) != self._ignore_index

    def _pairs(self, preds: Any, target: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted and true classes, flat, and where a prediction is NaN, which predicts no class."""
        preds, target = self._as_arrays(preds, target)
        if (found := self._scores(preds, target)) is not None:
            scores, true = found
            if not len(scores):
                return true, true, np.zeros(0, bool)
            highest = scores.argmax(-1)  # NaN, if there is one
            return highest, true, np.isnan(np.take_along_axis(scores, highest[:, None], 1)[:, 0])
        if preds.shape != target.shape:
            raise ValueError(f"preds has shape {preds.shape}, target {target.shape}; expected the same, or scores with one more axis")
        counted = self._counted(target)
        flat, true = preds.reshape(-1)[counted], _whole(target.reshape(-1)[counted])
        if flat.dtype.kind != "f":
            return flat.astype(np.int64), true, np.zeros(flat.size, bool)
        outside = flat[(flat < 0) | (flat > 1)]
        if outside.size and self._task != "binary":
            raise ValueError(
                f"preds are floats, probabilities of one class, but {outside[0]} is not from 0 to 1: pass classes as integers, scores with one more "
                'axis than target, or task="binary" for logits'
            )
        if outside.size:
            flat = 0.5 + 0.5 * np.tanh(0.5 * flat.astype(np.float64))  # the sigmoid, which does not overflow
        return (flat > self._threshold).astype(np.int64), true, np.isnan(flat)


def _whole(target: np.ndarray) -> np.ndarray:
    """The targets as integers."""
    with np.errstate(invalid="ignore"):
        classes = target.astype(np.int64)
    if target.dtype.kind == "f" and (wrong := target[classes != target]).size:
        raise ValueError(f"target has {wrong[0]}, which is no class; expected whole numbers")
    return classes


def _number_of_classes(known: int | None, found: np.ndarray, true: np.ndarray) -> int:
    """One more than the largest class; raises ValueError for those that are not among the known."""
    size = int(max(found.max(initial=-1), true.max(initial=-1))) + 1
    if min(found.min(initial=0), true.min(initial=0)) < 0 or (known is not None and size > known):
        raise ValueError(f"a class is not from 0 to {'num_classes' if known is None else known} - 1")
    return size


def _added(a: Any, b: Any) -> Any:
    """The sum of two numbers, or of arrays of which one may have more classes."""
    if not isinstance(a, np.ndarray):
        return a + b
    total = np.zeros(np.maximum(a.shape, b.shape), np.int64)
    for counts in (a, b):
        total[tuple(map(slice, counts.shape))] += counts
    return total


def _quotients(above: Any, below: Any) -> np.ndarray:
    """Quotients of counts; 0 where nothing is counted."""
    above, below = np.broadcast_arrays(np.asarray(above, np.float64), np.asarray(below, np.float64))
    return np.divide(above, below, out=np.zeros(below.shape), where=below > 0)


def _average_of(given: str | None, *known: str, name: str = "average") -> str | None:
    """One of the words; None, which torchmetrics also calls "none"."""
    return None if given is None or given == "none" else one_of(name, given, known)


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
    task : {"multiclass", "binary"}, optional
        For compatibility with torchmetrics. With "binary", predictions outside of 0 to 1 are logits, and may be one column: (N, 1).
    num_classes : int, optional
        The length of the array that `average` None gives; None: as many as are seen. Scores of one class are an error unless it is 1.
    average : {"micro", "macro", "weighted"} or None, default "micro"
        The share of all predictions, the mean of the classes' shares, that mean weighted by the classes' sizes, which is the share of all again,
        or an array of the classes' shares. "macro" leaves out classes that are neither predicted nor true. A binary task has one share.

    Notes
    -----
    Of equal scores the first ones are the highest. A prediction that is NaN is wrong.

    Examples
    --------
    >>> import transformer_c as tc
    >>> accuracy = tc.metrics.Accuracy()
    >>> accuracy.update([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    >>> accuracy.update([0, 1], [0, 1])
    >>> accuracy.compute()
    0.75
    """

    def __init__(
        self,
        top_k: int = 1,
        ignore_index: int | None = None,
        dim: int = 1,
        threshold: float = 0.5,
        *,
        task: str | None = None,
        num_classes: int | None = None,
        average: str | None = "micro",
        **unknown: Any,
    ) -> None:
        self._top_k = count("top_k", top_k)
        self._average = _average_of(average, "micro", "macro", "weighted")
        self._has_classes = self._average in ("macro", None) and task != "binary"
        super().__init__(ignore_index, dim, threshold, task, num_classes, unknown)

    def _start(self) -> dict[str, Any]:
        names = ("right", "count", "predicted") if self._has_classes else ("right", "count")  # by class, or of all
        return {name: np.zeros(self._num_classes or 0, np.int64) if self._has_classes else 0 for name in names}

    def update(self, preds: Any, target: Any) -> None:
        """Takes predictions and true classes."""
        if self._top_k > 1:
            right, true = self._among_best(*self._as_arrays(preds, target))
            predicted = true[:0]  # of several predictions for each target, no class has one
        else:
            found, true, is_nan = self._pairs(preds, target)
            right, predicted = (found == true) & ~is_nan, found[~is_nan]
        if not self._has_classes:
            self.join({"right": int(right.sum()), "count": int(right.size)})
            return
        size = _number_of_classes(self._num_classes, predicted, true)
        of_each = {"right": true[right], "count": true, "predicted": predicted}
        self.join({name: np.bincount(classes, minlength=size) for name, classes in of_each.items()})

    def join(self, other: dict[str, Any]) -> None:
        self.state = {name: _added(value, other[name]) for name, value in self.state.items()}

    def _among_best(self, preds: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = self._scores(preds, target)
        if found is None:
            raise ValueError("top_k needs scores of all classes")
        scores, true = found
        if not len(true):
            return np.zeros(0, bool), true
        own = np.take_along_axis(scores, true[:, None], 1)
        better = ~(scores <= own) | ((scores == own) & (np.arange(scores.shape[1]) < true[:, None]))  # NaN is better than any
        return (better.sum(1) < self._top_k) & ~np.isnan(own[:, 0]), true

    def compute(self) -> Any:
        """The share, or an array of one per class; 0 for a class without targets."""
        right, true = self.state["right"], self.state["count"]
        if not np.sum(true):
            return math.nan
        if not self._has_classes:
            return right / true
        shares = _quotients(right, true)
        return shares if self._average is None else float(shares[(true + self.state["predicted"]) > 0].mean())


class _Counts(_Classes):
    """Counts how often each true class is predicted as each class. Parameters as for ``_Classes``."""

    def __init__(
        self, num_classes: int | None, ignore_index: int | None, dim: int, threshold: float, task: str | None, unknown: Mapping[str, Any]
    ) -> None:
        size = 2 if task == "binary" else None if num_classes is None else count("num_classes", num_classes)
        super().__init__(ignore_index, dim, threshold, task, size, unknown)

    def _start(self) -> dict[str, Any]:
        size = self._num_classes or 0
        return {"counts": np.zeros((size, size), np.int64)}

    def update(self, preds: Any, target: Any) -> None:
        """Takes predictions and true classes."""
        found, true, is_nan = self._pairs(preds, target)
        if is_nan.any():
            raise ValueError(f"{is_nan.sum()} of {is_nan.size} predictions are NaN, which is no class")
        size = _number_of_classes(self._num_classes, found, true)
        self.join({"counts": np.bincount(true * size + found, minlength=size * size).reshape(size, size)})

    def join(self, other: dict[str, Any]) -> None:
        self.state = {"counts": _added(self.state["counts"], other["counts"])}


class ConfusionMatrix(_Counts):
    """How often each true class (row) is predicted as each class (column).

    Parameters
    ----------
    num_classes : int, optional
        None: as many as are seen; with `task` "binary", 2.
    ignore_index, dim, threshold, task
        As for ``Accuracy``. A prediction that is NaN is an error.
    normalize : {"true", "pred", "all"}, optional
        Give shares of the row, of the column or of all, instead of numbers.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.metrics.ConfusionMatrix()([0, 1, 1], [0, 0, 1])
    array([[1, 1],
           [0, 1]])
    """

    def __init__(
        self,
        num_classes: int | None = None,
        ignore_index: int | None = None,
        dim: int = 1,
        threshold: float = 0.5,
        *,
        task: str | None = None,
        normalize: str | None = None,
        **unknown: Any,
    ) -> None:
        self._normalize = _average_of(normalize, "true", "pred", "all", name="normalize")
        super().__init__(num_classes, ignore_index, dim, threshold, task, unknown)

    def compute(self) -> Any:
        """The matrix; of a class without any, the shares are 0."""
        counts = self.state["counts"]
        if self._normalize is None:
            return counts.copy()
        return _quotients(counts, counts.sum({"true": 1, "pred": 0, "all": None}[self._normalize], keepdims=True))


class _Ratio(_Counts):
    """A ratio of counts for each class, averaged over the classes. Parameters as for ``F1Score``."""

    def __init__(
        self,
        average: str | None = "default",
        num_classes: int | None = None,
        ignore_index: int | None = None,
        dim: int = 1,
        threshold: float = 0.5,
        *,
        task: str | None = None,
        **unknown: Any,
    ) -> None:
        if average == "default" or task == "binary":
            average = {"binary": "binary", "multiclass": "micro"}.get(str(task), "macro")
        self._average = _average_of(average, "macro", "micro", "weighted", "binary")
        super().__init__(num_classes, ignore_index, dim, threshold, task, unknown)

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
        values = _quotients(*self._ratio(right, predicted, true))
        if self._average is None:
            return values
        if self._average == "binary":
            if len(values) > 2:
                raise ValueError(f"average='binary' is of classes 0 and 1; there are {len(values)} classes")
            return float(values[1]) if len(values) == 2 else 0.0
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
    average : {"macro", "micro", "weighted", "binary"} or None, default "macro"
        The mean of the classes' values, the value of all predictions together, the mean weighted by the classes' sizes, the value of class 1,
        or an array of all. "macro" leaves out classes that are neither predicted nor true.
    num_classes : int, optional
        None: as many as are seen.
    ignore_index, dim, threshold
        As for ``Accuracy``.
    task : {"multiclass", "binary"}, optional
        For compatibility with torchmetrics, whose `average` is then the default: "micro", and always "binary" with "binary".

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
