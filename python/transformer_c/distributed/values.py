"""Arrays that the ranks exchange: called on all ranks, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arguments import one_of
from .._core import Tensor
from .._tensor import as_tensor
from .arrays import as_numbers
from .group import Group
from .sums import REDUCTIONS
from .world import group


def broadcast(x: Any, root: int = 0) -> Any:
    """The array of one rank.

    Parameters
    ----------
    x : ndarray or Tensor
        Of the same shape and dtype on all ranks; ranks other than `root` may pass None.
    root : int, default 0

    Returns
    -------
    ndarray or Tensor
        A copy, without a history; a Tensor where `x` is one, or where it is None and that of `root` is one.

    Raises
    ------
    ValueError
        On all ranks: shapes or dtypes differ, or there is no such rank.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.distributed.broadcast(np.arange(3))
    array([0, 1, 2])
    """
    ranks = group()
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < ranks.size:
        raise ValueError(f"root is {root!r}; expected a rank from 0 to {ranks.size - 1}")
    given = _Given("broadcast", x, is_optional=ranks.rank != root)
    descriptions = given.agree(ranks, root)
    array = given.array.copy() if x is not None else np.empty(descriptions[root].shape, descriptions[root].sent)
    ranks.broadcast(array, int(root))
    return given.like(array, descriptions[root])


def all_reduce(x: Any, op: str = "sum") -> Any:
    """The sum, mean or maximum over all ranks, element by element.

    Sums are in the order of the ranks, so that they are the same bits on all ranks and in every run with as many ranks. Half types are
    added in float32.

    Parameters
    ----------
    x : ndarray or Tensor
        Of the same shape and dtype on all ranks.
    op : {"sum", "mean", "max"}

    Returns
    -------
    ndarray or Tensor
        A new one, of the shape and dtype of `x`, without a history.

    Raises
    ------
    TypeError
        For the mean of integers and for sums of bools.
    ValueError
        On all ranks: shapes, dtypes or operations differ.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.distributed.all_reduce(tc.tensor([1.0, 2.0]), op="mean")
    tensor([1., 2.])
    """
    one_of("op", op, tuple(REDUCTIONS))
    ranks, given = group(), _Given("all_reduce", x)
    kind = given.array.dtype.kind
    if kind == "b" and op != "max":
        raise TypeError(f"all_reduce() of bools takes op='max', not {op!r}; convert them to integers to count them")
    if op == "mean" and kind in "iu":
        raise TypeError(f"all_reduce(op='mean') takes floating arrays, this one is {given.array.dtype}; convert it to float64 first")
    given.agree(ranks, 0, op)
    array = given.array.astype(np.float32) if given.array.dtype == np.float16 else given.array
    total = ranks.all_reduce(array.reshape(-1), REDUCTIONS[op])
    if op == "mean":
        total /= ranks.size
    return given.like(total.astype(given.array.dtype, copy=False).reshape(array.shape))


def all_gather(x: Any) -> Any:
    """The arrays of all ranks, one after the other along a new first axis.

    Parameters
    ----------
    x : ndarray or Tensor
        Of the same shape and dtype on all ranks.

    Returns
    -------
    ndarray or Tensor (world_size, *shape)
        Without a history.

    Raises
    ------
    ValueError
        On all ranks: shapes or dtypes differ.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.distributed.all_gather(np.array([1, 2])).shape
    (1, 2)
    """
    ranks, given = group(), _Given("all_gather", x)
    given.agree(ranks, 0)
    return given.like(ranks.all_gather(given.array))


class _Given:
    """An argument: its values as a contiguous ndarray, and what the result is to be."""

    def __init__(self, function: str, x: Any, is_optional: bool = False) -> None:
        self.function, self.x, self.array = function, x, np.empty(0)
        if x is None and is_optional:
            return
        source = x
        if isinstance(x, Tensor):
            source = as_numbers(x).reshape(x.shape)
        elif not isinstance(x, (np.ndarray, np.generic, int, float)):
            raise TypeError(f"{function}() takes an ndarray or a Tensor, not {type(x).__name__}")
        self.array = np.ascontiguousarray(source).reshape(np.shape(source))
        if self.array.dtype.kind not in "biufc":
            raise TypeError(f"{function}() takes numbers, not an array of dtype {self.array.dtype}")

    def agree(self, ranks: Group, root: int, op: str = "") -> list[Any]:
        """What the ranks have; raises ValueError on all of them where it does not fit together."""
        own = None if self.x is None else _Description(self.function, op, self.array.shape, self.array.dtype, *self._kind())
        found = ranks.exchange(own)
        first = found[root]
        for other, description in enumerate(found):
            if description is not None and not first.fits(description):
                raise ValueError(
                    f"{self.function}() was called with {first} on rank {root} but with {description} on rank {other}; they must be equal"
                )
        return found

    def _kind(self) -> tuple[str, bool]:
        """The name of the dtype, and whether it is a Tensor's."""
        is_tensor = isinstance(self.x, Tensor)
        return (self.x.dtype.name if is_tensor else self.array.dtype.name), is_tensor

    def like(self, array: np.ndarray, root: _Description | None = None) -> Any:
        """`array` as a Tensor, where the argument is one or, without one, where root's is."""
        if isinstance(self.x, Tensor):
            return as_tensor(array).to(dtype=self.x.dtype, device=self.x.device)
        return as_tensor(array).to(dtype=root.dtype) if self.x is None and root is not None and root.is_tensor else array


@dataclass(frozen=True)
class _Description:
    """A call on one rank."""

    function: str
    op: str
    shape: tuple[int, ...]
    sent: np.dtype  # halves of Tensors are sent as float32
    dtype: str
    is_tensor: bool

    def fits(self, other: _Description) -> bool:
        return (self.function, self.op, self.shape, self.dtype) == (other.function, other.op, other.shape, other.dtype)

    def __str__(self) -> str:
        return f"{self.function}({self.dtype} {self.shape}{f', op={self.op!r}' if self.op else ''})"


__all__ = ["all_gather", "all_reduce", "broadcast"]
