"""One pass over data for validation, tests or predictions."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from .._core import Tensor
from .._evaluating import evaluating
from .._joining import cat
from .._recording import no_grad
from . import loaders, steps
from .hooks import Hooks
from .interrupts import Interrupts
from .progress import Bar

LABELS = {"validation": "validating", "test": "testing", "predict": "predicting"}


class EvaluationLoop:
    """Runs ``validation_step``, ``test_step`` or ``predict_step`` over loaders.

    Parameters
    ----------
    options : Trainer
        Its run records the values that the steps log.
    model : TrainingModule
    hooks : Hooks
    kind : {"validation", "test", "predict"}
    place : DeviceAndDtype
        The device and dtype of the batches.
    interrupts : Interrupts
    """

    def __init__(self, options: Any, model: Any, hooks: Hooks, kind: str, place: loaders.DeviceAndDtype, interrupts: Interrupts) -> None:
        self._run, self._model, self._kind, self._progress, self._ranks = options.run, model, kind, options.progress, options.ranks
        self._limit = getattr(options, f"limit_{kind[:3] if kind == 'validation' else kind}_batches")
        self._place, self._interrupts = place, interrupts
        self._step = steps.in_precision(getattr(model, f"{kind}_step"), options.autocast_dtype)
        parts = ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")
        self._on = {part: getattr(hooks, f"on_{kind}_{part}") for part in parts}

    def values(self, given: list[Any]) -> tuple[list[dict[str, float]], dict[str, float]]:
        """The means of the logged values, for each loader and together; values logged at the end of the pass count for the last loader."""
        results: list[dict[str, float]] = []
        with evaluating(self._model), no_grad():
            self._begin()
            for number, loader in enumerate(self._ranks.share(loader) for loader in given):
                with self._run.averaging() as averages:
                    self._walk(loader, number, len(given) > 1)
                results.append(self._ranks.of_root(self._ranks.total(averages).means()))
                averages.reset_metrics()
            together = self._merged(results)
            self._run.show(together)
            with self._run.averaging() as averages:
                self._on["epoch_end"]()
            at_end = self._ranks.of_root(self._ranks.total(averages).means())
            results[-1].update(at_end)
            self._run.show(at_end)
            self._on["end"]()
        return results, {**together, **at_end}

    def _merged(self, results: list[dict[str, float]]) -> dict[str, float]:
        """The values of all loaders by name; with more than one loader, its number follows the name, as in Lightning."""
        if len(results) == 1:
            return dict(results[0])
        found: dict[str, float] = {}
        for number, values in enumerate(results):
            for name, value in values.items():
                key = name if name in self._run.unnumbered else f"{name}/dataloader_idx_{number}"
                if key in found:
                    raise ValueError(
                        f"log({name!r}, add_dataloader_idx=False) has values of several loaders: give them different names, or leave it out"
                    )
                found[key] = value
                if key != name:
                    self._run.metrics.pop(name, None)  # the value of the last batch alone
        return found

    def outputs(self, given: list[Any]) -> list[list[Any]]:
        """What the steps return, a list for each loader."""
        with evaluating(self._model), no_grad():
            self._begin()
            results = [self._walk(loader, number, len(given) > 1, keep=True) for number, loader in enumerate(given)]
            self._on["epoch_end"]()
            self._on["end"]()
        return results

    def _begin(self) -> None:
        self._run.begin_batch(self._kind, None)
        self._on["start"]()
        self._on["epoch_start"]()

    def _walk(self, loader: Any, number: int, is_numbered: bool, keep: bool = False) -> list[Any]:
        """All batches of a loader; returns what the steps return, or nothing."""
        run, given, found = self._run, 3 if is_numbered else 2, []
        count = steps.accepted(self._step, given)
        before, after = self._on["batch_start"], self._on["batch_end"]
        total = loaders.number_of_batches(loader, self._limit)
        with Bar(self._progress, LABELS[self._kind], total, leave=False) as bar, closing(loaders.batches(loader, total)) as iterator:
            for index, batch in enumerate(iterator):
                run.begin_batch(self._kind, batch)
                batch = self._place.bring(batch)
                arguments = (batch, index, number)
                before(*arguments[:given])
                with run.reading_together(self._place.device):
                    result = self._step(*arguments[:count])
                after(result, *arguments[:given])
                if keep:
                    found.append(result)
                bar.advance()
                if self._ranks.size == 1:  # several ranks stop together, after the pass
                    self._interrupts.check()
        run.begin_batch(self._kind, None)
        return found


def joined(parts: list[Any]) -> Any:
    """The predictions of all batches as ndarrays, concatenated along the first axis, element by element through tuples, lists and dicts."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: joined([part[key] for part in parts]) for key in first}
    if isinstance(first, (list, tuple)):
        return tuple(joined(list(column)) for column in zip(*parts, strict=True))
    if isinstance(first, Tensor):
        return np.asarray(cat([part.detach() for part in parts], 0).cpu())
    return np.concatenate([np.atleast_1d(part) for part in parts])
