"""Checks of arguments: a mistake is reported where it is made, not later, where it causes trouble."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

import numpy as np

from . import _core
from ._core import Tensor


def shown(value: Any) -> str:
    """A value in a message, of which the user may have given millions of elements or of digits."""
    if isinstance(value, int) and value.bit_length() > 256:  # str of much larger ones is an error
        return f"an int of {value.bit_length()} bits"
    try:
        return " ".join(f"{value!r:.80}".split()) if isinstance(value, np.ndarray) else f"{value!r:.80}"
    except Exception:  # its own, as of an int of thousands of digits in a list
        return f"a {type(value).__name__}"


def integer(name: str, value: Any) -> int:
    """`value` as an int; integers of NumPy are fine, bools, floats and str are not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {shown(value)} ({type(value).__name__})")
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} is {shown(number)}; expected an int of at most 64 bits")
    return number


def count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least`."""
    number = integer(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def steps(name: str, value: Any) -> int:
    """A number of steps: an int of at least 1, or a float that is one, such as 1.0."""
    return count(name, int(value) if isinstance(value, float) and value.is_integer() else value)


def real(name: str, value: Any) -> float:
    """`value`, which must be a real number (a one-element Tensor counts as one)."""
    try:
        float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {shown(value)} ({type(value).__name__})") from None
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can be, got {shown(value)}") from None
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a number, got {shown(value)} ({type(value).__name__})")
    return value


def switch(name: str, value: Any) -> bool:
    """`value`, which must be a bool, 0 or 1; None is False."""
    if value is None or isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be a bool, got {shown(value)} ({type(value).__name__}); if that is another argument, give it by name")


def not_negative(name: str, value: Any) -> float:
    """`value`, which must be a real number of at least 0; NaN is not allowed."""
    if not real(name, value) >= 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def not_nan(name: str, value: Any) -> float:
    """`value`, which must be a real number other than NaN."""
    if math.isnan(real(name, value)):
        raise ValueError(f"{name} must not be NaN")
    return value


def array(taker: str, value: Any) -> Any:
    """`value`, which must be a Tensor or an array of numbers; `taker` is the layer that takes it."""
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and (value.dtype.kind in "biuf" or value.dtype.name == "bfloat16")):
        return value
    kind = f"an array of dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    hint = "; several arrays become one by tc.stack, numbers by np.array" if isinstance(value, (tuple, list)) else ""
    raise TypeError(f"{taker} takes a Tensor or an array of numbers, not {kind}{hint}")


def tensor_of(name: str, data: Any, beside: Tensor | None = None, *, convert: Callable[[Any], Tensor] | None = None) -> Tensor:
    """`data` as a Tensor on the device of `beside`, or convert(data); errors call it `name`, as the caller does."""
    try:
        return _core.as_argument(data, beside) if convert is None else convert(data)
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError) or not str(error).startswith("data "):  # of its own methods
            raise
        raise type(error)(name + str(error).removeprefix("data")) from None


def joint_shape(**given: Any) -> tuple[int, ...]:
    """The shape to which arrays broadcast."""
    try:
        return np.broadcast_shapes(*(x.shape for x in given.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {tuple(x.shape)}" for name, x in given.items())
        raise ValueError(f"{shapes} do not broadcast: from the last axis on, lengths must be equal or 1") from None


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """`value`, which must be one of the words in `known`."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {shown(value)}")
    return value


def uncalled(value: Any) -> str:
    """What an error adds about a method that was passed instead of its result."""
    return f"; call it: {value.__name__}()" if isinstance(value, MethodType) else ""


def listed(name: str, value: Any, of: str) -> list:
    """`value`, which must be iterable and no str, as a list; `of` names its items in the error."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of {of}, not {type(value).__name__}")
    return list(value)


def named(given: tuple, name: str, value: Any) -> tuple:
    """The arguments `given` by position, or the one given as `name`."""
    if value is not None and given:
        raise TypeError(f"{name} is given twice: {given} and {name}={value!r}")
    return given if value is None else (value,)


def several(given: Any) -> tuple:
    """One or several of something, as a tuple."""
    return tuple(given) if isinstance(given, Iterable) and getattr(given, "ndim", True) else (given,)


def lengths_of(given: tuple, size: Any = None) -> tuple:
    """The lengths of a shape: f(2, 3), f((2, 3)) and f(size=(2, 3)) are the same."""
    given = named(given, "size", size)
    if len(given) > 1 and (isinstance(given[-1], (type, str, np.dtype)) or (len(given) == 2 and isinstance(given[0], (tuple, list)))):
        shape = given[0] if isinstance(given[0], (tuple, list)) else given[:-1]
        raise TypeError(f"a shape and then {given[-1]!r}: write the dtype by name, as in zeros({shape}, dtype=...)")
    first = given[0] if len(given) == 1 else 0
    if isinstance(first, (int, np.integer)) or getattr(first, "ndim", None) == 0:
        return given
    if isinstance(first, str) or not isinstance(first, Iterable):
        raise TypeError(f"size must be ints or one sequence of ints, got {shown(first)} ({type(first).__name__})")
    return tuple(first)


def one_axis(axis: Any, dim: Any, default: Any) -> Any:
    """The axis, given under either name."""
    if axis is not None and dim is not None and axis != dim:
        raise TypeError(f"axis={axis} and dim={dim} are two names of one argument")
    given = dim if axis is None else axis
    return default if given is None else given


def one_input(given: Any, x: Any) -> Any:
    """The array of a function whose first argument is `input`, as in PyTorch, and `x` as well, where that is given."""
    if given is not None:
        raise TypeError("input and x are two names of one argument: pass one of them")
    return x


def divisible(name: str, value: Any, by: str, divisor: Any, message: str = "{name} {value} must be a multiple of {by} {divisor}") -> None:
    """Raises unless `value` is a multiple of `divisor`; anything but positive ints is left to the checks of each."""
    if all(isinstance(n, (int, np.integer)) and n > 0 for n in (value, divisor)) and value % divisor:
        raise ValueError(message.format(name=name, value=shown(value), by=by, divisor=shown(divisor)))


def all_of(*checks: tuple) -> list[Any]:
    """The results of checks, (function, *arguments) each; one error names everything that is wrong."""
    found, errors = [], []
    for check, *arguments in checks:
        try:
            found.append(check(*arguments))
        except (TypeError, ValueError) as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kind = TypeError if any(isinstance(error, TypeError) for error in errors) else ValueError
        raise kind(f"{len(errors)} arguments are wrong:\n" + "\n".join(f"  {error}" for error in errors))
    return found


def probability(name: str, value: Any) -> float:
    """`value`, which must be a number from 0 to 1; `name` says of what."""
    if not 0.0 <= real(f"the {name} probability", value) <= 1.0:
        raise ValueError(f"the {name} probability must be between 0 and 1, got {value}")
    return value
