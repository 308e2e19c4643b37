"""Functions of PyTorch's that are a few others: scans, places of sorted numbers, counts, distances, diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._arguments import count, integer, not_negative, one_of, real, switch, tensor_of
from .._core import Tensor
from .._joining import cat
from .._promotion import is_floating, is_half, together, widened
from .._pytorch_names import iinfo
from .._recording import is_grad_enabled
from .._tensor import as_tensor
from ._calls import METHODS, axis_of, takes_arrays, to_arrays
from .reductions import ValuesAndIndices, norm, std, var


def _back(array: Any, like: Tensor, dtype: Any = None) -> Tensor:
    """An ndarray as a Tensor on the device of `like`."""
    found = as_tensor(np.array(array, order="C")).to(like.device)
    return found if dtype is None else found.to(dtype)


def _numbers(x: Tensor) -> np.ndarray:
    return to_arrays(widened(x.detach()))


# ---- triangles and diagonals ---------------------------------------------------------------------------------------------------------


def _triangle(function: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    places = function(count("row", row, 0), integer("offset", offset), count("col", col, 0))
    return as_tensor(np.stack(places).astype(np.int64)).to(device or "cpu").to(dtype or "int64")


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The places of a matrix on and below a diagonal: a Tensor of their rows and of their columns, of shape (2, N).

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle(np.tril_indices, row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The places of a matrix on and above a diagonal; see ``tril_indices``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.triu_indices(3, 3, 1)
    tensor([[0, 0, 1],
            [1, 2, 2]])
    """
    return _triangle(np.triu_indices, row, col, offset, dtype, device)


