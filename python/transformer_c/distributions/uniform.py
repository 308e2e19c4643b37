"""Uniform distributions."""

from __future__ import annotations

import math
from typing import Any

from .._core import Tensor
from .._joining import where
from ..random import rand
from .base import Distribution, beside, divergence_of, together


class Uniform(Distribution):
    """Numbers from an interval, all equally likely.

    Parameters
    ----------
    low, high : float or array_like
        Its ends, which are broadcast.
    validate_args : bool, optional
        False: the ends are not checked, and values outside have the probability 0 in place of an error.

    Examples
    --------
    >>> import transformer_c as tc
    >>> interval = tc.distributions.Uniform(tc.zeros(2), 4.0)
    >>> interval.mean, interval.cdf(1.0)
    (tensor([2., 2.]), tensor([0.2500, 0.2500]))
    """

    _parameters = ("low", "high")
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = together(low=low, high=high)
        self._checks = validate_args is not False
        if self._checks and not bool((self.low.detach() < self.high.detach()).all()):
            raise ValueError("low must be below high")

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self._not_a_number()

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws numbers that have gradients with respect to `low` and `high`."""
        drawn = rand(*sample_shape, *self.low.shape, dtype=self.low.dtype)
        return self.low + drawn.to(self.low.device) * (self.high - self.low)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density: -infinity for `high` itself."""
        value = beside(value, self.low)
        inside = (self.low <= value) & (value <= self.high)
        if self._checks and not bool(inside.all()):
            raise ValueError("value must be from low to high")
        return where(inside & (value < self.high), 0.0, -math.inf).to(self.low._dtype_name) - (self.high - self.low).log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of what is not above a value."""
        return ((beside(value, self.low) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        """The value below which numbers are with a given probability."""
        return beside(value, self.low) * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return (self.high - self.low).log()


@divergence_of(Uniform)
def _of_uniforms(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return where(inside, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)
