"""Hooks that their owner, a module or an optimizer, calls itself; others are in `nn.module_hooks`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

Hook = Callable[..., Any]
H = TypeVar("H", bound="ListedHandle")

numbers = itertools.count(1)  # of hooks


class ListedHandle:
    """What registering a hook returns: ``remove()`` takes the hook away, and so does the end of a ``with`` block.

    The hooks are in a dict of the owner's, by kind, which is replaced and never written to: copies of the owner have their own.
    """

    def __init__(self, owner: Any, kind: str, hook: Hook, prepend: bool = False) -> None:
        check_hook(owner, hook)
        self.id = next(numbers)
        self._module, self._kind = owner, kind
        hooks = vars(owner).get("_listed_hooks", {}).get(kind, {})
        self._list({self.id: hook, **hooks} if prepend else {**hooks, self.id: hook})

    def _list(self, hooks: dict[int, Hook]) -> None:
        every = {**vars(self._module).get("_listed_hooks", {}), self._kind: hooks}
        vars(self._module)["_listed_hooks"] = {kind: hooks for kind, hooks in every.items() if hooks}

    def remove(self) -> None:
        """Takes the hook away; does nothing the second time."""
        hooks = vars(self._module).get("_listed_hooks", {}).get(self._kind, {})
        self._list({number: hook for number, hook in hooks.items() if number != self.id})

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.remove()


def listed(owner: Any, kind: str) -> tuple[Hook, ...]:
    """The hooks of one kind."""
    every = owner.__dict__.get("_listed_hooks")  # most owners have none, and are asked often
    return tuple(every[kind].values()) if every and kind in every else ()


def check_hook(owner: Any, hook: Hook) -> None:
    """TypeError for what cannot be called."""
    if not callable(hook):
        raise TypeError(f"a hook of {type(owner).__name__} must be a function, got {hook!r}")
