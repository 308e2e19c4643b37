"""Classifiers that answer once for each text, or for each image."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arguments import count
from .answers import Given, arranged, read
from .classifier import Classifier, numbers, same_kind
from .problems import MULTI, PROBLEMS, REGRESSION, SINGLE, Head, Problem
from .texts import finite


class WholeClassifier(Classifier):
    """The base of TextClassifier and ImageClassifier."""

    _problems = tuple(PROBLEMS)

    def predict_proba(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The probabilities of the classes, or of each label.

        Parameters
        ----------
        X : sequence
            N texts or pairs of them, or N images.
        batch_size : int, default 32
            How many are computed at once; texts of similar lengths are computed together.

        Returns
        -------
        ndarray of float64, shape (N, classes)
            In the order of ``classes_``. They add up to 1, except where each may have several labels.

        Raises
        ------
        AttributeError
            For regression, as of scikit-learn's regressors.
        RuntimeError
            Before a fit, where the folder has no head for the task.
        """
        if self._fitted()[1].problem is REGRESSION:
            raise AttributeError(f"{type(self).__name__} for regression has no probabilities; predict gives the numbers")
        return self._answers(X, batch_size)

    def predict(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The likeliest label of each; parameters as for ``predict_proba``.

        Returns
        -------
        ndarray, shape (N,)
            Of a classification; of a regression with one output the numbers, float64.
        ndarray, shape (N, labels) or (N, outputs)
            Where each may have several labels: int64, 1 for those with a probability above 1/2, otherwise 0. Of a regression with several
            outputs: float64.
        """
        found = self._answers(X, batch_size)
        problem, classes = self._fitted()[1]
        best = problem.best(found)
        if problem is SINGLE:
            return classes[best[:, 0]]
        return best[:, 0] if problem is REGRESSION and best.shape[1] == 1 else best

    def score(self, X: Any, y: Any) -> float:
        """The share of those whose label is predicted, or all of whose labels are; of a regression the coefficient of determination, R2.

        Parameters
        ----------
        X, y : sequence
            Texts or images, and their labels or numbers, as for ``fit``.

        Returns
        -------
        float
        """
        head, texts = self._fitted()[1], self._checked(X)
        if not texts:
            raise ValueError(f"there are no {self._what}s to score")
        given = self._given(texts, y, head.problem)
        if given.problem is SINGLE:
            return given.problem.score(self.predict(texts), same_kind(head, given.values))
        wanted = arranged(given, head)
        return given.problem.score(self.predict(texts).reshape(wanted.shape), wanted)

    def _answers(self, X: Any, batch_size: int) -> np.ndarray:
        """(N, C): probabilities or numbers."""
        (model, head), texts = self._fitted(), self._checked(X)
        found = self._scores(model, self._samples(texts), count("batch_size", batch_size), self.progress)
        return np.array([head.problem.answer(finite(each, i, model, self._what)) for i, each in enumerate(found)]).reshape(
            -1, len(head.classes)
        )

    def _given(self, texts: list[Any], y: Any, problem: Problem | None) -> Given:
        return read(y, len(texts), problem, self._what)

    def _head_for(self, given: Given) -> Head:
        own, asked = self._pretrained.head, self._asked()
        numeric = given.problem is MULTI or all(not isinstance(value, str) for value in given.values)
        if asked is None and own is not None and own.problem is REGRESSION and given.problem is not REGRESSION and numeric:
            raise ValueError(
                f"the model predicts numbers, but y, such as {given.values[0]!r:.80}, may be {given.problem.outputs}: "
                f"say problem_type={REGRESSION.name!r} or {given.problem.name!r}"
            )
        if given.problem is SINGLE:
            return self._head_of(given.values)
        width = given.values.shape[1]
        if not len(given.values):
            raise ValueError("there are no labels to train with")
        if self.num_labels not in (None, width):
            raise ValueError(f"num_labels is {self.num_labels}, but y has {width} {'column' if width == 1 else 'columns'}")
        if own is not None and own.problem is given.problem and len(own.classes) == width and _fits(given, own):
            return own
        if given.names is not None:
            return Head(given.problem, np.array(given.names))
        return Head(given.problem, np.arange(width) if given.problem is MULTI else np.array([f"LABEL_{i}" for i in range(width)]))

    def _samples_and_goals(self, texts: list[Any], given: Given, head: Head) -> tuple[list[Any], list[np.ndarray]]:
        wanted = numbers(head, given.values)[:, None] if given.problem is SINGLE else arranged(given, head)
        return self._samples(texts), list(wanted)


def _fits(given: Given, own: Head) -> bool:
    """Whether the columns are counted, or have the names of a head's outputs."""
    return given.names is None or set(given.names) == {str(name) for name in own.classes.tolist()}
