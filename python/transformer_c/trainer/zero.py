"""ZeRO-1: each rank has the optimizer's state of one part of the parameters (Rajbhandari et al. 2020, "ZeRO", section 5.1).

A step: the ranks add up their gradients, each its own part (reduce-scatter), take the step of this part, and send its new values to all
(all-gather). That is as many bytes as data parallel training sends, and 1 / n of the state on each rank. The updates are element by element, so
that they have the bits of an optimizer with the whole state.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _core, optim
from .._core import Tensor
from .._tensor import as_tensor, no_grad
from ..distributed import sums
from ..distributed.arrays import as_numbers, assign, assign_parts
from ..distributed.group import Group
from ..optim.optimizer import by_kind, look_of, parameters_of

ELEMENTWISE = (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop)


class Zero:
    """The state and the ``step()`` of an optimizer of a run with ``strategy="zero"``.

    Parameters
    ----------
    group : Group
    optimizer : SGD, Adam, AdamW or RMSprop
        Its groups and schedules count; its state is here, but for moments of saving and loading.
    """

    def __init__(self, group: Group, optimizer: Any) -> None:
        if type(optimizer) not in ELEMENTWISE:
            known = ", ".join(kind.__name__ for kind in ELEMENTWISE)
            raise ValueError(f'strategy="zero" shares out the state of {known}, not of {type(optimizer).__name__}: use strategy="ddp"')
        self._group, self._optimizer = group, optimizer
        self._parts: list[np.ndarray] = []  # of the gradients, for the next step
        self._summed: tuple[list[Tensor], list[str]] = [], []  # the buffers of which the parts were made, and their norms
        self._lay_out()

    def _lay_out(self) -> None:
        """Finds this rank's slices of the parameters, in the order of the gradient buffers, and makes an optimizer of them."""
        self._kinds = list(by_kind(parameters_of(self._optimizer)).values())
        self._slices: dict[int, tuple[int, int, Tensor]] = {}  # by parameter: from where to where, and the slice
        for params in self._kinds:
            bounds = sums.bounds(sum(p.numel() for p in params), self._group.size)
            low, high, start = int(bounds[self._group.rank]), int(bounds[self._group.rank + 1]), 0
            for p in params:
                first, last = max(low - start, 0), min(high - start, p.numel())
                if first < last:
                    if not p.is_contiguous():
                        _core.set_data(p, p.detach().contiguous())
                    self._slices[id(p)] = first, last, p.detach().view(-1)[first:last]
                start += p.numel()
        groups = [
            {**g, "params": [self._slices[id(p)][2] for p in g["params"] if id(p) in self._slices]} for g in self._optimizer.param_groups
        ]
        self._inner = type(self._optimizer)(groups, **self._optimizer.defaults)
        self._look = look_of(self._optimizer)

    def _check_look(self) -> None:
        """Raises RuntimeError where the parameters are not those of which the state was shared out."""
        if self._look != look_of(self._optimizer):
            raise RuntimeError(
                'strategy="zero" shared out the state of the parameters that the optimizer had at the beginning, and some were added, cast or '
                'moved since: do so before fit(), or use strategy="ddp"'
            )

    def _follow_data(self) -> None:
        """Takes this rank's slices of parameters that were given other memory: ``p.data = ...``."""
        for p in (p for p in parameters_of(self._optimizer) if id(p) in self._slices):
            first, last, own = self._slices[id(p)]
            if own.data_ptr() != p.data_ptr() + first * p.dtype.itemsize or not p.is_contiguous():
                if not p.is_contiguous():
                    _core.set_data(p, p.detach().contiguous())
                _core.set_data(own, p.detach().view(-1)[first:last])

    # ---- steps ---------------------------------------------------------------------------------------------------------------

    def sum_gradients(self, used: Sequence[bool], clip_val: float | None, clip_algorithm: str) -> None:
        """Makes this rank's part of the summed and clipped gradients, for ``step()``.

        Where a gradient is not finite, every rank's gradients become the sums, for the error.
        """
        self._check_look()
        self._used = {id(p): is_used for p, is_used in zip(parameters_of(self._optimizer), used, strict=True)}
        buffers = self._optimizer.flat_gradients(used)
        self._parts = [self._group.reduce_scatter(as_numbers(buffer)) for buffer in buffers]
        squares = self._group.exchange([float(np.square(part, dtype=np.float64).sum()) for part in self._parts])
        total = math.sqrt(sum(map(sum, squares)))
        with no_grad():
            for buffer, part in zip(buffers, self._parts, strict=True):
                if not math.isfinite(total):
                    assign(buffer, self._group.gather_parts(part, buffer.numel()))
                elif clip_val and clip_algorithm == "value":
                    np.clip(part, -clip_val, clip_val, out=part)
                elif clip_val:
                    part *= part.dtype.type(min(clip_val / (total + 1e-6), 1.0))
        self._summed = buffers, list(map(_norm, buffers))

    def _check_unchanged(self) -> None:
        """Raises RuntimeError on all ranks where a hook changed gradients after their sums had been made: it would not count."""
        buffers, norms = self._summed
        if any(self._group.exchange(norms != list(map(_norm, buffers)))):
            raise RuntimeError(
                'with strategy="zero" a step takes the gradients as they are after the backward; a hook or optimizer_step() changed them '
                'later, which would not count: use gradient_clip_val=, or strategy="ddp"'
            )

    def _take_gradients(self) -> None:
        """As ``sum_gradients``, of gradients that are those of all ranks already."""
        self._check_look()
        self._used = {id(p): p.grad is not None for p in parameters_of(self._optimizer)}
        self._parts = []
        for buffer in self._optimizer.flat_gradients():
            bounds = sums.bounds(buffer.numel(), self._group.size)
            self._parts.append(as_numbers(buffer)[bounds[self._group.rank] : bounds[self._group.rank + 1]])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the step of this rank's part, and gets the values of the others."""
        loss = None if closure is None else closure()
        if self._parts:
            self._check_unchanged()
        else:
            self._take_gradients()
        self._follow_data()
        if self._optimizer.state:
            self._take_state()
        for own, given in zip(self._inner.param_groups, self._optimizer.param_groups, strict=True):
            own.update({k: v for k, v in given.items() if k != "params"})
        with no_grad():
            for params, part in zip(self._kinds, self._parts, strict=True):
                at = 0
                for p in (p for p in params if id(p) in self._slices):
                    first, last, own_slice = self._slices[id(p)]
                    gradient = as_tensor(part[at : at + last - first]).to(dtype=p.dtype, device=p.device)
                    own_slice.grad = gradient if self._used[id(p)] else None
                    at += last - first
            self._inner.step()
            for params, part in zip(self._kinds, self._parts, strict=True):
                self._gather(params, part.dtype)
        self._parts = []
        return loss

    def _gather(self, params: list[Tensor], dtype: np.dtype) -> None:
        """Gives parameters of one kind, which are sent in `dtype`, the values of all ranks."""
        own = [as_numbers(self._slices[id(p)][2]) for p in params if id(p) in self._slices]
        assign_parts(params, self._group.gather_parts(np.concatenate([np.empty(0, dtype), *own]), sum(p.numel() for p in params)))

    # ---- state ---------------------------------------------------------------------------------------------------------------

    def _take_state(self) -> None:
        """Takes this rank's part of the state that was loaded into the optimizer."""
        for p, state in self._optimizer.state.items():
            if id(p) in self._slices:
                first, last, own = self._slices[id(p)]
                self._inner.state[own] = {k: v.view(-1)[first:last].clone() if isinstance(v, Tensor) else v for k, v in state.items()}
        self._optimizer.state = {}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as the optimizer's own ``state_dict()`` gives it; called on all ranks."""
        if self._optimizer.state:
            self._take_state()
        parameters, own = list(parameters_of(self._optimizer)), {}
        for number, p in ((number, p) for number, p in enumerate(parameters) if id(p) in self._slices):
            first, last, part = self._slices[id(p)]
            if part in self._inner.state:
                values = {k: as_numbers(v) if isinstance(v, Tensor) else v for k, v in self._inner.state[part].items()}
                own[number] = first, last, values
        found: dict[int, dict[str, Any]] = {}
        for of_rank in self._group.exchange(own):
            for number, (first, last, values) in of_rank.items():
                state = found.setdefault(number, {})
                for name, value in values.items():
                    if isinstance(value, np.ndarray):
                        state.setdefault(name, np.zeros(parameters[number].numel(), value.dtype))[first:last] = value
                    else:
                        state[name] = value
        whole = {
            number: {k: as_tensor(v).view(parameters[number].shape) if isinstance(v, np.ndarray) else v for k, v in state.items()}
            for number, state in sorted(found.items())
        }
        return {**self._optimizer.state_dict(), "state": OrderedDict(whole)}

    def state_bytes(self) -> int:
        """The bytes of the state on this rank."""
        return sum(v.numel() * v.dtype.itemsize for s in self._inner.state.values() for v in s.values() if isinstance(v, Tensor))


def _norm(buffer: Tensor) -> str:
    """The square of the norm of a gradient buffer, as text: NaN equals itself."""
    array = as_numbers(buffer)
    return repr(float(np.dot(array, array)))
