"""Builds an ONNX graph: nodes, constants, and numbers that are formulas of the inputs' lengths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .sizes import Curve, Real, Size, factors, line
from .tracing import ExportError

OPSET = 18


@dataclass
class Term:
    """A value of the graph: its name there, its dtype and shape."""

    name: str
    dtype: np.dtype
    shape: list[int | Size]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Builder:
    """Collects nodes and constants; every method gives the name of a value.

    Parameters
    ----------
    sources : list of (str, int)
        For each axis that may change, an input that has it, and its place there.
    taken : set of str
        Names that others have: inputs, outputs, parameters.
    """

    def __init__(self, sources: list[tuple[str, int]], taken: set[str]) -> None:
        self.sources, self.taken = sources, taken
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._known: dict[Any, str] = {}
        self._count: dict[str, int] = {}

    # ---- nodes and constants ---------------------------------------------------------------------------------------------

    def unused(self, stem: str) -> str:
        """A name that was not given before."""
        while True:
            self._count[stem] = self._count.get(stem, -1) + 1
            if (name := f"{stem}_{self._count[stem]}") not in self.taken:
                return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; the name of its result, or a list of them when `outputs` is more than one."""
        for name, value in attributes.items():
            if any(isinstance(v, (Size, Real)) for v in (value if isinstance(value, list) else [value])):
                raise ExportError(f"{name}= of {kind} depends on lengths, but is a constant in ONNX")
        names = [self.unused(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=self.unused(f"node_{kind}"), **attributes))
        return names[0] if outputs == 1 else names

    def array(self, value: Any, name: str | None = None) -> str:
        """A constant array; the same one is kept once."""
        array = np.asarray(value)
        key = (array.dtype.name, array.shape, array.tobytes(), name)
        if key not in self._known:
            self._known[key] = name = self.unused("constant") if name is None else name
            proto = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            self.initializers[name] = proto
        return self._known[key]

    def number(self, value: Any, dtype: Any) -> str:
        """A number without axes, which may be a formula."""
        if isinstance(value, Real):
            whole = self.op("Cast", self.scalar(value.size), to=onnx_type(dtype))
            forms = {"float": (), "reciprocal": ("Reciprocal",), "sqrt": ("Sqrt",), "rsqrt": ("Sqrt", "Reciprocal"), "log": ("Log",)}
            for kind in forms[value.function]:
                whole = self.op(kind, whole)
            return whole
        if isinstance(value, Size):
            return self.op("Cast", self.scalar(value), to=onnx_type(dtype))
        return self.array(np.asarray(value).astype(dtype))

    # ---- lengths ---------------------------------------------------------------------------------------------------------

    def ints(self, values: Sequence[int | Size]) -> str:
        """Integers, int64 with one axis."""
        if all(isinstance(v, int) for v in values):
            return self.array(np.array(values, np.int64))
        key = ("ints", tuple(values))
        if key not in self._known:
            parts = [self.size(v) for v in values]
            self._known[key] = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)
        return self._known[key]

    def scalar(self, value: int | Size) -> str:
        """An integer without axes."""
        return self.array(np.int64(value)) if isinstance(value, int) else self.op("Squeeze", self.size(value), self.ints([0]))

    def size(self, value: int | Size) -> str:
        """An integer as an array of one element."""
        if isinstance(value, int):
            return self.array(np.array([value], np.int64))
        if value not in self._known:
            self._known[value] = self._sum(value) if value.joined == "sum" else self._product(value)
        return self._known[value]

    def _length(self, axis: int) -> str:
        key = ("length", axis)
        if key not in self._known:
            name, place = self.sources[axis]
            self._known[key] = self.op("Shape", name, start=place, end=place + 1)
        return self._known[key]

    def _plus(self, name: str, number: int) -> str:
        return name if number == 0 else self.op("Add", name, self.size(number))

    def _times(self, name: str, number: int) -> str:
        return name if number == 1 else self.op("Mul", name, self.size(number))

    def _curve(self, axis: int, curve: Curve) -> str:
        k = self._length(axis)
        if curve.divisor:
            quotient = self._floored(self._plus(k, curve.shift), curve.divisor)
            return self._plus(self._times(quotient, curve.factor), curve.c)
        half = 1 if curve.a % 2 == curve.b % 2 == curve.c % 2 == 0 else 2
        square = self._times(self.op("Mul", k, k), curve.a * half // 2) if curve.a else None
        whole = self._times(k, curve.b * half // 2)
        whole = self._plus(whole if square is None else self.op("Add", square, whole), curve.c * half // 2)
        return whole if half == 1 else self.op("Div", whole, self.size(2))

    def _floored(self, name: str, divisor: int) -> str:
        """The quotient of lengths, which are not negative here."""
        return self.op("Div", name, self.size(divisor))

    def _sum(self, value: Size) -> str:
        if (simple := line(value)) is not None:
            constant, slopes = simple
            parts = [self._times(self._length(axis), slope) for axis, slope in slopes]
            total = parts[0]
            for part in parts[1:]:
                total = self.op("Add", total, part)
            return self._plus(total, constant)
        total = self._curve(*value.curves[0])
        for axis, curve in value.curves[1:]:
            total = self.op("Add", total, self._plus(self._curve(axis, curve), -value.start))
        return total

    def _product(self, value: Size) -> str:
        if (simple := factors(value)) is not None:
            scale, shifts = simple
            parts, divisor = [self._plus(self._length(axis), shift) for axis, shift in shifts], 1
        else:
            scale, parts, divisor = 1, [self._curve(axis, curve) for axis, curve in value.curves], value.start ** (len(value.curves) - 1)
        total = parts[0]
        for part in parts[1:]:
            total = self.op("Mul", total, part)
        total = self._times(total, scale)
        return self._plus(total if divisor == 1 else self.op("Div", total, self.size(divisor)), value.offset)

    # ---- what converters often need -------------------------------------------------------------------------------------------

    def cast(self, term: Term, dtype: Any) -> str:
        """The value in another dtype, or the value itself."""
        return term.name if term.dtype == np.dtype(dtype) else self.convert(term.name, dtype)

    def convert(self, name: str, dtype: Any) -> str:
        """A value in another dtype."""
        return self.op("Cast", name, to=onnx_type(dtype))

    def arange(self, length: int | Size) -> str:
        """0, 1, ... int64."""
        if isinstance(length, int):
            return self.array(np.arange(length, dtype=np.int64))
        key = ("arange", length)
        if key not in self._known:
            self._known[key] = self.op("Range", self.array(np.int64(0)), self.scalar(length), self.array(np.int64(1)))
        return self._known[key]

    def reshape(self, name: str, shape: Sequence[int | Size]) -> str:
        """The same elements under another shape."""
        return self.op("Reshape", name, self.ints(list(shape)), allowzero=1)

    def expand(self, name: str, shape: Sequence[int | Size]) -> str:
        """Broadcast to a shape."""
        return self.op("Expand", name, self.ints(list(shape)))

    def slice(self, name: str, axis: int, start: Any, stop: Any, step: int = 1) -> str:
        """A slice along one axis; its bounds may be formulas."""
        return self.op("Slice", name, self.ints([start]), self.ints([stop]), self.ints([axis]), self.ints([step]))

    def at(self, name: str, axis: int) -> str:
        """With a new axis of length 1."""
        return self.op("Unsqueeze", name, self.ints([axis]))

    def where(self, condition: str, a: str, b: str) -> str:
        """Elements of a or b."""
        return self.op("Where", condition, a, b)

    def product_of(self, lengths: Sequence[int | Size]) -> str:
        """The product of lengths, an array of one element."""
        total = self.size(1)
        for length in lengths:
            total = self.op("Mul", total, self.size(length))
        return total


def onnx_type(dtype: Any) -> int:
    """The number of a dtype in ONNX."""
    name = np.dtype(dtype).name
    types = {
        "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16,
        "int64": TensorProto.INT64, "int32": TensorProto.INT32, "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
    }  # fmt: skip
    return types[name]


def clean(name: str) -> str:
    """A name as ONNX's tools like it."""
    return re.sub(r"[^\w.]", "_", name)
