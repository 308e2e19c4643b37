"""Elements by their places: gather and scatter, sorted, masked, drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .._arguments import all_of, count, integer, joint_shape, not_negative, one_axis, real, tensor_of
from .._core import Tensor
from .._promotion import is_floating, widened
from ..random import _check_written, _fill_normal, _fill_uniform, as_generator, bernoulli, one_source
from ._calls import METHODS, axes_of, axis_of, takes_arrays, to_arrays
from .reductions import ValuesAndIndices

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


def _places(shape: tuple[int, ...], indices: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """The places of ``x[indices]`` in the flattened x, and the shape of the selection."""
    entries = tuple(slice(None) if i is None else np.asarray(i.detach().cpu()) if isinstance(i, Tensor) else np.asarray(i) for i in indices)
    indexed = sum(i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else 1 for i in entries)
    lead, window = shape[:indexed], shape[indexed:]
    if not lead or math.prod(shape) <= max(_FEW_PLACES, 4 * max(0 if isinstance(i, slice) else i.size for i in entries)):
        places = np.arange(math.prod(shape)).reshape(shape)[entries]
    else:
        places, step = np.zeros((), np.int64), math.prod(window)
        for axis in reversed(range(len(lead))):  # each adds to a place what depends on it alone
            along = np.arange(lead[axis], dtype=np.int64) * step
            strides = [along.itemsize * (i == axis) for i in range(len(lead))]
            places = places + np.ndarray(lead, np.int64, along, strides=strides)[entries]
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
    values = _values(input, indices, values)
    places, shape = _places(input.shape, indices)
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
    places = index.reshape((-1, *(1,) * (whole.ndim - along - 1))).expand(source.shape)
    written = _scattered("index_add", whole, along, places, source, "add", in_place)
    return input if in_place else written.reshape(input.shape)


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


# ---- sorted ----------------------------------------------------------------------------------------------------------------------


@takes_arrays("input")
def sort(input: Any, dim: int | None = None, descending: bool = False, stable: bool = True, *, axis: int | None = None) -> Any:
    """The elements along an axis in order, and the places they had.

    Parameters
    ----------
    input : array_like
    dim, axis : int, default -1
        Two names of one argument.
    descending : bool
    stable : bool
        Equal elements always keep their order; without effect.

    Returns
    -------
    (values, indices)
        A named tuple. NaN is larger than all others.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> values, indices = tc.sort(np.array([3.0, 1.0, 2.0]))
    >>> values, indices
    (array([1., 2., 3.]), array([1, 2, 0]))
    """
    (along,) = axes_of("dim", input.ndim, dim, axis) or (axis_of("dim", input.ndim, -1),)
    indices = _core.argsort(input.detach(), along if input.ndim else -1, bool(descending))
    return ValuesAndIndices(_core.gather(input, along if input.ndim else -1, indices), indices)


@takes_arrays("input")
def topk(input: Any, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True, *, axis: int | None = None) -> Any:
    """The `k` largest elements along an axis, in descending order, and their places.

    Parameters
    ----------
    input : array_like
    k : int
    dim, axis : int, default -1
        Two names of one argument.
    largest : bool
        False: the smallest, in ascending order.
    sorted : bool
        They always are; without effect.

    Returns
    -------
    (values, indices)
        A named tuple. NaN is larger than all others; of equal elements the first come first.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.topk(np.array([3.0, 1.0, 2.0]), 2).values
    array([3., 2.])
    """
    (along,) = axes_of("dim", input.ndim, dim, axis) or (axis_of("dim", input.ndim, -1),)
    k = integer("k", k)
    length = input.shape[along] if input.ndim else 1
    if not 0 <= k <= length:
        raise ValueError(f"k is {k}; axis {along} has {length} elements (input {input.shape})")
    if input.ndim == 0 and k == 0:
        raise ValueError("k is 0; a tensor without axes has one element")
    indices = _core.argsort(input.detach(), along if input.ndim else -1, bool(largest), first=k)
    return ValuesAndIndices(_core.gather(input, along if input.ndim else -1, indices), indices)


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
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None, *, axis: Any = None
) -> Any:
    """The different elements, in ascending order; without a gradient.

    Parameters
    ----------
    input : array_like
    sorted : bool
        Without effect: they are in order.
    return_inverse : bool
        Whether to return, for each element of `input`, its index in the result as well.
    return_counts : bool
        Whether to return how often each occurs as well.
    dim, axis : int, optional
        The different slices along it instead of the elements.

    Returns
    -------
    Tensor or ndarray, or a tuple of it, the indices and the counts (int64)
        Every NaN is different from the others.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.unique(np.array([3, 1, 3]))
    array([1, 3])
    >>> tc.unique(tc.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    along = one_axis(axis, dim, None)
    if along is not None:
        along = axis_of("dim", input.ndim, along)
    options: dict[str, Any] = {"return_inverse": bool(return_inverse), "return_counts": bool(return_counts), "axis": along}
    found = np.unique(to_arrays(widened(input.detach())), equal_nan=False, **options)
    values, *places = found if isinstance(found, tuple) else (found,)
    if return_inverse:
        places[0] = places[0].reshape(input.shape if along is None else -1)
    results = [_core.as_tensor(values).to(input._dtype_name), *map(_core.as_tensor, places)]
    results = [result.to(input.device) for result in results]
    return tuple(results) if len(results) > 1 else results[0]


# ---- drawn at random ---------------------------------------------------------------------------------------------------------------


@takes_arrays("input")
def multinomial(input: Any, num_samples: int, replacement: bool = False, *, rng: Any = None, generator: Any = None) -> Any:
    """Indices drawn from rows of weights.

    Parameters
    ----------
    input : array_like, shape (K,) or (N, K)
        Weights, at least 0; they need not add up to 1.
    num_samples : int
    replacement : bool
        Whether an index may be drawn more than once.
    rng, generator : int, np.random.Generator, tc.Generator or None
        None is the default generator.

    Returns
    -------
    Tensor or ndarray of int64, shape (num_samples,) or (N, num_samples)

    Raises
    ------
    ValueError
        For weights that are negative, not finite or all 0; for more samples than there are weights above 0, without replacement.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.multinomial(tc.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    if input.ndim not in (1, 2):
        raise ValueError(f"input has shape {input.shape}; multinomial() takes (K,) or (N, K) weights")
    if not is_floating(input):
        raise TypeError(f"input is {input._dtype_name}; multinomial() takes floating weights: convert it with .float()")
    num_samples = count("num_samples", num_samples)
    weights = input.detach().cpu().double().reshape(-1 if input.numel() else math.prod(input.shape[:-1]), input.shape[-1])
    source = as_generator(one_source(rng, generator))
    if not bool(_core.logical_and(_core.ge(weights, 0.0), _core.lt(weights, float("inf"))).all()):
        raise ValueError("multinomial() needs weights that are finite and not negative")
    if weights.numel():  # sums of them must be finite
        weights = _core.div(weights, _core.max(weights, 1, True))
    if not bool(_core.gt(weights.sum(1), 0.0).all()):
        raise ValueError("multinomial() needs a weight above 0 in every row")
    if not replacement and bool(_core.lt(_core.sum(_core.gt(weights, 0.0), 1), int(num_samples)).any()):
        raise ValueError(
            f"num_samples is {num_samples}, but a row of input {input.shape} has fewer weights above 0; replacement=True repeats them"
        )
    draw = _with_replacement if replacement and num_samples != 1 else _without_replacement  # of one sample as PyTorch draws it
    return draw(weights, int(num_samples), source).reshape((*input.shape[:-1], num_samples)).to(input.device)


def _refuse_ints(name: str, self: Tensor) -> None:
    if not is_floating(self):
        raise TypeError(f"{name}() needs a floating tensor, not {self._dtype_name}; tc.randint(low, high, t.shape) draws ints")


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with numbers of N(mean, std**2): PyTorch's, given the same seed."""
    _refuse_ints("normal_", self)
    all_of((real, "mean", mean), (not_negative, "std", std))
    return _fill_normal(self, mean, std, generator)


def uniform_(self: Tensor, low: float = 0.0, to: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with numbers of U(low, to): PyTorch's, given the same seed."""
    _refuse_ints("uniform_", self)
    all_of((real, "low", low), (real, "to", to))
    if not -math.inf < low <= to < math.inf:
        raise ValueError(f"uniform_() needs finite bounds, low at most to, got low={low}, to={to}")
    return _fill_uniform(self, low, to, generator)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills with 1 with the probability `p`, a number or an array that broadcasts to the tensor, and with 0 otherwise. The draws are those of
    ``tc.bernoulli``; for a number PyTorch takes others, of a library of Intel's."""
    if not isinstance(p, Tensor):
        p = _core.as_argument(np.asarray(p, np.float32) if isinstance(p, (bool, int, float)) else p, self)
    _check_written(self)
    return self.copy_(bernoulli(p.expand(self.shape), generator=generator).to(self.dtype))


METHODS |= {"bernoulli_": bernoulli_, "normal_": normal_, "uniform_": uniform_}


def _without_replacement(weights: Tensor, count: int, source: Any) -> Tensor:
    """The `count` shortest of waiting times, each exponential with its weight as the rate."""
    times = _core.neg(_core.log(_core.sub(1.0, source.uniform(weights.shape, 0.0, 1.0, "float64"))))
    times = _core.sub(_core.log(times), _core.log(weights))  # logarithms: those of tiny weights stay finite, that of 0 is infinite
    return topk(times, count, 1, largest=False).indices


def _with_replacement(weights: Tensor, count: int, source: Any) -> Tensor:
    """The first running sum that is above a uniform number."""
    if not weights.shape[0]:
        return _core.empty((0, count), np.int64)
    sums = _core.cumsum(weights, 1)
    drawn = _core.mul(source.uniform((weights.shape[0], count), 0.0, 1.0, "float64"), sums[:, -1:])
    rows = [np.searchsorted(s, d, side="right") for s, d in zip(np.asarray(sums), np.asarray(drawn), strict=True)]
    positive = np.asarray(_core.gt(weights, 0.0))
    last = weights.shape[1] - 1 - positive[:, ::-1].argmax(1)  # rounding may put a number beyond the last sum
    return _core.as_argument(np.minimum(np.stack(rows), last[:, None]).astype(np.int64))


__all__ = [
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "masked_select",
    "multinomial",
    "nonzero",
    "scatter",
    "scatter_add",
    "sort",
    "topk",
    "unique",
]
