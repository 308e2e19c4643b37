"""Muon: weights whose steps have singular values of about 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._arguments import all_of, count, one_of, real, switch
from .._core import Tensor
from .._names import explained
from ..tensor_functions import addmm
from .algorithms import HINTS
from .optimizer import Optimizer

_MOST_STEPS = 99  # PyTorch's
_RATES = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """Momentum whose matrix is made nearly orthogonal (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks").

    For the weights of hidden layers, which are matrices. Biases, norms, embeddings and the last layer have an ``AdamW`` of their own.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        Matrices alone.
    lr : float, default 1e-3
    weight_decay : float, default 0.1
        Subtracted from the parameter, as ``AdamW`` does.
    momentum : float, default 0.95
    nesterov : bool, default True
    ns_coefficients : (float, float, float), default (3.4445, -4.775, 2.0315)
        a, b and c of an iteration (Newton-Schulz), X = aX + b(XX')X + c(XX')²X.
    eps : float, default 1e-7
        The least norm by which a matrix is divided.
    ns_steps : int, default 5
        The number of iterations, at most 99.
    adjust_lr_fn : {"original", "match_rms_adamw"}, optional
        A step of an (A, B) matrix is `lr` times sqrt(max(1, A / B)), also by default, or 0.2 sqrt(max(A, B)), whose size is that of
        a step of ``AdamW`` (Liu et al. 2025, "Muon is scalable for LLM training").

    Notes
    -----
    The iterations compute in the parameter's dtype (of halves in float32), where PyTorch's are in bfloat16: steps of the two differ by about 1 %.
    A function of ``tc.cuda.graph`` does not take its steps.

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.nn.Sequential(tc.nn.Linear(8, 16), tc.nn.ReLU(), tc.nn.Linear(16, 8))
    >>> optimizers = [
    ...     tc.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.02),
    ...     tc.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=1e-3),
    ... ]
    >>> model(tc.ones(4, 8)).square().mean().backward()
    >>> for optimizer in optimizers:
    ...     optimizer.step()
    """

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: str | None = None) -> None:  # fmt: skip
        super().__init__(
            params,
            dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
                 ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn),
        )  # fmt: skip

    def add_param_group(self, group: dict[str, Any]) -> None:
        super().add_param_group(group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                del self.param_groups[-1]
                raise ValueError(
                    f"Muon takes matrices, got a parameter of shape {tuple(p.shape)}; give the others to an AdamW of their own"
                )

    def _check_options(self, options: dict[str, Any], of_rate: Callable[[str, Any], float]) -> None:
        super()._check_options(options, of_rate)
        if missing := [name for name in self.defaults if name not in options]:
            raise ValueError(f"a group has no {', '.join(missing)}: it is no state of Muon's")
        all_of(
            (switch, "nesterov", options["nesterov"]),
            (_coefficients, options["ns_coefficients"]),
            (_steps, options["ns_steps"]),
            (one_of, "adjust_lr_fn", "original" if options["adjust_lr_fn"] is None else options["adjust_lr_fn"], _RATES),
        )

    def _states_of(self, group):
        return ("momentum_buffer",)

    def _step_group(self, group, values, gradients, states, t, halves):
        self._begin_in_python(values, states)
        lr, momentum = group["lr"], group["momentum"]
        for i, (p, gradient, buffer) in enumerate(zip(values, gradients, states["momentum_buffer"], strict=True)):
            buffer.lerp_(gradient, 1 - momentum)
            step = gradient.lerp(buffer, momentum) if group["nesterov"] else buffer
            step = orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rows, columns = p.shape
            scale = (
                0.2 * math.sqrt(max(p.shape)) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, rows / max(columns, 1)))
            )
            p.mul_(1 - lr * group["weight_decay"]).add_(step, alpha=-lr * scale)
            if halves is not None:
                halves[i].copy_(p)


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """A matrix with the same singular vectors, whose singular values are about 1: between 0.7 and 1.2 after five steps, but for the smallest."""
    a, b, c = coefficients
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(steps):
        squares = wide @ wide.T
        wide = addmm(wide, addmm(squares, squares, squares, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


def _coefficients(given: Any) -> None:
    if not isinstance(given, (tuple, list)) or len(given) != 3:
        raise TypeError(f"ns_coefficients must be three numbers, such as (3.4445, -4.775, 2.0315), got {given!r:.80}")
    for i, number in enumerate(given):
        real(f"ns_coefficients[{i}]", number)


def _steps(given: Any) -> None:
    if count("ns_steps", given, 0) > _MOST_STEPS:
        raise ValueError(f"ns_steps must be at most {_MOST_STEPS}, got {given}")


__all__ = ["Muon"]
