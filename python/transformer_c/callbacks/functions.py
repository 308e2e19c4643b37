"""Functions as hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .callback import Callback


class LambdaCallback(Callback):
    """Calls a function at each hook that is given by name.

    Examples
    --------
    >>> import transformer_c as tc
    >>> callback = tc.callbacks.LambdaCallback(on_train_start=lambda trainer, model: print("begins"))
    >>> callback.on_train_start(None, None)
    begins
    """

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        for name, function in hooks.items():
            if name.startswith("_") or name in ("state_dict", "load_state_dict") or not hasattr(Callback, name):
                known = ", ".join(sorted(n for n in vars(Callback) if n.startswith("on_")))
                raise TypeError(f"there is no hook {name!r}; there are {known}")
            setattr(self, name, function)


__all__ = ["LambdaCallback"]
