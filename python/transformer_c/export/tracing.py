"""The calls of ops that a module makes, as a list: what was called, with which values and options, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import _core
from .._core import Tensor

Step = TypeVar("Step")


class ExportError(RuntimeError):
    """The module cannot be written as a graph; the message says which call is the reason."""


class Ref(NamedTuple):
    """A value of a trace, by its place in ``Trace.values``."""

    place: int


@dataclass
class Value:
    """A Tensor of a trace. `source` is "input", "constant" or "result"; a constant has a `key` that tells it from others."""

    source: str
    shape: tuple[int, ...]
    dtype: np.dtype
    name: str | None = None  # of an input, a parameter or a buffer
    tensor: Tensor | None = None  # of a constant, and of a result of constants
    depends: bool = True  # on an input


@dataclass
class Call:
    """One op: `args` by name, with a Ref for each Tensor; `results` by place, None for a result that was not asked for."""

    op: str
    args: dict[str, Any]
    results: list[Ref | None]


@dataclass
class Trace:
    """What a forward called, and the structure of what it returned, with a Ref for each Tensor."""

    calls: list[Call] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    output: Any = None


# Calls that say something about a Tensor, and compute nothing.
_QUESTIONS = {"as_argument", "data_ptr", "dim", "is_contiguous", "nelement", "numel", "requires_grad_", "size", "stride", "take_array"}
# What takes numbers out of a Tensor. A graph cannot follow them: only numbers that depend on no input may be taken.
_NUMBERS = {
    "__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__index__": "an index", "__array__": "NumPy",
    "__buffer__": "a buffer", "__dlpack__": "DLPack", "item": "item()", "numpy": "numpy()", "tolist": "tolist()",
}  # fmt: skip
# What is no op of a table, or has arguments that do not matter: names and kinds as binding.h explains; k is an index expression.
_OTHERS = {
    "type_as": "self:t",
    "getitem": "self:t key:k",
    "setitem": "self:t key:k value:t",
    "tensor": "data:t",
    "T": "self:t",
    "mT": "self:t",
}
_WRITING = {"setitem", "copy_", "fill_", "zero_", "masked_fill_", "scatter_into"}


class Parameter(NamedTuple):
    """An argument in the spec of an op."""

    name: str
    kind: str
    spread: bool
    default: Any


def _default(kind: str, text: str) -> Any:
    if text == "None":
        return None
    if kind == "b":
        return text == "True"
    return float(text) if kind == "f" else int(text) if kind in "iw" else text


def _parse(spec: str) -> tuple[list[Parameter], dict[str, str]]:
    """The arguments of an op, and the other names that some have."""
    parameters, aliases = [], {}
    for word in spec.split():
        if word == "|":
            continue
        if ":" not in word:
            alias, name = word.split("=")
            aliases[alias] = name
            continue
        name, rest = word.split(":", 1)
        kinds, has_default, default = rest.partition("=")
        required = not has_default
        parameters.append(Parameter(name, kinds[0], "*" in kinds, ... if required else _default(kinds[0], default)))
    return parameters, aliases


_signatures: dict[str, tuple[list[Parameter], dict[str, str]]] = {}


def _signature(op: str) -> tuple[list[Parameter], dict[str, str]]:
    if op not in _signatures:
        found = next((f for f in (getattr(_core, op, None), getattr(Tensor, op, None)) if isinstance(f, _core.op)), None)
        _signatures[op] = _parse(_OTHERS[op] if op in _OTHERS or found is None else found.spec)
    return _signatures[op]


def _bind(op: str, args: tuple, kwargs: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """{argument: (kind, what was given, or the default)}."""
    parameters, aliases = _signature(op)
    given: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        if i < len(args):
            given[parameter.name] = args[i:] if parameter.spread and len(args) > i + 1 else args[i]
            if parameter.spread:
                break
    for name, value in kwargs.items():
        if value is not None or name not in aliases:
            given[aliases.get(name, name)] = value
    defaults = {p.name: () if p.default is ... and p.spread else p.default for p in parameters}
    return {p.name: (p.kind, given.get(p.name, defaults[p.name])) for p in parameters}


class Tracer:
    """Called by the core after each op."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names  # of parameters and buffers, by id
        self.trace = Trace()
        self._places: dict[int, int] = {}  # of the Tensor with this id
        self._alive: dict[int, Tensor] = {}
        self._stale: set[int] = set()
        self._windows: dict[int, tuple[Tensor, Any]] = {}  # x and the key of a Tensor x[key] in the memory of x, by its id
        self._made: set[int] = set()  # constants that the call itself makes
        self._constants: list[Tensor] = []  # the others, to whose memory it does not write

    # ---- values ----------------------------------------------------------------------------------------------------------

    def _add(self, tensor: Tensor, value: Value) -> Ref:
        self.trace.values.append(value)
        self._places[id(tensor)] = len(self.trace.values) - 1
        self._alive[id(tensor)] = tensor
        return Ref(self._places[id(tensor)])

    def add_input(self, name: str, tensor: Tensor) -> Ref:
        """A Tensor that is given to the module."""
        return self._add(tensor, Value("input", tensor.shape, tensor.dtype, name))

    def ref(self, value: Any) -> Ref:
        """The value of a Tensor; one that was never seen is a constant, as is everything that becomes an array."""
        tensor = value if isinstance(value, Tensor) else _core.as_tensor(np.array(value))
        if id(tensor) not in self._places:
            name = self.names.get(id(tensor))
            constant = Value("constant", tensor.shape, tensor.dtype, name, tensor.detach(), depends=False)
            self._constants.append(tensor)
            return self._add(tensor, constant)
        if id(tensor) in self._stale and not self.trace.values[self._places[id(tensor)]].depends:
            self._stale.discard(id(tensor))  # numbers that depend on lengths only: what they are now
            self._made.add(id(tensor))
            return self._add(tensor, Value("constant", tensor.shape, tensor.dtype, None, tensor.detach().clone(), depends=False))
        if id(tensor) in self._stale:
            if id(tensor) not in self._windows:
                raise ExportError(
                    "forward writes in place to memory that another Tensor shares, and reads that Tensor afterwards; write t = t + x "
                    "instead of t += x there, or clone() first"
                )
            base, key = self._windows[id(tensor)]  # what it is now
            self._record("getitem", {"self": self.ref(base), "key": key}, [tensor], depends=True)
        return Ref(self._places[id(tensor)])

    def leaf(self, kind: str, value: Any) -> Any:
        """An argument as it is compared between traces."""
        if kind == "k":
            return self._key(value)
        if value is None or value is ...:
            return value
        if kind == "T":
            return [self.ref(v) for v in value]
        if kind in "iIp":
            return _integers(value)
        if kind == "t" or isinstance(value, (Tensor, np.ndarray)):
            return self.ref(value)
        if kind == "n":
            return int(value) if hasattr(value, "__index__") else self.ref(value)
        if kind in "av":
            return _number(value) if _number(value) is not None else self.ref(value)
        return float(value) if kind == "f" else value

    def _key(self, key: Any) -> tuple:
        """An index expression as a tuple of ints, None, Ellipsis, slices as ("slice", start, stop, step), and Refs."""
        entries: list[Any] = []
        for entry in key if isinstance(key, tuple) else (key,):
            if entry is None or entry is ...:
                entries.append(entry)
            elif isinstance(entry, slice):
                entries.append(("slice", *(None if e is None else int(e) for e in (entry.start, entry.stop, entry.step))))
            elif isinstance(entry, (bool, np.bool_)):
                entries.append(self.ref(np.array(entry)))
            elif hasattr(entry, "__index__") and not isinstance(entry, (Tensor, np.ndarray)):
                entries.append(int(entry))
            elif isinstance(entry, Tensor):
                entries.append(self.ref(entry))
            else:
                array = np.asarray(entry)
                entries.append(self.ref(array if array.size else array.astype(np.int64)))
        return tuple(entries)

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def __call__(self, op: str, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        if op in _NUMBERS:
            self._check_numbers(op, args[0])
            return
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if op in _QUESTIONS or not any(isinstance(r, Tensor) for r in found):
            return
        if op in ("arange", "spaced") or (op in ("as_tensor", "tensor") and not isinstance(args[0], Tensor)):
            self._made.add(id(result))
            self._add(result, Value("constant", result.shape, result.dtype, None, result.detach().clone(), depends=False))
            return
        if op == "record_custom":
            raise ExportError("a custom_op is a Python function, which has no converter to ONNX")
        # What is no number or Tensor (a dtype, a device) shows in the results.
        bound = {name: self.leaf(kind, value) for name, (kind, value) in _bind(op, args, kwargs).items() if kind not in "ow"}
        depends = any(self.trace.values[ref.place].depends for ref in refs_in(bound))
        if op not in _WRITING:
            self._record(op, bound, found, depends)
        elif op != "setitem" or not self._has_window(found[0], bound["key"], args[2]):
            self._write(op, bound, found[0], depends)
        if op == "getitem" and not any(refs_in(bound["key"])):
            self._windows[id(result)] = args[0], bound["key"]

    def _record(self, op: str, bound: dict[str, Any], found: list, depends: bool) -> None:
        results: list[Ref | None] = []
        for tensor in found:
            if tensor is None:
                results.append(None)
                continue
            kept = None if depends else tensor.detach()
            if kept is not None and not any(_overlap(kept, constant) for constant in self._constants):
                kept = kept.clone()  # forward may write there
            results.append(self._add(tensor, Value("result", tensor.shape, tensor.dtype, None, kept, depends)))
            self._stale.discard(id(tensor))
        self.trace.calls.append(Call(op, bound, results))

    def _check_numbers(self, op: str, tensor: Tensor) -> None:
        place = self._places.get(id(tensor))
        if place is not None and self.trace.values[place].depends:
            raise ExportError(
                f"forward takes numbers out of a Tensor that depends on its inputs, by {_NUMBERS[op]}: a graph cannot decide by values, or compute "
                "with them outside the library, as a custom_op does; use where(), and ops of Tensors"
            )

    def _has_window(self, base: Tensor, key: Any, value: Any) -> bool:
        """Whether base[key] = value ends a base[key] op= ..., which has been recorded when its value was written."""
        window, stale = self._windows.get(id(value)), {id(base), id(value)} & self._stale
        return window is not None and window[0] is base and window[1] == key and not stale

    def _write(self, op: str, bound: dict[str, Any], tensor: Tensor, depends: bool) -> None:
        """Records a write to a Tensor, and to those that it is a window of, as far as their values are known."""
        bases = []
        written = tensor
        while True:
            value = self.trace.values[self._places[id(written)]]
            if value.source == "constant" and id(written) not in self._made:
                what = value.name or "a Tensor that was there before the call"
                raise ExportError(f"forward writes in place to {what}, by {op}: a graph has no state")
            if id(written) not in self._windows:
                break
            written, key = self._windows[id(written)]
            if id(written) in self._stale:
                break
            bases.append((written, key, Ref(self._places[id(written)])))
        self._outdate(tensor, depends)
        self._record(op, bound, [tensor], depends)
        for base, key, before in bases:
            depends |= self.trace.values[before.place].depends
            self._record("setitem", {"self": before, "key": key, "value": Ref(self._places[id(tensor)])}, [base], depends)
            tensor = base

    def _root(self, tensor: Tensor) -> Tensor:
        while id(tensor) in self._windows:
            tensor = self._windows[id(tensor)][0]
        return tensor

    def _outdate(self, written: Tensor, depends: bool) -> None:
        """Tensors over the same memory have a value that is not known any more, and depends on inputs if what was written does."""
        root = self._root(written)
        for key, other in self._alive.items():
            # windows of one Tensor wherever they are: whether they overlap may depend on lengths
            if key != id(written) and (self._root(other) is root or _overlap(other, written)):
                self._stale.add(key)
                self.trace.values[self._places[key]].depends |= depends


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether the Tensors may have elements in common."""
    (a_low, a_high), (b_low, b_high) = _memory(a), _memory(b)
    return a.device == b.device and a_low < b_high and b_low < a_high


def _memory(tensor: Tensor) -> tuple[int, int]:
    """The addresses between which the elements are."""
    if not tensor.numel():
        return 0, 0
    low = high = tensor.data_ptr()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        step = (length - 1) * stride * tensor.itemsize
        low, high = low + min(step, 0), high + max(step, 0)
    return low, high + tensor.itemsize


def _integers(value: Any) -> Any:
    return tuple(None if v is None else int(v) for v in value) if isinstance(value, (tuple, list)) else int(value)


def _number(value: Any) -> bool | int | float | None:
    """A Python or NumPy number as a Python number; None for anything else."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    return float(value) if isinstance(value, (float, np.floating)) else None


def refs_in(value: Any) -> Iterator[Ref]:
    """The Refs in nested dicts, lists and tuples."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from refs_in(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from refs_in(v)


def needed(
    steps: Sequence[Step], outputs: Iterable[Any], results: Callable[[Step], Iterable], arguments: Callable[[Step], Iterable]
) -> list[Step]:
    """The steps that the outputs depend on; `results` and `arguments` give what a step makes and takes."""
    wanted, kept = set(outputs), []
    for step in reversed(steps):
        if not wanted.isdisjoint(results(step)):
            wanted.update(arguments(step))
            kept.append(step)
    return kept[::-1]


def traced(tracer: Tracer) -> Any:
    """A context manager: the calls of this thread are shown to the tracer."""
    return _core.switched(_core.set_tracer, lambda: tracer)