@takes_arrays("input")
def trace(input: Any) -> Any:
    """The sum of a matrix's diagonal.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.trace(tc.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    if input.ndim != 2:
        raise ValueError(f"input has shape {tuple(input.shape)}; trace() takes a matrix")
    return _core.sum(input.diag())


@takes_arrays("input")
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonals of the matrices along two axes, as the last axis of the result.

    Parameters
    ----------
    input : array_like
    offset : int
        0 is the main diagonal; positive ones are above it.
    dim1, dim2 : int
        The axes of rows and columns.

    Returns
    -------
    Tensor or ndarray
        A view if the two axes are the last ones of a contiguous Tensor, or of one that was transposed; otherwise a copy.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.diagonal(tc.tensor([[1, 2, 3], [4, 5, 6]]), 1)
    tensor([2, 6])
    """
    first, second = axis_of("dim1", input.ndim, dim1), axis_of("dim2", input.ndim, dim2)
    if input.ndim < 2 or first == second:
        raise ValueError(f"diagonal() needs two different axes, got dim1={dim1}, dim2={dim2} and shape {tuple(input.shape)}")
    offset = integer("offset", offset)
    x = input.movedim((first, second), (-2, -1))
    if not x.is_contiguous() and x.mT.is_contiguous():
        x, offset = x.mT, -offset
    (rows, columns), down, right = x.shape[-2:], max(-offset, 0), max(offset, 0)
    length = max(min(rows - down, columns - right), 0)
    if x.is_contiguous():
        start = down * columns + right if length else 0
        return x.flatten(-2)[..., start : start + (length - 1) * (columns + 1) + 1 : columns + 1] if length else x.flatten(-2)[..., :0]
    along = as_tensor(np.arange(length)).to(input.device)
    return x[..., along + down, along + right]


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a number to the diagonal of a matrix; `wrap` is refused: a tall matrix has one diagonal."""
    if self.ndim != 2 or wrap:
        raise ValueError(f"fill_diagonal_() takes a matrix and no wrap, got shape {tuple(self.shape)} and wrap={wrap!r}")
    places = as_tensor(np.arange(min(self.shape))).to(self.device)
    self[places, places] = fill_value
    return self


# ---- scans ------------------------------------------------------------------------------------------------------------------------------


@takes_arrays("input", "other")
def logaddexp(input: Any, other: Any) -> Any:
    """log(exp(input) + exp(other)), without overflow; they broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.logaddexp(tc.tensor([0.0, 1000.0]), tc.tensor([0.0, 0.0]))
    tensor([6.9315e-01, 1.0000e+03])
    """
    return together(_logaddexp, input, tensor_of("other", other, input))


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    larger = _core.maximum(a, b)
    finite = _core.lt(larger.detach().abs(), float("inf"))
    a, b = (_core.where(finite, x, 0.0) for x in (a, b))  # else infinities are subtracted
    sum = _core.add(_core.maximum(a, b), _core.log1p(_core.exp(_core.neg(_core.sub(a, b).abs()))))
    return _core.where(finite, sum, larger)


@takes_arrays("input")
def logcumsumexp(input: Any, dim: int) -> Any:
    """log(cumsum(exp(input))) along an axis, without overflow: by doubled steps, so that small terms before large ones stay exact.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.logcumsumexp(np.log([1.0, 2.0, 3.0]), 0).round(4)
    array([0.    , 1.0986, 1.7918])
    """
    if not is_floating(input):
        raise TypeError(f"the argument of logcumsumexp is {input._dtype_name}; a floating dtype is needed: convert it with .float()")
    along = axis_of("dim", input.ndim, dim)
    x, step = widened(input), 1
    while x.ndim and step < x.shape[along]:
        head, tail = x.narrow(along, 0, step), x.narrow(along, step, x.shape[along] - step)
        x = cat([head, _logaddexp(tail, x.narrow(along, 0, x.shape[along] - step))], dim=along)
        step *= 2
    return x.clone() if x is input else x.to(input._dtype_name)


def _running(input: Tensor, dim: Any, accumulate: Any) -> ValuesAndIndices:
    along = axis_of("dim", input.ndim, dim)
    if input.ndim == 0:
        return ValuesAndIndices(input.clone(), _core.full((), 0, np.int64, input.device))
    x = _numbers(input)
    best = accumulate(x, axis=along)
    here = np.arange(x.shape[along]).reshape([-1 if axis == along else 1 for axis in range(x.ndim)])
    places = np.maximum.accumulate(np.where((x == best) | (x != x), here, 0), axis=along)
    indices = _back(places, input)
    return ValuesAndIndices(_core.gather(input, along, indices), indices)


@takes_arrays("input")
def cummax(input: Any, dim: int) -> Any:
    """The largest element so far along an axis, and its place, the last one of equals: a named tuple (values, indices).

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cummax(tc.tensor([1.0, 3.0, 2.0]), 0).values
    tensor([1., 3., 3.])
    """
    return _running(input, dim, np.maximum.accumulate)


@takes_arrays("input")
def cummin(input: Any, dim: int) -> Any:
    """The smallest element so far along an axis, and its place; see ``cummax``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cummin(tc.tensor([3.0, 1.0, 2.0]), 0).indices
    tensor([0, 1, 1])
    """
    return _running(input, dim, np.minimum.accumulate)


# ---- several results --------------------------------------------------------------------------------------------------------------------


@takes_arrays("input", method=False)
def var_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    """``var`` and ``mean``, with the arguments of ``var``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.var_mean(tc.tensor([1.0, 3.0]))
    (tensor(2.), tensor(2.))
    """
    return _and_mean(var, input, dim, unbiased, keepdim, correction)


@takes_arrays("input", method=False)
def std_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    """``std`` and ``mean``, with the arguments of ``std``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.std_mean(tc.tensor([1.0, 3.0]), correction=0)
    (tensor(1.), tensor(2.))
    """
    return _and_mean(std, input, dim, unbiased, keepdim, correction)


def _and_mean(function: Any, input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> tuple[Tensor, Tensor]:
    if isinstance(dim, (bool, np.bool_)):  # PyTorch's var_mean(input, unbiased)
        dim, unbiased = None, dim
    if correction is not None and unbiased is not None:
        raise TypeError("correction= and unbiased= are two names of one argument")
    given = correction if correction is not None else 1 if unbiased is None else int(switch("unbiased", unbiased))
    return function(input, dim, correction=given, keepdim=keepdim), _core.mean(
        input, axis=None if dim == () or dim == [] else dim, keepdims=keepdim
    )


@takes_arrays("input")
def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """The number below which a part `q` of the elements lies, of all or along an axis; between two elements by `interpolation`.

    Parameters
    ----------
    input : array_like
        float32 or float64.
    q : float, or array_like of one axis
        From 0 to 1; several are the first axis of the result.
    dim : int, optional
    keepdim : bool
    interpolation : {"linear", "lower", "higher", "midpoint", "nearest"}

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.quantile(tc.tensor([0.0, 1.0, 2.0, 10.0]), 0.5)
    tensor(1.5000)
    """
    one_of("interpolation", interpolation, ("linear", "lower", "higher", "midpoint", "nearest"))
    parts = np.asarray(_numbers(q) if isinstance(q, Tensor) else q)
    parts = parts if parts.dtype == np.float32 else parts.astype(np.float64)
    if parts.ndim > 1 or not ((parts >= 0) & (parts <= 1)).all():
        raise ValueError(f"q must be a number from 0 to 1, or a vector of them, got {q!r}")
    if not is_floating(input) or is_half(input):
        raise TypeError(f"quantile() takes float32 and float64, not {input._dtype_name}; convert it with .float()")
    x = input.reshape(-1) if dim is None else input.movedim(axis_of("dim", input.ndim, dim), -1) if input.ndim else input.reshape(1)
    if x.shape[-1] == 0:
        raise ValueError("quantile() of no elements does not exist")
    order = x.sort(dim=-1).values
    if is_floating(x):  # NaN is last; it is the quantile of all that have one
        order = _core.where(_core.ne(order[..., -1:], order[..., -1:]), order[..., -1:], order)
    at = np.asarray(parts.reshape(-1) * parts.dtype.type(x.shape[-1] - 1), np.float64)  # rounded as q is: 0.7 of 10 is the seventh
    rounded: dict[str, Any] = {"lower": np.floor, "higher": np.ceil, "nearest": np.round}
    at = rounded[interpolation](at) if interpolation in rounded else at
    below = np.floor(at).astype(np.int64)
    weight = np.where(at > below, 0.5, 0.0) if interpolation == "midpoint" else at - below
    low, high = (order.index_select(-1, _back(i, x)) for i in (below, np.ceil(at).astype(np.int64)))
    weights = _back(weight, x, x._dtype_name)
    if interpolation == "linear" and getattr(q, "requires_grad", False):
        weights = weights + (q - q.detach()).reshape(-1) * (x.shape[-1] - 1)  # adds 0, and the gradient of q
    found = (low if interpolation in rounded else low.lerp(high, weights)).movedim(-1, 0)
    if keepdim and input.ndim:
        found = found.reshape(len(at), *[1] * input.ndim) if dim is None else found.unsqueeze(axis_of("dim", input.ndim, dim) + 1)
    return found if parts.ndim else found[0]


# ---- places and counts ------------------------------------------------------------------------------------------------------------------


@takes_arrays("input", "indices")
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """``gather`` of axes that broadcast; without a `dim`, of all elements in a row.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.take_along_dim(tc.tensor([[3, 1], [2, 4]]), tc.tensor([[1], [0]]), dim=1)
    tensor([[1],
            [2]])
    """
    indices = tensor_of("indices", indices, input)
    if dim is None:
        return _core.gather(input.reshape(-1), 0, indices.reshape(-1))
    along = axis_of("dim", input.ndim, dim)
    if indices.ndim != input.ndim:
        raise ValueError(f"indices has {indices.ndim} axes; expected {input.ndim}, as input has")
    others = np.broadcast_shapes(*([1 if axis == along else n for axis, n in enumerate(x.shape)] for x in (input, indices)))
    indices = _core.where(_core.lt(indices, 0), indices + input.shape[along], indices)  # as in NumPy's take_along_axis
    input, indices = (x.expand([x.shape[along] if axis == along else n for axis, n in enumerate(others)]) for x in (input, indices))
    return _core.gather(input, along, indices)


_EXTREMES = {"amax": np.maximum, "amin": np.minimum}


@takes_arrays("input")
def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """``scatter``, where the elements that go to one place are combined.

    Parameters
    ----------
    input : array_like
    dim : int
    index, src : array_like
        As for ``scatter``.
    reduce : {"sum", "mean", "amax", "amin"}
        Equal extremes share the gradient.
    include_self : bool, default True
        Whether the element of `input` is combined with the others; it stays where none go.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.scatter_reduce(tc.zeros(3), 0, tc.tensor([0, 0, 2]), tc.tensor([1.0, 4.0, -1.0]), "amax")
    tensor([4., 0., 0.])
    """
    one_of("reduce", reduce, ("sum", "mean", "amax", "amin"))
    index, src = tensor_of("index", index, input), tensor_of("src", src, input)
    axis_of("dim", input.ndim, dim)
    if index.ndim and src.ndim == index.ndim:
        src = src[tuple(slice(length) for length in index.shape)]  # the rest is not used
    ones = _core.full(index.shape, 1, np.int64, input.device)
    number = _core.full(input.shape, int(switch("include_self", include_self)), np.int64, input.device).scatter_add(dim, index, ones)
    base = input
    if not include_self:
        least: Any = 0
        if reduce in _EXTREMES and input.dtype == np.bool_:
            least = reduce == "amin"
        elif reduce in _EXTREMES:
            limits = iinfo(input._dtype_name) if not is_floating(input) else None
            lowest, highest = (-float("inf"), float("inf")) if limits is None else (limits.min, limits.max)
            least = lowest if reduce == "amax" else highest
        base = _core.where(_core.gt(number, 0), _core.full((), least, input._dtype_name, input.device), input)
    if reduce in _EXTREMES:
        return _extreme_of(_EXTREMES[reduce], base, dim, index, src, include_self or _core.eq(number, 0))
    sum = base.scatter_add(dim, index, src)
    if reduce == "sum":
        return sum
    number = _core.maximum(number, 1)
    return _core.div(sum, number.to(sum._dtype_name)) if is_floating(sum) else _core.floor_divide(sum, number).to(sum._dtype_name)


def _extreme_of(function: Any, base: Tensor, dim: int, index: Tensor, src: Tensor, takes_base: Any) -> Tensor:
    base.detach().scatter(dim, index, src.detach())  # checks the arguments
    values, places = np.array(_numbers(base)), list(np.indices(tuple(index.shape), sparse=True))
    if base.ndim:
        places[axis_of("dim", base.ndim, dim)] = _numbers(index)
    with np.errstate(invalid="ignore"):
        if base.ndim:
            function.at(values, tuple(places), _numbers(src))
        else:
            values = function(values, _numbers(src))
    found = _back(values, base, base._dtype_name)
    if not (is_grad_enabled() and (base.requires_grad or src.requires_grad)):
        return found
    of_src = found.gather(dim, index)
    chosen = _core.logical_or(_core.eq(src.detach(), of_src), _core.ne(of_src, of_src))
    is_nan = _core.ne(found, found)
    own = _core.logical_and(_core.logical_or(_core.eq(base.detach(), found), is_nan), takes_base)
    share = _core.reciprocal(own.to(found._dtype_name).scatter_add(dim, index, chosen.to(found._dtype_name)))
    share = _core.where(is_nan, found, share)  # a gradient of NaN is NaN
    change = _core.where(chosen, _zero_of(src), 0.0) * share.gather(dim, index)
    return found + (_core.where(own, _zero_of(base), 0.0) * share).scatter_add(dim, index, change)


def _zero_of(x: Tensor) -> Tensor:
    """A zero with the gradient of `x`; an infinity is itself, since it cannot be subtracted."""
    return x - _core.where(_core.lt(x.detach().abs(), float("inf")), x.detach(), 0.0)


@takes_arrays("input")
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each of the integers from 0 on occurs, or the sum of its weights; without a gradient.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.bincount(tc.tensor([1, 3, 1]), minlength=5)
    tensor([0, 2, 0, 1, 0])
    """
    if input.ndim != 1 or input.dtype.kind not in "iu":
        raise ValueError(f"input must be a vector of integers, got {input._dtype_name} of shape {tuple(input.shape)}")
    given = None if weights is None else _numbers(tensor_of("weights", weights, input))
    found = np.bincount(_numbers(input), given, count("minlength", minlength, 0))
    return _back(found, input, None if given is None or given.dtype != np.float32 else "float32")


