"""Convolutions: products of a kernel with all windows of sequences or images."""

from __future__ import annotations

import math

from .. import functional as F
from .._arguments import all_of, count, divisible, one_of
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from ..functional.convolution import convolve, per_axis, same_padding
from . import init
from .module import Module
from .parameter import uninitialised


class _Convolution(Module):
    """What Conv1d and Conv2d have in common."""

    _axes: int

    @explained({})
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        words = isinstance(padding, str)
        (
            self.in_channels,
            self.out_channels,
            self.groups,
            self.kernel_size,
            self.stride,
            self.dilation,
            self.padding,
            self.padding_mode,
            *_,
        ) = all_of(
            (count, "in_channels", in_channels),
            (count, "out_channels", out_channels),
            (count, "groups", groups),
            (per_axis, "kernel_size", kernel_size, self._axes, 1),
            (per_axis, "stride", stride, self._axes, 1),
            (per_axis, "dilation", dilation, self._axes, 1),
            (one_of, "padding", padding, ("same", "valid")) if words else (per_axis, "padding", padding, self._axes, 0),
            (one_of, "padding_mode", padding_mode, ("zeros", "reflect", "replicate", "circular")),
            (divisible, "in_channels", in_channels, "groups", groups),
            (divisible, "out_channels", out_channels, "groups", groups),
        )
        if padding == "same":
            same_padding(self.kernel_size, self.stride, self.dilation)
        self.weight = uninitialised(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype, device=device)
        self.register_parameter("bias", uninitialised(out_channels, dtype=dtype, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def _sides(self) -> list[int]:
        """How many elements `padding` adds, as ``functional.pad`` takes them."""
        if self.padding == "same":
            both = same_padding(self.kernel_size, self.stride, self.dilation)
        else:
            both = [(0, 0)] * self._axes if isinstance(self.padding, str) else [(n, n) for n in self.padding]
        return [n for pair in reversed(both) for n in pair]

    def forward(self, input: Tensor) -> Tensor:
        """Maps (B, in_channels, ...), or one sample without B, to (B, out_channels, ...)."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """With other weights, for subclasses, as in PyTorch."""
        x = cast_input(input, weight, type(self).__name__)
        zeros = self.padding_mode == "zeros"
        if not zeros:
            x = F.pad(x, self._sides(), mode=self.padding_mode)
        return convolve(self._axes, x, weight, bias, self.stride, self.padding if zeros else 0, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ones = (1,) * self._axes
        for name, usual in (("padding", (0,) * self._axes), ("dilation", ones), ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class Conv1d(_Convolution):
    """Products of a kernel with all windows of sequences; see ``functional.conv1d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int
    padding : int or {"valid", "same"}, default 0
    groups : int, default 1
        Divides both numbers of channels.
    bias : bool, default True
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        What `padding` adds.

    Attributes
    ----------
    weight : Parameter, shape (out_channels, in_channels / groups, kernel_size)
        Initially U(-1/sqrt(n), 1/sqrt(n)), where n is the number of elements of a window, drawn as in PyTorch.
    bias : Parameter, shape (out_channels,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> spectrum = np.zeros((2, 80, 100), np.float32)  # samples, channels, positions
    >>> tc.nn.Conv1d(80, 16, kernel_size=3, stride=2, padding=1)(spectrum).shape
    (2, 16, 50)
    """

    _axes = 1


class Conv2d(_Convolution):
    """Products of a kernel with all windows of images; see ``functional.conv2d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or pair of int
    padding : int, pair of int or {"valid", "same"}, default 0
    groups : int, default 1
        Divides both numbers of channels.
    bias : bool, default True
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        What `padding` adds.

    Attributes
    ----------
    weight : Parameter, shape (out_channels, in_channels / groups, *kernel_size)
        Initially U(-1/sqrt(n), 1/sqrt(n)), where n is the number of elements of a window, drawn as in PyTorch.
    bias : Parameter, shape (out_channels,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> images = np.zeros((2, 3, 32, 32), np.float32)
    >>> tc.nn.Conv2d(3, 64, kernel_size=8, stride=8)(images).shape  # patches
    (2, 64, 4, 4)
    """

    _axes = 2
