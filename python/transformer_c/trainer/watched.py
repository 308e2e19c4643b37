"""What a captured step may not change, and what a graph of it depends on.

The Python code of a step runs when it is captured, and not when its graph is repeated. So it may leave nothing behind on the host.
"""

from __future__ import annotations

import hashlib
import operator
import pickle
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from .._core import Generator
from ..nn.module_hooks import Hooked
from . import streams

MAX_DEPTH = 3  # collections in collections whose items are compared by their contents
MAX_ITEMS = 100  # of a collection; those of a longer one are compared by identity
_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextmanager
def unchanged(model: Any, train: Any, given: dict[str, Any]) -> Iterator[None]:
    """Raises RuntimeError where the block changed attributes of a module, or drew from a generator.

    Parameters
    ----------
    model : Module
    train : loader, list of loaders
        If it draws its batches beside the block, its generators are not the block's own.
    given : dict of str to generator
        Found earlier.
    """
    own = _own_streams(model, train, given)
    attributes, states = _attributes(model), _states(own)
    yield
    after = _attributes(model)
    for name in attributes | after:
        if name not in attributes or name not in after or attributes[name] != after[name]:
            raise RuntimeError(f"{name} of the module was changed while tc.cuda.graph captured; move that out of the function")
    for name, state in _states(own).items():
        if state != states[name]:
            raise RuntimeError(f"the generator {name!r} was drawn from while tc.cuda.graph captured; move that out of the function")


# ---- generators --------------------------------------------------------------------------------------------------------------


def _own_streams(model: Any, train: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The generators that only a step draws from while it runs. (Not the library's: a start draws from them anew.)"""
    found = streams.find_streams({"model": model, "train": train})
    known = {id(stream) for stream in found.values()}
    found |= {name: stream for name, stream in given.items() if id(stream) not in known}
    if getattr(train, "prefetch", 0):
        others = {id(stream) for stream in streams.find_streams({"train": train}).values()}
        found = {name: stream for name, stream in found.items() if name.startswith("model.") and id(stream) not in others}
    return {name: stream for name, stream in found.items() if not isinstance(stream, Generator)}


def _states(own: dict[str, Any]) -> dict[str, bytes]:
    return {name: pickle.dumps(state) for name, state in streams.capture(own).items()}


# ---- attributes --------------------------------------------------------------------------------------------------------------


class Objects:
    """Objects that are compared by identity, and live as long as this does: no other gets the id of one."""

    def __init__(self, *objects: Any) -> None:
        self.objects = objects

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Objects) or len(other.objects) != len(self.objects):
            return False
        return all(map(operator.is_, self.objects, other.objects))

    __hash__ = None  # type: ignore[assignment]


def _attributes(model: Any) -> dict[str, Any]:
    """What may not change, by the names of attributes: contents of all modules, and where parameters and buffers have their elements."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(module).items():
            if name in _REGISTRIES:
                found |= {f"{prefix}{key}": Objects(item) for key, item in value.items()}
            else:
                found[prefix + name] = contents(value)
    tensors = (*model.named_parameters(), *model.named_buffers())
    return found | {f"{name}.data": t.data_ptr() for name, t in tensors}


def contents(value: Any, depth: int = 0) -> Any:
    """What `value` is equal to for as long as Python code does not change it."""
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, dict):
        return _items(dict, [*value, *value.values()], depth)
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return _items(type(value), list(value), depth)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.blake2b(value.tobytes()).digest()
    if isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return type(value), repr(value)
    return Objects(value)


def _items(kind: type, values: list, depth: int) -> Any:
    if depth == MAX_DEPTH or len(values) > MAX_ITEMS:
        return kind, Objects(*values)
    return kind, [contents(value, depth + 1) for value in values]


# ---- structure ---------------------------------------------------------------------------------------------------------------


class Structure:
    """The modules, parameters, buffers and hooks of a model, which may be replaced between two steps.

    Parameters
    ----------
    model : Module
    """

    def __init__(self, model: Any) -> None:
        self._modules, self._parameters = list(model.modules()), list(model.parameters())
        self._tensors = [*self._parameters, *model.buffers()]
        # Looked at in each step: so they are collected once.
        self._registries = [getattr(module, name) for module in self._modules for name in _REGISTRIES]
        self._attributes = [vars(module) for module in self._modules]
        self._parts = self._found()
        self._places: list[int] | None = None  # of the elements, once they matter: the first step may move them

    def note_places(self) -> None:
        """From now on another place of a parameter's or buffer's elements counts as a replacement: a graph depends on them."""
        self._places = [t.data_ptr() for t in self._tensors]

    def is_replaced(self) -> bool:
        """Whether a part was added, replaced or removed since this was made, or moved since note_places()."""
        return self._found() != self._parts or self._places not in (None, [t.data_ptr() for t in self._tensors])

    def switches(self) -> tuple[list[bool], list[bool]]:
        """Which modules are in training mode, and which parameters get a gradient."""
        return [module.training for module in self._modules], [p.requires_grad for p in self._parameters]

    def _found(self) -> Objects:
        forwards = [attributes["forward"] for attributes in self._attributes if "forward" in attributes]
        hooked = [forward for forward in forwards if isinstance(forward, Hooked)]
        hooks = [hook for f in hooked for kind in (f.before, f.after, f.backward, f.around) for hook in kind.values()]
        return Objects(*[part for registry in self._registries for part in registry.values()], *forwards, *hooks)


__all__ = ["Structure", "unchanged"]
