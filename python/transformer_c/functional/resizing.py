"""Sequences and images of another length."""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from .._arguments import one_of, real, switch
from .._core import Tensor
from .._promotion import rounds_once
from .._recording import is_grad_enabled
from ..tensor_functions._calls import takes_arrays
from ..tensor_functions.shapes import repeat_interleave
from .convolution import per_axis

__all__ = ["interpolate"]

_AXES = {"nearest": 0, "nearest-exact": 0, "area": 0, "linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}  # 0: any of these numbers


def _numbers(length: int, like: Tensor, dtype: str) -> Tensor:
    return _core.arange(0, 1, length, dtype, like.device)


def _triangle(distance: Tensor) -> Tensor:
    return 1 - distance.clip(0, 1)


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Keys 1981, eq. 4."""
    near, far = distance.clip(0, 1), distance.clip(1, 2)
    return ((a + 2) * near - (a + 3)) * near * near + 1 + a * (((far - 5) * far + 8) * far - 4)


def _weights(x: Tensor, mode: str, antialias: bool, corners: bool, scale: tuple[float, float], length: int, out: int) -> Tensor:
    """A row for each new element of an axis, (out, length), made on the device of x.

    New elements are scale[0] / scale[1] old ones apart: two numbers, whole where they are lengths, as an exported file has them.
    """
    rows, columns = _numbers(out, x, "float64")[:, None], _numbers(length, x, "float64")
    if mode == "area":
        inside = ((columns >= rows * length // out) & (columns < -(-(rows + 1) * length // out))).double()
        return inside / inside.sum(1, keepdim=True)
    numerator, denominator = scale
    places = rows * numerator / denominator if corners and not antialias else (rows + 0.5) * numerator / denominator - 0.5
    if antialias:
        distance = (columns - places).abs()
        distance = distance * denominator / numerator if numerator > denominator else distance
        weights = _triangle(distance) if mode == "bilinear" else _cubic(distance, -0.5)
        return weights / weights.sum(1, keepdim=True)
    if mode != "bicubic":
        return _triangle((columns - places.clip(0, length - 1)).abs())
    first = places.floor()
    taps = [first + k for k in (-1, 0, 1, 2)]  # beyond an end is the element at it
    return sum(_cubic((tap - places).abs(), -0.75) * (tap.clip(0, length - 1) == columns) for tap in taps)


def _nearest(x: Tensor, mode: str, scale: tuple[float, float], length: int, out: int) -> Tensor:
    """Where new elements come from, computed in float32, in which PyTorch rounds."""
    rows, step = _numbers(out, x, "float32"), _core.full((1,), scale[0], "float32", x.device) / scale[1]
    return ((rows if mode == "nearest" else rows + 0.5) * step).floor().clip(0, length - 1).long()


def _repeated(x: Tensor, axis: int, scale: tuple[float, float], out: int) -> Tensor | None:
    """Each element of the axis a power of two times, by which places are exact in float32; None if elements are chosen otherwise.

    Several times as fast as indices, but its gradient is slower.
    """
    length, is_recorded = x.shape[axis], _core.is_traced() or (x.requires_grad and is_grad_enabled())
    times = out // length
    if is_recorded or out != times * length or scale[1] != times * scale[0] or times & (times - 1):
        return None
    return repeat_interleave(x, times, axis)


def _product(x: Tensor, axis: int, weights: Tensor) -> Tensor:
    """The product along an axis."""
    if axis == x.ndim - 1:
        return x @ weights.T
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return (weights @ x.reshape(*before, x.shape[axis], math.prod(after))).reshape(*before, len(weights), *after)


def _new_lengths(lengths: tuple, size: Any, scale_factor: Any) -> tuple[Any, Any]:
    """Of each axis the new length, and its factor or None."""
    axes = len(lengths)
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate() needs either size or scale_factor, got {'neither' if size is None else 'both'}")
    if size is not None:
        return per_axis("size", size, axes, 1), (None,) * axes
    given = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,)
    if len(given) not in (1, axes):
        raise ValueError(f"scale_factor must be a number or have one for each of {axes} axes, got {scale_factor!r:.80}")
    if not all(0 < real("scale_factor", f) < math.inf for f in given):
        raise ValueError(f"scale_factor must be positive and finite, got {scale_factor!r:.80}")
    factors = tuple(map(float, given)) * (axes // len(given))
    sizes = tuple(math.floor(min(n * f, 2.0**62)) for n, f in zip(lengths, factors, strict=True))
    if 0 in sizes:
        raise ValueError(f"scale_factor {scale_factor!r} makes the lengths {tuple(lengths)} into {sizes}; each must be at least 1")
    return sizes, factors


@takes_arrays("input", method=False)
@rounds_once
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
):
    """Resizes sequences and images, such as position embeddings for another resolution.

    Parameters
    ----------
    input : array_like, shape (B, C, L), (B, C, H, W) or (B, C, D, H, W)
        For position embeddings (1, H * W, C) pass ``p.reshape(1, H, W, C).permute(0, 3, 1, 2)``.
    size : int or sequence of int, optional
        The new lengths; an int for all axes.
    scale_factor : float or sequence of float, optional
        Instead of `size`: the new lengths are the old ones times this, rounded down.
    mode : {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"}
        "linear" and "trilinear" are "bilinear" for one axis and for three. "nearest" rounds places down, "nearest-exact" does not. "area"
        takes means.
    align_corners : bool, optional
        Whether the centres of the outermost elements stay where they are, or (the default) their outer edges.
    recompute_scale_factor : bool, optional
        Whether the distance of new elements is the quotient of the lengths, as with `size`, and not 1 / `scale_factor`.
    antialias : bool, default False
        For "bilinear" and "bicubic", where an axis becomes shorter: whether each new element is made of all that it covers.

    Returns
    -------
    Tensor or ndarray, shape (B, C, *size)

    Notes
    -----
    All modes but the nearest ones are products with a matrix for each axis, so an infinity or NaN reaches all of its row and column.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.array([[[0.0, 1.0, 2.0]]])
    >>> tc.functional.interpolate(x, scale_factor=2)
    array([[[0., 0., 1., 1., 2., 2.]]])
    >>> tc.functional.interpolate(x, size=5, mode="linear", align_corners=True)
    array([[[0. , 0.5, 1. , 1.5, 2. ]]])
    """
    x, axes = input, input.ndim - 2
    takes = _AXES[one_of("mode", mode, tuple(_AXES))]
    if axes not in ((takes,) if takes else (1, 2, 3)):
        raise ValueError(
            f"mode {mode!r} takes input of {f'{takes + 2} axes' if takes else '3 to 5 axes'} (samples, channels, lengths to change); "
            f"got shape {tuple(x.shape)}: x[None] adds an axis"
        )
    if 0 in x.shape[2:]:
        raise ValueError(f"input has shape {tuple(x.shape)}; an axis that is resized must have at least one element")
    antialias, recompute = switch("antialias", antialias), switch("recompute_scale_factor", recompute_scale_factor)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"antialias=True is for mode 'bilinear' or 'bicubic', got {mode!r}")
    if align_corners is not None and not takes:
        raise ValueError(f"mode {mode!r} takes no align_corners, got {align_corners!r}; leave it out")
    if recompute and size is not None:
        raise ValueError("recompute_scale_factor=True is for scale_factor, got size; leave it out")
    if not mode.startswith("nearest") and x.dtype.kind != "f":
        raise TypeError(f"mode {mode!r} takes floats, got {x.dtype.name}; convert input to float32, or use mode='nearest'")
    corners = switch("align_corners", align_corners)
    sizes, factors = _new_lengths(x.shape[2:], size, scale_factor)
    for axis, (out, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        length = x.shape[axis]
        if corners:
            scale = (length - 1, out - 1) if out > 1 else (0, 1)
        else:
            scale = (length, out) if factor is None or recompute else (1 / factor, 1)
        if mode == "nearest" and axes == 2 and out in (length, 2 * length):
            scale = (length, out)  # whatever the factor was, as in PyTorch: (3, 3) by 2.2 is each element twice, where 3 by 2.2 is not
        if out == length and (scale[0] == scale[1] or antialias or mode not in ("bicubic", "nearest", "nearest-exact")):
            if not _core.is_traced():  # whose lengths may be others
                continue
            scale = scale if scale[0] == scale[1] else (1, 1)
        repeated = _repeated(x, axis, scale, out) if mode.startswith("nearest") else None
        if repeated is not None:
            x = repeated
        elif mode.startswith("nearest"):
            x = x[(slice(None),) * axis + (_nearest(x, mode, scale, length, out),)]
        else:
            x = _product(x, axis, _weights(x, mode, antialias, corners, scale, length, out).to(x.dtype))
    return x.clone() if x is input else x
