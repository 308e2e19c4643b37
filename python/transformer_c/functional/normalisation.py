"""Normalisation of rows and of channels, rotary positions, dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .._arguments import count, one_input, probability, real, switch, tensor_of
from .._core import Tensor
from .._promotion import is_floating, narrowed, promote, unchanged, widened
from .._recording import no_grad
from ..random import _instead, as_generator, default_generator
from ..tensor_functions._calls import takes_arrays
from ..tensor_functions.elements import addcmul

__all__ = ["add_layer_norm", "batch_norm", "dropout", "group_norm", "layer_norm", "rms_norm", "rotary"]


def layer_norm(input=None, normalized_shape=None, weight=None, bias=None, eps: float = 1e-5, *, x=None):
    """Normalises the last axes to mean 0 and variance 1, then scales and shifts (Ba et al. 2016).

    Parameters
    ----------
    input, x : array_like, shape (..., *normalized_shape)
        Two names of one argument.
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
    input, weight, bias = promote(input if x is None else one_input(input, x), weight, bias)
    return _core.layer_norm(input, normalized_shape, weight, bias, eps)


def add_layer_norm(input, residual, normalized_shape, weight=None, bias=None, eps: float = 1e-5, *, dropout_p: float = 0.0, rng=None):
    """``layer_norm(dropout(input, dropout_p) + residual)`` in one pass over memory.

    Parameters
    ----------
    input, residual : array_like, shape (..., *normalized_shape)
    normalized_shape, weight, bias, eps
        As for ``layer_norm``.
    dropout_p : float, default 0.0
        The probability with which an element of `input` is dropped; 0 draws no mask.
    rng : int, np.random.Generator, tc.Generator or None
        As for ``dropout``, whose mask it is.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.add_layer_norm(np.array([[1.0, 3.0]]), np.zeros((1, 2)), 2, eps=0.0)
    array([[-1.,  1.]])
    """
    input, residual, weight, bias = promote(input, residual, weight, bias)
    if not (type(dropout_p) is float and 0.0 <= dropout_p <= 1.0):
        probability("dropout", dropout_p)
    if dropout_p == 0.0:
        return _core.add_layer_norm(input, residual, normalized_shape, weight, bias, eps)

    def dropping(seed, call):
        return _core.add_layer_norm(input, residual, normalized_shape, weight, bias, eps, dropout=dropout_p, seed=seed, call=call)

    return as_generator(rng).with_mask(dropping)


def _check_channels(taker: str, input: Tensor) -> None:
    if input.ndim < 2 or not is_floating(input):
        wrong = TypeError if input.ndim >= 2 else ValueError
        raise wrong(f"{taker} takes floats of shape (samples, channels, ...), got {input._dtype_name} of shape {tuple(input.shape)}")


def _of_channels(name: str, values: Any, x: Tensor) -> Tensor | None:
    """A number for each channel of x, as float32 where it is a half, in a shape that broadcasts."""
    if values is None:
        return None
    found = widened(tensor_of(name, values, x))
    if found.shape != (x.shape[1],):
        raise ValueError(
            f"{name} has shape {tuple(found.shape)}; expected ({x.shape[1]},), a number for each channel of input {tuple(x.shape)}"
        )
    return found.reshape(1, x.shape[1], *(1,) * (x.ndim - 2))


def _refuse_unwritable(name: str, values: Any) -> None:
    if not isinstance(values, (Tensor, np.ndarray)):
        raise TypeError(f"{name} must be a Tensor or ndarray, to which training=True can write, not {type(values).__name__}")
    if not is_floating(values if isinstance(values, Tensor) else _core.as_argument(values)):
        raise TypeError(f"{name} is {values.dtype}; expected floats")
    if isinstance(values, Tensor):
        with no_grad():
            values[:0] = 0.0  # refuses, where a write is refused
    elif not values.flags.writeable:
        raise ValueError(f"{name} is read-only, and training=True writes to it; pass a copy")


def _follow(running: Any, value: Tensor, momentum: float) -> None:
    """running = (1 - momentum) * running + momentum * value, where it is."""
    with no_grad():
        value = value.reshape(-1)
        running *= 1.0 - momentum
        running += momentum * (value.to(running.dtype) if isinstance(running, Tensor) else value.numpy())


