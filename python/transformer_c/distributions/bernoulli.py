"""Bernoulli distributions: 1 or 0."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from .._core import Tensor
from .._joining import where
from .._promotion import is_floating
from .._pytorch_names import finfo
from ..functional import binary_cross_entropy_with_logits, softplus
from ..random import bernoulli
from ..tensor_functions import clamp
from .base import Distribution, beside, divergence_of, together


class Bernoulli(Distribution):
    """1 with a given probability, otherwise 0.

    Parameters
    ----------
    probs : float or array_like
        Probabilities of 1.
    logits : float or array_like
        log(p / (1 - p)), in place of `probs`.
    validate_args : bool, optional
        Without effect: probabilities and values are always checked.

    Attributes
    ----------
    probs, logits : Tensor

    Examples
    --------
    >>> import transformer_c as tc
    >>> coin = tc.distributions.Bernoulli(tc.tensor([0.0, 0.25, 1.0]))
    >>> coin.mean, coin.variance
    (tensor([0.0000, 0.2500, 1.0000]), tensor([0.0000, 0.1875, 0.0000]))
    >>> coin.sample((2,)).shape
    (2, 3)
    """

    _parameters = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Bernoulli takes either probs or logits")
        name, (given,) = ("probs", together(probs=probs)) if logits is None else ("logits", together(logits=logits))
        if not is_floating(given):
            raise ValueError(f"{name} must be floating numbers, got {given._dtype_name}")
        values = given.detach()
        if logits is None and not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError("probs must be from 0 to 1")
        if bool(values.isnan().any()):
            raise ValueError("logits must not be NaN")
        setattr(self, name, given)

    @cached_property
    def probs(self) -> Tensor:
        return self.logits.sigmoid()

    @cached_property
    def logits(self) -> Tensor:
        eps = finfo(self.probs.dtype).eps
        p = clamp(self.probs, eps, 1 - eps)
        return p.log() - (-p).log1p()

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        p = self.probs.detach()
        return where(p == 0.5, float("nan"), (p >= 0.5).to(p.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws from the default generator: PyTorch's numbers, given the same seed."""
        return bernoulli(self.probs.detach().expand(*sample_shape, *self.batch_shape))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithms of the probabilities of some values, 0 and 1."""
        value = beside(value, self._first())
        if not bool(((value.detach() == 0) | (value.detach() == 1)).all()):
            raise ValueError("value must be 0 or 1")
        logits = self.logits
        zeros = 0.0 * value.to(logits.dtype) + 0.0 * logits.detach()  # of the shape of both
        return -binary_cross_entropy_with_logits(logits.expand(zeros.shape), value.to(logits.dtype).expand(zeros.shape), reduction="none")

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


@divergence_of(Bernoulli)
def _of_bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = _part(p.probs, q.probs, softplus(-q.logits) - softplus(-p.logits))
    return one + _part(1 - p.probs, 1 - q.probs, softplus(q.logits) - softplus(p.logits))


def _part(p: Tensor, q: Tensor, ratio: Tensor) -> Tensor:
    """p times the logarithm of p / q: 0 where p is 0, and otherwise infinite where q is."""
    return where(p == 0, 0.0, where(q == 0, float("inf"), p * ratio))
