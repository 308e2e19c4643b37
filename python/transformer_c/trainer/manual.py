"""Manual optimization: a module that computes gradients and steps its optimizers itself, in ``training_step``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from .._recording import no_grad
from ..optim.optimizer import parameters_of
from .hooks import Hooks
from .run import Run
from .steps import infinite_gradient, stepping


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
        self.share = 1.0  # of this rank's batch in that of all ranks

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients of a loss, with the hooks around it; with several ranks those of all, each with its share of the batch."""
        run, several = self._run, self._run.ranks.size > 1
        for value in run.ranks.exchange("manual_backward()", *run.read([loss])):
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"the loss is {value} in epoch {run.epoch + 1}, batch {run.batch + 1}, after {run.step} steps; no gradient is computed of it"
                )
        scaled = loss * self.share if several else loss
        self._hooks.on_before_backward(scaled)
        (self._add_up if several else self._model.backward)(scaled, *args, **kwargs)
        self._hooks.on_after_backward()

    def _add_up(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Adds the gradients of all ranks to those of earlier calls, which all ranks have: the batch is a share of theirs."""
        parameters = list({id(p): p for optimizer in self._optimizers for p in parameters_of(optimizer) if p.requires_grad}.values())
        earlier = [None if p.grad is None else p.grad.clone() for p in parameters]
        for p in parameters:
            p.grad = None
        try:
            self._model.backward(loss, *args, **kwargs)
            self._run.ranks.add_up(parameters)
        except BaseException:
            for p, gradient in zip(parameters, earlier, strict=True):
                p.grad = gradient
            raise
        with no_grad():
            for p, gradient in zip(parameters, earlier, strict=True):
                if gradient is not None:
                    p.grad = gradient if p.grad is None else gradient.add_(p.grad)

    def counted(self) -> AbstractContextManager:
        """For a ``with`` block, in which every step of the optimizers calls ``on_before_optimizer_step`` and counts."""
        return stepping(self._optimizers, lambda: [partial(self._step, optimizer, optimizer.step) for optimizer in self._optimizers])

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
        """Raises before a step that would make weights NaN or infinite, or other ones on each rank."""
        run = self._run
        sums = run.read([buffer.sum() for buffer in optimizer.flat_gradients()])
        if run.ranks.size > 1:
            number = next(i for i, other in enumerate(self._optimizers) if other is optimizer)
            first, *others = run.ranks.exchange(f"step() of optimizer {number}", list(map(repr, sums)))
            if any(other != first for other in others):
                raise RuntimeError(
                    f"the gradients of optimizer {number} are not the same on all ranks, in epoch {run.epoch + 1}, batch {run.batch + 1}: "
                    "compute them by self.manual_backward(loss), which adds up those of all ranks"
                )
        name = infinite_gradient(self._model, optimizer, sums)
        if name is not None:
            raise FloatingPointError(
                f"the gradient of {name} is not finite in epoch {run.epoch + 1}, batch {run.batch + 1}, after {run.step} steps; the weights are "
                "those of the last one. Look for a root, logarithm or quotient at 0 in training_step()"
            )
