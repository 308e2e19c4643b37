"""Windows of sequences and images: their largest elements, their means, and their elements as columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .._arguments import all_of, count, switch
from .._core import Tensor
from .._promotion import is_floating, rounds_once
from ..tensor_functions._calls import takes_arrays
from .convolution import per_axis, shape_of
from .resizing import interpolate

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "unfold"]

_FEW = 8  # elements of a window that are added one after the other


class _Windows:
    """The windows along one axis of a length: where they begin, and how far they reach beyond its ends."""

    def __init__(self, length: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> None:
        self.kernel, self.stride, self.padding, self.dilation, self.length = kernel, stride, padding, dilation, length
        self.reach = dilation * (kernel - 1) + 1
        span = length + 2 * padding - self.reach
        self.count = -(-span // stride) + 1 if ceil else span // stride + 1
        if ceil and (self.count - 1) * stride >= length + padding:
            self.count -= 1  # a window that would begin after the end
        self.after = max((self.count - 1) * stride + self.reach - length - padding, 0) if ceil else padding

    def elements(self, x: Any, axis: int) -> list[Any]:
        """The first elements of all windows, the second ones, and so on; `axis` is negative."""
        span = (self.count - 1) * self.stride + 1
        places = [slice(start, start + span, self.stride) for start in range(0, self.reach, self.dilation)]
        return [x[(..., place) + (slice(None),) * (-axis - 1)] for place in places]

    def sums(self, x: Tensor, axis: int) -> Tensor:
        """The sum of each window's elements; `axis` is negative."""
        if self.kernel > _FEW and (self.count == 1 or self.stride == self.kernel):
            joint = x[(..., slice(0, self.count * self.kernel)) + (slice(None),) * (-axis - 1)]
            return joint.unflatten(axis, (self.count, self.kernel)).sum(axis)
        total, *others = self.elements(x, axis)
        for other in others:
            total = _core.add(total, other)
        return total

    def sizes(self, count_include_pad: bool) -> np.ndarray:
        """How many elements of each window count for its mean."""
        first = np.arange(self.count) * self.stride - self.padding
        if count_include_pad:
            return np.minimum(first + self.kernel, self.length + self.padding) - first
        return np.minimum(first + self.kernel, self.length) - np.maximum(first, 0)


def _refuse_too_long(name: str, windows: list[_Windows], x: Tensor) -> None:
    if any(w.count < 1 for w in windows):
        reach, padding = (tuple(getattr(w, of) for w in windows) for of in ("reach", "padding"))
        raise ValueError(f"{name}: windows of {reach} are longer than input of shape {tuple(x.shape)} with padding {padding} on each side")


def _windows(name: str, axes: int, x: Tensor, kernel_size, stride, padding, dilation, ceil_mode) -> list[_Windows]:
    """Those of the last `axes` axes of x."""
    kernel, padding, dilation, ceil_mode, steps = all_of(
        (per_axis, "kernel_size", kernel_size, axes, 1),
        (per_axis, "padding", padding, axes, 0),
        (per_axis, "dilation", dilation, axes, 1),
        (switch, "ceil_mode", ceil_mode),
        (per_axis, "stride", 1 if stride is None else stride, axes, 1),
    )
    steps = kernel if stride is None else steps
    if x.ndim not in (axes + 1, axes + 2):
        raise ValueError(f"{name} takes input of shape {shape_of(axes)}, or without samples; got shape {tuple(x.shape)}")
    found = [_Windows(*of_axis, ceil_mode) for of_axis in zip(x.shape[-axes:], kernel, steps, padding, dilation, strict=True)]
    if any(2 * w.padding > w.reach for w in found):
        raise ValueError(f"padding must be at most half of a window, got padding {padding} and windows of {tuple(w.reach for w in found)}")
    if not all(w.length for w in found):
        raise ValueError(f"{name} needs an element on each axis that has windows, got input of shape {tuple(x.shape)}")
    _refuse_too_long(name, found, x)
    return found


def _refuse_integers(name: str, x: Tensor) -> None:
    if not is_floating(x):
        raise TypeError(f"{name} takes floats, got {x._dtype_name}; convert input with .float()")


def _padded(x: Tensor, windows: list[_Windows], value: float) -> Tensor:
    sides = [n for w in reversed(windows) for n in (w.padding, w.after)]
    return _core.pad(x, sides, value) if any(sides) else x


