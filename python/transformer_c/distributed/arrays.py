"""Tensors as arrays that ranks exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .._core import Tensor
from .._promotion import is_half
from .._tensor import as_tensor


def as_numbers(tensor: Tensor) -> np.ndarray:
    """The values of a Tensor as a flat array, halves in float32."""
    value = tensor.detach().cpu()
    return np.asarray(value.float() if is_half(value) else value.contiguous()).reshape(-1)


def memory_of(tensor: Tensor) -> np.ndarray | None:
    """The memory of a Tensor as a flat array to be written to; None of a GPU's, of halves, which are added in float32, and where NumPy gives none.

    Whoever writes there tells no graph of it: for gradients, not for weights.
    """
    if tensor.device != "cpu" or is_half(tensor) or not tensor.is_contiguous():
        return None
    memory = np.from_dlpack(tensor.detach().view(-1))
    return memory if memory.flags.writeable else None  # NumPy before 2.1 gives memory to be read


def assign(tensor: Tensor, array: np.ndarray) -> None:
    """Overwrites a Tensor with the values of a flat array."""
    tensor.copy_(as_tensor(array).view(tensor.shape).to(dtype=tensor.dtype, device=tensor.device))


def assign_parts(tensors: Iterable[Tensor], array: np.ndarray) -> None:
    """Overwrites Tensors with the values of a flat array, one after the other."""
    start = 0
    for tensor in tensors:
        assign(tensor, array[start : start + tensor.numel()])
        start += tensor.numel()


class Row:
    """Contiguous Tensors one after the other, of which pieces are read and written as flat arrays.

    Parameters
    ----------
    tensors : sequence of Tensor
        They may be none.
    like : Tensor
        One of the same dtype.
    """

    def __init__(self, tensors: Sequence[Tensor], like: Tensor) -> None:
        self.dtype = as_numbers(like.detach().view(-1)[:0]).dtype
        self._flat = [tensor.detach().view(-1) for tensor in tensors]
        self._ends = np.cumsum([0, *(tensor.numel() for tensor in tensors)])[1:]
        self.length = sum(tensor.numel() for tensor in tensors)

    def _pieces(self, first: int, last: int) -> Iterator[Tensor]:
        """What the elements from `first` to `last` are."""
        number = int(np.searchsorted(self._ends, first, side="right"))
        while first < last:
            end, flat = int(self._ends[number]), self._flat[number]
            begin, stop = first - (end - flat.numel()), min(last, end) - (end - flat.numel())
            if begin < stop:
                yield flat[begin:stop]
            first, number = max(first, end), number + 1

    def read(self, first: int, last: int) -> np.ndarray:
        """The elements from `first` to `last`, halves in float32; the memory of a Tensor, where they are one Tensor's."""
        found = [as_numbers(piece) for piece in self._pieces(int(first), int(last))]
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, self.dtype), *found])

    def write(self, first: int, array: np.ndarray) -> None:
        """Overwrites the elements from `first` on."""
        assign_parts(self._pieces(int(first), int(first) + array.size), array)
