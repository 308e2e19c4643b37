"""Transformers as scikit-learn's estimators: tables, sequences and texts.

A table's features are the tokens: each number scales a vector of its own, to which another is added (Gorishniy et al. 2021, section 3.3). The
steps of a sequence or the words of a text are tokens with a position. One more token, learnt, gathers what the head needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import functional as F
from . import nn, optim
from ._arguments import count, not_negative
from ._core import Generator, Tensor
from ._tensor import arange, as_tensor, cat, no_grad
from .datasets.text import TextVectorization

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d, compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("tc.sklearn needs scikit-learn 1.6 or newer: pip install 'transformer_c[sklearn]'") from error

_ROWS = 256  # of a prediction at once
_WARM_UP = 0.1  # of all steps

# ---- the model ------------------------------------------------------------------------------------------------------------


def _uniform(draw: np.random.RandomState, *shape: int) -> nn.Parameter:
    """Xavier's weights (out, in)."""
    bound = math.sqrt(6 / (shape[0] + shape[-1]))
    return nn.Parameter(draw.uniform(-bound, bound, shape).astype(np.float32))


def _filled(value: float, *shape: int) -> nn.Parameter:
    return nn.Parameter(np.full(shape, value, np.float32))


class _Linear(nn.Module):
    def __init__(self, draw: np.random.RandomState, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = _uniform(draw, outputs, inputs), _filled(0, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = _filled(1, width), _filled(0, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class _Block(nn.Module):
    """Attention and a network of two layers, each behind a norm; dropout draws from the estimator's own generator."""

    def __init__(self, draw: np.random.RandomState, width: int, heads: int, hidden: int, dropout: float, masks: Generator) -> None:
        super().__init__()
        self.heads, self.dropout, self.masks = heads, dropout, masks
        self.norm1, self.norm2 = _Norm(width), _Norm(width)
        self.qkv, self.output = _Linear(draw, width, 3 * width), _Linear(draw, width, width)
        self.up, self.down = _Linear(draw, width, hidden), _Linear(draw, hidden, width)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training, rng=self.masks)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = F.qkv_projection(self.norm1(x), self.qkv.weight, self.qkv.bias, num_heads=self.heads, packing="qkv")
        values = F.scaled_dot_product_attention(q, k, v, key_lengths=lengths)
        x = x + self._dropped(self.output(values.permute(0, 2, 1, 3).reshape(batch, tokens, width)))
        return x + self._dropped(self.down(F.relu(self.up(self.norm2(x)))))


class _Table(nn.Module):
    """x (B, F) to tokens (B, F, E)."""

    def __init__(self, draw: np.random.RandomState, features: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(draw.uniform(-bound, bound, (features, width)).astype(np.float32))
        self.bias = nn.Parameter(draw.uniform(-bound, bound, (features, width)).astype(np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1) * self.weight + self.bias


class _Positions(nn.Module):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5), side by side (T, E)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = np.exp(-math.log(10000.0) / width * np.arange(0, width, 2)).astype(np.float32)
        self.register_buffer("sines", as_tensor(frequency))
        self.register_buffer("cosines", as_tensor(frequency[: width // 2].copy()))

    def forward(self, length: int) -> Tensor:
        place = arange(length).float().unsqueeze(1)
        return cat([(place * self.sines).sin(), (place * self.cosines).cos()], 1)


class _Steps(nn.Module):
    """x (B, T, F) to tokens (B, T, E)."""

    def __init__(self, draw: np.random.RandomState, features: int, width: int) -> None:
        super().__init__()
        self.project, self.positions = _Linear(draw, features, width), _Positions(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x) + self.positions(x.shape[1])


class _Words(nn.Module):
    """Integers (B, T) to tokens (B, T, E)."""

    def __init__(self, draw: np.random.RandomState, words: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(draw.standard_normal((words, width)).astype(np.float32))
        self.positions = _Positions(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.weight, padding_idx=0) + self.positions(x.shape[1])


class _Model(nn.Module):
    """Tokens, blocks, and a head on the first token."""

    def __init__(self, draw, kind, size, outputs, *, width, heads, layers, hidden, dropout, masks) -> None:
        super().__init__()
        self.tokens = {"table": _Table, "sequences": _Steps, "texts": _Words}[kind](draw, size, width)
        self.first = nn.Parameter(0.02 * draw.standard_normal((1, 1, width)).astype(np.float32))
        self.blocks = nn.ModuleList([_Block(draw, width, heads, hidden, dropout, masks) for _ in range(layers)])
        self.norm, self.head = _Norm(width), _Linear(draw, width, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The outputs (B, K). The first token counts among the `lengths`."""
        tokens = self.tokens(x)
        x = cat([self.first.expand(tokens.shape[0], -1, -1), tokens], 1)
        for block in self.blocks:
            x = block(x, lengths)
        return self.head(self.norm(x[:, 0]))


# ---- training ----------------------------------------------------------------------------------------------------------------


def _batches(x: np.ndarray, lengths: np.ndarray | None, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    for start in range(0, len(x), size):
        yield _taken(x, lengths, slice(start, start + size))


def _taken(x: np.ndarray, lengths: np.ndarray | None, rows: Any) -> tuple[Tensor, Tensor | None]:
    """Some rows, without the padding that none of them needs."""
    if lengths is None:
        return as_tensor(x[rows]), None
    return as_tensor(x[rows][:, : max(int(lengths[rows].max()) - 1, 1)]), as_tensor(lengths[rows])


class _Transformer(BaseEstimator):
    """What classifier and regressor share."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = tags.input_tags.string = True
        tags.non_deterministic = False
        return tags

    # ---- the input -----------------------------------------------------------------------------------------------------------

    @staticmethod
    def _kind(X: Any) -> str:
        if not hasattr(X, "shape") and isinstance(X, (list, tuple)) and X and all(isinstance(text, str) for text in X):
            return "texts"
        if hasattr(X, "to_numpy") and getattr(X, "ndim", 0) == 1:
            X = X.to_numpy()
        if getattr(X, "ndim", None) == 1 and len(X) and isinstance(X[0], str):
            return "texts"
        shape = getattr(X, "shape", None)
        if shape is None and isinstance(X, (list, tuple)) and len(X) and isinstance(X[0], (list, tuple, np.ndarray)):
            shape = np.shape(X[0])
            return "sequences" if len(shape) == 2 else "table"
        return "sequences" if shape is not None and len(shape) == 3 else "table"

    def _numbers(self, X: Any, kind: str, reset: bool) -> np.ndarray:
        """A table or sequences, checked."""
        if kind == "table":
            return validate_data(self, X, reset=reset, dtype=np.float64)
        X = check_array(X, allow_nd=True, dtype=np.float64, ensure_min_features=0)
        if X.shape[1] < 1 or X.shape[2] < 1:
            raise ValueError(f"X has shape {X.shape}; expected (samples, steps, features), at least one of each")
        if reset:
            self.n_features_in_ = X.shape[2]
        elif X.shape[2] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[2]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input")
        return X

    def _prepared(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """What the model takes: numbers, standardised; or words, and how many there are with the first token."""
        check_is_fitted(self)
        kind = self._kind(X)
        if kind != self.kind_:
            raise ValueError(f"X is of kind {kind!r}, but {type(self).__name__} was fitted to {self.kind_!r}")
        if kind == "texts":
            words = self.vectorizer_([str(text) for text in X])
            return words, 1 + (words != 0).sum(1)
        X = self._numbers(X, kind, reset=False)
        return self._standardised(X), None

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip((X - self._mean) / self._scale, -1e6, 1e6).astype(np.float32)

    def _learn_scale(self, X: np.ndarray, weights: np.ndarray) -> None:
        axes = (0,) if X.ndim == 2 else (0, 1)
        w = np.broadcast_to((weights / weights.sum()).reshape(-1, *[1] * (X.ndim - 1)), X.shape) / math.prod(X.shape[1:-1])
        largest = np.maximum(np.abs(X).max(axes), np.finfo(np.float64).tiny)  # squares stay finite
        mean = ((X / largest) * w).sum(axes)
        variance = ((X / largest - mean) ** 2 * w).sum(axes)
        self._mean = mean * largest
        self._scale = np.where(variance > 1e-24, np.sqrt(variance), 1.0) * np.where(variance > 1e-24, largest, 1.0)

    # ---- fitting -------------------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: np.ndarray, weights: np.ndarray, stratify: np.ndarray | None) -> None:
        """`y` (N, K) floats, or (N,) classes from 0; X has the kind self.kind_, and is checked."""
        draw = check_random_state(self.random_state)
        used = weights > 0
        if not used.any():
            raise ValueError("sample_weight is 0 for all samples, but at least one must count")
        y, weights = y[used], weights[used]
        lengths: np.ndarray | None = None
        if self.kind_ == "texts":
            texts = [str(text) for text, use in zip(X, used, strict=True) if use]
            self.vectorizer_ = TextVectorization(count("max_tokens", self.max_tokens, 3), output_sequence_length=None)
            self.vectorizer_.adapt(texts)
            if self.vectorizer_.vocabulary_size() == 2:
                raise ValueError("the texts contain no words")
            longest = self.vectorizer_(texts).shape[1]
            self.vectorizer_.output_sequence_length = min(count("max_length", self.max_length), max(longest, 1))
            x = self.vectorizer_(texts)
            lengths, size = 1 + (x != 0).sum(1), self.vectorizer_.vocabulary_size()
        else:
            X = X[used]
            self._learn_scale(X, weights)
            x, size = self._standardised(X), X.shape[-1]
        self._train(draw, x, lengths, size, y, weights / weights.mean(), None if stratify is None else stratify[used])

    def _train(self, draw, x, lengths, size, y, weights, stratify) -> None:
        width, heads = count("d_model", self.d_model), count("n_heads", self.n_heads)
        if width % heads:
            raise ValueError(f"d_model {width} must be a multiple of n_heads {heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        masks = Generator(int(draw.randint(2**31 - 1)))
        hidden = 2 * width if self.d_ff is None else count("d_ff", self.d_ff)
        outputs = len(self.classes_) if y.ndim == 1 else y.shape[1]
        self.model_ = _Model(
            draw, self.kind_, size, outputs, width=width, heads=heads, layers=count("n_layers", self.n_layers), hidden=hidden,
            dropout=self.dropout, masks=masks,
        )  # fmt: skip
        train, held = self._split(draw, len(x), stratify)
        batch = self._batch_size(len(train))
        epochs = count("max_epochs", self.max_epochs)
        optimizer = optim.AdamW(
            self.model_.parameters(), lr=not_negative("learning_rate", self.learning_rate), weight_decay=self.weight_decay
        )
        steps, step = epochs * -(-len(train) // batch), 0
        self.loss_curve_: list[float] = []
        self.validation_curve_: list[float] = []
        best, kept, waited = math.inf, None, 0
        for _ in range(epochs):
            order, total = train[draw.permutation(len(train))], 0.0
            self.model_.train()
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                optimizer.param_groups[0]["lr"] = self.learning_rate * _schedule(step, steps)
                loss = self._loss(*_taken(x, lengths, rows), y[rows], weights[rows]) / len(rows)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model_.parameters(), 1.0)
                optimizer.step()
                step += 1
                total += loss.item() * len(rows)
            self.loss_curve_.append(total / len(train))
            self.n_iter_ = len(self.loss_curve_)
            if self.verbose:
                print(f"epoch {self.n_iter_}: loss {self.loss_curve_[-1]:.4f}")
            if len(held):
                found = self._held_out_loss(x, lengths, y, weights, held)
                self.validation_curve_.append(found)
                waited = 0 if found < best - self.tol else waited + 1
                if found < best:
                    best, kept = found, {name: value.clone() for name, value in self.model_.state_dict().items()}
                if waited >= self.n_iter_no_change:
                    break
        if kept is not None:
            self.model_.load_state_dict(kept)
        self.model_.zero_grad()
        self.model_.eval()

    def _split(self, draw, n: int, stratify: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on, and rows held out for early stopping."""
        rows = np.arange(n)
        if not self.early_stopping:
            return rows, rows[:0]
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction}")
        if stratify is not None:
            held = max(1, round(n * self.validation_fraction))
            classes, counts = np.unique(stratify, return_counts=True)
            if counts.min() < 2 or held < len(classes) or n - held < len(classes):
                stratify = None
        train, held = train_test_split(rows, test_size=self.validation_fraction, random_state=draw, stratify=stratify)
        return np.sort(train), np.sort(held)

    def _batch_size(self, n: int) -> int:
        if self.batch_size == "auto":
            return min(max(2 ** int(math.log2(max(n / 16, 1))), 8), _ROWS)
        if isinstance(self.batch_size, str):
            raise ValueError(f"batch_size must be an int or 'auto', got {self.batch_size!r}")
        return count("batch_size", self.batch_size)

    def _held_out_loss(self, x, lengths, y, weights, held) -> float:
        self.model_.eval()
        with no_grad():
            parts = [held[i : i + _ROWS] for i in range(0, len(held), _ROWS)]
            return sum(self._loss(*_taken(x, lengths, rows), y[rows], weights[rows]).item() for rows in parts) / len(held)

    def _outputs(self, X: Any) -> np.ndarray:
        """What the model gives for each sample, float64 (N, K)."""
        x, lengths = self._prepared(X)
        with no_grad():
            return np.concatenate([self.model_(*batch).numpy() for batch in _batches(x, lengths, _ROWS)]).astype(np.float64)


def _schedule(step: int, steps: int) -> float:
    """The factor of the learning rate: it rises for a tenth of the steps, then falls as a cosine."""
    warm = max(1, int(_WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class TransformerClassifier(ClassifierMixin, _Transformer):
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

    def fit(self, X, y, sample_weight=None):
        """Trains a new model; returns the estimator.

        Parameters
        ----------
        X : array_like, shape (N, F) or (N, T, F), or N str
        y : array_like, shape (N,)
            Classes: ints, str, ...
        sample_weight : array_like, shape (N,), optional
        """
        self.kind_ = self._kind(X)
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None ({type(self).__name__})")
        if self.kind_ == "table":
            X, y = validate_data(self, X, y, dtype=np.float64)
        else:
            X = list(X) if self.kind_ == "texts" else self._numbers(X, self.kind_, reset=True)
            y = np.asarray(y)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        self.classes_, classes = np.unique(y, return_inverse=True)
        weights = _check_sample_weight(sample_weight, np.empty((len(y), 1)), dtype=np.float64, ensure_non_negative=True)
        weights = weights * compute_sample_weight(self.class_weight, y)
        self._fit(X, classes.astype(np.int64), weights, classes)
        return self

    def _loss(self, x: Tensor, lengths: Tensor | None, y: np.ndarray, weights: np.ndarray) -> Tensor:
        """The sum of the samples' losses."""
        each = F.cross_entropy(self.model_(x, lengths), as_tensor(y), reduction="none")
        return (each * as_tensor(weights.astype(np.float32))).sum()

    def predict_proba(self, X):
        """Probabilities (N, classes), float64, in the order of ``classes_``."""
        logits = self._outputs(X)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict(self, X):
        """The likeliest class of each sample."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]


class TransformerRegressor(RegressorMixin, _Transformer):
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

    def fit(self, X, y, sample_weight=None):
        """Trains a new model; returns the estimator.

        Parameters
        ----------
        X : array_like, shape (N, F) or (N, T, F), or N str
        y : array_like, shape (N,) or (N, K)
        sample_weight : array_like, shape (N,), optional
        """
        self.kind_ = self._kind(X)
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None ({type(self).__name__})")
        if self.kind_ == "table":
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        else:
            X = list(X) if self.kind_ == "texts" else self._numbers(X, self.kind_, reset=True)
            y = check_array(y, ensure_2d=False, dtype=np.float64)
        check_consistent_length(X, y)
        y = np.asarray(y, np.float64)
        weights = _check_sample_weight(sample_weight, np.empty((len(y), 1)), dtype=np.float64, ensure_non_negative=True)
        self._is_flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        share = weights[:, None] / max(weights.sum(), np.finfo(np.float64).tiny)
        self._target_mean = (y * share).sum(0)
        deviation = np.sqrt(((y - self._target_mean) ** 2 * share).sum(0))
        self._target_scale = np.where(deviation > 0, deviation, 1.0)
        self._fit(X, ((y - self._target_mean) / self._target_scale).astype(np.float32), weights, None)
        return self

    def _loss(self, x: Tensor, lengths: Tensor | None, y: np.ndarray, weights: np.ndarray) -> Tensor:
        """The sum of the samples' squared errors, of the mean over targets."""
        each = F.mse_loss(self.model_(x, lengths), as_tensor(y), reduction="none").mean(1)
        return (each * as_tensor(weights.astype(np.float32))).sum()

    def predict(self, X):
        """Numbers (N,) or (N, K), float64."""
        outputs = self._outputs(X)
        found = outputs * self._target_scale + self._target_mean
        return found[:, 0] if self._is_flat else found


__all__ = ["TransformerClassifier", "TransformerRegressor"]
