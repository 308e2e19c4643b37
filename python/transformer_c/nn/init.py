"""Fills parameters with initial values in place; given the same seed, the values are PyTorch's."""

from __future__ import annotations

import math
import warnings
from _thread import get_ident
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .. import random as _random
from .._arguments import all_of, count, real
from .._core import Tensor
from .._joining import where
from .._names import hooks
from .._recording import no_grad
from .._tensor import as_tensor
from ..tensor_functions import eye
from .parameter import skipping


def skip() -> AbstractContextManager[None]:
    """Layers that are made in it have parameters that are not initialised: for those whose values are loaded next.

    The functions of this module leave a tensor as it is and draw no random numbers; an ``nn.Parameter`` of a Tensor shares its memory. It
    applies to the thread that entered it.

    Examples
    --------
    >>> import transformer_c as tc
    >>> source = tc.nn.Linear(1000, 1000)
    >>> with tc.nn.init.skip():
    ...     layer = tc.nn.Linear(1000, 1000)
    >>> layer.load_state_dict(source.state_dict())
    <All keys matched successfully>
    """
    return _core.replaced([(skipping, get_ident(), True)])


_LINEAR = ("linear", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity's weights should be scaled (He et al. 2015; Glorot & Bengio 2010)."""
    gains = {**dict.fromkeys(_LINEAR, 1.0), "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope**2))
    if nonlinearity not in gains:
        raise ValueError(f"nonlinearity {nonlinearity!r} is unknown; expected leaky_relu, {', '.join(gains)}")
    return gains[nonlinearity]


def _check(tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"nn.init fills a Tensor in place, got {type(tensor).__name__}; tc.tensor(...) makes a Tensor of an array")


def _fill(tensor: Tensor, write: Callable[[], Tensor]) -> Tensor:
    _check(tensor)
    if get_ident() in skipping:
        return tensor
    with no_grad():
        return write()


def _fans(weight: Tensor) -> tuple[int, int]:
    """(inputs, outputs) of one unit of a weight (outputs, inputs, ...)."""
    _check(weight)
    if weight.ndim < 2:
        raise ValueError(f"fan in and fan out need at least 2 axes, got shape {weight.shape}")
    receptive = math.prod(weight.shape[2:])
    return weight.shape[1] * receptive, weight.shape[0] * receptive


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator=None) -> Tensor:
    """Fills with U(a, b)."""
    all_of((real, "a", a), (real, "b", b))
    return _fill(tensor, lambda: tensor.uniform_(a, b, generator=generator))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator=None) -> Tensor:
    """Fills with N(mean, std**2)."""
    all_of((real, "mean", mean), (real, "std", std))
    return _fill(tensor, lambda: tensor.normal_(mean, std, generator=generator))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator=None) -> Tensor:
    """Fills with N(mean, std**2), restricted to [a, b]: numbers outside are drawn again.

    Given the same seed, the values are those of PyTorch 2.13; versions of PyTorch before drew by another method.

    Parameters
    ----------
    tensor : Tensor
    mean, std : float
        Of the distribution before it is restricted.
    a, b : float
        Bounds: themselves, not multiples of `std`.
    generator : tc.Generator, optional

    Examples
    --------
    >>> import transformer_c as tc
    >>> weight = tc.nn.init.trunc_normal_(tc.empty(1000), std=0.02, a=-0.03, b=0.03)
    >>> 0.029 < weight.abs().max().item() <= 0.03
    True
    """
    all_of((real, "mean", mean), (real, "std", std), (real, "a", a), (real, "b", b))
    if not a < b or not 0 < std < math.inf or not math.isfinite(mean):
        raise ValueError(f"trunc_normal_() needs a below b, a positive std and a finite mean, got a={a}, b={b}, std={std}, mean={mean}")
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b]; the distribution of the values may be wrong", stacklevel=2)
    low, high = ((1.0 + math.erf((bound - mean) / std / math.sqrt(2.0))) / 2.0 for bound in (a, b))
    draw = _among_normal if high - low > 0.3 else _among_uniform
    return _fill(tensor, lambda: tensor.copy_(draw(tensor, mean, std, a, b, generator)))


