"""Texts into classes, into several labels each, or into numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arguments import count
from .answers import Given, arranged, read
from .classifier import Classifier, numbers, same_kind
from .problems import MULTI, PROBLEMS, REGRESSION, SINGLE, Head, Problem
from .texts import checked_with_pairs, finite, scores, tokens_of


class TextClassifier(Classifier):
    """Sorts texts, or pairs of texts, into classes, with a pretrained encoder; or says which of several labels each has, or predicts numbers.

    Parameters
    ----------
    model : str, path-like or Module
        A folder of transformers', or a model of ``tc.models``, which is not changed; what is frozen in it (``requires_grad_(False)``) is not
        trained. Where it has a head for texts, ``predict`` works without a ``fit``.
    num_labels : int, optional
        The number of classes where the labels are ints from 0 of which some may not occur; otherwise they are counted. 1 means regression.
    problem_type : {"single_label_classification", "multi_label_classification", "regression"}, optional
        transformers' words for what is answered. By default config.json says it, where one label is a number, and for a fit the labels do: str
        or int are classes, one of each text; an array (N, labels) of 0 and 1 says which labels each text has, and a frame also their names; other floats,
        (N,) or (N, outputs), are numbers to be predicted.
    tokenizer : callable, optional
        Instead of the folder's tokenizer: takes a list of texts and gives (ids, types) of each.
    max_length : int, optional
        The number of tokens at which texts are cut off; by default what the folder says.
    dtype : dtype, optional
        Of the model's parameters; halves are trained in float32.
    mmap : bool, default True
        Map safetensors files into memory, as ``tc.models.load`` does.
    learning_rate : float, default 5e-5
        The highest; it rises from 0 in the first steps and then falls to 0.
    epochs : int, default 3
    batch_size : int, default 16
        Of the training.
    warmup : float, default 0.1
        The share of the steps in which the learning rate rises.
    weight_decay : float, default 0.01
        AdamW's, for matrices; norms and biases have none.
    max_norm : float, default 1.0
        Larger gradients are scaled down to this norm; 0 leaves all as they are.
    random_state : int, optional
        Decides on the new head, the batches and dropout. The same int gives the same bits; None draws from ``tc.manual_seed``'s generator.
    progress : bool, default False
        Show bars.

    Attributes
    ----------
    classes_ : ndarray of str or int
        The labels, in the order of the probabilities; None before a fit of a new head, and for regression.
    problem_type_ : str
        What is answered; None before a fit of a new head.
    model_ : Module
        The model. ``classifier.model_.to("cuda")`` moves it.
    tokenizer_ : callable
    history_ : list of dict
        The ``loss`` of each epoch of the last fit, and ``val_loss`` and ``val_accuracy`` (``val_r2`` of a regression) where it
        had a validation.

    Notes
    -----
    A text has the same probabilities to the bit in any batch. The losses are transformers': cross-entropy, binary cross-entropy of each label, mean
    squared error. Numbers are predicted as they are given; of about the size of 1 they are learnt fastest.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 16, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 32})
    >>> def tokenizer(texts):
    ...     return [(np.array([1, *map(ord, text)]), np.zeros(len(text) + 1, int)) for text in texts]
    >>> classifier = tc.models.TextClassifier(model, tokenizer=tokenizer, epochs=15, learning_rate=0.01, random_state=0)
    >>> texts, labels = ["great", "a great day", "awful", "an awful day"] * 4, ["good", "good", "bad", "bad"] * 4
    >>> classifier.fit(texts, labels).predict(["a great film"])
    array(['good'], dtype='<U4')
    >>> classifier.predict_proba(["a great film", "awful"]).shape, classifier.score(texts, labels)
    ((2, 2), 1.0)

    Several labels of each text, and numbers:

    >>> labels = np.array([[1, 0], [1, 1], [0, 0], [0, 1]] * 4)  # is it praise? is it about a day?
    >>> classifier.fit(texts, labels).predict(["a great day", "awful"]).shape
    (2, 2)
    >>> stars = np.array([0.9, 1.0, 0.3, 0.2] * 4)
    >>> high, low = classifier.set_params(batch_size=4).fit(texts, stars).predict(["great", "awful"])
    >>> bool(high > 0.6 > low)
    True
    """

    task = "text-classification"
    _pairs = True
    _problems = tuple(PROBLEMS)

    def predict_proba(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The probabilities of the classes, or of each label.

        Parameters
        ----------
        X : sequence of str, or of pairs of str
            N texts.
        batch_size : int, default 32
            How many texts are computed at once; texts of similar lengths are computed together.

        Returns
        -------
        ndarray of float64, shape (N, classes)
            In the order of ``classes_``. They add up to 1, except where a text may have several labels.

        Raises
        ------
        AttributeError
            For regression, as of scikit-learn's regressors.
        RuntimeError
            Before a fit, where the folder has no head for texts.
        """
        if self._fitted()[1].problem is REGRESSION:
            raise AttributeError(f"{type(self).__name__} for regression has no probabilities; predict gives the numbers")
        return self._answers(X, batch_size)

    def predict(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The likeliest label of each text; parameters as for ``predict_proba``.

        Returns
        -------
        ndarray, shape (N,)
            Of a classification; of a regression with one output the numbers, float64.
        ndarray, shape (N, labels) or (N, outputs)
            Where a text may have several labels: int64, 1 for those with a probability above 1/2, otherwise 0. Of a regression with several
            outputs: float64.
        """
        found = self._answers(X, batch_size)
        problem, classes = self._fitted()[1]
        best = problem.best(found)
        if problem is SINGLE:
            return classes[best[:, 0]]
        return best[:, 0] if problem is REGRESSION and best.shape[1] == 1 else best

    def score(self, X: Any, y: Any) -> float:
        """The share of the texts whose label is predicted, or all of whose labels are; of a regression the coefficient of determination, R2.

        Parameters
        ----------
        X, y : sequence
            Texts and their labels or numbers, as for ``fit``.

        Returns
        -------
        float
        """
        head, texts = self._fitted()[1], self._checked(X)
        if not texts:
            raise ValueError("there are no texts to score")
        given = self._given(texts, y, head.problem)
        if given.problem is SINGLE:
            return given.problem.score(self.predict(texts), same_kind(head, given.values))
        wanted = arranged(given, head)
        return given.problem.score(self.predict(texts).reshape(wanted.shape), wanted)

    def _answers(self, X: Any, batch_size: int) -> np.ndarray:
        """(N, C): probabilities or numbers."""
        (model, head), texts = self._fitted(), self._checked(X)
        found = scores(model, tokens_of(self.tokenizer_, texts), count("batch_size", batch_size), True, self.progress, "classifying")
        return np.array([head.problem.answer(finite(each, i, model)) for i, each in enumerate(found)]).reshape(-1, len(head.classes))

    def _checked(self, X: Any) -> list[Any]:
        return checked_with_pairs(X)

    def _given(self, texts: list[Any], y: Any, problem: Problem | None) -> Given:
        return read(y, len(texts), problem)

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
        return tokens_of(self.tokenizer_, texts), list(wanted)


def _fits(given: Given, own: Head) -> bool:
    """Whether the columns are counted, or have the names of a head's outputs."""
    return given.names is None or set(given.names) == {str(name) for name in own.classes.tolist()}
