"""Functions that write their result into their first tensor: methods whose names end with an underscore."""

from __future__ import annotations

import operator
from typing import Any

from .. import _core
from .._core import Tensor
from .._promotion import beside, is_floating
from .._recording import is_grad_enabled
from ._calls import METHODS
from .elements import ONE, div, nearer, of_bools, opposite, plus_scaled, scaled, without_nan


def add_(self: Tensor, other: Any, *, alpha: float = ONE) -> Tensor:
    """``add`` in place: the same as ``t += alpha * other``."""
    alpha = alpha if alpha is ONE else of_bools(alpha, self, other)
    if alpha is not ONE and _core.compute_into(self, "add_product", self, other, alpha) is not None:
        return self
    return operator.iadd(self, other if alpha is ONE else scaled(beside(other, self), alpha))


def sub_(self: Tensor, other: Any, *, alpha: float = ONE) -> Tensor:
    """``sub`` in place: the same as ``t -= alpha * other``."""
    if alpha is not ONE and _core.compute_into(self, "add_product", self, other, opposite(alpha)) is not None:
        return self
    return operator.isub(self, other if alpha is ONE else scaled(beside(other, self), alpha))


def mul_(self: Tensor, other: Any) -> Tensor:
    """``mul`` in place: the same as ``t *= other``."""
    return operator.imul(self, other)


def _kind(x: Tensor) -> int:
    """0 of bools, 1 of integers, 2 of floats."""
    return 2 if is_floating(x) else int(x._dtype_name != "bool")


def _written(self: Tensor, result: Tensor) -> Tensor:
    if _kind(result) > _kind(self):
        raise TypeError(
            f"the result is {result._dtype_name}, which cannot be written in place to a tensor of {self._dtype_name}; convert it with "
            f".{'float' if is_floating(result) else 'long'}()"
        )
    return self.copy_(result)


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``div`` in place: the same as ``t /= other``."""
    return operator.itruediv(self, other) if rounding_mode is None else _written(self, div(self, other, rounding_mode=rounding_mode))


def _replaced(self: Tensor, name: str, *args: Any, **kwargs: Any) -> Tensor:
    """The result of a function, computed and then written."""
    wanted = is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in (self, *args, *kwargs.values()))
    return _written(self, getattr(self.clone() if wanted else self, name)(*args, **kwargs))  # whose gradient needs the values before


def _in_place(name: str) -> Any:
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not args and not kwargs and _core.compute_into(self, name, self) is not None:
            return self
        return _replaced(self, name, *args, **kwargs)

    call.__name__ = call.__qualname__ = f"{name}_"
    call.__doc__ = f"``{name}`` in place."
    return call


_IN_PLACE = (
    *("abs", "ceil", "cos", "cumprod", "cumsum", "erf", "exp", "floor", "log", "log1p", "neg", "reciprocal", "relu"),
    *("remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tanh", "tril", "triu", "trunc"),
)


def addcmul_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = ONE) -> Tensor:
    """``addcmul`` in place."""
    done = plus_scaled(self, _core.mul, self, tensor1, tensor2, value)
    return _replaced(self, "addcmul", tensor1, tensor2, value=value) if done is None else self


def addcdiv_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = ONE) -> Tensor:
    """``addcdiv`` in place."""
    done = plus_scaled(self, _core.div, self, tensor1, tensor2, value)
    return _replaced(self, "addcdiv", tensor1, tensor2, value=value) if done is None else self


def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """``clamp`` in place."""
    bounds = [bound for bound in (min, max) if bound is not None]
    name = "clamp" if len(bounds) == 2 else "clamp_max" if min is None else "clamp_min"
    done = _core.compute_into(self, name, self, *bounds) if bounds else None
    return _replaced(self, "clamp", min, max) if done is None else self


def lerp_(self: Tensor, end: Any, weight: Any) -> Tensor:
    """``lerp`` in place."""
    return _replaced(self, "lerp", end, weight) if nearer(self, self, end, weight) is None else self


def nan_to_num_(self: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """``nan_to_num`` in place."""
    done = without_nan(self, self, nan, posinf, neginf)
    return _replaced(self, "nan_to_num", nan, posinf, neginf) if done is None else self


def pow_(self: Tensor, exponent: Any) -> Tensor:
    """``pow`` in place: the same as ``t **= exponent``."""
    return operator.ipow(self, exponent) if is_floating(self) else _replaced(self, "pow", exponent)


METHODS |= {f"{name}_": _in_place(name) for name in _IN_PLACE}
METHODS |= {f.__name__: f for f in (add_, addcdiv_, addcmul_, clamp_, div_, lerp_, mul_, nan_to_num_, pow_, sub_)}
METHODS["clip_"] = clamp_
