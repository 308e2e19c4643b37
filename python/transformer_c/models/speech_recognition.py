"""The head of models that write what is said, and the rules of their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._evaluating import evaluating
from .._recording import no_grad
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
        return self.tokens(decoding, most, sampling or Sampling(), self.ends(eos_token_id))

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

    def begun(self, features: Any, prompt: Any, languages: Any) -> Decoding:
        """The texts of features before their first new tokens; the arguments are those of ``generate``."""
        given = np.asarray(prompt)
        if given.dtype.kind not in "iu" or given.shape[-1:] in ((), (0,)):
            raise ValueError(f"prompt must be numbers of tokens, got {prompt!r:.80}; config.json may lack decoder_start_token_id")
        tokens = np.broadcast_to(given, (len(features), given.shape[-1])).astype(np.int64)
        cache, read = Cache(), 0
        if languages is not None and len(tokens):
            with evaluating(self), no_grad():
                scores = np.asarray(self(features, decoder_ids=tokens[:, :1], cache=cache))[:, -1]
            tokens[:, 1], read = np.asarray(languages)[scores[:, languages].argmax(-1)], 1
        first = {"ids": None if read else features, "decoder_ids": tokens[:, read:]}
        return Decoding(self, tokens.tolist(), first, {"ids": None}, "decoder_ids", cache)

    @staticmethod
    def tokens(decoding: Decoding, most: int, sampling: Sampling, ends: tuple[int, ...]) -> list[list[int]]:
        """The new tokens of each text, without the one that ends it."""
        found: list[list[int]] = [[] for _ in decoding.texts]
        for step in written(decoding, np.full(len(found), most), sampling, ends, None):
            for number, token in step:
                found[number].append(token)
        return [row[:-1] if row and row[-1] in ends else row for row in found]


__all__ = ["SpeechRecognition", "SpeechSampling"]
