"""Parts of a block that one kernel computes together: product, activation, dropout, residual connection, norm.

Each function gives what its modules would give one after the other, and calls them so where a part is another layer or has hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from .. import _core
from .. import functional as F
from .._arguments import probability
from .._core import Tensor
from .._promotion import cast_input, is_half
from ..random import as_generator
from .activations import GELU, ReLU
from .containers import Sequential
from .layers import Dropout, LayerNorm, Linear, of_sequences
from .module import Module

_M = TypeVar("_M", bound=Module)

_FORWARDS: dict[Any, Any] = {kind: kind.forward for kind in (Linear, LayerNorm, Dropout, ReLU, GELU, Sequential)}


def is_plain(module: Any, kind: type[_M]) -> TypeGuard[_M]:
    """Is it of this class, neither another layer nor one with hooks, nor has a program set a forward on it or on the class?"""
    return type(module) is kind and "forward" not in module.__dict__ and kind.forward is _FORWARDS[kind]


def probability_of(dropout: Dropout) -> float:
    """With which it drops; p may have been changed since it was checked."""
    p = dropout.p if dropout.training else 0.0
    return p if type(p) is float and 0.0 <= p <= 1.0 else probability("dropout", p)


def add_norm(norm: Module, x: Tensor, update: Tensor, dropout: Module | None = None) -> Tensor:
    """norm(x + dropout(update)); for a LayerNorm and a Dropout, in one pass over memory."""
    plain = is_plain(norm, LayerNorm)
    p = 0.0
    if plain and is_plain(dropout, Dropout):
        p = probability_of(dropout)
    elif dropout is not None:
        update = dropout(update)
    if x.dtype != update.dtype:  # the first block may get integers
        x = x.to(update.dtype)
    if not plain:
        return norm(x + update)
    return F.add_layer_norm(update, x, norm.normalized_shape, norm.weight, norm.bias, norm.eps, dropout_p=p)


def applied_by_a_product(activation: Any) -> str | None:
    """The name of the activation for a product that applies it to its result; None if the product cannot."""
    if activation is F.relu or is_plain(activation, ReLU):
        return "relu"
    if activation is F.gelu:
        return "gelu"
    if is_plain(activation, GELU):
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    return None


def _may_drop_in_product(weight: Tensor) -> bool:
    """False for halves on CPUs: their layers round after each step, and results keep those bits."""
    return weight.is_cuda or not is_half(weight)


def _product(
    layer: Linear, x: Tensor, activation: str | None, lengths: Any, dropout: Dropout | None = None, residual: Tensor | None = None
) -> Tensor:
    """dropout(activation(layer(x))) + residual, the mask being the one that `dropout` would draw."""
    weight, p = layer.weight, 0.0 if dropout is None else probability_of(dropout)
    x = cast_input(x, weight, "Linear")
    if p == 0.0:
        return _core.linear(x, weight, layer.bias, activation, residual, sequence_lengths=lengths)

    def dropping(seed: int, call: int) -> Tensor:
        return _core.linear(x, weight, layer.bias, activation, residual, sequence_lengths=lengths, dropout=p, seed=seed, call=call)

    return as_generator(None).with_mask(dropping)


_NO_DROPOUT: Any = object()


def activated(first: Module, activation: Callable[[Tensor], Tensor], x: Tensor, lengths: Any = None, dropout: Any = _NO_DROPOUT) -> Tensor:
    """dropout(activation(first(x))); of a Linear, where the product can apply them, in one pass over memory. `lengths`: of_sequences."""
    fused = applied_by_a_product(activation)
    if not fused or not is_plain(first, Linear):
        y = activation(of_sequences(first, x, lengths))
    elif is_plain(dropout, Dropout) and _may_drop_in_product(first.weight):
        return _product(first, x, fused, lengths, dropout)
    else:
        y = _product(first, x, fused, lengths)
    return y if dropout is _NO_DROPOUT else dropout(y)


def gated(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """activation(a) * b of x, whose last axis is [a | b]; for gelu and silu in one pass over memory."""
    a, b = x.chunk(2, -1)
    fused = {F.gelu: F.geglu, F.silu: F.swiglu}.get(activation)
    return fused(a, b) if fused else activation(a) * b


def add_product(x: Tensor, last: Module, h: Tensor, dropout: Module, lengths: Any = None) -> Tensor:
    """x + dropout(last(h)); of a Linear and a Dropout in train mode, in one pass over memory."""
    if is_plain(last, Linear) and is_plain(dropout, Dropout):
        if probability_of(dropout) == 0.0:
            return x + of_sequences(last, h, lengths)
        weight = last.weight
        of_one_kind = x.dtype == weight.dtype and x.is_cuda == weight.is_cuda and x.shape == (*h.shape[:-1], weight.shape[0])
        if of_one_kind and _may_drop_in_product(weight):
            return _product(last, h, None, lengths, dropout, x)
    return x + dropout(of_sequences(last, h, lengths))
