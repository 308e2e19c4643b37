"""What is put on an encoder for a task; transformers' ``For...`` classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._tensor import as_tensor, zeros
from ..nn.fusion import activated
from ..nn.parameter import Parameter
from .config import Config
from .layers import ACTIVATIONS, named_as_in_transformers, which_are_tokens


class WithHead(nn.Module):
    """An encoder and a head; ``forward`` takes what the encoder takes.

    Attributes
    ----------
    encoder : Module
    config : dict
        The contents of config.json.
    task : str
    labels : list of str
        Names of the classes, in order, where the task has classes.
    """

    task: str

    def __init__(self, encoder: Any, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        self.dropout = nn.Dropout(dropout)
        if outputs:
            self.out = nn.Linear(width, outputs)

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        """The head that a configuration asks for."""
        config.problem()  # an unknown one is refused here
        labels = config.labels()
        head = cls(encoder, width, len(labels), **options)
        head.labels = labels
        return head


class TextClassification(WithHead):
    """Scores of each text, (B, classes), before softmax or sigmoid; or its numbers, where config.json has problem_type "regression"."""

    task = "text-classification"

    def __init__(
        self, encoder: Any, width: int, outputs: int, dropout: float = 0.0, activation: str = "tanh", dropout_first: bool = False
    ) -> None:
        super().__init__(encoder, width, outputs, dropout)
        self.dense = nn.Linear(width, width)
        self.activation, self.dropout_first = activation, dropout_first

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        states = self.encoder(ids, mask, lengths, token_types)
        if not states.shape[1]:
            raise ValueError(f"ids have the shape {tuple(states.shape[:2])}; a text is judged by its first token, and there is none")
        if mask is not None and not _core.is_traced():
            _check_beginnings(as_tensor(mask).detach().cpu().numpy() != 0)
        x = states[:, 0]
        x = self.dropout(x) if self.dropout_first else x
        return self.out(self.dropout(activated(self.dense, ACTIVATIONS[self.activation], x)))


def _check_beginnings(tokens: np.ndarray) -> None:
    """Raises for texts with padding in front of their tokens, (B, T): their first states are 0."""
    padded = np.flatnonzero(~tokens[:, 0] & tokens.any(1))
    if padded.size:
        raise ValueError(
            f"text number {padded[0]} begins with padding (mask[{padded[0]}, 0] is 0), but a text is judged by its first token: pad texts at "
            "their ends, as tokenizers with padding_side='right' do"
        )


class TokenClassification(WithHead):
    """Scores of the classes of each token, (B, T, classes), before softmax."""

    task = "token-classification"

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        return self.out(self.dropout(self.encoder(ids, mask, lengths, token_types)))


class QuestionAnswering(WithHead):
    """Scores for each token to be the first and the last of the answer, (B, T, 2).

    At padded positions they are those of a state of 0, which may be the largest: fill them with -inf before a softmax over positions.
    """

    task = "question-answering"

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        return cls(encoder, width, 2, **options)

    forward = TokenClassification.forward


class FillMask(WithHead):
    """Scores of all words at each position, (B, T, vocabulary), by the table of the words' embeddings; 0 at the padded ends."""

    task = "fill-mask"

    def __init__(self, encoder: Any, width: int, activation: str, eps: float) -> None:
        super().__init__(encoder, width, 0)
        words, size = encoder.words.weight.shape
        self.dense = nn.Linear(width, size)
        self.norm = nn.LayerNorm(size, eps=eps)
        self.bias = Parameter(zeros(words))
        self.activation = activation

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        config.only("tie_word_embeddings", True, None)
        return cls(encoder, width, **options)

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        x = self.encoder(ids, mask, lengths, token_types)
        packing = which_are_tokens(tuple(x.shape[:2]), mask, lengths)[0]
        x = x if packing is None else packing.pack(x)
        x = F.linear(self.norm(activated(self.dense, ACTIVATIONS[self.activation], x)), self.encoder.words.weight, self.bias)
        return x if packing is None else packing.unpack(x)


class ImageClassification(WithHead):
    """Scores of the classes of each image, (B, classes), before softmax."""

    task = "image-classification"

    @named_as_in_transformers
    def forward(self, pixels: Tensor) -> Tensor:
        return self.out(self.dropout(self.encoder(pixels)[:, 0]))


HEADS: dict[str, type[WithHead]] = {
    kind.task: kind for kind in (TextClassification, TokenClassification, QuestionAnswering, FillMask, ImageClassification)
}
# The end of the name of transformers' class for a task; None: the encoder alone.
CLASSES = {
    None: "Model",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
    "image-classification": "ForImageClassification",
}


def other_task(config: Mapping[str, Any], task: str | None) -> str | None:
    """The class that a config.json names, where that has a head for another task; None where it has none, or this one."""
    said = config.get("architectures")
    name = said[0] if isinstance(said, list) and len(said) == 1 else None
    if task is None or not isinstance(name, str) or name.endswith(CLASSES[task]):
        return None
    return name if re.search(r"For[A-Z]\w*$", name) else None
