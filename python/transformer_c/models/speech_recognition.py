"""The head of models that write what is said, and the rules of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._evaluating import evaluating
from .._recording import no_grad
from ..nn.maps import attention_maps
from .cache import Cache
from .generating import Decoding, written
from .sampling import Sampling
from .text2text_generation import Text2TextGeneration


@dataclass(frozen=True)
class SpeechSampling(Sampling):
    """With the tokens that never come, those that are not the first, and the rule of times.

    `first_time` is the number of the token of 0 s, those after it are 0.02 s apart; None: no times are written. The first one is at most `latest`.
    """

    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    first_time: int | None = None
    latest: int | None = None

    def processed(self, scores: np.ndarray, before: Any, step: int = 0, most: int = 0, ends: tuple[int, ...] = ()) -> np.ndarray:
        found = super().processed(scores, before, step, most, ends)
        never = self.suppress_tokens if step else (*self.suppress_tokens, *self.begin_suppress_tokens)
        found[[word for word in never if word < len(found)]] = -np.inf
        if self.first_time is not None:
            self._time(found, before[len(before) - step :], self.first_time, min(ends, default=0))
        return found

    def _time(self, scores: np.ndarray, new: Any, first: int, end: int) -> None:
        """Times come in pairs, at the end of one part and the beginning of the next, and never go back (section 3.8 of the paper)."""
        scores[first - 1] = -np.inf  # the token that says that there are none
        was = [len(new) < 2 or new[-2] >= first, bool(new) and new[-1] >= first]
        if was == [True, True]:
            scores[first:] = -np.inf
        elif was[1]:
            scores[:end] = -np.inf
        last = max((token for token in new if token >= first), default=None)
        if last is not None:
            scores[first : last + (was != [False, True])] = -np.inf
        if not new:
            scores[:first] = -np.inf
            if self.latest is not None:
                scores[first + self.latest + 1 :] = -np.inf
        largest = scores.max()
        if np.isfinite(largest):
            with np.errstate(divide="ignore"):
                times = np.log(np.exp(scores[first:] - largest).sum()) + largest
            if times > scores[:first].max():  # together likelier than any word
                scores[:first] = -np.inf


class SpeechRecognition(Text2TextGeneration):
    """Scores of all words to be the next one of what is written of log-mel features, (B, T, vocabulary)."""

    task = "automatic-speech-recognition"

    def generate(  # type: ignore[override]
        self,
        features: Any,
        prompt: Any = None,
        max_new_tokens: int | None = None,
        *,
        languages: Any = None,
        sampling: Sampling | None = None,
        eos_token_id: Any = None,
    ) -> list[list[int]]:
        """The new tokens of each window of speech; ``SpeechRecognizer`` does it for samples, and reads generation_config.json.

        Parameters
        ----------
        features : array_like, shape (B, mels, frames)
        prompt : array_like of int, shape (P,) or (B, P), optional
            What texts begin with; by default the token that begins texts alone.
        max_new_tokens : int, optional
            At most so many; by default as many as the model takes.
        languages : sequence of int, optional
            Tokens of which the likeliest after the first of `prompt` takes the place of the second.
        sampling : Sampling, optional
        eos_token_id : int or sequence of int, optional
            Tokens that end a text; by default what ``config`` says.

        Returns
        -------
        list of list of int
            Without the token that ends a text.
        """
        decoding = self.begun(features, [self.encoder.start] if prompt is None else prompt, languages)
        count = len(decoding.texts[0]) if decoding.texts else 0
        most = self.room(count, Sampling(max_new_tokens=max_new_tokens))
        ends = self.ends(eos_token_id)
        return [row[:-1] if row and row[-1] in ends else row for row in self.tokens(decoding, most, sampling or Sampling(), ends)]

    def room(self, count: int, sampling: Sampling) -> int:
        """How many new tokens come after `count` others at most."""
        room = self.encoder.longest - count
        most = sampling.max_new_tokens
        if most is None:
            most = room if sampling.max_length is None else min(sampling.max_length, room)
        if room < 1:
            raise ValueError(f"{count} tokens begin a text, which leaves no room: the model takes {self.encoder.longest}")
        if not 0 < most <= room:
            raise ValueError(f"max_new_tokens is {most}, and {count} tokens begin a text; the model takes {self.encoder.longest} together")
        return most

    def begun(self, features: Any, prompt: Any, languages: Any, before: Sequence[int] = ()) -> SpeechDecoding:
        """The texts of features before their first new tokens, with tokens `before` them; the other arguments are those of ``generate``."""
        given = np.asarray(prompt)
        if given.dtype.kind not in "iu" or given.shape[-1:] in ((), (0,)):
            raise ValueError(f"prompt must be numbers of tokens, got {prompt!r:.80}; config.json may lack decoder_start_token_id")
        tokens = np.broadcast_to(given, (len(features), given.shape[-1])).astype(np.int64)
        cache, read = Cache(), 0
        if languages is not None and len(tokens):
            with evaluating(self), no_grad():
                scores = np.asarray(self(features, decoder_ids=tokens[:, :1], cache=cache))[:, -1]
            tokens[:, 1], read = np.asarray(languages)[scores[:, languages].argmax(-1)], 1
        begin = scores if read and not len(before) else None
        if len(before):
            tokens = np.concatenate([np.broadcast_to(np.asarray(before, np.int64), (len(tokens), len(before))), tokens], 1)
            cache = cache.of_sources(np.arange(len(tokens))) if read else cache
        return SpeechDecoding(self, tokens, features, cache, 0 if len(before) else read, len(before), begin)

    @staticmethod
    def tokens(decoding: Decoding, most: int, sampling: Sampling, ends: tuple[int, ...], draws: list[Any] | None = None) -> list[list[int]]:
        """The new tokens of each text, with the one that ends it."""
        found: list[list[int]] = [[] for _ in decoding.texts]
        for step in written(decoding, np.full(len(found), most), sampling, ends, draws):
            for number, token in step:
                found[number].append(token)
        return found


class SpeechDecoding(Decoding):
    """What is written of windows of speech; it can be begun again without reading them.

    Parameters
    ----------
    model : SpeechRecognition
    tokens : ndarray of int64, shape (B, P)
        What texts begin with.
    features : array_like, shape (B, mels, frames)
    cache : Cache
    read : int
        Of `tokens`, how many the cache has; without features, where these are not 0, or it is one of ``again``.
    start : int
        The place of the token that begins texts.
    begin : ndarray, shape (B, words), optional
        The scores after that, if they are known.

    Attributes
    ----------
    keeps : bool
        Whether it can be begun again: what has been read is kept as long as it is.
    """

    def __init__(
        self, model: Any, tokens: np.ndarray, features: Any, cache: Cache, read: int, start: int, begin: np.ndarray | None = None
    ) -> None:
        first = {"ids": features if cache.lengths is None else None, "decoder_ids": tokens[:, read:]}
        super().__init__(model, tokens.tolist(), first, {"ids": None}, "decoder_ids", cache)
        self._begin, self._tokens, self._start, self.keeps = begin, tokens, start, False
        self._read: Cache | None = None

    def computed(self) -> np.ndarray:
        found = super().computed()
        if self._begin is None:
            self._begin = found[:, self._start].copy()
        if self.keeps and self._read is None:
            self._read = self._cache.of_sources(np.arange(len(self.texts)))
        return found

    def again(self, rows: np.ndarray) -> SpeechDecoding:
        """The same of some windows, before their first new tokens."""
        assert self._read is not None
        return SpeechDecoding(self.model, self._tokens[rows], None, self._read.of_sources(rows), 0, self._start)

    def attended(self, row: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> np.ndarray:
        """What new tokens of a window attend to by some heads, each (layer, number): (heads, tokens, S)."""
        own, ids = self.again(np.array([row])), np.concatenate([self._tokens[row], np.array(tokens, np.int64)])[None]
        layers = self.model.encoder.decoder.layers
        with ExitStack() as stack, evaluating(self.model), no_grad():
            maps = {number: stack.enter_context(attention_maps(layers[number].cross)) for number in sorted({layer for layer, _ in heads})}
            self.model.encoder(None, decoder_ids=ids, cache=own._cache)
        found = [maps[layer][""][0, head, self._tokens.shape[1] :] for layer, head in heads]
        return np.stack(found).astype(np.float64)

    def probability(self, row: int, token: int) -> float:
        """Of a token to come after the one that begins a text, by the model alone."""
        assert self._begin is not None
        odds = np.exp(self._begin[row].astype(np.float64) - self._begin[row].max())
        return float(odds[token] / odds.sum())


__all__ = ["SpeechDecoding", "SpeechRecognition", "SpeechSampling"]
