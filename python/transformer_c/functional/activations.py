"""Functions of elements, and softmax. `inplace` is accepted; the result is always a new Tensor."""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from .._arguments import not_negative, one_of, real, switch
from .._promotion import as_given, cast, needed, promote, rounds_once
from .._tensor import empty_like, full_like, zeros_like
from ..random import rand
from ..tensor_functions._calls import axis_of, takes_arrays
from ..tensor_functions.elements import log_softmax, softmax

__all__ = [
    "celu",
    "elu",
    "geglu",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
]


def relu(input, inplace: bool = False):
    """max(x, 0), elementwise.

    Parameters
    ----------
    input : array_like
    inplace : bool
        Accepted; the result is always a new Tensor.

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
    one_of("approximate", approximate, ("none", "tanh"))
    return _core.gelu(input) if approximate == "none" else _core.gelu_tanh(input)


def silu(input, inplace: bool = False):
    """x sigmoid(x), also called swish (Hendrycks & Gimpel 2016; Ramachandran et al. 2017).

    Parameters
    ----------
    input : array_like
    inplace : bool
        Accepted; the result is always a new Tensor.

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
        Accepted; the result is always a new Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    return _core.leaky_relu(as_given(input), negative_slope)


def elu(input, alpha: float = 1.0, inplace: bool = False):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere (Clevert et al. 2016).

    Parameters
    ----------
    input : array_like
    alpha : float, default 1.0
    inplace : bool
        Accepted; the result is always a new Tensor.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    return _core.elu(as_given(input), alpha)


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
    return _core.softplus(as_given(input), beta) if threshold == 20.0 else _softplus(input, beta, threshold)


@rounds_once
def _softplus(x, beta: float, threshold: float):
    scaled = _core.mul(x, beta)
    linear = _core.gt(scaled, min(threshold, 40.0))  # further up the result has the bits of x
    smooth = _core.log1p(_core.exp(_core.where(linear, 0.0, scaled)))
    return _core.where(linear, x, _core.div(smooth, beta))


def tanh(input):
    """The hyperbolic tangent, elementwise."""
    return _core.tanh(input)


def sigmoid(input):
    """1 / (1 + exp(-x)), elementwise."""
    return _core.sigmoid(input)


