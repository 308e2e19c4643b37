"""Calls in eval mode that leave no trace in a module."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from . import _core


def evaluating(module: Any) -> AbstractContextManager[None]:
    """Puts a module and all below it into eval mode, and restores the mode of each afterwards; with several threads the last one does."""
    return _core.replaced([(vars(part), "training", False) for part in module.modules()])
