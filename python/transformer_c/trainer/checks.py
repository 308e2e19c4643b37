"""Checks of options and models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..training import TrainingModule
from . import names


def limit(name: str, limit: int | float | None) -> int | float | None:
    """Checks a number of batches, or a fraction of them from 0.0 to 1.0."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, (int, float, np.integer)):
        raise TypeError(f"{name} is of type {type(limit).__name__}; expected a number of batches, or a share of them from 0.0 to 1.0")
    if not limit >= 0 or (isinstance(limit, float) and limit > 1.0):
        raise ValueError(f"{name} must be a number of batches, or a share of them from 0.0 to 1.0, got {limit}")
    return limit


def trainable(model: Any) -> None:
    """Raises unless the model is an initialised TrainingModule."""
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}; pass an instance: {model.__name__}(...)")
    if not isinstance(model, TrainingModule):
        raise TypeError(
            f"model is of type {type(model).__name__}; expected a tc.TrainingModule, which has training_step() and configure_optimizers()"
        )
    if "hparams" not in vars(model):
        raise RuntimeError(f"{type(model).__name__}.__init__() must call super().__init__() first")


def uncalled_hooks(model: TrainingModule) -> str:
    """A message on hooks of the model's class that Lightning calls and a Trainer does not; empty if there are none."""
    kind = type(model)
    found = [f"{name}() (here: {where})" for name, where in names.HOOKS.items() if callable(getattr(kind, name, None))]
    return f"a Trainer never calls {', '.join(found)} of {kind.__name__}" if found else ""
