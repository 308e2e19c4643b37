"""Layers without parameters over windows of sequences and images."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from .._arguments import count, switch
from .._core import Tensor
from ..functional.convolution import per_axis
from .module import Module

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d", "Unfold"]


class _Options(Module):
    """Calls a function with the arguments that its class was made with."""

    _axes: int
    _shown: tuple[str, ...]

    def _check(self, **given: Any) -> None:
        """Raises the errors of the function for its options already when the layer is made."""
        for name, value in given.items():
            if value is not None:
                per_axis(name, value, self._axes, 0 if name == "padding" else 1)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPool(_Options):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices: bool = False, ceil_mode: bool = False) -> None:
        super().__init__()
        self._check(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            kernel_size,
            kernel_size if stride is None else stride,
            padding,
            dilation,
        )
        self.return_indices, self.ceil_mode = switch("return_indices", return_indices), switch("ceil_mode", ceil_mode)

    def _arguments(self) -> tuple[Any, ...]:
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices


class MaxPool1d(_MaxPool):
    """The largest element of each window of sequences; see ``functional.max_pool1d``.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int
        `stride` is `kernel_size` by default.
    return_indices, ceil_mode : bool, default False

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.MaxPool1d(2)(np.array([[[1.0, 4.0, 2.0, 3.0]]]))
    array([[[4., 3.]]])
    """

    _axes = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.max_pool1d(input, *self._arguments())


class MaxPool2d(_MaxPool):
    """The largest element of each window of images; see ``functional.max_pool2d``.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or pair of int
        `stride` is `kernel_size` by default.
    return_indices, ceil_mode : bool, default False

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.MaxPool2d(2)(np.zeros((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    _axes = 2

    def forward(self, input: Tensor) -> Tensor:
        return F.max_pool2d(input, *self._arguments())


class AvgPool1d(_Options):
    """The mean of each window of sequences; see ``functional.avg_pool1d``.

    Parameters
    ----------
    kernel_size, stride, padding : int
        `stride` is `kernel_size` by default.
    ceil_mode : bool, default False
    count_include_pad : bool, default True

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.AvgPool1d(2)(np.array([[[1.0, 4.0, 2.0, 3.0]]]))
    array([[[2.5, 2.5]]])
    """

    _axes = 1
    _shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__()
        self._check(kernel_size=kernel_size, stride=stride, padding=padding)
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad = switch("ceil_mode", ceil_mode), switch("count_include_pad", count_include_pad)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(AvgPool1d):
    """The mean of each window of images; see ``functional.avg_pool2d``.

    Parameters
    ----------
    kernel_size, stride, padding : int or pair of int
        `stride` is `kernel_size` by default.
    ceil_mode : bool, default False
    count_include_pad : bool, default True
    divisor_override : int, optional

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.AvgPool2d(2)(np.zeros((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    _axes = 2

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = None if divisor_override is None else count("divisor_override", divisor_override)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override
        )


class AdaptiveAvgPool1d(_Options):
    """Means of `output_size` equal parts of sequences; see ``functional.adaptive_avg_pool1d``.

    Parameters
    ----------
    output_size : int

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.AdaptiveAvgPool1d(2)(np.array([[[1.0, 4.0, 2.0, 3.0]]]))
    array([[[2.5, 2.5]]])
    """

    _axes = 1
    _shown = ("output_size",)

    def __init__(self, output_size) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * self._axes
        if len(sizes) != self._axes:
            raise ValueError(f"output_size must be an int or have one for each of {self._axes} axes, got {output_size!r:.80}")
        for size in sizes:
            self._check(output_size=size)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(AdaptiveAvgPool1d):
    """Means of equal parts of images; see ``functional.adaptive_avg_pool2d``.

    Parameters
    ----------
    output_size : int or pair of int or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.AdaptiveAvgPool2d(1)(np.zeros((1, 3, 8, 8))).shape
    (1, 3, 1, 1)
    """

    _axes = 2

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class Unfold(_Options):
    """The windows of images as columns; see ``functional.unfold``.

    Parameters
    ----------
    kernel_size, dilation, padding, stride : int or pair of int

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.Unfold(4, stride=4)(np.zeros((1, 3, 8, 8))).shape
    (1, 48, 4)
    """

    _axes = 2
    _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1) -> None:
        super().__init__()
        self._check(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
