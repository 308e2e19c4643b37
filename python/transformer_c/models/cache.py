"""The keys and values of the tokens that a model has read, kept from call to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import Tensor
from .._recording import is_grad_enabled
from .._tensor import empty
from ..nn.cache import with_room
from ..nn.module import Module
from ..nn.packing import Packing


class Cache:
    """What a decoder keeps of the texts that it has read, so that more of their tokens cost no more than themselves.

    Every text of the batch has its own length. ``model(ids, cache=cache)`` reads on: it appends the tokens to the texts. A call that fails
    leaves the cache as it was.

    Attributes
    ----------
    lengths : ndarray of int64, shape (B,), or None
        How many tokens of each text have been read; None before the first call.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> model = tc.models.create({"model_type": "gpt2", "vocab_size": 50, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 32})
    >>> ids, cache = np.array([[3, 1, 4, 1], [5, 9, 2, 6]]), tc.models.Cache()
    >>> first = model(ids[:, :3], lengths=[3, 2], cache=cache)
    >>> cache
    Cache(lengths=[3, 2])
    >>> model(np.array([[7], [8]]), cache=cache).shape, cache.lengths.tolist()
    ((2, 1, 8), [4, 3])
    """

    def __init__(self) -> None:
        self.lengths: np.ndarray | None = None
        self._kept: list[tuple[Tensor, Tensor]] = []  # keys and values of each layer, (B, H, capacity, D)
        self.source: dict[str, Any] | None = None  # which tokens of the texts that an encoder has read there are, as arguments of attention
        self._of_source: list[tuple[Tensor, Tensor]] = []  # their keys and values, of each layer of the decoder, (B, H, S, D)

    def starts(self, batch: int) -> np.ndarray:
        """The lengths before a call with `batch` texts."""
        if self.lengths is None:
            return np.zeros(batch, np.int64)
        if len(self.lengths) != batch:
            raise ValueError(
                f"the cache has {len(self.lengths)} texts, but ids have {batch}; a cache belongs to the texts of its first call"
            )
        return self.lengths

    def truncate(self, lengths: Any) -> None:
        """Forgets what comes after the first `lengths` (B,) tokens of each text, for trying another continuation."""
        found = np.asarray(lengths)
        if self.lengths is None or found.shape != self.lengths.shape or found.dtype.kind not in "iu":
            raise ValueError(f"lengths must be integers, one for each text, got {lengths!r:.80}; {self!r}")
        if (found < 0).any() or (found > self.lengths).any():
            raise ValueError(f"lengths are {found.tolist()}; the texts have {self.lengths.tolist()} tokens")
        self.lengths = found.astype(np.int64)

    def select(self, index: Any) -> None:
        """Keeps the texts `index`, integers, in that order."""
        rows = np.asarray(index)
        if self.lengths is None:
            raise ValueError("the cache has no texts before the first call")
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise TypeError(f"index must be a sequence of integers, got {index!r:.80}")
        chosen = rows.astype(np.int64)
        self.take(chosen, chosen)

    def take(self, rows: np.ndarray, sources: np.ndarray) -> None:
        """Keeps these texts, and of those that an encoder has read others: several of the first may belong to one of the second, side by side."""
        assert self.lengths is not None
        lengths, most = self.lengths[rows], int(self.lengths.max(initial=0))
        kept, source, of_source = self._kept, self.source, self._of_source
        if not np.array_equal(rows, np.arange(len(self.lengths))):
            kept = [(_chosen(key, rows, most), _chosen(value, rows, most)) for key, value in kept]
        if source is not None and of_source and not np.array_equal(sources, np.arange(of_source[0][0].shape[0])):
            source = {name: value[sources] for name, value in source.items()}
            of_source = [(key[sources], value[sources]) for key, value in of_source]
        self.lengths, self._kept, self.source, self._of_source = lengths, kept, source, of_source

    def begin(self, source: dict[str, Any]) -> None:
        """Before the first call of a decoder that attends to the states of an encoder, of which `source` says which are tokens'."""
        self._of_source = []
        self.source = source

    def of_sources(self, rows: np.ndarray) -> Cache:
        """A cache of texts without tokens, of these texts that an encoder has read."""
        made = Cache()
        made.source, made._of_source, made.lengths = self.source, list(self._of_source), np.zeros(len(rows), np.int64)
        if made._of_source and not np.array_equal(rows, np.arange(made._of_source[0][0].shape[0])):
            made.source = None if self.source is None else {name: value[rows] for name, value in self.source.items()}
            made._of_source = [(key[rows], value[rows]) for key, value in self._of_source]
        return made

    def extended(self, number: int, ends: np.ndarray, packing: Packing | None, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts a layer's keys and values after those of earlier calls, up to `ends` (B,), and gives all of them; the call's last step sets ``lengths``."""
        starts, most = self.starts(len(ends)), int(ends.max(initial=0))
        is_kept = self.lengths is not None and number < len(self._kept)  # not of a first call that failed
        old: Any = self._kept[number] if is_kept else (None, None)
        keys, values = (self._written(*each, starts, most, packing) for each in zip(old, (key, value), strict=True))
        self._kept[number : number + 1] = [(keys, values)]
        if not starts.any():  # all that there are
            return key, value
        return keys[:, :, :most], values[:, :, :most]

    def _written(self, old: Tensor | None, new: Tensor, starts: np.ndarray, most: int, packing: Packing | None) -> Tensor:
        """`old`, or a copy that has more room, with `new` after the first `starts` tokens of each text."""
        new = new if packing is None else packing.unpack(new[0].transpose(0, 1).flatten(1)).unflatten(2, (new.shape[1], -1)).transpose(1, 2)
        count = new.shape[2]
        if old is None or old.shape[2] < most:
            old = with_room(old, int(starts.max(initial=0)), most if old is None else 2 * most, new)
        if (starts == starts[:1]).all():
            begin = int(starts.max(initial=0))
            count = min(count, most - begin)  # the others are padding
            old[:, :, begin : begin + count] = new[:, :, :count]
        else:
            rows, columns = np.nonzero(starts[:, None] + np.arange(count) < old.shape[2])
            old.transpose(1, 2)[rows, starts[rows] + columns] = new.transpose(1, 2)[rows, columns]
        return old

    def of_source(self, number: int, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer for what the encoder has read, which `make` gives in the first call."""
        if number == len(self._of_source):
            self._of_source.append(make())
        return self._of_source[number]

    def __repr__(self) -> str:
        return f"Cache(lengths={None if self.lengths is None else self.lengths.tolist()})"


@dataclass(frozen=True)
class CacheOfLayer:
    """What a layer is given of a cache in a call.

    Attributes
    ----------
    cache : Cache
    number : int
        Of the layer.
    ends : ndarray of int, shape (B,)
        The lengths of the texts after the call.
    packing : Packing or None
    places : Tensor, shape (B, 1, T), or None
        The positions of the new tokens; None: 0, 1, ... in each text.
    """

    cache: Cache
    number: int
    ends: np.ndarray
    packing: Packing | None
    places: Tensor | None

    def extended(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of all tokens of the texts."""
        return self.cache.extended(self.number, self.ends, self.packing, key, value)

    def of_source(self, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The keys and values for what an encoder has read."""
        return self.cache.of_source(self.number, make)


def _chosen(kept: Tensor, rows: np.ndarray, most: int) -> Tensor:
    """Rows of the keys or values of `most` tokens, with room for as many as there was."""
    found = empty(len(rows), *kept.shape[1:], dtype=kept.dtype, device=kept.device)
    found[:, :, :most] = kept[:, :, :most][rows]
    return found


def check_cache(cache: Any, model: Module) -> None:
    """Raises where `cache` is none, or gradients are recorded, which none keeps."""
    if not isinstance(cache, Cache):
        raise TypeError(f"cache must be a tc.models.Cache, not {type(cache).__name__}")
    if is_grad_enabled() and any(p.requires_grad for p in model.parameters()):
        raise ValueError("a cache keeps no gradients: give ids as an array, or call the model in `with tc.no_grad():`")


__all__ = ["Cache", "check_cache"]
