"""Reductions over axes: those of PyTorch and NumPy that are made of others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._arguments import real
from .._core import Tensor
from .._promotion import cast, is_floating, is_half, narrowed, widened
from .._recording import is_grad_enabled
from ._calls import axes_of, axis_of, kept, takes_arrays

_INFINITY = float("inf")


class ValuesAndIndices(NamedTuple):
    """What ``max``, ``min``, ``sort`` and ``topk`` give along a `dim`: the values, and where along it they are."""

    values: Any
    indices: Any


# ---- largest, smallest -----------------------------------------------------------------------------------------------------------


def _is_axis(value: Any) -> bool:
    return value is None or (isinstance(value, (int, np.integer, tuple, list)) and not isinstance(value, bool))


def _extreme(name: str, input: Any, dim: Any, keepdim: bool, axis: Any, keepdims: bool, other: Any) -> Any:
    if other is None and not _is_axis(dim):
        if isinstance(dim, (bool, np.bool_)):
            raise TypeError(f"{name}() takes an int or an array after the input, not bool")
        dim, other = None, dim
    if other is not None:
        if dim is not None or axis is not None:
            raise TypeError(f"{name}() takes another array or a dim, not both")
        return (_core.maximum if name == "max" else _core.minimum)(input, other)
    keep = kept(keepdim, keepdims)
    reduce = _core.max if name == "max" else _core.min
    if axis is not None or dim is None:
        return reduce(input, axis=axis, keepdims=keep, dim=dim)
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"{name}(dim=) takes one int, got {dim!r}; a{name}(dim={dim!r}) is over several")
    along = axis_of("dim", input.ndim, dim)
    if input.ndim == 0:
        return ValuesAndIndices(input.clone(), _core.full((), 0, np.int64, input.device))
    if input.shape[along] == 0:
        raise ValueError(f"{name} over no elements does not exist: input has shape {tuple(input.shape)}")
    indices = (_core.argmax if name == "max" else _core.argmin)(input.detach(), along, True)
    values = _core.gather(input, along, indices)
    return ValuesAndIndices(*(x if keep else x.squeeze(along) for x in (values, indices)))


@takes_arrays("input")
def max(input: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False, other: Any = None) -> Any:
    """The largest element: of all, along an axis, or of two arrays.

    Parameters
    ----------
    input : array_like
    dim : int or array_like, optional
        An axis: the result is PyTorch's pair (values, indices). An array: the larger of the two elements, as ``maximum`` gives it.
    keepdim, keepdims : bool
        Whether the axis stays, with length 1.
    axis : int or sequence of int, optional
        The result is NumPy's: the values alone.
    other : array_like, optional
        Another name of `dim` for an array.

    Returns
    -------
    Tensor or ndarray, or a named tuple (values, indices) with `dim`
        NaN where there is one. Of equal elements along one `dim` or `axis` the first gets the gradient; over several axes they share it.

    Raises
    ------
    ValueError
        Over no elements.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.tensor([[1.0, 5.0], [7.0, 2.0]])
    >>> values, indices = x.max(1)
    >>> indices
    tensor([1, 0])
    >>> x.max(axis=1), x.max()
    (tensor([5., 7.]), tensor(7.))
    """
    if dim is None and axis is None and other is None and keepdim is False and keepdims is False:
        return _core.max(input)
    return _extreme("max", input, dim, keepdim, axis, keepdims, other)


@takes_arrays("input")
def min(input: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False, other: Any = None) -> Any:
    """The smallest element. Parameters and results as for ``max``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tensor([[1.0, 5.0], [7.0, 2.0]]).min(dim=0).values
    tensor([1., 2.])
    """
    if dim is None and axis is None and other is None and keepdim is False and keepdims is False:
        return _core.min(input)
    return _extreme("min", input, dim, keepdim, axis, keepdims, other)


def _reduced(input: Tensor, dim: Any, axis: Any) -> tuple[int, ...] | None:
    """The axes to reduce; None for all of them, as PyTorch means by an empty `dim`."""
    return axes_of("dim", input.ndim, None if isinstance(dim, (tuple, list)) and not dim else dim, axis)


def _shared_extreme(reduce: Any, input: Tensor, dim: Any, keepdim: bool, axis: Any, keepdims: bool) -> Tensor:
    axes = _reduced(input, dim, axis)
    keep = kept(keepdim, keepdims)
    if axes is None:
        return reduce(input, None, keep)
    if len(axes) == 1 and input.requires_grad and input.ndim:  # where several axes are named, equal elements share the gradient
        return reduce(input.unsqueeze(0), (0, axes[0] + 1), True).squeeze(0) if keep else reduce(input.unsqueeze(0), (0, axes[0] + 1))
    return reduce(input, axis=axes if input.ndim else None, keepdims=keep)


@takes_arrays("input")
def amax(input: Any, dim: Any = (), keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest values over axes, all of them by default; equal elements share the gradient.

    Parameters
    ----------
    input : array_like
    dim, axis : int or sequence of int, optional
    keepdim, keepdims : bool

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.amax(np.array([[1.0, 5.0], [7.0, 2.0]]), 1)
    array([5., 7.])
    """
    return _shared_extreme(_core.max, input, dim, keepdim, axis, keepdims)


