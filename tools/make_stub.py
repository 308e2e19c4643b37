"""Writes python/transformer_c/_core.pyi and ops.pyi from the extension itself, so that the stubs cannot drift from it.

python tools/make_stub.py            writes the files
python tools/make_stub.py --check    exit status 1 when one of them is not what would be written
"""

import inspect
import re
import sys
from pathlib import Path

from transformer_c import _core, ops

PACKAGE = Path(__file__).parents[1] / "python/transformer_c"
CORE_HEAD = '''"""The C core. Written by tools/make_stub.py from the extension itself."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, final

from numpy.typing import ArrayLike
from typing_extensions import disjoint_base

# Tensor has methods of these names, which would hide the types inside the class.
_bool = bool
_int = int
_float = float
_Shape = int | Sequence[int]

'''
OPS_HEAD = '''"""The kernels without a tape. Written by tools/make_stub.py from the extension itself."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from ._core import Tensor

_bool = bool
_int = int
_float = float
_Shape = int | Sequence[int]

'''
OP = """@final
class op:
    __name__: str
    __qualname__: str
    __doc__: str
    spec: str
    results: tuple[str, ...] | None
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
    def __reduce__(self) -> Any: ..."""
TYPES = {
    "t": "ArrayLike | Tensor",
    "T": "Sequence[ArrayLike | Tensor]",
    "i": "_int",
    "w": "_int",
    "n": "_int | ArrayLike | Tensor",
    "a": "_int | _float | ArrayLike | Tensor",
    "v": "_int | _float",
    "p": "tuple[_int | None, _int | None]",
    "f": "_float",
    "b": "_bool",
    "I": "_Shape",
    "s": "str",
    "c": "str",
    "o": "Any",
}
PLAIN = {  # functions that are no ops: their results
    "set_num_threads": "None", "get_num_threads": "int", "cpu_isas": "dict[str, bool]", "cpu_isa": "str", "cpu_select": "None",
    "set_float32_precision": "None", "get_float32_precision": "int", "last_plans": "dict[str, tuple[str, int, int]]", "compiler": "str", "memory_stats": "dict[str, int]", "memory_reset_peak": "None", "memory_empty_cache": "None",
    "exchange_batch_share": "tuple[int, int, int]", "encoder_block_takes": "bool", "encoder_block_takes_gradients": "bool",
    "memory_fail_after": "None", "grad_enabled": "bool", "set_grad_enabled": "bool", "set_device_type": "None", "set_tracer": "Any", "compute_into": "Any", "product": "Tensor | None", "pad_by_itself": "Tensor | None", "is_traced": "bool", "autocast_state": "int", "call_depth": "int", "call_nested": "Any", "gradients_of_one_kind": "list[Tensor] | None",
    "step_of_one_kind": "tuple[list[Tensor], list[Tensor], list[dict[str, Any]], tuple[list[Tensor], ...], int] | None",
}  # fmt: skip


def argument(text, words):
    """`name: type = default` of one of the words of a spec."""
    if ":" not in text:  # another name of an argument
        alias, name = text.split("=")
        (meant,) = [word for word in words if word.startswith(f"{name}:")]
        return f"{alias}: {TYPES[meant.split(':')[1][0]]} | None = None"
    match = re.fullmatch(r"(\w+):(\w)[+@!]?(\*?)(\??)(?:=(.*))?", text)
    name, kind, spread, optional, default = match.groups()
    if spread:
        return f"*{name}: Any"
    annotation = TYPES[kind] + (" | None" if optional or (default == "None" and kind != "o") else "")
    if default is None:
        return f"{name}: {annotation}"
    if kind == "f" and default != "None":
        default = repr(float(default))
    return f"{name}: {annotation} = {default!r}" if kind in "sc" and default != "None" else f"{name}: {annotation} = {default}"


def result_type(op):
    """Of what an op gives: its row names the results."""
    if op.results is None or len(op.results) == 1:
        return "Any"
    return f"tuple[{', '.join(['Any'] * len(op.results))}]" if op.results else "None"


def op_stub(op, name=None, method=False):
    words = op.spec.split()
    parts = ["*" if word == "|" else argument(word, words) for word in words]
    if method:
        parts[0] = words[0].split(":")[0]
    return f"def {name or op.__name__}({', '.join(parts)}) -> {result_type(op)}: ..."


