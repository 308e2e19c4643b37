"""Optimizers with the update rules and defaults of torch.optim."""

from __future__ import annotations

import math

from .. import _core
from .._arguments import switch
from .._names import explained
from .optimizer import Optimizer

# PyTorch's AdamW is its Adam with this option of a group, which state dicts have.
_DECOUPLED = "decoupled_weight_decay"
HINTS = {"learning_rate": "lr=", "beta_1": "betas=", "beta_2": "betas=", "epsilon": "eps=", "clipnorm": "tc.nn.utils.clip_grad_norm_"}


def _check_differentiable(differentiable: bool) -> None:
    if switch("differentiable", differentiable):
        raise ValueError("differentiable=True is not possible: steps are not recorded, and there are no gradients of gradients")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-3
    momentum, dampening, weight_decay : float, default 0
    nesterov, maximize : bool
    foreach, fused, capturable : bool, optional
        PyTorch's names, without effect: a step is one pass over all parameters, and every step may be in a function of ``tc.cuda.graph``.
    differentiable : bool, default False
        PyTorch's name; True is an error, as a step is never recorded.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([1.0])
    >>> optimizer = tc.optim.SGD([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.tolist()
    [0.0]
    """

    _counts_from = "momentum_buffer"  # the first one is not dampened

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, *,
                 maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs a momentum above 0 and no dampening")
        super().__init__(
            params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize)
        )

    def _states_of(self, group):
        return ("momentum_buffer",) if group["momentum"] else ()

    def _step_group(self, group, values, gradients, states, t, halves):
        _core.sgd_step(
            values, gradients, states.get("momentum_buffer"), group["lr"], group["momentum"], group["dampening"], group["weight_decay"],
            group["nesterov"], group["maximize"], t == 1, halves,
        )  # fmt: skip


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), optionally AMSGrad (Reddi et al. 2018).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-3
    betas : (float, float), default (0.9, 0.999)
    eps : float, default 1e-8
    weight_decay : float, default 0
        Added to the gradient, as L2 regularisation.
    decoupled_weight_decay : bool, default False
        Subtract it from the parameter instead, as ``AdamW`` does.
    amsgrad, maximize : bool
    foreach, fused, capturable : bool, optional
        Without effect, as for ``SGD``; so `differentiable`.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(2, 1)
    >>> optimizer = tc.optim.Adam(layer.parameters(), lr=1e-2)
    >>> optimizer.param_groups[0]["lr"]
    0.01
    """

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 decoupled_weight_decay: bool = False) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        decoupled = switch(_DECOUPLED, decoupled_weight_decay)
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize)
        super().__init__(params, {**options, _DECOUPLED: decoupled})

    def _states_of(self, group):
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _step_group(self, group, values, gradients, states, t, halves):
        beta1, beta2 = group["betas"]
        _core.adam_step(
            values, gradients, states["exp_avg"], states["exp_avg_sq"], states.get("max_exp_avg_sq"), t, group["lr"], beta1, beta2,
            group["eps"], group["weight_decay"], group.get(_DECOUPLED, False), group["maximize"], halves,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). Parameters as for ``Adam``; `weight_decay` is 0.01."""

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, differentiable=differentiable, decoupled_weight_decay=True
        )

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group[_DECOUPLED] = True  # it stays an AdamW, whichever optimizer's state this was, as in PyTorch


class RAdam(Optimizer):
    """Adam that needs no warm-up (Liu et al. 2020, "On the variance of the adaptive learning rate and beyond", algorithm 2).

    The first steps, five with the default `betas`, are those of momentum alone, since the mean of so few squares is too uncertain to divide by
    its root. Later ones are Adam's, made smaller as long as it is uncertain.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-3
    betas : (float, float), default (0.9, 0.999)
    eps : float, default 1e-8
    weight_decay : float, default 0
        Added to the gradient, as L2 regularisation.
    decoupled_weight_decay : bool, default False
        Subtract it from the parameter instead, as ``AdamW`` does.
    maximize : bool
    foreach, fused, capturable : bool, optional
        Without effect, as for ``SGD``; so `differentiable`. A function of ``tc.cuda.graph`` does not take these steps, which depend on their number.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([1.0])
    >>> optimizer = tc.optim.RAdam([p], lr=0.125)
    >>> (p * p).sum().backward()
    >>> optimizer.step()                                  # by lr times the gradient, which is 2
    >>> p.tolist()
    [0.75]
    """

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        decoupled = switch(_DECOUPLED, decoupled_weight_decay)
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)
        super().__init__(params, {**options, _DECOUPLED: decoupled})

    def _states_of(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _step_group(self, group, values, gradients, states, t, halves):
        self._begin_in_python(values, states)
        beta1, beta2 = group["betas"]
        lr, eps, decay, decoupled = group["lr"], group["eps"], group["weight_decay"], group.get(_DECOUPLED, False)
        rectified, unbiased = _rectification(beta2, t), math.sqrt(1 - beta2**t)
        if rectified:  # Adam's step, with its eps beside the root of squares that are not corrected
            _core.adam_step(
                values, gradients, states["exp_avg"], states["exp_avg_sq"], None, t, lr * rectified, beta1, beta2, eps / unbiased,
                decay / rectified if decoupled else decay, decoupled, group["maximize"], halves,
            )  # fmt: skip
            return
        for i, (p, gradient, mean, squares) in enumerate(zip(values, gradients, states["exp_avg"], states["exp_avg_sq"], strict=True)):
            gradient = -gradient if group["maximize"] else gradient
            gradient = gradient if decoupled else gradient.add(p, alpha=decay)
            mean.lerp_(gradient, 1 - beta1)
            squares.lerp_(gradient.square(), 1 - beta2)
            p.mul_(1 - lr * decay if decoupled else 1.0).add_(mean, alpha=-lr / (1 - beta1**t))
            if halves is not None:
                halves[i].copy_(p)


def _rectification(beta2: float, t: int) -> float:
    """By which step t is smaller than Adam's; 0 while the squares of too few gradients are known (their `length` is that of a simple mean)."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * t * beta2**t / (1 - beta2**t)
    if length <= 5:
        return 0.0
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))


class RMSprop(Optimizer):
    """RMSprop (Hinton, lecture 6e), optionally centered (Graves 2013).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
    lr : float, default 1e-2
    alpha : float, default 0.99
        Keras calls it rho; its default is 0.9.
    eps : float, default 1e-8
    weight_decay, momentum : float, default 0
    centered, maximize : bool
    foreach, fused, capturable : bool, optional
        Without effect, as for ``SGD``; so `differentiable`.
    eps_inside_sqrt : bool, default False
        True divides by sqrt(v + eps), as Keras does; False divides by sqrt(v) + eps.
    """

    @explained(HINTS)
    def __init__(self, params, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False, eps_inside_sqrt: bool = False) -> None:  # fmt: skip
        _check_differentiable(differentiable)
        super().__init__(
            params,
            dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay, maximize=maximize,
                 eps_inside_sqrt=eps_inside_sqrt),
        )  # fmt: skip

    def _states_of(self, group):
        return ("square_avg", *(["momentum_buffer"] if group["momentum"] else []), *(["grad_avg"] if group["centered"] else []))

    def _step_group(self, group, values, gradients, states, t, halves):
        _core.rmsprop_step(
            values, gradients, states["square_avg"], states.get("momentum_buffer"), states.get("grad_avg"), group["lr"], group["alpha"],
            group["eps"], group["weight_decay"], group["momentum"], group["eps_inside_sqrt"], group["maximize"], halves,
        )  # fmt: skip
