"""The three kinds of answers to a text: a row for each of transformers' words for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import functional as F
from .._core import Tensor
from .._tensor import as_tensor
from .texts import sigmoid, softmax

IGNORED = -100  # the class of tokens that have none, as in PyTorch


class Problem(NamedTuple):
    """A kind of answers. A goal is what is wanted of a sample: numbers of classes, or a number for each output."""

    name: str  # problem_type of config.json
    outputs: str  # a word for them
    loss: Callable[[Tensor, Sequence[np.ndarray]], Tensor]  # of scores (B, C) or (B, T, C), and the goals
    answer: Callable[[np.ndarray], np.ndarray]  # of scores (..., C): probabilities, or the numbers themselves; float64
    best: Callable[[np.ndarray], np.ndarray]  # of answers (R, C): goals (R, 1) or (R, C)
    metric: str  # the name of `score`, as in scikit-learn
    score: Callable[[Any, Any], float]  # of what was found, and what was wanted

    def __reduce__(self) -> Any:
        """A copy, a pickled one too, is the row itself."""
        return _row, (self.name,)


class Head(NamedTuple):
    """What a classifier answers with: `classes` are the names of the outputs, str or int."""

    problem: Problem
    classes: np.ndarray


def _row(name: str) -> Problem:
    return PROBLEMS[name]


def _of_classes(scores: Tensor, goals: Sequence[np.ndarray]) -> Tensor:
    """Cross-entropy; a goal has the class of the text, or one for each token."""
    wanted = np.full(tuple(scores.shape[:-1]), IGNORED, np.int64)
    for row, goal in zip(wanted.reshape(len(goals), -1), goals, strict=True):
        row[: len(goal)] = goal
    return F.cross_entropy(scores.view(-1, scores.shape[-1]), as_tensor(wanted.reshape(-1)))


def _stacked(goals: Sequence[np.ndarray], like: Tensor) -> Tensor:
    return as_tensor(np.stack(goals)).to(like.device, like.dtype)


def accuracy(found: Any, wanted: Any) -> float:
    """The share of the rows that are equal."""
    return sum(a == b for a, b in zip(map(_plain, found), map(_plain, wanted), strict=True)) / max(1, len(wanted))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def r2(found: Any, wanted: Any) -> float:
    """The share of the variance that is explained, the mean over outputs; NaN of fewer than two texts, as in scikit-learn."""
    found, wanted = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (found, wanted))
    if len(wanted) < 2:
        return float("nan")
    left, whole = ((wanted - found) ** 2).sum(0), ((wanted - wanted.mean(0)) ** 2).sum(0)
    return float(np.where(whole > 0, 1 - left / np.where(whole > 0, whole, 1), left == 0).mean())


# As transformers: its loss for each problem_type, and what its pipeline makes of scores.
SINGLE = Problem(
    "single_label_classification",
    "classes",
    loss=_of_classes,
    answer=softmax,
    best=lambda odds: odds.argmax(-1)[:, None],
    metric="accuracy",
    score=accuracy,
)
MULTI = Problem(
    "multi_label_classification",
    "labels",
    loss=lambda scores, goals: F.binary_cross_entropy_with_logits(scores, _stacked(goals, scores)),
    answer=sigmoid,
    best=lambda odds: (odds > 0.5).astype(np.int64),
    metric="accuracy",
    score=accuracy,
)
REGRESSION = Problem(
    "regression",
    "numbers",
    loss=lambda scores, goals: F.mse_loss(scores, _stacked(goals, scores)),
    answer=lambda scores: scores.astype(np.float64),
    best=lambda numbers: numbers,
    metric="r2",
    score=r2,
)
PROBLEMS = {problem.name: problem for problem in (SINGLE, MULTI, REGRESSION)}


def validated(problem: Problem, found: Sequence[np.ndarray], goals: Sequence[np.ndarray]) -> dict[str, float]:
    """The mean loss and the score of scores (C,) of each text, or (T, C) of its tokens."""
    rows = np.concatenate([each.reshape(-1, each.shape[-1]) for each in found]).astype(np.float64)
    wanted = np.concatenate([goal[:, None] if problem is SINGLE else goal[None] for goal in goals])
    if problem is SINGLE:
        used = wanted[:, 0] != IGNORED
        rows, wanted = rows[used], wanted[used]
    loss = problem.loss(as_tensor(rows), list(wanted)).item()
    return {"val_loss": loss, f"val_{problem.metric}": problem.score(problem.best(problem.answer(rows)), wanted)}