def _max_pool(axes: int, input: Tensor, kernel_size, stride, padding, dilation, ceil_mode, return_indices) -> Any:
    """Of equal elements of a window the first one stays, row by row, and gets the gradient, as in PyTorch; NaN is above all."""
    return_indices = switch("return_indices", return_indices)
    if input._dtype_name == "bool":
        raise TypeError(f"max_pool{axes}d takes numbers, got bool; convert input with .float(), or use amax")
    windows = _windows(f"max_pool{axes}d", axes, input, kernel_size, stride, padding, dilation, ceil_mode)
    x = _padded(input, windows, -math.inf if is_floating(input) else float(np.iinfo(input.dtype).min))
    plane = input.shape[-axes:]
    places = _padded(_core.as_argument(np.arange(math.prod(plane)).reshape(plane), x), windows, 0) if return_indices else None
    sides, beside = [(w.padding, w.after) for w in windows], None
    if any(map(any, sides)) and not _core.is_traced():  # another place, not another value, and so not for a graph of any length
        beside = np.pad(np.zeros(plane, bool), sides, constant_values=True)  # what is padding
    for axis in range(-1, -axes - 1, -1):
        x, *others = windows[axis].elements(x, axis)
        if beside is not None:
            beside, *others_beside = windows[axis].elements(beside, axis)
        if places is not None:
            places, *other_places = windows[axis].elements(places, axis)
        for k, other in enumerate(others):
            later = _core.logical_or(_core.gt(other, x), _core.ne(other, other))
            if beside is not None:
                if (instead := beside & ~others_beside[k]).any():  # an element may be as small as padding
                    later = _core.logical_or(later, _core.as_argument(instead, x))
                beside = beside & others_beside[k]
            x = _core.where(later, other, x)
            if places is not None:
                places = _core.where(later, other_places[k], places)
    return x if places is None else (x, places.expand(x.shape).clone())


def _avg_pool(axes: int, input: Tensor, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None) -> Tensor:
    count_include_pad = switch("count_include_pad", count_include_pad)
    divisor = None if divisor_override is None else count("divisor_override", divisor_override)
    _refuse_integers(f"avg_pool{axes}d", input)
    windows = _windows(f"avg_pool{axes}d", axes, input, kernel_size, stride, padding, 1, ceil_mode)
    x = _padded(input, windows, 0.0)
    for axis in range(-1, -axes - 1, -1):
        x = windows[axis].sums(x, axis)
    if divisor is None:
        sizes = np.ones(())
        for w in windows:
            sizes = np.multiply.outer(sizes, w.sizes(count_include_pad))
        if (sizes != sizes.flat[0]).any():
            return _core.div(x, _core.as_argument(sizes, x).to(x._dtype_name))
        divisor = int(sizes.flat[0])
    return _core.div(x, divisor)


