"""One pass over validation or test data."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from .._tensor import no_grad
from . import loaders, steps
from .interrupts import Interrupts
from .progress import Bar
from .run import Run


class modes_kept:
    """Puts every module into eval mode, and restores each module's own mode afterwards."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()

    def __exit__(self, *unused) -> None:
        for module, training in self._modes:
            module.training = training


def evaluate(
    run: Run,
    model: Any,
    kind: str,
    given: list[Any],
    limit: int | float | None,
    place: loaders.Place,
    progress: bool,
    interrupts: Interrupts,
) -> list[dict[str, float]]:
    """Runs ``validation_step`` or ``test_step`` over each loader; returns a dict of means per loader.

    Parameters
    ----------
    run : Run
        Records the values that the steps log.
    model : TrainingModule
    kind : {"validation", "test"}
    given : list of loaders
    limit : int, float or None
        Number or fraction of the batches of each loader.
    place : Place
        The device and dtype of the batches.
    progress : bool
        Whether to show a bar.
    interrupts : Interrupts
    """
    step = getattr(model, f"{kind}_step")
    count = steps.accepted(step, 3 if len(given) > 1 else 2)
    results = []
    with modes_kept(model), no_grad():
        for number, loader in enumerate(given):
            total = loaders.number_of_batches(loader, limit)
            label = {"validation": "validating", "test": "testing"}[kind]
            with run.averaging() as averages:
                with Bar(progress, label, total, leave=False) as bar, closing(loaders.batches(loader, total)) as iterator:
                    for index, batch in enumerate(iterator):
                        run.begin_batch(kind, batch)
                        step(*(place.bring(batch), index, number)[:count])
                        bar.advance()
                        interrupts.check()
                run.begin_batch(kind, None)
                getattr(model, f"on_{kind}_epoch_end")()
            results.append(averages.means())
    return results


def merged(results: list[dict[str, float]]) -> dict[str, float]:
    """The values of all loaders by name; with more than one loader, its number follows the name, as in Lightning."""
    if len(results) == 1:
        return dict(results[0])
    return {f"{name}/dataloader_idx_{i}": value for i, values in enumerate(results) for name, value in values.items()}
