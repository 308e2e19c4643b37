"""Functions of elements: bounds, questions about floats, sums with a factor."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from .. import _core
from .._arguments import integer, not_negative, one_axis, one_input, one_of, tensor_of
from .._core import Tensor
from .._promotion import cast, is_floating, is_half, together
from .._pytorch_names import finfo
from .._recording import is_grad_enabled
from ._calls import METHODS, takes_arrays

_INFINITY = float("inf")
ONE = 1


@takes_arrays("input", "min", "max")
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """`input` where it lies between the bounds, and the bound it is beyond elsewhere.

    Parameters
    ----------
    input : array_like
    min, max : number or array_like, optional
        At least one of them; they broadcast. Where `min` is larger than `max`, the result is `max`.

    Returns
    -------
    Tensor or ndarray
        NaN where `input` or a bound is NaN. An element between or on the bounds passes its gradient on; of another one the bound gets it.

    Raises
    ------
    ValueError
        Without any bound.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.clamp(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """
    if min is None and max is None:
        raise ValueError("clamp() needs a bound: min, max or both")
    if max is not None and isinstance(min, Tensor) and min.requires_grad:  # not where the result is `max`
        min = _core.where(_core.lt(min.detach(), max), min, min.detach())
    if min is None:
        return _core.clamp_max(input, max)
    return _core.clamp_min(input, min) if max is None else _core.clamp(input, min, max)


@takes_arrays("input", "min", "max")
def clip(input: Any, min: Any = None, max: Any = None) -> Any:
    """Another name of ``clamp``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tensor([-2, 0, 3]).clip(max=1)
    tensor([-2,  0,  1])
    """
    return clamp(input, min, max)


def _everywhere(input: Tensor, value: bool) -> Tensor:
    return _core.full(input.shape, value, np.bool_, input.device)


@takes_arrays("input")
def isnan(input: Any) -> Any:
    """Where `input` is NaN.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.isnan(np.array([1.0, np.nan]))
    array([False,  True])
    """
    return _core.ne(input, input) if is_floating(input) else _everywhere(input, False)


@takes_arrays("input")
def isinf(input: Any) -> Any:
    """Where `input` is infinity or minus infinity.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.isinf(np.array([1.0, -np.inf, np.nan]))
    array([False,  True, False])
    """
    return _core.eq(input.detach().abs(), _INFINITY) if is_floating(input) else _everywhere(input, False)


@takes_arrays("input")
def isfinite(input: Any) -> Any:
    """Where `input` is neither NaN nor infinity.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.isfinite(np.array([1.0, -np.inf, np.nan]))
    array([ True, False, False])
    """
    return _core.lt(input.detach().abs(), _INFINITY) if is_floating(input) else _everywhere(input, True)


@takes_arrays("input")
def nan_to_num(input: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """`input` with other numbers in the places of NaN and infinities, which pass no gradient on.

    Parameters
    ----------
    input : array_like
    nan : float
    posinf, neginf : float, optional
        Instead of infinity and minus infinity; the largest and the smallest number of the dtype unless given.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nan_to_num(np.array([1.0, np.nan, -np.inf]), neginf=-9.0)
    array([ 1.,  0., -9.])
    """
    if not is_floating(input):
        return input.clone()
    largest = finfo(input._dtype_name).max
    is_recorded = (is_grad_enabled() and input.requires_grad) or _core.is_traced()
    if not is_recorded and (bounded := without_nan(None, input, nan, posinf, neginf)) is not None:
        return bounded
    if posinf is neginf is None and not is_recorded and not input.is_cuda:
        result = _core.clamp(input, -largest, largest)
        result[_core.ne(result, result)] = 0.0 if nan is None else nan
        return result
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf
    finite = _core.where(isfinite(input), input, 0.0 if nan is None else nan)
    beyond = _core.where(_core.eq(input, _INFINITY), high, finite)
    return _core.where(_core.eq(input, -_INFINITY), low, beyond)


def without_nan(into: Tensor | None, input: Tensor, nan: float | None, posinf: float | None, neginf: float | None) -> Tensor | None:
    """``nan_to_num`` with 0 for NaN and the bounds of the dtype, in two passes; None elsewhere."""
    if nan is not None and (type(nan) not in (int, float) or nan or math.copysign(1.0, nan) < 0):
        return None
    if not posinf is neginf is None or not is_floating(input):
        return None
    largest = finfo(input._dtype_name).max
    result = _core.compute_into(into, "clamp", input, -largest, largest)
    return None if result is None else _core.compute_into(result, "same", result, result, result)


@takes_arrays("input", "other")
def equal(input: Any, other: Any) -> bool:
    """Whether both have one shape and the same elements; NaN is not equal to NaN.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.equal(tc.zeros(2), tc.zeros(2)), tc.equal(tc.zeros(2), tc.zeros(1, 2))
    (True, False)
    """
    other = tensor_of("other", other, input)
    return tuple(input.shape) == tuple(other.shape) and bool(_core.eq(input.detach(), other.detach()).all())


@takes_arrays("input")
def logical_not(input: Any) -> Any:
    """Where `input` is zero or False.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.logical_not(np.array([0, 1, 2]))
    array([ True, False, False])
    """
    return _core.eq(input, False if input.dtype == np.bool_ else 0)


@takes_arrays("input", "other")
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Where |input - other| <= atol + rtol |other|, or both are the same infinity.

    Parameters
    ----------
    input, other : array_like
        They broadcast.
    rtol, atol : float
    equal_nan : bool
        Whether NaN is close to NaN.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.isclose(np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    array([ True, False])
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        not_negative(name, value)
    a, b = input.detach(), tensor_of("other", other, input).detach()
    close = _core.eq(a, b)
    if is_floating(a) or is_floating(b) or rtol or atol:
        a, b = (x if is_floating(x) else x.double() for x in (a, b))
        apart = _core.sub(a, b).abs()
        near = _core.logical_and(_core.le(apart, _core.add(_core.mul(b.abs(), rtol), atol)), _core.lt(apart, _INFINITY))
        close = _core.logical_or(close, near)
        if equal_nan:
            close = _core.logical_or(close, _core.logical_and(_core.ne(a, a), _core.ne(b, b)))
    return close


@takes_arrays("input", "other")
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close to each other; see ``isclose``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.allclose(tc.tensor([1.0, 2.0]), tc.tensor([1.0, 2.0 + 1e-7]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def scaled(other: Any, alpha: Any) -> Any:
    """``alpha * other``; two numbers in float64."""
    if isinstance(alpha, int) and alpha == 1:
        return other
    return other * alpha if isinstance(other, (int, float)) and isinstance(alpha, (int, float)) else _core.mul(other, alpha)


def of_bools(alpha: Any, *terms: Any) -> Any:
    """``alpha``; a bool where all terms are bools, whose sum is one, too."""
    are_bools = isinstance(alpha, int) and all(isinstance(x, bool) or getattr(x, "dtype", None) == np.bool_ for x in terms)
    return bool(alpha) if are_bools else alpha


def opposite(alpha: Any) -> Any:
    """``-alpha``; None of what is no number, and of the integer 0, which has no opposite zero."""
    return -alpha if isinstance(alpha, float) or (isinstance(alpha, int) and alpha) else None


def add(input: Any, other: Any, *, alpha: float = ONE) -> Any:
    """``input + alpha * other``; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tensor([1.0, 2.0]).add(tc.tensor([10.0, 20.0]), alpha=2)
    tensor([21., 42.])
    """
    if alpha is ONE:
        return _core.add(input, other)
    alpha = of_bools(alpha, input, other)
    sum = _core.compute_into(None, "add_product", input, other, alpha)
    return together(lambda x, y: _core.add(x, scaled(y, alpha)), input, other) if sum is None else sum


def sub(input: Any, other: Any, *, alpha: float = ONE) -> Any:
    """``input - alpha * other``; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.sub(tc.tensor([1.0, 2.0]), 1.0, alpha=0.5)
    tensor([0.5000, 1.5000])
    """
    if alpha is ONE:
        return _core.sub(input, other)
    difference = _core.compute_into(None, "add_product", input, other, opposite(alpha))
    return together(lambda x, y: _core.sub(x, scaled(y, alpha)), input, other) if difference is None else difference


@takes_arrays("input", "other")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """``input / other``; they broadcast.

    Parameters
    ----------
    input, other : array_like
    rounding_mode : {"trunc", "floor"}, optional
        Rounds the quotient towards zero, or down; the result has the dtype of the arguments then, and no gradient.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.div(tc.tensor([-7, 7]), 2, rounding_mode="trunc")
    tensor([-3,  3])
    """
    if rounding_mode is None:
        return _core.div(input, other)
    one_of("rounding_mode", rounding_mode, ("trunc", "floor"))
    down = _core.floor_divide(input, other)
    if rounding_mode == "floor":
        return down
    if is_floating(down):
        # a half quotient is rounded already; detached, for 0 times the quotient's slope is NaN where that is infinite
        detached = [x.detach() if isinstance(x, Tensor) else x for x in (input, other)]
        wide = [x.float() if isinstance(x, Tensor) and is_half(x) else x for x in detached]
        return _core.trunc(_core.div(*wide)).to(down._dtype_name)
    inexact = _core.ne(_core.remainder(input, other), 0)
    return _core.where(_core.logical_and(_core.lt(down, 0), inexact), _core.add(down, 1), down)


def _softmax(input: Any, axis: int | None = None, dtype: Any = None, *, dim: int | None = None) -> Any:
    """``softmax`` as a method."""
    return _core.softmax(cast(input, dtype), one_axis(axis, dim, -1))


def _log_softmax(input: Any, axis: int | None = None, dtype: Any = None, *, dim: int | None = None) -> Any:
    """``log_softmax`` as a method."""
    return _core.log_softmax(cast(input, dtype), one_axis(axis, dim, -1))


def softmax(input: Any = None, axis: int | None = None, dtype: Any = None, *, dim: int | None = None, x: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis, without overflow.

    Parameters
    ----------
    input, x : array_like
        Two names of one argument, which is the Tensor itself where this is a method.
    axis, dim : int, default -1
        Two names of one argument.
    dtype : dtype, optional
        The dtype to convert to first.

    Returns
    -------
    Tensor or ndarray of the shape of `input`

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tensor([0, 0]).softmax(0, dtype="float32")
    tensor([0.5000, 0.5000])
    """
    return _core.softmax(cast(input if x is None else one_input(input, x), dtype), one_axis(axis, dim, -1))


def log_softmax(input: Any = None, axis: int | None = None, dtype: Any = None, *, dim: int | None = None, x: Any = None) -> Any:
    """The logarithm of ``softmax``, without its loss of precision. Parameters as there.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.log_softmax(tc.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    return _core.log_softmax(cast(input if x is None else one_input(input, x), dtype), one_axis(axis, dim, -1))


@takes_arrays("input", "mask")
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """`input` with `value` where the mask is set.

    Parameters
    ----------
    input : array_like
    mask : array_like of bool
        Broadcasts to the shape of `input`.
    value : number, or Tensor without axes
        A Tensor gets its gradient.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.masked_fill(np.array([1.0, 2.0]), np.array([True, False]), 9.0)
    array([9., 2.])
    """
    return _core.masked_fill(input, mask, value)


@takes_arrays("input")
def round(input: Any, decimals: int = 0) -> Any:
    """The nearest integer, halves to even; with `decimals`, the nearest number with so many decimals.

    Parameters
    ----------
    input : array_like
    decimals : int
        Negative: zeros before the decimal point.

    Returns
    -------
    Tensor or ndarray
        Its gradient is 0.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.round(np.array([0.5, 1.5, 2.345])), tc.round(np.array([2.345]), decimals=1)
    (array([0., 2., 2.]), array([2.3]))
    """
    if (decimals := integer("decimals", decimals)) == 0:
        return _core.round(input)
    if builtins.abs(decimals) > 308:
        raise ValueError(f"decimals must be between -308 and 308, got {decimals}: no float has a place beyond")
    scale = 10.0 ** builtins.abs(decimals)
    there, back = (_core.mul, _core.div) if decimals > 0 else (_core.div, _core.mul)
    return together(lambda x: back(_core.round(there(x, scale)), scale), input)


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.is_tensor(tc.ones(2)), tc.is_tensor(np.ones(2))
    (True, False)
    """
    return isinstance(obj, Tensor)


@takes_arrays("input")
def is_floating_point(input: Any) -> bool:
    """Whether the dtype is float16, bfloat16, float32 or float64.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.is_floating_point(tc.ones(2)), tc.arange(2).is_floating_point()
    (True, False)
    """
    return is_floating(input)


@takes_arrays("input", "tensor1", "tensor2")
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = ONE) -> Any:
    """``input + value * tensor1 * tensor2``; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.addcmul(tc.ones(2), tc.tensor([1.0, 2.0]), tc.tensor([3.0, 4.0]), value=0.5)
    tensor([2.5000, 5.0000])
    """
    sum = plus_scaled(None, _core.mul, input, tensor1, tensor2, value)
    return together(lambda x, a, b: _core.add(x, scaled(_core.mul(a, b), value)), input, tensor1, tensor2) if sum is None else sum


