"""What classifier and regressor share: checks of the input, fitting and prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._core import Tensor
from .._recording import no_grad
from ..datasets.text import TextVectorization
from .inputs import Scale, kind_of, names_columns
from .model import Model
from .training import ROWS, Options, Samples, parts, taken, train


class Transformer(BaseEstimator):
    """The estimator without targets; subclasses prepare them.

    A fit fills a new estimator with the same options, and its attributes become this one's in one step at the end: a fit that is refused or
    interrupted changes nothing.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = tags.input_tags.string = True
        tags.non_deterministic = False
        return tags

    def fit(self, X, y, sample_weight=None):
        """Trains a new model; returns the estimator.

        Parameters
        ----------
        X : array_like, shape (N, F) or (N, T, F), or N str
        y : array_like, shape (N,), for a regressor also (N, K)
            Classes (ints, str, ...) or numbers.
        sample_weight : array_like, shape (N,), optional
        """
        made = object.__new__(type(self))
        made.__dict__ = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        made._fit(X, y, sample_weight)
        self.__dict__ = vars(made)
        return self

    # ---- the input -----------------------------------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """The samples and targets of a training, as arrays; sets what the estimator remembers of the features."""
        self.kind_ = kind_of(X)
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None ({type(self).__name__})")
        if self.kind_ == "table":
            with names_columns(X):
                return validate_data(self, X, y, dtype=np.float64, **options)
        return list(X) if self.kind_ == "texts" else self._sequences(X, reset=True), y

    def _sequences(self, X: Any, reset: bool) -> np.ndarray:
        X = check_array(X, allow_nd=True, dtype=np.float64, ensure_min_features=0)
        if X.shape[1] < 1 or X.shape[2] < 1:
            raise ValueError(f"X has shape {X.shape}; expected (samples, steps, features), at least one of each")
        if reset:
            self.n_features_in_ = X.shape[2]
        elif X.shape[2] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[2]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input")
        return X

    def _prepared(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """The input of the model: numbers, standardised; or words, and how many there are with the first token."""
        check_is_fitted(self)
        kind = kind_of(X)
        if kind != self.kind_:
            raise ValueError(f"X is of kind {kind!r}, but {type(self).__name__} was fitted to {self.kind_!r}")
        if kind == "texts":
            words = self.vectorizer_([str(text) for text in X])
            return words, 1 + (words != 0).sum(1)
        with names_columns(X):
            X = validate_data(self, X, reset=False, dtype=np.float64) if kind == "table" else self._sequences(X, reset=False)
        return self._scale_(X), None

    # ---- fitting and predicting ------------------------------------------------------------------------------------------------

    def _weights(self, sample_weight: Any, n: int) -> np.ndarray:
        weights = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
        if not (weights > 0).any():
            raise ValueError("sample_weight is 0 for all samples, but at least one must count")
        largest = weights.max()
        return weights if 1e-100 < largest < 1e100 else weights / largest  # sums and products with class weights stay in range

    def _train(self, X: Any, y: np.ndarray, weights: np.ndarray, options: Options, outputs: int, classes: np.ndarray | None) -> None:
        """`y` (N, K) floats, or (N,) classes from 0."""
        draw = check_random_state(self.random_state)
        used = weights > 0
        y, weights = y[used], weights[used]
        lengths: np.ndarray | None = None
        if self.kind_ == "texts":
            x, lengths, size = self._learn_words([str(text) for text, use in zip(X, used, strict=True) if use], options)
        else:
            self._scale_ = Scale(X[used], weights, least=1e-12)
            x, size = self._scale_(X[used]), X.shape[-1]

        def make() -> Model:
            return Model(
                self.kind_, size, outputs, width=options.d_model, heads=options.n_heads, layers=options.n_layers, hidden=options.d_ff,
                dropout=options.dropout,
            )  # fmt: skip

        samples = Samples(x, lengths, y, weights / weights.mean())
        trained = train(make, samples, self._loss, options, draw, None if classes is None else classes[used])
        self.model_, self.loss_curve_, self.validation_curve_ = trained.model, trained.losses, trained.held_losses
        self.n_iter_ = len(self.loss_curve_)

    def _learn_words(self, texts: list[str], options: Options) -> tuple[np.ndarray, np.ndarray, int]:
        """The words (N, T) as numbers, how many there are with the first token, and how many are known."""
        self.vectorizer_ = TextVectorization(options.max_tokens, output_sequence_length=None)
        self.vectorizer_.adapt(texts)
        if self.vectorizer_.vocabulary_size() == 2:
            raise ValueError("the texts contain no words")
        self.vectorizer_.output_sequence_length = min(options.max_length, max(self.vectorizer_(texts).shape[1], 1))
        words = self.vectorizer_(texts)
        return words, 1 + (words != 0).sum(1), self.vectorizer_.vocabulary_size()

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        raise NotImplementedError

    def _outputs(self, X: Any) -> np.ndarray:
        """What the model gives for each sample, float64 (N, K)."""
        x, lengths = self._prepared(X)
        with no_grad():
            found = np.concatenate([self.model_(*taken(x, lengths, rows)) for rows in parts(np.arange(len(x)), ROWS)])
        if not np.isfinite(found).all():
            raise ValueError("the model's outputs are not finite: its training diverged; a lower learning_rate may help")
        return found.astype(np.float64)


__all__ = ["Transformer"]