def _among_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Normal numbers, those outside of the bounds drawn again: for bounds that hold more than 30 %."""
    low, high = (tensor.new_tensor(bound, device="cpu") for bound in (a, b))  # as the dtype has them; numbers are drawn on the CPU
    drawn = _random._normal(tensor.shape, mean, std, tensor.dtype, generator)
    while (outside := (drawn < low).logical_or(drawn > high)).any():
        drawn = where(outside, _random._normal(tensor.shape, mean, std, tensor.dtype, generator), drawn)
    return drawn


def _among_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Uniform numbers, each accepted with a probability that goes with its density: for bounds far from the mean."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def candidates() -> tuple[Tensor, Tensor]:
        drawn = _random._uniform(tensor.shape, a, b, tensor.dtype, generator)
        density = ((drawn - mean) / std).square() * -0.5 - peak  # its logarithm
        return drawn, _random._uniform(tensor.shape, 0.0, 1.0, tensor.dtype, generator).log() > density

    accepted, pending = candidates()
    while pending.any():
        drawn, refused = candidates()
        accepted, pending = where(pending, drawn, accepted), pending.logical_and(refused)
    return accepted


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills with `val`."""
    _check(tensor)
    if get_ident() in skipping:
        return tensor
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills with 0."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fills with 1."""
    return constant_(tensor, 1.0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator=None) -> Tensor:
    """Fills with U(-a, a), a = gain sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010, eq. 16)."""
    fan_in, fan_out = _fans(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator=None) -> Tensor:
    """Fills with N(0, gain**2 2 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = _fans(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan or 1)  # 0 of a tensor without elements


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None) -> Tensor:
    """Fills with U(-b, b), b = gain sqrt(3 / fan) (He et al. 2015)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None) -> Tensor:
    """Fills with N(0, gain**2 / fan) (He et al. 2015)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def eye_(tensor: Tensor) -> Tensor:
    """Fills a matrix with 1 on the diagonal and 0 elsewhere.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.init.eye_(tc.empty(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    _check(tensor)
    if tensor.ndim != 2:
        raise ValueError(f"eye_() fills matrices; got shape {tuple(tensor.shape)}")
    return _fill(tensor, lambda: tensor.copy_(eye(*tensor.shape)))


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator=None) -> Tensor:
    """Fills with an orthogonal matrix, the first axis its rows and all others its columns (Saxe et al. 2013).

    Given the same seed, the values are PyTorch's up to rounding.

    Parameters
    ----------
    tensor : Tensor
        With at least 2 axes. Where there are more rows than columns, the columns are orthogonal, otherwise the rows.
    gain : float
        The length of each.
    generator : tc.Generator, optional

    Examples
    --------
    >>> import transformer_c as tc
    >>> weight = tc.nn.init.orthogonal_(tc.empty(3, 5), gain=2.0)
    >>> tc.allclose(weight @ weight.T, 4 * tc.eye(3), atol=1e-5)
    True
    """
    _check(tensor)
    gain = real("gain", gain)
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_() fills tensors of at least 2 axes; got shape {tuple(tensor.shape)}")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]

    from .. import linalg

    def write() -> Tensor:
        drawn = _random._normal((rows, columns), 0.0, 1.0, tensor.dtype, generator)
        drawn = drawn if tensor.dtype.name == "float64" else drawn.float()
        q, r = linalg.qr(drawn.T if rows < columns else drawn)
        q = q * as_tensor(np.sign(np.diagonal(r.numpy())))  # of the many factors, the one with a positive diagonal
        return tensor.copy_(gain * (q.T if rows < columns else q).reshape(tensor.shape))

    return _fill(tensor, write)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills the weight of a convolution, (outputs, inputs, ...), so that it passes on as many channels as it can: 1 in the middle of their kernels.

    Parameters
    ----------
    tensor : Tensor
        With 3, 4 or 5 axes.
    groups : int, default 1
        Those of the convolution.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.init.dirac_(tc.empty(2, 2, 3)).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    _check(tensor)
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_() fills weights of convolutions, with 3, 4 or 5 axes; got shape {tuple(tensor.shape)}")
    groups = count("groups", groups, 1)
    outputs, inputs, *kernel = tensor.shape
    if outputs % groups:
        raise ValueError(f"the {outputs} outputs must be a multiple of groups, {groups}")

    def write() -> Tensor:
        tensor.zero_()
        middle = tuple(size // 2 for size in kernel)
        for group in range(groups):
            for channel in range(min(outputs // groups, inputs)):
                tensor[(group * (outputs // groups) + channel, channel) + middle] = 1.0
        return tensor

    return _fill(tensor, write)


if not TYPE_CHECKING:
    instead = {
        "sparse_": "t.zero_(), and nn.init.normal_() of some rows of each column",
    }
    __getattr__, __dir__ = hooks(__name__, instead=instead)
    del instead
