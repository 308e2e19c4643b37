"""Copying and pickling Tensors."""

from __future__ import annotations

import copy as _copy
from typing import Any

import numpy as np

from . import _core
from ._core import Tensor


def _attributes(x: Tensor) -> dict[str, Any] | None:
    """The attributes that a subclass stores in its instances."""
    return dict(x.__dict__) if getattr(x, "__dict__", None) else None


def _restore(x: Tensor, attributes: dict[str, Any] | None) -> Tensor:
    if attributes:
        x.__dict__.update(attributes)
    return x


def copy(x: Tensor) -> Tensor:
    """``copy.copy(x)``: another object that shares the memory. A result keeps its history."""
    if not x.is_leaf:
        return x.view(x.shape)
    return _restore(type(x)._over(x, x.requires_grad), _attributes(x))


def deepcopy(x: Tensor, memo: dict[int, Any], with_gradient: bool = True) -> Tensor:
    """``copy.deepcopy(x)``: a leaf with its own memory. In what is copied at once, Tensors that share memory do so afterwards, but for
    Parameters, and for those of arrays that leave gaps in their memory; gradients are copied as well, but for a Parameter's: as in PyTorch.

    Raises
    ------
    RuntimeError
        For a recorded result, because its history cannot be copied.
    """
    if not x.is_leaf:
        raise RuntimeError("only leaf Tensors can be deep-copied; this one is a result that was recorded: use detach() first")
    is_apart = not with_gradient or _core.is_traced()
    values = x.detach().clone() if is_apart else _core.copied_with_memory(x, memo)
    result = type(x)._over(values, x.requires_grad)
    memo[id(x)] = result
    if with_gradient and (grad := x.grad) is not None:
        result.grad = grad.detach().clone()
    return _restore(result, _copy.deepcopy(_attributes(x), memo))


def rebuild(
    cls: type[Tensor], values: np.ndarray, dtype: str, device: str, requires_grad: bool, attributes: dict[str, Any] | None
) -> Tensor:
    """Called when a pickled Tensor is loaded."""
    try:
        x = Tensor(values, dtype, device)
    except RuntimeError as error:  # without that GPU
        hint = "call .cpu() before pickling, or tc.save(), whose files are of no device"
        raise RuntimeError(f"the pickle has a Tensor of {device}, which cannot be made here; {hint} ({error})") from error
    return _restore(cls._over(x, requires_grad), attributes)


def reduce(x: Tensor, protocol: int) -> tuple[Any, ...]:
    """For pickle: a leaf of the same class, with values, device and ``requires_grad``; no gradient, no history."""
    host = x.detach().cpu()
    values = np.asarray(host.float() if x._dtype_name == "bfloat16" else host)  # NumPy has no bfloat16; float32 represents it exactly
    return rebuild, (type(x), values, x._dtype_name, x.device, x.requires_grad, _attributes(x))
