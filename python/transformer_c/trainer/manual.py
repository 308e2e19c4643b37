"""Manual optimization: a module that computes gradients and steps its optimizers itself, in ``training_step``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from .. import _core
from .hooks import Hooks
from .run import Run
from .steps import infinite_gradient


class ManualOptimization:
    """What ``manual_backward`` and the steps of the optimizers do in a run with ``automatic_optimization = False``.

    Parameters
    ----------
    run : Run
    model : TrainingModule
    optimizers : sequence of Optimizer
    hooks : Hooks
    """

    def __init__(self, run: Run, model: Any, optimizers: Sequence[Any], hooks: Hooks) -> None:
        self._run, self._model, self._optimizers, self._hooks = run, model, optimizers, hooks

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients of a loss, with the hooks around it."""
        if not math.isfinite(float(loss)):
            run = self._run
            raise FloatingPointError(
                f"the loss is {float(loss)} in epoch {run.epoch + 1}, batch {run.batch + 1}, after {run.step} steps; no gradient is computed of it"
            )
        self._hooks.on_before_backward(loss)
        self._model.backward(loss, *args, **kwargs)
        self._hooks.on_after_backward()

    def counted(self) -> AbstractContextManager:
        """For a ``with`` block, in which every step of the optimizers calls ``on_before_optimizer_step`` and counts."""

        def exchange(steps: Sequence[Callable | None]) -> list[Callable | None]:
            before = [vars(optimizer).pop("step", None) for optimizer in self._optimizers]
            for optimizer, step in zip(self._optimizers, steps, strict=True):
                if step is not None:
                    optimizer.step = step
            return before

        return _core.switched(exchange, lambda: [partial(self._step, optimizer, optimizer.step) for optimizer in self._optimizers])

    def _step(self, optimizer: Any, step: Callable, closure: Callable[[], Any] | None = None) -> Any:
        def computed() -> Any:
            loss = closure() if closure is not None else None
            self._hooks.on_before_optimizer_step(optimizer)
            self._check_gradients(optimizer)
            return loss

        result = step(computed)
        self._run.step += 1
        return result

    def _check_gradients(self, optimizer: Any) -> None:
        """Raises before a step that would make weights NaN or infinite."""
        name, run = infinite_gradient(self._model, optimizer, optimizer.flat_gradients()), self._run
        if name is not None:
            raise FloatingPointError(
                f"the gradient of {name} is not finite in epoch {run.epoch + 1}, batch {run.batch + 1}, after {run.step} steps; the weights are "
                "those of the last one. Look for a root, logarithm or quotient at 0 in training_step()"
            )
