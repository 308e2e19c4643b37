"""Which token comes next: of the scores of all words, one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arguments import count
from ..checkpoint import CheckpointError
from .folder import has, mapping

# Of generation_config.json, besides what is read: what changes no token here, and what would, with the values that change none.
_HARMLESS = (
    *("_from_model_config", "transformers_version", "bos_token_id", "pad_token_id", "decoder_start_token_id", "return_dict_in_generate"),
    *("use_cache", "cache_implementation", "cache_config", "compile_config", "disable_compile", "low_memory"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits"),
    "diversity_penalty",  # of groups of beams
)
_IDLE: dict[str, Any] = {
    **dict.fromkeys(("num_beam_groups", "num_return_sequences"), 1),
    **dict.fromkeys(("typical_p", "encoder_repetition_penalty", "guidance_scale"), 1),
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "min_p", "epsilon_cutoff", "eta_cutoff", "penalty_alpha"), 0),
    **{name: [] for name in ("suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings")},
    **dict.fromkeys(("exponential_decay_length_penalty", "remove_invalid_values")),
    **dict.fromkeys(("max_time", "token_healing", "top_h", "watermarking_config")),
}
_DRAWING = ("temperature", "top_k", "top_p")
_OF_BEAMS = ("length_penalty", "early_stopping")
_NEW = 50  # tokens, where nobody says how many
_BEAMS = 1000  # at most
_LARGEST = sys.float_info.max
ALL_FORBIDDEN = (
    "no word may come next: no_repeat_ngram_size, bad_words_ids, suppressed tokens, times and the least length together forbid all"
)


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and how many, in transformers' words; docs of ``TextGenerator.generate``.

    ``max_length`` counts all tokens of a text; ``max_new_tokens`` takes precedence over it.
    """

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None
    max_length: int | None = None
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    renormalize_logits: bool = False
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    min_new_tokens: int | None = None
    bad_words_ids: Any = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: Any = None

    def __post_init__(self) -> None:
        for name in ("do_sample", "renormalize_logits"):
            if type(getattr(self, name)) is not bool:
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r:.80}")
        for name in ("top_k", "no_repeat_ngram_size", "min_length"):
            count(name, getattr(self, name), 0)
        for name, fewest in (("max_new_tokens", 1), ("max_length", 1), ("num_beams", 1), ("min_new_tokens", 0)):
            if getattr(self, name) is not None:
                count(name, getattr(self, name), fewest)
        if self.num_beams > _BEAMS:
            raise ValueError(f"num_beams must be at most {_BEAMS}, got {self.num_beams!r:.80}")
        for name, least, most in (("temperature", 0.0, _LARGEST), ("top_p", 0.0, 1.0), ("repetition_penalty", 0.0, _LARGEST)):
            value = _number(name, getattr(self, name))
            if not least < value <= most:
                advice = "; for the likeliest token each time, do_sample=False" if name == "temperature" else ""
                raise ValueError(f"{name} must be above 0{' and at most 1' if most == 1 else ', and finite'}, got {value!r:.80}{advice}")
        if not -10 <= _number("length_penalty", self.length_penalty) <= 10:
            raise ValueError(f"length_penalty must be from -10 to 10, got {self.length_penalty!r:.80}")
        if not (type(self.early_stopping) is bool or self.early_stopping == "never"):
            raise TypeError(f"early_stopping must be True, False or 'never', got {self.early_stopping!r:.80}")
        if self.do_sample and self.num_beams > 1:
            raise ValueError(f"beams are searched without drawing tokens: do_sample=True needs num_beams=1, got {self.num_beams}")
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            numbers_of(name, getattr(self, name))
        if not isinstance(self.bad_words_ids, (list, tuple)) or any(
            not isinstance(word, (list, tuple)) or len(numbers_of("bad_words_ids", word)) != 1 for word in self.bad_words_ids
        ):
            raise ValueError(f"bad_words_ids must be lists of one token each, got {self.bad_words_ids!r:.80}")

    def with_arguments(self, **values: Any) -> Sampling:
        """The same with those of the values that are not None."""
        given = {name: value for name, value in values.items() if value is not None}
        together = {**vars(self), **given}
        if together["num_beams"] == 1 and (idle := [n for n in given if n in _OF_BEAMS]):
            raise ValueError(f"{idle[0]} is for beams, and changes nothing with num_beams = 1")
        if not together["do_sample"] and (idle := [n for n in given if n in _DRAWING]):
            raise ValueError(f"{idle[0]} is for drawing tokens, and changes nothing without do_sample=True")
        return replace(self, **given)

    def most(self, lengths: np.ndarray, longest: int) -> np.ndarray:
        """How many new tokens each text gets at most, (B,).

        Parameters
        ----------
        lengths : ndarray of int, shape (B,)
            Of the texts.
        longest : int
            How many tokens the model takes.
        """
        if not len(lengths):
            return lengths
        if (lengths < 1).any():
            raise ValueError(f"text number {lengths.argmin()} has no tokens; a model needs one to begin with")
        most = int(lengths.max())
        text = f"text number {lengths.argmax()} has {most} tokens{' or more' if most == longest else ''}"  # where tokenizers cut texts off
        if self.max_new_tokens is None and self.max_length is not None:
            whole = min(self.max_length, longest)
            if most >= whole:
                raise ValueError(
                    f"{text}, and with new ones it may have {whole} by max_length = {self.max_length}; max_new_tokens counts the new ones alone"
                )
            return whole - lengths
        new = _NEW if self.max_new_tokens is None else self.max_new_tokens
        if most + new > longest:
            raise ValueError(f"{text}, and max_new_tokens is {new}; the model takes at most {longest} together")
        return np.full(len(lengths), new)

    def most_written(self, longest: int) -> int:
        """How many tokens a text may get after the one that begins it, where the model takes `longest`."""
        if self.max_new_tokens is None and self.max_length is not None:
            if self.max_length == 1:
                raise ValueError("max_length is 1, which is the token that begins a text; max_new_tokens counts those after it")
            return min(self.max_length, longest) - 1
        new = _NEW if self.max_new_tokens is None else self.max_new_tokens
        if new >= longest:
            raise ValueError(
                f"max_new_tokens is {new}; with the token that begins it, the model takes at most {longest} tokens of a text that is written"
            )
        return new

    def processed(self, scores: np.ndarray, before: Sequence[int], step: int = 0, most: int = 0, ends: tuple[int, ...] = ()) -> np.ndarray:
        """The scores of the words that may come next; -inf of those that may not.

        Parameters
        ----------
        scores : ndarray, shape (words,)
        before : sequence of int
            The text's tokens.
        step, most : int
            How many of them are new; how many there are at most.
        ends : tuple of int
            Tokens that end a text.
        """
        scores = scores.astype(np.float64)
        if self.repetition_penalty != 1:  # Keskar et al. 2019
            seen = np.unique(before)
            scores[seen] = np.where(scores[seen] < 0, scores[seen] * self.repetition_penalty, scores[seen] / self.repetition_penalty)
        size = self.no_repeat_ngram_size
        if 0 < size <= len(before):
            last = list(before[len(before) + 1 - size :])
            scores[[before[i + size - 1] for i in range(len(before) + 1 - size) if list(before[i : i + size - 1]) == last]] = -np.inf
        banned = [word for word in self.bad_words_ids if numbers_of("", word)[0] not in ends]
        scores[[word for each in banned for word in numbers_of("", each) if word < len(scores)]] = -np.inf
        if len(before) < self.min_length if self.min_new_tokens is None else step < self.min_new_tokens:
            scores[[end for end in ends if end < len(scores)]] = -np.inf
        forced = numbers_of("", self.forced_bos_token_id) if len(before) == 1 else ()
        if step + 1 == most and self.forced_eos_token_id is not None:
            forced = numbers_of("", self.forced_eos_token_id)
        if forced:
            _check_words(forced, len(scores))
            scores[:] = -np.inf
            scores[list(forced)] = 0
        return scores

    def choose(self, scores: np.ndarray, uniform: float) -> int:
        """The next token of a text.

        Parameters
        ----------
        scores : ndarray, shape (words,)
            As ``processed`` gives them.
        uniform : float
            A random number from 0 to 1, without 1.
        """
        likeliest = int(scores.argmax())
        if scores[likeliest] == -np.inf:
            raise ValueError(ALL_FORBIDDEN)
        if not self.do_sample:
            return likeliest
        words, sums = self._kept(scores)
        return int(words[min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), len(sums) - 1)])

    def log_probability(self, scores: np.ndarray, token: int) -> float:
        """The logarithm of the probability of a token among those that may be chosen, at temperature 1."""
        own = scores[self._kept(scores)[0]] if self.do_sample else scores
        return float(scores[token] - own.max() - np.log(np.exp(own - own.max()).sum()))

    def _kept(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words that may be drawn, the likeliest first, and the sums of their probabilities up to each."""
        words = np.arange(len(scores))
        if 0 < self.top_k < len(scores):
            words = np.flatnonzero(scores >= np.partition(scores, -self.top_k)[-self.top_k])  # more where scores are equal
        words = words[np.argsort(-scores[words], kind="stable")]
        odds = np.exp((scores[words] - scores[words[0]]) / self.temperature)
        sums = np.cumsum(odds / odds.sum())
        if self.top_p < 1:  # the fewest that have this probability together (Holtzman et al. 2020)
            sums = sums[: int(np.searchsorted(sums, self.top_p)) + 1]
        return words[: len(sums)], sums


def _number(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {value!r:.80}")
    return value.item() if isinstance(value, np.generic) else value


def _check_words(forced: tuple[int, ...], words: int) -> None:
    if max(forced) >= words:
        raise ValueError(f"forced_bos_token_id or forced_eos_token_id is {max(forced)}, but the model has {words} words")


def read_sampling(folder: str, config: Mapping[str, Any], others: Sequence[str] = ()) -> Sampling:
    """What a folder's generation_config.json says, or where there is none, its config.json; what is not computed is refused, but `others`."""
    path = os.path.join(folder, "generation_config.json")
    values = mapping(path)
    if not has(path):
        path = os.path.join(folder, "config.json")
        values = {name: value for name, value in config.items() if name in vars(Sampling()) or name in _IDLE}
    names = [*vars(Sampling()), "eos_token_id", *_HARMLESS, *others]
    given = {name: value for name, value in values.items() if name not in names and value is not None and value is not False}
    others = [name for name, value in given.items() if value != _IDLE.get(name)]
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


__all__ = ["ALL_FORBIDDEN", "Sampling", "numbers_of", "read_ends", "read_sampling"]
