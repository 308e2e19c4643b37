"""What is put on an encoder for a task; transformers' ``For...`` classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._names import explained
from .._tensor import arange, as_tensor, zeros
from ..nn.fusion import activated
from ..nn.parameter import Parameter
from . import generating
from .cache import Cache
from .config import Config
from .layers import ACTIVATIONS, named_as_in_transformers, tokens_among, which_are_tokens
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
    scores_words: bool = False  # by the table of the words' embeddings, of which files may have a second copy

    def __init__(
        self,
        encoder: Any,
        width: int,
        outputs: int,
        dropout: float = 0.0,
        activation: str | None = None,
        eps: float | None = None,
        dense_bias: bool = True,
        norm_bias: bool = True,
    ) -> None:
        super().__init__()
        self.encoder, self.config, self.activation = encoder, encoder.config, activation or "identity"
        self.dropout = nn.Dropout(dropout)
        size = width if outputs else encoder.words.weight.shape[1]
        if outputs:
            self.out = nn.Linear(width, outputs)
        self.dense = nn.Linear(width, size, bias=dense_bias) if activation else None
        self.norm = nn.LayerNorm(size, eps=eps, bias=norm_bias) if eps is not None else None

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        """The head that a configuration asks for."""
        config.problem()  # an unknown one is refused here
        labels = config.labels()
        head = cls(encoder, width, len(labels), **options)
        head.labels = labels
        return head

    def transformed(self, x: Tensor) -> Tensor:
        """norm(activation(dense(x))), as far as the head has these."""
        if self.dense is not None:
            x = activated(self.dense, ACTIVATIONS[self.activation], x)
        return x if self.norm is None else self.norm(x)


def of_tokens(function: Callable[[Tensor], Tensor], x: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
    """What a function gives for the states of tokens, of those in x (B, T, E); 0 at the padded ends."""
    packing = which_are_tokens(tuple(x.shape[:2]), mask, lengths)[0]
    return function(x) if packing is None else packing.unpack(function(packing.pack(x)))


def _mean(states: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The mean of the states of each text's tokens, (B, T, E) to (B, E): by attention, to whose query of zeros all tokens are alike, as that
    has the same bits in any batch."""
    packing, visible = which_are_tokens(tuple(states.shape[:2]), mask, lengths)
    visible = visible if packing is None else {"key_lengths": packing.sequence_lengths}
    query = zeros(1, 1, 1, states.shape[2], dtype=states.dtype, device=states.device)
    return F.scaled_dot_product_attention(query, states[:, None], states[:, None], **visible)[:, 0, 0]


class TextClassification(WithHead):
    """Scores of each text, (B, classes), before softmax or sigmoid; or its numbers, where config.json has problem_type "regression"."""

    task = "text-classification"

    def __init__(self, encoder: Any, width: int, outputs: int, before: float = 0.0, pooling: str = "cls", **options: Any) -> None:
        super().__init__(encoder, width, outputs, **options)
        self.dropout_before = nn.Dropout(before) if before else None
        self.pooling = pooling

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        states = self.encoder(ids, mask, lengths, token_types)
        x = _mean(states, mask, lengths) if self.pooling == "mean" else _first(states, mask)
        x = x if self.dropout_before is None else self.dropout_before(x)
        return self.out(self.dropout(self.transformed(x)))


def _first(states: Tensor, mask: Tensor | None) -> Tensor:
    """The states of the first token of each text, (B, T, E) to (B, E)."""
    if not states.shape[1]:
        raise ValueError(f"ids have the shape {tuple(states.shape[:2])}; a text is judged by its first token, and there is none")
    if mask is not None and not _core.is_traced():
        _check_beginnings(as_tensor(mask).detach().cpu().numpy() != 0)
    return states[:, 0]


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
        x = self.encoder(ids, mask, lengths, token_types)
        if self.dense is not None:
            x = of_tokens(self.transformed, x, mask, lengths)
        return self.out(self.dropout(x))


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

    def __init__(self, encoder: Any, width: int, bias: bool = True, **options: Any) -> None:
        super().__init__(encoder, width, 0, **options)
        self.register_parameter("bias", Parameter(zeros(encoder.words.weight.shape[0])) if bias else None)

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        config.only("tie_word_embeddings", True, None)
        return cls(encoder, width, **options)

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        def scores(x: Tensor) -> Tensor:
            return F.linear(self.transformed(x), self.encoder.words.weight, self.bias)

        return of_tokens(scores, self.encoder(ids, mask, lengths, token_types), mask, lengths)


# Transformers' words for what is said otherwise here, in ``generate`` of the heads that write.
OF_GENERATE = {
    "attention_mask": "lengths=mask.sum(1) are the numbers of tokens of texts that are padded at their ends",
    "max_length": "max_new_tokens counts the new ones alone",
}
AS_HERE: dict[str, tuple[Any, ...]] = {"attention_mask": (None,), "use_cache": (True,)}


class NextWords(WithHead):
    """What heads share that score the next word: by products with the words' embeddings, or with a table ``out`` of their own."""

    def __init__(self, encoder: Any, width: int, tied: bool) -> None:
        super().__init__(encoder, width, 0)
        self.scores_words = tied
        if not tied:
            self.out = nn.Linear(width, encoder.words.weight.shape[0], bias=False)

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        try:
            numbers_of("eos_token_id", config.values.get("eos_token_id"))
        except (TypeError, ValueError):
            raise config.refuse("eos_token_id", "null, the number of a token, or a list of them") from None
        return cls(encoder, encoder.width, **options)

    @property
    def table(self) -> Tensor:
        """What states are multiplied by, (words, E)."""
        return self.encoder.words.weight if self.scores_words else self.out.weight

    def _products(self, states: Tensor) -> Tensor:
        return F.linear(states, self.encoder.words.weight) if self.scores_words else self.out(states)

    def score(self, states: Tensor) -> Tensor:
        """Of states (..., E), those of all words."""
        raise NotImplementedError

    def ends(self, given: Any = None) -> tuple[int, ...]:
        """The tokens that end a text: those given, or of ``config`` those that are words of this model."""
        if given is not None:
            return numbers_of("eos_token_id", given)
        found = numbers_of("eos_token_id", self.config.get("eos_token_id"))
        return tuple(end for end in found if end < self.encoder.words.weight.shape[0])  # small models keep the default of large ones


