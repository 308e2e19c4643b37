"""Texts that an encoder-decoder writes of others: translations, summaries, answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .._names import explained
from ..checkpoint import CheckpointError
from .folder import mapping
from .text2text_generation import Text2TextGeneration
from .text_generator import _AS_HERE, _OF_GENERATE, Writer
from .texts import checked
from .tokenizing import longest


def settle_start(path: str, model: Any) -> None:
    """The token that texts begin with, by a folder's generation_config.json."""
    path = os.path.join(path, "generation_config.json")
    start, words = mapping(path).get("decoder_start_token_id"), model.encoder.words.weight.shape[0]
    if start is not None:
        if type(start) is not int or not 0 <= start < words:
            raise CheckpointError(f"{path!r} has decoder_start_token_id = {start!r:.80}; expected a number below {words}")
        model.encoder.start = start


class Text2TextGenerator(Writer):
    """Writes texts of others with an encoder-decoder such as T5, BART or Marian. ``Text2TextGenerator.from_pretrained(folder)`` makes one.

    Parameters
    ----------
    model : Module
        Of ``tc.models.load(folder, task="text2text-generation")``.
    tokenizer : callable
        Takes a list of str and gives (ids, types) of each; ``tokenizer.decode(ids)`` gives the text.
    sampling : mapping, optional
        Other defaults of ``generate``: its settings by their names, and ``max_length``, which counts the new tokens and the one that begins texts.
    eos_token_id : int or sequence of int, optional
        Tokens that end a text; by default what ``model.config`` says.

    Attributes
    ----------
    model, tokenizer
        As above. ``generator.model.to("cuda")`` moves the model.

    Examples
    --------
    With a new model and a tokenizer of letters; a trained one comes from ``from_pretrained``:

    >>> import numpy as np, transformer_c as tc
    >>> class Letters:
    ...     def __call__(self, texts):
    ...         return [(np.array([ord(c) - 97 for c in text]), np.zeros(len(text), int)) for text in texts]
    ...     def decode(self, ids):
    ...         return "".join(chr(97 + i) for i in ids)
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "t5", "vocab_size": 26, "d_model": 8, "d_ff": 16, "d_kv": 4, "num_heads": 2, "num_layers": 1,
    ...                           "eos_token_id": []}, task="text2text-generation")
    >>> generator = tc.models.Text2TextGenerator(model, Letters())
    >>> len(generator.generate("abc", max_new_tokens=5, num_beams=4))
    5
    >>> "".join(generator.stream("abc", max_new_tokens=5)) == generator.generate("abc", max_new_tokens=5)
    True
    """

    task, head = "text2text-generation", Text2TextGeneration

    def _settle(self, path: str) -> None:
        settle_start(path, self.model)

    @staticmethod
    def _longest(path: str, model: Any) -> int:
        return longest(path, None, model.encoder.longest)

    @explained(_OF_GENERATE, harmless=_AS_HERE)
    def generate(
        self,
        texts: Any,
        max_new_tokens: int | None = None,
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        no_repeat_ngram_size: int | None = None,
        min_length: int | None = None,
        forced_bos_token_id: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        rng: Any = None,
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """Texts that are written of others, in transformers' words for how.

        Parameters
        ----------
        texts : str, or sequence of str
            With what the model was trained with in front, as "translate English to German: ". Longer ones than the tokenizer's files say are cut off.
        max_new_tokens : int, optional
            At most so many; a text ends before where the model writes the end of a text. By default what generation_config.json says, there also as
            ``max_length``, which counts one more, or 50.
        min_length : int, optional
            No text ends before it has so many tokens, with the one that begins texts; 0 by default.
        forced_bos_token_id : int, optional
            The first new token.
        src_lang, tgt_lang : str, optional
            The language of the texts, by default that of tokenizer_config.json, and the one that is written, as the tokenizer of a model of several
            (NLLB, mBART) calls them: "eng_Latn", "en_XX".
        num_beams, length_penalty, early_stopping, no_repeat_ngram_size, do_sample, temperature, top_k, top_p, repetition_penalty
            As for ``TextGenerator.generate``, of the tokens that are written.
        rng, batch_size, progress
            As for ``TextGenerator.generate``.

        Returns
        -------
        str, or list of str
            As `texts`.

        Raises
        ------
        TypeError
            When a text is no str.
        ValueError
            When the new tokens are more than the model takes; when an argument has no meaning.

        Examples
        --------
        See ``Text2TextGenerator``.
        """
        single = isinstance(texts, str)
        reader, forced_bos_token_id = self._languages(src_lang, tgt_lang, forced_bos_token_id)
        tokens = self._tokens([texts] if single else checked(texts), reader)
        settings = self._sampling.with_arguments(
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            no_repeat_ngram_size=no_repeat_ngram_size,
            min_length=min_length,
            forced_bos_token_id=forced_bos_token_id,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
        )
        found = [self.tokenizer.decode(new) for new in self._found(tokens, settings, rng, batch_size, progress)]
        return found[0] if single else found

    @explained(_OF_GENERATE, harmless=_AS_HERE)
    def stream(
        self,
        text: str,
        max_new_tokens: int | None = None,
        *,
        num_beams: int | None = None,
        no_repeat_ngram_size: int | None = None,
        min_length: int | None = None,
        forced_bos_token_id: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        rng: Any = None,
    ) -> Iterator[str]:
        """What is written of one text in pieces, as they are written; together they are that of ``generate``.

        Parameters
        ----------
        text : str
        max_new_tokens, no_repeat_ngram_size, min_length, forced_bos_token_id, src_lang, tgt_lang, do_sample, temperature, top_k, top_p, repetition_penalty, rng
            As for ``generate``.
        num_beams : int, optional
            Beams give no pieces, so that this must be 1 where the folder says another number.

        Returns
        -------
        iterator of str

        Examples
        --------
        See ``Text2TextGenerator``.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {text!r:.80} ({type(text).__name__}); generate(texts) reads several")
        reader, forced_bos_token_id = self._languages(src_lang, tgt_lang, forced_bos_token_id)
        settings = self._sampling.with_arguments(
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            no_repeat_ngram_size=no_repeat_ngram_size,
            min_length=min_length,
            forced_bos_token_id=forced_bos_token_id,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
        )
        return self._pieces([], self._steps(text, settings, rng, reader)[1])

    def _languages(self, source: Any, target: Any, first: Any) -> tuple[Any, Any]:
        """(the function that reads texts of a language, the first token that is written)."""
        if (source is not None or target is not None) and not hasattr(self.tokenizer, "languages"):
            raise ValueError("src_lang and tgt_lang are for tokenizers of several languages, as NLLB's and mBART's; this one has none")
        if target is not None:
            if first is not None:
                raise ValueError("tgt_lang is the first token that is written; forced_bos_token_id is another")
            first = self.tokenizer.number(target)
        if source is None:
            return None, first
        self.tokenizer.number(source)
        return (lambda texts: self.tokenizer(texts, language=source)), first


__all__ = ["Text2TextGenerator"]
