"""The keys and values that attention has already projected, kept from one decoding step to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from .. import _core
from .._arguments import count
from .._core import Tensor
from .._graph import refuse
from .._joining import cat
from .._recording import is_grad_enabled
from .._tensor import as_tensor, empty


class _State(NamedTuple):
    """The contents of a cache: keys and values, each (B, H, capacity, D), of which the first `length` positions are valid."""

    key: Tensor | None = None
    value: Tensor | None = None
    length: int = 0
    owned: bool = False  # no other cache uses this memory, so new positions may be written into it

    @property
    def keys(self) -> Tensor:
        assert self.key is not None
        return self.key[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        assert self.value is not None
        return self.value[:, :, : self.length]


class KeyValueCache:
    """The keys and values of all positions that one attention layer has seen.

    Passed to a layer as ``past_key_value=``, it puts the keys of earlier calls before those of this call: decoding one position at a
    time gives the same result as the whole sequence at once. Without recording, new positions are written after the old ones, into
    memory that doubles when it is full. While gradients are recorded (outside ``tc.no_grad()``, with Tensors), every call makes new
    arrays, so that all of them can be differentiated. ``copy.copy`` gives an independent cache of the same positions.

    Parameters
    ----------
    max_length : int, optional
        Number of positions to allocate at once, so that memory never grows; more positions are a ValueError.
    static : bool, default False
        Keep the keys and values of the first call and reuse them in all later calls, which ignore `key` and `value`. This is for
        attention to an encoder's output, which is the same at every step.

    Attributes
    ----------
    key, value : Tensor, shape (B, H, length, D), or None
        The cached keys and values, without a copy.
    cross : KeyValueCache
        For a decoder layer: the static cache of its attention to the encoder's output.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> attention = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = np.ones((1, 3, 8), np.float32)
    >>> cache = tc.nn.KeyValueCache()
    >>> for i in range(3):
    ...     step = x[:, i : i + 1]
    ...     y, _ = attention(step, step, step, past_key_value=cache, is_causal=True)
    >>> len(cache), cache.key.shape
    (3, (1, 2, 3, 4))
    """

    __slots__ = ("_cross", "_state", "max_length", "static")

    def __init__(self, max_length: int | None = None, *, static: bool = False) -> None:
        self.max_length = None if max_length is None else count("max_length", max_length)
        self.static = static
        self._state = _State()
        self._cross: KeyValueCache | None = None

    def __len__(self) -> int:
        return self._state.length

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache

    @property
    def key(self) -> Tensor | None:
        return None if self._state.key is None else self._state.keys

    @property
    def value(self) -> Tensor | None:
        return None if self._state.value is None else self._state.values

    @property
    def cross(self) -> KeyValueCache:
        if self._cross is None:
            self._cross = KeyValueCache(static=True)
        return self._cross

    def truncate(self, length: int) -> None:
        """Drops all positions from `length` on, for trying another continuation."""
        length = count("length", length, 0)
        if length > len(self):
            raise ValueError(f"the cache has {len(self)} positions; it cannot be truncated to {length}")
        state = self._state
        self._state = _State(state.key, state.value, length, state.owned) if length else _State()

    def reorder(self, index: Any) -> None:
        """Keeps the batch elements `index`, a sequence of integers, in that order, for beam search."""
        chosen = as_tensor(index)
        if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise TypeError(f"index must be a sequence of integers, got {chosen.dtype.name} of shape {chosen.shape}")
        with restored_on_error([self]):
            old = self._state
            if old.key is not None and old.value is not None:
                self._state = _State(old.key[chosen], old.value[chosen], old.length, old.owned)
            if self._cross is not None:
                self._cross.reorder(chosen)

    def __copy__(self) -> KeyValueCache:
        """An independent cache of the same positions."""
        self._state = self._state._replace(owned=False)
        other = KeyValueCache(self.max_length, static=self.static)
        other._state = self._state
        other._cross = None if self._cross is None else self._cross.__copy__()
        return other

    def __repr__(self) -> str:
        shape = "" if self._state.key is None else f", shape={self._state.keys.shape}"
        return f"KeyValueCache(length={len(self)}{shape}{', static=True' if self.static else ''})"

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends key and value (B, H, T, D) to the cached ones and returns all of them; called by the layers."""
        shape, old = key.shape, self._state
        if len(shape) != 4 or value.ndim != 4 or shape[:3] != value.shape[:3]:
            raise ValueError(f"key and value must be (B, H, T, D) with the same B, H and T; got {shape} and {value.shape}")
        total = old.length + shape[2]
        if self.max_length is not None and total > self.max_length:
            raise ValueError(f"{total} positions do not fit in a KeyValueCache of max_length={self.max_length}")
        if old.key is not None and old.value is not None:
            for name, have, new in (("key", old.key, key), ("value", old.value, value)):
                batch, heads, _, width = have.shape
                own = new.shape
                if own[0] != batch or own[1] != heads or own[3] != width or have.dtype != new.dtype:
                    raise ValueError(
                        f"past_key_value has a {name} (B, H, T, D) = {(batch, heads, len(self), width)} of "
                        f"{have.dtype.name}, this call has {own} of {new.dtype.name}; a cache belongs to one layer and one batch"
                    )
            refuse("a KeyValueCache, whose length is the host's, got more positions")
        if is_grad_enabled():
            if old.key is not None:
                key, value = cat([old.keys, key], 2), cat([old.values, value], 2)
            self._state = _State(key, value, total)
        else:
            self._state = _State(self._written(old.key, key, total), self._written(old.value, value, total), total, owned=True)
        return self._state.keys, self._state.values

    def _written(self, buffer: Tensor | None, new: Tensor, total: int) -> Tensor:
        """`buffer`, or a copy of it twice as long, with `new` written after the valid positions."""
        length = self._state.length
        if buffer is None or buffer.shape[2] < total or not self._state.owned:
            buffer = with_room(buffer, length, self.max_length or (2 * total if length else total), new)
        buffer[:, :, length:total] = new
        return buffer


