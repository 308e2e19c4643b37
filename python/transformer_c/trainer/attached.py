"""Attaches a model to its trainer while it is in use, and prepares its data."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from .. import _core
from ..metrics import Metric
from . import checks, steps
from .hooks import Hooks
from .loaders import DeviceAndDtype
from .view import Stage


def _data_module(data: Any, model: Any) -> Any:
    """`data`, if it is an object with loaders other than the model; else None."""
    has_loaders = any(hasattr(data, f"{kind}_dataloader") for kind in ("train", "val", "test", "predict"))
    return data if data is not model and has_loaders else None


class Attached:
    """While ``in_use()``, the model knows its trainer and is on the requested device; afterwards it is in eval mode.

    Parameters
    ----------
    trainer : Trainer
        Its `stage` says what it does.
    model : TrainingModule
    kind : {"train", "validation", "test", "predict"}
    data : object
        What the loaders come from.
    """

    def __init__(self, trainer: Any, model: Any, kind: str, data: Any) -> None:
        checks.trainable(model)
        self._trainer, self._model = trainer, model
        self._stage = Stage(kind, model, _data_module(data, model), is_running=True)

    def in_use(self) -> AbstractContextManager[DeviceAndDtype]:
        """For a ``with`` block; an interrupt does not leave the model attached."""
        return _core.switched(self._attach, self._prepared, self._detach)

    def _prepared(self) -> DeviceAndDtype:
        trainer, model = self._trainer, self._model
        if trainer.device is not None:
            model.to(device=trainer.device)
        for value in vars(model).values():
            if isinstance(value, Metric):
                value.reset()  # an earlier pass may have been interrupted
        self._before, self._outer = model.trainer, trainer.stage
        return DeviceAndDtype.of(model)

    def _attach(self, place: DeviceAndDtype | None) -> None:
        if place is not None:
            self._model.trainer, self._trainer.stage = self._trainer, self._stage

    def _detach(self, place: DeviceAndDtype) -> None:
        """Called again where an interrupt came before the end."""
        self._stage.is_running = False
        if self._outer.is_running:  # a hook had called the trainer
            self._trainer.stage = self._outer
        self._model.trainer = self._before
        self._model.eval()


class StageHooks:
    """Calls ``prepare_data``, ``setup`` and, at the end, ``teardown`` of the data, the callbacks and the model.

    Parameters
    ----------
    name : {"fit", "validate", "test", "predict"}
    hooks : Hooks
    model : TrainingModule
    data : object or None
        The data module; it need not have these methods.
    """

    def __init__(self, name: str, hooks: Hooks, model: Any, data: Any) -> None:
        self._name, self._hooks, self._model, self._data = name, hooks, model, data

    def __enter__(self) -> None:
        self._call_data("prepare_data")
        self._model.prepare_data()
        self._call_data("setup", self._name)
        self._hooks.setup(self._name)

    def __exit__(self, *unused) -> None:
        self._call_data("teardown", self._name)
        self._hooks.teardown(self._name)

    def _call_data(self, name: str, *arguments: str) -> None:
        method = getattr(self._data, name, None)
        if callable(method):
            method(*arguments[: steps.accepted(method, len(arguments))])
