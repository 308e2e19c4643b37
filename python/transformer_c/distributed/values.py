"""Arrays that the ranks exchange: called on all ranks, in the same order. Threads of a rank take turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arguments import one_of
from .._core import Tensor
from .._tensor import as_tensor
from .arrays import as_numbers
from .group import Group
from .sums import REDUCTIONS
from .world import group, turns


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
        On all ranks: shapes, dtypes or roots differ, or there is no such rank; or it failed on another rank, which has its own error.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.distributed.broadcast(np.arange(3))
    array([0, 1, 2])
    """
    with turns.held():
        ranks = group()
        given = _Given("broadcast", x, root=root)
        descriptions = given.agree(ranks, lambda: _check_root(root, x, ranks))
        array = given.array.copy() if x is not None else np.empty(descriptions[root].shape, descriptions[root].sent)
        ranks.broadcast(array, int(root))
        return given.like(array, descriptions[root])


def _check_root(root: Any, x: Any, ranks: Group) -> None:
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < ranks.size:
        raise ValueError(f"root is {root!r}; expected a rank from 0 to {ranks.size - 1}")
    if x is None and ranks.rank == root:
        raise TypeError("broadcast() takes an ndarray or a Tensor, not NoneType")


def all_reduce(x: Any, op: str = "sum") -> Any:
    """The sum, mean or maximum over all ranks, element by element.

    Sums are in the order of the ranks, so that they are the same bits on all ranks and in every run with as many ranks. Half types are
    added in float32. Integers are added in their own dtype, where sums that are too large wrap around, as NumPy's: ``200 + 100`` is 44 in uint8.

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
        On all ranks: shapes, dtypes or operations differ; or it failed on another rank, which has its own error.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.distributed.all_reduce(tc.tensor([1.0, 2.0]), op="mean")
    tensor([1., 2.])
    """
    with turns.held():
        ranks, given = group(), _Given("all_reduce", x, op=op)
        given.agree(ranks, lambda: _check_reduction(op, given.array.dtype))
        array = given.array.astype(np.float32) if given.array.dtype == np.float16 else given.array
        total = ranks.all_reduce(array.reshape(-1), REDUCTIONS[op])
        with np.errstate(all="ignore"):
            if op == "mean":
                total /= ranks.size
            total = total.astype(given.array.dtype, copy=False)
        return given.like(total.reshape(array.shape))


def _check_reduction(op: str, dtype: np.dtype) -> None:
    one_of("op", op, tuple(REDUCTIONS))
    if dtype.kind == "b" and op != "max":
        raise TypeError(f"all_reduce() of bools takes op='max', not {op!r}; convert them to integers to count them")
    if op == "mean" and dtype.kind in "iu":
        raise TypeError(f"all_reduce(op='mean') takes floating arrays, this one is {dtype}; convert it to float64 first")


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
        On all ranks: shapes or dtypes differ; or it failed on another rank, which has its own error.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.distributed.all_gather(np.array([1, 2])).shape
    (1, 2)
    """
    with turns.held():
        ranks, given = group(), _Given("all_gather", x)
        given.agree(ranks)
        return given.like(ranks.all_gather(given.array))


class _Given:
    """An argument: its values as a contiguous ndarray, and what the result is to be."""

    def __init__(self, function: str, x: Any, op: str = "", root: int = 0) -> None:
        self.function, self.x, self.op, self.root = function, x, op, root
        self.array: np.ndarray = np.empty(0)

    def _read(self) -> None:
        x, function = self.x, self.function
        source = x
        if isinstance(x, Tensor):
            source = as_numbers(x).reshape(x.shape)
        elif not isinstance(x, (np.ndarray, np.generic, int, float)):
            raise TypeError(f"{function}() takes an ndarray or a Tensor, not {type(x).__name__}")
        elif isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
            raise TypeError(f"{function}() takes arrays without a mask: send x.filled(0), and the mask as an array of its own")
        array = np.asarray(source)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{function}() takes numbers, not an array of dtype {array.dtype}")
        self.array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)

    def agree(self, ranks: Group, check: Callable[[], None] = lambda: None) -> list[Any]:
        """What the ranks have; raises on all of them where `check` fails on one, or where it does not fit together."""
        error, own = None, ""
        try:
            if self.x is not None or self.function != "broadcast":
                self._read()
            check()
        except Exception as failure:  # the others wait for this rank
            error, own = failure, f"{type(failure).__name__}: {failure}"
        found = ranks.exchange("a call of tc.distributed", own if error is not None else self._description())
        if error is not None:
            raise error
        for other, description in enumerate(found):
            if isinstance(description, str):
                raise ValueError(f"{self.function}() failed on rank {other}: {description}")
        for first, fits in ((0, _Call.is_as), (self.root, _Call.fits)):
            for other, description in enumerate(found):
                if not fits(found[first], description):
                    raise ValueError(
                        f"{self.function}() was called with {found[first]} on rank {first} but with {description} on rank {other}; "
                        "they must be equal"
                    )
        return found

    def _description(self) -> _Call:
        shape = None if self.x is None else self.array.shape
        return _Call(self.function, self.op, int(self.root), shape, self.array.dtype, *self._kind())

    def _kind(self) -> tuple[str, bool]:
        """The name of the dtype, and whether it is a Tensor's."""
        is_tensor = isinstance(self.x, Tensor)
        return (self.x.dtype.name if is_tensor else self.array.dtype.name), is_tensor

    def like(self, array: np.ndarray, root: _Call | None = None) -> Any:
        """`array` as a Tensor, where the argument is one or, without one, where root's is."""
        if isinstance(self.x, Tensor):
            return as_tensor(array).to(dtype=self.x.dtype, device=self.x.device)
        return as_tensor(array).to(dtype=root.dtype) if self.x is None and root is not None and root.is_tensor else array


@dataclass(frozen=True)
class _Call:
    """A call on one rank."""

    function: str
    op: str
    root: int
    shape: tuple[int, ...] | None  # None: no argument
    sent: np.dtype  # halves of Tensors are sent as float32
    dtype: str
    is_tensor: bool

    def is_as(self, other: _Call) -> bool:
        """Whether both are the same function with the same options."""
        return (self.function, self.op, self.root) == (other.function, other.op, other.root)

    def fits(self, other: _Call) -> bool:
        """Whether their arguments fit together."""
        return other.shape is None or (self.shape, self.dtype) == (other.shape, other.dtype)

    def __str__(self) -> str:
        argument = "None" if self.shape is None else f"{self.dtype} {self.shape}"
        options = (f", op={self.op!r}" if self.op else "") + (f", root={self.root}" if self.function == "broadcast" else "")
        return f"{self.function}({argument}{options})"


__all__ = ["all_gather", "all_reduce", "broadcast"]
