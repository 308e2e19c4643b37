"""What the outermost call of a module makes of its arguments and of its result: ndarrays become Tensors, and Tensors ndarrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, _names
from .._array_loss import as_loss
from .._core import Tensor
from .._frames import as_array, is_array, is_frame, is_numbers, numbers_of
from .._nested import map_nested

if TYPE_CHECKING:
    from .module import Module

_OWN = __name__.partition(".")[0] + "."
MAY_HOLD_ARRAYS = (np.ndarray, tuple, list, dict)
_GIVEN_AS_THEY_ARE = (Tensor, np.ndarray, type(None), bool, int, float, str)


def gpu_of(values: Any) -> Any:
    """The device of a Tensor among the leaves that is on a GPU, or None."""
    devices: list[Any] = []
    map_nested(lambda value: devices.append(value.device) if isinstance(value, Tensor) and value.is_cuda else None, values)
    return devices[0] if devices else None


def unknown_arguments(module: Module, given: Iterable[str]) -> str:
    """What an error says about names in `given` that forward() does not have; "" if there are none."""
    import inspect  # only where an error is made

    parameters = inspect.signature(module.forward).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return ""
    kind, lines = type(module), []
    for name in given:
        if name not in parameters:
            close = kind._arguments_elsewhere.get(name)
            if close is None or (close.isidentifier() and close not in parameters):  # the class has a forward() of its own
                close = _names.nearest(name, parameters)
            hint = f"did you mean {close!r}?" if close in parameters else close or f"it has {', '.join(parameters)}"
            lines.append(f"{kind.__name__}.forward() has no option {name!r}: {hint}")
    return "\n".join(lines)


def to_array(value: Any) -> Any:
    return as_loss(_core.take_array(value.cpu() if value.is_cuda else value)) if isinstance(value, Tensor) else value


def _array_of(numbers: list | tuple) -> np.ndarray:
    try:
        return np.asarray(numbers)
    except ValueError:
        raise ValueError("lists of different lengths make no array: pad them at their ends, and say so by lengths= or a mask") from None


def as_call_argument(value: Any) -> Any:
    """An argument of the outermost call: lists of numbers, and arrays and tables of other libraries, become ndarrays."""
    if isinstance(value, _GIVEN_AS_THEY_ARE):
        return value
    if isinstance(value, list) or (isinstance(value, tuple) and value and isinstance(value[0], (list, tuple))):
        return _array_of(value) if is_numbers(value, (list, tuple)) else value
    if is_frame(value):
        return as_array(value)
    return numbers_of(value) if is_array(value) else value


def with_list_as_array(module: Module, args: tuple) -> tuple:
    """The arguments of a layer of this library, which takes no lists: a first one of ndarrays or numbers is one array. Other modules may want it as it is."""
    first, home = args[0], type(module).forward.__module__
    if not home.startswith(_OWN) or home == _OWN + "nn.containers":
        return args
    makes_array = all(isinstance(a, np.ndarray) for a in first) or is_numbers(first, (list, tuple))
    return (_array_of(first), *args[1:]) if makes_array else args


def accept_array(value: Any, dtype: Any, device: str) -> Any:
    """An ndarray as a Tensor in the module's floating dtype, on its device; anything else is returned unchanged."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufV":
        return value  # only arrays of numbers become Tensors; a forward may take others
    result = _core.as_argument(value)
    if dtype is not None and value.dtype != dtype and (value.dtype.kind == "f" or value.dtype.name == "bfloat16"):
        result = result.to(dtype)
    return result if device == "cpu" else result.to(device)


__all__ = ["MAY_HOLD_ARRAYS", "accept_array", "as_call_argument", "gpu_of", "to_array", "unknown_arguments", "with_list_as_array"]
