"""``Trainer(graph=True)``: training steps that are captured as graphs of a GPU (`cuda.graph`) and repeated.

The work from ``training_step`` to clipping is a graph's. The host then reads all numbers of it by one copy: logged values, the loss, the sums of
the gradients. What follows is as in any step: values are recorded, loss and gradients checked, the optimizer and the schedules step.

A graph lives for one epoch. So the next one sees what hooks and callbacks changed between the two, and validation gets the memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._core import Tensor
from .._graph import Graph
from .later import joined, numbers_of
from .loaders import mapped
from .watched import Renewed, Structure, unchanged

if TYPE_CHECKING:
    from .loop import FitLoop, Part

MAX_GRAPHS = 8  # at a time: each has memory for all that its step computes
MAX_IN_VAIN = 2  # then steps are not captured while the model is replaced after each


class Done(NamedTuple):
    """What a graph leaves: the same Tensors after each start."""

    outputs: Any  # of training_step()
    loss: Tensor | None
    records: list[Callable[[float], None]]  # of the logged values
    numbers: Tensor | None  # these values, the loss, and the sums of the gradients where the step ends; None: there are none
    renewed: Callable[[], list[Renewed]] = list  # attributes of the model that get new Tensors


class CapturedSteps:
    """The steps of a fit whose Trainer has graph=True. For a ``with`` block in each epoch, at whose end the graphs are freed.

    Parameters
    ----------
    loop : FitLoop
    """

    def __init__(self, loop: FitLoop) -> None:
        self._loop = loop
        self._clips_itself = not any(loop.hooks.is_defined(name) for name in ("on_after_backward", "on_before_optimizer_step"))
        self._told: set[str] = set()  # warnings
        self._in_vain = 0  # times in a row that the model was replaced before a graph was repeated

    def __enter__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._structure = Structure(self._loop.model)
        self._graphs: list[tuple[Any, Graph]] = []  # with the kind of parts that each is for
        self._has_repeated = False  # one of them

    def __exit__(self, *unused: Any) -> None:
        del self._structure, self._graphs

    def compute(self, part: Part) -> tuple[Any, Tensor | None]:
        """Computes, clips and checks the gradients of a part of a step; returns what training_step() gave, and the loss in it."""
        loop, tensors = self._loop, _tensors_of(part.batch)
        try:
            done = self._step_for(part)(*tensors)
        except RuntimeError as error:
            if "capture" not in str(error):
                raise
            raise RuntimeError(
                f"Trainer(graph=True) captures what is from training_step() of {type(loop.model).__name__} to clipping: {error}. "
                "on_train_batch_start() and on_train_batch_end() run at each step, and without graph=True everything does"
            ) from error
        for attribute in done.renewed():
            attribute.set()
        numbers = iter([] if done.numbers is None else map(float, done.numbers.tolist()))
        for record in done.records:
            record(next(numbers))
        if not self._clips_itself:
            loop.clip(done.loss is not None, part.is_last)
        if done.loss is not None:
            loop.add_loss(next(numbers), part)
        if part.is_last:
            loop.check_gradients(numbers if self._clips_itself else numbers_of(loop.gradient_sums()))
        outputs = mapped(_copied, done.outputs) if loop.hooks.is_defined("on_train_batch_end") else None
        return outputs, done.loss

    # ---- graphs --------------------------------------------------------------------------------------------------------------

    def _step_for(self, part: Part) -> Callable[..., Done]:
        """The graph for this kind of parts; for kinds beyond MAX_GRAPHS the function itself."""
        if self._structure.is_replaced() and self._begin_again():
            return self._function(part)
        kind = (_kind(part.batch), part.share, part.is_first, part.is_last, self._state())
        for known, graph in self._graphs:
            if known == kind:
                self._has_repeated |= graph.is_captured
                return graph
        step = self._function(part)
        if len(self._graphs) == MAX_GRAPHS:
            self._tell_once(
                f"the batches of an epoch have more than {MAX_GRAPHS} shapes (or numbers and strings), and graph=True captures the first "
                f"{MAX_GRAPHS}: others run as without it. Pad the batches to a few lengths"
            )
            return step
        self._graphs.append((kind, Graph(step, self._loop.place.device)))
        return self._graphs[-1][1]

    def _state(self) -> tuple:
        """What hooks may change within an epoch, and the work depends on."""
        options, groups = self._loop.options, len(self._loop.run.optimizers[0].param_groups)
        return groups, options.gradient_clip_val, options.gradient_clip_algorithm, self._structure.switches()

    def _begin_again(self) -> bool:
        """Frees all graphs, as parts of the model were replaced. Returns whether the next one would probably be in vain, too."""
        self._in_vain = 0 if self._has_repeated else self._in_vain + 1
        self._begin()
        if self._in_vain < MAX_IN_VAIN:
            return False
        self._structure.note_places()  # so that the next step is in vain, too, if they are others after this one
        self._tell_once(
            "modules, parameters, buffers or hooks of the model are replaced, or their .data is, in or between all steps, so that graph=True "
            "repeats none of them: change values in place, by copy_()"
        )
        return True

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warnings.warn(message, stacklevel=2)

    def _function(self, part: Part) -> Callable[..., Done]:
        """What is captured, as a function of the Tensors of a batch."""
        loop = self._loop
        part = replace(part, batch=mapped(lambda item: _TENSOR if isinstance(item, Tensor) else item, part.batch), index=BatchIndex())

        def compute(*tensors: Tensor) -> Done:
            given = iter(tensors)
            batch = mapped(lambda item: next(given) if item is _TENSOR else item, part.batch)
            with loop.run.logging_later(is_captured=True) as later:
                outputs, loss = loop.backward(replace(part, batch=batch))
                if self._clips_itself:
                    loop.clip(loss is not None, part.is_last)
            checked = [] if loss is None else [loss.detach()]
            checked += loop.gradient_sums() if part.is_last and self._clips_itself else []
            logged = later.take()
            numbers = [value for _, value in logged if isinstance(value, Tensor)] + checked
            return Done(outputs, loss, [record for record, _ in logged], joined(numbers) if numbers else None)

        def watched(*tensors: Tensor) -> Done:
            if not _core.cuda_is_capturing():
                return compute(*tensors)
            self._structure.note_places()
            with unchanged(loop.model, loop.train, loop.streams) as renewed:
                done = compute(*tensors)
            return Done(done.outputs, done.loss, done.records, done.numbers, lambda: renewed)

        return watched


class BatchIndex:
    """Stands for batch_idx in a captured step, in which it is any batch's: whatever is done with it is an error."""

    def _refuse(self, *unused: Any, **options: Any) -> Any:
        raise RuntimeError("batch_idx was used in the captured function, and each repetition would have the same: move that out")

    __bool__ = __int__ = __float__ = __index__ = __str__ = __repr__ = __format__ = __array__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __round__ = __abs__ = __neg__ = __pos__ = __invert__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __lshift__ = __rlshift__ = _refuse
    __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse


