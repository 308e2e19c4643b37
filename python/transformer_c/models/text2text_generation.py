"""The head of encoder-decoders: scores of the next word of a text that is written of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import Tensor
from .._names import explained
from .._tensor import zeros
from ..nn.parameter import Parameter
from . import generating
from .cache import Cache
from .config import Config
from .encoder_decoder import named_as_in_transformers
from .heads import AS_HERE, OF_GENERATE, NextWords, WithHead, of_tokens
from .sampling import Sampling


class Text2TextGeneration(NextWords):
    """Scores of all words to be the next one of the text that is written, (B, T, vocabulary); 0 at its padded ends.

    They are products with the words' embeddings, or with a table ``out`` of their own, of states that are multiplied by `scale`.
    """

    task = "text2text-generation"
    optional = ("bias",)  # what files may lack

    def __init__(self, encoder: Any, width: int, tied: bool, scale: float = 1.0, bias: bool = False) -> None:
        super().__init__(encoder, width, tied)
        self.scale = scale
        self.register_parameter("bias", Parameter(zeros(1, encoder.words.weight.shape[0]), requires_grad=False) if bias else None)

    @classmethod
    def build(cls, encoder: Any, config: Config, width: int, options: dict) -> WithHead:
        words = encoder.words.weight.shape[0]
        for name, number in encoder.USUAL.items():
            if number < words:  # small models have not the words of large ones
                config.values.setdefault(name, number)
        return super().build(encoder, config, width, options)

    @named_as_in_transformers
    def forward(
        self,
        ids: Tensor | None,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        decoder_ids: Tensor | None = None,
        decoder_mask: Tensor | None = None,
        decoder_lengths: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The arguments are those of ``EncoderDecoder.forward``."""
        states = self.encoder(ids, mask, lengths, decoder_ids, decoder_mask, decoder_lengths, cache)
        return of_tokens(self.score, states, decoder_mask, decoder_lengths)

    def score(self, states: Tensor) -> Tensor:
        states = states if self.scale == 1 else states * self.scale
        scores = self._products(states)
        return scores if self.bias is None else scores + self.bias[0]

    def shifted(self, labels: Any) -> Any:
        """``decoder_ids`` of labels (B, T), the tokens that are to be written: what begins texts, and the labels but the last."""
        return self.encoder.shifted(labels)

    @explained(
        {**OF_GENERATE, "streamer": "tc.models.Text2TextGenerator(model, tokenizer).stream(text) gives pieces"},
        {"input_ids": "ids"},
        harmless=AS_HERE,
    )
    def generate(
        self,
        ids: Any,
        max_new_tokens: int | None = None,
        lengths: Any = None,
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        no_repeat_ngram_size: int | None = None,
        min_length: int | None = None,
        forced_bos_token_id: int | None = None,
        forced_eos_token_id: Any = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        eos_token_id: Any = None,
        decoder_start_token_id: int | None = None,
        rng: Any = None,
    ) -> np.ndarray:
        """Texts that are written of others, token by token in eval mode; ``Text2TextGenerator`` does it for str, and reads generation_config.json.

        Parameters
        ----------
        ids : array_like of int, shape (B, S)
        max_new_tokens : int, optional
            At most so many per text; 50 by default.
        lengths : array_like of int, shape (B,), optional
            The number of tokens of each text; those after them are padding.
        eos_token_id : int or sequence of int, optional
            Tokens that end a text; by default what ``config`` says.
        decoder_start_token_id : int, optional
            The token that begins texts; by default what ``config`` says.
        forced_eos_token_id : int or sequence of int, optional
            The last token of a text that has all `max_new_tokens`, whatever the model gives; by default none.
        num_beams, length_penalty, early_stopping, no_repeat_ngram_size, min_length, forced_bos_token_id, do_sample, temperature, top_k, top_p, repetition_penalty, rng
            As for ``Text2TextGenerator.generate``.

        Returns
        -------
        ndarray of int64, shape (B, the longest text)
            They begin with the token that begins texts. Shorter ones have the token that ends texts, or 0 where there is none, after their ends.
        """
        chosen = Sampling().with_arguments(
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            no_repeat_ngram_size=no_repeat_ngram_size,
            min_length=min_length,
            forced_bos_token_id=forced_bos_token_id,
            forced_eos_token_id=forced_eos_token_id,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
        )
        return generating.generate(self, ids, lengths, chosen, self.ends(eos_token_id), rng, start=decoder_start_token_id)

    def checked(self, ids: Any) -> Tensor:
        """ids as a Tensor, of a shape that fits."""
        return self.encoder.encoder.checked(ids)[0]

    def begin(self, ids: np.ndarray, lengths: np.ndarray, start: int | None = None) -> generating.Decoding:
        """The texts that are written of these ids (B, S) of so many tokens, before their first tokens but `start`."""
        words = self.encoder.words.weight.shape[0]
        if start is not None and (isinstance(start, bool) or not isinstance(start, (int, np.integer)) or not 0 <= start < words):
            raise ValueError(f"decoder_start_token_id must be the number of a token below {words}, got {start!r:.80}")
        start = self.encoder.start if start is None else int(start)
        if start is None:
            raise ValueError("the model's config.json has no decoder_start_token_id, the token that texts begin with")
        begun = np.full((len(ids), 1), start, np.int64)
        return generating.Decoding(
            self, begun.tolist(), {"ids": ids, "lengths": lengths, "decoder_ids": begun}, {"ids": None}, "decoder_ids"
        )

    def most(self, sampling: Sampling, lengths: np.ndarray) -> np.ndarray:
        """How many new tokens the text that is written of each gets at most."""
        if len(lengths) and lengths.min() < 1:
            raise ValueError(f"text number {lengths.argmin()} has no tokens; a model needs one to read")
        return np.full(len(lengths), sampling.most_written(self.encoder.longest))


__all__ = ["Text2TextGeneration"]
