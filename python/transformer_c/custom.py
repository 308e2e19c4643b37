"""Ops made of two NumPy functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _core
from ._core import Tensor


def custom_op(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a recorded op from two functions on ndarrays, for operations that the library lacks. CPU only.

    Parameters
    ----------
    forward : callable
        ``forward(*inputs, **options)`` takes ndarrays and returns an ndarray or a tuple of them.
    backward : callable
        ``backward(*gradients, *inputs, **options)`` takes the gradient of each result (None if no gradient reached it), then the
        arguments of forward. It returns the gradient of each input, as one ndarray or a tuple, with None for inputs without a gradient.
        Nothing is recorded there, unless in ``with tc.enable_grad():``, as for a part that is computed again instead of being kept.

    Returns
    -------
    callable
        Takes Tensors or ndarrays (keyword arguments are passed on unchanged); returns Tensors if any argument is a Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> cube = tc.custom_op(lambda x: x**3, lambda dy, x: dy * 3 * x**2)
    >>> x = tc.tensor([2.0], requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad.tolist()
    [12.0]
    """

    for name, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise TypeError(f"{name} must be a function on ndarrays, got {function!r} ({type(function).__name__})")

    @functools.wraps(forward)
    def op(*inputs: Any, **options: Any) -> Any:
        arrays = [np.asarray(i.detach().numpy() if isinstance(i, Tensor) else i) for i in inputs]
        results = forward(*arrays, **options)
        if not any(isinstance(i, Tensor) for i in inputs):
            return results
        several = isinstance(results, tuple)

        recorded = _core.grad_enabled() and any(isinstance(i, Tensor) and i.requires_grad for i in inputs)
        kept = [_as_it_is(i, a) for i, a in zip(inputs, arrays, strict=True)] if recorded else arrays

        named = (
            {name: _as_it_is(value, value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
            if recorded
            else {}
        )

        def gradients(*given: Any) -> tuple:
            found = backward(*given, *kept, **named)
            return found if isinstance(found, tuple) else (found,)

        tensors = [i if isinstance(i, Tensor) else a for i, a in zip(inputs, arrays, strict=True)]
        return _core.record_custom(tensors, results if several else (results,), gradients)

    return op


def _as_it_is(given: Any, array: np.ndarray) -> np.ndarray:
    """What the backward gets of an argument, as it is now: a copy of all that may change unnoticed, except the floats that a Tensor shares."""
    return array if isinstance(given, Tensor) and array.dtype.kind not in "bui" else array.copy()
