"""Distributions under PyTorch's names, for programs that draw tokens or actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._names import hooks
from .base import Distribution, kl_divergence
from .bernoulli import Bernoulli
from .categorical import Categorical
from .normal import Normal
from .uniform import Uniform

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "Uniform", "kl_divergence"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "Multinomial": "tc.multinomial(p, n, replacement=True)",
            "OneHotCategorical": "tc.functional.one_hot(tc.distributions.Categorical(p).sample(), classes)",
            "MultivariateNormal": "tc.distributions.Normal of each number, and a product with a matrix",
        },
    )
