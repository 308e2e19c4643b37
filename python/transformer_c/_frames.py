"""Arrays and tables of other libraries (PyTorch, pandas, polars, ...), and arrays of Python's numbers; none of these libraries is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from . import _core

_NUMBERS = (int, float, np.number, np.bool_)


def is_frame(value: Any) -> bool:
    """Is this a table or a column of another library?"""
    return hasattr(value, "to_numpy") or hasattr(value, "__dataframe__")


def is_array(value: Any) -> bool:
    """Is this an array of another library, or memory that np.asarray reads as one? Classes and NumPy's scalars are not."""
    if isinstance(value, (type, np.generic)):
        return False
    return isinstance(value, memoryview) or hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def is_numbers(value: Any, kinds: Any = list) -> bool:
    """Whether `value` is a list of numbers, or nested lists of them (or what else `kinds` names), which np.asarray makes an array."""
    return isinstance(value, kinds) and bool(value) and all(isinstance(v, _NUMBERS) or is_numbers(v, kinds) for v in value)


def _pytorch_tensor(value: Any, depth: int = 0) -> Any:
    """`value`, or the first item of nested lists, that is a tensor of PyTorch; None if there is none."""
    if isinstance(value, (list, tuple)) and depth < 64:
        found = (_pytorch_tensor(item, depth + 1) for item in value)
        return next((tensor for tensor in found if tensor is not None), None)
    kinds = type(value).__mro__
    return value if any(kind.__name__ == "Tensor" and kind.__module__.partition(".")[0] == "torch" for kind in kinds) else None


def refuse_unreadable(value: Any, name: str) -> None:
    """TypeError with what to write, if `value` has a tensor of PyTorch that requires a gradient or has a dtype that NumPy does not have."""
    tensor = _pytorch_tensor(value)
    if tensor is None:
        return
    dtype = str(tensor.dtype).rpartition(".")[2]
    is_foreign = dtype.startswith(("bfloat16", "float8"))
    if not tensor.requires_grad and not is_foreign:
        return
    detached = f"tensor{'.detach()' if tensor.requires_grad else ''}{'' if str(tensor.device) == 'cpu' else '.cpu()'}"
    reasons = ([", a dtype that NumPy does not have"] if is_foreign else []) + (
        [", with a gradient that would not reach PyTorch"] if tensor.requires_grad else []
    )
    keep = f", or tc.from_dlpack({detached}) for a Tensor of bfloat16" if dtype == "bfloat16" else ""
    fix = f"{detached}{'.float()' if is_foreign else ''}{keep}"
    raise TypeError(f"{name} is a PyTorch tensor of {dtype}{''.join(reasons)}; pass {fix}")


def holds_history(value: Any) -> bool:
    """Whether these nested lists hold a Tensor that requires a gradient."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_history, value))
    return isinstance(value, _core.Tensor) and value.requires_grad


def numbers_of(value: Any, name: str = "an argument") -> np.ndarray:
    """``np.asarray(value)``; lists of Tensors that would lose their history, lists of different lengths, and tensors of PyTorch that
    NumPy cannot read, are errors with what to write, as in the core."""
    if _core.grad_enabled() and holds_history(value):
        raise TypeError(f"{name} is a list of Tensors that require a gradient, which would be lost; join them with tc.stack() first")
    try:
        return np.asarray(value)
    except ValueError as error:
        if not isinstance(value, list) or "inhomogeneous" not in str(error):
            raise
        raise ValueError(
            f"{name} is not an array: its nested lists have different lengths; fill them up to one length (and mask the rest)"
        ) from None
    except (TypeError, RuntimeError):
        refuse_unreadable(value, name)
        raise


def _unusable(value: Any) -> str:
    """The columns that are not numbers, and what to do."""
    kind = type(value).__name__
    wrong = []
    for name in getattr(value, "columns", ()):
        try:
            as_array(value[name])
        except TypeError:
            wrong.append(str(name))
    if not wrong:
        return f"the values of this {kind} are not numbers; convert them first, for instance .to_numpy(dtype='float32')"
    few = ", ".join(map(repr, wrong[:5])) + (", ..." if len(wrong) > 5 else "")
    return f"the {kind} has columns that are not numbers: {few}; leave them out, or encode them as numbers first"


def as_array(value: Any) -> np.ndarray:
    """The numbers of a frame or column, as an ndarray; TypeError that names the columns which are not numbers."""
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if array.dtype.kind == "O":  # columns of several dtypes, or a nullable one
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError(_unusable(value)) from None
    if array.dtype.kind not in "biuf":
        raise TypeError(_unusable(value))
    return array


def _leaves(values: Any) -> Iterator[Any]:
    """The items of nested lists."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def checked_integers(numbers: Iterable[Any], name: str) -> Any:
    """`numbers`; ValueError if one of them is an integer that int64 has no room for."""
    limits = np.iinfo(np.int64)
    for value in numbers.flat if isinstance(numbers, np.ndarray) else numbers:
        if isinstance(value, (int, np.integer)) and not limits.min <= value <= limits.max:
            shown = str(value) if int(value).bit_length() <= 128 else f"an integer of {int(value).bit_length()} bits"
            raise ValueError(
                f"{name} has {shown}, which does not fit int64, whose numbers are {limits.min} to {limits.max}; write it as a float"
            )
    return numbers


def refuse_mixed_integers(values: list | tuple, name: str) -> None:
    """ValueError if all of these numbers are integers, of which NumPy makes floats where some fit int64 and others only uint64."""
    if not any(isinstance(value, (float, np.floating)) for value in _leaves(values)):
        checked_integers(_leaves(values), name)
