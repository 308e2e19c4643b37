"""Arguments as arrays of one dtype: what functions do before they call the core, and where they compute in another dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._arguments import array
from ._autocast import is_in_call
from ._core import Tensor
from ._frames import as_array, is_frame, numbers_of
from ._tensor import as_tensor

_HALVES = ("float16", "bfloat16")
_FLOATING = ("float32", "float64", *_HALVES)
Function = TypeVar("Function", bound=Callable[..., Any])


def as_given(x: Any) -> Any:
    """`x` itself if it is a Tensor or ndarray, otherwise an ndarray of it."""
    if isinstance(x, (Tensor, np.ndarray)):
        return x
    return as_array(x) if is_frame(x) else numbers_of(x)


def unchanged(x: Any) -> Any:
    """`x` as a result: a Tensor itself, of an array a copy, which is nobody else's."""
    return x if isinstance(x, Tensor) else np.array(as_given(x))


def is_half(x: Tensor) -> bool:
    """Whether the dtype has two bytes: sums of squares and powers of it are computed in float32."""
    return x._dtype_name in _HALVES


def is_floating(x: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return x._dtype_name in _FLOATING


def _is_floating_dtype(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"  # ml_dtypes gives it kind "V"


def _common(dtypes: set[np.dtype]) -> np.dtype:
    """The promoted dtype. float16 and bfloat16 promote to float32: neither has both the range and the precision of the other."""
    halves = {d.name for d in dtypes} >= {"float16", "bfloat16"}
    others = [d for d in dtypes if d.itemsize > 2]
    return np.result_type(np.float32, *others) if halves else np.result_type(*dtypes)


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, np.generic))


def needed(**arrays: Any) -> None:
    """An error for the first that is None."""
    for name, x in arrays.items():
        if x is None:
            raise TypeError(f"{name} is None; expected a Tensor, an ndarray, or what np.asarray takes")


def promote(*arrays: Any) -> tuple[Any, ...]:
    """The arguments in their promoted floating dtype, numbers in that of the others; Tensors and None are returned unchanged."""
    for a in arrays:
        if a is not None and not isinstance(a, Tensor):
            break
    else:
        return arrays
    given = [a if a is None else as_given(a) for a in arrays]
    dtypes = {g.dtype for a, g in zip(arrays, given, strict=True) if g is not None and not _is_number(a)}
    dtypes = dtypes or {g.dtype for g in given if g is not None}
    if not all(map(_is_floating_dtype, dtypes)):
        return tuple(given)
    tensors = {a.dtype for a in given if isinstance(a, Tensor)}
    if len(tensors) > 1:
        return tuple(given)  # the op's error names both dtypes
    common = tensors.pop() if tensors else _common(dtypes)
    if not isinstance(common, np.dtype):  # bfloat16 of a Tensor, which NumPy does not have without another package
        return tuple(a if a is None else _core.as_argument(a).to(common) for a in given)
    return tuple(a if a is None or isinstance(a, Tensor) else a.astype(common, copy=False) for a in given)


def cast(x: Any, dtype: Any) -> Any:
    """`x` as `dtype`; itself for None."""
    if dtype is None:
        return x
    if isinstance(x, Tensor):
        return x.to(dtype=dtype)
    given = as_given(x)
    return given if given.dtype.kind == "O" else given.astype(dtype)  # no numbers: who takes it says so


def _name(x: Any) -> str:
    """The dtype of a Tensor or ndarray; by name, as NumPy may not have it."""
    return x._dtype_name if isinstance(x, Tensor) else x.dtype.name


def widened(x: Any) -> Any:
    """Halves as float32: the squares of their values do not fit."""
    x = as_given(x)
    return cast(x, "float32") if _name(x) in _HALVES else x


def narrowed(y: Any, like: Any) -> Any:
    """`y` in the dtype of `like`."""
    name = _name(like)
    return y if name not in _FLOATING or name == _name(y) else cast(y, name)


def _are_computed_as_given(operands: tuple[Any, ...]) -> bool:
    """Whether they are Tensors of one dtype, which is no half, and numbers."""
    found = None
    for x in operands:
        if isinstance(x, Tensor):
            name = x._dtype_name
            if name != (found or name) or name in _HALVES:
                return False
            found = name
        elif not _is_number(x):
            return x is None or isinstance(x, str)  # which the function refuses
    return True


def _common_dtype(operands: tuple[Any, ...]) -> str:
    """The dtype of the operands' sum: arrays with axes decide, before those without and before numbers, in whatever order they come."""
    arrays = [as_given(x) for x in operands if not _is_number(x)]
    names = [x._dtype_name if isinstance(x, Tensor) else _core.as_argument(np.empty(0, x.dtype))._dtype_name for x in arrays]
    if names.count(names[0]) == len(names):
        return names[0]
    kinds: dict[bool, list[Tensor]] = {True: [], False: []}  # by whether they have axes
    for x, name in zip(arrays, names, strict=True):
        kinds[x.ndim > 0].append(_core.full((0,) if x.ndim else (), 0, name))
    sums = [functools.reduce(_core.add, samples) for samples in kinds.values() if samples]
    return functools.reduce(_core.add, [*sums, *filter(_is_number, operands)])._dtype_name


def _as_computed(x: Any, dtype: str) -> Any:
    """`x` in the dtype that a result of `dtype` is computed in, which is float32 for halves; a number as it is."""
    name = "float32" if dtype in _HALVES else dtype
    return x if _is_number(x) or _name(x := as_given(x)) == name else cast(x, name)


def beside(x: Any, *others: Any) -> Any:
    """`x` in the dtype that it is computed in with the others; a number as it is."""
    return x if _are_computed_as_given((x, *others)) else _as_computed(x, _common_dtype((x, *others)))


def together(function: Callable[..., Any], *operands: Any) -> Any:
    """function(*operands) in the dtype that they promote to; of halves it is computed in float32 and rounded once."""
    if _are_computed_as_given(operands):
        return function(*operands)
    dtype = _common_dtype(operands)
    result = function(*(_as_computed(x, dtype) for x in operands))
    return cast(result, dtype) if dtype in _HALVES else result


def rounds_once(function: Function) -> Function:
    """A decorator of a function made of several: halves are computed in float32, as between them a result would be rounded, or overflow."""

    @functools.wraps(function)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        x = as_given(input)
        return narrowed(function(widened(x), *args, **kwargs), x)

    return call  # type: ignore[return-value]


def cast_input(x: Any, weight: Tensor, layer: str) -> Tensor:
    """The input of a layer: integers in the dtype of its weight; another floating dtype is an error that names both, but under ``autocast``."""
    if not isinstance(x, Tensor):
        x = as_tensor(array(layer, x))
    if x.dtype == weight.dtype:
        return x
    if x.dtype.kind in "fV" and not is_in_call():
        name = weight.dtype.name
        raise TypeError(
            f"{layer} has {name} parameters but the input is a {x.dtype.name} Tensor; convert one of them: x.to('{name}'), model.to('{x.dtype.name}'), "
            f"or the data, as in TensorDataset(X.astype('{name}'))"
        )
    return x.to(weight.dtype)