# ---- batches --------------------------------------------------------------------------------------------------------------------------

_TENSOR = object()  # instead of each
_CONSTANTS = (bool, int, float, complex, str, bytes, np.generic)


def _kind(item: Any) -> Any:
    """What a graph for a batch, or for one with this item, depends on. The order of a dict is that of its Tensors."""
    if isinstance(item, Tensor):
        return tuple(item.shape), item.dtype.name
    if isinstance(item, dict):
        return type(item), [(key, _kind(value)) for key, value in item.items()]
    if isinstance(item, (list, tuple)):
        return type(item), [_kind(value) for value in item]
    if item is None or isinstance(item, _CONSTANTS):
        return type(item), repr(item)  # that of a NaN is equal to another's, and that of -0.0 is not 0.0's
    dtype = f" of dtype {item.dtype}" if isinstance(item, np.ndarray) else ""
    raise TypeError(
        f"graph=True takes batches of arrays of numbers, numbers and strings, and this one has an item of type {type(item).__name__}{dtype}"
    )


def _tensors_of(batch: Any) -> list[Tensor]:
    found: list[Any] = []
    mapped(found.append, batch)
    return [item for item in found if isinstance(item, Tensor)]


def _copied(item: Any) -> Any:
    """An item of what training_step() returned, to which the next start does not write."""
    if isinstance(item, Tensor):
        return item.detach().clone()
    if item is None or isinstance(item, _CONSTANTS):
        return item
    raise TypeError(
        f"training_step() returned an object of type {type(item).__name__}, and a Tensor in it would change with the next step of graph=True: "
        "return Tensors, numbers and strings, in dicts, lists and tuples"
    )


__all__ = ["BatchIndex", "CapturedSteps"]
