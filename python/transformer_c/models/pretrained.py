"""Weights to begin a fine-tuning with, as often as wanted, and the labels of their head."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import nn
from .config import Config
from .folder import find, naming, read_config, read_weights
from .heads import WithHead, other_task
from .loading import assemble, check, kind_of, state_of
from .names import plain, source
from .problems import PROBLEMS, REGRESSION, SINGLE, Head, Problem

_OF_TOKENS = "token-classification"  # the task that knows classes alone


class Pretrained:
    """A folder or a module of ``tc.models``, and a task.

    Attributes
    ----------
    path : str or None
        The folder.
    config : dict
        The contents of config.json.
    head : Head or None
        None where the weights have no head for this task, or one for another problem than the one asked for.
    """

    def __init__(self, model: Any, task: str, mmap: bool = True, problem: Problem | None = None) -> None:
        self._module: Any = model if isinstance(model, nn.Module) else None
        if self._module is not None:
            kind_of(model.encoder if isinstance(model, WithHead) else model)
        self._task, self._mmap = task, mmap
        self.path = None if self._module is not None else find(model)
        self._place = None if self.path is None else os.path.abspath(self.path)  # wherever the process goes
        self.config: dict[str, Any] = dict(model.config) if self.path is None else read_config(self.path)
        if self.path is None:
            self.config["architectures"] = None  # of the folder that the module was read from, perhaps with another head
        with naming(self.path):
            self._kind = check(self.config, task)[1]
            self._layers = self._kind.table.heads[task]  # of the head
            self._read = None if self.path is None else read_weights(self.path, mmap)  # for the first start
            self.head = self._own(problem) if self._has_head() else None

    def start(self, head: Head | None, dtype: Any) -> Any:
        """A model with the pretrained weights and a head: the pretrained one where `head` is that, otherwise a new one.

        What is frozen in a module is frozen in it, but a new last layer.
        """
        config, state = dict(self.config), self._state()
        if head is not None:
            config["problem_type"] = None if self._task == _OF_TOKENS else head.problem.name
        if head is not None and head is not self.head:
            names = [str(name) for name in head.classes.tolist()]
            config["id2label"] = {str(i): name for i, name in enumerate(names)}
            config["label2id"] = {name: i for i, name in enumerate(names)}
            config["labels_are_integers"] = head.classes.dtype.kind in "iu"
            config.pop("num_labels", None)
        is_new = self.head is None or head is not self.head
        if is_new:
            files = plain(state, self._kind, config)
            dropped = {files.get(f"{self._layers['out']}.{leaf}") for leaf in ("weight", "bias")}
            state = {key: value for key, value in state.items() if key not in dropped}
        with naming(self.path):
            made = assemble(config, state, self._task, dtype, owned=True)[0]
        if self._module is not None:
            frozen = {name for key, p in self._module.named_parameters() if not p.requires_grad for name in source(key, self._module)}
            for key, parameter in made.named_parameters():
                if frozen.issuperset(source(key, made)) and not (is_new and key.startswith("out.")):
                    parameter.requires_grad_(False)
        return made

    def _state(self) -> dict[str, Any]:
        """The weights, which the taker may change: those that were read to see the head, or read again."""
        read, self._read = self._read, None
        if self._place is not None:
            return read_weights(find(self._place), self._mmap) if read is None else read
        return {name: value.detach().clone() for name, value in state_of(self._module).items()}

    def _has_head(self) -> bool:
        """Whether the weights have a head for this task, and not for another one whose arrays have the same names."""
        names: Iterable[str] = state_of(self._module) if self._read is None else self._read
        other = other_task(self.config, self._task) is not None
        if self._module is not None:
            other = getattr(self._module, "task", None) != self._task
        files = plain(names, self._kind, self.config)
        return not other and all(f"{name}.weight" in files for name in self._layers.values())

    def _own(self, wanted: Problem | None) -> Head | None:
        """The head of the weights. config.json says what it answers, or `wanted` where config.json does not."""
        config = Config(self.config)
        classes = self._labels(config)
        if self._task == _OF_TOKENS:
            config.only("problem_type", None, SINGLE.name)
            return Head(SINGLE, classes)
        said, is_number = config.problem(), len(classes) == 1  # as in transformers: one output is no class
        if is_number and said == SINGLE.name and wanted is None:
            raise config.refuse("problem_type", f"null or {REGRESSION.name!r} with one label, as in transformers")
        problem = PROBLEMS[said] if said else wanted or (REGRESSION if is_number else SINGLE)
        return Head(problem, classes) if wanted in (None, problem) and not (is_number and problem is SINGLE) else None

    def _labels(self, config: Config) -> np.ndarray:
        names = config.labels()
        if self.config.get("labels_are_integers") is not True:
            return np.array(names)
        try:
            return np.array([int(name) for name in names])
        except ValueError:
            raise config.refuse("labels_are_integers", f"names that are integers, not {names!r:.100}") from None
