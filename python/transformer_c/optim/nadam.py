"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .._arguments import not_negative, switch
from .._core import Tensor
from .._names import explained
from .algorithms import _DECOUPLED, HINTS, _check_differentiable
from .optimizer import Optimizer


class NAdam(Optimizer):
    """Adam whose momentum looks ahead, as Nesterov's does (Dozat 2016, "Incorporating Nesterov momentum into Adam").

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 2e-3
    betas : (float, float), default (0.9, 0.999)
    eps : float, default 1e-8
    weight_decay : float, default 0
        Added to the gradient, as L2 regularisation.
    momentum_decay : float, default 4e-3
        The momentum of step t is betas[0] (1 - 0.96**(t momentum_decay) / 2).
    decoupled_weight_decay : bool, default False
        Subtract the decay from the parameter instead, as ``AdamW`` does.
    maximize : bool
    foreach, capturable : bool, optional
        Without effect, as for ``SGD``; so `differentiable`. A function of ``tc.cuda.graph`` does not take these steps, which depend on their number.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(2, 1)
    >>> optimizer = tc.optim.NAdam(layer.parameters())
    >>> layer(tc.ones(3, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.param_groups[0]["momentum_decay"]
    0.004
    """

    _product = 1.0  # of the momenta of all steps before, for the parameters that are stepped together

    @explained(HINTS)
    def __init__(self, params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        decoupled = switch(_DECOUPLED, decoupled_weight_decay)
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay, maximize=maximize)
        super().__init__(params, {**options, _DECOUPLED: decoupled})

    def _check_options(self, options: dict[str, Any], of_rate: Callable[[str, Any], float]) -> None:
        super()._check_options(options, of_rate)
        not_negative("momentum_decay", options.get("momentum_decay", 0.0))

    def _states_of(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _stepped_at_once(self, group: dict[str, Any]) -> bool:
        return False  # it would not know the products

    def _batches(self, group: dict[str, Any]) -> Iterable[tuple[list[Tensor], list[Tensor], int]]:
        for params, grads, steps in super()._batches(group):
            alike: dict[float, tuple[list[Tensor], list[Tensor], int]] = {}
            for p, grad in zip(params, grads, strict=True):
                batch = alike.setdefault(self._product_of(p), ([], [], steps))
                batch[0].append(p)
                batch[1].append(grad)
            yield from alike.values()

    def _product_of(self, p: Tensor) -> float:
        return self.state.get(p, {}).get("mu_product", 1.0)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], steps: int) -> None:
        # PyTorch's product is a float32
        self._product = float(np.float32(self._product_of(params[0])) * np.float32(_momentum(group, steps + 1)))
        super()._update(group, params, grads, steps)
        for p in params:
            self.state[p]["mu_product"] = self._product

    def _step_group(self, group, values, gradients, states, t, halves):
        self._begin_in_python(values, states)
        beta1, beta2 = group["betas"]
        lr, decay, decoupled = float(group["lr"]), group["weight_decay"], group.get(_DECOUPLED, False)
        following = _momentum(group, t + 1)
        of_gradient = -lr * (1 - _momentum(group, t)) / (1 - self._product)
        of_mean = -lr * following / (1 - self._product * following)
        for i, (p, gradient, mean, squares) in enumerate(zip(values, gradients, states["exp_avg"], states["exp_avg_sq"], strict=True)):
            gradient = -gradient if group["maximize"] else gradient
            if decoupled:
                p.mul_(1 - lr * decay)
            elif decay:
                gradient = gradient.add(p, alpha=decay)
            mean.lerp_(gradient, 1 - beta1)
            squares.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = squares.div(1 - beta2**t).sqrt_().add_(group["eps"])
            p.addcdiv_(gradient, root, value=of_gradient).addcdiv_(mean, root, value=of_mean)
            if halves is not None:
                halves[i].copy_(p)


def _momentum(group: dict[str, Any], t: int) -> float:
    return group["betas"][0] * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"]))


__all__ = ["NAdam"]
