"""Gradients in the form that kernels take, clipping and scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import _core
from .._arguments import not_negative, uncalled
from .._core import Tensor
from .._promotion import is_floating, is_half
from .._recording import no_grad

# Compared as objects: the name of a dtype is built anew on every access, which would cost more than a small step.
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def for_kernel(gradient: Tensor, dtype: np.dtype) -> Tensor:
    """`gradient` in the form that the core takes: contiguous, in the dtype of the computation or, where that is float32, in halves."""
    fits = gradient.dtype == dtype or (dtype == FLOAT32 and is_half(gradient))
    if fits and gradient.is_contiguous():
        return gradient
    return gradient.to(dtype).contiguous()


def _gradients(parameters) -> list[list[Tensor]]:
    """The gradients, in groups that one kernel takes."""
    if hasattr(parameters, "parameters"):
        raise TypeError("expected an iterable of parameters, not a module; pass its .parameters()")
    if not isinstance(parameters, (Tensor, Iterable)):
        what = f"{parameters!r} ({type(parameters).__name__}){uncalled(parameters)}"
        raise TypeError(f"parameters must be an iterable of parameters, or one, got {what}")
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if (gradients := _core.gradients_of_one_kind(parameters)) is not None:
        return [gradients]
    kinds: dict[tuple[np.dtype, str], list[Tensor]] = {}
    for p in parameters:
        if not isinstance(p, Tensor):
            raise TypeError(f"parameters must be Tensors, got {p!r} ({type(p).__name__})")
        if (grad := p.grad) is not None:
            # the kernels of a GPU take halves and float32 together, and the norm stays there
            device = grad.device
            kind = (grad.dtype if device == "cpu" else _wide(grad), device)
            if kind in kinds:
                kinds[kind].append(grad)
            else:
                kinds[kind] = [grad]
    return list(kinds.values())


def _in_place(function: Callable[..., Any], gradients: list[Tensor], *options: float | Tensor) -> Any:
    """The result of a function that writes to the gradients; strided ones go through a copy."""
    with no_grad():
        if all(map(Tensor.is_contiguous, gradients)):
            return function(gradients, *options)
        ready = [g if g.is_contiguous() else for_kernel(g, _wide(g)) for g in gradients]
        result = function(ready, *options)
        for gradient, written in zip(gradients, ready, strict=True):
            if written is not gradient:
                gradient.copy_(written)
    return result


def clip_grad_norm_(
    parameters, max_norm: float | Tensor, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Scales all gradients together so that their norm is at most `max_norm`.

    Parameters
    ----------
    parameters : iterable of Parameter, or one
    max_norm : float, or Tensor of one element
        The host reads a Tensor only where it is on another device than the gradients.
    norm_type : float, default 2
        ``inf`` for the largest absolute value.
    error_if_nonfinite : bool
        Raise when the norm is NaN or infinite, for which the host waits for a GPU.
    foreach : bool, optional
        PyTorch's name, without effect: it is one pass over all gradients.

    Returns
    -------
    Tensor
        The norm before clipping, 0-d, on the device of the gradients: on a GPU nothing is read by the host, unless the gradients are of several
        devices or of float64 and others, or `error_if_nonfinite` is set.

    Raises
    ------
    ValueError
        For a negative `max_norm`, with which PyTorch turns the gradients around.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([3.0, 4.0])
    >>> (p * p).sum().backward()
    >>> float(tc.optim.clip_grad_norm_([p], 1.0))
    10.0
    """
    if not isinstance(max_norm, Tensor):  # to read one may wait for a GPU
        not_negative("max_norm", max_norm)
    norm_type = _order(norm_type)
    kinds = _gradients(parameters)
    if len(kinds) == 1 and not error_if_nonfinite:
        if isinstance(max_norm, Tensor) and max_norm.device == kinds[0][0].device:
            return _in_place(_core.gradient_clip, kinds[0], math.inf, norm_type, max_norm)
        return _in_place(_core.gradient_clip, kinds[0], max_norm, norm_type)
    total = _total(kinds, norm_type, error_if_nonfinite)
    _scale(kinds, max_norm, total)
    return Tensor(total, dtype=_wide(kinds[0][0]) if kinds else None)


