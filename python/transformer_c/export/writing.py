"""From a module to an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .._evaluating import evaluating
from .._fork_lock import ForkLock
from .._version import __version__
from ..checkpoint.files import write_atomically
from ..nn import Module
from .checks import check_values
from .constants import Constant
from .converters import CONVERTERS
from .converters.elements import chosen
from .dimensions import Dimension, find_dimensions
from .graph import OPSET, Builder, Term, clean, onnx_type
from .running import Axis, Runner
from .sizes import Size
from .tracing import ExportError, Ref, needed
from .unify import Graph, unify, unify_most

_one_at_a_time = ForkLock()  # there is one tracer
_LARGEST = 1_900_000_000  # bytes; a protobuf has at most 2 GB


def write(module: Module, example: Any, path: str | os.PathLike, dynamic_axes: Any) -> None:
    """See ``export_onnx``."""
    with _one_at_a_time.held(), evaluating(module):
        runner = Runner(module, example)
        runner.run()  # some modules keep what their first call makes
        first = runner.run()
        check_values(runner, first)
        if dynamic_axes is None:
            graph = unify_most(runner, first, _named(runner, find_dimensions(runner, first)))
        else:
            graph = unify(runner, first, _given(runner, dynamic_axes))
        model = build(graph, type(module).__name__)
    if sum(len(constant.raw_data) for constant in model.graph.initializer) <= _LARGEST:
        onnx.checker.check_model(model, full_check=True)
        write_atomically(os.fspath(path), model.SerializeToString())
    else:
        name = os.path.basename(os.fspath(path)) + ".data"
        onnx.save(model, os.fspath(path), save_as_external_data=True, location=name)
        onnx.checker.check_model(os.fspath(path))


def _named(runner: Runner, groups: list[list[Axis]]) -> list[Dimension]:
    """Names for the sets of axes: "batch" and "sequence" for the first set that has axis 0 or 1, then by input and axis."""
    own = type(runner.module).__module__.startswith("transformer_c.nn")  # there batch_first says where the batch is
    batch_first = not own or all(getattr(m, "batch_first", True) for m in runner.module.modules())
    free = {0: "batch", 1: "sequence"} if batch_first else {0: "sequence", 1: "batch"}
    named = []
    for axes in groups:
        name = f"{axes[0][0]}_{axes[0][1]}"
        for place in sorted({axis for _, axis in axes}):
            if place in free:
                name = free.pop(place)
                break
        named.append((name, axes))
    return named


def _given(runner: Runner, dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]]) -> list[Dimension]:
    if not isinstance(dynamic_axes, Mapping):
        raise TypeError(f"dynamic_axes must be a dict {{input: {{axis: name}}}} or {{input: [axis, ...]}}, got {dynamic_axes!r}")
    groups: dict[str, list[Axis]] = {}
    for name, axes in dynamic_axes.items():
        if name not in runner.arrays:
            raise ValueError(f"dynamic_axes has {name!r}, which is no input; the inputs are {', '.join(map(repr, runner.arrays))}")
        rank = runner.arrays[name].ndim
        is_sequence = isinstance(axes, Sequence) and not isinstance(axes, str)
        if not (isinstance(axes, Mapping) or is_sequence) or not all(isinstance(axis, (int, np.integer)) for axis in axes):
            raise TypeError(
                f"dynamic_axes of {name!r} must be {{axis: name}} or [axis, ...], as in {{{name!r}: {{0: 'batch'}}}}; got {axes!r}"
            )
        for axis in axes:
            if not -rank <= axis < rank:
                raise ValueError(f"dynamic_axes: input {name!r} has {rank} axes, and no axis {axis}")
            text = axes[axis] if isinstance(axes, Mapping) else f"{name}_{axis % rank}"
            groups.setdefault(text, []).append((name, axis % rank))
    for text, group in groups.items():
        lengths = {runner.arrays[name].shape[axis] for name, axis in group}
        if len(lengths) > 1:
            raise ValueError(f"dynamic_axes: the axes called {text!r} have different lengths in the example: {sorted(lengths)}")
    return list(groups.items())


def build(graph: Graph, title: str) -> onnx.ModelProto:
    """The graph of all lengths as an ONNX model."""
    names: dict[int, str] = {ref.place: clean(name) for name, ref in graph.inputs.items()}
    inputs = set(names.values())
    given = {f"{clean(name)}_out" if clean(name) in inputs else clean(name): ref for name, ref in _outputs(graph.output, "output")}
    used = inputs | set(given)
    parameters = {clean(value.name) for value in graph.values if value.name is not None}
    g = Builder([(clean(axes[0][0]), axes[0][1]) for _, axes in graph.dimensions], used | parameters)

    def term(place: int) -> Term:
        value = graph.values[place]
        if place not in names:
            names[place] = _constant(
                g, graph.constants[place], value.dtype, None if value.name is None or clean(value.name) in used else value.name
            )
        return Term(names[place], value.dtype, graph.shapes[place])

    def filled(value: Any) -> Any:
        if isinstance(value, Ref):
            return term(value.place)
        if isinstance(value, (list, tuple)):
            return type(value)(filled(v) for v in value)
        return value

    for call in graph.calls:
        if call.op not in CONVERTERS:
            raise ExportError(f"the op {call.op} has no converter to ONNX")
        args = {name: filled(value) for name, value in call.args.items()}
        out = [None if ref is None else Term("", graph.values[ref.place].dtype, graph.shapes[ref.place]) for ref in call.results]
        empty = [_empty(g, o) for o in out if o is not None and 0 in o.shape]
        made = empty if len(empty) == len(out) else CONVERTERS[call.op](g, args, out)
        for ref, name in zip(call.results, made if isinstance(made, list) else [made], strict=True):
            if ref is not None:
                names[ref.place] = name
    outputs = []
    for name, ref in given.items():
        g.nodes.append(helper.make_node("Identity", [term(ref.place).name], [name]))
        outputs.append(_info(name, graph, ref.place))
    if not outputs:
        raise ExportError("forward returned no Tensor")
    infos = [_info(clean(name), graph, ref.place) for name, ref in graph.inputs.items()]
    nodes = needed(g.nodes, [info.name for info in outputs], lambda node: node.output, lambda node: node.input)
    read = {name for node in nodes for name in node.input}
    body = helper.make_graph(nodes, title, infos, outputs, initializer=[proto for name, proto in g.initializers.items() if name in read])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    model.producer_name, model.producer_version = "transformer_c", __version__
    return model


def _empty(g: Builder, result: Term) -> str:
    """An array without elements, whatever makes it."""
    value = helper.make_tensor("value", onnx_type(result.dtype), [1], [0])
    return g.op("ConstantOfShape", g.ints(result.shape), value=value)


def _outputs(output: Any, name: str) -> list[tuple[str, Ref]]:
    if isinstance(output, Ref):
        return [(name, output)]
    if isinstance(output, dict):
        return [pair for key, value in output.items() for pair in _outputs(value, key if name == "output" else f"{name}_{key}")]
    if isinstance(output, list):
        return [pair for i, value in enumerate(output) for pair in _outputs(value, f"{name}_{i}")]
    return []


def _info(name: str, graph: Graph, place: int) -> onnx.ValueInfoProto:
    """Name, dtype and shape; a length that is one of the dimensions has its name, any other formula none."""
    alone = {}
    for axis, (text, _) in enumerate(graph.dimensions):
        alone[axis] = text
    shape: list[int | str | None] = []
    for size in graph.shapes[place]:
        if isinstance(size, Size):
            (axis, curve), *more = size.curves
            is_plain = not more and not curve.divisor and (curve.a, curve.b, curve.c) == (0, 2, 0)
            shape.append(alone[axis] if is_plain else None)
        else:
            shape.append(size)
    return helper.make_tensor_value_info(name, onnx_type(graph.values[place].dtype), shape)


def _constant(g: Builder, value: np.ndarray | Constant, dtype: np.dtype, name: str | None) -> str:
    if isinstance(value, np.ndarray):
        return g.array(value, None if name is None else clean(name))
    if value.diagonal is not None:
        column, row = g.arange(value.shape[-1]), g.at(g.arange(value.shape[-2]), 1)
        inside = g.op("Equal" if value.is_band else "LessOrEqual", g.op("Sub", column, row), g.size(value.diagonal))
        made = chosen(g, inside, g.array(np.asarray(value.inside, dtype)), g.array(np.asarray(value.outside, dtype)), dtype)
        return g.expand(made, value.shape)
    if value.runs:
        parts = [g.op("Add", g.op("Mul", g.arange(length), g.scalar(step)), g.scalar(start)) for start, step, length in value.runs]
        return g.convert(g.op("Concat", *parts, axis=0), dtype)
    kind = np.int64 if np.dtype(dtype).kind in "biu" else np.float64
    made = g.number(value.start, kind)
    for axis, step in enumerate(value.steps):
        if step != 0:
            along = g.convert(g.arange(value.shape[axis]), kind)
            scaled = g.op("Mul", along, g.number(step, kind))
            made = g.op("Add", made, g.reshape(scaled, [-1] + [1] * (len(value.shape) - 1 - axis)))
    return g.convert(g.expand(made, value.shape), dtype)


__all__ = ["build", "write"]
