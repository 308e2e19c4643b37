"""Texts that an encoder-decoder writes of others: translations, summaries, answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._names import explained
from ..checkpoint import CheckpointError
from . import next_words
from .fitting import Options
from .folder import mapping
from .next_words import Sample
from .text2text_generation import Text2TextGeneration
from .text_generator import _AS_HERE, _OF_FIT, _OF_GENERATE, Trainable, uncut
from .texts import checked, listed, pair
from .tokenizing import longest


def settle_start(path: str, model: Any) -> None:
    """The token that texts begin with, by a folder's generation_config.json."""
    path = os.path.join(path, "generation_config.json")
    start, words = mapping(path).get("decoder_start_token_id"), model.encoder.words.weight.shape[0]
    if start is not None:
        if type(start) is not int or not 0 <= start < words:
            raise CheckpointError(f"{path!r} has decoder_start_token_id = {start!r:.80}; expected a number below {words}")
        model.encoder.start = start


class Text2TextGenerator(Trainable):
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
    history : list of dict
        Of the last ``fit``: the loss of each epoch, and "val_loss" with a validation.

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
            (NLLB, mBART) calls them: "eng_Latn", "en_XX". The one that is written is the first new token, of mBART of 25 languages the token before
            it, which `forced_bos_token_id` may follow.
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
        reader, forced_bos_token_id, begin = self._languages(src_lang, tgt_lang, forced_bos_token_id)
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
        found = [self.tokenizer.decode(new) for new in self._found(tokens, settings, rng, batch_size, progress, **begin)]
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
        reader, forced_bos_token_id, begin = self._languages(src_lang, tgt_lang, forced_bos_token_id)
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
        return self._pieces([], self._steps(text, settings, rng, reader, **begin)[1])

    @explained(_OF_FIT)
    def fit(
        self,
        pairs: Any,
        *,
        validation: Any = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        learning_rate: float = 5e-5,
        epochs: int = 3,
        batch_size: int = 8,
        warmup: float = 0.1,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
        random_state: int | None = None,
        progress: bool = False,
    ) -> Text2TextGenerator:
        """Trains the model to write a text of another; returns this generator.

        The loss is the mean cross-entropy of the tokens that are written. A fit that is refused or interrupted changes nothing.

        Parameters
        ----------
        pairs : sequence of (text, text)
            A text and what should be written of it. Texts are cut off where those of ``generate`` are; ones to be written that are longer than
            the model's positions are refused.
        validation : sequence of (text, text), optional
        src_lang, tgt_lang : str, optional
            The languages of the texts, as for ``generate``; `tgt_lang` is needed where the tokenizer has several.
        learning_rate, epochs, batch_size, warmup, weight_decay, max_norm, random_state, progress
            As for ``TextGenerator.fit``. T5 is usually trained with a `learning_rate` of 1e-4 to 3e-4.

        Returns
        -------
        Text2TextGenerator
            This one. float16 and bfloat16 models are float32 then.

        Raises
        ------
        TypeError
            When a pair is no pair of str.
        ValueError
            When there are no pairs, a text has no tokens or too many, an option has a wrong value, or the loss is not finite.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> class Letters:
        ...     def __call__(self, texts):
        ...         return [(np.array([*(ord(c) - 95 for c in text), 1]), np.zeros(len(text) + 1, int)) for text in texts]
        ...     def decode(self, ids):
        ...         return "".join(chr(95 + i) for i in ids if i > 1)
        >>> _ = tc.manual_seed(0)
        >>> model = tc.models.create({"model_type": "t5", "vocab_size": 28, "d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2,
        ...                           "num_layers": 1}, task="text2text-generation")
        >>> generator = tc.models.Text2TextGenerator(model, Letters())
        >>> generator = generator.fit([("abc", "xyz"), ("def", "uvw")], epochs=100, learning_rate=0.01, random_state=0)
        >>> generator.generate(["abc", "def"], max_new_tokens=4)
        ['xyz', 'uvw']
        """
        options = Options.of(locals())
        reader = self._languages(src_lang, tgt_lang, None)[0]
        samples = self._samples(pairs, reader, tgt_lang, "pairs")
        others = None if validation is None else self._samples(validation, reader, tgt_lang, "validation")
        self._fit(samples, others, options, random_state, progress)
        return self

    def _samples(self, pairs: Any, reader: Any, target: str | None, name: str) -> list[Sample]:
        """What is learnt."""
        given = [pair(own, i, name=name) for i, own in enumerate(listed(pairs, "pairs of str", name))]
        if not given:
            raise ValueError(f"there are no pairs in {name}")
        writer = uncut(self.tokenizer)
        if hasattr(writer, "languages"):
            if writer.is_after and not writer.begins:
                raise ValueError(
                    "this tokenizer has the code of a language after a text by legacy_behaviour, where generate() does not write it: those that "
                    "have it before, as NLLB's and mBART-50's, can be trained"
                )
            if target is None:
                raise ValueError("the tokenizer has several languages: tgt_lang= is the one that is written")
            written = self._tokens([own for _, own in given], lambda texts: writer(texts, language=target))
        else:
            written = self._tokens([own for _, own in given], getattr(writer, "as_target", writer))
        written = [ids if np.isin(ids, self._ends).any() else next_words.with_end(ids, self._ends) for ids in written]
        read, longest = self._tokens([own for own, _ in given], reader), self.model.encoder.longest
        for i, (before, ids) in enumerate(zip(read, written, strict=True)):
            if not len(before) or not len(ids):
                raise ValueError(f"{name}[{i}] has a text without tokens: {given[i]!r:.80}")
            if len(ids) > longest:
                raise ValueError(
                    f"the text that is to be written in {name}[{i}] has {len(ids)} tokens; this model writes at most {longest}"
                )
        return [Sample(before, ids, 0) for before, ids in zip(read, written, strict=True)]

    def _languages(self, source: Any, target: Any, first: Any) -> tuple[Any, Any, dict[str, int]]:
        """(the function that reads texts of a language, the first token that is written, what begins texts where that is its language)."""
        if (source is not None or target is not None) and not hasattr(self.tokenizer, "languages"):
            raise ValueError("src_lang and tgt_lang are for tokenizers of several languages, as NLLB's and mBART's; this one has none")
        begin: dict[str, int] = {}
        if target is not None and self.tokenizer.begins:
            begin = {"start": self.tokenizer.number(target)}
        elif target is not None:
            if first is not None:
                raise ValueError("tgt_lang is the first token that is written; forced_bos_token_id is another")
            first = self.tokenizer.number(target)
        if source is None:
            return None, first, begin
        self.tokenizer.number(source)
        return (lambda texts: self.tokenizer(texts, language=source)), first, begin


__all__ = ["Text2TextGenerator"]
