"""A book's chapter on Transformers: self-attention step by step, and a Keras encoder that tells good film reviews from bad ones.

What the numbers of the chapter depend on, and is kept:

- Keras's attention does not divide the embedding among the heads: each is as wide as the whole embedding, so that the encoder has 10,656
  parameters and the model 650,689.
- Keras's layer norm adds 1e-3 to the variance; its weights start by Glorot's uniform rule (the kernels of attention as the matrices that they
  are), its embedding in U(-0.05, 0.05), its biases at 0; its RMSprop has rho 0.9 and adds epsilon inside the square root.
- The chapter's model has neither positions nor a mask: padding is attended to.

Reviews are 600 words long (the chapter's text says characters). Its compile and fit cells are ``ReviewModel.configure_optimizers`` and
``tc.Trainer``; its data ``datasets.load_reviews``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import functional as F
from .. import nn, optim
from .._evaluating import evaluating
from .._joining import matmul
from .._names import hooks
from .._recording import no_grad
from .._tensor import as_tensor
from ..data import DataLoader, TensorDataset
from ..datasets import TextVectorization
from ..training import TrainingModule
from .keras_weights import load_keras_weights

LAYER_NORM_EPS = 1e-3


# ---- self-attention, step by step ---------------------------------------------------------------------------------------------------


def self_attention(x):
    """Without parameters: softmax(X X^T) X, not scaled. x (..., N, d) to the same shape."""
    return matmul(F.softmax(matmul(x, x.swapaxes(-2, -1)), axis=-1), x)


def scaled_self_attention(x, w_q, w_k, w_v):
    """softmax(Q K^T / sqrt(d)) V of Q = X W_q, K = X W_k, V = X W_v, d the width of Q.

    Parameters
    ----------
    x : array_like, shape (..., N, d)
    w_q, w_k, w_v : array_like, shape (d, width)

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import keras_book
    >>> keras_book.scaled_self_attention(np.ones((3, 2)), np.zeros((2, 4)), np.zeros((2, 4)), np.eye(2)).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    q, k, v = matmul(x, w_q), matmul(x, w_k), matmul(x, w_v)
    return matmul(F.softmax(matmul(q, k.swapaxes(-2, -1)) / math.sqrt(q.shape[-1]), axis=-1), v)


def multi_head_self_attention(x, w_q, w_k, w_v, w_o):
    """The heads' results side by side, times W_o.

    Parameters
    ----------
    x : array_like, shape (..., N, d)
    w_q, w_k, w_v : array_like, shape (H, d, width)
        A matrix for each head; width d / H as in the original paper, d as in Keras.
    w_o : array_like, shape (H width, d)
    """
    heads = [scaled_self_attention(x, *weights) for weights in zip(w_q, w_k, w_v, strict=True)]
    width = heads[0].shape[-1]
    return sum(matmul(head, w_o[i * width : (i + 1) * width]) for i, head in enumerate(heads))


# ---- Keras's layers -------------------------------------------------------------------------------------------------------------------


