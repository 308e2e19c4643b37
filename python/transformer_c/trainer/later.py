"""Numbers of a step that are on a GPU, read together: each copy to the host waits for all work before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from .._core import Tensor
from .._joining import cat


@dataclass
class Later:
    """What a step logs while its numbers are not read: what takes each number, and the number or the Tensor that has it.

    In a step that is captured the Tensors are all that is known, and nothing that the host knows alone is taken.
    """

    is_captured: bool
    entries: list[tuple[Callable[[float], None], Tensor | float]] = field(default_factory=list)

    def takes(self, value: Any) -> bool:
        """Whether ``tensor_of`` is for this value."""
        return self.is_captured or (is_on_gpu(value) and value.numel() == 1)

    def tensor_of(self, name: str, value: Any) -> Tensor:
        """A value that is logged under this name, as it is now."""
        if not is_on_gpu(value):
            what = "a Tensor on the CPU" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise TypeError(
                f"log({name!r}) got {what} in a step that Trainer(graph=True) captures, and each repetition would log the same; log it in "
                "on_train_batch_end(), or as a Tensor of the GPU that the step computes"
            )
        if value.numel() != 1:
            raise ValueError(f"log({name!r}) takes a number or a Tensor of one element, not this one of shape {tuple(value.shape)}")
        return value.detach().clone()

    def take(self) -> list[tuple[Callable[[float], None], Tensor | float]]:
        """The entries, which are then no longer here."""
        taken, self.entries = self.entries, []
        return taken


def is_on_gpu(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a Tensor on a GPU."""
    return isinstance(value, Tensor) and value.device != "cpu"


def joined(values: Sequence[Tensor]) -> Tensor:
    """Tensors of one element, on one device, in one array: of their dtype, or float64 where they have several."""
    flat = [value.detach().reshape(1) for value in values]
    return cat(flat if len({value.dtype for value in flat}) == 1 else [value.to("float64") for value in flat])


def numbers_of(values: Sequence[Tensor | float]) -> list[float]:
    """Numbers and the elements of Tensors of one element, by one copy from each GPU."""
    numbers, by_device = [math.nan] * len(values), dict[str, list[tuple[int, Tensor]]]()
    for i, value in enumerate(values):
        if is_on_gpu(value) and value.numel() == 1:
            by_device.setdefault(value.device, []).append((i, value))
        else:
            numbers[i] = float(value)
    for found in by_device.values():
        for (i, _), number in zip(found, joined([value for _, value in found]).tolist(), strict=True):
            numbers[i] = float(number)
    return numbers


__all__ = ["Later", "is_on_gpu", "joined", "numbers_of"]
