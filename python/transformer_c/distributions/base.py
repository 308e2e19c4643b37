"""What all distributions have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from .._arguments import joint_shape
from .._core import Tensor
from .._names import Explaining
from .._promotion import is_floating
from .._recording import no_grad
from .._tensor import as_tensor, full_like

Own = TypeVar("Own", bound="Distribution")


class Distribution(Explaining):
    """The base of all distributions: a shape of distributions that are apart, and the shape of what each of them draws.

    Attributes
    ----------
    batch_shape, event_shape : tuple of int
    mean, mode, variance, stddev : Tensor
        Of each distribution; NaN where it has none.

    Examples
    --------
    >>> import transformer_c as tc
    >>> policy = tc.distributions.Categorical(logits=tc.zeros(2, 3))
    >>> isinstance(policy, tc.distributions.Distribution), policy.batch_shape, policy.event_shape
    (True, (2,), ())
    """

    _parameters: ClassVar[tuple[str, ...]] = ()
    _axes_of_events: ClassVar[int] = 0  # of the parameters
    has_rsample: ClassVar[bool] = False
    event_shape: ClassVar[tuple[int, ...]] = ()
    mean: Any
    mode: Any
    variance: Any

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shape = tuple(self._first().shape)
        return shape[: len(shape) - self._axes_of_events]

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def _first(self) -> Tensor:
        """The first parameter of those that are there: probabilities and logits are computed of one another when they are asked for."""
        return next(self.__dict__[name] for name in self._parameters if name in self.__dict__)

    def _not_a_number(self) -> Tensor:
        first = self._first().detach()
        return full_like(first[..., 0] if self._axes_of_events else first, float("nan"))

    def expand(self: Own, batch_shape: Any, _instance: Any = None) -> Own:
        """The same distributions, repeated to a larger shape without a copy."""
        made = object.__new__(type(self))
        for name, value in vars(self).items():
            more = value.shape[value.ndim - self._axes_of_events :] if isinstance(value, Tensor) else ()
            made.__dict__[name] = value.expand(*batch_shape, *more) if isinstance(value, Tensor) else value
        return made

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws numbers that have gradients with respect to the parameters, which some distributions have."""
        raise NotImplementedError(f"what {type(self).__name__} draws has no gradient: sample()")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws from the default generator, without a gradient: PyTorch's numbers, given the same seed.

        Parameters
        ----------
        sample_shape : tuple of int
            The result's first axes; those of the distribution follow.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability, or of the density."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob()")

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy()")

    def perplexity(self) -> Tensor:
        """e to the power of the entropy."""
        return self.entropy().exp()

    def __repr__(self) -> str:
        values = {name: self.__dict__[name] for name in self._parameters if name in self.__dict__}
        texts = (f"{name}: {value.item() if value.numel() == 1 else tuple(value.shape)}" for name, value in values.items())
        return f"{type(self).__name__}({', '.join(texts)})"


def beside(x: Any, like: Tensor | None) -> Tensor:
    """`x` as a Tensor: a number of the dtype and on the device of `like`, or of float32."""
    if isinstance(x, Tensor) or not isinstance(x, (int, float)):
        return as_tensor(x)
    return as_tensor(x, "float32") if like is None else as_tensor(x, like._dtype_name, like.device)


def together(**given: Any) -> tuple[Tensor, ...]:
    """Parameters as Tensors of one shape; numbers have the dtype of the first Tensor."""
    like = next((x for x in given.values() if isinstance(x, Tensor) and is_floating(x)), None)
    found = {name: beside(x, like) for name, x in given.items()}
    shape = joint_shape(**found)
    return tuple(x.expand(shape) for x in found.values())


_DIVERGENCES: dict[type, Callable[[Any, Any], Tensor]] = {}


def divergence_of(kind: type) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """Registers the function for two distributions of one kind."""

    def decorate(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _DIVERGENCES[kind] = function
        return function

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of two distributions of one kind, in nats, with gradients.

    Parameters
    ----------
    p, q : Distribution
        Both Bernoulli, Categorical, Normal or Uniform, of shapes that broadcast.

    Examples
    --------
    >>> import transformer_c as tc
    >>> d = tc.distributions
    >>> d.kl_divergence(d.Normal(0.0, 1.0), d.Normal(1.0, 1.0))
    tensor(0.5000)
    """
    if type(p) is not type(q) or type(p) not in _DIVERGENCES:
        raise NotImplementedError(f"the divergence of {type(p).__name__} and {type(q).__name__} is not known; they must be of one kind")
    return _DIVERGENCES[type(p)](p, q)
