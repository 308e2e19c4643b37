"""Normal distributions."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from .._core import Tensor
from ..custom import custom_op
from ..random import randn
from .base import Distribution, beside, divergence_of, together


class Normal(Distribution):
    """Normal distributions.

    Parameters
    ----------
    loc, scale : float or array_like
        Means and standard deviations, which are broadcast.
    validate_args : bool, optional
        Without effect: standard deviations are always checked.

    Examples
    --------
    >>> import transformer_c as tc
    >>> noise = tc.distributions.Normal(tc.zeros(3), 0.5)
    >>> noise.sample((2,)).shape, noise.log_prob(0.0).shape
    ((2, 3), (3,))
    >>> noise.cdf(0.0)
    tensor([0.5000, 0.5000, 0.5000])
    """

    _parameters = ("loc", "scale")
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc=loc, scale=scale)
        if bool(self.loc.detach().isnan().any()):
            raise ValueError("loc must not be NaN")
        if not bool((self.scale.detach() > 0).all()):
            raise ValueError("scale must be positive")

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws numbers that have gradients with respect to `loc` and `scale`."""
        drawn = randn(*sample_shape, *self.loc.shape, dtype=self.loc.dtype)
        return self.loc + drawn.to(self.loc.device) * self.scale

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        distance = (beside(value, self.loc) - self.loc) / self.scale
        return -0.5 * distance * distance - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Any) -> Tensor:
        """The probability of what is not above a value."""
        return 0.5 * (1 + ((beside(value, self.loc) - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Any) -> Tensor:
        """The value below which numbers are with a given probability; on the CPU."""
        return self.loc + self.scale * _quantile(beside(value, self.loc))

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


def _inverse(p: float) -> float:
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return -math.inf if p == 0 else math.inf if p == 1 else math.nan


def _quantiles(p: np.ndarray) -> np.ndarray:
    return np.array([_inverse(v) for v in p.astype(np.float64).ravel().tolist()]).reshape(p.shape).astype(p.dtype)


_quantile = custom_op(_quantiles, lambda dy, p: dy * math.sqrt(2 * math.pi) * np.exp(_quantiles(p) ** 2 / 2))


@divergence_of(Normal)
def _of_normals(p: Normal, q: Normal) -> Tensor:
    ratio, distance = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + distance - 1 - ratio.log())