@takes_arrays("input")
def amin(input: Any, dim: Any = (), keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest values over axes. Parameters as for ``amax``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.amin(np.array([[1.0, 5.0], [7.0, 2.0]]))
    array(1.)
    """
    return _shared_extreme(_core.min, input, dim, keepdim, axis, keepdims)


# ---- spread and length --------------------------------------------------------------------------------------------------------------


def sum_of_squares(x: Any, axes: Any = None, keep: bool = False) -> Any:
    """``sum(square(x))``: in one pass where nothing is recorded."""
    if (is_grad_enabled() and getattr(x, "requires_grad", False)) or _core.is_traced():
        return _core.sum(_core.square(x), axes, keep)
    return _core.sum_of_squares(x, axes, keep)


def _sqrt(squares: Tensor) -> Tensor:
    """The square root, with slope 0 at 0, as PyTorch's ``std`` and ``norm`` have it."""
    if not squares.requires_grad:
        return _core.sqrt(squares)
    zero = _core.eq(squares.detach(), 0.0)
    return _core.where(zero, 0.0, _core.sqrt(_core.where(zero, 1.0, squares)))


@takes_arrays("input")
def var(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Any:
    """The mean squared difference from the mean, over count - correction.

    Parameters
    ----------
    input : array_like
        Floating.
    dim, axis : int or sequence of int, optional
        Two names of one argument; all axes by default.
    unbiased : bool, optional
        False: correction 0, True: 1.
    keepdim, keepdims : bool
    correction, ddof : float, default 1
        PyTorch's and NumPy's names of one argument.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.var(np.array([1.0, 2.0, 3.0])), tc.var(np.array([1.0, 2.0, 3.0]), correction=0)
    (array(1.), array(0.66666667))
    """
    if unbiased is not None and not isinstance(unbiased, (bool, np.bool_)):
        raise TypeError(f"unbiased must be a bool, not {type(unbiased).__name__}")
    if ddof is not None:
        if correction is not None:
            raise TypeError("ddof= and correction= are two names of one argument")
        correction = ddof
    if unbiased is not None and correction is not None:
        raise TypeError("unbiased= and correction= are two names of one argument")
    amount = 1.0 if correction is None else correction
    return _core.var(
        input, axis=axis, keepdims=kept(keepdim, keepdims), dim=dim, correction=float(unbiased) if unbiased is not None else amount
    )


@takes_arrays("input")
def std(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Any:
    """The standard deviation: the square root of ``var``, with its parameters. Its gradient is 0 where it is 0.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.std(np.array([[1.0, 3.0], [2.0, 2.0]]), axis=1)
    array([1.41421356, 0.        ])
    """

    def squares(x: Tensor) -> Tensor:
        return var(x, dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims, ddof=ddof)

    x = input.float() if is_half(input) else input  # the square of a half may be infinite
    small = squares(x)
    result = _sqrt(small)
    if x._dtype_name == "float32" and not x.is_cuda and not _core.is_traced():
        infinite = _core.eq(small.detach(), _INFINITY)
        if _core.any(infinite).item():  # as is that of a float32 above 1.8e19
            result = _core.where(infinite, _sqrt(squares(x.double())).float(), result)
    return narrowed(result, input)


def _power_norm(x: Tensor, p: float, axes: Any, keep: bool) -> Tensor:
    size = x.abs()
    if p < 2 and x.requires_grad:  # the slope of |x|^p at 0 counts as 0
        zero = _core.eq(x.detach(), 0.0)
        size = _core.where(zero, 1.0, size)
        total = _core.where(zero, 0.0 if p > 0 else _INFINITY, size**p).sum(axes, keep)
    else:
        total = (size**p).sum(axes, keep)
    if not total.requires_grad:
        return total ** (1.0 / p)
    flat = _core.eq(total.detach(), 0.0 if p > 0 else _INFINITY)
    return _core.where(flat, 0.0, _core.where(flat, 1.0, total) ** (1.0 / p))


@takes_arrays("input")
def norm(
    input: Any,
    p: float | str = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    *,
    axis: Any = None,
    keepdims: bool = False,
) -> Any:
    """The p-norm of vectors: (sum |x|^p)^(1/p) over axes.

    Parameters
    ----------
    input : array_like
        Floating.
    p : float or "fro"
        "fro" and 2: the Euclidean norm. Infinity: the largest absolute value, minus infinity: the smallest; 0: how many are not 0.
    dim, axis : int or sequence of int, optional
        Two names of one argument; all axes by default.
    keepdim, keepdims : bool
    dtype : dtype, optional
        The dtype to convert to first.

    Returns
    -------
    Tensor or ndarray
        Its gradient is 0 where the norm is 0, as in PyTorch.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.norm(np.array([[3.0, 4.0], [0.0, 2.0]]), dim=1)
    array([5., 2.])
    """
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise ValueError(f"p is {p!r}; norm() takes a number or 'fro'")
    x = cast(input, dtype)
    if not is_floating(x):
        raise TypeError(f"the argument of norm is {x._dtype_name}; a floating dtype is needed: convert it with .float()")
    axes, keep = axes_of("dim", x.ndim, dim, axis), kept(keepdim, keepdims)
    axes = None if axes == () else axes
    if 0 < abs(real("p", p)) < _INFINITY and x.ndim and axes is not None and all(x.shape[a] == 1 for a in axes) and not _core.is_traced():
        return x.abs() if keep else x.abs().reshape([n for a, n in enumerate(x.shape) if a not in axes])
    if is_half(x):
        return _norm(x.float(), p, axes, keep).to(x._dtype_name)
    return _norm(x, p, axes, keep)


def _norm(x: Tensor, p: float, axes: Any, keep: bool) -> Tensor:
    if p < 0 and 0 in (x.shape if axes is None else [x.shape[a] for a in axes[: x.ndim]]):
        raise ValueError(f"norm() with p = {p} of no elements has no value (input {x.shape})")
    if p == 2:
        return _sqrt(sum_of_squares(x, axes, keep))
    if p == 1:
        return _core.sum(x.abs(), axes, keep)
    if p == 0:
        return _core.sum(_core.where(_core.ne(x, 0.0), 1.0, _core.mul(x, 0.0)), axes, keep)
    if p in (_INFINITY, -_INFINITY):
        return _shared_extreme(_core.max if p > 0 else _core.min, x.abs(), axes, keep, None, False)
    return _power_norm(x, float(p), axes, keep)


# ---- sums and products ---------------------------------------------------------------------------------------------------------------


@takes_arrays("input")
def logsumexp(input: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) over axes, without overflow.

    Parameters
    ----------
    input : array_like
        Floating.
    dim, axis : int or sequence of int, optional
        Two names of one argument; all axes by default.
    keepdim, keepdims : bool

    Returns
    -------
    Tensor or ndarray
        Minus infinity where all elements are, with gradient 0.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.logsumexp(np.array([[1000.0, 1000.0]]), 1)
    array([1000.69314718])
    """
    axes, keep = _reduced(input, dim, axis), kept(keepdim, keepdims)
    if not is_floating(input):
        raise TypeError(f"the argument of logsumexp is {input._dtype_name}; a floating dtype is needed: convert it with .float()")
    axes = tuple(range(input.ndim)) if axes is None else axes[: input.ndim]
    if any(input.shape[a] == 0 for a in axes):
        return _core.log(_core.sum(input, axis=axes, keepdims=keep))
    x, input = input, widened(input)
    top = _core.max(input.detach(), axis=axes, keepdims=True)
    top = _core.where(_core.lt(top.abs(), _INFINITY), top, 0.0)
    total = _core.sum(_core.exp(_core.sub(input, top)), axis=axes, keepdims=keep)
    if not keep:
        top = top.reshape(total.shape)
    if total.requires_grad:
        none = _core.eq(total.detach(), 0.0)
        return narrowed(_core.add(_core.where(none, -_INFINITY, _core.log(_core.where(none, 1.0, total))), top), x)
    return narrowed(_core.add(_core.log(total), top), x)


def _product(x: Tensor, axis: int) -> Tensor:
    """x multiplied up along the axis, which stays with length 1: halves by halves, so that zeros have their gradients."""
    if x.shape[axis] == 0:
        return _core.add(_core.sum(x, axis, True), 1)
    if x.shape[axis] == 1:
        return x.clone()
    if (product := _core.product(x, axis, False)) is not None:
        return product
    if is_half(x):
        return _product(x.float(), axis).to(x._dtype_name)
    while (length := x.shape[axis]) > 1:
        half = length // 2
        pairs = _core.mul(x.narrow(axis, 0, half), x.narrow(axis, half, half))
        x = _core.cat([pairs, x.narrow(axis, 2 * half, 1)], axis) if length % 2 else pairs
    return x


@takes_arrays("input")
def prod(
    input: Any, dim: int | None = None, keepdim: bool = False, dtype: Any = None, *, axis: int | None = None, keepdims: bool = False
) -> Any:
    """The product of the elements: of all, or along an axis; integers and bools in int64.

    Parameters
    ----------
    input : array_like
    dim, axis : int, optional
        Two names of one argument.
    keepdim, keepdims : bool
    dtype : dtype, optional
        The dtype to convert to first.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.prod(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    array([ 2., 12.])
    """
    x, keep = cast(input, dtype), kept(keepdim, keepdims)
    if dtype is None and not is_floating(x):
        x = x.long()
    axes = axes_of("dim", x.ndim, dim, axis)
    if axes is not None and len(axes) != 1:
        raise TypeError(f"prod() takes one axis, or none for all; got {axes}")
    if axes is None or x.ndim == 0:
        shape = (1,) * x.ndim if keep else ()
        x = x.reshape(-1)
        return _product(x, 0).reshape(shape)
    result = _product(x, axes[0])
    return result if keep else result.squeeze(axes[0])


@takes_arrays("input")
def count_nonzero(input: Any, dim: Any = None, *, axis: Any = None) -> Any:
    """How many elements are not zero: of all, or along axes.

    Parameters
    ----------
    input : array_like
    dim, axis : int or sequence of int, optional
        Two names of one argument; all axes by default.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.count_nonzero(np.array([[0, 1], [2, 3]]), 1)
    array([1, 2])
    """
    axes = _reduced(input, dim, axis)
    truth = input if input._dtype_name == "bool" else _core.ne(input.detach(), 0)
    return _core.sum(truth, axis=axes if input.ndim else None)


@takes_arrays("input")
def cumsum(input: Any, dim: int | None = None, dtype: Any = None, *, axis: int | None = None) -> Any:
    """Running sums along an axis.

    Parameters
    ----------
    input : array_like
    dim, axis : int
        Two names of one argument, which must be given.
    dtype : dtype, optional
        The dtype to convert to first.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `input`; integers and bools become int64.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.cumsum(np.array([1, 2, 3]), 0)
    array([1, 3, 6])
    """
    along = _one_axis("cumsum", input, dim, axis)
    result = _core.cumsum(cast(input, dtype), along)
    return result if dtype is None else result.to(dtype=dtype)


def _one_axis(name: str, input: Tensor, dim: Any, axis: Any) -> int:
    axes = axes_of("dim", input.ndim, dim, axis)
    if axes is None or len(axes) != 1:
        raise TypeError(f"{name}() needs one axis: {name}(dim)")
    return axes[0]


@takes_arrays("input")
def cumprod(input: Any, dim: int | None = None, dtype: Any = None, *, axis: int | None = None) -> Any:
    """Running products along an axis, with their gradients at zeros as well.

    Parameters
    ----------
    input : array_like
    dim, axis : int
        Two names of one argument, which must be given.
    dtype : dtype, optional
        The dtype to convert to first.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `input`; integers and bools become int64.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.cumprod(np.array([1.0, 2.0, 3.0]), 0)
    array([1., 2., 6.])
    """
    along, given = _one_axis("cumprod", input, dim, axis), cast(input, dtype)
    x = given if is_floating(given) else given.long()
    if (products := _core.product(x, along, True)) is not None:
        return products if dtype is None else products.to(dtype=dtype)
    x = widened(x)
    length, done = x.shape[along] if x.ndim else 1, 1  # each element is the product of as many before it and itself
    while done < length:
        longer = _core.mul(x.narrow(along, done, length - done), x.narrow(along, 0, length - done))
        x, done = _core.cat([x.narrow(along, 0, done), longer], along), 2 * done
    x = narrowed(x, given) if is_floating(given) else x
    return x.clone() if x is input else x if dtype is None else x.to(dtype=dtype)


__all__ = [
    "amax",
    "amin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "logsumexp",
    "max",
    "min",
    "norm",
    "prod",
    "std",
    "var",
]
