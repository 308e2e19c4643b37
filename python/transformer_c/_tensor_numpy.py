"""NumPy's functions called with a Tensor: operators and questions work, all others raise an error that names the function to use instead.

Otherwise NumPy would read a Tensor as a plain array and return one, and its history would be lost silently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ._core import Tensor

# NumPy's operators on ndarrays are these ufuncs. Each maps to the operator of Tensor and its reflection.
_OPERATORS: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {
    np.add: (Tensor.__add__, Tensor.__radd__),
    np.subtract: (Tensor.__sub__, Tensor.__rsub__),
    np.multiply: (Tensor.__mul__, Tensor.__rmul__),
    np.true_divide: (Tensor.__truediv__, Tensor.__rtruediv__),
    np.floor_divide: (Tensor.__floordiv__, Tensor.__rfloordiv__),
    np.remainder: (Tensor.__mod__, Tensor.__rmod__),
    np.power: (Tensor.__pow__, Tensor.__rpow__),
    np.matmul: (Tensor.__matmul__, Tensor.__rmatmul__),
    np.bitwise_and: (Tensor.__and__, Tensor.__rand__),
    np.bitwise_or: (Tensor.__or__, Tensor.__ror__),
    np.bitwise_xor: (Tensor.__xor__, Tensor.__rxor__),
    np.equal: (Tensor.__eq__, Tensor.__eq__),
    np.not_equal: (Tensor.__ne__, Tensor.__ne__),
    np.less: (Tensor.__lt__, Tensor.__gt__),
    np.less_equal: (Tensor.__le__, Tensor.__ge__),
    np.greater: (Tensor.__gt__, Tensor.__lt__),
    np.greater_equal: (Tensor.__ge__, Tensor.__le__),
}

# Functions whose results have no gradient: queries of an array's memory, or of the places of its values; of its shape and dtype alone.
_OF_MEMORY = {np.may_share_memory, np.shares_memory, np.argmax, np.argmin, np.argsort}
_QUESTIONS = {np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, *_OF_MEMORY}

# Functions that have another name in NumPy.
_OURS = {
    "absolute": "t.abs()",
    "append": "tc.cat",
    "array_equal": "bool((t == u).all())",
    "array_split": "tc.chunk, which gives a number of parts, or t.split(sizes)",
    "concatenate": "tc.cat",
    "negative": "-t",
    "dot": "tc.matmul",
    "inner": "tc.einsum",
    "tensordot": "tc.einsum",
    "divide": "t / u",
    "expand_dims": "t.unsqueeze()",
    "moveaxis": "tc.movedim",
    "pad": "tc.functional.pad",
    "rollaxis": "tc.movedim",
    "copy": "t.clone()",
    "copyto": "t.copy_()",
    "argwhere": "tc.nonzero",
    "invert": "~t",
}

# Functions whose name is that of another function here, or of one with other defaults.
_OTHERS = {
    "meshgrid": 'tc.meshgrid(..., indexing="xy")',
    "nonzero": "tc.nonzero(t, as_tuple=True)",
    "repeat": "tc.repeat_interleave",
    "save": "tc.save(t, path)",
    "sort": "t.sort(axis=-1).values",
    "split": "tc.chunk, which gives a number of parts, or t.split(sizes)",
    "std": "t.std(axis, correction=0)",
    "transpose": "t.permute(axes)",
    "var": "t.var(axis, correction=0)",
}


def _ours(name: str) -> str | None:
    """The name of a NumPy function here, if it exists."""
    import transformer_c as tc

    if name in _OURS or name in _OTHERS:
        return _OURS.get(name) or _OTHERS[name]
    if name in tc.__all__ and callable(getattr(tc, name)):
        return f"tc.{name}"
    return f"t.{name}()" if not name.startswith("_") and hasattr(Tensor, name) else None


def _refuse(name: str) -> TypeError:
    ours = _ours(name)
    advice = f"use {ours}" if ours else "there is no function of ours for it (tc.custom_op makes one)"
    return TypeError(
        f"np.{name} does not record gradients, and a Tensor's history would be lost: {advice}, or np.{name} on t.numpy() for the plain values"
    )


def array_ufunc(x: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's ``__array_ufunc__``: ``array + tensor`` and the other operators give Tensors."""
    if method == "__call__" and ufunc in _OPERATORS and not options:
        forward, reflected = _OPERATORS[ufunc]
        left, right = inputs
        return forward(left, right) if isinstance(left, Tensor) else reflected(right, left)
    if "out" in options:
        raise TypeError(
            f"np.{ufunc.__name__} cannot write a Tensor's values into an ndarray, where their history would be lost; use t.numpy()"
        )
    raise _refuse(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")


def array_function(x: Tensor, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's ``__array_function__``: a TypeError, except for functions whose results have no gradient."""
    if function in _QUESTIONS:
        plain = partial(_plain, needs_memory=function in _OF_MEMORY)
        return function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
    raise _refuse(function.__name__)


def _plain(x: Any, needs_memory: bool) -> Any:
    """A Tensor's array; for a Tensor on a GPU, an array of the same shape and dtype, which is all that a query needs."""
    if not isinstance(x, Tensor):
        return x
    return np.asarray(x.detach()) if needs_memory or x.device == "cpu" else np.broadcast_to(np.empty((), x.dtype), x.shape)