@takes_arrays("sorted_sequence", "input", method=False)
def searchsorted(
    sorted_sequence: Any, input: Any, *, right: bool = False, side: str | None = None, out_int32: bool = False, sorter: Any = None
) -> Any:
    """The place of each number among numbers in ascending order, which stay in order with it there. That of NaN is behind all of them.

    Parameters
    ----------
    sorted_sequence : array_like
        A vector, or of the shape of `input` except along the last axis.
    input : array_like or number
    right : bool, default False
        Behind equal ones, instead of before them.
    side : {"left", "right"}, optional
        Another form of `right`.
    out_int32 : bool
        int32 instead of int64.
    sorter : array_like of int, optional
        The order in which `sorted_sequence` is sorted, as ``argsort`` gives it.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.searchsorted(tc.tensor([1, 3, 5]), tc.tensor([3, 6]))
    tensor([1, 3])
    """
    where: Any = one_of("side", side if side is not None else "right" if switch("right", right) else "left", ("left", "right"))
    if side == "left" and right:
        raise ValueError("side and right say opposite things")
    rows, values = _numbers(sorted_sequence), _numbers(tensor_of("input", input, sorted_sequence))
    if sorter is not None:
        rows = np.take_along_axis(rows, _numbers(tensor_of("sorter", sorter, sorted_sequence)), -1)
    if rows.ndim == 1:
        found = np.searchsorted(rows, values, where)
    elif rows.shape[:-1] == values.shape[:-1] and rows.ndim:
        pairs = zip(*(x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1]) for x in (rows, values)), strict=True)
        found = np.array([np.searchsorted(row, value, where) for row, value in pairs], np.int64).reshape(values.shape)
    else:
        raise ValueError(f"sorted_sequence has shape {rows.shape}; expected a vector, or {(*values.shape[:-1], 'N')} as of input")
    if values.dtype.kind == "f" and rows.size and np.isnan(rows[..., -1]).any():  # otherwise NumPy puts NaN behind all
        found = np.where(np.isnan(values), rows.shape[-1], found)
    return _back(np.asarray(found, np.int32 if out_int32 else np.int64), sorted_sequence)


