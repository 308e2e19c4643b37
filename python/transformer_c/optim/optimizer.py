"""What all optimizers have in common: the param_groups and state dicts of torch.optim, buffers of gradients, the order of a step.

A step is one pass of a C kernel over all parameters that have a gradient (Adafactor, Adagrad, Muon and NAdam call several functions for each
parameter). ``flat_gradients()`` returns one contiguous buffer of gradients per
dtype and device; from its first call on backward() writes gradients there.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np

from .. import _core
from .._arguments import all_of, not_nan, not_negative, real, uncalled
from .._core import Tensor
from .._graph import not_captured, refuse, repeated
from .._joining import where
from .._listed_hooks import ListedHandle, listed
from .._names import Explaining
from .._nested import map_nested
from .._promotion import is_half
from .._recording import drop_gradients, enable_grad, no_grad
from .._tensor import as_tensor, from_dlpack, zeros
from .gradients import FLOAT32, for_kernel


class _Required:
    """A default that is none: each group, or the constructor, gives the option."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


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


def _look(p: Tensor) -> tuple:
    """What changes when a parameter is written to, cast, or given other memory."""
    return p.dtype, p.data_ptr(), p._version


def look_of(optimizer: Any) -> list[tuple]:
    """What the layout of an optimizer's gradients depends on."""
    return [(id(p), p.dtype, p.device, p.shape) for p in parameters_of(optimizer)]


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A ``step`` that calls the hooks of its optimizer, once where it calls that of its base class."""

    @functools.wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if not own.get("_listed_hooks") or "_is_stepping" in own:
            return step(self, *args, **kwargs)
        before, after = listed(self, "before"), listed(self, "after")
        if before or after:
            refuse(f"a hook of {type(self).__name__}.step(), which a graph cannot repeat, was called")
        self._is_stepping = True
        try:
            args = (self, *args)
            for hook in before:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not isinstance(changed, tuple) or len(changed) != 2:
                        raise RuntimeError(f"a hook before {type(self).__name__}.step() returns None or (args, kwargs), got {changed!r}")
                    args, kwargs = changed
            result = step(*args, **kwargs)
            for hook in after:
                hook(self, args, kwargs)
        finally:
            del self._is_stepping
        return result

    return run


class Optimizer(Explaining):
    """Base class: parameter groups, state, gradients. An optimizer of your own defines ``step``, as with PyTorch.

    Those of this library define ``_step_group``. In ``state``, a parameter that has none yet gets an empty dict, when it is asked for.

    Parameters
    ----------
    params : iterable of Parameter, of (str, Parameter), or of dicts
        A dict has "params" and options that apply to these parameters only. Names, as ``named_parameters()`` gives them, are kept in the
        group, as "param_names".
    defaults : dict
        Options for groups that do not set them.
    """

    # The entry of a parameter's state before which no step counts.
    _counts_from = "step"
    _instead = dict.fromkeys(("lr", "learning_rate", "get_lr", "get_last_lr"), 'optimizer.param_groups[0]["lr"]')

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = _with_hooks(not_captured(cls.step))  # type: ignore[method-assign]

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of parameters or of dicts, not one Tensor; pass [parameter]")
        if hasattr(params, "parameters"):
            raise TypeError("params must be an iterable of parameters or of dicts, not a module; pass its .parameters()")
        if not isinstance(params, Iterable):
            raise TypeError(f"params must be an iterable of parameters or of dicts, not {type(params).__name__}{uncalled(params)}")
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._buffers: dict[tuple[str, str], Tensor] = {}
        self._slots: dict[Tensor, Tensor] = {}
        self._rounded: dict[Tensor, tuple[tuple, Tensor] | None] = {}  # looks, and what keeps their memory: no other gets its address
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
        if missing := [name for name, value in options.items() if value is required]:
            raise ValueError(f"the options {missing} have no default: give them to the optimizer, or in each group of parameters")
        self._check_options(options, not_negative)
        self.param_groups.append({"params": params, **names, **options})
        self._slots = {}  # of other parameters

    def _has_own_rule(self) -> bool:
        """Does a program's ``step`` update the parameters? What its options and its state are is its own affair."""
        return type(self)._step_group is Optimizer._step_group

    def _check_options(self, options: dict[str, Any], of_rate: Callable[[str, Any], float]) -> None:
        """Raises ValueError for options out of range; `of_rate` checks the learning rate."""
        if self._has_own_rule():
            return
        numbers = [(not_negative, name, options.get(name, 0.0)) for name in ("eps", "weight_decay", "momentum", "alpha")]
        betas = options.get("betas", (0.0, 0.0))
        betas = betas.tolist() if isinstance(betas, np.ndarray) else betas
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas must be two numbers, such as (0.9, 0.999), got {betas!r:.80}")
        all_of((of_rate, "lr", options.get("lr", 0.0)), *numbers, *((_decay, f"betas[{i}]", beta) for i, beta in enumerate(betas)))

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
                    self._slots[p] = slot
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
                slot = self._slots.get(p)
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
        drop_gradients(parameters_of(self), set_to_none)

    # ---- stepping ----------------------------------------------------------------------------------------------------------

    @_with_hooks
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
        is_captured = _core.cuda_is_capturing()
        if self._rounded and not is_captured:
            self._follow_writes()
        repeated(self._step_groups, self._noted_gradients, self._kept)
        if self._rounded and not is_captured:
            self._rounded.update((p, (_look(p), p.detach())) for p, seen in self._rounded.items() if seen is None)
        return loss

    def _follow_writes(self) -> None:
        """Takes into the masters what was written to halves since they were rounded from them; other elements keep all digits."""
        with no_grad():
            for p, seen in list(self._rounded.items()):
                look = None if seen is None else seen[0]
                if look == _look(p):
                    continue
                master = self.state.get(p, {}).get("master")
                if master is None:  # the parameter has all digits itself now
                    del self._rounded[p]
                    continue
                if not is_half(p) or (master.shape, master.device) != (p.shape, p.device):
                    continue
                halves = ("float16", "bfloat16") if look is None else look[:1]  # to one of which the master was rounded, and cast since
                as_rounded = [master.to(half).to(p.dtype) == p.detach() for half in halves]
                master.copy_(where(reduce(or_, as_rounded), master, p.detach().float()))
                self._rounded[p] = None

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
        gradients, counts = self._gradients_now(), {p: state["step"] for p, state in self.state.items() if "step" in state}

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
                if self._stepped_at_once(group):
                    continue
                for params, grads, steps in self._batches(group):
                    try:
                        self._update(group, params, grads, steps)
                        continue
                    except TypeError:  # the core found another dtype, before it changed anything
                        if not self._cast_states(params):
                            raise
                    self._update(group, params, grads, steps)

    def _stepped_at_once(self, group: dict[str, Any]) -> bool:
        """Steps the parameters of a group that are all of one kind and have a state already. False: nothing is done, and they are looked at one by one."""
        names = tuple(self._states_of(group))
        batch = _core.step_of_one_kind(list(group["params"]), self.state, names, self._counts_from)
        if batch is None:
            return False
        params, gradients, states, values, steps = batch
        self._step_group(group, params, gradients, dict(zip(names, values, strict=True)), steps + 1, None)
        for state in states:  # only after everything that can fail
            state["step"] += 1
        return True

    def _batches(self, group: dict[str, Any]) -> Iterable[tuple[list[Tensor], list[Tensor], int]]:
        """Parameters with a gradient, the gradients and the number of steps taken, grouped by dtype, device and that number: one kernel call per
        group."""
        batches: dict[tuple, tuple[list[Tensor], list[Tensor], int]] = {}
        for p in group["params"]:
            if (grad := p.grad) is not None:  # read once: another thread may set it
                state = self.state.get(p)
                steps = state.get("step", 0) if state and self._counts_from in state else 0
                kind = (p.dtype, p.device, steps)
                batch = batches.get(kind)
                if batch is None:
                    batch = batches[kind] = ([], [], steps)
                batch[0].append(p)
                batch[1].append(grad)
        return batches.values()

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], steps: int) -> None:
        names = self._states_of(group)
        needed, known = {"step", *names}, self.state
        states = [s if (s := known.get(p)) and needed <= s.keys() else self._state_of(p, names) for p in params]
        has_masters = any("master" in s for s in states)
        if has_masters and not is_half(params[0]):  # a batch has one dtype
            self._cast_states(params)
            has_masters = False
        if has_masters:
            self._rounded.update(dict.fromkeys(params))
        values = [s.get("master", p) for s, p in zip(states, params, strict=True)]
        gradients = [for_kernel(grad, v.dtype) for grad, v in zip(grads, values, strict=True)]
        for v in values:
            if not v.is_contiguous():
                _core.set_data(v, v.detach().contiguous())
        self._step_group(group, values, gradients, {name: [s[name] for s in states] for name in names}, steps + 1,
                         params if has_masters else None)  # fmt: skip
        for state in states:  # only after everything that can fail
            state["step"] += 1

    def _states_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the state Tensors that the group's options require, which ``_step_group`` gets as lists."""
        return ()

    def _state_of(self, p: Tensor, names: tuple[str, ...]) -> dict[str, Any]:
        """The state of a parameter, created at its first step. float16 and bfloat16 parameters get a float32 master copy."""
        state = self.state.get(p)
        if not state or any(name not in state for name in names):
            refuse(f"the state of {type(self).__name__} for a parameter of shape {tuple(p.shape)}, which got its first gradient, was made")
        if not state or "step" not in state:
            state = self.state.setdefault(p, {})
            state["step"] = 0
            if is_half(p):
                state["master"] = p.detach().float()
        for name in names:
            if name not in state:
                like = state.get("master", p.detach())
                state[name] = zeros(self._shape_of(p, name), dtype=like.dtype, device=like.device)
        return state

    def _shape_of(self, p: Tensor, name: str) -> tuple[int, ...]:
        """The shape of a state Tensor."""
        return p.shape

    def _cast_states(self, params: list[Tensor]) -> bool:
        """Casts the states of parameters that were cast, as ``module.double()`` does, to the dtype in which a step computes; whether there were any."""
        found = False
        for p in params:
            if not (state := self.state.get(p)):
                continue
            dtype = FLOAT32 if is_half(p) else p.dtype
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

    def _begin_in_python(self, values: list[Tensor], states: dict[str, list[Tensor]]) -> None:
        """What the kernels do where a step has none: refuses graphs, which would not repeat it, and states that have to be cast first."""
        refuse(f"a step of {type(self).__name__} was made")
        if any(state.dtype != p.dtype for of_all in states.values() for p, state in zip(values, of_all, strict=True)):
            raise TypeError("a state has another dtype than its parameter")

    def _step_group(self, group, values, gradients, states, t, halves) -> None:
        """One step of parameters of one dtype on one device: writes to `values` and `states`.

        Parameters
        ----------
        group : dict
            The options.
        values, gradients : list of Tensor
            Parameters, or for float16 and bfloat16 their float32 copies.
        states : dict of str to list of Tensor
            By the names of ``_states_of``; zeros before the first step.
        t : int
            The number of this step, from 1 on.
        halves : list of Tensor, optional
            The parameters whose copies are in `values`: they get the new values, rounded. None: there are none.
        """
        raise NotImplementedError

    # ---- saving --------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups in torch.optim's format, with parameters given by number."""
        for hook in listed(self, "saving"):
            hook(self)
        numbers = {id(p): i for i, p in enumerate(parameters_of(self))}
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups
        ]
        found = {"state": OrderedDict((numbers[id(p)], dict(s)) for p, s in self.state.items()), "param_groups": groups}
        for hook in listed(self, "saved"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``, of this library or of torch.optim; values are copied.

        Raises
        ------
        ValueError
            When the number of groups or parameters, or a shape, differs, or an option is out of range. Nothing is loaded in that case.
        """
        for hook in listed(self, "loading"):
            state_dict = dict(state_dict) if isinstance(state_dict, dict) else state_dict  # which the hook may change
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            what = f"a dict of {sorted(map(str, state_dict))}" if isinstance(state_dict, dict) else type(state_dict).__name__
            raise ValueError(f'the state dict of an optimizer has "state" and "param_groups", got {what}')
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(
                f"the state dict has groups of {[len(g['params']) for g in groups]} parameters, the optimizer of {[len(g['params']) for g in self.param_groups]}"
            )
        for group in groups:
            self._check_options(group, not_nan)  # a schedule may have led it below 0, if only by a rounding
        params = dict(zip((n for g in groups for n in g["params"]), parameters_of(self), strict=True))
        if unknown := {int(number) for number in state_dict["state"]} - params.keys():
            raise ValueError(f"the state dict has a state for the parameters {sorted(unknown)}; its groups have {sorted(params)}")
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        has_own_rule = self._has_own_rule()
        for number, saved in state_dict["state"].items():
            p = params[int(number)]
            state[p] = map_nested(partial(_copied, p), saved) if has_own_rule else self._loaded_state(p, saved)
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in saved.items() if k != "params"})
        self.state = state
        self._rounded = {p: None for p, values in state.items() if "master" in values}
        for hook in listed(self, "loaded"):
            hook(self)

    def _loaded_state(self, p: Tensor, saved: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter. PyTorch's has no "step" for SGD, None for what is not used yet, and no float32 copy of halves."""
        state = {name: _loaded(p, name, value, self._shape_of(p, name)) for name, value in saved.items() if value is not None}
        state.setdefault("step", 1 if state else 0)
        if is_half(p) and "master" not in state:
            state["master"] = p.detach().float()
        return state

    # ---- hooks ---------------------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(optimizer, args, kwargs)`` before each ``step(*args, **kwargs)``, whose first argument is the optimizer; the hook returns
        None, or (args, kwargs) to take their place. ``handle.remove()`` takes the hook away.

        Examples
        --------
        >>> import transformer_c as tc
        >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=0.1)
        >>> handle = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print("step"))
        >>> optimizer.step()
        step
        >>> handle.remove()
        """
        return ListedHandle(self, "before", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(optimizer, args, kwargs)`` after each step; see ``register_step_pre_hook``."""
        return ListedHandle(self, "after", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> ListedHandle:
        """Calls ``hook(optimizer)`` before ``state_dict``; `prepend`: before the hooks that are registered already."""
        return ListedHandle(self, "saving", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> ListedHandle:
        """Calls ``hook(optimizer, state_dict)`` after ``state_dict``; what it returns, unless None, is the result."""
        return ListedHandle(self, "saved", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> ListedHandle:
        """Calls ``hook(optimizer, state_dict)`` before ``load_state_dict``, with a copy of the dict; what it returns, unless None, is loaded."""
        return ListedHandle(self, "loading", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> ListedHandle:
        """Calls ``hook(optimizer)`` after ``load_state_dict``."""
        return ListedHandle(self, "loaded", hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        """Without hooks, and what is known of the memory of these parameters: buffers of gradients, and looks."""
        own = {name: value for name, value in self.__dict__.items() if name != "_is_stepping"}  # of a copy that a hook makes
        return {**own, "_buffers": {}, "_slots": {}, "_rounded": dict.fromkeys(self._rounded), "_listed_hooks": {}}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k not in ("params", "param_names"))
            lines.append(f"  group {i}: {len(group['params'])} parameters, {options}")
        return "\n".join([*lines, ")"])


def _copied(p: Tensor, value: Any) -> Any:
    """A saved value of an optimizer that is not of this library: a Tensor of its own for what is one, or an array."""
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        with no_grad():
            return as_tensor(value).detach().clone().to(p.device)
    return copy.deepcopy(value)


def _loaded(p: Tensor, name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """A saved state value for parameter `p`: a count as int, a Tensor of this shape copied to the device of its parameter."""
    if name == "step":
        return int(value)
    if name == "mu_product":  # of NAdam: a number for each parameter
        return float(value)
    if isinstance(value, (int, float, bool)):
        return value
    own = zeros(shape, dtype="float64" if p.dtype.name == "float64" else "float32", device=p.device)
    value = value.detach() if hasattr(value, "detach") else value
    source = from_dlpack(value) if hasattr(value, "__dlpack__") and not isinstance(value, (Tensor, np.ndarray)) else as_tensor(value)
    if source.shape != shape:
        raise ValueError(f"state {name!r} has shape {source.shape}, but that of a parameter of shape {p.shape} has {shape}")
    with no_grad():
        return own.copy_(source)
