"""Which axes of the example may have other lengths: those at which the module makes the same calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from .running import Axis, Runner
from .tracing import Ref, Trace

Dimension = tuple[str, list[Axis]]  # axes that change together, and the name of their length
_MOST_TOGETHER = 6  # axes of equal length that are tried together
_FAR = 23  # longer by this, axes that could change without another one are tried together with it


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


def _works(runner: Runner, first: Trace, axes: Iterable[Axis], more: int = 1) -> bool:
    """Whether the module does the same when these axes are longer by one, or by `more`."""
    lengths = {(name, axis): runner.arrays[name].shape[axis] + more for name, axis in axes}
    try:
        found = runner.run(lengths)
    except Exception:
        return False
    return difference(first, found) is None


def find_dimensions(runner: Runner, first: Trace) -> list[list[Axis]]:
    """Sets of axes that can change together; an axis that cannot change is in none.

    The smallest sets are looked for. An axis that changes in none of those joins axes at its place in other inputs, which could change without it:
    as the batch of an index, which may not be longer than that of what it indexes. An axis of length 1 would broadcast against all others: axes of
    length 1 at the same place of several inputs are one set where that works.
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
        elif (joined := _joined(runner, first, one, found, others)) is not None:
            parts, group = joined
            found[found.index(parts[0])] = [axis for part in parts for axis in part] + [one, *group]
            found = [part for part in found if part not in parts]
            taken.update((one, *group))
    return found


def _joined(
    runner: Runner, first: Trace, one: Axis, found: list[list[Axis]], others: list[Axis]
) -> tuple[list[list[Axis]], tuple[Axis, ...]] | None:
    """The fewest of the sets that were found, and of the other axes of this length, with which an axis at the same place can change."""
    length = runner.arrays[one[0]].shape[one[1]]
    sets = [s for s in found if any(a == one[1] and runner.arrays[n].shape[a] == length for n, a in s)][:_MOST_TOGETHER]
    free = [a for a in others if a[1] == one[1]][:_MOST_TOGETHER]
    for some, rest in _selections(sets, free):
        axes = [one, *rest, *(a for s in some for a in s)]
        if _works(runner, first, axes) and _works(runner, first, axes, _FAR):
            return list(some), rest
    return None


def _selections(sets: list[list[Axis]], free: list[Axis]) -> Iterator[tuple[tuple[list[Axis], ...], tuple[Axis, ...]]]:
    """Some of the sets, at least one, and some of the free axes: the fewest together first, and of as many those with most sets."""
    for count in range(1, len(sets) + len(free) + 1):
        for r in range(min(count, len(sets)), 0, -1):
            yield from itertools.product(itertools.combinations(sets, r), itertools.combinations(free, count - r))


__all__ = ["Dimension", "difference", "find_dimensions"]
