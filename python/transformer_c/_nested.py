"""Values nested in tuples, named tuples, lists and dicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any


def map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies `function` to the leaves of nested tuples, named tuples, lists and dicts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_nested(function, v) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_nested(function, v) for v in value)
    if isinstance(value, dict):
        items = {k: map_nested(function, v) for k, v in value.items()}
        return type(value)(value.default_factory, items) if isinstance(value, defaultdict) else type(value)(items.items())
    return function(value)


def holds(kind: type, value: Any) -> bool:
    """Whether there is an instance of `kind` among the leaves of `value`."""
    if isinstance(value, kind):
        return True
    if isinstance(value, (tuple, list)):
        return any(holds(kind, v) for v in value)
    return isinstance(value, dict) and any(holds(kind, v) for v in value.values())
