"""Weights to begin a fine-tuning with, as often as wanted, and the labels of their head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import nn
from ..checkpoint import CheckpointError
from .config import Config
from .folder import find, loading, read_config, read_weights
from .heads import other_task
from .layers import TextEncoder
from .loading import assemble, check, state_of
from .names import plain


class Pretrained:
    """A folder or a module of ``tc.models``, and a task.

    Attributes
    ----------
    path : str or None
        The folder.
    config : dict
        The contents of config.json.
    classes : ndarray or None
        The labels of the head, in order, str or int; None where the weights have no head for this task.
    """

    def __init__(self, model: Any, task: str, mmap: bool = True) -> None:
        self._module: Any = model if isinstance(model, nn.Module) else None
        self._task, self._mmap = task, mmap
        self.path = None if self._module is not None else find(model)
        self.config: dict[str, Any] = dict(model.config) if self.path is None else read_config(self.path)
        if self.path is None:
            self.config.update(architectures=None, **named(getattr(model, "labels", None)))
        with loading(self.path):
            self._kind = check(self.config, task)[1]
            if not issubclass(self._kind, TextEncoder):
                raise CheckpointError(f"a model of {self.config['model_type']} reads no texts")
            self._layers = self._kind.table.heads[task]  # of the head
            self.classes = self._labels() if self._has_head() else None

    def start(self, classes: np.ndarray | None, dtype: Any) -> Any:
        """A model with the pretrained weights and a head: the pretrained one where `classes` are its labels, otherwise a new one."""
        config, state = dict(self.config), self._state()
        if classes is not None and classes is not self.classes:
            config.update(named([str(name) for name in classes.tolist()]), labels_are_integers=classes.dtype.kind in "iu")
            config = {key: value for key, value in config.items() if key not in ("num_labels", "problem_type")}
        if self.classes is None or classes is not self.classes:
            files = plain(state, self._kind)
            dropped = {files.get(f"{self._layers['out']}.{leaf}") for leaf in ("weight", "bias")}
            state = {key: value for key, value in state.items() if key not in dropped}
        with loading(self.path):
            return assemble(config, state, self._task, dtype, owned=True)[0]

    def _state(self) -> dict[str, Any]:
        """The weights, which the taker may change."""
        if self.path is not None:
            return read_weights(self.path, self._mmap)
        return {name: value.detach().clone() for name, value in state_of(self._module).items()}

    def _has_head(self) -> bool:
        """Whether the weights have a head for this task, and not for another one whose arrays have the same names."""
        names: Iterable[str] = state_of(self._module) if self.path is None else read_weights(self.path)  # no copies, only for the names
        other = other_task(self.config, self._task) is not None
        if self._module is not None:
            other = getattr(self._module, "task", None) != self._task
        files = plain(names, self._kind)
        return not other and all(f"{name}.weight" in files for name in self._layers.values())

    def _labels(self) -> np.ndarray:
        config = Config(self.config)
        config.only("problem_type", None, "single_label_classification")
        names = config.labels()
        if self.config.get("labels_are_integers") is not True:
            return np.array(names)
        try:
            return np.array([int(name) for name in names])
        except ValueError:
            raise config.refuse("labels_are_integers", f"names that are integers, not {names!r:.100}") from None


def named(labels: list[str] | None) -> dict[str, Any]:
    """The names of the classes, as in config.json."""
    if labels is None:
        return {}
    return {"id2label": {str(i): name for i, name in enumerate(labels)}, "label2id": {name: i for i, name in enumerate(labels)}}
