"""Attaches a model to its trainer while it is in use."""

from __future__ import annotations

from typing import Any

from . import checks
from .loaders import Place


class Attached:
    """While in use, the model knows its trainer and is on the requested device; afterwards it is in eval mode."""

    def __init__(self, trainer: Any, model: Any) -> None:
        checks.trainable(model)
        self._trainer, self._model = trainer, model

    def __enter__(self) -> Place:
        trainer, model = self._trainer, self._model
        if trainer.device is not None:
            model.to(device=trainer.device)
        self._before = model.trainer
        model.trainer = trainer
        return Place.of(model)

    def __exit__(self, *unused) -> None:
        self._model.trainer = self._before
        self._model.eval()
