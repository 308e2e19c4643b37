"""Token after token: the loop of a decoder that continues texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core import Generator
from .._evaluating import evaluating
from .._recording import no_grad
from ..nn.packing import checked_lengths
from ..random import as_generator
from .cache import Cache
from .sampling import Sampling
from .texts import finite


def continuations(
    model: Any, ids: np.ndarray, lengths: np.ndarray, most: np.ndarray, sampling: Sampling, ends: tuple[int, ...], rng: Any, first: int = 0
) -> Iterator[list[tuple[int, int]]]:
    """After each step, (number of the text, its next token) of every text that has not ended.

    Each text draws from a generator of its own, whose seed `rng` gives: the first has the same tokens alone and among others.

    Parameters
    ----------
    model : TextGeneration
    ids : ndarray of int, shape (B, T)
    lengths : ndarray of int, shape (B,)
    most : ndarray of int, shape (B,)
        New tokens of each text.
    ends : tuple of int
        Tokens that end a text.
    first : int
        The number of the first text.
    """
    source = as_generator(rng) if sampling.do_sample else None
    drawn = [as_generator(int(_uniform(source) * 2**53)) if source else None for _ in lengths]
    texts = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    rows, cache = np.arange(len(texts)), Cache()  # of the texts that have not ended
    new: dict[str, Any] = {"ids": ids, "lengths": lengths}
    for step in range(1, most.max(initial=0) + 1):
        if not len(rows):
            return
        with evaluating(model), no_grad():
            scores = model(cache=cache, last=True, **new)[:, 0]
        found = []
        for row, own in zip(rows, scores, strict=True):
            token = sampling.choose(finite(own, first + int(row), model), texts[row], _uniform(drawn[row]))
            texts[row].append(token)
            found.append((first + int(row), token))
        yield found
        left = np.array([token not in ends for _, token in found], bool) & (most[rows] > step)
        if not left.all():
            rows = rows[left]
            cache.select(np.flatnonzero(left))
        new = {"ids": np.array([[token] for (_, token), stays in zip(found, left, strict=True) if stays], np.int64).reshape(-1, 1)}


def _uniform(generator: Generator | None) -> float:
    """A random number from 0 to 1, without 1."""
    return 0.0 if generator is None else generator.uniform((), 0.0, 1.0, "float64").item()


def generate(model: Any, ids: Any, lengths: Any, sampling: Sampling, ends: tuple[int, ...], rng: Any) -> np.ndarray:
    """``TextGeneration.generate``, with the arguments read."""
    given, _ = model.encoder.checked(ids)
    host = given.detach().cpu().numpy().astype(np.int64)
    batch, width = host.shape
    own = np.full(batch, width) if lengths is None else checked_lengths(lengths, batch, width, f"ids have {host.shape}")
    most = sampling.most(own, model.encoder.longest)
    texts = [row[:length].tolist() for row, length in zip(host, own, strict=True)]
    for step in continuations(model, host, own, most, sampling, ends, rng):
        for row, token in step:
            texts[row].append(token)
    found = np.full((len(texts), max(map(len, texts), default=0)), ends[0] if ends else 0, np.int64)
    for padded, text in zip(found, texts, strict=True):
        padded[: len(text)] = text
    return found


__all__ = ["continuations", "generate"]
