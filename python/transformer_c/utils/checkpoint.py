"""Parts of a model that are computed again in the backward, which keeps less memory until then; PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._arguments import count
from .._autocast import autocast
from .._core import Tensor
from .._names import hooks
from .._nested import map_nested
from .._recording import enable_grad
from .._tensor import zeros
from ..autograd import Function
from ..autograd import backward as go_back
from ..random import as_generator, fork_rng


def _tensors(value: Any) -> list[Tensor]:
    found: list[Any] = []
    map_nested(found.append, value)
    return [x for x in found if isinstance(x, Tensor)]


_PLACE = object()  # of a Tensor


def _without_tensors(value: Any) -> Any:
    return map_nested(lambda x: _PLACE if isinstance(x, Tensor) else x, value)


def _with(places: Any, tensors: Sequence[Tensor]) -> Any:
    """What ``_without_tensors`` gave, with Tensors in the places."""
    rest = iter(tensors)
    return map_nested(lambda x: next(rest) if x is _PLACE else x, places)


class _Again(Function):
    """Keeps the arguments alone. The first is a Tensor that requires a gradient, as parameters may, which the function has by itself."""

    @staticmethod
    def forward(ctx: Any, unused: Tensor, call: Callable[..., Any], given: Any, state: Any, results: list[Any], *tensors: Tensor) -> Any:
        ctx.call, ctx.given, ctx.state = call, given, state
        ctx.save_for_backward(*tensors)
        found = call(*_with(given, tensors))
        results.append(_without_tensors(found))
        return tuple(_tensors(found))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        own = [t.detach().requires_grad_() if t.requires_grad else t for t in ctx.saved_tensors]
        with fork_rng(enabled=ctx.state is not None), enable_grad(), autocast(enabled=False):  # as in the forward
            if ctx.state is not None:
                as_generator(None).set_state(ctx.state)
            results = _tensors(ctx.call(*_with(ctx.given, own)))
        pairs = [(result, g) for result, g in zip(results, gradients, strict=True) if result.requires_grad and g is not None]
        if pairs:
            try:
                go_back([result for result, _ in pairs], [g for _, g in pairs])
            except RuntimeError as error:
                raise RuntimeError(
                    f"the backward through a checkpoint() failed: {error}. Tensors with a gradient that its function has by itself, other than "
                    "parameters, must be arguments of checkpoint()"
                ) from error
        return (None,) * 5 + tuple(t.grad if t.requires_grad else None for t in own)


def _may_learn(function: Any, tensors: Sequence[Tensor]) -> bool:
    """Whether a result may have a gradient: a module without parameters that learn has one for its arguments alone."""
    parameters = getattr(function, "parameters", None)
    return not callable(parameters) or any(t.requires_grad for t in (*tensors, *parameters()))


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, of which the arguments alone are kept: the backward computes it again, with the same random numbers.

    Its parameters get their gradients in the backward, also in that of ``autograd.grad``, which gives none of them. Other Tensors with a gradient
    must be arguments. On a GPU, in autocast and where nothing is recorded the function is only called.

    Parameters
    ----------
    function : callable
        A module, or a function of Tensors; at most 8 Tensors among its results.
    *args, **kwargs
        Its arguments, whose Tensors may be in tuples, lists and dicts.
    use_reentrant, determinism_check, debug
        PyTorch's names, without effect.
    preserve_rng_state : bool, default True
        Draw the random numbers of the first call again.

    Examples
    --------
    >>> import transformer_c as tc
    >>> block, x = tc.nn.Sequential(tc.nn.Linear(4, 64), tc.nn.ReLU(), tc.nn.Linear(64, 4)), tc.ones(2, 4)
    >>> y = tc.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    >>> y.sum().backward()
    >>> block[0].weight.grad.shape
    (64, 4)
    """
    if not callable(function):
        raise TypeError(f"checkpoint() takes a function and its arguments, got {function!r} ({type(function).__name__})")
    tensors = _tensors((args, kwargs))
    is_plain = not _core.grad_enabled() or _core.is_traced() or _core.autocast_state() or any(t.is_cuda for t in tensors)
    if is_plain or not tensors or not _may_learn(function, tensors):
        return function(*args, **kwargs)
    results: list[Any] = []
    state = as_generator(None).get_state() if preserve_rng_state else None
    call = lambda a, k: function(*a, **k)
    found = _Again.apply(zeros(0).requires_grad_(), call, _without_tensors((args, kwargs)), state, results, *tensors)
    return _with(results[0], found)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Calls functions one after the other, in `segments` parts, of which all but the last are a ``checkpoint`` each.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layers = tc.nn.Sequential(*[tc.nn.Linear(2, 2) for _ in range(4)])
    >>> tc.utils.checkpoint.checkpoint_sequential(layers, 2, tc.ones(1, 2)).shape
    (1, 2)
    """
    listed = list(functions)
    size = len(listed) // count("segments", segments)
    if size == 0:
        raise ValueError(f"segments is {segments}, but there are {len(listed)} functions")
    run = lambda part, x: functools.reduce(lambda y, f: f(y), part, x)
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(functools.partial(run, listed[start : start + size]), input, **kwargs)
    return run(listed[size * (segments - 1) :], input)


__all__ = ["checkpoint", "checkpoint_sequential"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
