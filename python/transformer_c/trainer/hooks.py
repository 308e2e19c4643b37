"""The hooks of a pass: what callbacks and model define, in Lightning's order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..callbacks.callback import Callback
from ..training.hooks import ModuleHooks


def names_of(base: type) -> set[str]:
    """The names of the hooks of a base class."""
    return {name for name in vars(base) if name.startswith("on_") or name in ("setup", "teardown")}


NAMES = sorted(names_of(Callback) | names_of(ModuleHooks))


class Hooks:
    """A function for every hook, ``hooks.on_train_start()``: it calls those of the callbacks and then the model's; of most hooks, none.

    Parameters
    ----------
    trainer : Trainer
    model : TrainingModule
    callbacks : sequence of Callback
    after : sequence of Callback
        Those that are called after the model.
    """

    def __init__(self, trainer: Any, model: Any, callbacks: Sequence[Callback], after: Sequence[Callback] = ()) -> None:
        for name in NAMES:
            before, behind = (
                [partial(getattr(c, name), trainer, model) for c in some if _is_defined(c, name, Callback)] for some in (callbacks, after)
            )
            found = [*before, *([getattr(model, name)] if _is_defined(model, name, ModuleHooks) else []), *behind]
            setattr(self, name, found[0] if len(found) == 1 else partial(_call_all, found) if found else _nothing)
            if name == "on_exception":
                self.on_exception = partial(_call_each, found)

    def is_defined(self, name: str) -> bool:
        """Whether anyone defines the hook."""
        return getattr(self, name) is not _nothing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"there is no hook {name!r}", name=name, obj=self)


def _call_each(functions: Sequence[Callable[..., Any]], error: BaseException) -> None:
    """Calls all of them. Their own errors are reported, and do not replace the error that they are called for."""
    for function in functions:
        try:
            function(error)
        except Exception as other:
            warnings.warn(f"on_exception() raised {type(other).__name__}: {other}; it was called for {error!r}", stacklevel=4)


def _is_defined(holder: Any, name: str, base: type) -> bool:
    """Whether `holder` or its class defines the hook, rather than inheriting the empty one of `base`."""
    hook = getattr(holder, name, None)
    return hook is not None and getattr(hook, "__func__", hook) is not getattr(base, name, None)


def _nothing(*unused: Any) -> None:
    pass


def _call_all(functions: Sequence[Callable[..., Any]], *arguments: Any) -> Any:
    """Calls all of them; returns the first result that is not None."""
    result = None
    for function in functions:
        found = function(*arguments)
        result = found if result is None else result
    return result
