"""Adagrad: a rate of its own for each number, smaller the more its gradients were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._arguments import not_negative
from .._core import Tensor
from .._names import explained
from .algorithms import HINTS, _check_differentiable
from .optimizer import Optimizer


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): each gradient divided by the root of the sum of all its squares so far.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-2
    lr_decay : float, default 0
        The rate of step t is lr / (1 + (t - 1) lr_decay).
    weight_decay : float, default 0
        Added to the gradient, as L2 regularisation.
    initial_accumulator_value : float, default 0
        Where the sums begin.
    eps : float, default 1e-10
    maximize : bool
    foreach, fused : bool, optional
        Without effect, as for ``SGD``; so `differentiable`. A function of ``tc.cuda.graph`` does not take these steps.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([1.0])
    >>> optimizer = tc.optim.Adagrad([p], lr=0.25)
    >>> (p * p).sum().backward()
    >>> optimizer.step()                                  # the first step has the size of lr
    >>> p.tolist()
    [0.75]
    """

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0, initial_accumulator_value: float = 0.0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        super().__init__(
            params,
            dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
                 maximize=maximize),
        )  # fmt: skip

    def _check_options(self, options: dict[str, Any], of_rate: Callable[[str, Any], float]) -> None:
        super()._check_options(options, of_rate)
        for name in ("lr_decay", "initial_accumulator_value"):
            not_negative(name, options.get(name, 0.0))

    def _states_of(self, group):
        return ("sum",)

    def _state_of(self, p: Tensor, names: tuple[str, ...]) -> dict[str, Any]:
        is_new = "sum" not in self.state.get(p, {})
        state = super()._state_of(p, names)
        if is_new:
            group = next(group for group in self.param_groups if any(q is p for q in group["params"]))
            state["sum"].fill_(group["initial_accumulator_value"])
        return state

    def _step_group(self, group, values, gradients, states, t, halves):
        self._begin_in_python(values, states)
        rate = float(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        for i, (p, gradient, total) in enumerate(zip(values, gradients, states["sum"], strict=True)):
            gradient = -gradient if group["maximize"] else gradient
            gradient = gradient.add(p, alpha=group["weight_decay"]) if group["weight_decay"] else gradient
            total.addcmul_(gradient, gradient)
            p.addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-rate)
            if halves is not None:
                halves[i].copy_(p)


__all__ = ["Adagrad"]
