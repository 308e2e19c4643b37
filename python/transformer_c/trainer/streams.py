"""Finds, saves and restores the random streams from which a run draws.

These are always the default generator (including its counter of dropout masks), Python's ``random`` and NumPy's global generator;
also the generators that are attributes of loaders, their datasets and the model, and those that a user names.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from .._core import Generator, Tensor
from ..checkpoint import CheckpointError
from ..random import default_generator

MAX_DEPTH = 8  # attributes of attributes: a transform in a list of a dataset inside subsets of subsets
MAX_ITEMS = 100  # longer lists contain samples, not generators

_KINDS = (Generator, np.random.Generator, np.random.RandomState, random.Random)
_GLOBAL: dict[str, Any] = {
    "default": default_generator,
    "python": random._inst,  # the generator behind the module's functions
    "numpy": np.random.mtrand._rand,
}


def as_streams(given: Iterable[Any]) -> tuple[Any, ...]:
    """The generators that a user names; raises TypeError for anything else."""
    given = tuple(given)
    for i, stream in enumerate(given):
        if not isinstance(stream, _KINDS):
            raise TypeError(
                f"generators[{i}] is of type {type(stream).__name__}; expected a generator: tc.Generator, np.random.Generator, "
                "np.random.RandomState or random.Random"
            )
    return given


def find_streams(holders: Mapping[str, Any], given: Iterable[Any] = ()) -> dict[str, Any]:
    """All streams, each under a name that is the same in every run of a script.

    Parameters
    ----------
    holders : mapping of str to object
        Loaders and the model.
    given : iterable of generators
    """
    found = dict(_GLOBAL)
    seen = {id(stream) for stream in found.values()}
    for name, stream in (*_walk(holders), *((f"given.{i}", g) for i, g in enumerate(given))):
        if id(stream) not in seen:
            seen.add(id(stream))
            found[name] = stream
    return found


def _walk(holders: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    visited: set[int] = set()

    def look(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _KINDS):
            yield name, value
            return
        if depth > MAX_DEPTH or id(value) in visited:
            return
        visited.add(id(value))
        for key, item in _parts(value):
            yield from look(f"{name}.{key}", item, depth + 1)

    for name, holder in holders.items():
        yield from look(name, holder, 0)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """The items of a short list or dict, or the attributes of an object."""
    if isinstance(value, (list, tuple)):
        return list(enumerate(value)) if len(value) <= MAX_ITEMS else []
    if isinstance(value, dict):
        return [(k, v) for k, v in value.items() if isinstance(k, str)] if len(value) <= MAX_ITEMS else []
    if isinstance(value, (Tensor, ModuleType)) or hasattr(value, "__globals__"):
        return []  # Tensors, modules and functions have attributes too, but contain no stream of a run
    attributes = getattr(value, "__dict__", None)
    return list(attributes.items()) if isinstance(attributes, dict) else []


def capture(streams: Mapping[str, Any]) -> dict[str, Any]:
    """The state of every stream, in a form that a checkpoint can store."""
    return {name: _state(stream) for name, stream in streams.items()}


def restore(streams: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Restores states from ``capture`` for the names in both; raises CheckpointError if a state does not fit its stream."""
    for name in (name for name in streams if name in states):
        try:
            _set_state(streams[name], states[name])
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"the checkpoint's state of the random stream {name!r} does not fit ({error})") from error


def _state(stream: Any) -> Any:
    if isinstance(stream, Generator):
        return np.frombuffer(stream.get_state(), np.uint8)
    if isinstance(stream, np.random.Generator):
        return stream.bit_generator.state
    if isinstance(stream, np.random.RandomState):
        return stream.get_state(legacy=False)
    version, words, gauss = stream.getstate()
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def _set_state(stream: Any, state: Any) -> None:
    if isinstance(stream, Generator):
        stream.set_state(np.ascontiguousarray(state, np.uint8).tobytes())
    elif isinstance(stream, np.random.Generator):
        stream.bit_generator.state = state
    elif isinstance(stream, np.random.RandomState):
        stream.set_state(state)
    else:
        stream.setstate((state["version"], tuple(np.asarray(state["words"]).tolist()), state["gauss"]))
