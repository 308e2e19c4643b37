"""Hooks on modules: functions that see, and may change, what goes into a module, what comes out of it, and its gradients.

A module without hooks pays nothing for them: the first hook replaces the module's ``forward`` by a Hooked.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .. import _core
from .._core import Tensor
from .._listed_hooks import Hook, ListedHandle, check_hook, numbers
from .._nested import map_nested


class Hooked:
    """The ``forward`` of a module with hooks.

    Parameters
    ----------
    module : Module
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._replaced = vars(module).get("forward")
        self.before: dict[int, tuple[Hook, bool]] = {}
        self.after: dict[int, tuple[Hook, bool]] = {}
        self.backward: dict[int, Hook] = {}
        self.backward_before: dict[int, Hook] = {}
        self.around: dict[int, Hook] = {}  # called with the forward and its arguments; they stand next to it
        self._following: Hooked | None = None  # has the hooks now

    @classmethod
    def of(cls, module: Any) -> Hooked:
        """That of a module, or a new one, which is not in its place yet."""
        return cls.in_place(module) or cls(module)

    @classmethod
    def settle_copy(cls, module: Any) -> None:
        """Gives a copy of a module with hooks a Hooked of its own, with the same hooks but those of a block that it was copied in."""
        given = vars(module)["forward"]
        # One without attributes is being copied itself, with a handle: its module comes with its attributes.
        if not isinstance(given, cls) or not vars(given):
            return
        if given._module is module:  # a deep copy
            given.settle()
            return
        copied = cls.__new__(cls)
        copied._module, copied._replaced = module, given._replaced
        copied.before, copied.after = dict(given.before), dict(given.after)
        copied.backward, copied.backward_before = dict(given.backward), dict(given.backward_before)
        copied.around, copied._following = {}, None
        object.__setattr__(module, "forward", copied)
        copied.settle()

    @classmethod
    def in_place(cls, module: Any) -> Hooked | None:
        """That of a module which has hooks."""
        found = vars(module).get("forward")
        return found if isinstance(found, cls) and found._has_hooks else None

    @property
    def _has_hooks(self) -> bool:
        return bool(self.before or self.after or self.backward or self.backward_before or self.around)

    def replace(self, forward: Callable[..., Any] | None) -> None:
        """Lets another function, or None for the class's, be the module's ``forward`` under the same hooks. This one, which that function may
        call, is the one before, without hooks."""
        following = type(self)(self._module)
        following._replaced = forward._replaced if isinstance(forward, Hooked) and forward._module is self._module else forward
        for kind in ("before", "after", "backward", "backward_before", "around"):
            setattr(following, kind, getattr(self, kind))
            setattr(self, kind, {})
        self._following = following
        object.__setattr__(self._module, "forward", following)

    def end_block(self) -> None:
        """Lets hooks and a ``forward`` stay that were set on the module in a block that has put back what was there before."""
        last = self
        while last._following:
            last = last._following
        if last is not self:
            object.__setattr__(self._module, "forward", last)
        last.settle()
        if not last.around:  # else it is in another block, which puts back as well
            self._following = None

    @classmethod
    def is_own(cls, module: Any) -> bool:
        """Whether a module's ``forward`` is that of its class, be there hooks or none, and no other that took its place."""
        found = vars(module).get("forward")
        return found is None or (isinstance(found, cls) and found._replaced is None)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "around": {}}

    def settle(self) -> None:
        """Takes the place of the module's ``forward`` while there are hooks, and puts that back in its place otherwise."""
        is_in_place = vars(self._module).get("forward") is self
        if self._has_hooks:
            if not is_in_place:
                object.__setattr__(self._module, "forward", self)
        elif is_in_place:
            object.__delattr__(self._module, "forward")
            if self._replaced is not None:
                object.__setattr__(self._module, "forward", self._replaced)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._forward)

    @property
    def _forward(self) -> Callable[..., Any]:
        return self._replaced or type(self._module).forward.__get__(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        for hook, with_kwargs in tuple(self.before.values()):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if with_kwargs and changed is not None:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        hooks = tuple(tuple(kind.values()) for kind in (self.backward, self.backward_before))
        watched = Gradients(module, *hooks) if any(hooks) and _core.grad_enabled() else None
        if watched is not None:
            args = watched.of_inputs(args)
        forward = self._forward
        for hook in tuple(self.around.values()):
            forward = functools.partial(hook, forward)
        result = forward(*args, **kwargs)
        for hook, with_kwargs in tuple(self.after.values()):
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            result = result if changed is None else changed
        return result if watched is None else watched.of_outputs(result)


class Gradients:
    """Passes a module's inputs and outputs on, and calls its backward hooks with their gradients."""

    def __init__(self, module: Any, hooks: tuple[Hook, ...], before: tuple[Hook, ...] = ()) -> None:
        self._module, self._hooks, self._before = module, hooks, before
        self._given: tuple[Any, ...] = ()  # the gradients of the outputs
        self._has_inputs = False

    def of_inputs(self, args: tuple) -> tuple:
        """The arguments, whose gradients the hooks will see."""
        self._has_inputs = bool(self._hooks) and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return self._through(args, self._call) if self._has_inputs else args

    def of_outputs(self, result: Any) -> Any:
        """The result, with the Tensors in tuples, lists and dicts, whose gradients the hooks will see."""
        leaves: list[Any] = []
        map_nested(leaves.append, result)
        passed = iter(self._through(tuple(leaves), self._keep))
        return map_nested(lambda unused: next(passed), result)

    def _through(self, values: tuple, see: Callable[[tuple], tuple]) -> tuple:
        """The values, with those that require a gradient passed through one node of the tape whose backward calls `see`."""
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not places:
            return values

        def backward(*gradients: Any) -> tuple:
            every = [None] * len(values)
            for place, gradient in zip(places, gradients, strict=True):
                every[place] = gradient
            seen = see(tuple(every))
            return tuple(seen[place] for place in places)

        tensors = [values[i] for i in places]
        passed = _core.record_custom(tensors, tuple(np.asarray(t.detach()) for t in tensors), backward)
        found = list(values)
        for place, tensor in zip(places, passed if isinstance(passed, (tuple, list)) else (passed,), strict=True):
            found[place] = tensor
        return tuple(found)

    def _keep(self, gradients: tuple) -> tuple:
        for hook in self._before:
            gradients = self._changed(gradients, hook(self._module, _arrays(gradients)), "result")
        self._given = gradients
        if not self._has_inputs:
            self._call((None,))
        return gradients

    def _call(self, gradients: tuple) -> tuple:
        for hook in self._hooks:
            gradients = self._changed(gradients, hook(self._module, _arrays(gradients), _arrays(self._given)), "positional argument")
        return gradients

    def _changed(self, gradients: tuple, changed: Any, of: str) -> tuple:
        """The gradients after a hook, by what it returned."""
        if changed is None:
            return gradients
        changed = changed if isinstance(changed, tuple) else (changed,)
        if len(changed) != len(gradients):
            raise ValueError(
                f"a backward hook of {type(self._module).__name__} returned {len(changed)} gradients; expected {len(gradients)}, one for each "
                f"{of}, or None"
            )
        return tuple(None if c is None else np.asarray(c) for c in changed)


def _arrays(gradients: tuple) -> tuple:
    return tuple(None if g is None else Tensor(np.asarray(g)) for g in gradients)


class RemovableHandle(ListedHandle):
    """That of a hook around a module's ``forward``."""

    def __init__(self, module: Any, kind: str, hook: Any, prepend: bool) -> None:
        self.id = next(numbers)
        self._module, self._kind = module, kind
        hooked = Hooked.of(module)
        hooks = getattr(hooked, kind)
        setattr(hooked, kind, {self.id: hook, **hooks} if prepend else {**hooks, self.id: hook})
        hooked.settle()

    def remove(self) -> None:
        """Takes the hook away; does nothing the second time."""
        hooked = Hooked.of(self._module)
        getattr(hooked, self._kind).pop(self.id, None)
        hooked.settle()


def register(module: Any, kind: str, hook: Hook, with_kwargs: bool = False, prepend: bool = False) -> RemovableHandle:
    """Registers a hook of one kind: "before", "after", "backward" or "backward_before"."""
    check_hook(module, hook)
    return RemovableHandle(module, kind, hook if kind.startswith("backward") else (hook, with_kwargs), prepend)


def around(hooks: Iterable[tuple[Any, Hook]], result: Any = None) -> AbstractContextManager[Any]:
    """A context manager: inside the block, ``hook(forward, *args, **kwargs)`` is called in place of each module's ``forward``.

    Its entering and leaving are C, so that no interrupt leaves a hook.
    """
    parts = [(Hooked.of(module), hook) for module, hook in hooks]
    places = [place for h, hook in parts for place in ((vars(h._module), "forward", h), (h.around, next(numbers), hook))]

    def end(unused: Any) -> None:
        for hooked, _ in parts:
            hooked.end_block()

    return _core.replaced(places, result, end)


__all__ = ["Gradients", "Hooked", "RemovableHandle", "around", "register"]
