"""When each word is said: by what the tokens of a window attend to, with dynamic time warping, as transformers and OpenAI's Whisper do it."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

SPACELESS = ("zh", "ja", "th", "lo", "my", "yue")  # languages whose words have no spaces between them
_BROKEN = "\N{REPLACEMENT CHARACTER}"
_BEFORE, _AFTER = "\"'“¡¿([{-", "\"'.。,，!！?？:：”)]}、"  # marks that belong to the word after them, or before them


class Word(NamedTuple):
    """A word, and its first and last token."""

    text: str
    first: int
    last: int


def frames_of(attended: np.ndarray, width: int) -> np.ndarray:
    """The first position of what each token is said in, (T,), of maps (heads, T, S), after a median filter of this width."""
    x = attended.astype(np.float64)
    spread = x.std(
        1, keepdims=True
    )  # 0 where all tokens attend alike, as one alone does, and as do weights that are too small for their dtype
    x = (x - x.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1)
    rows, columns = warped(-_filtered(x, width).mean(0))
    return columns[np.diff(rows, prepend=-1) > 0]


def _filtered(x: np.ndarray, width: int) -> np.ndarray:
    """The median of so many values around each, along the last axis."""
    around = width // 2
    if x.shape[-1] <= around:
        return x
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(around, around)], mode="reflect")
    return np.sort(np.lib.stride_tricks.sliding_window_view(x, width, -1), -1)[..., around]


def warped(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of the cheapest way from the first to the last element of costs (T, S), in which neither goes back.

    All elements whose row and column have one sum are computed at once.
    """
    rows, columns = costs.shape
    # 0: from the row and column before, 1: from the row before, 2: from the column before
    trace = np.full((rows + 1, columns + 1), 2, np.int8)
    trace[1:, 0] = 1
    earlier = np.full(rows + 1, np.inf, np.float32)  # by rows, of two sums before, and of the one before
    earlier[0], last = 0.0, np.full(rows + 1, np.inf, np.float32)
    for total in range(2, rows + columns + 1):
        own = np.arange(max(1, total - columns), min(rows, total - 1) + 1)
        both, row, column = earlier[own - 1], last[own - 1], last[own]
        step = np.where((both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2))
        trace[own, total - own] = step
        now = np.full(rows + 1, np.inf, np.float32)
        now[own] = costs[own - 1, total - own - 1] + np.choose(step, (both, row, column)).astype(np.float64)
        earlier, last = last, now
    i, j, way = rows, columns, []
    while i > 0 or j > 0:
        way.append((i - 1, j - 1))
        step = trace[i, j]
        i, j = i - (step < 2), j - (step != 1)
    found = np.array(way[::-1]).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def words_of(tokens: Sequence[int], decode: Callable[[Sequence[int]], str], spaced: bool) -> list[Word]:
    """Tokens in groups, each a word with the space before it and the marks around it."""
    whole, parts, begin, offset = decode(tokens), [], 0, 0
    for end in range(1, len(tokens) + 1):  # at whole characters
        text = decode(tokens[begin:end])
        place = offset + text.find(_BROKEN)
        if _BROKEN not in text or place >= len(whole) or whole[place] == _BROKEN:
            parts.append(Word(text, begin, end - 1))
            begin, offset = end, offset + len(text)
    if spaced:
        parts = _joined(parts)
    return _with_marks(parts)


def _joined(parts: list[Word]) -> list[Word]:
    """Those that begin with no space, and are no marks, are put to the one before."""
    found: list[Word] = []
    for part in parts:
        if found and not part.text.startswith(" ") and part.text.strip() not in string.punctuation:
            found[-1] = Word(found[-1].text + part.text, found[-1].first, part.last)
        else:
            found.append(part)
    return found


def _with_marks(parts: list[Word]) -> list[Word]:
    """Marks are put to the words that they belong to."""
    found: list[Word] = []
    for part in reversed(parts):
        if found and part.text.startswith(" ") and part.text.strip() in _BEFORE:
            found[-1] = Word(part.text + found[-1].text, part.first, found[-1].last)
        else:
            found.append(part)
    parts, found = found[::-1], []
    for part in parts:
        if found and not found[-1].text.endswith(" ") and part.text in _AFTER:
            found[-1] = Word(found[-1].text + part.text, found[-1].first, part.last)
        else:
            found.append(part)
    return [part for part in found if part.text]


__all__ = ["frames_of", "words_of"]
