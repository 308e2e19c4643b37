"""What sees the gradients of Tensors during a backward: hooks, and the gradients of results."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from .. import _core
from .._core import Tensor
from ._calls import METHODS

_numbers = itertools.count()


class _Hooks:
    """The hooks of one Tensor, in the order of their registration: the function that the core calls."""

    def __init__(self) -> None:
        self.functions: dict[int, Callable[[Tensor], Any]] = {}

    def __call__(self, gradient: Tensor) -> Any:
        """What the gradient is replaced by, or None."""
        result = None
        for function in list(self.functions.values()):
            given = function(gradient if result is None else result)
            result = result if given is None else given
        return result


class GradientHook:
    """What ``register_hook`` returns: ``remove()`` takes the hook away, and so does the end of a ``with`` block."""

    def __init__(self, hooks: _Hooks, function: Callable[[Tensor], Any]) -> None:
        self.id = next(_numbers)
        self._hooks = hooks
        hooks.functions[self.id] = function

    def remove(self) -> None:
        """Takes the hook away; does nothing the second time."""
        self._hooks.functions.pop(self.id, None)

    def __enter__(self) -> GradientHook:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.remove()


def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> GradientHook:
    """Calls ``hook(gradient)`` in every backward that reaches this Tensor, once all of its gradient has arrived.

    Parameters
    ----------
    hook : callable
        It gets a copy of the gradient, and returns None or the gradient to go on with, of the same shape.

    Returns
    -------
    GradientHook
        ``remove()`` takes the hook away.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda gradient: 10 * gradient)
    >>> (3 * x).sum().backward()
    >>> x.grad
    tensor([30., 30.])
    """
    if not callable(hook):
        raise TypeError(f"a hook must be a function, got {hook!r}")
    if not self.requires_grad:
        raise RuntimeError("a Tensor that requires no gradient cannot have a hook: x.requires_grad_()")
    return GradientHook(_core.gradient_hook(self, _Hooks()), hook)


def retain_grad(self: Tensor) -> None:
    """Lets a backward leave the gradient of this result in ``.grad``, as it does for leaves: that of the values it has in the end, where it is
    written in place after this call.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.ones(2, requires_grad=True)
    >>> y = 2 * x
    >>> y.retain_grad()
    >>> (y * y).sum().backward()
    >>> y.grad
    tensor([4., 4.])
    """
    if not self.requires_grad:
        raise RuntimeError("a Tensor that requires no gradient has none to retain: x.requires_grad_()")
    if self.is_leaf:
        return
    found = weakref.ref(self)  # the history of this Tensor owns the function

    def keep(gradient: Tensor) -> None:
        tensor = found()
        if tensor is not None:
            tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient

    _core.gradient_hook(self, keep, retained=True)


METHODS |= {"register_hook": register_hook, "retain_grad": retain_grad}
