"""Elements by their places: gather and scatter, slices, masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .._arguments import joint_shape, tensor_of
from .._core import Tensor
from .._promotion import is_floating, is_half
from .._tensor import empty
from ._calls import METHODS, axis_of, takes_arrays

_ALL = (slice(None),) * 32  # of so many axes

# ---- an index per element ---------------------------------------------------------------------------------------------------------


@takes_arrays("input")
def gather(input: Any, dim: Any = None, index: Any = None, *, axis: int | None = None) -> Any:
    """The elements at the places that `index` has along an axis: ``y[i, j] = x[i, index[i, j]]`` for `dim` 1.

    Parameters
    ----------
    input : array_like
    dim, axis : int
        Two names of one argument.
    index : array_like of int
        From 0; has as many axes as `input`, and is nowhere longer, except along `dim`.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `index`. The gradients of a place add up in the order of the index.

    Raises
    ------
    IndexError
        For a place outside of `input`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.gather(np.array([[1.0, 2.0], [3.0, 4.0]]), 1, np.array([[1], [0]]))
    array([[2.],
           [3.]])
    """
    if index is None:
        raise TypeError("gather() needs a dim and an index")
    index = tensor_of("index", index, input)
    if input.ndim == 0 and index.ndim == 1:
        input = input.reshape(1)
    return _core.gather(input, dim if axis is None else axis, index)


def _scattered(name: str, input: Tensor, dim: Any, index: Any, src: Any, combination: str, in_place: bool = False) -> Tensor:
    if dim is None or index is None or src is None:
        raise TypeError(f"{name}() needs a dim, an index and a src")
    return (_core.scatter_into if in_place else _core.scatter)(input, dim, index, src, combination)


def _filled(value: Any, input: Tensor, index: Any) -> Tensor:
    """A number, or a Tensor without axes, for every place of `index`."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ValueError(f"value has shape {value.shape}; it must be a number or a Tensor without axes: src= takes others")
    else:
        if isinstance(value, (float, np.floating)) and not value.is_integer() and not is_floating(input):
            raise TypeError(f"value {value} cannot be written to a tensor of {input._dtype_name}; convert the tensor with .float()")
        value = _core.full((), value, input._dtype_name, input.device)
    return value.expand(index.shape)


_REDUCTIONS = {None: "put", "add": "add", "multiply": "multiply"}


