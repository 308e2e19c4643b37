"""Tensors as arrays that ranks exchange."""

from __future__ import annotations

from collections.abc import Iterable

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
