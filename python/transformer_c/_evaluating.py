"""Calls in eval mode that leave no trace in a module."""

from __future__ import annotations

from typing import Any


class evaluating:
    """Puts a module and all below it into eval mode, and restores the mode of each afterwards."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __enter__(self) -> None:
        self._modes = [(part, part.training) for part in self._module.modules()]
        self._module.eval()

    def __exit__(self, *unused: Any) -> None:
        for part, training in self._modes:
            part.training = training
