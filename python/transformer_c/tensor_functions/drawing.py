"""Numbers drawn at random into a tensor, and indices drawn by weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .._arguments import all_of, count, not_negative, real
from .._core import Tensor
from .._promotion import is_floating
from .._pytorch_names import finfo
from ..random import _check_written, _draw_below, _fill_normal, _fill_uniform, _probabilities, as_generator, bernoulli, one_source
from ._calls import METHODS, takes_arrays
from .ordering import topk


@takes_arrays("input")
def multinomial(input: Any, num_samples: int, replacement: bool = False, *, rng: Any = None, generator: Any = None) -> Any:
    """Indices drawn from rows of weights.

    Parameters
    ----------
    input : array_like, shape (K,) or (N, K)
        Weights, at least 0; they need not add up to 1.
    num_samples : int
    replacement : bool
        Whether an index may be drawn more than once.
    rng, generator : int, np.random.Generator, tc.Generator or None
        None is the default generator.

    Returns
    -------
    Tensor or ndarray of int64, shape (num_samples,) or (N, num_samples)

    Raises
    ------
    ValueError
        For weights that are negative, not finite or all 0; for more samples than there are weights above 0, without replacement.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.multinomial(tc.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    if input.ndim not in (1, 2):
        raise ValueError(f"input has shape {input.shape}; multinomial() takes (K,) or (N, K) weights")
    if not is_floating(input):
        raise TypeError(f"input is {input._dtype_name}; multinomial() takes floating weights: convert it with .float()")
    num_samples = count("num_samples", num_samples)
    weights = input.detach().cpu().double().reshape(-1 if input.numel() else math.prod(input.shape[:-1]), input.shape[-1])
    source = as_generator(one_source(rng, generator))
    if weights.numel():
        largest = _core.max(weights, 1, True)
        if not (_core.min(weights).item() >= 0 and _core.max(largest).item() < math.inf):  # false of NaN
            raise ValueError("multinomial() needs weights that are finite and not negative")
        if not _core.min(largest).item() > 0:
            raise ValueError("multinomial() needs a weight above 0 in every row")
        weights = _core.div(weights, largest)  # sums of them must be finite
    elif weights.shape[0]:
        raise ValueError("multinomial() needs a weight above 0 in every row")
    if not replacement and num_samples > 1 and bool(_core.lt(_core.sum(_core.gt(weights, 0.0), 1), int(num_samples)).any()):
        raise ValueError(
            f"num_samples is {num_samples}, but a row of input {input.shape} has fewer weights above 0; replacement=True repeats them"
        )
    draw = _with_replacement if replacement and num_samples != 1 else _without_replacement  # of one sample as PyTorch draws it
    return draw(weights, int(num_samples), source).reshape((*input.shape[:-1], num_samples)).to(input.device)


def _refuse_ints(name: str, self: Tensor) -> None:
    if not is_floating(self):
        raise TypeError(f"{name}() needs a floating tensor, not {self._dtype_name}; tc.randint(low, high, t.shape) draws ints")


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with numbers of N(mean, std**2): PyTorch's, given the same seed."""
    _refuse_ints("normal_", self)
    if type(mean) is not float or type(std) is not float or not std >= 0:
        all_of((real, "mean", mean), (not_negative, "std", std))
    return _fill_normal(self, mean, std, generator)


def uniform_(self: Tensor, low: float = 0.0, to: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with numbers of U(low, to): PyTorch's, given the same seed."""
    _refuse_ints("uniform_", self)
    if type(low) is not float or type(to) is not float:
        all_of((real, "low", low), (real, "to", to))
    if not -math.inf < low <= to < math.inf:
        raise ValueError(f"uniform_() needs finite bounds, low at most to, got low={low}, to={to}")
    return _fill_uniform(self, low, to, generator)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills with 1 with the probability `p`, a number or an array that broadcasts to the tensor, and with 0 otherwise. The draws are those of
    ``tc.bernoulli``; for a number PyTorch takes others, of a library of Intel's."""
    number = isinstance(p, (bool, int, float))
    sure = number and 0 <= p <= 1
    if not isinstance(p, Tensor):
        p = _core.as_argument(np.asarray(p, np.float32) if number else p, self)
    p = p if sure else _probabilities(p).expand(self.shape)
    source = as_generator(generator)
    _check_written(self)
    return self.copy_(_draw_below(p, self.shape, source))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with positive numbers of the density lambd exp(-lambd x). PyTorch's are others, of a library of Intel's."""
    _refuse_ints("exponential_", self)
    if not 0 < real("lambd", lambd) < math.inf:
        raise ValueError(f"exponential_() needs a positive, finite lambd, got {lambd}")
    source = as_generator(generator)
    _check_written(self)
    drawn = source.uniform(self.shape, 0.0, 1.0, "float64" if self._dtype_name == "float64" else None)
    times = _core.clamp_min(_core.neg(_core.log1p(_core.neg(drawn))), finfo(drawn.dtype).eps / 2)  # never 0, whose logarithm is infinite
    result = _core.div(times, float(lambd)).to(self._dtype_name)
    own = finfo(self._dtype_name)
    if finfo(drawn.dtype).eps / 2 / lambd < own.tiny * own.eps:
        result = _core.clamp_min(result, own.tiny * own.eps)  # the smallest number: some were rounded to 0
    return self.copy_(result.to(self.device))


METHODS.update(bernoulli=bernoulli, bernoulli_=bernoulli_, exponential_=exponential_, normal_=normal_, uniform_=uniform_)


def _without_replacement(weights: Tensor, count: int, source: Any) -> Tensor:
    """The `count` shortest of waiting times, each exponential with its weight as the rate."""
    times = _core.neg(_core.log(_core.sub(1.0, source.uniform(weights.shape, 0.0, 1.0, "float64"))))
    times = _core.sub(_core.log(times), _core.log(weights))  # logarithms: those of tiny weights stay finite, that of 0 is infinite
    return topk(times, count, 1, largest=False).indices


_FEW = 512  # comparisons in a row, which are sooner all made than a search called from Python


def _with_replacement(weights: Tensor, count: int, source: Any) -> Tensor:
    """The first running sum that is above a uniform number."""
    if not weights.shape[0]:
        return _core.empty((0, count), np.int64)
    sums = _core.cumsum(weights, 1)
    drawn = _core.mul(source.uniform((weights.shape[0], count), 0.0, 1.0, "float64"), sums[:, -1:])
    if weights.shape[1] * count <= _FEW:
        found = _core.sum(_core.le(sums.unsqueeze(1), drawn.unsqueeze(2)), 2)
    else:
        places = np.empty(drawn.shape, np.int64)
        for row, running, numbers in zip(places, np.asarray(sums), np.asarray(drawn), strict=True):
            row[:] = running.searchsorted(numbers, "right")
        found = _core.as_argument(places)
    if _core.max(found).item() == weights.shape[1]:  # rounding has put a number beyond the last sum
        positive = np.asarray(_core.gt(weights, 0.0))
        found = _core.minimum(found, weights.shape[1] - 1 - positive[:, ::-1].argmax(1)[:, None])
    return found


__all__ = ["multinomial"]
