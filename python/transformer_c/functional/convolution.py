"""Convolutions, transposed ones, and padding."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._arguments import all_of, count, integer, one_of
from .._promotion import as_given, needed, promote, unchanged
from ..tensor_functions._calls import takes_arrays

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "pad"]


def per_axis(name: str, value, axes: int, least: int) -> tuple[int, ...]:
    """One int for each axis: `value` itself, or an int for all."""
    if not isinstance(value, (tuple, list)):
        return (count(name, value, least),) * axes
    if len(value) not in (1, axes):
        raise ValueError(f"{name} must be an int or have one for each of {axes} axes, got {value!r:.80}")
    return tuple(count(name, v, least) for v in value) * (axes // len(value))


def shape_of(axes: int) -> str:
    """That of samples with channels, in words."""
    return f"(samples, channels, {('length', 'height, width', 'depth, height, width')[axes - 1]})"


def same_padding(kernel, stride, dilation) -> list[tuple[int, int]]:
    """(before, after) of each axis, with which the result is as long as the input."""
    if any(s != 1 for s in stride):
        raise ValueError(f"padding='same' needs stride 1, got {stride}: the result cannot be as long as the input")
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [(r // 2, r - r // 2) for r in reach]


def check_ranks(name: str, axes: int, input, weight) -> None:
    if weight.ndim != axes + 2 or input.ndim not in (axes + 1, axes + 2):
        raise ValueError(
            f"{name} takes input of {axes + 2} axes {shape_of(axes)}, or without samples, and weight of {axes + 2} axes; got input {tuple(input.shape)} and weight {tuple(weight.shape)}"
        )


def _of_samples(axes: int, op, input, *arguments):
    """The op of samples; one sample may come without their axis."""
    if input.ndim == axes + 2:
        return op(input, *arguments)
    return op(input.reshape(1, *input.shape), *arguments)[0]


def convolve(axes: int, input, weight, bias, stride, padding, dilation, groups):
    """conv1d, conv2d and conv3d."""
    needed(input=input, weight=weight)
    input, weight, bias = promote(input, weight, bias)
    words = isinstance(padding, str)
    stride, dilation, groups, padding = all_of(
        (per_axis, "stride", stride, axes, 1),
        (per_axis, "dilation", dilation, axes, 1),
        (count, "groups", groups),
        (one_of, "padding", padding, ("same", "valid")) if words else (per_axis, "padding", padding, axes, 0),
    )
    check_ranks(f"conv{axes}d", axes, input, weight)
    if words:
        both = same_padding(weight.shape[2:], stride, dilation) if padding == "same" else [(0, 0)] * axes
        if any(before != after for before, after in both):
            input = _core.pad(input, [n for before, after in reversed(both) for n in (0, after - before)])
        padding = tuple(before for before, _ in both)
    return _of_samples(axes, _core.convolution, input, weight, bias, stride, padding, dilation, groups)


def convolve_transposed(axes: int, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """conv_transpose1d, conv_transpose2d and conv_transpose3d."""
    needed(input=input, weight=weight)
    input, weight, bias = promote(input, weight, bias)
    stride, padding, output_padding, groups, dilation = all_of(
        (per_axis, "stride", stride, axes, 1),
        (per_axis, "padding", padding, axes, 0),
        (per_axis, "output_padding", output_padding, axes, 0),
        (count, "groups", groups),
        (per_axis, "dilation", dilation, axes, 1),
    )
    check_ranks(f"conv_transpose{axes}d", axes, input, weight)
    for more, s, d in zip(output_padding, stride, dilation, strict=True):
        if more >= max(s, d):
            raise ValueError(
                f"output_padding must be less than stride or dilation, got output_padding {output_padding}, stride {stride} and dilation {dilation}"
            )
    whole = [more // s for more, s in zip(output_padding, stride, strict=True)]  # elements of zero behind the input
    if any(whole):
        input = _core.pad(input, [n for count in reversed(whole) for n in (0, count)])
        output_padding = tuple(more % s for more, s in zip(output_padding, stride, strict=True))
    return _of_samples(axes, _core.transposed_convolution, input, weight, bias, stride, padding, output_padding, dilation, groups)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
    """Products of a kernel with all windows of sequences.

    Parameters
    ----------
    input : array_like, shape (B, C, L) or (C, L)
        Channels before positions: for (B, T, C) pass ``x.swapaxes(1, 2)``.
    weight : array_like, shape (out_channels, C / groups, kernel)
    bias : array_like, shape (out_channels,), optional
    stride : int, default 1
        Distance of neighbouring windows.
    padding : int or {"valid", "same"}, default 0
        How many zeros are added on both sides; "same": as many as make the result as long as the input.
    dilation : int, default 1
        Distance of neighbouring elements of a window.
    groups : int, default 1
        The channels of input and result are divided into this many groups, each with a kernel of its own.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, (L + 2 padding - dilation (kernel - 1) - 1) // stride + 1)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> differences = np.array([[[-1.0, 1.0]]])
    >>> tc.functional.conv1d(np.array([[[1.0, 4.0, 9.0, 16.0]]]), differences)
    array([[[3., 5., 7.]]])
    """
    return convolve(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
    """Products of a kernel with all windows of images.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    weight : array_like, shape (out_channels, C / groups, kernel height, kernel width)
    bias : array_like, shape (out_channels,), optional
    stride, dilation : int or pair of int, default 1
    padding : int, pair of int or {"valid", "same"}, default 0
    groups : int, default 1
        As in ``conv1d``.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, ...)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> tc.functional.conv2d(image, np.ones((1, 1, 2, 2)), stride=2)  # sums of patches
    array([[[[10., 18.],
             [42., 50.]]]])
    """
    return convolve(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
    """Products of a kernel with all windows of volumes, or of films.

    Parameters
    ----------
    input : array_like, shape (B, C, D, H, W) or (C, D, H, W)
    weight : array_like, shape (out_channels, C / groups, kernel depth, kernel height, kernel width)
    bias : array_like, shape (out_channels,), optional
    stride, dilation : int or three of int, default 1
    padding : int, three of int or {"valid", "same"}, default 0
    groups : int, default 1
        As in ``conv1d``.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, ...)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> film = np.ones((1, 3, 8, 32, 32), np.float32)  # 8 pictures of three colours
    >>> tc.functional.conv3d(film, np.ones((16, 3, 2, 8, 8), np.float32), stride=(2, 8, 8)).shape
    (1, 16, 4, 4, 4)
    """
    return convolve(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1):
    """Each element of sequences times a kernel, added up where these overlap: the gradient of ``conv1d`` with respect to its input.

    Parameters
    ----------
    input : array_like, shape (B, C, L) or (C, L)
    weight : array_like, shape (C, out_channels / groups, kernel)
    bias : array_like, shape (out_channels,), optional
    stride : int, default 1
        Distance of the kernels of neighbouring elements.
    padding : int, default 0
        How many elements of the result are left out on both sides: the padding of the ``conv1d``.
    output_padding : int, default 0
        How many elements are added at the end, less than `stride` or `dilation`: inputs of several lengths have the same number of windows.
    groups : int, default 1
        The channels of input and result are divided into this many groups, each with a kernel of its own.
    dilation : int, default 1
        Distance of neighbouring elements of a kernel.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, stride (L - 1) - 2 padding + dilation (kernel - 1) + output_padding + 1)

    Raises
    ------
    ValueError
        Shapes do not go together, nothing is left of the result, or an axis of the input is empty.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.conv_transpose1d(np.array([[[1.0, 10.0, 100.0]]]), np.array([[[1.0, 2.0, 3.0]]]), stride=2)
    array([[[  1.,   2.,  13.,  20., 130., 200., 300.]]])
    """
    return convolve_transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1):
    """Each element of images times a kernel, added up where these overlap: the gradient of ``conv2d`` with respect to its input.

    Parameters
    ----------
    input : array_like, shape (B, C, H, W) or (C, H, W)
    weight : array_like, shape (C, out_channels / groups, kernel height, kernel width)
    bias : array_like, shape (out_channels,), optional
    stride, padding, output_padding, dilation : int or pair of int
    groups : int, default 1
        As in ``conv_transpose1d``.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, ...)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.conv_transpose2d(np.array([[[[1.0, 2.0]]]]), np.ones((1, 1, 2, 2)), stride=2)  # each element becomes a square
    array([[[[1., 1., 2., 2.],
             [1., 1., 2., 2.]]]])
    """
    return convolve_transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1):
    """Each element of volumes times a kernel, added up where these overlap: the gradient of ``conv3d`` with respect to its input.

    Parameters
    ----------
    input : array_like, shape (B, C, D, H, W) or (C, D, H, W)
    weight : array_like, shape (C, out_channels / groups, kernel depth, kernel height, kernel width)
    bias : array_like, shape (out_channels,), optional
    stride, padding, output_padding, dilation : int or three of int
    groups : int, default 1
        As in ``conv_transpose1d``.

    Returns
    -------
    Tensor or ndarray, shape (B, out_channels, ...)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.conv_transpose3d(np.ones((1, 4, 2, 3, 3)), np.ones((4, 2, 2, 2, 2)), stride=2).shape
    (1, 2, 4, 6, 6)
    """
    return convolve_transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@takes_arrays("x", method=False)
def _padded(x: Any, mode: str, pads: list[int]) -> Any:
    """x padded along axes with parts of itself. Negative numbers remove elements."""
    if (padded := _core.pad_by_itself(x, mode, *pads)) is not None:
        return padded
    for i in range(0, len(pads), 2):
        if pads[i] or pads[i + 1]:
            x = _joined(x, x.ndim - 1 - i // 2, mode, pads[i], pads[i + 1])
    return x


def _joined(x: Any, axis: int, mode: str, before: int, after: int) -> Any:
    """Joins an axis with parts of itself."""
    length, first, last = x.shape[axis], max(-before, 0), x.shape[axis] - max(-after, 0)  # of the part that is kept
    left, right = max(before, 0), max(after, 0)
    if last < first:
        raise ValueError(f"padding by {before} and {after} removes more than there is of an axis of length {length}")
    if mode == "circular":
        if max(left, right) > last - first:
            raise ValueError(f"padding by {before} and {after} with mode 'circular' needs an axis as long, got length {last - first}")
        ends = x.narrow(axis, last - left, left), x.narrow(axis, first, right)
    elif mode == "replicate":
        if not length and left + right:
            raise ValueError(f"padding by {before} and {after} with mode 'replicate' needs an element, got length 0")
        shape = [-1] * x.ndim
        edges = x.narrow(axis, 0, min(length, 1)), x.narrow(axis, max(length - 1, 0), min(length, 1))
        ends = tuple(edge.expand([*shape[:axis], n, *shape[axis + 1 :]]) for edge, n in zip(edges, (left, right), strict=True))
    else:
        if max(left, right) >= max(length, 1):
            raise ValueError(f"padding by {before} and {after} with mode 'reflect' needs an axis longer than that, got length {length}")
        ends = x.narrow(axis, min(length, 1), left).flip(axis), x.narrow(axis, max(length - 1 - right, 0), right).flip(axis)
    return _core.cat([ends[0], x.narrow(axis, first, last - first), ends[1]], axis)


def pad(input, pad, mode: str = "constant", value: float | None = None):
    """Makes axes longer, on both sides.

    Parameters
    ----------
    input : array_like
    pad : sequence of int
        How many elements to add before and after the last axis, then before and after the one before it, and so on. Negative
        numbers remove elements.
    mode : {"constant", "reflect", "replicate", "circular"}
        What is added: `value`; the elements next to the edge in reverse order, without the edge itself; the edge; or the elements of
        the other end.
    value : float, default 0

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> tc.functional.pad(x, (2, 1))
    array([0., 0., 1., 2., 3., 0.])
    >>> tc.functional.pad(x, (2, 1), mode="reflect")
    array([3., 2., 1., 2., 3., 2.])
    """
    one_of("mode", mode, ("constant", "reflect", "replicate", "circular"))
    if not isinstance(pad, (tuple, list)):
        raise TypeError(f"pad must be a sequence of ints, two for each axis and the last axis first, got {pad!r:.80}")
    if isinstance(value, int) and int(float(value)) != value:
        raise ValueError(f"value {value} has no float64 of its own, in which it is passed on")
    x, numbers = as_given(input), [integer("pad", n) for n in pad]
    if mode == "constant":
        return _core.pad(x, numbers, 0.0 if value is None else value)
    if value is not None and value != 0:
        raise ValueError(f"mode {mode!r} takes no value, got {value}")
    if len(numbers) % 2 or len(numbers) > 2 * x.ndim:
        raise ValueError(f"pad has {len(numbers)} numbers; expected two for each padded axis of input, whose shape is {tuple(x.shape)}")
    return _padded(x, mode, numbers) if any(numbers) else unchanged(x)
