"""Turning recording on and off, and dropping gradients."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import _core
from ._core import Tensor


class _Recording(_core.recording):
    """A context manager and decorator that sets whether this thread records. Entering and leaving are C, which nothing interrupts."""

    _enabled: bool

    def __new__(cls, function: Callable[..., Any] | None = None):
        self = super().__new__(cls, cls._enabled)
        return self if function is None else self(function)  # @tc.no_grad without parentheses

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        wrap = next((wrap for is_one, wrap in _WRAPPERS if is_one(function)), _function_under)
        return functools.wraps(function)(wrap(function, type(self)))


def _function_under(function: Callable[..., Any], kind: type[_Recording]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with kind():
            return function(*args, **kwargs)

    return wrapped


def _generator_under(function: Callable[..., Any], kind: type[_Recording]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return (yield from _stepped(function(*args, **kwargs), kind))

    return wrapped


def _coroutine_under(function: Callable[..., Any], kind: type[_Recording]) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await _awaited(function(*args, **kwargs), kind)

    return wrapped


def _async_generator_under(function: Callable[..., Any], kind: type[_Recording]) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step: Any = generator.__anext__()
        while True:
            try:
                item = await _awaited(step, kind)
            except StopAsyncIteration:
                return
            try:
                given = yield item
                step = generator.asend(given)
            except GeneratorExit:
                await _awaited(generator.aclose(), kind)
                raise
            except BaseException as error:
                step = generator.athrow(error)

    return wrapped


_WRAPPERS = (
    (inspect.isgeneratorfunction, _generator_under),
    (inspect.iscoroutinefunction, _coroutine_under),
    (inspect.isasyncgenfunction, _async_generator_under),
)


def _stepped(generator: Any, kind: type[_Recording]) -> Any:
    """A generator or coroutine for which the state is set only while it runs; between its steps the caller's state applies."""
    step, given = generator.send, None
    while True:
        try:
            with kind():
                item = step(given)
        except StopIteration as stop:
            return stop.value
        try:
            given = yield item
            step = generator.send
        except GeneratorExit:
            with kind():
                generator.close()
            raise
        except BaseException as error:
            step, given = generator.throw, error


@types.coroutine
def _awaited(awaitable: Any, kind: type[_Recording]) -> Any:
    steps = awaitable if hasattr(awaitable, "send") else awaitable.__await__()
    return (yield from _stepped(steps, kind))


class no_grad(_Recording):
    """Turns recording off in this thread: a context manager, and a decorator of functions and generators.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.ones(2, requires_grad=True)
    >>> with tc.no_grad():
    ...     y = x.clone()
    >>> y.requires_grad
    False
    """

    _enabled = False


class enable_grad(_Recording):
    """Turns recording on in this thread, for use inside a ``no_grad()``. Used like ``no_grad``."""

    _enabled = True


class inference_mode(_Recording):
    """PyTorch's name of ``no_grad``; ``inference_mode(False)`` turns recording on.

    Examples
    --------
    >>> import transformer_c as tc
    >>> with tc.inference_mode():
    ...     tc.is_grad_enabled()
    False
    """

    _enabled = False

    def __new__(cls, mode: bool | Callable[..., Any] = True):
        if callable(mode):
            return super().__new__(cls, mode)
        return super().__new__(cls) if mode else enable_grad()


class set_grad_enabled(_core.recording):
    """Turns recording in this thread on or off from this call on; in a with statement, until its end. Functions are decorated as by ``no_grad``.

    Parameters
    ----------
    mode : bool

    Examples
    --------
    >>> import transformer_c as tc
    >>> with tc.set_grad_enabled(False):
    ...     tc.is_grad_enabled()
    False
    >>> tc.is_grad_enabled()
    True
    """

    def __new__(cls, mode: bool) -> set_grad_enabled:
        if not isinstance(mode, (bool, np.bool_)):
            raise TypeError(f"mode must be True or False, not {mode!r:.80}")
        return super().__new__(cls, bool(mode), at_once=True)  # in no variable, which an interrupt would keep

    @property
    def mode(self) -> bool:
        """Whether it turns recording on."""
        return bool(self.given)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        with self:  # only the function runs with the mode
            pass
        return (enable_grad if self.mode else no_grad)(function)


def drop_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Makes every ``.grad`` None, or else fills it with zeros."""
    for p in parameters:
        if set_to_none:
            p.grad = None
        elif (grad := p.grad) is not None:  # read once: another thread may set it
            with no_grad():
                grad.fill_(0.0)


def is_grad_enabled() -> bool:
    """Whether this thread records computations with Tensors that require a gradient."""
    return _core.grad_enabled()


__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
