"""Which axes of the example may have other lengths: those at which the module makes the same calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from .running import Axis, Runner
from .tracing import Ref, Trace

Dimension = tuple[str, list[Axis]]  # axes that change together, and the name of their length
_MOST_TOGETHER = 6  # axes of equal length that are tried together


def difference(a: Trace, b: Trace) -> str | None:
    """Where two traces part; None where they do the same, up to numbers."""
    for x, y in zip(a.calls, b.calls, strict=False):
        if x.op != y.op or _kinds(x.args) != _kinds(y.args) or x.results != y.results:
            return f"{x.op}, elsewhere {y.op}" if x.op != y.op else f"other arguments of {x.op}"
    if len(a.calls) != len(b.calls):
        longer = max(a.calls, b.calls, key=len)
        return f"one more {longer[min(len(a.calls), len(b.calls))].op}"
    if len(a.values) != len(b.values) or _kinds(a.output) != _kinds(b.output):
        return "another result"
    for v, w in zip(a.values, b.values, strict=True):
        if v.source != w.source or len(v.shape) != len(w.shape) or v.dtype != w.dtype or v.name != w.name:
            return f"a Tensor of shape {w.shape} and dtype {w.dtype} in place of one of shape {v.shape} and dtype {v.dtype}"
    return None


def _kinds(value: Any) -> Any:
    """What must be equal in all traces: everything but numbers."""
    if isinstance(value, Ref):
        return value
    if isinstance(value, dict):
        return {k: _kinds(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kinds(v) for v in value]
    return type(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _works(runner: Runner, first: Trace, axes: Iterable[Axis]) -> bool:
    """Whether the module does the same when these axes are longer by one."""
    lengths = {(name, axis): runner.arrays[name].shape[axis] + 1 for name, axis in axes}
    try:
        found = runner.run(lengths)
    except Exception:
        return False
    return difference(first, found) is None


def find_dimensions(runner: Runner, first: Trace) -> list[list[Axis]]:
    """Sets of axes that can change together; an axis that cannot change is in none.

    The smallest sets are looked for. An axis of length 1 would broadcast against all others: axes of length 1 at the same place of several
    inputs are one set where that works.
    """
    shapes = {name: array.shape for name, array in runner.arrays.items()}
    axes = [(name, axis) for name, shape in shapes.items() for axis in range(len(shape)) if shape[axis]]
    found: list[list[Axis]] = []
    taken: set[Axis] = set()
    for name, axis in sorted(axes, key=lambda a: (a[1], list(shapes).index(a[0]))):
        one = (name, axis)
        if one in taken:
            continue
        length = shapes[name][axis]
        others = [a for a in axes if a != one and a not in taken and shapes[a[0]][a[1]] == length]
        sets: list[tuple[Axis, ...]] = []
        if length == 1:
            same = tuple(a for a in others if a[1] == axis)
            sets += [c for r in range(len(same), 0, -1) for c in itertools.combinations(same[:_MOST_TOGETHER], r)]
        sets += [c for r in range(min(len(others), _MOST_TOGETHER) + 1) for c in itertools.combinations(others[:_MOST_TOGETHER], r)]
        group = next((c for c in sets if _works(runner, first, (one, *c))), None)
        if group is not None:
            found.append([one, *group])
            taken.update(found[-1])
    return found


__all__ = ["Dimension", "difference", "find_dimensions"]