@takes_arrays("input")
def scatter(
    input: Any,
    dim: Any = None,
    index: Any = None,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
    axis: int | None = None,
) -> Any:
    """`input` with elements written at the places that `index` has along an axis: ``y[i, index[i, j]] = src[i, j]`` for `dim` 1.

    Parameters
    ----------
    input : array_like
    dim, axis : int
        Two names of one argument.
    index : array_like of int
        From 0; has as many axes as `input`, and is nowhere longer, except along `dim`.
    src : array_like or number
        Nowhere shorter than `index`; of the dtype of `input`. Of equal places the last one stays.
    value : number, optional
        Instead of `src`.
    reduce : {"add", "multiply"}, optional
        What is done instead of writing.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.scatter(np.zeros((2, 3)), 1, np.array([[2], [0]]), 1.0)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    return _scatter(input, dim if axis is None else axis, index, src, value, reduce)


def _scatter(input: Tensor, dim: Any, index: Any, src: Any, value: Any, reduce: Any, in_place: bool = False) -> Tensor:
    if reduce is not None and not isinstance(reduce, str):
        raise TypeError(f"reduce must be 'add', 'multiply' or None, got {reduce!r} ({type(reduce).__name__})")
    if reduce not in _REDUCTIONS:
        raise ValueError(f"reduce must be 'add', 'multiply' or None, got {reduce!r}")
    if src is not None and value is not None:
        raise TypeError("src= and value= are two names of one argument")
    if index is None or (src is None and value is None):
        raise TypeError("scatter() needs a dim, an index and a src or value")
    index = tensor_of("index", index, input)
    given = value if src is None else src
    if value is not None or (not hasattr(given, "shape") and not isinstance(given, (list, tuple))):
        given = _filled(given, input, index)
    return _scattered("scatter", input, dim, index, given, _REDUCTIONS[reduce], in_place)


@takes_arrays("input")
def scatter_add(input: Any, dim: Any = None, index: Any = None, src: Any = None, *, axis: int | None = None) -> Any:
    """`input` with elements added at the places that `index` has along an axis: ``y[i, index[i, j]] += src[i, j]`` for `dim` 1.

    Parameters as for ``scatter``. Equal places add up in the order of the index, whatever the number of threads.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.scatter_add(np.zeros(3), 0, np.array([1, 1, 2]), np.array([1.0, 2.0, 4.0]))
    array([0., 3., 4.])
    """
    return _scattered("scatter_add", input, dim if axis is None else axis, index, src, "add")


def scatter_(self: Tensor, dim: Any = None, index: Any = None, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """``scatter`` in place."""
    return _scatter(self, dim, index, src, value, reduce, in_place=True)


def scatter_add_(self: Tensor, dim: Any = None, index: Any = None, src: Any = None) -> Tensor:
    """``scatter_add`` in place."""
    return _scattered("scatter_add", self, dim, index, src, "add", in_place=True)


# ---- index_put ----------------------------------------------------------------------------------------------------------------------


_FEW_PLACES = 4096  # that are listed: faster than three additions


def _entry(index: Any) -> Any:
    if isinstance(index, Tensor):
        return (index.detach().cpu() if index.is_cuda else index.detach()).numpy()
    return slice(None) if index is None else np.asarray(index)


def _slice_places(lead: tuple[int, ...], entries: tuple[Any, ...]) -> np.ndarray | None:
    """The places of ``x[entries]`` among the elements of the first axes (`lead`), of which each entry indexes one; None for other entries."""
    if not entries or len(entries) != len(lead) or any(isinstance(i, slice) or i.dtype.kind not in "iu" for i in entries):
        return None
    try:
        return np.ravel_multi_index(entries, lead)
    except (TypeError, ValueError):  # also for places that are counted from the end
        return None


def _places(shape: tuple[int, ...], entries: tuple[Any, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """The places of ``x[entries]`` in the flattened x, and the shape of the selection."""
    indexed = sum(i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else 1 for i in entries)
    lead, window = shape[:indexed], shape[indexed:]
    if not lead or math.prod(shape) <= max(_FEW_PLACES, 4 * max(0 if isinstance(i, slice) else i.size for i in entries)):
        places = np.arange(math.prod(shape)).reshape(shape)[entries]
    else:
        places, step = np.zeros((), np.int64), math.prod(window)
        for axis in reversed(range(len(lead))):  # each adds to a place what depends on it alone
            along = (np.arange(lead[axis], dtype=np.int64) * step).reshape(-1, *[1] * (len(lead) - 1 - axis))
            places = places + np.broadcast_to(along, lead)[entries]
            step *= lead[axis]
        if window:
            places = places.reshape(places.shape + (1,) * len(window)) + np.arange(math.prod(window)).reshape(window)
    return np.ascontiguousarray(places.reshape(-1)), places.shape


@takes_arrays("input")
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """A copy of `input` with ``copy[indices] = values``, or with `accumulate` ``+=`` that adds up all values of a repeated place.

    Parameters
    ----------
    input : array_like
    indices : tuple of array_like
        An array of ints or bools for each of the first axes; None for all of an axis.
    values : array_like
        Broadcasts to the selection.
    accumulate : bool

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(3).index_put((tc.tensor([0, 0, 2]),), tc.tensor([1.0, 2.0, 4.0]), accumulate=True)
    tensor([3., 0., 4.])
    """
    return _added(input, indices, values).reshape(input.shape) if accumulate else index_put_(input.clone(), indices, values)


def _values(input: Tensor, indices: Any, values: Any) -> Tensor:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"indices must be a tuple with an array for each axis, not {type(indices).__name__}")
    values = tensor_of("values", values, input)
    if values.dtype != input.dtype:
        raise TypeError(f"values are {values._dtype_name} but input is {input._dtype_name}; they must be equal")
    return values


def _added(input: Tensor, indices: Any, values: Any, function: Callable = _core.scatter) -> Tensor:
    values, entries = _values(input, indices, values), tuple(map(_entry, indices))
    window = input.shape[len(entries) :]
    slices = _slice_places(input.shape[: len(entries)], entries)
    if slices is not None and 0 not in input.shape:
        shape = slices.shape + window
        if values.shape != shape or slices.ndim != 1:
            values = values.expand(shape).reshape((-1, *window))
        index = _core.as_argument(slices.reshape(-1), input)
        if window:
            index = index.reshape((-1, *(1,) * len(window))).expand(values.shape)
        return function(input.reshape((-1, *window)), 0, index, values, "add")
    places, shape = _places(input.shape, entries)
    index = _core.as_argument(places, input)
    return function(input.reshape(-1), 0, index, values.expand(shape).reshape(-1), "add")


def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """``index_put`` in place."""
    values = _values(self, indices, values)
    key = tuple(slice(None) if i is None else i for i in indices)
    is_recorded = self.requires_grad or values.requires_grad or _core.is_traced()
    if accumulate and self.is_contiguous() and 0 not in self.shape and not is_recorded:
        _added(self, indices, values, _core.scatter_into)
    else:
        self[key] = _added(self, indices, values).reshape(self.shape)[key] if accumulate else values
    return self


METHODS |= {"scatter_": scatter_, "scatter_add_": scatter_add_, "index_put_": index_put_}


# ---- slices of an axis --------------------------------------------------------------------------------------------------------------


def _slices(name: str, input: Tensor, dim: Any, index: Any, advice: str = "") -> tuple[int, Tensor]:
    """The axis, and an index of places along it with one axis."""
    along, index = axis_of("dim", input.ndim, dim), tensor_of("index", index, input)
    if index.ndim > 1:
        raise ValueError(f"index has shape {index.shape}; {name}() takes one axis")
    if index._dtype_name not in ("int64", "int32"):
        raise TypeError(f"index is {index._dtype_name}; {name}() takes ints{advice}")
    return along, index.reshape(-1)


def _source_slices(input: Tensor, dim: Any, along: int, index: Tensor, source: Any) -> Tensor:
    """A slice of `source` for each place of `index`: an element of an `input` of at most one axis, also where `source` has none."""
    source = tensor_of("source", source, input)
    if input.ndim == 0 or (input.ndim == 1 and source.ndim == 0):
        source = source.reshape(-1)
    shape = (*input.shape[:along], index.shape[0], *input.shape[along + 1 :])
    if source.shape != shape:
        raise ValueError(f"source has shape {source.shape}; {index.shape[0]} places along dim {dim} of {input.shape} take {shape}")
    return source


@takes_arrays("input")
def index_select(input: Any, dim: Any, index: Any) -> Any:
    """The slices of an axis at the places of `index`, in its order.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.index_select(np.array([[1, 2, 3], [4, 5, 6]]), 1, np.array([2, 0]))
    array([[3, 1],
           [6, 4]])
    """
    is_plain = type(dim) is int and -input.ndim <= dim < input.ndim and isinstance(index, Tensor) and index.ndim == 1
    if is_plain and index._dtype_name in ("int64", "int32"):  # as most calls are
        places = (*_ALL[: dim % input.ndim], index)
        return input[places]
    along, index = _slices("index_select", input, dim, index, ": masked_select() and t[mask] take a mask of bools")
    if input.ndim == 0:
        return _core.gather(input.reshape(1), 0, index).reshape(())
    return input[(slice(None),) * along + (index,)]


@takes_arrays("input")
def index_add(input: Any, dim: Any, index: Any, source: Any, *, alpha: float = 1) -> Any:
    """`input` with the slices of `source` added to those of an axis at the places of `index`: ``y[index[i]] += alpha * source[i]`` for `dim` 0.

    Parameters
    ----------
    input : array_like
    dim : int
    index : array_like of int
        One axis. Equal places add up in the order of the index, whatever the number of threads.
    source : array_like
        Of the dtype of `input`, and of its shape but for `dim`, where it has a slice for each place.
    alpha : number, default 1

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.index_add(np.zeros((3, 2)), 0, np.array([2, 0, 2]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    array([[3., 4.],
           [0., 0.],
           [6., 8.]])
    """
    return _index_add(input, dim, index, source, alpha)


def _index_add(input: Tensor, dim: Any, index: Any, source: Any, alpha: float, in_place: bool = False) -> Tensor:
    along, index = _slices("index_add", input, dim, index)
    whole, source = input if input.ndim else input.view(1), _source_slices(input, dim, along, index, source)
    if not (isinstance(alpha, int) and alpha == 1):
        source = _core.mul(source, alpha)
    places = index if whole.ndim == 1 else index.reshape((-1, *(1,) * (whole.ndim - along - 1))).expand(source.shape)
    written = _scattered("index_add", whole, along, places, source, "add", in_place)
    return input if in_place else written if input.ndim else written.reshape(())


def index_add_(self: Tensor, dim: Any, index: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """``index_add`` in place."""
    return _index_add(self, dim, index, source, alpha, in_place=True)


@takes_arrays("input")
def index_fill(input: Any, dim: Any, index: Any, value: Any) -> Any:
    """A copy of `input` with a number in the slices of an axis at the places of `index`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.index_fill(np.zeros((2, 3)), 1, np.array([2, 0]), 7.0)
    array([[7., 0., 7.],
           [7., 0., 7.]])
    """
    return index_fill_(input.clone(), dim, index, value)


def index_fill_(self: Tensor, dim: Any, index: Any, value: Any) -> Tensor:
    """``index_fill`` in place."""
    along, index = _slices("index_fill", self, dim, index, ": masked_fill() takes a mask of bools")
    if isinstance(value, Tensor) and value.ndim:
        raise ValueError(f"value has shape {value.shape}; it must be a number or a Tensor without axes")
    whole = self if self.ndim else self.view(1)
    whole[(slice(None),) * along + (index,)] = value
    return self


@takes_arrays("input")
def index_copy(input: Any, dim: Any, index: Any, source: Any) -> Any:
    """A copy of `input` with the slices of `source` for those of an axis at the places of `index`; of equal places the last one stays.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.index_copy(np.zeros((2, 3)), 1, np.array([2, 0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[2., 0., 1.],
           [4., 0., 3.]])
    """
    return index_copy_(input.clone(), dim, index, source)


def index_copy_(self: Tensor, dim: Any, index: Any, source: Any) -> Tensor:
    """``index_copy`` in place: new keys in a cache of all positions."""
    along, index = _slices("index_copy", self, dim, index)
    source = _source_slices(self, dim, along, index, source)
    if source.dtype != self.dtype:
        raise TypeError(f"source is {source._dtype_name} but the tensor is {self._dtype_name}; they must be equal")
    whole = self if self.ndim else self.view(1)
    whole[(slice(None),) * along + (index,)] = source
    return self


METHODS |= {"index_add_": index_add_, "index_copy_": index_copy_, "index_fill_": index_fill_}


def where(self: Tensor, condition: Any, other: Any) -> Tensor:
    """This Tensor where `condition` is true, `other` elsewhere."""
    return _core.where(condition, self, other)


METHODS |= {"where": where}


# ---- masks -----------------------------------------------------------------------------------------------------------------------


@takes_arrays("input")
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero.

    Parameters
    ----------
    input : array_like
    as_tuple : bool
        True: a tuple with the indices along each axis, as NumPy gives it. False: a row of indices per element, (n, ndim).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nonzero(np.array([[0, 5], [7, 0]]))
    array([[0, 1],
           [1, 0]])
    """
    x = input.detach()
    found = _core.nonzero(x.reshape(1) if x.ndim == 0 else x).to(x.device)
    if as_tuple:
        return tuple(found[:, axis] for axis in range(found.shape[1]))
    return found if x.ndim else found[:, :0].contiguous()


@takes_arrays("input", "mask")
def masked_select(input: Any, mask: Any) -> Any:
    """The elements where the mask is set, in one row; the two broadcast.

    Parameters
    ----------
    input : array_like
    mask : array_like of bool

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.masked_select(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    array([1., 3.])
    """
    mask = tensor_of("mask", mask, input)
    if mask._dtype_name != "bool":
        raise TypeError(f"mask is {mask._dtype_name}; masked_select needs a bool mask: mask != 0, or mask.bool()")
    shape = joint_shape(input=input, mask=mask)
    if not shape:
        return input.reshape(1)[mask.reshape(1)]
    return input.expand(shape)[mask.expand(shape)]


@takes_arrays("input")
def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """The elements with those where the mask is set replaced by the first ones of `source`, in order: embeddings of images among those of words.

    Parameters
    ----------
    input : array_like
    mask : array_like of bool
        It and `input` broadcast.
    source : array_like
        Of the dtype of `input`, with at least as many elements as are replaced; the rest is not used.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.masked_scatter(tc.zeros(3), tc.tensor([True, False, True]), tc.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """
    mask = tensor_of("mask", mask, input)
    return masked_scatter_(input.expand(joint_shape(input=input, mask=mask)).clone(), mask, source)


def masked_scatter_(self: Tensor, mask: Any, source: Any) -> Tensor:
    """``masked_scatter`` in place."""
    mask, source = tensor_of("mask", mask, self), tensor_of("source", source, self)
    if mask._dtype_name != "bool":
        raise TypeError(f"mask is {mask._dtype_name}; masked_scatter needs a bool mask: mask != 0, or mask.bool()")
    if source.dtype != self.dtype:
        raise TypeError(f"source is {source._dtype_name} but the tensor is {self._dtype_name}; they must be equal")
    mask = mask.expand(self.shape if self.ndim else (1,))
    number = int(mask.sum())
    if number > source.numel():
        raise ValueError(f"source has {source.numel()} elements for {number} places of the mask")
    whole = self if self.ndim else self.view(1)
    whole[mask] = source.reshape(-1)[:number]
    return self


METHODS["masked_scatter_"] = masked_scatter_


def _array(x: Tensor) -> np.ndarray:
    values = x.detach().cpu()
    return (values.float() if is_half(x) else values).numpy()


@takes_arrays("elements", "test_elements", method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Which elements are among others.

    Parameters
    ----------
    elements : array_like
    test_elements : array_like
        Those that are looked for.
    assume_unique : bool
        Without effect.
    invert : bool, default False
        Which are not among them.

    Returns
    -------
    Tensor or ndarray of bool
        Of the shape of `elements`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.isin(np.array([5, 2, 7, 2]), np.array([2, 7]))
    array([False,  True,  True,  True])
    """
    tests = tensor_of("test_elements", test_elements, elements).reshape(-1)
    if elements._dtype_name != tests._dtype_name and not _core.is_traced():  # as PyTorch compares: an int64 may be rounded
        joint = _core.add(*(empty(0, dtype=x._dtype_name) for x in (elements, tests)))._dtype_name
        elements, tests = elements.to(joint), tests.to(joint)
    if tests.shape[0] > (2 if elements.device == "cpu" else 32) and not _core.is_traced():
        found = tensor_of("elements", np.isin(_array(elements), _array(tests)), elements)
    else:
        found = _core.eq(elements.unsqueeze(-1), tests).any(-1)
    return _core.logical_xor(found, True) if invert else found


__all__ = [
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "isin",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "scatter",
    "scatter_add",
]
