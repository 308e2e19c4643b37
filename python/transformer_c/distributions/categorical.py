"""Distributions of classes."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from .._core import Tensor
from .._joining import where
from .._promotion import is_floating
from .._pytorch_names import finfo
from .._tensor import arange, as_tensor
from ..tensor_functions import clamp, multinomial
from .base import Distribution, divergence_of


class Categorical(Distribution):
    """The numbers 0 to K - 1 with given probabilities, of one or of many draws.

    Parameters
    ----------
    probs : array_like, shape (..., K)
        Weights, which are divided by their sum.
    logits : array_like, shape (..., K)
        Logarithms of weights, in place of `probs`.
    validate_args : bool, optional
        Without effect: weights and values are always checked.

    Attributes
    ----------
    probs, logits : Tensor, shape (..., K)
        Probabilities and their logarithms.

    Examples
    --------
    >>> import transformer_c as tc
    >>> policy = tc.distributions.Categorical(logits=tc.tensor([[0.0, 99.0], [99.0, 0.0]]))
    >>> action = policy.sample()
    >>> action, policy.log_prob(action).shape
    (tensor([1, 0]), (2,))
    """

    _parameters = ("probs", "logits")
    _axes_of_events = 1

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Categorical takes either probs or logits")
        name, given = ("probs", probs) if logits is None else ("logits", logits)
        given = as_tensor(given)
        if given.ndim < 1 or not is_floating(given):
            raise ValueError(f"{name} must be floating numbers of shape (..., K), got {given._dtype_name} of shape {tuple(given.shape)}")
        if logits is None:
            total = given.sum(-1, keepdim=True)
            if not bool(((given.detach() >= 0) & (total.detach() > 0) & (total.detach() < math.inf)).all()) or not given.shape[-1]:
                raise ValueError("probs must not be negative or NaN, and have a positive, finite sum")
            self.probs = given / total
        else:
            total = given.logsumexp(-1, keepdim=True)
            if not bool(total.detach().isfinite().all()):
                raise ValueError("logits must be below infinity and not NaN, and one of each K above -infinity")
            self.logits = given - total

    @cached_property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @cached_property
    def logits(self) -> Tensor:
        eps = finfo(self.probs.dtype).eps
        return clamp(self.probs, eps, 1 - eps).log()

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of `probs` and `logits`."""
        return tuple(self._first().shape)

    @property
    def mean(self) -> Tensor:
        return self._not_a_number()

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All the numbers, along a first axis."""
        values = arange(self.param_shape[-1], device=self._first().device).reshape(-1, *(1,) * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws from the default generator: PyTorch's numbers, given the same seed.

        Parameters
        ----------
        sample_shape : tuple of int
            The result's first axes; those of the distribution follow.

        Returns
        -------
        Tensor of int64
        """
        shape = tuple(sample_shape)
        drawn = multinomial(self.probs.reshape(-1, self.param_shape[-1]), math.prod(shape), True)
        return drawn.T.reshape(*shape, *self.batch_shape)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithms of the probabilities of some values, with gradients.

        Parameters
        ----------
        value : array_like
            Broadcast against the axes of the distribution but its last.
        """
        value = as_tensor(value)
        index = value.long().unsqueeze(-1)
        if is_floating(value) and not bool((value.detach() == index.squeeze(-1)).all()):
            raise ValueError("value must be whole numbers from 0 to K - 1")
        shape = np.broadcast_shapes(tuple(index.shape[:-1]), self.batch_shape)
        return self.logits.expand(*shape, self.param_shape[-1]).gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return -(clamp(self.logits, finfo(self.logits.dtype).min) * self.probs).sum(-1)


@divergence_of(Categorical)
def _of_categoricals(p: Categorical, q: Categorical) -> Tensor:
    parts = p.probs * (p.logits - q.logits)
    return where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, parts)).sum(-1)
