"""What is put on an encoder for a task; transformers' ``For...`` classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._tensor import as_tensor, zeros
from ..nn.fusion import activated
from ..nn.parameter import Parameter
from . import generating
from .cache import Cache
from .config import Config
from .layers import ACTIVATIONS, named_as_in_transformers, which_are_tokens
from .sampling import Sampling, numbers_of


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
    scores_words: ClassVar[bool] = False  # by the table of the words' embeddings, of which files may have a second copy

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
    scores_words = True

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
        return of_tokens(self._scores, x, mask, lengths)

    def _scores(self, x: Tensor) -> Tensor:
        x = self.norm(activated(self.dense, ACTIVATIONS[self.activation], x))
        return F.linear(x, self.encoder.words.weight, self.bias)


def of_tokens(scores: Callable[[Tensor], Tensor], states: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
    """What `scores` gives for the states (B, T, E) of tokens; 0 at the padded ends, for which nothing is computed."""
    packing = which_are_tokens(tuple(states.shape[:2]), mask, lengths)[0]
    return scores(states) if packing is None else packing.unpack(scores(packing.pack(states)))


class TextGeneration(WithHead):
    """Scores of all words to be the next one after each position, (B, T, vocabulary), by the table of the words' embeddings; 0 at the padded ends."""

    task = "text-generation"
    scores_words = True

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        config.only("tie_word_embeddings", True, None)
        return cls(encoder, width, 0, **options)

    @named_as_in_transformers
    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        token_types: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        return of_tokens(self.scores, self.encoder(ids, mask, lengths, token_types, cache), mask, lengths)

    def scores(self, states: Tensor) -> Tensor:
        """Of states (..., E)."""
        return F.linear(states, self.encoder.words.weight)

    def generate(
        self,
        ids: Any,
        max_new_tokens: int = 50,
        lengths: Any = None,
        *,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        eos_token_id: Any = None,
        rng: Any = None,
    ) -> np.ndarray:
        """Texts with their continuations, token by token in eval mode; ``TextGenerator`` does it for str.

        Parameters
        ----------
        ids : array_like of int, shape (B, T)
        max_new_tokens : int, default 50
            At most so many per text.
        lengths : array_like of int, shape (B,), optional
            The number of tokens of each text; those after them are padding.
        do_sample, temperature, top_k, top_p, repetition_penalty, rng
            As for ``TextGenerator.generate``.
        eos_token_id : int or sequence of int, optional
            Tokens that end a text; by default what ``config`` says.

        Returns
        -------
        ndarray of int64, shape (B, the longest text)
            Shorter texts have the token that ends texts, or 0 where there is none, after their ends.
        """
        settings = Sampling().with_arguments(
            do_sample=do_sample, temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=repetition_penalty
        )
        return generating.generate(self, ids, lengths, max_new_tokens, settings, self.ends(eos_token_id), rng)

    def ends(self, given: Any = None) -> tuple[int, ...]:
        """The tokens that end a text: those given, or of ``config`` those that are words of this model."""
        if given is not None:
            return numbers_of("eos_token_id", given)
        found = numbers_of("eos_token_id of config.json", self.config.get("eos_token_id"))
        return tuple(end for end in found if end < self.encoder.words.weight.shape[0])  # small models keep the default of large ones


class ImageClassification(WithHead):
    """Scores of the classes of each image, (B, classes), before softmax."""

    task = "image-classification"

    @named_as_in_transformers
    def forward(self, pixels: Tensor) -> Tensor:
        return self.out(self.dropout(self.encoder(pixels)[:, 0]))


HEADS: dict[str, type[WithHead]] = {
    kind.task: kind for kind in (TextClassification, TokenClassification, QuestionAnswering, FillMask, TextGeneration, ImageClassification)
}
# The end of the name of transformers' class for a task; None: the encoder alone.
CLASSES = {
    None: "Model",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
    "image-classification": "ForImageClassification",
    "text-generation": "ForCausalLM",
}


def other_task(config: Mapping[str, Any], task: str | None) -> str | None:
    """The class that a config.json names, where that has a head for another task; None where it has none, or this one."""
    said = config.get("architectures")
    name = said[0] if isinstance(said, list) and len(said) == 1 else None
    if task is None or not isinstance(name, str) or name.endswith(CLASSES[task]):
        return None
    return name if re.search(r"For[A-Z]\w*$", name) else None
