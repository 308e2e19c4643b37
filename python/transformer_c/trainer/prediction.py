"""One pass over data to predict on."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from .._core import Tensor
from .._tensor import cat, no_grad
from . import loaders, steps
from .evaluation import modes_kept
from .interrupts import Interrupts
from .progress import Bar
from .run import Run


def predict(
    run: Run, model: Any, given: list[Any], limit: int | float | None, place: loaders.Place, progress: bool, interrupts: Interrupts
) -> list[list[Any]]:
    """Runs ``predict_step`` over each loader; returns a list of its results per loader. Parameters as for ``evaluate``."""
    count = steps.accepted(model.predict_step, 3 if len(given) > 1 else 2)
    results = []
    with modes_kept(model), no_grad():
        for number, loader in enumerate(given):
            total, found = loaders.number_of_batches(loader, limit), []
            with Bar(progress, "predicting", total, leave=False) as bar, closing(loaders.batches(loader, total)) as iterator:
                for index, batch in enumerate(iterator):
                    run.begin_batch("predict", batch)
                    found.append(model.predict_step(*(place.bring(batch), index, number)[:count]))
                    bar.advance()
                    interrupts.check()
            results.append(found)
    return results


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
