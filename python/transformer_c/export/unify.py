"""The traces at several lengths as one graph, in which lengths are symbols."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .constants import Constant, array_of, equal, varying
from .dimensions import Dimension, difference
from .running import Axis, Runner
from .shorter import differs
from .sizes import Formulas, Size
from .tracing import Call, ExportError, Ref, Trace, Value, needed, refs_in


class LengthError(ExportError):
    """The module refuses some lengths, or does something else there."""


@dataclass
class Graph:
    """One trace for all lengths: `shapes` and arguments have a Size where a number depends on a length."""

    inputs: dict[str, Ref]
    dimensions: list[Dimension]
    calls: list[Call]
    values: list[Value]
    shapes: list[list[int | Size]]
    constants: dict[int, np.ndarray | Constant]  # by place
    output: Any


def unify_most(runner: Runner, first: Trace, dimensions: list[Dimension]) -> Graph:
    """``unify`` without the dimensions in which the module refuses lengths further away, or does something else there; a warning names them."""
    try:
        return unify(runner, first, dimensions)
    except LengthError:
        kept: list[Dimension] = []
        for dimension in dimensions:
            try:
                graph = unify(runner, first, [*kept, dimension])
                kept.append(dimension)
            except LengthError as reason:
                name, axis = dimension[1][0]
                message = f"axis {axis} of input {name!r} can only have the example's length {runner.arrays[name].shape[axis]} in the file: {reason}"
                warnings.warn(message, stacklevel=4)
        return graph if kept else unify(runner, first, kept)


def _points(first: list[int], count: int) -> list[tuple[int, ...]]:
    """Lengths to trace at: those of the example, `count` more along each axis, and three times all together."""
    points = [tuple(first)]
    for i in range(len(first)):
        points += [tuple(n + k * (j == i) for j, n in enumerate(first)) for k in range(1, count + 1)]
    if first:
        points += [tuple(n + count + (i * 3 + k) % 5 + k for i, n in enumerate(first)) for k in (1, 4, 9)]
    return points


def unify(runner: Runner, first: Trace, dimensions: list[Dimension]) -> Graph:
    """The graph that gives each trace at its lengths.

    Raises
    ------
    ExportError
        When numbers depend on lengths in a way that no formula has; LengthError when calls depend on them.
    """
    start = [runner.arrays[axes[0][0]].shape[axes[0][1]] for _, axes in dimensions]
    error: ExportError | None = None
    for count in (3, 12, 40) if dimensions else (0,):
        points, traces = _points(start, count), [first]
        for lengths in points[1:]:
            given = {axis: n for (_, axes), n in zip(dimensions, lengths, strict=True) for axis in axes}
            try:
                traces.append(runner.run(given))
            except ExportError:
                raise
            except Exception as reason:
                raise LengthError(f"forward raised {type(reason).__name__} for inputs of {_shapes(runner, given)}: {reason}") from reason
            if (where := difference(first, traces[-1])) is not None:
                raise LengthError(f"forward calls other ops for inputs of {_shapes(runner, given)}: {where}")
        try:
            graph = _unified(traces, Formulas(points), dimensions)
        except ExportError as reason:
            error = reason
            continue
        if (other := differs(runner, first, graph, start)) is not None:
            what, given = other
            raise LengthError(
                f"forward {what}, for inputs of {_shapes(runner, given)}; where it is not made for shorter inputs than the example, let it "
                "raise an error for them"
            )
        return graph
    assert error is not None
    raise error


def _shapes(runner: Runner, lengths: Mapping[Axis, int]) -> str:
    shapes = {n: [lengths.get((n, axis), k) for axis, k in enumerate(a.shape)] for n, a in runner.arrays.items()}
    return "shape " + ", ".join(f"{tuple(shape)} ({name})" for name, shape in shapes.items())


def _unified(traces: list[Trace], formulas: Formulas, dimensions: list[Dimension]) -> Graph:
    first = traces[0]
    shapes: list[list[int | Size]] = []
    for i, value in enumerate(first.values):
        shape = []
        for axis in range(len(value.shape)):
            size = formulas.integer([t.values[i].shape[axis] for t in traces])
            if size is None:
                lengths = [t.values[i].shape[axis] for t in traces]
                maker = next((c.op for c in first.calls if Ref(i) in c.results), "a constant")
                raise ExportError(
                    f"axis {axis} of the result of {maker} depends on lengths by no formula that is known: {_some(lengths, formulas)}"
                )
            shape.append(size)
        shapes.append(shape)
    folded = _folded(traces)
    calls = []
    for i, call in enumerate(first.calls):
        if all(ref is None or ref.place in folded for ref in call.results):
            continue
        args = {name: _merge([t.calls[i].args[name] for t in traces], formulas, f"{call.op}({name}=)") for name in call.args}
        calls.append(Call(call.op, args, call.results))
    calls = needed(calls, _places(refs_in(first.output)), lambda call: _places(call.results), lambda call: _places(refs_in(call.args)))
    constants: dict[int, np.ndarray | Constant] = {}
    for ref in itertools.chain((r for call in calls for r in refs_in(call.args)), refs_in(first.output)):
        value = first.values[ref.place]
        if ref.place in folded:
            constants[ref.place] = array_of(value)
        elif value.source == "constant" and ref.place not in constants:
            constants[ref.place] = varying([array_of(t.values[ref.place]) for t in traces], shapes[ref.place], formulas)
    inputs = {value.name: Ref(i) for i, value in enumerate(first.values) if value.source == "input" and value.name}
    return Graph(inputs, dimensions, calls, first.values, shapes, constants, first.output)


def _folded(traces: list[Trace]) -> set[int]:
    """Places of the values that are the same in all traces: constants, and what is computed from constants alone."""
    first, same = traces[0], set()
    for i, value in enumerate(first.values):
        if value.depends or any(t.values[i].shape != value.shape for t in traces):
            continue
        if (value.source == "constant" and value.name is not None) or (
            value.tensor is not None and all(_is_same(t.values[i], value) for t in traces[1:])
        ):
            same.add(i)
    return same


def _is_same(a: Value, b: Value) -> bool:
    """Whether two constants have the same bits; those in the same memory have."""
    x, y = a.tensor, b.tensor
    assert x is not None and y is not None
    return (x.data_ptr(), x.stride()) == (y.data_ptr(), y.stride()) or equal(array_of(a), array_of(b))


def _places(refs: Iterable[Ref | None]) -> list[int]:
    return [ref.place for ref in refs if ref is not None]


def _merge(values: list[Any], formulas: Formulas, what: str) -> Any:
    """One argument of all traces."""
    one = values[0]
    if isinstance(one, Ref) or one is None or one is ... or isinstance(one, (bool, str)):
        return one
    if isinstance(one, (list, tuple)):
        return type(one)(_merge([v[i] for v in values], formulas, what) for i in range(len(one)))
    found = formulas.integer(values) if isinstance(one, int) else formulas.real(values)
    if found is None:
        raise ExportError(f"{what} depends on lengths by no formula that is known: {_some(values, formulas)}")
    return found


def _some(values: list[Any], formulas: Formulas) -> str:
    """The first of the values, and where they were found, for a message."""
    return ", ".join(f"{v} at {n}" for v, n in list(zip(values, formulas.lengths, strict=True))[:4]) + ", ..."


__all__ = ["Graph", "LengthError", "unify", "unify_most"]