def with_room(old: Tensor | None, length: int, capacity: int, new: Tensor) -> Tensor:
    """A buffer for `capacity` positions of keys or values like `new` (B, H, T, D), which begins with the first `length` of `old`."""
    batch, heads, _, width = new.shape
    larger = empty(batch, heads, capacity, width, dtype=new.dtype, device=new.device)
    if old is not None:
        larger[:, :, :length] = old[:, :, :length]
    return larger


def restored_on_error(caches: Iterable[KeyValueCache | None]) -> AbstractContextManager:
    """Restores the caches if the block raises, so that a call that fails in a later layer leaves no trace in the first. No interrupt comes
    between the caches: it would leave some of them longer than others."""
    given: list[KeyValueCache] = []
    for cache in caches:
        if cache is None:
            continue
        if not isinstance(cache, KeyValueCache):
            raise TypeError(f"past_key_value must be a tc.nn.KeyValueCache, not {type(cache).__name__}")
        given.append(cache)
        if cache._cross is not None:
            given.append(cache._cross)
    return _core.restored(given, ("_state", "_cross")) if given else nullcontext()


def one_a_layer(caches: Sequence[KeyValueCache] | None, layers: int) -> Sequence[KeyValueCache | None]:
    """The `past_key_value` argument of a stack, checked; a None per layer if it is None."""
    if caches is None:
        return [None] * layers
    expected = f"past_key_value must be a list of {layers} KeyValueCache, one per layer"
    if not isinstance(caches, (Sequence, KeyValueCache)):
        raise TypeError(f"{expected}, not {type(caches).__name__}; new_caches() makes it")
    if isinstance(caches, KeyValueCache) or len(caches) != layers:
        found = "one" if isinstance(caches, KeyValueCache) else len(caches)
        raise ValueError(f"{expected}, got {found}; new_caches() makes it")
    given = [id(cache) for cache in caches if cache is not None]
    if len(set(given)) < len(given):
        raise ValueError(f"{expected}; got one cache for several layers, which would see each other's keys; new_caches() makes the list")
    return caches


__all__ = ["KeyValueCache"]
