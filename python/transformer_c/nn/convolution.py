"""Convolutions: products of a kernel with all windows of sequences, images or volumes; and transposed ones."""

from __future__ import annotations

import math

from .. import functional as F
from .._arguments import all_of, count, divisible, one_of
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from ..functional.convolution import check_ranks, convolve, convolve_transposed, per_axis, same_padding
from . import init
from .module import Module
from .parameter import uninitialised


class _Windows(Module):
    """What all have in common."""

    _axes: int
    weight: Tensor
    bias: Tensor | None

    def _create(self, channels: tuple[int, int], outputs: int, bias: bool, dtype, device) -> None:
        """The parameters, once the options are known."""
        self.weight = uninitialised(*channels, *self.kernel_size, dtype=dtype, device=device)
        self.register_parameter("bias", uninitialised(outputs, dtype=dtype, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self._axes, (1,) * self._axes
        for name, usual in (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1)):
            if getattr(self, name, usual) != usual:
                text += f", {name}={getattr(self, name)}"
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class _Convolution(_Windows):
    """What Conv1d, Conv2d and Conv3d have in common."""

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
        self._create((out_channels, in_channels // groups), out_channels, bias, dtype, device)

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


class _TransposedConvolution(_Windows):
    """What ConvTranspose1d, ConvTranspose2d and ConvTranspose3d have in common."""

    @explained({})
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups: int = 1,
        bias: bool = True,
        dilation=1,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        (
            self.in_channels,
            self.out_channels,
            self.groups,
            self.kernel_size,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.padding_mode,
            *_,
        ) = all_of(
            (count, "in_channels", in_channels),
            (count, "out_channels", out_channels),
            (count, "groups", groups),
            (per_axis, "kernel_size", kernel_size, self._axes, 1),
            (per_axis, "stride", stride, self._axes, 1),
            (per_axis, "padding", padding, self._axes, 0),
            (per_axis, "output_padding", output_padding, self._axes, 0),
            (per_axis, "dilation", dilation, self._axes, 1),
            (one_of, "padding_mode", padding_mode, ("zeros",)),
            (divisible, "in_channels", in_channels, "groups", groups),
            (divisible, "out_channels", out_channels, "groups", groups),
        )
        self._create((in_channels, out_channels // groups), out_channels, bias, dtype, device)

    def forward(self, input: Tensor, output_size=None) -> Tensor:
        """Maps (B, in_channels, ...), or one sample without B, to (B, out_channels, ...); of the axes `output_size`, if it is given."""
        x = cast_input(input, self.weight, type(self).__name__)
        more = self.output_padding if output_size is None else self._more_for(x, output_size)
        return convolve_transposed(self._axes, x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _more_for(self, x: Tensor, output_size) -> tuple[int, ...]:
        """The output_padding with which the result has these axes."""
        axes = self._axes
        check_ranks(type(self).__name__, axes, x, self.weight)
        if isinstance(output_size, (tuple, list)) and len(output_size) == x.ndim:
            output_size = tuple(output_size[-axes:])
        wanted = per_axis("output_size", output_size, axes, 0)
        least = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(x.shape[-axes:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        )
        more = tuple(w - n for w, n in zip(wanted, least, strict=True))
        if any(not 0 <= m < s for m, s in zip(more, self.stride, strict=True)):
            most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
            raise ValueError(f"output_size is {wanted}; with input {tuple(x.shape)} it must be from {least} to {most}")
        return more


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


class Conv3d(_Convolution):
    """Products of a kernel with all windows of volumes, or of films; see ``functional.conv3d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or three of int
    padding : int or three of int or {"valid", "same"}, default 0
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
    >>> film = np.zeros((2, 3, 8, 32, 32), np.float32)  # samples, colours, time, height, width
    >>> tc.nn.Conv3d(3, 64, kernel_size=(2, 8, 8), stride=(2, 8, 8))(film).shape  # "tubelets"
    (2, 64, 4, 4, 4)
    """

    _axes = 3


class ConvTranspose1d(_TransposedConvolution):
    """Each element of sequences times a kernel, added up where these overlap; see ``functional.conv_transpose1d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, output_padding, dilation : int
    groups : int, default 1
        Divides both numbers of channels.
    bias : bool, default True
    padding_mode : {"zeros"}

    Attributes
    ----------
    weight : Parameter, shape (in_channels, out_channels / groups, kernel_size)
        Initially U(-1/sqrt(n), 1/sqrt(n)), where n is out_channels / groups times the elements of a kernel, drawn as in PyTorch.
    bias : Parameter, shape (out_channels,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.ConvTranspose1d(16, 8, kernel_size=4, stride=2, padding=1)(np.zeros((2, 16, 50), np.float32)).shape
    (2, 8, 100)
    """

    _axes = 1


class ConvTranspose2d(_TransposedConvolution):
    """Each element of images times a kernel, added up where these overlap; see ``functional.conv_transpose2d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, output_padding, dilation : int or pair of int
    groups : int, default 1
        Divides both numbers of channels.
    bias : bool, default True
    padding_mode : {"zeros"}

    Attributes
    ----------
    weight : Parameter, shape (in_channels, out_channels / groups, *kernel_size)
        Initially U(-1/sqrt(n), 1/sqrt(n)), where n is out_channels / groups times the elements of a kernel, drawn as in PyTorch.
    bias : Parameter, shape (out_channels,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> patches = np.zeros((2, 64, 4, 4), np.float32)
    >>> tc.nn.ConvTranspose2d(64, 3, kernel_size=8, stride=8)(patches).shape  # an image again
    (2, 3, 32, 32)
    >>> half = tc.nn.Conv2d(3, 8, 3, stride=2, padding=1)(np.zeros((1, 3, 16, 16), np.float32))
    >>> tc.nn.ConvTranspose2d(8, 3, 3, stride=2, padding=1)(half, output_size=(16, 16)).shape
    (1, 3, 16, 16)
    """

    _axes = 2


class ConvTranspose3d(_TransposedConvolution):
    """Each element of volumes times a kernel, added up where these overlap; see ``functional.conv_transpose3d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, output_padding, dilation : int or three of int
    groups : int, default 1
        Divides both numbers of channels.
    bias : bool, default True
    padding_mode : {"zeros"}

    Attributes
    ----------
    weight : Parameter, shape (in_channels, out_channels / groups, *kernel_size)
        Initially U(-1/sqrt(n), 1/sqrt(n)), where n is out_channels / groups times the elements of a kernel, drawn as in PyTorch.
    bias : Parameter, shape (out_channels,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.ConvTranspose3d(4, 2, kernel_size=2, stride=2)(np.zeros((1, 4, 2, 3, 3), np.float32)).shape
    (1, 2, 4, 6, 6)
    """

    _axes = 3