@takes_arrays("input", "tensor1", "tensor2")
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = ONE) -> Any:
    """``input + value * tensor1 / tensor2``; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.addcdiv(tc.ones(2), tc.tensor([1.0, 2.0]), tc.tensor([4.0, 4.0]), value=2)
    tensor([1.5000, 2.0000])
    """
    sum = plus_scaled(None, _core.div, input, tensor1, tensor2, value)
    return together(lambda x, a, b: _core.add(x, scaled(_core.div(a, b), value)), input, tensor1, tensor2) if sum is None else sum


def plus_scaled(into: Tensor | None, function: Any, x: Any, a: Any, b: Any, value: Any) -> Tensor | None:
    """``x + value * function(a, b)`` in few passes, where that has the bits of more; None elsewhere."""
    if function is _core.mul and value is ONE:
        return _core.compute_into(into, "add_product", x, a, b)
    operands = (x, a, b)
    if not all(isinstance(t, Tensor) for t in operands) or x.is_cuda or _core.is_traced():
        return None
    name = x._dtype_name
    if not is_floating(x) or not name == a._dtype_name == b._dtype_name or (is_grad_enabled() and any(t.requires_grad for t in operands)):
        return None
    if name in ("float32", "float64"):
        return _core.compute_into(into, "add_product", x, function(a, b), value)
    sum = _core.compute_into(None, "add_product", x.float(), function(a.float(), b.float()), value)  # of halves rounded once
    return sum if sum is None else sum.to(name) if into is None else into.copy_(sum)