@takes_arrays("input", method=False)
def max_pool1d(input: Any, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of sequences.

    Parameters
    ----------
    input : array_like, shape (B, C, L) or (C, L)
        Channels before positions: for (B, T, C) pass ``x.swapaxes(1, 2)``.
    kernel_size : int
        The length of a window.
    stride : int, optional
        Distance of neighbouring windows; by default they do not overlap.
    padding : int, default 0
        At most half of a window on both sides, which is never the largest.
    dilation : int, default 1
        Distance of neighbouring elements of a window.
    ceil_mode : bool, default False
        Whether a last window may end after the padding.
    return_indices : bool, default False
        Whether to return where these elements are as well.

    Returns
    -------
    Tensor or ndarray, shape (B, C, (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1)
        Of equal elements the first one gets the gradient. NaN counts as the largest.
    Tensor or ndarray of int64 of the same shape
        With `return_indices`: places in the sequence, or in ``image.ravel()``.

    Raises
    ------
    ValueError
        Where no window fits, or `padding` is more than half of one.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.max_pool1d(np.array([[[1.0, 4.0, 2.0, 3.0]]]), 2)
    array([[[4., 3.]]])
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@takes_arrays("input", method=False)
def max_pool2d(input: Any, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of images.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    kernel_size, stride, padding, dilation : int or pair of int
    ceil_mode, return_indices : bool, default False
        All as for ``max_pool1d``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.max_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2)
    array([[[[ 5.,  7.],
             [13., 15.]]]])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@takes_arrays("input", method=False)
@rounds_once
def avg_pool1d(input: Any, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True) -> Any:
    """The mean of each window of sequences.

    Parameters
    ----------
    input : array_like, shape (B, C, L) or (C, L)
    kernel_size, stride, padding, ceil_mode
        As for ``max_pool1d``; `padding` adds zeros.
    count_include_pad : bool, default True
        Whether these zeros count.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.avg_pool1d(np.array([[[1.0, 4.0, 2.0, 3.0]]]), 2)
    array([[[2.5, 2.5]]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


@takes_arrays("input", method=False)
@rounds_once
def avg_pool2d(
    input: Any,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of images.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    kernel_size, stride, padding : int or pair of int
    ceil_mode, count_include_pad
        All as for ``avg_pool1d``.
    divisor_override : int, optional
        What sums are divided by, instead of the number of elements.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.avg_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2)
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]])
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _adaptive_avg_pool(axes: int, x: Tensor, output_size) -> Tensor:
    name = f"adaptive_avg_pool{axes}d"
    if x.ndim not in (axes + 1, axes + 2):
        raise ValueError(f"{name} takes input of shape {shape_of(axes)}, or without samples; got shape {tuple(x.shape)}")
    _refuse_integers(name, x)
    lengths = x.shape[-axes:]
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * axes
    if len(given) != axes:
        raise ValueError(f"output_size must be an int or have one for each of {axes} axes, got {output_size!r:.80}")
    sizes = [length if size is None else count("output_size", size) for size, length in zip(given, lengths, strict=True)]
    if not all(lengths):
        raise ValueError(f"input has shape {tuple(x.shape)}; {name} needs an element on each axis that it averages")
    if all(size == 1 for size in sizes):
        return _core.mean(x, list(range(-axes, 0)), True)
    if not any(length % size for length, size in zip(lengths, sizes, strict=True)):
        return _avg_pool(axes, x, [length // size for length, size in zip(lengths, sizes, strict=True)], None, 0, False, True)
    y = interpolate(x if x.ndim == axes + 2 else x[None], sizes, mode="area")
    return y if x.ndim == axes + 2 else y[0]


@takes_arrays("input", method=False)
@rounds_once
def adaptive_avg_pool1d(input: Any, output_size) -> Any:
    """Means of `output_size` equal parts of sequences, which overlap where the length is no multiple of it.

    Parameters
    ----------
    input : array_like, shape (B, C, L) or (C, L)
    output_size : int
        The new length.

    Returns
    -------
    Tensor or ndarray, shape (B, C, output_size)
        Element i is the mean from floor(i L / output_size) up to, but without, ceil((i + 1) L / output_size).

    Notes
    -----
    Where L is no multiple of output_size this is a product with a matrix, so an infinity or NaN reaches all of its row.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.adaptive_avg_pool1d(np.array([[[1.0, 4.0, 2.0, 3.0]]]), 2)
    array([[[2.5, 2.5]]])
    """
    return _adaptive_avg_pool(1, input, output_size)


@takes_arrays("input", method=False)
@rounds_once
def adaptive_avg_pool2d(input: Any, output_size) -> Any:
    """Means of equal parts of images, as in ``adaptive_avg_pool1d``.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    output_size : int or pair of int or None
        The new height and width; None leaves one as it is.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.adaptive_avg_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 1)
    array([[[[7.5]]]])
    """
    return _adaptive_avg_pool(2, input, output_size)


@takes_arrays("input", method=False)
def unfold(input: Any, kernel_size, dilation=1, padding=0, stride=1) -> Any:
    """The windows of images as columns. ``t.unfold(dim, size, step)``, the method of Tensor, takes those of one axis.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    kernel_size, dilation, padding, stride : int or pair of int
        As for ``conv2d``.

    Returns
    -------
    Tensor or ndarray, shape (B, C * kernel height * kernel width, number of windows)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.unfold(np.arange(16.0).reshape(1, 1, 4, 4), 2, stride=2)[0, :, 0]  # the first patch
    array([0., 1., 4., 5.])
    """
    kernel, dilation, padding, stride = all_of(
        (per_axis, "kernel_size", kernel_size, 2, 1),
        (per_axis, "dilation", dilation, 2, 1),
        (per_axis, "padding", padding, 2, 0),
        (per_axis, "stride", stride, 2, 1),
    )
    if input.ndim not in (3, 4):
        raise ValueError(f"unfold takes input of shape {shape_of(2)}, or without samples; got shape {tuple(input.shape)}")
    x = input[None] if input.ndim == 3 else input
    windows = [_Windows(*of_axis, False) for of_axis in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)]
    _refuse_too_long("unfold", windows, input)
    x = _padded(x, windows, 0)
    for axis, w in zip((2, 3), windows, strict=True):
        x = x.unfold(axis, w.reach, w.stride)[..., :: w.dilation]
    columns = x.permute(0, 1, 4, 5, 2, 3).reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(x.shape[2:4]))
    return columns[0] if input.ndim == 3 else columns
