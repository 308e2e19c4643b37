"""How the functions of this package are called: NumPy in, NumPy out; Tensor in, Tensor out; under the names of PyTorch and NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from .. import _core
from .._arguments import one_axis, shown, tensor_of
from .._core import Tensor
from .._recording import no_grad

Function = TypeVar("Function", bound=Callable[..., Any])

# The functions that are methods of Tensor as well: name: function of (tensor, ...).
METHODS: dict[str, Callable[..., Any]] = {}


def _as_tensor(value: Any, name: str, is_first: bool, beside: Tensor | None) -> Any:
    """An array as a Tensor, on the GPU of `beside`. A number other than the first argument stays one, since it must not change a dtype."""
    if value is None and is_first:
        raise TypeError(f"{name} is None; expected a Tensor, an ndarray, or what np.asarray takes")
    if value is None or isinstance(value, Tensor) or (not is_first and isinstance(value, (bool, int, float, np.generic))):
        return value
    return tensor_of(name, value, beside)


def to_arrays(value: Any) -> Any:
    """Tensors as ndarrays, also inside of tuples; anything else is returned unchanged."""
    if isinstance(value, Tensor):
        return _core.take_array(value.cpu() if value.is_cuda else value)
    if isinstance(value, tuple):
        items = map(to_arrays, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """The first Tensor, to whose device arrays are converted."""
    return next((value for value in values if isinstance(value, Tensor)), None)


def with_tensors(function: Callable[[list[Tensor]], Any], values: Iterable[Any]) -> Any:
    """function(values) with all of them as Tensors. If none of them is one, nothing is recorded, and the results become ndarrays."""
    values = list(values)
    if (beside := first_tensor(values)) is not None:
        return function([tensor_of(f"array {k}", value, beside) for k, value in enumerate(values)])
    with no_grad():
        return to_arrays(function([tensor_of(f"array {k}", value) for k, value in enumerate(values)]))


def takes_arrays(*names: str, method: bool | str = True) -> Callable[[Function], Function]:
    """A decorator for a function of Tensors, which then takes arrays.

    Parameters
    ----------
    *names : str
        The arguments that may be arrays; they are the first ones, in their order. The first becomes a Tensor wherever one of them is a
        Tensor; the function itself converts the others. If none of them is, all become Tensors, and the results become ndarrays.
    method : bool or str
        Whether the function is also a method of Tensor; under which name.
    """

    def decorate(function: Function) -> Function:
        if method:
            METHODS[method if isinstance(method, str) else function.__name__] = function

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], Tensor):
                return function(*args, **kwargs)
            given = list(args)
            beside = first_tensor((*args[: len(names)], *map(kwargs.get, names)))
            for place, name in enumerate(names):
                if place and beside is not None:
                    break
                if place < len(given):
                    given[place] = _as_tensor(given[place], name, place == 0, beside)
                elif name in kwargs:
                    kwargs[name] = _as_tensor(kwargs[name], name, place == 0, beside)
            if beside is not None:
                return function(*given, **kwargs)
            return to_arrays(function(*given, **kwargs))

        return call  # type: ignore[return-value]

    return decorate


def axes_of(name: str, ndim: int, dim: Any, axis: Any = None) -> tuple[int, ...] | None:
    """The axes, given under either name, as positive ints; None for all of them."""
    if axis is None and type(dim) is int and -ndim <= dim < ndim:  # most calls: no checks that cannot fail
        return (dim % ndim,)
    given = one_axis(axis, dim, None)
    if given is None:
        return None
    axes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    found = tuple(axis_of(name, ndim, a) for a in axes)
    if len(set(found)) != len(found):
        raise ValueError(f"{name} names an axis twice: {given}")
    return found


def axis_of(name: str, ndim: int, axis: Any) -> int:
    """`axis` as an int from 0; a Tensor without axes has one, of length 1."""
    if isinstance(axis, (bool, np.bool_)) or not hasattr(axis, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(axis).__name__}")
    length = max(ndim, 1)
    try:
        place = axis.__index__()
    except TypeError:
        if not getattr(axis, "ndim", 0):
            raise
        raise TypeError(f"{name} must be an int, not {type(axis).__name__} of shape {tuple(axis.shape)}") from None
    if not -length <= place < length:
        raise IndexError(f"{name} {shown(place)} is out of range for a tensor of {ndim} axes")
    return place % length


def kept(keepdim: bool, keepdims: bool) -> bool:
    """PyTorch's and NumPy's names of one argument, the first of which may have come without its name: of x.amax(0, 1) one meant two axes."""
    if not isinstance(keepdim, (bool, np.bool_)) and isinstance(keepdim, (int, float, np.number)):
        raise TypeError(f"keepdim must be a bool, got {keepdim!r}; several axes are one argument, a tuple")
    for value in (keepdim, keepdims):
        if not isinstance(value, (bool, np.bool_, int)):
            raise TypeError(f"keepdim must be a bool, not {type(value).__name__}")
    return bool(keepdim or keepdims)
