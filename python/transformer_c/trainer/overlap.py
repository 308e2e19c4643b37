"""Data parallel training: gradients are summed over the ranks while the backward goes on (Li et al. 2020, "PyTorch Distributed").

The gradients are copied, as soon as they are final, to arrays that are laid out as the optimizer's buffers and cut into buckets. A thread sums
the buckets over the ranks, in the order in which they were full in the first step of rank 0: the same on all ranks, as MPI needs it. Each
element is the sum in the order of the ranks, so that the bits are those of a sum after the backward.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._core import Tensor
from .._recording import no_grad
from ..distributed import world
from ..distributed.arrays import as_numbers, assign
from ..distributed.background import BackgroundSums
from ..distributed.group import Group
from ..optim.optimizer import by_kind, look_of, parameters_of
from ..training import TrainingModule
from .alike import check_equal
from .ranks import Ranks

BUCKET_BYTES = 2**20  # smaller ones cost more messages, of larger ones the last takes longer after the backward


class Bucket(NamedTuple):
    """A run of an optimizer's buffer."""

    kind: int  # which buffer
    first: int
    last: int
    places: list[int]  # of the parameters, in the optimizer's order


def buckets_of(optimizer: Any) -> list[Bucket]:
    """The gradients of an optimizer, cut after parameters."""
    place = {id(p): i for i, p in enumerate(parameters_of(optimizer))}
    found = []
    for kind, params in enumerate(by_kind(parameters_of(optimizer)).values()):
        first = last = 0
        places: list[int] = []
        for p in params:
            last += p.numel()
            places.append(place[id(p)])
            if (last - first) * p.dtype.itemsize >= BUCKET_BYTES:
                found.append(Bucket(kind, first, last, places))
                first, places = last, []
        if places:
            found.append(Bucket(kind, first, last, places))
    return found


class Layout:
    """Where the gradients are exchanged.

    Parameters
    ----------
    optimizer : Optimizer
    order : sequence of int
        The places of its parameters, in the order in which their gradients become final.
    """

    def __init__(self, optimizer: Any, order: Sequence[int]) -> None:
        self.look, self.params = look_of(optimizer), list(parameters_of(optimizer))
        kinds = list(by_kind(self.params).values())
        self.arrays = [np.zeros(sum(p.numel() for p in params), as_numbers(params[0].detach().reshape(-1)).dtype) for params in kinds]
        own = {}
        for array, params in zip(self.arrays, kinds, strict=True):
            start = 0
            for p in params:
                own[id(p)] = array[start : (start := start + p.numel())]
        self.own = [own[id(p)] for p in self.params]  # each parameter's part of the arrays
        moment = {place: i for i, place in enumerate(order)}
        self.buckets = sorted(buckets_of(optimizer), key=lambda bucket: max(moment[place] for place in bucket.places))
        self.bucket_of = {place: i for i, bucket in enumerate(self.buckets) for place in bucket.places}


class Step:
    """The exchange of one step.

    Parameters
    ----------
    group : Group
    layout : Layout
    """

    def __init__(self, group: Group, layout: Layout) -> None:
        self._layout, self._missing = layout, [len(bucket.places) for bucket in layout.buckets]
        self._left, self._next = set(range(len(layout.params))), 0
        self.arrays = [layout.arrays[bucket.kind][bucket.first : bucket.last] for bucket in layout.buckets]
        self.sums = BackgroundSums(group, self.arrays)
        self.was_alone = True  # no other backward gave gradients meanwhile

    def add(self, place: int, gradient: Tensor | None) -> None:
        """This backward has no more gradient for a parameter; what it has will be added to the parameter's."""
        p, array, bucket = self._layout.params[place], self._layout.own[place], self._layout.bucket_of[place]
        before = p.grad
        if gradient is not None:
            gradient = gradient.to(p.dtype)
            before = gradient if before is None else before + gradient
        if before is None:
            array[:] = 0
        else:
            np.copyto(array, as_numbers(before))
        self._left.discard(place)
        self._missing[bucket] -= 1
        while self._next < len(self._missing) and not self._missing[self._next]:
            self._next += 1
            self.sums.next_is_filled()

    def finish(self) -> None:
        """Returns once everything is summed; of parameters that no backward told of, what they have."""
        with no_grad():
            for place in list(self._left):
                self.add(place, None)
        self.sums.wait()