def signature_of(function):
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def callable_stub(name, function, result="Any", method=False):
    signature = signature_of(function) if name != "__del__" else None  # Python 3.14 knows one
    if signature is None:
        return f"def {name}({'self, ' if method else ''}*args: Any, **kwargs: Any) -> {result}: ..."
    parts, seen_positional_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            seen_positional_only = True
        elif seen_positional_only:
            parts.append("/")
            seen_positional_only = False
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not any(p.startswith("*") for p in parts):
            parts.append("*")
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
        elif parameter.name == "self":
            parts.append("self")
        else:
            default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
            parts.append(f"{parameter.name}: Any{default}")
    if seen_positional_only:
        parts.append("/")
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


RESULTS = {"__len__": "_int", "__bool__": "_bool", "__int__": "_int", "__index__": "_int", "__float__": "_float", "__hash__": "_int", "__repr__": "str",
           "__iter__": "Iterator[Tensor]", "__setitem__": "None", "__delitem__": "None", "__str__": "str", "__format__": "str",
           "__del__": "None", "__exit__": "None"}  # fmt: skip
INHERITED = set(dir(object)) - {
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__hash__",
    "__repr__",
    "__format__",
    "__reduce_ex__",
    "__reduce__",
}


BUFFER = """
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: _int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ..."""


def class_stub(cls):
    is_open = cls.__flags__ & 1 << 10  # Py_TPFLAGS_BASETYPE
    lines = [
        "@disjoint_base" if is_open else "@final",
        f"class {cls.__name__}:",
        "    " + callable_stub("__new__", cls).replace("(", "(cls, ", 1),
    ]
    for name, value in sorted(vars(cls).items()):
        if name in INHERITED or name in ("__doc__", "__module__", "__weakref__", "__new__", "__buffer__", "__release_buffer__"):
            continue
        if isinstance(value, _core.op):
            lines.append("    " + op_stub(value, name, method=True))
        elif inspect.isgetsetdescriptor(value):
            lines += ["    @property", f"    def {name}(self) -> Any: ..."]
            if name in ("requires_grad", "grad", "data"):
                lines += [f"    @{name}.setter", f"    def {name}(self, value: Any, /) -> None: ..."]
        elif inspect.ismemberdescriptor(value):
            lines.append(f"    {name}: int")
        elif type(value).__name__ == "classmethod_descriptor":
            lines += ["    @classmethod", "    " + callable_stub(name, getattr(cls, name)).replace("(", "(cls, ", 1)]
        elif callable(value):
            lines.append("    " + callable_stub(name, value, RESULTS.get(name, "Any"), method=True))
        elif value is None:
            lines.append(f"    {name}: None  # type: ignore")
        else:
            lines.append(f"    {name}: {type(value).__name__}")
    return "\n".join(lines) + (BUFFER if cls is _core.Tensor else "")


def core_stub():
    parts = [OP]
    for name in ("Tensor", "Generator", "recording", "autocasting", "switched", "restored", "replaced", "registered"):
        parts.append(class_stub(getattr(_core, name)))
    functions = []
    for name, value in sorted(vars(_core).items()):
        if isinstance(value, _core.op):
            functions.append(op_stub(value))
        elif inspect.isbuiltin(value):
            functions.append(callable_stub(name, value, PLAIN[name]))
    parts.append("\n".join(functions))
    return CORE_HEAD + "\n\n".join(parts) + "\n"


def ops_stub():
    functions = []
    for name in ops.__all__:
        function = getattr(ops, name)
        stub = op_stub(function, name) if isinstance(function, _core.op) else callable_stub(name, function)
        functions.append(f'{stub.removesuffix(" ...")}\n    """{function.__doc__}"""')
    names = "".join(f'    "{name}",\n' for name in ops.__all__)
    return f"{OPS_HEAD}__all__ = [\n{names}]\n\n" + "\n\n".join(functions) + "\n"


def main(arguments):
    stale = []
    for path, text in ((PACKAGE / "_core.pyi", core_stub()), (PACKAGE / "ops.pyi", ops_stub())):
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text)
    if stale and "--check" in arguments:
        return f"{' and '.join(stale)} in python/transformer_c: not what the extension says; run python tools/make_stub.py"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