def _dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer as Keras starts it."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MultiHeadAttention(nn.Module):
    """Keras's multi-head attention: every head is `key_dim` wide, whatever the width of the input.

    Parameters
    ----------
    num_heads : int
        H.
    key_dim : int
        D, width of a head.
    embed_dim : int
        Width of input and output, which Keras finds when it is first called.

    Examples
    --------
    >>> from transformer_c.tutorials import keras_book
    >>> attention = keras_book.MultiHeadAttention(num_heads=2, key_dim=32, embed_dim=32)
    >>> sum(p.numel() for p in attention.parameters())
    8416
    """

    _attention_map: ClassVar = {"return_attention_scores": True}

    def __init__(self, num_heads: int, key_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.num_heads, self.key_dim = num_heads, key_dim
        self.query = _dense(embed_dim, num_heads * key_dim)
        self.key = _dense(embed_dim, num_heads * key_dim)
        self.value = _dense(embed_dim, num_heads * key_dim)
        self.output = _dense(num_heads * key_dim, embed_dim)

    def _heads(self, x):
        """(B, T, H D) to (B, H, T, D)."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.key_dim).transpose(1, 2)

    def forward(self, query, value, attention_mask=None, return_attention_scores: bool = False):
        """query (B, T, E), value (B, S, E) to (B, T, E), and the maps (B, H, T, S) when asked for.

        `attention_mask`, (B or 1, T or 1, S), is nonzero where a key may be attended to; a row without any attends uniformly.
        """
        q, k, v = self._heads(self.query(query)), self._heads(self.key(value)), self._heads(self.value(value))
        mask = None if attention_mask is None else (attention_mask != 0).unsqueeze(1)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, empty_rows="uniform", return_attention=return_attention_scores)
        values, maps = found if return_attention_scores else (found, None)
        y = self.output(values.transpose(1, 2).reshape(query.size(0), query.size(1), self.num_heads * self.key_dim))
        return (y, maps) if return_attention_scores else y


class TransformerEncoder(nn.Module):
    """The chapter's encoder block: attention and two dense layers, each with a residual and then layer norm.

    Parameters
    ----------
    embed_dim : int
        Width of input and output, and of every head.
    dense_dim : int
        Width of the hidden layer.
    num_heads : int
    name : str, optional

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import keras_book
    >>> encoder = keras_book.TransformerEncoder(embed_dim=32, dense_dim=32, num_heads=2)
    >>> encoder(np.zeros((4, 600, 32), np.float32)).shape, sum(p.numel() for p in encoder.parameters())
    ((4, 600, 32), 10656)
    """

    def __init__(self, embed_dim: int, dense_dim: int, num_heads: int, *, name: str = "transformer_encoder") -> None:
        super().__init__()
        self.name, self.embed_dim, self.dense_dim, self.num_heads = name, embed_dim, dense_dim, num_heads
        self.attention = MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim, embed_dim=embed_dim)
        self.dense_proj = nn.Sequential(_dense(embed_dim, dense_dim), nn.ReLU(), _dense(dense_dim, embed_dim))
        self.layernorm_1 = nn.LayerNorm(embed_dim, eps=LAYER_NORM_EPS)
        self.layernorm_2 = nn.LayerNorm(embed_dim, eps=LAYER_NORM_EPS)

    def forward(self, inputs, mask=None):
        """inputs (B, T, embed_dim) to the same shape; `mask` (B, T) is nonzero at words and 0 at padding."""
        if mask is not None:
            mask = mask[:, None, :]
        proj_input = self.layernorm_1(inputs + self.attention(inputs, inputs, attention_mask=mask))
        return self.layernorm_2(proj_input + self.dense_proj(proj_input))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the block's ``__init__``."""
        return {"name": self.name, "embed_dim": self.embed_dim, "num_heads": self.num_heads, "dense_dim": self.dense_dim}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TransformerEncoder:
        """A block with the arguments from ``get_config`` and new weights."""
        return cls(**config)

    load_keras_weights = load_keras_weights


class ReviewModel(TrainingModule):
    """Embedding of words, one encoder block, maximum of each feature over all words, dropout, one probability.

    Parameters
    ----------
    vocab_size, embed_dim, num_heads, dense_dim : int
    dropout : float
    lr : float
    vocabulary : list of str, optional
        The words by their integers, as ``TextVectorization.get_vocabulary`` gives them; a hyper-parameter, so that it is in every checkpoint.
    sequence_length : int, default 600
        Words of a review, for ``vectorization``.

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import keras_book
    >>> model = keras_book.ReviewModel()
    >>> model(np.zeros((4, 600), int)).shape, sum(p.numel() for p in model.parameters())
    ((4, 1), 650689)
    """

    def __init__(
        self,
        vocab_size: int = 20000,
        embed_dim: int = 32,
        num_heads: int = 2,
        dense_dim: int = 32,
        dropout: float = 0.5,
        lr: float = 1e-3,
        vocabulary: list[str] | None = None,
        sequence_length: int = 600,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if vocabulary is not None and len(vocabulary) > vocab_size:
            raise ValueError(f"the vocabulary has {len(vocabulary)} words; vocab_size={vocab_size} leaves no room for so many")
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.transformer_encoder = TransformerEncoder(embed_dim, dense_dim, num_heads)
        self.global_max_pooling1d = nn.GlobalMaxPool1D()
        self.dropout = nn.Dropout(dropout)
        self.dense = _dense(embed_dim, 1)

    def forward(self, inputs):
        """Maps words (B, T), integers, to probabilities (B, 1) of a good review."""
        x = self.transformer_encoder(self.embedding(inputs))
        return F.sigmoid(self.dense(self.dropout(self.global_max_pooling1d(x))))

    def predict(self, inputs):
        """Probabilities (B, 1) without gradient, in the model's current mode."""
        with no_grad():
            return self(inputs)

    def vectorization(self) -> TextVectorization:
        """Maps texts to words as in this model's training; needs its `vocabulary`."""
        if self.hparams.vocabulary is None:
            raise RuntimeError("this model was made without a vocabulary: pass vocabulary=vectorization.get_vocabulary() to it")
        made = TextVectorization(self.hparams.vocab_size, output_mode="int", output_sequence_length=self.hparams.sequence_length)
        made.set_vocabulary(self.hparams.vocabulary)
        return made

    def predict_texts(self, texts, batch_size: int = 32) -> np.ndarray:
        """Probabilities (N,) that each of the texts is a good review, in eval mode.

        Examples
        --------
        >>> from transformer_c.tutorials import keras_book
        >>> model = keras_book.ReviewModel(vocab_size=4, vocabulary=["", "[UNK]", "good", "bad"], sequence_length=5)
        >>> model.predict_texts(["A good film", "Bad!"]).shape
        (2,)
        """
        words = self.vectorization()(list(texts))
        with evaluating(self):
            parts = [np.asarray(self.predict(words[i : i + batch_size])) for i in range(0, len(words), batch_size)]
        return np.concatenate(parts)[:, 0] if parts else np.zeros(0, np.float32)

    def _loss(self, batch, prefix: str):
        words, labels = batch
        y = self(words).squeeze(-1)
        loss = F.binary_cross_entropy(y, labels.to(y.dtype))
        self.log(f"{prefix}loss", loss, prog_bar=True)
        self.log(f"{prefix}accuracy", ((y > 0.5) == (labels > 0.5)).float().mean(), prog_bar=True)
        return loss

    def training_step(self, batch, batch_idx):
        """Logs "loss" and "accuracy" of (words (B, T), classes (B,)), and returns the loss."""
        return self._loss(batch, "")

    def validation_step(self, batch, batch_idx):
        """Logs "val_loss" and "val_accuracy"."""
        self._loss(batch, "val_")

    def test_step(self, batch, batch_idx):
        """Logs "test_loss" and "test_accuracy"."""
        self._loss(batch, "test_")

    def configure_optimizers(self):
        """RMSprop with Keras's defaults and rule."""
        return optim.RMSprop(self.parameters(), lr=self.hparams.lr, alpha=0.9, eps=1e-7, eps_inside_sqrt=True)

    def summary(self) -> str:
        """One line per layer, and the numbers of parameters, as in Keras's ``model.summary()``."""
        count = lambda module: sum(p.numel() for p in module.parameters())
        lines = [f"{name:24}{type(layer).__name__:24}{count(layer):>12,}" for name, layer in self.named_children()]
        return "\n".join([f"{'Layer':24}{'Type':24}{'Parameters':>12}", "-" * 60, *lines, "-" * 60, f"{'Total':48}{count(self):>12,}"])

    load_keras_weights = load_keras_weights


def build_model(vocab_size: int = 20000, embed_dim: int = 32, num_heads: int = 2, dense_dim: int = 32) -> ReviewModel:
    """The chapter's model."""
    return ReviewModel(vocab_size, embed_dim, num_heads, dense_dim)


def split_reviews(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the reviews for training, validation and testing: seven, one and two tenths of `count`, at random."""
    order = np.random.RandomState(seed).permutation(count)
    test, val, train = np.split(order, [count // 5, count * 3 // 10])
    return train, val, test


class ReviewDataset(TensorDataset):
    """Reviews as words (N, T) with their classes (N,).

    Attributes
    ----------
    vectorization : TextVectorization
        The vectorization that made the words.
    """

    def __init__(self, texts, labels, vectorization: TextVectorization) -> None:
        super().__init__(as_tensor(vectorization(list(texts))), as_tensor(np.asarray(labels, np.int64)))
        self.vectorization = vectorization


def review_loader(texts, labels, vectorization: TextVectorization, batch_size: int = 32, shuffle: bool = False) -> DataLoader:
    """Batches (words (B, T), classes (B,)) of reviews."""
    return DataLoader(ReviewDataset(texts, labels, vectorization), batch_size=batch_size, shuffle=shuffle)


__all__ = [
    "MultiHeadAttention",
    "ReviewDataset",
    "ReviewModel",
    "TextVectorization",
    "TransformerEncoder",
    "build_model",
    "load_keras_weights",
    "multi_head_self_attention",
    "review_loader",
    "scaled_self_attention",
    "self_attention",
    "split_reviews",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
