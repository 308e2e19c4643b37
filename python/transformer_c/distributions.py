"""Distributions under PyTorch's names, for programs that draw tokens or actions."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ._core import Tensor
from ._names import hooks
from ._promotion import is_floating
from ._pytorch_names import finfo
from ._recording import no_grad
from ._tensor import as_tensor
from .random import randn
from .tensor_functions import clamp, multinomial


class Categorical:
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
        self._shape = tuple(given.shape)

    @cached_property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @cached_property
    def logits(self) -> Tensor:
        eps = finfo(self.probs.dtype).eps
        return clamp(self.probs, eps, 1 - eps).log()

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
        drawn = multinomial(self.probs.reshape(-1, self._shape[-1]), math.prod(shape), True)
        return drawn.T.reshape(*shape, *self._shape[:-1])

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
        shape = np.broadcast_shapes(tuple(index.shape[:-1]), self._shape[:-1])
        return self.logits.expand(*shape, self._shape[-1]).gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return -(clamp(self.logits, finfo(self.logits.dtype).min) * self.probs).sum(-1)


class Normal:
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
    """

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        loc, scale = (
            x if isinstance(x, Tensor) else as_tensor(x, dtype="float32" if isinstance(x, (int, float)) else None) for x in (loc, scale)
        )
        if bool(loc.detach().isnan().any()):
            raise ValueError("loc must not be NaN")
        if not bool((scale.detach() > 0).all()):
            raise ValueError("scale must be positive")
        shape = np.broadcast_shapes(tuple(loc.shape), tuple(scale.shape))
        self.loc, self.scale = loc.expand(shape), scale.expand(shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws from the default generator, without a gradient: PyTorch's numbers, given the same seed."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws numbers that have gradients with respect to `loc` and `scale`."""
        drawn = randn(*sample_shape, *self.loc.shape, dtype=self.loc.dtype)
        return self.loc + drawn.to(self.loc.device) * self.scale

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density."""
        distance = (as_tensor(value) - self.loc) / self.scale
        return -0.5 * distance * distance - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


__all__ = ["Categorical", "Normal"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "Bernoulli": "tc.bernoulli(p), and tc.functional.binary_cross_entropy for the logarithm of a probability",
            "Uniform": "tc.rand(shape) * (high - low) + low",
            "Multinomial": "tc.multinomial(p, n, replacement=True)",
        },
    )
