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
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._core import Generator, Tensor
from ..nn.module_hooks import Hooked
from . import streams
from .loaders import mapped

MAX_DEPTH = 3  # collections in collections whose items are compared by their contents
MAX_ITEMS = 100  # of a collection; those of a longer one are compared by identity
_REGISTRIES = ("_parameters", "_buffers", "_modules")


class Renewed(NamedTuple):
    """An attribute that gets Tensors in each repetition of a step: `value`, without history, where the graph leaves their elements."""

    attributes: dict[str, Any]  # of a module
    name: str
    value: Any

    def set(self) -> None:
        """Gives the module copies, to which the next repetition does not write."""
        self.attributes[self.name] = mapped(Tensor.clone, self.value)


@contextmanager
def unchanged(model: Any, train: Any, given: dict[str, Any]) -> Iterator[list[Renewed]]:
    """Raises RuntimeError where the block, in a capture, changed attributes of a module, or drew from a generator.

    Gives a list, which at the end of the block has the attributes that it may change: those with Tensors, which the captured work computes, and
    not from what was there before.

    Parameters
    ----------
    model : Module
    train : loader, list of loaders
        If it draws its batches beside the block, its generators are not the block's own.
    given : dict of str to generator
        Found earlier.
    """
    own = _own_streams(model, train, given)
    attributes, states, before = _attributes(model), _states(own), _plain(model)
    renewed: list[Renewed] = []
    yield renewed
    after, now = _attributes(model), _plain(model)
    for name in attributes | after:
        if name in attributes and name in after and attributes[name] == after[name]:
            continue
        if name in before and name in now and _is_computed_anew(before[name].value, now[name].value):
            renewed.append(now[name]._replace(value=mapped(Tensor.detach, now[name].value)))
        else:
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


def _plain(model: Any) -> dict[str, Renewed]:
    """The attributes that are no parameters, buffers or modules, by their names."""
    found: dict[str, Renewed] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        found |= {prefix + name: Renewed(vars(module), name, value) for name, value in vars(module).items() if name not in _REGISTRIES}
    return found


def _is_computed_anew(before: Any, now: Any) -> bool:
    """Whether both are Tensors, or lists, tuples and dicts of them, and the capture computes the new ones without the old.

    There must be old ones: where a hook takes them away between some steps, the capture of one is not the work of all.
    """
    uses = [[_core.cuda_graph_use(None, item) if isinstance(item, Tensor) else None for item in _leaves(value)] for value in (before, now)]
    return {*uses[0]} == {""} and {*uses[1]} == {"written"}


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    mapped(found.append, value)
    return found


def contents(value: Any, depth: int = 0) -> Any:
    """A description of `value`, which stays equal until Python code changes it."""
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


__all__ = ["Renewed", "Structure", "unchanged"]
