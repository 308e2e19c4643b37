"""Token after token: the loop of a decoder that writes texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core import Generator
from .._evaluating import evaluating
from .._recording import no_grad
from ..nn.packing import checked_lengths
from ..random import as_generator
from .beams import search
from .cache import Cache
from .sampling import Sampling
from .texts import finite


class Decoding:
    """Texts that a decoder writes, several rows of each where beams are searched.

    Parameters
    ----------
    model : TextGeneration or Text2TextGeneration
    texts : list of list of int
        The tokens that there are.
    first : dict
        The arguments of the first call of the model.
    later : dict
        Those of later calls, besides the new tokens.
    name : str
        The name of the argument that has the new tokens.
    cache : Cache, optional
        With what has been read before the first call.

    Attributes
    ----------
    sums : list of float, optional
        Of each text the logarithm of the probability of its new tokens, where a list of zeros is put there first.
    """

    def __init__(
        self, model: Any, texts: list[list[int]], first: dict[str, Any], later: dict[str, Any], name: str, cache: Cache | None = None
    ) -> None:
        self.model, self.texts, self._later, self._name = model, texts, later, name
        self._new, self._cache, self._each = first, cache or Cache(), 1
        self.sums: list[float] | None = None

    def scores(self) -> np.ndarray:
        """The scores of the next token of each row, (rows, words)."""
        return self.computed()[:, -1]

    def computed(self) -> np.ndarray:
        """The scores after each of the new tokens of a row that the model gives, (rows, tokens, words)."""
        more = {"last": True} if self._name == "ids" else {}
        with evaluating(self.model), no_grad():
            found: np.ndarray = self.model(cache=self._cache, **self._new, **more)
        return found

    def advance(self, rows: np.ndarray, tokens: list[int], each: int = 1) -> None:
        """Goes on with these rows and their new tokens; `each`: how many of them, side by side, are one text's."""
        self._cache.take(rows, rows[::each] // self._each)
        self._each = each
        self._new = {**self._later, self._name: np.array(tokens, np.int64).reshape(-1, 1)}


def continuations(
    model: Any,
    ids: np.ndarray,
    lengths: np.ndarray,
    most: np.ndarray,
    sampling: Sampling,
    ends: tuple[int, ...],
    rng: Any,
    first: int = 0,
    **begin: Any,
) -> Iterator[list[tuple[int, int]]]:
    """After each step, (number of the text, its next token) of every text that has not ended; of beams, the whole texts at the end.

    Each text draws from a generator of its own, whose seed `rng` gives: the first has the same tokens alone and among others.

    Parameters
    ----------
    model : TextGeneration or Text2TextGeneration
    ids : ndarray of int, shape (B, T)
    lengths : ndarray of int, shape (B,)
    most : ndarray of int, shape (B,)
        New tokens of each text.
    ends : tuple of int
        Tokens that end a text.
    rng : Generator, int, None or list of Generator
        A list has one for each text.
    first : int
        The number of the first text.
    **begin
        What ``model.begin`` takes besides.
    """
    if len(ids):
        yield from written(model.begin(ids, lengths, **begin), most, sampling, ends, rng, first)


def written(
    decoding: Decoding, most: np.ndarray, sampling: Sampling, ends: tuple[int, ...], rng: Any, first: int = 0
) -> Iterator[list[tuple[int, int]]]:
    """The same of texts that have been begun."""
    model, texts = decoding.model, decoding.texts
    source = as_generator(rng) if sampling.do_sample and not isinstance(rng, list) else None
    drawn = rng if isinstance(rng, list) else [seeded(source) for _ in texts]
    if sampling.num_beams > 1:
        whole = search(decoding, most, sampling, ends, lambda scores, number: finite(scores, first + number, model))
        yield [(first + number, token) for number, tokens in enumerate(whole) for token in tokens]
        return
    rows = np.arange(len(texts))  # of the texts that have not ended
    for step in range(1, most.max(initial=0) + 1):
        if not len(rows):
            return
        found = []
        for row, own in zip(rows, decoding.scores(), strict=True):
            scores = sampling.processed(finite(own, first + int(row), model), texts[row], step - 1, int(most[row]), ends)
            token = sampling.choose(scores, _uniform(drawn[row] if sampling.do_sample else None))
            if decoding.sums is not None:
                decoding.sums[row] += sampling.log_probability(scores, token)
            texts[row].append(token)
            found.append((first + int(row), token))
        yield found
        left = np.array([token not in ends for _, token in found], bool) & (most[rows] > step)
        rows = rows[left]
        decoding.advance(np.flatnonzero(left), [token for (_, token), stays in zip(found, left, strict=True) if stays])


def seeded(source: Generator | None) -> Generator | None:
    """A generator whose seed another gives."""
    return None if source is None else as_generator(int(_uniform(source) * 2**53))


def _uniform(generator: Generator | None) -> float:
    """A random number from 0 to 1, without 1."""
    return 0.0 if generator is None else generator.uniform((), 0.0, 1.0, "float64").item()


def generate(model: Any, ids: Any, lengths: Any, sampling: Sampling, ends: tuple[int, ...], rng: Any, **begin: Any) -> np.ndarray:
    """``TextGeneration.generate``, with the arguments read."""
    given = model.checked(ids)
    host = given.detach().cpu().numpy().astype(np.int64)
    batch, width = host.shape
    own = np.full(batch, width) if lengths is None else checked_lengths(lengths, batch, width, f"ids have {host.shape}")
    most = model.most(sampling, own)
    texts = [list(text) for text in model.begin(host, own, **begin).texts] if batch else []
    for step in continuations(model, host, own, most, sampling, ends, rng, **begin):
        for row, token in step:
            texts[row].append(token)
    found = np.full((len(texts), max(map(len, texts), default=0)), ends[0] if ends else 0, np.int64)
    for padded, text in zip(found, texts, strict=True):
        padded[: len(text)] = text
    return found


__all__ = ["Decoding", "continuations", "generate", "seeded", "written"]
