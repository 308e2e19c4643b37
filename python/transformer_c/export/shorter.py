"""Whether a graph that was found at the example's lengths and longer ones is what the module does at shorter ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .constants import Constant, array_of
from .dimensions import difference
from .running import Axis, Runner
from .sizes import FUNCTIONS, Real, Size
from .tracing import Ref, Trace, refs_in


def differs(runner: Runner, first: Trace, graph: Any, start: Sequence[int]) -> tuple[str, dict[Axis, int]] | None:
    """(what the module does otherwise at shorter lengths, these lengths); None if nothing. Lengths that it refuses are left out."""
    for lengths in _points(start):
        given = {axis: n for (_, axes), n in zip(graph.dimensions, lengths, strict=True) for axis in axes}
        try:
            with np.errstate(all="ignore"):
                trace = runner.run(given)
        except Exception:
            continue
        where = difference(first, trace)
        found = f"calls other ops: {where}" if where is not None else _other_numbers(first, trace, graph, lengths)
        if found is not None:
            return found, given
    return None


def _points(start: Sequence[int]) -> list[tuple[int, ...]]:
    """1, 2 and the half along each axis, then all together."""
    shorter = [sorted({k for k in (1, 2, n // 2) if 0 < k < n}) for n in start]
    points = [tuple(k if j == i else n for j, n in enumerate(start)) for i, some in enumerate(shorter) for k in some]
    points += [tuple(min(n, max(1, n // 2)) for n in start), tuple(min(n, 1) for n in start)]
    return [p for p in dict.fromkeys(points) if p != tuple(start)]


def _other_numbers(first: Trace, trace: Trace, graph: Any, lengths: Sequence[int]) -> str | None:
    calls = {tuple(call.results): call for call in trace.calls}
    for call in graph.calls:
        given = calls[tuple(call.results)].args
        for name, value in call.args.items():
            if not _agree(value, given[name], lengths):
                return f"has other numbers for {call.op}({name}=) than longer inputs say"
    for place in dict.fromkeys(_places(graph)):
        maker = next((call.op for call in graph.calls if Ref(place) in call.results), "a constant")
        if tuple(_number(size, lengths) for size in graph.shapes[place]) != tuple(trace.values[place].shape):
            return f"has another shape for the result of {maker} than longer inputs say"
        if place in graph.constants and not _is_constant(first, trace, graph.constants[place], place, lengths):
            return "has other numbers in an array that depends on lengths alone than longer inputs say"
    return None


def _places(graph: Any) -> Iterator[int]:
    for call in graph.calls:
        yield from (ref.place for ref in refs_in(call.args))
        yield from (ref.place for ref in call.results if ref is not None)
    yield from (ref.place for ref in refs_in(graph.output))


def _number(value: Any, lengths: Sequence[int]) -> Any:
    """A number, or what a formula gives at these lengths."""
    if isinstance(value, Size):
        return value(lengths)
    try:
        return FUNCTIONS[value.function][0](value.size(lengths)) if isinstance(value, Real) else value
    except (ArithmeticError, ValueError):  # such as 1 / 0
        return float("nan")


def _agree(value: Any, given: Any, lengths: Sequence[int]) -> bool:
    if isinstance(value, Ref) or isinstance(given, (bool, str)) or given is None or given is ...:
        return True  # ``difference`` has compared them
    if isinstance(value, Mapping):
        return all(_agree(v, given[k], lengths) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(_agree(v, g, lengths) for v, g in zip(value, given, strict=True))
    found = _number(value, lengths)
    return bool(np.isclose(found, given, rtol=1e-6, atol=0, equal_nan=True)) if isinstance(given, float) else found == given


def _is_constant(first: Trace, trace: Trace, known: np.ndarray | Constant, place: int, lengths: Sequence[int]) -> bool:
    a, b = first.values[place].tensor, trace.values[place].tensor
    if b is None or (a is not None and (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())):
        return b is not None
    array = array_of(trace.values[place])
    expected = known if isinstance(known, np.ndarray) else _made(known, lengths)
    if expected.shape != array.shape:
        return False
    x, y = (np.asarray(v).astype(np.float64) if v.dtype.kind in "fV" else v for v in (array, expected))
    return bool(np.allclose(x, y, rtol=1e-6, atol=1e-6 * np.abs(y[np.isfinite(y)]).max(initial=0.0), equal_nan=True))


def _made(known: Constant, lengths: Sequence[int]) -> np.ndarray:
    """The numbers of a constant at these lengths."""
    shape = [_number(size, lengths) for size in known.shape]
    if known.diagonal is not None:
        place = np.arange(shape[-1]) - np.arange(shape[-2])[:, None]
        diagonal = _number(known.diagonal, lengths)
        inside = place == diagonal if known.is_band else place <= diagonal
        return np.broadcast_to(np.where(inside, known.inside, known.outside), shape)
    if known.runs:
        runs = [[_number(number, lengths) for number in run] for run in known.runs]
        return np.concatenate([start + step * np.arange(max(length, 0)) for start, step, length in runs])
    made: Any = _number(known.start, lengths)
    for axis, step in enumerate(known.steps):
        along = np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - 1 - axis))
        made = made + _number(step, lengths) * along
    return np.broadcast_to(made, shape)


__all__ = ["differs"]