@takes_arrays("input", method=False)
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalises each channel to mean 0 and variance 1, then scales and shifts (Ioffe and Szegedy 2015).

    Parameters
    ----------
    input : array_like, shape (B, C, ...)
    running_mean, running_var : Tensor or ndarray, shape (C,), or None
        Means and variances over time. With `training` they are written to, and may be None; without, they normalise.
    weight, bias : array_like, shape (C,), optional
    training : bool, default False
        Whether the mean and variance are those of `input`, over all axes but the second.
    momentum : float, default 0.1
        The share of a batch in the running mean and variance; in the latter is the unbiased one.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    Tensor or ndarray of the shape of input

    Raises
    ------
    ValueError
        With `training`, for less than two numbers per channel.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> mean, var = np.zeros(1), np.ones(1)
    >>> tc.functional.batch_norm(np.array([[1.0], [3.0]]), mean, var, training=True).round(3)
    array([[-1.],
           [ 1.]])
    >>> mean, var
    (array([0.2]), array([1.1]))
    """
    training, momentum, eps = switch("training", training), real("momentum", momentum), real("eps", eps)
    _check_channels("batch_norm", input)
    running: dict[str, Any] = {"running_mean": running_mean, "running_var": running_var}
    if (running_mean is None) != (running_var is None) or (running_mean is None and not training):
        raise ValueError("batch_norm needs running_mean and running_var, or neither with training=True")
    for name, values in running.items():
        if training and values is not None:
            _refuse_unwritable(name, values)
    x = widened(input)
    mean: Any
    var: Any
    mean, var, scale, shift = (_of_channels(name, values, x) for name, values in (*running.items(), ("weight", weight), ("bias", bias)))
    if training:
        if not eps > 0.0:
            raise ValueError(f"eps must be positive with training=True, got {eps}")
        numbers = x.numel() // x.shape[1] if x.numel() else 0
        if numbers < 2:
            raise ValueError(f"batch_norm with training=True needs two numbers per channel, got input of shape {tuple(x.shape)}")
        axes = [0, *range(2, x.ndim)]
        mean, var = _core.mean(x, axes, True), x.var(axes, unbiased=False, keepdim=True)
    factor = _core.rsqrt(_core.add(var, eps))
    factor = factor if scale is None else factor * scale
    y = narrowed(addcmul((0.0 if shift is None else shift) - mean * factor, x, factor), input)
    if training and running_mean is not None:
        unbiased = var * (numbers / (numbers - 1))
        _follow(running_mean, mean, momentum)
        _follow(running_var, unbiased, momentum)
    return y


@takes_arrays("input", method=False)
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Normalises groups of channels of each sample to mean 0 and variance 1, then scales and shifts each channel (Wu and He 2018).

    Parameters
    ----------
    input : array_like, shape (B, C, ...)
    num_groups : int
        A divisor of C.
    weight, bias : array_like, shape (C,), optional
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    Tensor or ndarray of the shape of input

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.group_norm(np.array([[1.0, 3.0, 10.0, 20.0]]), 2).round(3)
    array([[-1.,  1., -1.,  1.]])
    """
    groups = count("num_groups", num_groups, 1)
    _check_channels("group_norm", input)
    if input.shape[1] % groups:
        raise ValueError(f"num_groups is {groups}, which does not divide the {input.shape[1]} channels of input {tuple(input.shape)}")
    x = widened(input)
    scale, shift = (_of_channels(name, values, x) for name, values in (("weight", weight), ("bias", bias)))
    if not x.numel():
        y = x * 1.0  # which has a history with the weights as well
    else:
        rows = x.unflatten(1, (groups, -1))
        y = _core.layer_norm(rows.flatten(2), math.prod(rows.shape[2:]), None, None, eps).reshape(x.shape)
    if scale is not None:
        y = _core.mul(y, scale) if shift is None else addcmul(shift, y, scale)
    elif shift is not None:
        y = _core.add(y, shift)
    return narrowed(y, input)


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
    input, weight = promote(input, weight)
    return _core.rms_norm(input, normalized_shape, weight, eps)


def dropout(input, p: float = 0.5, training: bool = True, inplace: bool = False, *, rng=None):
    """Sets elements to 0 with probability `p` and scales the others by 1 / (1 - p).

    Parameters
    ----------
    input : array_like
    p : float, default 0.5
    training : bool, default True
        False returns the input: a Tensor itself, a copy of an array.
    inplace : bool
        Accepted; the input stays as it is.
    rng : int, np.random.Generator, tc.Generator or None
        The mask depends on the generator's seed and on how many masks it has given so far. None is the default generator.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> sorted(set(tc.functional.dropout(np.ones(100), 0.5, rng=0).tolist()))
    [0.0, 2.0]
    """
    if not (type(p) is float and 0.0 < p <= 1.0):
        probability("dropout", p)
        if p == 0.0:
            training = False
    if not training:
        return input if isinstance(input, Tensor) else unchanged(input)
    generator = default_generator if rng is None and not _instead else as_generator(rng)
    return generator.with_mask(_core.dropout, input, p)