class TextGeneration(NextWords):
    """Scores of all words to be the next one after each position, (B, T, vocabulary); 0 at the padded ends.

    They are products with the words' embeddings, or with a table ``out`` of their own where config.json has tie_word_embeddings = false,
    and stay below `softcap` where that is not 0.
    """

    task = "text-generation"

    def __init__(self, encoder: Any, width: int, tied: bool, softcap: float = 0.0) -> None:
        super().__init__(encoder, width, tied)
        self.softcap = softcap

    @named_as_in_transformers
    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        token_types: Tensor | None = None,
        cache: Cache | None = None,
        last: bool = False,
    ) -> Tensor:
        """`last`: the scores after each text's last token alone, (B, 1, vocabulary)."""
        states = self.encoder(ids, mask, lengths, token_types, cache)
        if not last:
            return of_tokens(self.score, states, mask, lengths)
        return self.score(_last(states, mask, lengths))

    def score(self, states: Tensor) -> Tensor:
        scores = self._products(states)
        return F.tanh(scores / self.softcap) * self.softcap if self.softcap else scores

    @explained(
        {**OF_GENERATE, "streamer": "tc.models.TextGenerator(model, tokenizer).stream(text) gives pieces"},
        {"input_ids": "ids"},
        harmless=AS_HERE,
    )
    def generate(
        self,
        ids: Any,
        max_new_tokens: int | None = None,
        lengths: Any = None,
        *,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        no_repeat_ngram_size: int | None = None,
        eos_token_id: Any = None,
        rng: Any = None,
    ) -> np.ndarray:
        """Texts with their continuations, token by token in eval mode; ``TextGenerator`` does it for str, and reads generation_config.json.

        Parameters
        ----------
        ids : array_like of int, shape (B, T)
        max_new_tokens : int, optional
            At most so many per text; 50 by default.
        lengths : array_like of int, shape (B,), optional
            The number of tokens of each text; those after them are padding.
        do_sample, temperature, top_k, top_p, repetition_penalty, num_beams, length_penalty, early_stopping, no_repeat_ngram_size, rng
            As for ``TextGenerator.generate``.
        eos_token_id : int or sequence of int, optional
            Tokens that end a text; by default what ``config`` says.

        Returns
        -------
        ndarray of int64, shape (B, the longest text)
            Shorter texts have the token that ends texts, or 0 where there is none, after their ends.
        """
        settings = Sampling().with_arguments(
            max_new_tokens=max_new_tokens,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            no_repeat_ngram_size=no_repeat_ngram_size,
        )
        return generating.generate(self, ids, lengths, settings, self.ends(eos_token_id), rng)

    def checked(self, ids: Any) -> Tensor:
        """ids as a Tensor, of a shape that fits."""
        return self.encoder.checked(ids)[0]

    def begin(self, ids: np.ndarray, lengths: np.ndarray) -> generating.Decoding:
        """The texts of these ids (B, T) of so many tokens, which are continued."""
        texts = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        return generating.Decoding(self, texts, {"ids": ids, "lengths": lengths}, {}, "ids")

    def most(self, sampling: Sampling, lengths: np.ndarray) -> np.ndarray:
        """How many new tokens each text gets at most."""
        return sampling.most(lengths, self.encoder.longest)


def _last(states: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The states of the last token of each text, (B, T, E) to (B, 1, E); 0 where a text has none."""
    packing, visible = which_are_tokens(tuple(states.shape[:2]), mask, lengths)
    if packing is not None:
        return states[np.arange(len(states)), packing.lengths - 1][:, None]
    real = tokens_among(visible, states)
    if real is None:
        return states[:, -1:]
    places = arange(1, states.shape[1] + 1, device=states.device)
    others = places != places.masked_fill(~real, 0).amax(1, keepdim=True)
    return states.masked_fill(others[:, :, None], 0.0).sum(1, keepdim=True)


class ImageClassification(WithHead):
    """Scores of the classes of each image, (B, classes), before softmax."""

    task = "image-classification"

    def __init__(self, encoder: Any, width: int, outputs: int, pooling: str = "first", **options: Any) -> None:
        super().__init__(encoder, 2 * width if pooling == "first and mean" else width, outputs, **options)
        self.pooling = pooling

    @named_as_in_transformers
    def forward(self, pixels: Tensor) -> Tensor:
        states = self.encoder(pixels)
        x = states[:, 0]
        if self.pooling == "first and mean":  # of the patches
            x = cat([x, states[:, self.encoder.before :].mean(1)], 1)
        return self.out(self.dropout(x))


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
    "text2text-generation": "ForConditionalGeneration",
    "automatic-speech-recognition": "ForConditionalGeneration",
}


def other_task(config: Mapping[str, Any], task: str | None) -> str | None:
    """The class that a config.json names, where that has a head for another task; None where it has none, or this one."""
    said = config.get("architectures")
    name = said[0] if isinstance(said, list) and len(said) == 1 else None
    if task is None or not isinstance(name, str) or name.endswith(CLASSES[task]):
        return None
    return name if re.search(r"For[A-Z]\w*$", name) else None