@takes_arrays("input", "boundaries", method=False)
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """``searchsorted`` in a vector of boundaries: the number of those below each element, or with `right` of those that are not above it.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.bucketize(tc.tensor([0.5, 2.0]), tc.tensor([1.0, 2.0, 3.0]))
    tensor([0, 1])
    """
    boundaries = tensor_of("boundaries", boundaries, input)
    if boundaries.ndim != 1:
        raise ValueError(f"boundaries has shape {tuple(boundaries.shape)}; expected a vector")
    return searchsorted(boundaries, input, right=right, out_int32=out_int32)


# ---- products and distances -------------------------------------------------------------------------------------------------------------


@takes_arrays("x1", "x2", method=False)
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """The distances of all rows of one matrix to all of another; the axes before broadcast.

    Parameters
    ----------
    x1 : array_like, shape (..., P, M)
    x2 : array_like, shape (..., R, M)
    p : float, default 2
        The norm of the differences, which are all in memory at once.
    compute_mode : str, optional
        PyTorch's name, without effect.

    Returns
    -------
    Tensor or ndarray, shape (..., P, R)

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cdist(tc.zeros(1, 2), tc.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    x2 = tensor_of("x2", x2, x1)
    not_negative("p", real("p", p))
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist() takes matrices of as many columns, got shapes {tuple(x1.shape)} and {tuple(x2.shape)}")
    return norm(
        _core.sub(x1.unsqueeze(-2), x2.unsqueeze(-3)), p if x1.shape[-1] else 2, -1
    )  # of no columns each norm but the largest exists


METHODS["fill_diagonal_"] = fill_diagonal_

__all__ = [
    "bincount",
    "bucketize",
    "cdist",
    "cummax",
    "cummin",
    "diagonal",
    "logaddexp",
    "logcumsumexp",
    "quantile",
    "scatter_reduce",
    "searchsorted",
    "std_mean",
    "take_along_dim",
    "trace",
    "tril_indices",
    "triu_indices",
    "var_mean",
]
