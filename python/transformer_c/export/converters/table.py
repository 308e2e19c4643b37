"""The table of converters: functions that write an op as nodes of ONNX.

A converter gets the builder, the arguments of the call by name (a ``Term`` for each Tensor, numbers as they are or as formulas of the lengths), and
the results (their dtypes and shapes). It gives the name of the result, or a list of names, None for a result that was not asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph import Builder

Converter = Callable[[Builder, dict[str, Any], list[Any]], Any]
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Enters a function into the table."""

    def enter(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(names, function))
        return function

    return enter


__all__ = ["CONVERTERS", "Converter", "converter"]