def obstacle(model: Any, optimizers: Sequence[Any]) -> str | None:
    """Why the gradients cannot be exchanged during the backward, or None."""
    if not model.automatic_optimization:
        return "the module computes gradients itself"
    if type(model).backward is not TrainingModule.backward or "backward" in vars(model):
        return f"{type(model).__name__} has a backward() of its own"
    if any(p.device != "cpu" for p in parameters_of(optimizers[0])):
        return "parameters are on a GPU"
    if len(buckets_of(optimizers[0])) == 1:
        return f"all gradients together fill one bucket, of {BUCKET_BYTES} bytes"
    return None if world.takes_threads() else "MPI takes no calls of several threads: it was not started with MPI_THREAD_MULTIPLE"


class Overlap:
    """Sums the gradients of a run's optimizer over the ranks, while the backward goes on.

    The first step sums them after its backward, and finds the order of later ones.

    Parameters
    ----------
    ranks : Ranks
    optimizer : Optimizer

    Attributes
    ----------
    trace : list of (str, float, float), or None
        Of all runs: what began and ended when, by ``time.perf_counter``; None: nobody asks.
    """

    trace: list[tuple[str, float, float]] | None = None

    def __init__(self, ranks: Ranks, optimizer: Any) -> None:
        self._ranks, self._twin, self._optimizer = ranks, ranks.group.twin(), optimizer
        self._layout: Layout | None = None
        self._order: list[int] = []
        self._step: Step | None = None

    @classmethod
    def of(cls, ranks: Ranks, model: Any, optimizers: Sequence[Any]) -> Overlap | None:
        """None where gradients are exchanged after the backward: where it cannot be otherwise, or no core is left for it on some rank."""
        wish, reason = world.overlap_wish(), obstacle(model, optimizers)
        if wish and reason and ranks.is_writer:
            warnings.warn(f"TRANSFORMER_C_MPI_OVERLAP is 1, but gradients are exchanged after the backward: {reason}", stacklevel=2)
        fits = reason is None and (world.has_spare_core() if wish is None else wish)
        return cls(ranks, optimizers[0]) if all(ranks.exchange("the start of the first epoch", fits)) else None

    def _current_layout(self) -> Layout | None:
        if self._layout is not None and self._layout.look != look_of(self._optimizer):
            self._layout = None  # a parameter was added, cast or moved
        return self._layout

    def backward(self, loss: Tensor) -> None:
        """The last backward of a step."""
        if self._step is not None:  # its sums are still under way: messages of two steps would be taken for one another
            raise RuntimeError(
                "a closure was called again after it had failed in its backward; with several ranks a failed step ends the fit"
            )
        began, layout, self._order = time.perf_counter(), self._current_layout(), []
        if layout is None:
            _core.backward_watched(loss, list(parameters_of(self._optimizer)), lambda place, gradient: self._order.append(place))
        else:
            self._step = Step(self._twin, layout)
            self._step.was_alone = _core.backward_watched(loss, layout.params, self._step.add)
        self._note("backward", began, time.perf_counter())

    def wait(self) -> bool:
        """Waits until all ranks have exchanged what their backwards gave. Returns whether the sums contain all of this rank's gradients."""
        if self._step is None:
            layout = self._current_layout()
            if layout is None:
                return False
            self._step = Step(self._twin, layout)
        began, step = time.perf_counter(), self._step
        with self._ranks.group.waits("a sum of gradients"):
            step.finish()
        self._step = None
        self._ranks.group.sent += self._twin.sent
        self._twin.sent = 0
        self._note("wait", began, time.perf_counter())
        for array, (first, last) in zip(step.arrays, step.sums.times, strict=True):
            self._note(f"sum of {array.nbytes} bytes", first, last)
        return step.was_alone

    def sum_gradients(self, used: Sequence[bool], is_summed: bool) -> None:
        """Gives every parameter the sum of its gradients on all ranks; none where no rank has one, as `used` says.

        `is_summed` says whether ``wait()`` was true on all ranks.
        """
        if is_summed and self._layout is not None:
            with no_grad():
                for buffer, array in zip(self._optimizer.flat_gradients(used), self._layout.arrays, strict=True):
                    assign(buffer, array)
            return
        self._ranks.sum_gradients(self._optimizer, used)
        if self._layout is None:
            check_equal(self._ranks.group, {"the gradients' buckets": buckets_of(self._optimizer)})
            order = self._ranks.of_root(self._order) or range(len(used))[::-1]
            self._layout = Layout(self._optimizer, order)

    def _note(self, what: str, began: float, ended: float) -> None:
        if self.trace is not None:
            self.trace.append((what, began, ended))

    def __enter__(self) -> Overlap:
        return self

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        if self._step is not None:
            self._step.sums.leave()
        if kind is None:
            self._twin.end()
