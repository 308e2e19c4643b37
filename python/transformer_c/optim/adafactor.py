"""Adafactor: squares of gradients kept by their means over rows and columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .._arguments import all_of, not_negative, real
from .._core import Tensor
from .._names import explained
from .._pytorch_names import finfo
from .algorithms import HINTS
from .optimizer import Optimizer


class Adafactor(Optimizer):
    """Adam without momentum, whose squares take the memory of a row and a column (Shazeer and Stern 2018, "Adafactor").

    The mean square of element (i, j) of a matrix is taken to be row i's times column j's, over the mean of all. For T5 and other
    models whose optimizer would not fit into memory.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-2
        The rate of step t is min(lr, 1 / sqrt(t)), times the root mean square of the parameter.
    beta2_decay : float, default -0.8
        Squares of step t count by t**beta2_decay; at most 0.
    eps : (float or None, float), default (None, 1e-3)
        The least root of a mean square, by default that of the dtype (``tc.finfo``); the least root mean square of a parameter.
    d : float, default 1
        The greatest root mean square of a step, before it is multiplied by the rate; at least 1.
    weight_decay : float, default 0
        Subtracted from the parameter, times `lr`, as ``AdamW`` does.
    maximize : bool
    foreach : bool, optional
        Without effect, as for ``SGD``. A function of ``tc.cuda.graph`` does not take these steps.

    Notes
    -----
    Of parameters with more than two axes the last two are rows and columns. transformers' class of this name has other defaults, and rates
    that follow `relative_step`.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(64, 32)
    >>> optimizer = tc.optim.Adafactor(layer.parameters())
    >>> layer(tc.ones(3, 64)).square().mean().backward()
    >>> optimizer.step()
    >>> state = optimizer.state[layer.weight]
    >>> state["row_var"].shape, state["col_var"].shape
    ((32, 1), (1, 64))
    """

    _has_rows = False  # of the parameters that are stepped together

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False) -> None:  # fmt: skip
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, maximize=maximize))

    def _check_options(self, options: dict[str, Any], of_rate: Callable[[str, Any], float]) -> None:
        super()._check_options({**options, "eps": 0.0}, of_rate)
        eps = options.get("eps", (None, 0.0))
        if not isinstance(eps, (tuple, list)) or len(eps) != 2:
            raise TypeError(f"eps must be two numbers, such as (None, 0.001), got {eps!r:.80}")
        all_of(
            (_at_most_0, "beta2_decay", options.get("beta2_decay", 0.0)),
            (not_negative, "eps[0]", 0.0 if eps[0] is None else eps[0]),
            (not_negative, "eps[1]", eps[1]),
            (_at_least_1, "d", options.get("d", 1.0)),
        )

    def _stepped_at_once(self, group: dict[str, Any]) -> bool:
        return False  # not all parameters have the same states

    def _batches(self, group: dict[str, Any]) -> Iterable[tuple[list[Tensor], list[Tensor], int]]:
        for params, grads, steps in super()._batches(group):
            for has_rows in (True, False):
                pairs = [(p, grad) for p, grad in zip(params, grads, strict=True) if (p.ndim > 1) is has_rows]
                if pairs:
                    yield [p for p, _ in pairs], [grad for _, grad in pairs], steps

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], steps: int) -> None:
        self._has_rows = params[0].ndim > 1
        super()._update(group, params, grads, steps)

    def _states_of(self, group):
        return ("row_var", "col_var") if self._has_rows else ("variance",)

    def _shape_of(self, p: Tensor, name: str) -> tuple[int, ...]:
        if name == "row_var":
            return (*p.shape[:-1], 1)
        return (*p.shape[:-2], 1, p.shape[-1]) if name == "col_var" else super()._shape_of(p, name)

    def _step_group(self, group, values, gradients, states, t, halves):
        self._begin_in_python(values, states)
        lr, share, least = float(group["lr"]), t ** group["beta2_decay"], group["eps"][0]
        for i, (p, gradient) in enumerate(zip(values, gradients, strict=True)):
            gradient = -gradient if group["maximize"] else gradient
            eps = finfo(p.dtype if halves is None else halves[i].dtype).eps if least is None else least
            rate = max(group["eps"][1], _root_mean_square(p)) * min(lr, t**-0.5)
            if group["weight_decay"]:
                p.mul_(1 - lr * group["weight_decay"])
            squares = gradient * gradient
            if self._has_rows:
                row, column = states["row_var"][i], states["col_var"][i]
                row.lerp_(squares.mean(-1, keepdim=True), share)
                column.lerp_(squares.mean(-2, keepdim=True), share)
                squares = (row @ column).div_(row.mean(-2, keepdim=True).clamp_(min=eps))
            else:
                squares = states["variance"][i].lerp_(squares, share).clone()
            update = squares.clamp_(min=eps * eps).rsqrt_().mul_(gradient)
            p.add_(update, alpha=-rate / max(1.0, _root_mean_square(update) / group["d"]))
            if halves is not None:
                halves[i].copy_(p)


def _root_mean_square(x: Tensor) -> float:
    return float(x.norm().item()) / math.sqrt(max(x.numel(), 1))


def _at_most_0(name: str, value: Any) -> float:
    if not real(name, value) <= 0:
        raise ValueError(f"{name} must be at most 0, got {value}")
    return value


def _at_least_1(name: str, value: Any) -> float:
    if not real(name, value) >= 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


__all__ = ["Adafactor"]
