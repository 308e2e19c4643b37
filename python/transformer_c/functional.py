"""Functions without state. Tensors give Tensors; ndarrays give ndarrays, and nothing is recorded.

Names, arguments and results follow torch.nn.functional. Arguments of different floating dtypes are promoted to a common one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arguments import all_of, count, not_negative, one_axis, one_of, real
from ._array_loss import as_loss
from ._core import Tensor
from ._frames import as_array, is_frame
from ._names import hooks
from .random import as_generator


def _floating(x: Any) -> Any:
    """`x` itself if it is a Tensor or ndarray, otherwise an ndarray of it."""
    if isinstance(x, (Tensor, np.ndarray)):
        return x
    return as_array(x) if is_frame(x) else np.asarray(x)


def _is_floating(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"  # ml_dtypes gives it kind "V"


def _common(dtypes: set[np.dtype]) -> np.dtype:
    """The promoted dtype. float16 and bfloat16 promote to float32: neither has both the range and the precision of the other."""
    halves = {d.name for d in dtypes} >= {"float16", "bfloat16"}
    others = [d for d in dtypes if d.itemsize > 2]
    return np.result_type(np.float32, *others) if halves else np.result_type(*dtypes)


def _promote(*arrays: Any) -> tuple[Any, ...]:
    """ndarrays in the promoted floating dtype of all arguments; Tensors and None are returned unchanged."""
    given = [a if a is None else _floating(a) for a in arrays]
    dtypes = {a.dtype for a in given if a is not None}
    if len(dtypes) < 2 or not all(map(_is_floating, dtypes)):
        return tuple(given)
    tensors = {a.dtype for a in given if isinstance(a, Tensor)}
    if len(tensors) > 1:
        return tuple(given)  # the op's error names both dtypes
    common = tensors.pop() if tensors else _common(dtypes)
    return tuple(a if a is None or isinstance(a, Tensor) else a.astype(common, copy=False) for a in given)


# ---- projections --------------------------------------------------------------------------------------------------------------


def linear(input, weight, bias=None):
    """y = x W^T + b.

    Parameters
    ----------
    input : array_like, shape (..., in_features)
    weight : array_like, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional

    Returns
    -------
    Tensor or ndarray, shape (..., out_features)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.linear(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    return _core.linear(*_promote(input, weight, bias))


def qkv_projection(input, weight, bias=None, num_heads: int = 1, packing: str = "head"):
    """Queries, keys and values of all heads, computed by one product.

    Parameters
    ----------
    input : array_like, shape (B, T, C)
    weight : array_like, shape (3 E, C)
    bias : array_like, shape (3 E,), optional
    num_heads : int
        H; divides E.
    packing : {"head", "qkv"}
        The order of the 3E outputs: head by head [q_h | k_h | v_h], as in the tutorial, or [Q | K | V], as in
        torch.nn.MultiheadAttention.

    Returns
    -------
    q, k, v : Tensor or ndarray, shape (B, H, T, E / H)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> q, k, v = tc.functional.qkv_projection(np.ones((2, 5, 8)), np.ones((24, 8)), num_heads=2)
    >>> q.shape
    (2, 2, 5, 4)
    """
    input, weight, bias = _promote(input, weight, bias)
    return _core.qkv_projection(input, weight, bias, num_heads=num_heads, packing=packing)


# ---- convolution --------------------------------------------------------------------------------------------------------------


def _per_axis(name: str, value, axes: int, least: int) -> tuple[int, ...]:
    """One int for each axis: `value` itself, or an int for all."""
    if not isinstance(value, (tuple, list)):
        return (count(name, value, least),) * axes
    if len(value) not in (1, axes):
        raise ValueError(f"{name} must be an int or have one for each of {axes} axes, got {value!r}")
    return tuple(count(name, v, least) for v in value) * (axes // len(value))


def _same_padding(kernel, stride, dilation) -> list[tuple[int, int]]:
    """(before, after) of each axis, with which the result is as long as the input."""
    if any(s != 1 for s in stride):
        raise ValueError(f"padding='same' needs stride 1, got {stride}: the result cannot be as long as the input")
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [(r // 2, r - r // 2) for r in reach]


def _convolve(axes: int, input, weight, bias, stride, padding, dilation, groups):
    """conv1d and conv2d."""
    input, weight, bias = _promote(input, weight, bias)
    words = isinstance(padding, str)
    stride, dilation, groups, padding = all_of(
        (_per_axis, "stride", stride, axes, 1),
        (_per_axis, "dilation", dilation, axes, 1),
        (count, "groups", groups),
        (one_of, "padding", padding, ("same", "valid")) if words else (_per_axis, "padding", padding, axes, 0),
    )
    if weight.ndim != axes + 2 or input.ndim not in (axes + 1, axes + 2):
        raise ValueError(
            f"conv{axes}d takes input of {axes + 2} axes (samples, channels, {'length' if axes == 1 else 'height, width'}), or without "
            f"samples, and weight of {axes + 2} axes; got input {tuple(input.shape)} and weight {tuple(weight.shape)}"
        )
    if words:
        both = _same_padding(weight.shape[2:], stride, dilation) if padding == "same" else [(0, 0)] * axes
        if any(before != after for before, after in both):
            input = _core.pad(input, [n for before, after in reversed(both) for n in (0, after - before)])
        padding = tuple(before for before, _ in both)
    single = input.ndim == axes + 1
    x = input.reshape(1, *input.shape) if single else input
    y = _core.convolution(x, weight, bias, stride, padding, dilation, groups)
    return y[0] if single else y


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
        How many zeros are added on both sides; "same": so many that the result is as long as the input.
    dilation : int, default 1
        Distance of neighbouring elements of a window.
    groups : int, default 1
        The channels of input and result are divided into so many groups, each with a kernel of its own.

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
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


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
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


def _places(mode: str, length: int, before: int, after: int) -> np.ndarray:
    """Where the elements of a padded axis come from."""
    if mode == "circular":
        kept = np.arange(max(-before, 0), length - max(-after, 0))  # negative numbers remove elements first
        if max(before, after) > len(kept):
            raise ValueError(f"padding by {before} and {after} with mode 'circular' needs an axis as long, got length {len(kept)}")
        return kept[np.arange(-max(before, 0), len(kept) + max(after, 0)) % len(kept)]
    index = np.arange(-before, length + after)
    if mode == "replicate":
        return index.clip(0, length - 1)
    if max(before, after) >= length:
        raise ValueError(f"padding by {before} and {after} with mode 'reflect' needs an axis longer than that, got length {length}")
    return length - 1 - np.abs(length - 1 - np.abs(index))


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
        raise TypeError(f"pad must be a sequence of ints, two for each axis and the last axis first, got {pad!r}")
    x, numbers = _floating(input), [count("pad", n, -(2**62)) for n in pad]
    if mode == "constant":
        return _core.pad(x, numbers, 0.0 if value is None else value)
    if value is not None and value != 0:
        raise ValueError(f"mode {mode!r} takes no value, got {value}")
    if len(numbers) % 2 or len(numbers) > 2 * x.ndim:
        raise ValueError(f"pad has {len(numbers)} numbers; expected two for each padded axis of input, whose shape is {tuple(x.shape)}")
    for i in range(0, len(numbers), 2):
        axis = x.ndim - 1 - i // 2
        if numbers[i] or numbers[i + 1]:
            x = x[(slice(None),) * axis + (_places(mode, x.shape[axis], numbers[i], numbers[i + 1]),)]
    return x


# ---- activations ---------------------------------------------------------------------------------------------------------------


def relu(input):
    """max(x, 0), elementwise.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return _core.relu(input)


def gelu(input, approximate: str = "none"):
    """x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution (Hendrycks & Gimpel 2016).

    Parameters
    ----------
    input : array_like
    approximate : {"none", "tanh"}
        The exact function, or 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.gelu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    return _core.gelu(input) if approximate == "none" else _core.gelu_tanh(input)


def silu(input):
    """x sigmoid(x), also called swish (Hendrycks & Gimpel 2016; Ramachandran et al. 2017).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return _core.silu(input)


def swiglu(gate, up):
    """silu(gate) * up: a gated linear unit (Shazeer 2020, eq. 5) in one pass; apply the two linear layers yourself.

    Parameters
    ----------
    gate, up : array_like
        They broadcast. In a network: two products of the same input, ``linear(x, w_gate)`` and ``linear(x, w_up)``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.swiglu(np.array([0.0, 1.0]), np.array([5.0, 10.0])).round(4)
    array([0.    , 7.3106])
    """
    return _core.swiglu(gate, up)


def geglu(gate, up):
    """gelu(gate) * up: a gated linear unit (Shazeer 2020, eq. 5) in one pass; see ``swiglu``.

    Parameters
    ----------
    gate, up : array_like
        They broadcast.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.geglu(np.array([0.0, 1.0]), np.array([5.0, 10.0])).round(4)
    array([0.    , 8.4134])
    """
    return _core.geglu(gate, up)


def leaky_relu(input, negative_slope: float = 0.01, inplace: bool = False):
    """x where it is positive, negative_slope * x elsewhere.

    Parameters
    ----------
    input : array_like
    negative_slope : float, default 0.01
        Also an array or Tensor that broadcasts, which may need a gradient.
    inplace : bool
        Accepted for compatibility with PyTorch; the result is always a new Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    return _core.leaky_relu(_floating(input), negative_slope)


def elu(input, alpha: float = 1.0, inplace: bool = False):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere (Clevert et al. 2016).

    Parameters
    ----------
    input : array_like
    alpha : float, default 1.0
    inplace : bool
        Accepted for compatibility with PyTorch; the result is always a new Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    return _core.elu(_floating(input), alpha)


def softplus(input, beta: float = 1.0, threshold: float = 20.0):
    """log(1 + exp(beta * x)) / beta: a smooth relu, which is positive everywhere.

    Parameters
    ----------
    input : array_like
    beta : float, default 1.0
    threshold : float, default 20.0
        Where beta * x is larger, the result is x.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.softplus(np.array([0.0, 100.0])).round(4)
    array([  0.6931, 100.    ])
    """
    x = _floating(input)
    if threshold == 20.0:
        return _core.softplus(x, beta)
    scaled = _core.mul(x, beta)
    smooth = _core.add(_core.relu(scaled), _core.log1p(_core.exp(_core.neg(_core.abs(scaled)))))
    return _core.where(_core.gt(scaled, threshold), x, _core.div(smooth, beta))


def tanh(input):
    """The hyperbolic tangent, elementwise."""
    return _core.tanh(input)


def sigmoid(input):
    """1 / (1 + exp(-x)), elementwise."""
    return _core.sigmoid(input)


def hardtanh(input, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
    """x between two bounds, which it does not leave; at the bounds the gradient is 0. `inplace` is accepted for PyTorch's sake.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.hardtanh(np.array([-3.0, 0.5, 2.0]))
    array([-1. ,  0.5,  1. ])
    """
    if not real("min_val", min_val) <= real("max_val", max_val):
        raise ValueError(f"min_val must not be larger than max_val, got {min_val} and {max_val}")
    x = _floating(input)
    if x.dtype.kind in "iu":  # stay what they are
        min_val, max_val = int(min_val), int(max_val)
    return _core.where(_core.le(x, min_val), min_val, _core.where(_core.ge(x, max_val), max_val, x))


def relu6(input, inplace: bool = False):
    """x between 0 and 6, which it does not leave. `inplace` is accepted for PyTorch's sake."""
    return hardtanh(input, 0.0, 6.0)


def hardsigmoid(input, inplace: bool = False):
    """relu6(x + 3) / 6: a sigmoid made of straight lines. `inplace` is accepted for PyTorch's sake."""
    return _core.div(relu6(_core.add(_floating(input), 3.0)), 6.0)


def hardswish(input, inplace: bool = False):
    """x relu6(x + 3) / 6: ``silu`` with straight lines (Howard et al. 2019). `inplace` is accepted for PyTorch's sake."""
    return _core.mul(_floating(input), hardsigmoid(input))


def selu(input, inplace: bool = False):
    """1.0507 elu(x, 1.6733), which keeps mean 0 and variance 1 (Klambauer et al. 2017). `inplace` is accepted for PyTorch's sake.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.selu(np.array([-1.0, 2.0])).round(4)
    array([-1.1113,  2.1014])
    """
    return _core.mul(_core.elu(_floating(input), 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def celu(input, alpha: float = 1.0, inplace: bool = False):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017). `inplace` is accepted for PyTorch's sake."""
    if real("alpha", alpha) == 0:
        raise ValueError("alpha must not be 0")
    return _core.mul(_core.elu(_core.div(_floating(input), alpha), 1.0), alpha)


def prelu(input, weight):
    """``leaky_relu`` with a slope that is learned (He et al. 2015).

    Parameters
    ----------
    input : array_like, shape (B, C, ...) or (C,)
    weight : array_like, shape (C,) or (1,)
        The slope of the negative side: of each channel, or of all.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.prelu(np.array([[-1.0, -1.0, 2.0]]), np.array([0.1, 0.2, 0.3]))
    array([[-0.1, -0.2,  2. ]])
    """
    x, slope = _promote(input, weight)
    if slope.ndim > 1:
        raise ValueError(f"weight has shape {tuple(slope.shape)}; expected one slope for each channel, or one for all")
    if slope.ndim and slope.shape[0] != 1:
        channels = x.shape[1] if x.ndim > 1 else x.shape[0] if x.ndim else 1
        if slope.shape[0] != channels:
            raise ValueError(f"weight has {slope.shape[0]} slopes but input {tuple(x.shape)} has {channels} channels")
        slope = slope.reshape(-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else slope
    return _core.leaky_relu(x, slope.reshape(*slope.shape[: x.ndim]) if x.ndim else slope.reshape(()))


def glu(input, dim: int = -1):
    """a sigmoid(b), where a and b are the halves of an axis: a gated linear unit (Dauphin et al. 2017).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.glu(np.array([[1.0, 2.0, 0.0, 0.0]]))
    array([[0.5, 1. ]])
    """
    x = _floating(input)
    if x.ndim == 0 or x.shape[dim] % 2:
        raise ValueError(f"glu halves axis {dim} of input, whose length must be even; the shape is {tuple(x.shape)}")
    axis, half = dim % x.ndim, x.shape[dim] // 2
    a, b = (x[(slice(None),) * axis + (part,)] for part in (slice(None, half), slice(half, None)))
    return _core.mul(a, _core.sigmoid(b))


def mish(input, inplace: bool = False):
    """x tanh(softplus(x)) (Misra 2019). `inplace` is accepted for PyTorch's sake.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.mish(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8651])
    """
    x = _floating(input)
    return _core.mul(x, _core.tanh(_core.softplus(x, 1.0)))


def logsigmoid(input):
    """log(1 / (1 + exp(-x))), without overflow.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.logsigmoid(np.array([-1000.0, 0.0])).round(4)
    array([-1.000e+03, -6.931e-01])
    """
    x = _floating(input)
    return _core.sub(_core.minimum(x, 0.0), _core.log1p(_core.exp(_core.neg(_core.abs(x)))))


def softsign(input):
    """x / (1 + |x|)."""
    x = _floating(input)
    return _core.div(x, _core.add(_core.abs(x), 1.0))


def softmin(input, axis: int | None = None, *, dim: int | None = None, dtype=None):
    """``softmax`` of -x. Parameters as for ``softmax``."""
    return softmax(_core.neg(_cast(_floating(input), dtype)), axis, dim=dim)


def _cast(x, dtype):
    """`x` as `dtype`; itself for None."""
    if dtype is None:
        return x
    return x.to(dtype) if isinstance(x, Tensor) else _floating(x).astype(dtype)


def softmax(input, axis: int | None = None, *, dim: int | None = None, dtype=None):
    """exp(x) / sum(exp(x)) along an axis, without overflow.

    Parameters
    ----------
    input : array_like
    axis, dim : int, default -1
        Two names of one argument.
    dtype : dtype, optional
        What `input` is cast to first.

    Returns
    -------
    Tensor or ndarray of the shape of input

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.softmax(np.array([0.0, 0.0]), axis=-1)
    array([0.5, 0.5])
    """
    return _core.softmax(_cast(input, dtype), one_axis(axis, dim, -1))


def log_softmax(input, axis: int | None = None, *, dim: int | None = None, dtype=None):
    """The logarithm of softmax. Parameters as for ``softmax``."""
    return _core.log_softmax(_cast(input, dtype), one_axis(axis, dim, -1))


# ---- normalisation and dropout ----------------------------------------------------------------------------------------------------


def layer_norm(input, normalized_shape, weight=None, bias=None, eps: float = 1e-5):
    """Normalises the last axes to mean 0 and variance 1, then scales and shifts (Ba et al. 2016).

    Parameters
    ----------
    input : array_like, shape (..., *normalized_shape)
    normalized_shape : int or sequence of int
    weight, bias : array_like, shape normalized_shape, optional
    eps : float, default 1e-5
        Added to the variance.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.layer_norm(np.array([[1.0, 3.0]]), 2, eps=0.0)
    array([[-1.,  1.]])
    """
    input, weight, bias = _promote(input, weight, bias)
    return _core.layer_norm(input, normalized_shape, weight, bias, eps)


def add_layer_norm(input, residual, normalized_shape, weight=None, bias=None, eps: float = 1e-5):
    """``layer_norm(input + residual)`` in one pass over memory. Parameters as for ``layer_norm``."""
    input, residual, weight, bias = _promote(input, residual, weight, bias)
    return _core.add_layer_norm(input, residual, normalized_shape, weight, bias, eps)


def rotary(x, positions=None, *, base: float = 10000.0, pairing: str = "half"):
    """Rotary position embedding (Su et al. 2021, eq. 34): rotates pairs of features by angles that grow with the position.

    The product of a rotated query and a rotated key depends on the distance between them, not on their positions.

    Parameters
    ----------
    x : array_like, shape (..., T, D)
        Queries or keys; D is even.
    positions : array_like, optional
        Numbers that broadcast to (..., T), the shape of `x` without its last axis; 0, 1, ..., T - 1 by default. For positions (B, T) and
        heads (B, H, T, D), pass ``positions[:, None, :]``. They get no gradient.
    base : float, default 10000.0
        Pair j of a row at position p is rotated by the angle ``p * base ** (-2 * j / D)``, computed in double precision.
    pairing : {"half", "interleaved"}
        Which features form a pair: ``x[j]`` and ``x[j + D // 2]`` (GPT-NeoX, Llama), or ``x[2 * j]`` and ``x[2 * j + 1]`` (the paper, GPT-J).

    Returns
    -------
    Tensor or ndarray, shape (..., T, D)

    Raises
    ------
    ValueError
        When D is odd, `positions` does not broadcast, or `base` is not positive.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> tc.functional.rotary(x).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    return _core.rotary(x, positions, base=base, pairing=pairing)


def rms_norm(input, normalized_shape, weight=None, eps: float | None = None):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes: root mean square normalisation (Zhang and Sennrich 2019).

    Parameters
    ----------
    input : array_like, shape (..., *normalized_shape)
    normalized_shape : int or sequence of int
    weight : array_like, shape normalized_shape, optional
    eps : float, optional
        Added to the mean square. By default the machine epsilon of float64, or of float32 for float32 and halves.

    Returns
    -------
    Tensor or ndarray of the shape of input

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.rms_norm(np.array([[1.0, 7.0]]), 2, eps=0.0)
    array([[0.2, 1.4]])
    """
    input, weight = _promote(input, weight)
    return _core.rms_norm(input, normalized_shape, weight, eps)


def dropout(input, p: float = 0.5, training: bool = True, *, rng=None):
    """Sets elements to 0 with probability `p` and scales the others by 1 / (1 - p).

    Parameters
    ----------
    input : array_like
    p : float, default 0.5
    training : bool, default True
        False returns the input.
    rng : int, np.random.Generator, tc.Generator or None
        The mask depends on the generator's seed and on how many masks it has given so far. None is the default generator.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> sorted(set(tc.functional.dropout(np.ones(100), 0.5, rng=0).tolist()))
    [0.0, 2.0]
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"the dropout probability must be between 0 and 1, got {p}")
    if not training or p == 0.0:
        return _floating(input)
    return as_generator(rng).with_mask(_core.dropout, input, p)


# ---- attention ------------------------------------------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    bias=None,
    key_lengths=None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    causal_offset=None,
    return_attention: bool = False,
    return_logsumexp: bool = False,
    empty_rows: str = "zero",
    rng=None,
):
    """softmax(query key^T * scale) value (Vaswani et al. 2017, eq. 1), without a (Tq, Tk) map in memory unless it is returned.

    Masks combine: a query attends to a key when all of them allow it. Masked keys and values never reach the result, so NaN and
    infinity there do no harm.

    Parameters
    ----------
    query : array_like, shape (..., H, Tq, d)
    key : array_like, shape (..., H, Tk, d)
    value : array_like, shape (..., H, Tk, dv)
        Leading axes broadcast; the first is the batch B. Arrays with three axes have no H.
    attn_mask : array_like, optional
        Broadcasts to (..., H, Tq, Tk). Boolean: True = attend. Floating: added to the scores, -inf = must not attend.
    dropout_p : float, default 0.0
        Probability with which an attention weight is dropped before the product with the values.
    is_causal : bool, default False
        Query i sees keys j <= i + causal_offset.
    scale : float, optional
        Default 1 / sqrt(d).
    enable_gqa : bool, default False
        Key and value have fewer heads; each is shared by a group of consecutive query heads.
    bias : array_like, optional
        Added to the scores like a floating mask.
    key_lengths : array_like of int, shape (B,), optional
        The number of valid keys of each batch element.
    window : (left, right), optional
        Query i sees keys from i + causal_offset - left to i + causal_offset + right; None = no bound.
    softcap : float, default 0.0
        If positive, scores become softcap * tanh(score / softcap), after scaling and before masks and biases.
    causal_offset : int or array_like of int, shape (B,), optional
        Default 0; use Tk - Tq when the queries are the last positions (with a key/value cache).
    return_attention, return_logsumexp : bool, default False
        Also return the attention (..., H, Tq, Tk), before dropout, and the log-sum-exp of the scores (..., H, Tq).
    empty_rows : {"zero", "uniform", "raise"}
        The result of a query whose keys are all masked: zeros, the mean of all values, or a ValueError.
    rng : int, np.random.Generator, tc.Generator or None
        The generator for dropout, as in ``dropout``.

    Returns
    -------
    values : Tensor or ndarray, shape (..., H, Tq, dv)
        Or a tuple with the attention and the log-sum-exp, if requested.

    Raises
    ------
    TypeError
        For an integer mask: write ``mask != 0``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.ones((1, 3, 2))
    >>> values, attention = tc.functional.scaled_dot_product_attention(x, x, x, is_causal=True, return_attention=True)
    >>> attention[0, 1].tolist()
    [0.5, 0.5, 0.0]
    """
    if attn_mask is not None:
        attn_mask = _floating(attn_mask)
    if attn_mask is not None and attn_mask.dtype.kind not in "biu":
        query, key, value, bias, attn_mask = _promote(query, key, value, bias, attn_mask)
    else:
        query, key, value, bias = _promote(query, key, value, bias)

    def attend(seed=None, call=None):
        results = _core.attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            bias=bias,
            key_lengths=key_lengths,
            causal_offset=causal_offset,
            is_causal=is_causal,
            window=window,
            scale=scale,
            softcap=softcap,
            enable_gqa=enable_gqa,
            empty_rows=empty_rows,
            dropout=dropout_p,
            seed=seed,
            call=call,
            return_attention=return_attention,
            return_logsumexp=return_logsumexp,
        )
        if not (return_attention or return_logsumexp):
            return results[0]
        if return_attention and return_logsumexp:
            return results
        return results[0], results[1 if return_attention else 2]

    return as_generator(rng).with_mask(attend) if real("dropout_p", dropout_p) > 0.0 else attend()


# ---- look-up ------------------------------------------------------------------------------------------------------------------------


def embedding(input, weight, padding_idx: int | None = None):
    """Rows of a table.

    Parameters
    ----------
    input : array_like of int, shape (...)
    weight : array_like, shape (num_embeddings, embedding_dim)
    padding_idx : int, optional
        A row that gets no gradient.

    Returns
    -------
    Tensor or ndarray, shape (..., embedding_dim)

    Raises
    ------
    IndexError
        When an index is outside the table.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.embedding(np.array([1, 1]), np.array([[0.0], [5.0]]))
    array([[5.],
           [5.]])
    """
    return _core.embedding(input, weight, padding_idx=padding_idx)


def one_hot(input, num_classes: int = -1):
    """One-hot vectors of integers: rows of zeros with a single 1, int64.

    Parameters
    ----------
    input : array_like of int, shape (...)
    num_classes : int, default -1
        -1: one more than the largest integer.

    Returns
    -------
    Tensor or ndarray, shape (..., num_classes)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.one_hot(np.array([0, 2]), 3)
    array([[1, 0, 0],
           [0, 0, 1]])
    """
    return _core.one_hot(input, num_classes)


def global_max_pool1d(input):
    """The maximum over the sequence: (B, T, C) to (B, C)."""
    return _core.global_max_pool1d(input)


# ---- losses --------------------------------------------------------------------------------------------------------------------------


def cross_entropy(input, target, weight=None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
    """Cross-entropy between logits and targets.

    Parameters
    ----------
    input : array_like, shape (C,), (N, C) or (N, C, d1, ...)
        Logits, classes on axis 1.
    target : array_like
        Class indices, integers of shape (), (N,) or (N, d1, ...), or probabilities of the shape of `input`.
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
        The mean is weighted by `weight`.
    label_smoothing : float, default 0
        Fraction of the target that is spread over all classes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.cross_entropy(np.zeros((1, 4)), np.array([2]))) == np.log(4)
    True
    """
    input, weight = _promote(input, weight)
    return as_loss(_core.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing))


def mse_loss(input, target, reduction: str = "mean"):
    """The mean of the squared differences, their sum, or the squared differences themselves ("none")."""
    input, target = _promote(input, target)
    return as_loss(_core.mse_loss(input, target, reduction))


def l1_loss(input, target, reduction: str = "mean"):
    """The mean of the absolute differences, their sum, or the differences themselves ("none").

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.l1_loss(np.array([1.0, 2.0]), np.array([3.0, 2.0])))
    1.0
    """
    input, target = _promote(input, target)
    return as_loss(_core.smooth_l1_loss(input, target, 0.0, reduction))


def smooth_l1_loss(input, target, reduction: str = "mean", beta: float = 1.0):
    """Absolute differences d, squared near 0: d^2 / (2 beta) where d < beta, d - beta / 2 elsewhere (Girshick 2015).

    Parameters
    ----------
    input, target : array_like
        Of one shape.
    reduction : {"mean", "sum", "none"}
    beta : float, default 1.0
        With 0 it is ``l1_loss``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.smooth_l1_loss(np.array([0.5, 3.0]), np.zeros(2), reduction="none")
    array([0.125, 2.5  ])
    """
    input, target = _promote(input, target)
    return as_loss(_core.smooth_l1_loss(input, target, beta, reduction))


def huber_loss(input, target, reduction: str = "mean", delta: float = 1.0):
    """Squares of small differences d, absolute values of large ones: d^2 / 2 where d < delta, delta (d - delta / 2) elsewhere (Huber 1964).

    Parameters
    ----------
    input, target : array_like
        Of one shape.
    reduction : {"mean", "sum", "none"}
    delta : float, default 1.0
        Positive; the loss is delta times ``smooth_l1_loss`` with beta = delta.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.huber_loss(np.array([0.5, 3.0]), np.zeros(2), reduction="none", delta=2.0)
    array([0.125, 4.   ])
    """
    if not real("delta", delta) > 0:
        raise ValueError(f"delta must be positive, got {delta}")
    input, target = _promote(input, target)
    return as_loss(_core.mul(_core.smooth_l1_loss(input, target, delta, reduction), delta))


def kl_div(input, target, reduction: str = "mean", log_target: bool = False):
    """Kullback-Leibler divergence of the target from the input: target * (log target - input), element by element.

    Parameters
    ----------
    input : array_like
        Log probabilities, as ``log_softmax`` gives them.
    target : array_like, shape of `input`
        Probabilities, or their logarithms.
    reduction : {"mean", "batchmean", "sum", "none"}
        "batchmean" divides the sum by the first length, which is the divergence of a batch of distributions; "mean" by the number
        of elements.
    log_target : bool, default False
        Whether `target` contains logarithms.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> p, q = np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
    >>> float(tc.functional.kl_div(np.log(q), p, reduction="batchmean").round(4))
    0.1438
    """
    one_of("reduction", reduction, ("none", "batchmean", "mean", "sum"))
    input, target = _promote(input, target)
    loss = _core.kl_div(input, target, "sum" if reduction == "batchmean" else reduction, log_target)
    return as_loss(_core.div(loss, max(1, input.shape[0] if input.ndim else 1)) if reduction == "batchmean" else loss)


def nll_loss(input, target, weight=None, ignore_index: int = -100, reduction: str = "mean"):
    """Negative log-likelihood of classes: ``cross_entropy`` of log probabilities, as ``log_softmax`` gives them.

    Parameters
    ----------
    input : array_like, shape (C,), (N, C) or (N, C, d1, ...)
        Log probabilities, classes on axis 1.
    target : array_like of int, shape (), (N,) or (N, d1, ...)
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
        The mean is weighted by `weight`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.nll_loss(np.array([[-1.0, -2.0]]), np.array([1])))
    2.0
    """
    input, weight = _promote(input, weight)
    return as_loss(_core.nll_loss(input, target, weight, ignore_index, reduction))


def binary_cross_entropy(input, target, weight=None, reduction: str = "mean"):
    """-(t log p + (1 - t) log(1 - p)) for probabilities p and targets t; logarithms are bounded below by -100.

    Parameters
    ----------
    input : array_like
        Probabilities in [0, 1].
    target : array_like, shape of `input`
    weight : array_like, optional
        Factor of each element; broadcasts.
    reduction : {"mean", "sum", "none"}
    """
    input, target, weight = _promote(input, target, weight)
    return as_loss(_core.binary_cross_entropy(input, target, weight, reduction))


def binary_cross_entropy_with_logits(input, target, weight=None, reduction: str = "mean", pos_weight=None):
    """Binary cross-entropy of sigmoid(input), without overflow.

    Parameters
    ----------
    input : array_like
        Logits.
    target : array_like, shape of `input`
    weight : array_like, optional
        Factor of each element; broadcasts.
    reduction : {"mean", "sum", "none"}
    pos_weight : array_like, optional
        Factor of the positive part; broadcasts.
    """
    input, target, weight, pos_weight = _promote(input, target, weight, pos_weight)
    return as_loss(_core.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction))


# ---- distances ------------------------------------------------------------------------------------------------------------------------


def _widened(x):
    """Halves as float32: the squares of their values do not fit."""
    x = _floating(x)
    if x.dtype.itemsize > 2 or not _is_floating(x.dtype):
        return x
    return x.float() if isinstance(x, Tensor) else x.astype(np.float32)


def _narrowed(y, like):
    """`y` in the dtype of `like`."""
    if y.dtype == like.dtype or not _is_floating(like.dtype):
        return y
    return y.to(like.dtype) if isinstance(y, Tensor) else y.astype(like.dtype)


def _length(x, p: float, axis, eps: float):
    """The p-norm along an axis, which stays with length 1; at least eps, and with a gradient of 0 where it is 0."""
    if p == 2:
        return _core.sqrt(_core.maximum(_core.sum(_core.square(x), axis, True), eps * eps))
    if p == float("inf"):
        norm = _core.max(_core.abs(x), axis, True)
    elif p == 1:
        norm = _core.sum(_core.abs(x), axis, True)
    elif p == 0:
        norm = _core.sum(_core.abs(_core.sign(x)), axis, True)
    elif p < 0:
        norm = _core.pow(_core.sum(_core.pow(_core.abs(x), p), axis, True), 1.0 / p)
    else:
        least = np.finfo(np.dtype(x.dtype)).tiny  # where the slope of the root is not infinite
        norm = _core.pow(_core.maximum(_core.sum(_core.pow(_core.abs(x), p), axis, True), least), 1.0 / p)
    return _core.maximum(norm, eps)


def normalize(input, p: float = 2.0, dim: int = 1, eps: float = 1e-12):
    """x / max(norm, eps), with the p-norm of each vector along an axis.

    Parameters
    ----------
    input : array_like
    p : float, default 2.0
        2 is the Euclidean length, 1 the sum of the absolute values, infinity the largest of them, 0 how many are not 0.
    dim : int or tuple of int, default 1
        The axes of a vector.
    eps : float, default 1e-12
        The least norm that is divided by.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = _widened(input)
    return _narrowed(_core.div(x, _length(x, real("p", p), dim, not_negative("eps", eps))), _floating(input))


def _expanded(x, shape):
    if x.shape == shape:
        return x
    return x.expand(*shape) if isinstance(x, Tensor) else np.broadcast_to(x, shape)


def cosine_similarity(x1, x2, dim: int = 1, eps: float = 1e-8):
    """The cosine of the angle between vectors along an axis: x1 . x2 / (max(|x1|, eps) max(|x2|, eps)).

    Parameters
    ----------
    x1, x2 : array_like
        They broadcast.
    dim : int, default 1
        The axis of a vector, of the broadcast shape.
    eps : float, default 1e-8
        The least length that is divided by.

    Returns
    -------
    Tensor or ndarray
        The broadcast shape without the axis `dim`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.cosine_similarity(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    array([ 1.,  0., -1.])
    """
    given = _promote(x1, x2)
    shape = np.broadcast_shapes(given[0].shape, given[1].shape)
    a, b = (_expanded(_widened(x), shape) for x in given)
    lengths = (_length(x, 2, dim, not_negative("eps", eps)) for x in (a, b))
    both = _core.div(_core.sum(_core.mul(a, b), dim, True), _core.mul(*lengths))
    return _narrowed(both.squeeze(dim), given[0])


def pairwise_distance(x1, x2, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
    """The p-norm of x1 - x2 + eps along the last axis.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.pairwise_distance(np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]])).round(4)
    array([5.])
    """
    given = _promote(x1, x2)
    a, b = map(_widened, given)
    distance = _length(_core.add(_core.sub(a, b), real("eps", eps)), real("p", p), -1, 0.0)
    return _narrowed(distance if keepdim else distance.squeeze(-1), given[0])


def _reduced(losses, reduction: str):
    one_of("reduction", reduction, ("none", "mean", "sum"))
    return losses if reduction == "none" else as_loss(_core.mean(losses) if reduction == "mean" else _core.sum(losses))


def cosine_embedding_loss(input1, input2, target, margin: float = 0.0, reduction: str = "mean"):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    Parameters
    ----------
    input1, input2 : array_like, shape (N, D) or (D,)
    target : array_like, shape (N,) or ()
        1: they belong together; -1: they do not.
    margin : float, default 0
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> tc.functional.cosine_embedding_loss(x, x, np.array([1, -1]), reduction="none")
    array([0., 1.])
    """
    cosine, target = cosine_similarity(input1, input2, -1, 1e-12), _floating(target)
    far = _core.relu(_core.sub(cosine, real("margin", margin)))
    return _reduced(_core.where(_core.gt(target, 0), _core.sub(1.0, cosine), far), reduction)


def margin_ranking_loss(input1, input2, target, margin: float = 0.0, reduction: str = "mean"):
    """max(0, margin - target (x1 - x2)): with target 1, x1 should be larger than x2 by the margin, with -1 smaller.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.margin_ranking_loss(np.array([1.0, 1.0]), np.array([0.0, 3.0]), np.array([1.0, 1.0]), reduction="none")
    array([0., 2.])
    """
    x1, x2, target = _promote(input1, input2, target)
    return _reduced(_core.relu(_core.sub(real("margin", margin), _core.mul(target, _core.sub(x1, x2)))), reduction)


def triplet_margin_loss(
    anchor, positive, negative, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
):
    """max(0, |anchor - positive| - |anchor - negative| + margin), with ``pairwise_distance`` along the last axis.

    Parameters
    ----------
    anchor, positive, negative : array_like, shape (N, D) or (D,)
    margin : float, default 1.0
    p, eps : float
        As for ``pairwise_distance``.
    swap : bool, default False
        Use the distance of positive and negative where it is the smaller one (Balntas et al. 2016).
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> a = np.zeros((1, 2))
    >>> float(tc.functional.triplet_margin_loss(a, a, a + [[3.0, 4.0]], margin=6.0).round(4))
    1.0
    """
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = _core.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(_core.relu(_core.add(_core.sub(near, far), real("margin", margin))), reduction)


def gaussian_nll_loss(input, target, var, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
    """(log var + (x - target)^2 / var) / 2: the negative log-likelihood of a normal distribution.

    Parameters
    ----------
    input, target : array_like
        Means and observations.
    var : array_like
        Variances, of the shape of `input` or one for each row: without the last axis, or with length 1 there.
    full : bool, default False
        Whether to add the constant log(2 pi) / 2.
    eps : float, default 1e-6
        The least variance.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0])))
    2.0
    """
    x, target, given = _promote(input, target, var)
    if given.ndim and given.shape == x.shape[:-1] and given.shape != x.shape:
        given = given.reshape(*given.shape, 1)
    variance = _core.maximum(given, eps)
    difference = _core.sub(x, target)
    losses = _core.mul(_core.add(_core.log(variance), _core.div(_core.mul(difference, difference), variance)), 0.5)
    return _reduced(_core.add(losses, 0.5 * math.log(2 * math.pi)) if full else losses, reduction)


if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
