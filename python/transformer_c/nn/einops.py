"""einops for Tensors: once this module is imported, the functions of the package einops take them, with gradients.

Examples
--------
>>> import einops, transformer_c as tc, transformer_c.nn.einops
>>> einops.rearrange(tc.zeros(2, 3, 4), "b t (h d) -> b h t d", h=2).shape
(2, 2, 3, 2)
"""

from __future__ import annotations

from typing import Any

try:
    import einops
    from einops._backends import AbstractBackend  # einops asks its subclasses whose tensors they know
except ImportError as error:
    raise ImportError("tc.nn.einops needs the package einops: pip install 'transformer_c[einops]', or pip install einops") from error

from .._core import Tensor
from .._joining import cat, stack
from .._tensor import arange, as_tensor
from ..tensor_functions.products import einsum
from .module import Module

__all__ = ["Rearrange", "Reduce"]


class _Backend(AbstractBackend):
    framework_name = "transformer_c"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return as_tensor(x)

    def to_numpy(self, x: Any) -> Any:
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def transpose(self, x: Any, axes: Any) -> Tensor:
        return x.permute(axes)

    def reduce(self, x: Any, operation: str, axes: Any) -> Tensor:
        if operation in ("prod", "any", "all"):  # one axis at a time
            for axis in sorted(axes, reverse=True):
                x = getattr(x, operation)(axis)
            return x
        return getattr(x, {"max": "amax", "min": "amin"}.get(operation, operation))(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list) -> Tensor:
        return stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        lengths = [-1] * n_axes
        for position, length in sorted(pos2len.items()):
            x = x.unsqueeze(position)
            lengths[position] = length
        return x.expand(lengths)

    def tile(self, x: Any, repeats: Any) -> Tensor:
        return x.repeat(repeats)

    def concat(self, tensors: Any, axis: int) -> Tensor:
        return cat(tensors, axis)

    def is_float_type(self, x: Any) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Any) -> Tensor:
        return einsum(pattern, *x)


class Rearrange(Module):
    """``einops.rearrange`` as a layer, for ``nn.Sequential``.

    Parameters
    ----------
    pattern : str
    **axes_lengths : int

    Examples
    --------
    >>> import transformer_c as tc, transformer_c.nn.einops
    >>> tc.nn.einops.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)(tc.zeros(1, 3, 4, 4)).shape
    (1, 4, 12)
    """

    def __init__(self, pattern: str, **axes_lengths: int) -> None:
        super().__init__()
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def forward(self, input: Tensor) -> Tensor:
        """`input` in the order of the pattern."""
        return einops.rearrange(input, self.pattern, **self.axes_lengths)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.pattern), *(f"{k}={v}" for k, v in self.axes_lengths.items())])


class Reduce(Module):
    """``einops.reduce`` as a layer.

    Parameters
    ----------
    pattern : str
    reduction : {"mean", "sum", "max", "min", "prod"}
    **axes_lengths : int

    Examples
    --------
    >>> import transformer_c as tc, transformer_c.nn.einops
    >>> tc.nn.einops.Reduce("b t e -> b e", "mean")(tc.zeros(2, 3, 4)).shape
    (2, 4)
    """

    def __init__(self, pattern: str, reduction: str, **axes_lengths: int) -> None:
        super().__init__()
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, axes_lengths

    def forward(self, input: Tensor) -> Tensor:
        """`input` reduced to the axes of the pattern."""
        return einops.reduce(input, self.pattern, self.reduction, **self.axes_lengths)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.pattern), repr(self.reduction), *(f"{k}={v}" for k, v in self.axes_lengths.items())])