@takes_arrays("input", "end", "weight")
def lerp(input: Any, end: Any, weight: Any) -> Any:
    """``input + weight * (end - input)``, which is `end` itself where `weight` is 1; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.lerp(tc.zeros(2), tc.tensor([1.0, 2.0]), 0.25)
    tensor([0.2500, 0.5000])
    """
    number: Any = weight.item() if isinstance(weight, np.generic) else weight
    if (between := nearer(None, input, end, number)) is not None:
        return between
    return together(_between, input, end, number if isinstance(number, (bool, int, float)) else tensor_of("weight", weight, input))


def nearer(into: Tensor | None, input: Any, end: Any, weight: Any) -> Tensor | None:
    """``lerp`` with a number below 0.5, or with tensors of one float dtype, in one pass; None elsewhere."""
    if isinstance(weight, Tensor):  # halves are rounded at each step
        one_pass = isinstance(end, Tensor) and input._dtype_name in ("float32", "float64") and not _core.is_traced()
    else:
        one_pass = isinstance(weight, (bool, int, float)) and -0.5 < weight < 0.5
    return _core.compute_into(into, "lerp", input, end, weight) if one_pass else None


def _between(input: Any, end: Any, weight: Any) -> Any:
    apart = _core.sub(end, input)
    if isinstance(weight, (bool, int, float)):
        near = -0.5 < weight < 0.5
        return _core.add(input, _core.mul(apart, weight)) if near else _core.sub(end, _core.mul(apart, 1.0 - weight))
    from_start, from_end = _core.add(input, _core.mul(apart, weight)), _core.sub(end, _core.mul(apart, _core.sub(1.0, weight)))
    return _core.where(_core.lt(weight.detach().abs(), 0.5), from_start, from_end)


for method, function in ((_softmax, softmax), (_log_softmax, log_softmax)):
    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
METHODS |= {"add": add, "sub": sub, "softmax": _softmax, "log_softmax": _log_softmax}  # the core takes their arrays
del METHODS["masked_fill"]  # the method is a row of ops.def

__all__ = [
    "add",
    "addcdiv",
    "addcmul",
    "allclose",
    "clamp",
    "clip",
    "div",
    "equal",
    "is_floating_point",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "lerp",
    "log_softmax",
    "logical_not",
    "masked_fill",
    "nan_to_num",
    "round",
    "softmax",
    "sub",
]
