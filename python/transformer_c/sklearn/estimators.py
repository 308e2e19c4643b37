"""The estimators."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from .. import functional as F
from .._core import Tensor
from .._names import explained
from .base import Transformer
from .inputs import Scale
from .training import Options

_OTHER_NAMES = {
    **dict.fromkeys(("epochs", "max_iter", "n_epochs", "num_epochs"), "max_epochs="),
    **dict.fromkeys(("lr", "learning_rate_init"), "learning_rate="),
    **dict.fromkeys(("num_heads", "nhead"), "n_heads="),
    **dict.fromkeys(("num_layers", "layers"), "n_layers="),
    **dict.fromkeys(("dim_feedforward", "hidden_layer_sizes"), "d_ff="),
    "patience": "n_iter_no_change=, with early_stopping=True",
    "alpha": "weight_decay=",
    "device": "model_.to(device) moves the trained model",
}

# scikit-learn reads the options of an estimator from the signature of its __init__, which sets them and does nothing else: they cannot be shared.


class TransformerClassifier(ClassifierMixin, Transformer):
    """A Transformer encoder that classifies rows of a table, sequences or texts.

    Parameters
    ----------
    d_model : int, default 32
        Features of a token.
    n_heads : int, default 4
        Divides `d_model`.
    n_layers : int, default 2
    d_ff : int, optional
        Width of the hidden layers; by default twice `d_model`.
    dropout : float, default 0.1
    learning_rate : float, default 0.003
        The highest; it rises for a tenth of the steps and falls as a cosine.
    weight_decay : float, default 0.01
    batch_size : int or "auto"
        "auto" is about a sixteenth of the samples, a power of two from 8 to 256.
    max_epochs : int, default 30
    early_stopping : bool, default False
        Hold out a share of the samples and keep the weights that are best for them; stop when they do not improve.
    validation_fraction : float, default 0.1
    n_iter_no_change : int, default 10
        Epochs to wait for an improvement of the loss by more than `tol`.
    tol : float, default 1e-4
    class_weight : dict, "balanced" or None
        Factors of the classes.
    max_tokens, max_length : int, default 10,000 and 256
        Of texts: the size of the vocabulary, and the longest text in words.
    random_state : int, RandomState or None
        Weights, order of the samples, dropout. The same int gives the same bits.
    verbose : bool, default False
        Print the loss of each epoch.

    Attributes
    ----------
    classes_ : ndarray
    n_features_in_ : int
        Of tables and sequences. `feature_names_in_`: the columns of a data frame.
    model_ : Module
    vectorizer_ : TextVectorization
        Of texts.
    n_iter_ : int
        Epochs.
    loss_curve_, validation_curve_ : list of float
        The loss of each epoch, on the samples of the training and on those held out.

    Notes
    -----
    X is a table (N, F), sequences (N, T, F) of one length, or texts, a list, array or Series of N str. Numbers are standardised, so no
    scaling is needed before. Time and memory grow with the square of F, T or the number of words.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 4))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> classifier = tc.sklearn.TransformerClassifier(max_epochs=20, random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    """

    @explained(_OTHER_NAMES)
    def __init__(
        self,
        d_model=32,
        n_heads=4,
        n_layers=2,
        d_ff=None,
        *,
        dropout=0.1,
        learning_rate=3e-3,
        weight_decay=0.01,
        batch_size="auto",
        max_epochs=30,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        class_weight=None,
        max_tokens=10_000,
        max_length=256,
        random_state=None,
        verbose=False,
    ):
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_layers = n_layers
        self.d_ff = d_ff
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.class_weight = class_weight
        self.max_tokens = max_tokens
        self.max_length = max_length
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, y, sample_weight):
        options = Options.of(self)
        X, y = self._checked(X, y)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        self.classes_, classes = np.unique(y, return_inverse=True)
        weights = self._weights(sample_weight, len(y)) * compute_sample_weight(self.class_weight, y)
        self._train(X, classes.astype(np.int64), weights, options, len(self.classes_), classes)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs, y, reduction="none")

    def predict_log_proba(self, X):
        """Logarithms of the probabilities (N, classes), float64."""
        logits = self._outputs(X)
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def predict_proba(self, X):
        """Probabilities (N, classes), float64, in the order of ``classes_``."""
        logits = self._outputs(X)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict(self, X):
        """The likeliest class of each sample."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]


class TransformerRegressor(RegressorMixin, Transformer):
    """A Transformer encoder that predicts numbers from rows of a table, sequences or texts.

    Parameters and attributes are those of ``TransformerClassifier``, without classes and `class_weight`. The targets are standardised.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> X = np.random.default_rng(0).uniform(-2, 2, (200, 3))
    >>> y = 10 * np.sin(X[:, 0]) * X[:, 1]
    >>> regressor = tc.sklearn.TransformerRegressor(random_state=0).fit(X, y)
    >>> regressor.score(X, y) > 0.9
    True
    """

    @explained(_OTHER_NAMES)
    def __init__(
        self,
        d_model=32,
        n_heads=4,
        n_layers=2,
        d_ff=None,
        *,
        dropout=0.1,
        learning_rate=3e-3,
        weight_decay=0.01,
        batch_size="auto",
        max_epochs=30,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        max_tokens=10_000,
        max_length=256,
        random_state=None,
        verbose=False,
    ):
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_layers = n_layers
        self.d_ff = d_ff
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.max_tokens = max_tokens
        self.max_length = max_length
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _fit(self, X, y, sample_weight):
        options = Options.of(self)
        y = None if y is None else _numbers(y)
        X, y = self._checked(X, y, multi_output=True, y_numeric=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        weights = self._weights(sample_weight, len(y))
        self._is_flat_ = y.ndim == 1
        y = y.reshape(len(y), -1)
        self._target_scale_ = Scale(y, weights, least=1e-14)
        self._train(X, self._target_scale_(y), weights, options, y.shape[1], None)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Of the mean over targets."""
        return F.mse_loss(outputs, y, reduction="none").mean(1)

    def predict(self, X):
        """Numbers (N,) or (N, K), float64."""
        outputs = self._outputs(X)
        found = self._target_scale_.undone(outputs)
        return found[:, 0] if self._is_flat_ else found


def _numbers(y):
    """The targets, unless they are words."""
    array = np.asarray(y)
    if array.dtype.kind in "OUS":
        try:
            array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must be numbers, got {array.tolist()[0]!r}; TransformerClassifier learns classes") from None
    return y


__all__ = ["TransformerClassifier", "TransformerRegressor"]
