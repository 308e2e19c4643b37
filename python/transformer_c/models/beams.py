"""Beam search: the most probable text of several that are written at once, as transformers 5 computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .sampling import ALL_FORBIDDEN, Sampling

_PART = 64  # scores of which the largest is compared first
_NEVER = np.float32(-1e9)  # the score of a text that there is not, and what is added to that of one which may not be chosen


class Beams:
    """The beams of one text.

    Parameters
    ----------
    begin : list of int
        The tokens that there are.
    most : int
        New tokens.
    sampling : Sampling
    ends : tuple of int
        Tokens that end a text.
    sums : bool
        Whether ``sum`` is computed.

    Attributes
    ----------
    texts : list of list of int
        The tokens of each beam.
    done : bool
        Whether none can become better than those that have ended.
    """

    def __init__(self, begin: list[int], most: int, sampling: Sampling, ends: tuple[int, ...], sums: bool = False) -> None:
        count = sampling.num_beams
        self.texts, self.done = [list(begin) for _ in range(count)], False
        self._begin, self._most, self._sampling, self._ends = len(begin), most, sampling, ends
        self._scores = np.full(count, _NEVER)
        self._scores[0] = 0  # all beams are the same at first
        self._ended: list[list[int]] = [[] for _ in range(count)]
        self._ended_scores, self._has_ended = np.full(count, -np.inf, np.float32), np.zeros(count, bool)
        self._can_improve = True
        self._sums = np.zeros(count) if sums else None  # of the logarithms of the probabilities that tokens have among those that may come
        self._ended_sums = np.zeros(count)

    @property
    def best(self) -> list[int]:
        """The new tokens of the best text that has ended, or where none has, of the most probable one."""
        ended = [text for text, has_ended in zip(self._ended, self._has_ended, strict=True) if has_ended]
        return ended[0] if ended else self.texts[0][self._begin :]

    @property
    def sum(self) -> float:
        """The logarithm of the probability of ``best``, of words that may come."""
        sums = self._ended_sums[self._has_ended] if self._has_ended.any() else self._sums
        return 0.0 if sums is None else float(sums[0])

    def step(self, scores: np.ndarray) -> np.ndarray:
        """Goes on by a token: the numbers of the beams (n,) that the new ones continue.

        Parameters
        ----------
        scores : ndarray, shape (n, words)
            Logarithms of the probabilities of the next token.
        """
        sampling, count, step = self._sampling, self._sampling.num_beams, len(self.texts[0]) - self._begin
        total: np.ndarray = np.empty(scores.shape, np.float32)
        for own, row, text in zip(total, scores, self.texts, strict=True):
            own[:] = sampling.processed(row, text, step, self._most, self._ends)
        if sampling.renormalize_logits:
            total = log_softmax(total)
        norms = None if self._sums is None else _norms(total)
        total += self._scores[:, None]
        words = total.shape[1]
        kept = _largest(total.ravel(), max(2, 1 + len(self._ends)) * count)
        values, beams, tokens = total.ravel()[kept], kept // words, kept % words
        if values[0] == -np.inf:  # no word may come next, in none of the beams
            if not self._has_ended.any():
                raise ValueError(ALL_FORBIDDEN)
            self.done = True
            return beams[:count]
        texts = [[*self.texts[beam], int(token)] for beam, token in zip(beams, tokens, strict=True)]
        sums = None if self._sums is None or norms is None else self._sums[beams] + (values - self._scores[beams] - norms[beams])
        ends = np.isin(tokens, self._ends) | (step + 1 >= self._most)
        chosen = _largest(values + ends * _NEVER, count)
        self._end(texts, values, ends, step + 1, sums)
        self.texts = [texts[i] for i in chosen]
        self._sums = None if sums is None else sums[chosen]
        self._scores = (values + ends * _NEVER)[chosen]
        self._judge(step + 1, bool(ends.all()))
        return beams[chosen]

    def _end(self, texts: list[list[int]], values: np.ndarray, ends: np.ndarray, length: int, sums: np.ndarray | None) -> None:
        """Keeps the best of the texts that have ended, now and before."""
        now = ends & (np.arange(len(ends)) < self._sampling.num_beams)  # the others would only replace beams that have ended
        with np.errstate(over="ignore"):
            found = values / np.float32(length**self._sampling.length_penalty)
        is_full = self._has_ended.all() and self._sampling.early_stopping is True
        found = np.where(now & (self._can_improve and not is_full), found, -np.inf)
        merged = np.concatenate([self._ended_scores, found]).astype(np.float32)
        kept = _largest(merged, self._sampling.num_beams)
        every = self._ended + [text[self._begin :] for text in texts]
        self._ended, self._ended_scores = [every[i] for i in kept], merged[kept]
        self._has_ended = np.concatenate([self._has_ended, now])[kept]
        if sums is not None:
            self._ended_sums = np.concatenate([self._ended_sums, sums])[kept]

    def _judge(self, length: int, has_all_ended: bool) -> None:
        """Sets ``done``."""
        sampling = self._sampling
        longest = self._most if sampling.early_stopping == "never" and sampling.length_penalty > 0 else length
        with np.errstate(over="ignore"):
            possible = self._scores[0] / np.float32(longest**sampling.length_penalty)
        worst = np.where(self._has_ended, self._ended_scores.min(), -np.inf)
        self._can_improve = self._can_improve and bool((possible > worst).any())
        self.done = not self._can_improve or (bool(self._has_ended.all()) and sampling.early_stopping is True) or has_all_ended


def search(decoding: Any, most: np.ndarray, sampling: Sampling, ends: tuple[int, ...], check: Callable[..., np.ndarray]) -> list[list[int]]:
    """The new tokens of each text of a ``Decoding``; `check` takes the scores of a text and its number."""
    with_sums = decoding.sums is not None
    texts = [Beams(text, int(new), sampling, ends, with_sums) for text, new in zip(decoding.texts, most, strict=True)]
    open_ones, count, each = list(range(len(texts))), sampling.num_beams, 1
    while open_ones:
        scores = decoding.scores()
        rows, tokens, left = [], [], []
        for place, number in enumerate(open_ones):
            own = log_softmax(check(scores[place * each : (place + 1) * each], number))
            beams = texts[number].step(own if each == count else own.repeat(count, 0))
            if not texts[number].done:
                left.append(number)
                rows.append(place * each + (beams if each == count else 0 * beams))
                tokens += [text[-1] for text in texts[number].texts]
        open_ones = left
        if left:
            decoding.advance(np.concatenate(rows), tokens, count)
            each = count
    if with_sums:
        decoding.sums = [text.sum for text in texts]
    return [text.best for text in texts]


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """The logarithms of probabilities over the last axis, float32."""
    x = scores.astype(np.float32)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _norms(scores: np.ndarray) -> np.ndarray:
    """The logarithms of the sums of exp over the last axis; 0 where there is nothing to add."""
    x = scores.astype(np.float64)
    largest = x.max(-1)
    largest[~np.isfinite(largest)] = 0.0
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(x - largest[:, None]).sum(-1)) + largest
    return np.where(np.isfinite(found), found, 0.0)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Where the largest are, the largest first; of equal ones the first."""
    if 8 * _PART * count < len(values):
        whole = len(values) // _PART * _PART
        best = np.append(values[:whole].reshape(-1, _PART).max(1), values[whole:])  # of each part
        found = np.flatnonzero(values >= np.partition(best, -count)[-count])  # `count` are as large, perhaps more
        return found[np.argsort(-values[found], kind="stable")[:count]]
    return np.argsort(-values, kind="stable")[:count]


__all__ = ["Beams", "log_softmax", "search"]
