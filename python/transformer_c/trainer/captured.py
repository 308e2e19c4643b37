"""``Trainer(graph=True)``: training steps that are captured as graphs of a GPU (`cuda.graph`) and repeated.

The work from ``training_step`` to clipping is a graph's. The host then reads all numbers of it by one copy: logged values, the loss, the sums of
the gradients. What follows is as in any step: values are recorded, loss and gradients checked, the optimizer and the schedules step.

A graph lives for one epoch. So the next one sees what hooks and callbacks changed between the two, and validation gets the memory.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._core import Generator, Tensor
from .._graph import Graph
from .._tensor import cat
from . import streams
from .loaders import mapped

if TYPE_CHECKING:
    from .loop import FitLoop, Part

MAX_GRAPHS = 8  # at a time: each has memory for all that its step computes


class Done(NamedTuple):
    """What a graph leaves: the same Tensors after each start."""

    outputs: Any  # of training_step()
    loss: Tensor | None
    records: list[Callable[[float], None]]  # of the logged values
    numbers: Tensor | None  # these values, the loss, and the sums of the gradients where the step ends; None: there are none


class CapturedSteps:
    """The steps of a fit whose Trainer has graph=True. For a ``with`` block in each epoch, at whose end the graphs are freed.

    Parameters
    ----------
    loop : FitLoop
    """

    def __init__(self, loop: FitLoop) -> None:
        self._loop = loop
        self._clips_itself = not any(loop.hooks.is_defined(name) for name in ("on_after_backward", "on_before_optimizer_step"))
        self._has_told = False  # that there are too many kinds of batches
        # Those that only the steps draw from. (A dropout draws new masks at each start.)
        own = ("model",) if getattr(loop.train, "prefetch", 0) else ("model", "python", "numpy")
        self._streams = {
            name: stream for name, stream in loop.streams.items() if name.split(".")[0] in own and not isinstance(stream, Generator)
        }

    def __enter__(self) -> None:
        model = self._loop.model
        self._modules, self._parameters = list(model.modules()), list(model.parameters())
        self._graphs: list[tuple[Any, Graph]] = []  # with the kind of parts that each is for

    def __exit__(self, *unused: Any) -> None:
        self._modules, self._parameters, self._graphs = [], [], []

    def compute(self, part: Part) -> tuple[Any, Tensor | None]:
        """Computes, clips and checks the gradients of a part of a step; returns what training_step() gave, and the loss in it."""
        loop, tensors = self._loop, _tensors_of(part.batch)
        try:
            done = self._step_for(part)(*tensors)
        except RuntimeError as error:
            if "captured" not in str(error):
                raise
            raise RuntimeError(
                f"Trainer(graph=True) captures what is from training_step() of {type(loop.model).__name__} to clipping: {error}. "
                "on_train_batch_start() and on_train_batch_end() run at each step, and without graph=True everything does"
            ) from error
        numbers = iter([] if done.numbers is None else done.numbers.tolist())
        for record in done.records:
            record(next(numbers))
        if not self._clips_itself:
            loop.clip(done.loss is not None, part.is_last)
        if done.loss is not None:
            loop.add_loss(next(numbers), part)
        if part.is_last:
            loop.check_gradients(numbers if self._clips_itself else loop.gradient_sums())
        outputs = mapped(_copied, done.outputs) if loop.hooks.is_defined("on_train_batch_end") else None
        return outputs, done.loss

    # ---- graphs --------------------------------------------------------------------------------------------------------------

    def _step_for(self, part: Part) -> Callable[..., Done]:
        """The graph for this kind of parts; for kinds beyond MAX_GRAPHS the function that one would capture."""
        kind = (mapped(_kind, part.batch), part.share, part.is_first, part.is_last, self._state_of_model())
        for known, graph in self._graphs:
            if known == kind:
                return graph
        step = self._function(part)
        if len(self._graphs) == MAX_GRAPHS:
            self._tell_once()
            return step
        self._graphs.append((kind, Graph(step, self._loop.place.device)))
        return self._graphs[-1][1]

    def _state_of_model(self) -> tuple:
        """What hooks may change within an epoch, and the work depends on."""
        groups = len(self._loop.run.optimizers[0].param_groups)
        return groups, [module.training for module in self._modules], [p.requires_grad for p in self._parameters]

    def _tell_once(self) -> None:
        if not self._has_told:
            self._has_told = True
            warnings.warn(
                f"the batches of an epoch have more than {MAX_GRAPHS} shapes (or numbers and strings), and graph=True captures the first "
                f"{MAX_GRAPHS}: others run as without it. Pad the batches to a few lengths",
                stacklevel=2,
            )

    def _function(self, part: Part) -> Callable[..., Done]:
        """What is captured, as a function of the Tensors of a batch."""
        loop = self._loop
        part = replace(part, batch=mapped(lambda item: _TENSOR if isinstance(item, Tensor) else item, part.batch), index=BatchIndex())

        def compute(*tensors: Tensor) -> Done:
            given = iter(tensors)
            batch = mapped(lambda item: next(given) if item is _TENSOR else item, part.batch)
            with loop.run.logging_later() as logged:
                outputs, loss = loop.backward(replace(part, batch=batch))
                if self._clips_itself:
                    loop.clip(loss is not None, part.is_last)
            checked = [] if loss is None else [loss.detach()]
            checked += loop.gradient_sums() if part.is_last and self._clips_itself else []
            numbers = [value for _, value in logged] + [value.reshape(1).to("float64") for value in checked]
            return Done(outputs, loss, [record for record, _ in logged], cat(numbers) if numbers else None)

        return lambda *tensors: self._watched(compute, tensors) if _core.cuda_is_capturing() else compute(*tensors)

    # ---- what a graph cannot repeat -----------------------------------------------------------------------------------------

    def _watched(self, compute: Callable[..., Done], tensors: tuple[Tensor, ...]) -> Done:
        """Calls it, and raises where Python code changed what a start would leave as it is."""
        attributes, states = self._attributes(), self._states()
        done = compute(*tensors)
        for (name, key), (value, length) in self._attributes().items():
            before = attributes.get((name, key), (None, None))
            if (value is not before[0] and not isinstance(value, Tensor)) or length != before[1]:
                what = f"{name}.{key}" if name else key
                raise RuntimeError(f"{what} of the module was changed while tc.cuda.graph captured; move that out of the function")
        for name, state in self._states().items():
            if state != states[name]:
                raise RuntimeError(f"the generator {name!r} was drawn from while tc.cuda.graph captured; move that out of the function")
        return done

    def _attributes(self) -> dict[tuple[str, str], tuple[Any, int | None]]:
        """The attributes of all modules, and the lengths of collections."""
        return {
            (name, key): (value, len(value) if isinstance(value, (list, dict, set)) else None)
            for name, module in self._loop.model.named_modules()
            for key, value in vars(module).items()
        }

    def _states(self) -> dict[str, bytes]:
        return {name: pickle.dumps(state) for name, state in streams.capture(self._streams).items()}


class BatchIndex:
    """Stands for batch_idx in a captured step, in which it is any batch's: whatever is done with it is an error."""

    def _refuse(self, *unused: Any) -> Any:
        raise RuntimeError("batch_idx was used in the captured function, and each repetition would have the same: move that out")

    __bool__ = __int__ = __float__ = __index__ = __str__ = __format__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __neg__ = __and__ = __rand__ = _refuse


# ---- batches --------------------------------------------------------------------------------------------------------------------------

_TENSOR = object()  # in the place of each


def _kind(item: Any) -> Any:
    """What a graph for a batch with this item depends on."""
    if isinstance(item, Tensor):
        return tuple(item.shape), item.dtype.name
    if item is None or isinstance(item, (bool, int, float, str, bytes)):
        return type(item), item
    raise TypeError(f"graph=True takes batches of arrays, numbers and strings, and this one has a {type(item).__name__}")


def _tensors_of(batch: Any) -> list[Tensor]:
    found: list[Any] = []
    mapped(found.append, batch)
    return [item for item in found if isinstance(item, Tensor)]


def _copied(item: Any) -> Any:
    """A Tensor that the next start does not write to."""
    return item.detach().clone() if isinstance(item, Tensor) else item


__all__ = ["MAX_GRAPHS", "CapturedSteps"]
