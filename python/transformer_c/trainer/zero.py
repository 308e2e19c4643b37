"""ZeRO-1: each rank has the optimizer's state of one part of the parameters (Rajbhandari et al. 2020, "ZeRO", section 5.1).

A step: the ranks add up their gradients, each its own part (reduce-scatter), take the step of this part, and send its new values to all
(all-gather). That is as many bytes as data parallel training sends, and 1 / n of the state on each rank; the part of the sums, 1 / n of the
gradients, is kept from the backward to the step. The updates are element by element, so that they have the bits of an optimizer with the whole
state.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .. import _core, optim
from .._core import Tensor
from .._recording import no_grad
from .._tensor import as_tensor, zeros
from ..distributed import sums
from ..distributed.arrays import Row, as_numbers, assign
from ..distributed.group import ROUND_BYTES, Group, as_bytes
from ..optim.optimizer import by_kind, look_of, parameters_of

ELEMENTWISE = (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop)


class _WithoutBuffers:
    """Mixed into an optimizer of slices: their gradients are the parts of the sums, so that there is no buffer to lay out."""

    def _lay_out_gradients(self) -> None:
        self._buffers: dict = {}
        self._slots: dict = {}


@dataclass
class Sums:
    """This rank's parts of the summed gradients, one for each buffer, and what they were made of."""

    parts: list[np.ndarray]
    buffers: list[Tensor]
    checksums: list[tuple[int, bytes]]  # of the buffers
    gradients: list[Tensor | None]  # of the parameters


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
        self._sums: Sums | None = None  # for the next step
        self._is_summed_here = False  # by sum_gradients(); otherwise gradients are those of all ranks
        self._lay_out()

    def _lay_out(self) -> None:
        """Finds this rank's slices of the parameters, in the order of the gradient buffers, and makes an optimizer of them."""
        self._kinds = list(by_kind(parameters_of(self._optimizer)).values())
        self._bounds = [sums.bounds(sum(p.numel() for p in params), self._group.size) for params in self._kinds]
        self._slices: dict[int, tuple[int, int, Tensor]] = {}  # by parameter: from where to where, and the slice
        for params, bounds in zip(self._kinds, self._bounds, strict=True):
            low, high, start = int(bounds[self._group.rank]), int(bounds[self._group.rank + 1]), 0
            for p in params:
                _make_contiguous(p)
                first, last = max(low - start, 0), min(high - start, p.numel())
                if first < last:
                    self._slices[id(p)] = first, last, p.detach().view(-1)[first:last]
                start += p.numel()
        groups = [
            {k: v for k, v in g.items() if k not in ("params", "param_names")}
            | {"params": [self._slices[id(p)][2] for p in g["params"] if id(p) in self._slices]}
            for g in self._optimizer.param_groups
        ]
        kind = type(self._optimizer)
        taken = inspect.signature(kind).parameters  # AdamW has an option of Adam's in its groups alone
        defaults = {name: value for name, value in self._optimizer.defaults.items() if name in taken}
        self._inner: Any = type(kind.__name__, (_WithoutBuffers, kind), {})(groups, **defaults)
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
        for p in parameters_of(self._optimizer):
            _make_contiguous(p)
            first, last, own = self._slices.get(id(p), (0, 0, p))
            if own.data_ptr() != p.data_ptr() + first * p.dtype.itemsize:
                _core.set_data(own, p.detach().view(-1)[first:last])

    def _own(self, params: list[Tensor]) -> list[tuple[Tensor, int, Tensor]]:
        """This rank's part of parameters of one kind: each with where its slice begins in the part, and the slice."""
        found, at = [], 0
        for p in (p for p in params if id(p) in self._slices):
            first, last, own = self._slices[id(p)]
            found.append((p, at, own))
            at += last - first
        return found

    # ---- steps ---------------------------------------------------------------------------------------------------------------

    def sum_gradients(self, used: Sequence[bool], clip_val: float | None, clip_algorithm: str) -> None:
        """Makes this rank's part of the summed and clipped gradients, for ``step()``.

        Where a gradient is not finite, every rank's gradients become the sums, for the error.
        """
        self._check_look()
        self._used = {id(p): is_used for p, is_used in zip(parameters_of(self._optimizer), used, strict=True)}
        buffers = self._optimizer.flat_gradients(used)
        parts = [self._group.reduce_scatter(as_numbers(buffer)) for buffer in buffers]
        has_norm = bool(clip_val) and clip_algorithm == "norm"
        total = self._norm_of(parts) if has_norm else self._total_of(parts)
        if not math.isfinite(total):
            with no_grad():
                for buffer, part in zip(buffers, parts, strict=True):
                    assign(buffer, self._group.gather_parts(part, buffer.numel()))
        for part in parts:
            if clip_val and has_norm:
                part *= part.dtype.type(min(clip_val / (total + 1e-6), 1.0))
            elif clip_val:
                np.clip(part, -clip_val, clip_val, out=part)
        gradients = [p.grad for p in parameters_of(self._optimizer)]
        self._sums, self._is_summed_here = Sums(parts, buffers, list(map(_checksum, buffers)), gradients), True

    def _norm_of(self, parts: Sequence[np.ndarray]) -> float:
        """The norm of the summed gradients, of which this rank has these parts."""
        norms = [_core.gradient_norm([as_tensor(part)]) for part in parts]
        return math.hypot(*chain(*self._group.exchange("the norm of the gradients", norms)))

    def _total_of(self, parts: Sequence[np.ndarray]) -> float:
        """The sum of all elements, which is not finite where one is not."""
        totals = [float(as_tensor(part).sum()) for part in parts]
        return sum(chain(*self._group.exchange("the total of the gradients", totals)))

    def _summed(self) -> list[np.ndarray]:
        """The parts that ``sum_gradients`` made; raises RuntimeError on all ranks where gradients were changed since: it would not count."""
        given, self._sums = self._sums, None
        if given is None:
            raise RuntimeError('strategy="zero" takes one step of each backward: pass step() a closure, or use strategy="ddp"')
        is_other = given.checksums != list(map(_checksum, given.buffers)) or any(
            p.grad is not before for p, before in zip(parameters_of(self._optimizer), given.gradients, strict=True)
        )
        if any(self._group.exchange("a step of the optimizer", is_other)):
            raise RuntimeError(
                'with strategy="zero" a step takes the gradients as they are after the backward; a hook or optimizer_step() changed them '
                'later, which would not count: use gradient_clip_val=, or strategy="ddp"'
            )
        return given.parts

    def _taken(self) -> list[np.ndarray]:
        """This rank's parts of gradients that are those of all ranks already."""
        self._check_look()
        self._used = {id(p): p.grad is not None for p in parameters_of(self._optimizer)}
        rank, buffers = self._group.rank, self._optimizer.flat_gradients()
        return [as_numbers(buffer)[bounds[rank] : bounds[rank + 1]] for buffer, bounds in zip(buffers, self._bounds, strict=True)]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the step of this rank's part, and gets the values of the others."""
        loss = None if closure is None else closure()
        self._step_part(self._summed() if self._is_summed_here else self._taken())
        with no_grad():
            for kind, params in enumerate(self._kinds):
                self._gather(kind, Row([own for _, _, own in self._own(params)], params[0]), Row(params, params[0]))
        return loss

    def _step_part(self, parts: list[np.ndarray]) -> None:
        self._follow_data()
        if self._optimizer.state:
            self._take_state()
        for inner, given in zip(self._inner.param_groups, self._optimizer.param_groups, strict=True):
            inner.update({k: v for k, v in given.items() if k != "params"})
        with no_grad():
            for params, part in zip(self._kinds, parts, strict=True):
                for p, at, own in self._own(params):
                    gradient = as_tensor(part[at : at + own.numel()]).to(dtype=p.dtype, device=p.device)
                    own.grad = gradient if self._used[id(p)] else None
            self._inner.step()
        for _, _, own in self._slices.values():
            own.grad = None  # the parts leave memory

    def _gather(self, kind: int, own: Row, whole: Row | None) -> None:
        """Gets what the other ranks have as `own`, in rounds, and writes it to `whole`, where that is not None; called on all ranks."""
        bounds, rank, numbers = self._bounds[kind], self._group.rank, ROUND_BYTES // own.dtype.itemsize
        room = np.empty(min(int(bounds[-1]), numbers * self._group.size), own.dtype)
        for begins, ends in sums.rounds(bounds, numbers):
            sent = own.read(begins[rank] - bounds[rank], ends[rank] - bounds[rank])
            pieces = room[: (ends - begins).sum()]
            self._group.gather_parts(sent, pieces.size, pieces)
            for other, piece in enumerate(np.split(pieces, np.cumsum(ends - begins)[:-1])):
                if other != rank and whole is not None:
                    whole.write(begins[other], piece)

    # ---- state ---------------------------------------------------------------------------------------------------------------

    def _take_state(self) -> None:
        """Takes this rank's part of the state that was loaded into the optimizer."""
        for p, state in self._optimizer.state.items():
            if id(p) in self._slices:
                first, last, own = self._slices[id(p)]
                self._inner.state[own] = {k: v.view(-1)[first:last].clone() if isinstance(v, Tensor) else v for k, v in state.items()}
        self._optimizer.state.clear()

    def state_dict(self, is_needed: bool = True) -> dict[str, Any]:
        """As the optimizer's own ``state_dict()``, called on all ranks: the whole state where `is_needed`, elsewhere none."""
        if self._optimizer.state:
            self._take_state()
        numbers = {id(p): number for number, p in enumerate(parameters_of(self._optimizer))}
        own = {
            numbers[p]: {k: v.dtype if isinstance(v, Tensor) else v for k, v in self._inner.state[part].items()}
            for p, (_, _, part) in self._slices.items()
            if part in self._inner.state
        }
        found: dict[int, dict[str, Any]] = {}
        for of_rank in self._group.exchange("the optimizer's state", own):
            for number, values in of_rank.items():
                found.setdefault(number, {}).update(values)
        with no_grad():
            for kind, params in enumerate(self._kinds):
                self._put_together(kind, [found.get(numbers[id(p)], {}) for p in params], is_needed)
        return {**self._optimizer.state_dict(), "state": OrderedDict(sorted(found.items()) if is_needed else ())}

    def _put_together(self, kind: int, states: Sequence[dict[str, Any]], is_needed: bool) -> None:
        """Writes whole Tensors instead of dtypes to the states of parameters of one kind, where they are needed; called on all ranks."""
        dtypes = {name: value for state in states for name, value in state.items() if isinstance(value, np.dtype)}
        for name, dtype in dtypes.items():
            whole = self._whole(kind, name, dtype, is_needed)
            for state, value in zip(states, whole, strict=is_needed):
                if name in state:
                    state[name] = value

    def _whole(self, kind: int, name: str, dtype: np.dtype, is_needed: bool) -> list[Tensor]:
        """Of parameters of one kind the state of a name, of zeros where there is none; called on all ranks, and empty where it is not needed."""
        part = self._own(self._kinds[kind])
        states = [self._inner.state.get(own, {}).get(name) for _, _, own in part]
        found = [zeros(own.shape, dtype=dtype) if state is None else state for (_, _, own), state in zip(part, states, strict=True)]
        own, whole = Row(found, zeros(0, dtype=dtype)), [zeros(p.shape, dtype=dtype) for p in self._kinds[kind]] if is_needed else []
        row = Row(whole, zeros(0, dtype=dtype)) if is_needed else None
        if row is not None:
            row.write(self._bounds[kind][self._group.rank], own.read(0, own.length))
        self._gather(kind, own, row)
        return whole

    def state_bytes(self) -> int:
        """The bytes of the state on this rank."""
        return sum(v.numel() * v.dtype.itemsize for s in self._inner.state.values() for v in s.values() if isinstance(v, Tensor))


def _make_contiguous(p: Tensor) -> None:
    if not p.is_contiguous():
        _core.set_data(p, p.detach().contiguous())


def _checksum(buffer: Tensor) -> tuple[int, bytes]:
    """A checksum of the bits of a gradient buffer."""
    found = as_bytes(as_numbers(buffer))
    rest = found.size % 8
    return int(found[: found.size - rest].view(np.uint64).sum()), found[found.size - rest :].tobytes()
