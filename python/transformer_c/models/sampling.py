"""Which token comes next: of the scores of all words, one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arguments import count
from ..checkpoint import CheckpointError
from .folder import mapping

# Of generation_config.json, besides what is read: what changes no result here, and values of others that change none.
_HARMLESS = (
    *("_from_model_config", "transformers_version", "bos_token_id", "pad_token_id", "decoder_start_token_id", "use_cache", "max_length"),
    *("max_new_tokens", "cache_implementation", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores"),
)
_IDLE: dict[str, Any] = {"num_beams": 1, "num_beam_groups": 1, "num_return_sequences": 1, "min_length": 0, "length_penalty": 1.0}
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen, in transformers' words; docs of ``TextGenerator.generate``."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if type(self.do_sample) is not bool:
            raise TypeError(f"do_sample must be True or False, got {self.do_sample!r:.80}")
        count("top_k", self.top_k, 0)
        for name, least, most in (("temperature", 0.0, _LARGEST), ("top_p", 0.0, 1.0), ("repetition_penalty", 0.0, _LARGEST)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{name} must be a number, got {value!r:.80}")
            if not least < value <= most:
                advice = "; for the likeliest token each time, do_sample=False" if name == "temperature" else ""
                raise ValueError(f"{name} must be above 0{' and at most 1' if most == 1 else ', and finite'}, got {value!r:.80}{advice}")

    def with_arguments(self, **values: Any) -> Sampling:
        """The same with those of the values that are not None."""
        given = {name: value for name, value in values.items() if value is not None}
        if not {**vars(self), **given}["do_sample"] and (idle := [n for n in given if n not in ("do_sample", "repetition_penalty")]):
            raise ValueError(f"{idle[0]} is for drawing tokens, and changes nothing without do_sample=True")
        return replace(self, **given)

    def choose(self, scores: np.ndarray, before: Sequence[int], uniform: float) -> int:
        """The next token of a text.

        Parameters
        ----------
        scores : ndarray, shape (words,)
        before : sequence of int
            The text's tokens.
        uniform : float
            A random number from 0 to 1, without 1.
        """
        scores = scores.astype(np.float64)
        if self.repetition_penalty != 1:  # Keskar et al. 2019
            seen = np.unique(before)
            scores[seen] = np.where(scores[seen] < 0, scores[seen] * self.repetition_penalty, scores[seen] / self.repetition_penalty)
        if not self.do_sample:
            return int(scores.argmax())
        words = np.arange(len(scores))
        if 0 < self.top_k < len(scores):
            words = np.flatnonzero(scores >= np.partition(scores, -self.top_k)[-self.top_k])  # more where scores are equal
        words = words[np.argsort(-scores[words], kind="stable")]
        odds = np.exp((scores[words] - scores[words[0]]) / self.temperature)
        sums = np.cumsum(odds / odds.sum())
        if self.top_p < 1:  # the fewest that have this probability together (Holtzman et al. 2020)
            sums = sums[: int(np.searchsorted(sums, self.top_p)) + 1]
        return int(words[min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), len(sums) - 1)])


def read_sampling(folder: str) -> Sampling:
    """What a folder's generation_config.json says; what is not computed is refused."""
    path = os.path.join(folder, "generation_config.json")
    values = mapping(path)
    names = [*vars(Sampling()), "eos_token_id", *_HARMLESS]
    others = [name for name, value in values.items() if name not in names and value not in (None, False, _IDLE.get(name, False))]
    if others:
        raise CheckpointError(
            f"{path!r} has {others[0]} = {values[others[0]]!r:.80}; supported are {', '.join(vars(Sampling()))} and eos_token_id: take it out of the file"
        )
    try:
        return Sampling(**{name: values[name] for name in vars(Sampling()) if values.get(name) is not None})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path!r}: {error}") from None


def read_ends(folder: str) -> Any:
    """What a folder's generation_config.json says of the tokens that end a text; None where it says nothing."""
    path = os.path.join(folder, "generation_config.json")
    found = mapping(path).get("eos_token_id")
    try:
        numbers_of("eos_token_id", found)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path!r}: {error}") from None
    return found


def numbers_of(name: str, value: Any) -> tuple[int, ...]:
    """One number of a token, or several, or none."""
    found = () if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return tuple(count(name, each, 0) for each in found)


__all__ = ["Sampling", "numbers_of", "read_ends", "read_sampling"]