def hardtanh(input, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
    """x clipped to [min_val, max_val]; at the bounds the gradient is 0.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.hardtanh(np.array([-3.0, 0.5, 2.0]))
    array([-1. ,  0.5,  1. ])
    """
    if not real("min_val", min_val) <= real("max_val", max_val):
        raise ValueError(f"min_val must not be larger than max_val, got {min_val} and {max_val}")
    x = as_given(input)
    if x.dtype.kind in "iu":  # stay what they are
        min_val, max_val = int(min_val), int(max_val)
    clipped = _core.clamp(x, min_val, max_val)
    if not getattr(x, "requires_grad", False):
        return clipped
    return _core.where(_core.logical_and(_core.gt(x, min_val), _core.lt(x, max_val)), x, clipped.detach())


def relu6(input, inplace: bool = False):
    """x clipped to [0, 6]; at the bounds the gradient is 0."""
    return _core.relu6(input)


def hardsigmoid(input, inplace: bool = False):
    """relu6(x + 3) / 6: a sigmoid made of straight lines."""
    return _core.hardsigmoid(input)


def hardswish(input, inplace: bool = False):
    """x relu6(x + 3) / 6: ``silu`` with straight lines (Howard et al. 2019)."""
    return _core.hardswish(input)


@rounds_once
def selu(input, inplace: bool = False):
    """1.0507 elu(x, 1.6733), which keeps mean 0 and variance 1 (Klambauer et al. 2017).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.selu(np.array([-1.0, 2.0])).round(4)
    array([-1.1113,  2.1014])
    """
    return _core.mul(_core.elu(input, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


@rounds_once
def celu(input, alpha: float = 1.0, inplace: bool = False):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017)."""
    if real("alpha", alpha) == 0:
        raise ValueError("alpha must not be 0")
    if alpha < 0:
        negative = _core.mul(_core.sub(_core.exp(_core.div(_core.clamp_max(input, 0.0), alpha)), 1.0), alpha)
        return _core.where(_core.le(input, 0.0), negative, input)
    if alpha < 1:  # input / alpha may be infinite
        negative = _core.mul(_core.elu(_core.div(_core.clamp_max(input, 0.0), alpha), 1.0), alpha)
        return _core.where(_core.lt(0.0, input), input, negative)
    return _core.mul(_core.elu(_core.div(input, alpha), 1.0), alpha)


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
    needed(input=input, weight=weight)
    x, slope = promote(input, weight)
    if slope.ndim > 1:
        raise ValueError(f"weight has shape {tuple(slope.shape)}; expected one slope for each channel, or one for all")
    if slope.ndim and slope.shape[0] != 1:
        channels = x.shape[1] if x.ndim > 1 else x.shape[0] if x.ndim else 1
        if slope.shape[0] != channels:
            raise ValueError(f"weight has {slope.shape[0]} slopes but input {tuple(x.shape)} has {channels} channels")
        slope = slope.reshape(-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else slope
    return _core.leaky_relu(x, slope.reshape(tuple(slope.shape)[: x.ndim]))


@rounds_once
def glu(input, dim: int = -1):
    """a sigmoid(b), where a and b are the halves of an axis: a gated linear unit (Dauphin et al. 2017).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.glu(np.array([[1.0, 2.0, 0.0, 0.0]]))
    array([[0.5, 1. ]])
    """
    axis = axis_of("dim", input.ndim, dim)
    if input.ndim == 0 or input.shape[axis] % 2:
        raise ValueError(f"glu halves axis {dim} of input, whose length must be even; the shape is {tuple(input.shape)}")
    half = input.shape[axis] // 2
    a, b = (input[(slice(None),) * axis + (part,)] for part in (slice(None, half), slice(half, None)))
    return _core.mul(a, _core.sigmoid(b))


@takes_arrays("logits", method=False)
def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1, *, rng: Any = None) -> Any:
    """Softmax of scores and Gumbel noise: a draw of a class that has a gradient (Jang et al. 2017).

    Parameters
    ----------
    logits : array_like
        Logarithms of weights, which need not add up to 1.
    tau : float
        The temperature.
    hard : bool, default False
        One-hot vectors of the largest, with the gradient of the softmax.
    eps : float
        Without effect, as in PyTorch.
    dim : int, default -1
        The axis of the classes.
    rng : int, np.random.Generator, tc.Generator or None
        None is the default generator; the numbers are not those that PyTorch draws here.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.gumbel_softmax(np.array([[0.0, 99.0], [99.0, 0.0]]), hard=True)
    array([[0., 1.],
           [1., 0.]])
    """
    if not real("tau", tau) > 0:
        raise ValueError(f"tau must be positive, got {tau}")
    hard = switch("hard", hard)
    noise = empty_like(logits.detach()).exponential_(generator=rng).log()
    soft = softmax(_core.div(_core.sub(logits, noise), float(tau)), dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    chosen = zeros_like(soft.detach()).scatter(dim, index, 1.0)
    return _core.add(_core.sub(chosen, soft.detach()), soft)


@rounds_once
def mish(input, inplace: bool = False):
    """x tanh(softplus(x)) (Misra 2019).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.mish(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8651])
    """
    return _core.mul(input, _core.tanh(_core.softplus(input, 1.0)))


@rounds_once
def logsigmoid(input):
    """log(1 / (1 + exp(-x))), without overflow.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.logsigmoid(np.array([-1000.0, 0.0])).round(4)
    array([-1.000e+03, -6.931e-01])
    """
    return _core.sub(_core.minimum(input, 0.0), _core.log1p(_core.exp(_core.neg(_core.abs(input)))))


@rounds_once
def softsign(input):
    """x / (1 + |x|)."""
    return _core.div(input, _core.add(_core.abs(input), 1.0))


def softmin(input, axis: int | None = None, *, dim: int | None = None, dtype=None):
    """``softmax`` of -x. Parameters as for ``softmax``."""
    return softmax(_core.neg(cast(as_given(input), dtype)), axis, dim=dim)


@rounds_once
def hardshrink(input, lambd: float = 0.5):
    """x where |x| is larger than lambd, 0 elsewhere.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.hardshrink(np.array([-2.0, 0.25]))
    array([-2.,  0.])
    """
    inside = _core.logical_and(_core.ge(input, -real("lambd", lambd)), _core.le(input, lambd))
    return _core.where(inside, 0.0, input)


@rounds_once
def softshrink(input, lambd: float = 0.5):
    """x brought nearer to 0 by lambd, and 0 where it was as near already.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.softshrink(np.array([-2.0, 0.25]))
    array([-1.5,  0. ])
    """
    not_negative("lambd", lambd)
    return _core.sub(input, _core.clamp(input, -lambd, lambd))


@rounds_once
def tanhshrink(input):
    """x - tanh(x)."""
    return _core.sub(input, _core.tanh(input))


def threshold(input, threshold: float, value: float, inplace: bool = False):
    """x where it is larger than `threshold`, `value` elsewhere. Of integers both are rounded towards zero, as in PyTorch.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.threshold(np.array([-2.0, 0.5]), 0.1, 20.0)
    array([20. ,  0.5])
    """
    x = as_given(input)
    threshold, value = real("threshold", threshold), real("value", value)
    if x.dtype.kind in "iu":
        if not (math.isfinite(threshold) and math.isfinite(value)):
            raise ValueError(f"threshold and value must be finite for {x.dtype}, got {threshold} and {value}")
        threshold, value = int(threshold), int(value)
    return _core.where(_core.le(x, threshold), value, x)


@takes_arrays("input", method=False)
def rrelu(
    input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False, *, generator: Any = None
) -> Any:
    """``leaky_relu`` with a slope that is drawn between two bounds for each element; without `training`, their mean (Xu et al. 2015).

    Parameters
    ----------
    input : array_like
    lower, upper : float
    training : bool, default False
    inplace : bool
        Accepted; the result is always a new Tensor.
    generator : tc.Generator, optional
        None is the default generator: the slopes are PyTorch's of the same seed.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.rrelu(np.array([-1.0, 2.0]), 0.25, 0.75)
    array([-0.5,  2. ])
    """
    if not real("lower", lower) <= real("upper", upper):
        raise ValueError(f"lower must not be larger than upper, got {lower} and {upper}")
    if not math.isfinite(upper - lower):
        raise ValueError(f"lower and upper must be finite, and so must their difference, got {lower} and {upper}")
    if not switch("training", training):
        return _core.leaky_relu(input, (lower + upper) / 2)
    falls = _core.le(input.detach(), 0.0)
    drawn = rand(int(falls.sum()), dtype="float64", generator=generator)
    slopes = full_like(input.detach(), 1.0)
    slopes[falls] = (drawn * (upper - lower) + lower).to(slopes.device)
    return _core.leaky_relu(input, slopes)
