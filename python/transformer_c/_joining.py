"""Joining Tensors, products of matrices and parts of them: what all layers above use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core
from ._arguments import one_axis
from ._core import Tensor
from ._frames import numbers_of


def _joined(join: Callable, tensors: Any, axis: int | None, dim: int | None):
    if isinstance(dim, (Tensor, np.ndarray)):
        raise TypeError("the arrays go into one list: cat([a, b]), stack([a, b])")
    return join(tensors, one_axis(axis, dim, 0))


def cat(tensors: Sequence[Any], dim: int | None = None, *, axis: int | None = None):
    """Joins arrays along an axis.

    Parameters
    ----------
    tensors : sequence of array_like
        Arrays of equal shape except along axis `dim`; the result has their promoted dtype.
    dim, axis : int, default 0
        Two names of one argument.

    Returns
    -------
    Tensor or ndarray

    Raises
    ------
    ValueError
        When there are no arrays, or their shapes do not match.
    IndexError
        When the axis does not exist.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.cat([np.zeros((1, 2)), np.ones((2, 2))]).shape
    (3, 2)
    """
    return _joined(_core.cat, tensors, axis, dim)


concat = concatenate = cat


def stack(tensors: Sequence[Any], dim: int | None = None, *, axis: int | None = None):
    """Joins arrays of one shape along a new axis. Parameters as for ``cat``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.stack([np.zeros(3), np.ones(3)], dim=1).shape
    (3, 2)
    """
    return _joined(_core.stack, tensors, axis, dim)


def matmul(input, other):
    """The matrix product by NumPy's rules: leading axes broadcast, 1-D arguments are a row or a column.

    Parameters
    ----------
    input : array_like, shape (..., M, K)
    other : array_like, shape (..., K, N)

    Returns
    -------
    Tensor or ndarray, shape (..., M, N)

    Raises
    ------
    ValueError
        When the two K differ, or leading axes do not broadcast.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.matmul(np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    return _core.matmul(input, other)


def where(condition, input=None, other=None):
    """`input` where `condition` is true, `other` elsewhere; with the condition alone, the indices where it is true.

    Parameters
    ----------
    condition : array_like of bool
    input, other : array_like, optional
        All three broadcast.

    Returns
    -------
    Tensor or ndarray, or a tuple of int64 index arrays, one per axis of `condition`, whose length the host reads from a GPU

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.where(np.array([True, False]), 1.0, np.array([5.0, 6.0]))
    array([1., 6.])
    >>> tc.where(tc.tensor([3, 9, 4]) != 9)[0]
    tensor([0, 2])
    """
    if input is None and other is None:
        found = _core.nonzero(condition)
        return tuple(found[:, axis] for axis in range(found.shape[1]))
    if input is None or other is None:
        raise TypeError("where() takes a condition alone, or a condition and two values")
    return _core.where(condition, input, other)


def triu(input, diagonal: int = 0):
    """The upper triangle of the last two axes; zero below diagonal number `diagonal` (0 is the main diagonal; positive ones are above it).

    Parameters
    ----------
    input : array_like, shape (..., M, N)
    diagonal : int

    Returns
    -------
    Tensor or ndarray, shape (..., M, N)

    Raises
    ------
    ValueError
        For fewer than two axes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    return _core.triu(input, diagonal)


def tril(input, diagonal: int = 0):
    """The lower triangle of the last two axes; zero above diagonal number `diagonal`. Parameters as for ``triu``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    return _core.tril(input, diagonal)


def flip(input, dims: int | Sequence[int]):
    """Reverses the order of the elements along the given axes.

    Parameters
    ----------
    input : array_like
    dims : int or sequence of int

    Returns
    -------
    Tensor or ndarray
        A copy; ``x[::-1]`` is a view.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.flip(np.arange(3), dims=(0,))
    array([2, 1, 0])
    """
    if isinstance(input, Tensor):
        return input.flip(dims)
    return _core.take_array(_core.as_argument(numbers_of(input, "input")).flip(dims))


__all__ = [
    "cat",
    "concat",
    "concatenate",
    "flip",
    "matmul",
    "stack",
    "tril",
    "triu",
    "where",
]
