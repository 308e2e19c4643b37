"""Windows of speech that are written again at a higher temperature, where what has been written repeats itself or is improbable (section 4.5 of Whisper's paper)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arguments import shown
from .sampling import Sampling


def is_threshold(value: Any) -> bool:
    """Is it a number, of a usual size?"""
    return type(value) in (int, float) and abs(value) <= 1e9


@dataclass(frozen=True)
class Attempts:
    """The temperatures at which a window is written, one after another, and when what is written is not taken.

    Attributes
    ----------
    temperatures : tuple of float
        0: the likeliest tokens, or beams.
    compression_ratio_threshold : float, optional
        Of how many times fewer bytes the tokens take when they are compressed; above it they repeat themselves.
    logprob_threshold : float, optional
        Of the mean logarithm of the probabilities of the tokens; below it they are improbable.
    no_speech_threshold : float, optional
        Of the probability that nothing is said; an improbable window above it is taken for silence.
    """

    temperatures: tuple[float, ...] = (0.0,)
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None

    def __post_init__(self) -> None:
        for value in self.temperatures:
            if type(value) not in (int, float) or not 0 <= value <= 1e6:
                raise ValueError(
                    f"temperature must be a number of at least 0, or several that are tried one after another, got {shown(value)}"
                )
        if not self.temperatures:
            raise ValueError("temperature has no values; 0 takes the likeliest tokens")
        for name in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
            found = getattr(self, name)
            if found is not None and not is_threshold(found):
                raise ValueError(f"{name} must be a number, got {shown(found)}")
        if self.no_speech_threshold is not None and self.logprob_threshold is None:
            raise ValueError(
                "no_speech_threshold is for windows that are improbable, which logprob_threshold says: give both, as arguments or in generation_config.json"
            )
        if len(self.temperatures) > 1 and self.compression_ratio_threshold is None and self.logprob_threshold is None:
            raise ValueError(
                "temperature has several values, but neither compression_ratio_threshold nor logprob_threshold says when the next is tried"
            )

    @property
    def measures(self) -> bool:
        """Whether anything is asked of what is written."""
        return not (self.compression_ratio_threshold is None and self.logprob_threshold is None)

    @staticmethod
    def settings(sampling: Sampling, temperature: float) -> Sampling:
        """How tokens are chosen at a temperature."""
        if temperature == 0:
            return replace(sampling, do_sample=False)
        return replace(sampling, do_sample=True, temperature=float(temperature), num_beams=1)

    def judge(self, tokens: list[int], log_probability: float, unspoken: float, words: int) -> tuple[bool, bool]:
        """(whether it is to be written again, whether nothing is said), of tokens with the one that ends them."""
        ratio, least = self.compression_ratio_threshold, self.logprob_threshold
        repeats = ratio is not None and compression_ratio(tokens, words) > ratio
        is_improbable = least is not None and log_probability / max(1, len(tokens)) < least
        if is_improbable and self.no_speech_threshold is not None and unspoken > self.no_speech_threshold:
            return False, True
        return repeats or is_improbable, False

    def written(
        self, decoding: Any, most: int, sampling: Sampling, ends: tuple[int, ...], draws: list[Any], silence: int | None
    ) -> list[Any]:
        """The new tokens of each window, with the one that ends them; None where nothing is said.

        Parameters
        ----------
        decoding : SpeechDecoding
        most : int
            New tokens of each.
        draws : list of Generator
            One for each window.
        silence : int, optional
            The token whose probability after the one that begins texts is that of silence.
        """
        found: list[Any] = [None] * len(decoding.texts)
        rows, words = np.arange(len(found)), decoding.model.encoder.words.weight.shape[0]
        decoding.keeps = decoding.keeps or len(self.temperatures) > 1
        for number, temperature in enumerate(self.temperatures):
            own = decoding.again(rows) if number else decoding
            own.sums = [0.0] * len(rows) if self.measures else None
            tokens = own.model.tokens(own, most, self.settings(sampling, temperature), ends, [draws[row] for row in rows])
            left = []
            for place, row in enumerate(rows):
                found[row] = tokens[place]
                if self.measures:
                    unspoken = 0.0 if self.no_speech_threshold is None else decoding.probability(row, silence)
                    again, silent = self.judge(tokens[place], own.sums[place], unspoken, words)
                    found[row] = None if silent else found[row]
                    left += [row] if again else []
            rows = np.array(left, np.int64)
            if not left:
                break
        return found


def compression_ratio(tokens: Sequence[int], words: int) -> float:
    """How many times fewer bytes tokens take when they are compressed, each written in as many bytes as the largest number of a token needs."""
    size = int(math.log2(words) / 8) + 1
    data = b"".join(token.to_bytes(size, "little") for token in tokens)
    return len(data) / len(zlib.compress(data))


__all__ = ["Attempts"]
