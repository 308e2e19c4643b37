"""Optimizers with the update rules, defaults and param_groups of torch.optim.

A step is one pass of a C kernel over all parameters that have a gradient. ``flat_gradients()`` returns one contiguous buffer of gradients per
dtype and device; from its first call on backward() writes gradients there.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import _core
from .._arguments import all_of, not_negative, real
from .._core import Tensor
from .._graph import not_captured, refuse, repeated
from .._names import Explaining, explained
from .._promotion import is_half
from .._tensor import as_tensor, enable_grad, from_dlpack, no_grad, zeros, zeros_like

# Compared as objects: the name of a dtype is built anew on every access, which would cost more than a small step.
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


_HINTS = {"learning_rate": "lr=", "beta_1": "betas=", "beta_2": "betas=", "epsilon": "eps=", "clipnorm": "tc.nn.utils.clip_grad_norm_"}


def _decay(name: str, value: Any) -> float:
    if not 0.0 <= real(name, value) < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    return value


def parameters_of(optimizer: Any) -> Iterator[Tensor]:
    """The parameters of an optimizer, in the order of its groups."""
    return (p for group in optimizer.param_groups for p in group["params"])


def by_kind(parameters: Iterable[Tensor]) -> dict[tuple[str, str], list[Tensor]]:
    """Parameters by dtype and device, which share a gradient buffer."""
    kinds: dict[tuple[str, str], list[Tensor]] = {}
    for p in parameters:
        kinds.setdefault((p.dtype.name, p.device), []).append(p)
    return kinds


def look_of(optimizer: Any) -> list[tuple]:
    """What the layout of an optimizer's gradients depends on."""
    return [(id(p), p.dtype, p.device, p.shape) for p in parameters_of(optimizer)]


