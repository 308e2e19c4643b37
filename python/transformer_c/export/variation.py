"""Which axes of the example may have other lengths, and the traces at such lengths put together into one."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import Tensor
from .._nested import holds
from .._tensor import no_grad
from ..nn import Module
from .sizes import Formulas, Size
from .tracing import Call, ExportError, Ref, Trace, Tracer, Value, refs_in, traced

Axis = tuple[str, int]  # of an input
Dimension = tuple[str, list[Axis]]  # axes that change together, and the name of their length
_MOST_TOGETHER = 6  # axes of equal length that are tried together


class LengthError(ExportError):
    """The module refuses some lengths, or does something else there."""


@dataclass
class Constant:
    """Numbers that depend on lengths only, by place: start + the sum over axes of step * index; or two values, of which one is below a
    diagonal, or on it (`is_band`); or, of one axis, `runs` of (start, step, length) one after the other."""

    shape: list[int | Size]
    dtype: np.dtype
    start: Any = 0
    steps: tuple[Any, ...] = ()
    diagonal: int | Size | None = None
    inside: Any = None  # where column - row <= diagonal, or == diagonal
    outside: Any = None
    is_band: bool = False
    runs: tuple[tuple[Any, Any, Any], ...] = ()


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


def named(module: Module, example: Any) -> dict[str, Any]:
    """{parameter of forward: what the example has for it}."""
    signature = inspect.signature(module.forward)
    try:
        if isinstance(example, Mapping):
            bound = signature.bind(**example)
        else:
            bound = signature.bind(*(example if isinstance(example, tuple) else (example,)))
    except TypeError as error:
        raise TypeError(f"the example does not fit {type(module).__name__}.forward{signature}: {error}") from None
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given.update({f"{name}_{i}": v for i, v in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[name] = value
    return given


class Runner:
    """Runs a module on the example, or on one with other lengths or other numbers, and gives the trace."""

    def __init__(self, module: Module, example: Any) -> None:
        self.module = module
        self.signature = inspect.signature(module.forward)
        given = named(module, example)
        self.arrays = {n: np.asarray(v.detach().cpu() if isinstance(v, Tensor) else v) for n, v in given.items() if _is_array(v)}
        self.options = {n: v for n, v in given.items() if n not in self.arrays}
        for name, value in self.options.items():
            if holds(np.ndarray, value) or holds(Tensor, value):
                raise TypeError(f"{name!r} is a {type(value).__name__} of arrays; export_onnx takes inputs that are arrays")
        if not self.arrays:
            raise TypeError("the example has no array; pass an array, a tuple or a dict of them")
        for name, array in self.arrays.items():
            if array.dtype.kind not in "biufV":
                raise TypeError(f"the example for {name!r} is an array of dtype {array.dtype}; expected numbers")
        self.order = list(given)
        self.names = {id(t): n for n, t in itertools.chain(module.named_buffers(), module.named_parameters())}

    def run(self, lengths: Mapping[Axis, int] | None = None, change: str | None = None) -> Trace:
        """`change` "all" draws new floats, "order" shuffles what there is; integers and bools are shuffled."""
        dtype, device = self.module._dtype_and_device()
        tracer, given = Tracer(self.names), {}
        for name, array in self.arrays.items():
            array = _resized(array, {axis: n for (i, axis), n in (lengths or {}).items() if i == name})
            array = np.array(array) if change is None else _changed(array, change)  # a forward may write to it
            given[name] = self.module._accept_array(array, dtype, device)
            tracer.add_input(name, given[name])
        given.update(self.options)
        args, kwargs = [], {}
        for name in self.order:
            parameter = self.signature.parameters.get(name)
            if parameter is None or parameter.kind is parameter.KEYWORD_ONLY:
                if parameter is None and any(p.kind is p.VAR_POSITIONAL for p in self.signature.parameters.values()):
                    args.append(given[name])
                else:
                    kwargs[name] = given[name]
            elif len(args) == list(self.signature.parameters).index(name):
                args.append(given[name])
            else:
                kwargs[name] = given[name]
        with no_grad(), traced(tracer):
            output = self.module(*args, **kwargs)
        tracer.trace.output = _outputs(output, tracer)
        return tracer.trace


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, np.generic)) or (
        isinstance(value, list) and bool(value) and np.asarray(value).dtype.kind in "biuf"
    )


def _resized(array: np.ndarray, lengths: Mapping[int, int]) -> np.ndarray:
    for axis, length in lengths.items():
        array = np.take(array, np.arange(length) % array.shape[axis], axis)
    return array


def _changed(array: np.ndarray, change: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(array.tobytes()))  # not the numbers that made the example
    if change == "all" and array.dtype.kind == "f":
        return rng.standard_normal(array.shape).astype(array.dtype)
    if change == "all" and array.size and (array == array.flat[0]).all():  # no order would change anything
        return (array ^ rng.integers(0, 2, array.shape).astype(array.dtype)) if array.dtype.kind in "biu" else array
    return rng.permutation(array.reshape(-1)).reshape(array.shape)


def _outputs(output: Any, tracer: Tracer) -> Any:
    """The structure of the output with Refs; None stays."""
    if isinstance(output, Tensor):
        return tracer.ref(output)
    if isinstance(output, Mapping):
        return {str(k): _outputs(v, tracer) for k, v in output.items()}
    if isinstance(output, (tuple, list)):
        return [_outputs(v, tracer) for v in output]
    if output is None or isinstance(output, (bool, int, float, str)):
        return None
    raise ExportError(f"forward returned a {type(output).__name__}; expected Tensors, or tuples, lists and dicts of them")


# ---- which axes ------------------------------------------------------------------------------------------------------------


def difference(a: Trace, b: Trace) -> str | None:
    """Where two traces part; None where they do the same, up to numbers."""
    for x, y in zip(a.calls, b.calls, strict=False):
        if x.op != y.op or _form(x.args) != _form(y.args) or x.results != y.results:
            return f"{x.op}, elsewhere {y.op}" if x.op != y.op else f"other arguments of {x.op}"
    if len(a.calls) != len(b.calls):
        longer = max(a.calls, b.calls, key=len)
        return f"one more {longer[min(len(a.calls), len(b.calls))].op}"
    if len(a.values) != len(b.values) or _form(a.output) != _form(b.output):
        return "another result"
    for v, w in zip(a.values, b.values, strict=True):
        if v.source != w.source or len(v.shape) != len(w.shape) or v.dtype != w.dtype or v.name != w.name:
            return f"a Tensor of shape {w.shape} and dtype {w.dtype} in place of one of shape {v.shape} and dtype {v.dtype}"
    return None


def _form(value: Any) -> Any:
    """What must be equal in all traces: everything but numbers."""
    if isinstance(value, Ref):
        return value
    if isinstance(value, dict):
        return {k: _form(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_form(v) for v in value]
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


# ---- one trace for all lengths ------------------------------------------------------------------------------------------------


def put_most_together(runner: Runner, first: Trace, dimensions: list[Dimension]) -> Graph:
    """``put_together`` without the dimensions in which the module refuses lengths further away, or does something else there."""
    try:
        return put_together(runner, first, dimensions)
    except LengthError:
        kept: list[Dimension] = []
        for dimension in dimensions:
            try:
                graph = put_together(runner, first, [*kept, dimension])
                kept.append(dimension)
            except LengthError:
                continue
        return graph if kept and graph.dimensions == kept else put_together(runner, first, kept)


def _points(first: list[int], count: int) -> list[tuple[int, ...]]:
    """Lengths to trace at: those of the example, `count` more along each axis, and three times all together."""
    points = [tuple(first)]
    for i in range(len(first)):
        points += [tuple(n + k * (j == i) for j, n in enumerate(first)) for k in range(1, count + 1)]
    if first:
        points += [tuple(n + count + (i * 3 + k) % 5 + k for i, n in enumerate(first)) for k in (1, 4, 9)]
    return points


def put_together(runner: Runner, first: Trace, dimensions: list[Dimension]) -> Graph:
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
            return _unify(runner, traces, Formulas(points), dimensions)
        except ExportError as reason:
            error = reason
    assert error is not None
    raise error


def _shapes(runner: Runner, lengths: Mapping[Axis, int]) -> str:
    shapes = {n: [lengths.get((n, axis), k) for axis, k in enumerate(a.shape)] for n, a in runner.arrays.items()}
    return "shape " + ", ".join(f"{tuple(shape)} ({name})" for name, shape in shapes.items())


def check_values(runner: Runner, first: Trace) -> None:
    """Runs the module on other values of the same shapes: nothing but values may differ."""
    for change in ("all", "order"):
        try:
            other = runner.run(change=change)
        except ExportError:
            raise
        except Exception:
            continue  # these values do not fit
        _check_same(first, other)


def _check_same(first: Trace, other: Trace) -> None:
    if (where := difference(first, other)) is not None:
        raise ExportError(f"forward calls other ops for other values of its inputs ({where}): a graph cannot decide by values; use where()")
    for i, (a, b) in enumerate(zip(first.calls, other.calls, strict=True)):
        if _numbers(a.args) != _numbers(b.args):
            raise ExportError(f"an argument of {a.op} depends on the values of the inputs (call {i}): {a.args} and {b.args}")
        for x, y in zip(a.results, b.results, strict=True):
            if x is not None and y is not None and first.values[x.place].shape != other.values[y.place].shape:
                raise ExportError(f"the shape of what {a.op} gives depends on the values of the inputs (call {i})")
    used = [(ref, f"an array that {call.op} gets") for call in first.calls for ref in refs_in(call.args)]
    for ref, what in [*used, *((ref, "a result of forward") for ref in refs_in(first.output))]:
        v, w = first.values[ref.place], other.values[ref.place]
        if v.source == "constant" and v.name is None and not _equal(_array(v), _array(w)):
            raise ExportError(
                f"{what} depends on the values of the inputs, or on chance: it was computed outside the library (NumPy, random numbers), or in "
                "another thread"
            )


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return [_numbers(v) for v in value.values()]
    if isinstance(value, (list, tuple)) and not isinstance(value, Ref):
        return [_numbers(v) for v in value]
    return repr(value)


def _array(value: Value) -> np.ndarray:
    assert value.tensor is not None
    return value.tensor.cpu().numpy()


def _is_same(a: Value, b: Value) -> bool:
    """Whether two constants have the same bits; those in the same memory have."""
    x, y = a.tensor, b.tensor
    assert x is not None and y is not None
    return (x.data_ptr(), x.stride()) == (y.data_ptr(), y.stride()) or _equal(_array(a), _array(b))


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _unify(runner: Runner, traces: list[Trace], formulas: Formulas, dimensions: list[Dimension]) -> Graph:
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
    calls = _needed(calls, first.output)
    constants: dict[int, np.ndarray | Constant] = {}
    for ref in itertools.chain((r for call in calls for r in refs_in(call.args)), refs_in(first.output)):
        value = first.values[ref.place]
        if ref.place in folded:
            constants[ref.place] = _array(value)
        elif value.source == "constant" and ref.place not in constants:
            constants[ref.place] = _varying([_array(t.values[ref.place]) for t in traces], shapes[ref.place], formulas)
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


def _needed(calls: list[Call], output: Any) -> list[Call]:
    """The calls that the output depends on."""
    wanted, kept = {ref.place for ref in refs_in(output)}, []
    for call in reversed(calls):
        if any(ref is not None and ref.place in wanted for ref in call.results):
            wanted.update(ref.place for ref in refs_in(call.args))
            kept.append(call)
    return kept[::-1]


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


def _varying(arrays: list[np.ndarray], shape: list[int | Size], formulas: Formulas) -> np.ndarray | Constant:
    """A constant whose shape or numbers depend on lengths: a progression along the axes, or a triangle of two values."""
    one = arrays[0]
    dtype = one.dtype
    if all(_equal(a, one) for a in arrays):
        return one

    def fit(numbers: list[Any]) -> Any:
        return formulas.integer([int(n) for n in numbers]) if dtype.kind in "biu" else formulas.real([float(n) for n in numbers])

    if all(a.size for a in arrays):
        starts = [a[(0,) * a.ndim] for a in arrays]
        steps = [_steps(a) for a in arrays]
        start = fit(starts)
        if start is not None and all(_is_progression(a, s) for a, s in zip(arrays, steps, strict=True)):
            fitted = [
                fit([s[axis] for s in steps]) if one.shape[axis] > 1 else fit([steps[-1][axis]] * len(steps)) for axis in range(one.ndim)
            ]
            if all(f is not None for f in fitted):
                return Constant(shape, dtype, start, tuple(fitted))
        if one.ndim >= 2:
            triangles = [t for a in arrays if (t := _triangle(a)) is not None]
            if len(triangles) == len(arrays) and len({t[1:] for t in triangles}) == 1:
                diagonal = formulas.integer([t[0] for t in triangles])
                if diagonal is not None:
                    _, inside, outside, is_band = triangles[0]
                    return Constant(shape, dtype, diagonal=diagonal, inside=inside, outside=outside, is_band=is_band)
    if one.ndim == 1 and dtype.kind in "iu" and all(a.size for a in arrays):
        pieces = [_runs(a) for a in arrays]
        if len({len(p) for p in pieces}) == 1:
            fitted = [tuple(fit([p[i][k] for p in pieces]) for k in range(3)) for i in range(len(pieces[0]))]
            if all(number is not None for run in fitted for number in run):
                return Constant(shape, dtype, runs=tuple(fitted))
    raise ExportError(
        f"an array of shape {one.shape} that forward makes outside the library (NumPy) depends on the lengths of the inputs, and is no arithmetic "
        "progression and no triangle; make it with ops, or make it once for the longest input, as a buffer, and cut it in forward"
    )


def _steps(a: np.ndarray) -> list[Any]:
    """The mean difference between neighbours along each axis, at index 0 of the others."""
    steps: list[Any] = []
    for axis, length in enumerate(a.shape):
        row = np.moveaxis(a, axis, 0).reshape(length, -1)[:, 0]
        if a.dtype.kind in "biu":
            steps.append((int(row[-1]) - int(row[0])) // max(length - 1, 1))
        else:
            steps.append((float(row[-1]) - float(row[0])) / max(length - 1, 1) if row[-1] != row[0] else 0.0)
    return steps


def _is_progression(a: np.ndarray, steps: list[Any]) -> bool:
    if a.dtype.kind == "b" and any(steps):
        return False
    expected = np.full(a.shape, a[(0,) * a.ndim], np.float64)
    with np.errstate(invalid="ignore"):
        for axis, step in enumerate(steps):
            expected = expected + float(step) * np.arange(a.shape[axis]).reshape([-1 if k == axis else 1 for k in range(a.ndim)])
        largest = np.abs(expected).max(initial=0.0, where=np.isfinite(expected))
        return bool(np.allclose(a.astype(np.float64), expected, rtol=0, atol=1e-6 * largest * (a.dtype.kind == "f"), equal_nan=True))


def _triangle(a: np.ndarray) -> tuple[int, Any, Any, bool] | None:
    """(diagonal, value there or below, value elsewhere, whether it is the diagonal alone), if all matrices are that."""
    flat = a.reshape(-1, *a.shape[-2:])
    low, high = flat[0, -1, 0], flat[0, 0, -1]
    if (flat != flat[0]).any():
        return None
    place = np.arange(a.shape[-1]) - np.arange(a.shape[-2])[:, None]
    is_band = bool(low == high)
    inside = flat[0] != high if is_band else flat[0] == low
    if not inside.any():
        return None
    diagonal, value = int(place[inside].max()), flat[0][inside][0]
    expected = np.where(place == diagonal if is_band else place <= diagonal, value, high)
    return (diagonal, value.item(), high.item(), is_band) if (expected == flat[0]).all() else None


def _runs(a: np.ndarray) -> list[tuple[int, int, int]]:
    """An array as (start, step, length) of arithmetic progressions, each as long as can be."""
    runs, start, n = [], 0, len(a)
    while start < n:
        end = start + 1
        step = int(a[end]) - int(a[start]) if end < n else 0
        while end < n and int(a[end]) - int(a[end - 1]) == step:
            end += 1
        runs.append((int(a[start]), step, end - start))
        start = end
    return runs