def _total(kinds: list[list[Tensor]], norm_type: float, error_if_nonfinite: bool) -> float:
    """The norm of all, on the host."""
    norms = [_core.gradient_norm([for_kernel(g, _wide(g)) for g in gradients], norm_type) for gradients in kinds]
    total = float(np.max(norms, initial=0.0)) if math.isinf(norm_type) else sum(n**norm_type for n in norms) ** (1 / norm_type)
    if len(norms) == 1:
        total = norms[0]
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(f"the norm of the gradients is {total}, so they cannot be clipped")
    return total


def _scale(kinds: list[list[Tensor]], max_norm: Any, total: float) -> None:
    """Scales gradients of this norm to at most `max_norm`."""
    factor = min(max_norm / (total + 1e-6), 1.0) if not math.isnan(total) else total
    for gradients in kinds:
        _in_place(_core.gradient_scale, gradients, factor, math.inf)


def get_total_norm(tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The norm of all elements of Tensors together, such as gradients; the other arguments as for ``clip_grad_norm_``.

    Parameters
    ----------
    tensors : iterable of Tensor, or one

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.utils.get_total_norm([tc.tensor([3.0]), tc.tensor([4.0])])
    tensor(5.)
    """
    if not isinstance(tensors, (Tensor, Iterable)) or isinstance(tensors, (str, dict)):
        raise TypeError(f"tensors must be an iterable of Tensors, or one, got {tensors!r} ({type(tensors).__name__})")
    kinds: dict[Any, list[Tensor]] = {}
    for t in [tensors] if isinstance(tensors, Tensor) else tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"tensors must be Tensors, got {t!r} ({type(t).__name__})")
        if not is_floating(t):
            raise TypeError(f"the norm of {t._dtype_name} has no meaning; convert it with .float()")
        kinds.setdefault((t.dtype, t.device), []).append(t.detach())
    total = _total(list(kinds.values()), _order(norm_type), error_if_nonfinite)
    return Tensor(total, dtype=max((_wide(t[0]) for t in kinds.values()), key=lambda dtype: dtype.itemsize, default=FLOAT32))


def clip_grads_with_norm_(parameters, max_norm: float, total_norm: float | Tensor, foreach: bool | None = None) -> None:
    """Scales all gradients as ``clip_grad_norm_`` does, by a norm that is known already, such as that of all parts of a model.

    Parameters
    ----------
    parameters : iterable of Parameter, or one
    max_norm : float
    total_norm : float, or Tensor of one element
        The norm, as ``get_total_norm`` gives it.
    foreach : bool, optional
        Without effect, as for ``clip_grad_norm_``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([3.0, 4.0])
    >>> p.grad = tc.tensor([3.0, 4.0])
    >>> tc.nn.utils.clip_grads_with_norm_(p, 1.0, tc.tensor(10.0))
    >>> p.grad
    tensor([0.3000, 0.4000])
    """
    _scale(_gradients(parameters), not_negative("max_norm", max_norm), float(total_norm))


def _order(norm_type: Any) -> float:
    if not (norm_type := float(norm_type)) > 0:
        raise ValueError(f"norm_type must be above 0, got {norm_type}")
    return norm_type


def _wide(gradient: Tensor) -> np.dtype:
    """The dtype in which a gradient's norm is computed."""
    return FLOAT64 if gradient.dtype == FLOAT64 else FLOAT32


def clip_grad_value_(parameters, clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every element of every gradient to [-clip_value, clip_value].

    Parameters
    ----------
    parameters : iterable of Parameter, or one
    clip_value : float
    foreach : bool, optional
        Without effect, as for ``clip_grad_norm_``.
    """
    not_negative("clip_value", clip_value)
    for gradients in _gradients(parameters):
        _in_place(_core.gradient_scale, gradients, 1.0, float(clip_value))


def scale_finite(parameters, factor: float) -> bool | None:
    """Multiplies all gradients by `factor` and says whether they were finite; None where there are none. The host waits for a GPU."""
    kinds = _gradients(parameters)
    norms = [_core.gradient_norm([for_kernel(g, _wide(g)) for g in gradients], math.inf) for gradients in kinds]
    for gradients in kinds:
        _in_place(_core.gradient_scale, gradients, factor, math.inf)
    return all(map(math.isfinite, norms)) if kinds else None