class Optimizer(Explaining):
    """Base class: parameter groups, state, gradients. Subclasses define ``_step_group``.

    Parameters
    ----------
    params : iterable of Parameter, of (str, Parameter), or of dicts
        A dict has "params" and options that apply to these parameters only. Names, as ``named_parameters()`` gives them, are kept in the
        group, as "param_names".
    defaults : dict
        Options for groups that do not set them.
    """

    # Names of a subclass's state Tensors, in the order of its kernel's arguments.
    _state_names: tuple[str, ...] = ()
    _instead = dict.fromkeys(("lr", "learning_rate", "get_lr", "get_last_lr"), 'optimizer.param_groups[0]["lr"]')

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = not_captured(cls.step)  # type: ignore[method-assign]

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of parameters or of dicts, not one Tensor; pass [parameter]")
        if hasattr(params, "parameters"):
            raise TypeError("params must be an iterable of parameters or of dicts, not a module; pass its .parameters()")
        if not isinstance(params, Iterable):
            raise TypeError(f"params must be an iterable of parameters or of dicts, not {type(params).__name__}")
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)  # self.state[p] begins empty, for a `step` of a subclass's own
        self.param_groups: list[dict[str, Any]] = []
        self._buffers: dict[tuple[str, str], Tensor] = {}
        self._slots: dict[int, Tensor] = {}
        groups = list(params)
        if not groups:
            raise ValueError("the optimizer got no parameters")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    # ---- parameters and their gradients ----------------------------------------------------------------------------------

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Adds parameters with options of their own.

        Raises
        ------
        ValueError
            When a parameter is already in a group, or an option is missing or out of range.
        """
        if not isinstance(group, dict) or "params" not in group:
            what = f"a dict of {sorted(map(str, group))}" if isinstance(group, dict) else type(group).__name__
            raise TypeError(f'a group of parameters is a dict that has "params", got {what}')
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        if "param_names" in group:  # a group of another optimizer
            if len(group["param_names"]) != len(params):
                raise ValueError(f"a group has {len(params)} parameters and {len(group['param_names'])} names")
            params = list(zip(group["param_names"], params, strict=True))
        named = {isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in params}
        if len(named | {"param_names" in g for g in self.param_groups if g["params"]}) > 1:
            raise ValueError("some parameters have names, others none: give names of all, as named_parameters() does, or of none")
        names = {"param_names": [name for name, _ in params]} if True in named else {}
        params = [p for _, p in params] if names else params
        known = set(map(id, parameters_of(self)))
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"an optimizer takes Tensors, got {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("an optimizer takes leaf Tensors; this one is a result")
            if id(p) in known:
                raise ValueError("a parameter is in more than one group, or twice in one")
            known.add(id(p))
        options = {**self.defaults, **{k: v for k, v in group.items() if k not in ("params", "param_names")}}
        self._check_options(options)
        self.param_groups.append({"params": params, **names, **options})
        self._slots = {}  # of other parameters

    def _check_options(self, options: dict[str, Any]) -> None:
        """Raises ValueError for options out of range."""
        numbers = [(not_negative, name, options.get(name, 0.0)) for name in ("lr", "eps", "weight_decay", "momentum", "alpha")]
        betas = options.get("betas", ())
        if "betas" in options and (not isinstance(betas, (tuple, list, np.ndarray)) or np.shape(betas) != (2,)):
            raise TypeError(f"betas must be two numbers, such as (0.9, 0.999), got {betas!r}")
        all_of(*numbers, *((_decay, f"betas[{i}]", beta) for i, beta in enumerate(betas)))

    def _lay_out_gradients(self) -> None:
        """Makes one buffer per dtype and device; each parameter gets a part of it, where backward() puts its gradients from now on, and existing
        ones move there."""
        self._buffers, self._slots = {}, {}
        with no_grad():
            for (dtype, device), params in by_kind(parameters_of(self)).items():
                buffer = zeros(sum(p.numel() for p in params), dtype=dtype, device=device)
                self._buffers[dtype, device] = buffer
                start = 0
                for p in params:
                    slot = buffer[start : start + p.numel()].view(p.shape)
                    start += p.numel()
                    self._slots[id(p)] = slot
                    _core.set_grad_slot(p, slot)
                    if (grad := p.grad) is not None:
                        slot.copy_(grad)
                        p.grad = slot

    def flat_gradients(self, used: Sequence[bool] | None = None) -> list[Tensor]:
        """The gradient buffers, one per dtype and device, in the order of the parameters.

        Parameters without a gradient have zeros there. The next step reads these buffers, so data parallel training needs
        only an all-reduce of each. From the first call on backward() writes gradients there, so the next one overwrites a ``p.grad`` that was
        kept from before ``zero_grad()``: keep a clone of it.

        Parameters
        ----------
        used : sequence of bool, optional
            For each parameter whether it gets a gradient, of zeros if it has none: where it has one on another rank.
        """
        with no_grad():
            for i, p in enumerate(parameters_of(self)):
                slot = self._slots.get(id(p))
                if slot is None or slot.dtype != p.dtype or slot.device != p.device:
                    self._lay_out_gradients()  # the first call, or a parameter was added, cast or moved
                    return self.flat_gradients(used)
                grad = p.grad
                if grad is None:
                    slot.fill_(0.0)
                    if used is not None and used[i]:
                        p.grad = slot
                elif grad is not slot:
                    slot.copy_(grad)
                    p.grad = slot
        return list(self._buffers.values())

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every gradient: ``.grad`` is None until the next backward. With `set_to_none` False, gradients become zeros."""
        for p in parameters_of(self):
            if set_to_none:
                p.grad = None
            elif (grad := p.grad) is not None:  # read once: another thread may set it
                with no_grad():
                    grad.fill_(0.0)

    # ---- stepping ----------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient once.

        Parameters
        ----------
        closure : callable, optional
            Called first; computes the loss and its gradients.

        Returns
        -------
        The closure's loss, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        repeated(self._step_groups, self._noted_gradients, self._kept)
        return loss

    def _noted_gradients(self) -> Callable[[], None]:
        """Tells the graph that captures of the gradients; a function that makes them those of now."""
        _core.cuda_graph_note(list(parameters_of(self)))
        return self._gradients_now()

    def _gradients_now(self) -> Callable[[], None]:
        """A function that makes the gradients those of now."""
        kept = [(p, p.grad) for p in parameters_of(self)]

        def give_back() -> None:
            for p, grad in kept:
                if p.grad is not grad:
                    p.grad = grad

        return give_back

    def _kept(self) -> Callable[[], None]:
        """A function that takes back what a step from now on changes on the host."""
        gradients, counts = self._gradients_now(), {p: state["step"] for p, state in self.state.items() if state}

        def take_back() -> None:
            gradients()
            for p in [p for p in self.state if p not in counts]:
                del self.state[p]
            for p, count in counts.items():
                self.state[p]["step"] = count

        return take_back

    def _step_groups(self) -> None:
        with no_grad():
            for group in self.param_groups:
                for params, grads in self._batches(group):
                    try:
                        self._update(group, params, grads)
                        continue
                    except TypeError:  # the core found another dtype, before it changed anything
                        if not self._cast_states(params):
                            raise
                    self._update(group, params, grads)

    def _batches(self, group: dict[str, Any]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
        """Parameters with a gradient, and the gradients, grouped by dtype, device and number of steps: one kernel call per group."""
        batches: dict[tuple, tuple[list[Tensor], list[Tensor]]] = {}
        for p in group["params"]:
            if (grad := p.grad) is not None:  # read once: another thread may set it
                state = self.state.get(p)
                kind = (p.dtype, p.device, state["step"] if state else 0)
                batch = batches.get(kind)
                if batch is None:
                    batch = batches[kind] = ([], [])
                batch[0].append(p)
                batch[1].append(grad)
        return batches.values()

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        names = self._states_of(group)
        needed, known = set(names), self.state
        states = [s if (s := known.get(p)) and needed <= s.keys() else self._state_of(p, names) for p in params]
        has_masters = any("master" in s for s in states)
        if has_masters and not is_half(params[0]):  # a batch has one dtype
            self._cast_states(params)
            has_masters = False
        values = [s.get("master", p) for s, p in zip(states, params, strict=True)]
        gradients = [_ready(grad, v.dtype) for grad, v in zip(grads, values, strict=True)]
        for v in values:
            if not v.is_contiguous():
                _core.set_data(v, v.detach().contiguous())
        self._step_group(group, values, gradients, {name: [s[name] for s in states] for name in names}, states[0]["step"] + 1,
                         params if has_masters else None)  # fmt: skip
        for state in states:  # only after everything that can fail
            state["step"] += 1

    def _states_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the state Tensors that the group's options require."""
        return self._state_names

    def _state_of(self, p: Tensor, names: tuple[str, ...]) -> dict[str, Any]:
        """The state of a parameter, created at its first step. float16 and bfloat16 parameters get a float32 master copy."""
        state = self.state.get(p)
        if not state or any(name not in state for name in names):
            refuse(f"the state of {type(self).__name__} for a parameter of shape {tuple(p.shape)}, which got its first gradient, was made")
        if not state:
            state = self.state[p] = {"step": 0}
            if is_half(p):
                state["master"] = p.detach().float()
        for name in names:
            if name not in state:
                state[name] = zeros_like(state.get("master", p.detach()))
        return state

    def _cast_states(self, params: list[Tensor]) -> bool:
        """Casts the states of parameters that were cast, as ``module.double()`` does, to the dtype in which a step computes; whether there were any."""
        found = False
        for p in params:
            if not (state := self.state.get(p)):
                continue
            dtype = _FLOAT32 if is_half(p) else p.dtype
            others = [k for k, v in state.items() if isinstance(v, Tensor) and v.dtype.kind in "fV" and v.dtype != dtype]
            if not others and is_half(p) == ("master" in state):
                continue
            refuse(
                f"the state of {type(self).__name__} for a parameter of shape {tuple(p.shape)}, which was cast to {p.dtype.name}, was cast"
            )
            found = True
            if is_half(p):
                state.setdefault("master", p.detach().float())
            else:
                state.pop("master", None)  # the parameter has all digits itself
            state.update({k: state[k].to(dtype) for k in others if k in state})
        return found

    def _step_group(self, group, values, gradients, states, t, halves) -> None:
        """Steps `values`; what is in `halves` in the place of another value, unless it is None, gets that value rounded."""
        raise NotImplementedError

    # ---- saving --------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups in torch.optim's format, with parameters given by number."""
        numbers = {id(p): i for i, p in enumerate(parameters_of(self))}
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups
        ]
        return {"state": OrderedDict((numbers[id(p)], dict(s)) for p, s in self.state.items()), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``, of this library or of torch.optim; values are copied.

        Raises
        ------
        ValueError
            When the number of groups or parameters, or a shape, differs. Nothing is loaded in that case.
        """
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            what = f"a dict of {sorted(map(str, state_dict))}" if isinstance(state_dict, dict) else type(state_dict).__name__
            raise ValueError(f'the state dict of an optimizer has "state" and "param_groups", got {what}')
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(
                f"the state dict has groups of {[len(g['params']) for g in groups]} parameters, the optimizer of {[len(g['params']) for g in self.param_groups]}"
            )
        params = dict(zip((n for g in groups for n in g["params"]), parameters_of(self), strict=True))
        state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, saved in state_dict["state"].items():
            p = params[int(number)]
            state[p] = _loaded_state(p, saved)
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in saved.items() if k != "params"})
        self.state = state

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k not in ("params", "param_names"))
            lines.append(f"  group {i}: {len(group['params'])} parameters, {options}")
        return "\n".join([*lines, ")"])


def _loaded_state(p: Tensor, saved: dict[str, Any]) -> dict[str, Any]:
    """The state of a parameter. PyTorch's has no "step" for SGD, None for what is not used yet, and no float32 copy of halves."""
    state = {name: _loaded(p, name, value) for name, value in saved.items() if value is not None}
    state.setdefault("step", 1 if state else 0)
    if is_half(p) and "master" not in state:
        state["master"] = p.detach().float()
    return state


def _loaded(p: Tensor, name: str, value: Any) -> Any:
    """A saved state value for parameter `p`: a count as int, a Tensor copied to the device of its parameter."""
    if name == "step":
        return int(value)
    if isinstance(value, (int, float, bool)):
        return value
    copy = zeros(p.shape, dtype="float64" if p.dtype.name == "float64" else "float32", device=p.device)
    value = value.detach() if hasattr(value, "detach") else value
    source = from_dlpack(value) if hasattr(value, "__dlpack__") and not isinstance(value, (Tensor, np.ndarray)) else as_tensor(value)
    if source.shape != p.shape:
        raise ValueError(f"state {name!r} has shape {source.shape} but its parameter has {p.shape}")
    with no_grad():
        return copy.copy_(source)


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

    @explained(_HINTS)
    def __init__(self, params, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, *,
                 maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False) -> None:  # fmt: skip
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
    amsgrad, maximize : bool
    foreach, fused, capturable : bool, optional
        Without effect, as for ``SGD``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(2, 1)
    >>> optimizer = tc.optim.Adam(layer.parameters(), lr=1e-2)
    >>> optimizer.param_groups[0]["lr"]
    0.01
    """

    _decoupled = False

    @explained(_HINTS)
    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False) -> None:  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize))

    def _states_of(self, group):
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _step_group(self, group, values, gradients, states, t, halves):
        beta1, beta2 = group["betas"]
        _core.adam_step(
            values, gradients, states["exp_avg"], states["exp_avg_sq"], states.get("max_exp_avg_sq"), t, group["lr"], beta1, beta2,
            group["eps"], group["weight_decay"], self._decoupled, group["maximize"], halves,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). Parameters as for ``Adam``; `weight_decay` is 0.01."""

    _decoupled = True

    @explained(_HINTS)
    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


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
        Without effect, as for ``SGD``.
    eps_inside_sqrt : bool, default False
        True divides by sqrt(v + eps), as Keras does; False divides by sqrt(v) + eps.
    """

    @explained(_HINTS)
    def __init__(self, params, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False, *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, eps_inside_sqrt: bool = False) -> None:  # fmt: skip
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


# ---- clipping ----------------------------------------------------------------------------------------------------------------


def _ready(gradient: Tensor, dtype: np.dtype) -> Tensor:
    """`gradient` in the form that the core takes: contiguous, in the dtype of the computation or, where that is float32, in halves."""
    fits = gradient.dtype == dtype or (dtype == _FLOAT32 and is_half(gradient))
    if fits and gradient.is_contiguous():
        return gradient
    return gradient.to(dtype).contiguous()


def _gradients(parameters) -> list[list[Tensor]]:
    """The gradients, in groups that one kernel takes."""
    if hasattr(parameters, "parameters"):
        raise TypeError("expected an iterable of parameters, not a module; pass its .parameters()")
    if not isinstance(parameters, (Tensor, Iterable)):
        raise TypeError(f"parameters must be an iterable of parameters, or one, got {parameters!r} ({type(parameters).__name__})")
    kinds: dict[tuple[np.dtype, str], list[Tensor]] = {}
    for p in [parameters] if isinstance(parameters, Tensor) else parameters:
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
        ready = [g if g.is_contiguous() else _ready(g, _wide(g)) for g in gradients]
        result = function(ready, *options)
        for gradient, written in zip(gradients, ready, strict=True):
            if written is not gradient:
                gradient.copy_(written)
    return result


def clip_grad_norm_(parameters, max_norm: float | Tensor, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
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

    Returns
    -------
    Tensor
        The norm before clipping, 0-d, on the device of the gradients: on a GPU nothing is read by the host, unless the gradients are of several
        devices or of float64 and others, or `error_if_nonfinite` is set.

    Examples
    --------
    >>> import transformer_c as tc
    >>> p = tc.nn.Parameter([3.0, 4.0])
    >>> (p * p).sum().backward()
    >>> float(tc.optim.clip_grad_norm_([p], 1.0))
    10.0
    """
    if not isinstance(max_norm, Tensor):  # to read one may wait for a GPU
        real("max_norm", max_norm)
    norm_type = float(norm_type)
    if not norm_type > 0:
        raise ValueError(f"norm_type must be above 0, got {norm_type}")
    kinds = _gradients(parameters)
    if len(kinds) == 1 and not error_if_nonfinite:
        if isinstance(max_norm, Tensor) and max_norm.device == kinds[0][0].device:
            return _in_place(_core.gradient_clip, kinds[0], math.inf, norm_type, max_norm)
        return _in_place(_core.gradient_clip, kinds[0], max_norm, norm_type)
    norms = [_core.gradient_norm([_ready(g, _wide(g)) for g in gradients], norm_type) for gradients in kinds]
    total = float(np.max(norms, initial=0.0)) if math.isinf(norm_type) else sum(n**norm_type for n in norms) ** (1 / norm_type)
    if len(norms) == 1:
        total = norms[0]
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(f"the norm of the gradients is {total}, so they cannot be clipped")
    factor = min(max_norm / (total + 1e-6), 1.0) if not math.isnan(total) else total
    for gradients in kinds:
        _in_place(_core.gradient_scale, gradients, factor, math.inf)
    return Tensor(total, dtype=_wide(kinds[0][0]) if kinds else None)


def _wide(gradient: Tensor) -> np.dtype:
    """The dtype in which a gradient's norm is computed."""
    return _FLOAT64 if gradient.dtype == _FLOAT64 else _FLOAT32


def clip_grad_value_(parameters, clip_value: float) -> None:
    """Clamps every element of every gradient to [-clip_value, clip_value].

    Parameters
    ----------
    parameters : iterable of Parameter, or one
    clip_value : float
    """
    not_negative("clip_value", clip_value)
    for gradients in _gradients(parameters):
        _in_place(_core.gradient_scale, gradients, 1.0, float(clip_value))
