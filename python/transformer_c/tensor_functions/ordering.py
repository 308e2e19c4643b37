"""Elements in order: sorted, the largest, the different ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._arguments import integer, one_axis
from .._promotion import widened
from ._calls import axis_of, takes_arrays, to_arrays
from .reductions import ValuesAndIndices


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
    along = axis_of("dim", input.ndim, one_axis(axis, dim, -1))
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
    along = axis_of("dim", input.ndim, one_axis(axis, dim, -1))
    k = integer("k", k)
    length = input.shape[along] if input.ndim else 1
    if not 0 <= k <= length:
        raise ValueError(f"k is {k}; axis {along} has {length} elements (input {input.shape})")
    if input.ndim == 0 and k == 0:
        raise ValueError("k is 0; a tensor without axes has one element")
    indices = _core.argsort(input.detach(), along if input.ndim else -1, bool(largest), first=k)
    return ValuesAndIndices(_core.gather(input, along if input.ndim else -1, indices), indices)


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
    if not isinstance(sorted, (bool, np.bool_)):
        raise TypeError(f"sorted must be a bool, got {sorted!r}; an axis is given by name: unique(x, dim=...)")
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


__all__ = ["sort", "topk", "unique"]
