"""Writes python/transformer_c/_core.pyi from the extension itself, so that the stub cannot drift from it.

python tools/make_stub.py            writes the file
python tools/make_stub.py --check    exit status 1 when the file is not what would be written
"""

import inspect
import re
import sys
from pathlib import Path

from transformer_c import _core

TARGET = Path(__file__).parents[1] / "python/transformer_c/_core.pyi"
HEAD = '''"""The C core. Written by tools/make_stub.py from the extension itself."""

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
OP = """@final
class op:
    __name__: str
    __qualname__: str
    __doc__: str
    spec: str
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
    def __reduce__(self) -> Any: ..."""
TYPES = {
    "t": "ArrayLike | Tensor",
    "T": "Sequence[ArrayLike | Tensor]",
    "i": "_int",
    "w": "_int",
    "n": "_int | ArrayLike | Tensor",
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
    "memory_fail_after": "None", "grad_enabled": "bool", "set_grad_enabled": "bool",
}  # fmt: skip


def argument(text, words):
    """`name: type = default` of one of the words of a spec."""
    if ":" not in text:  # another name of an argument
        alias, name = text.split("=")
        (meant,) = [word for word in words if word.startswith(f"{name}:")]
        return f"{alias}: {TYPES[meant.split(':')[1][0]]} | None = None"
    match = re.fullmatch(r"(\w+):(\w)\+?(\*?)(\??)(?:=(.*))?", text)
    name, kind, spread, optional, default = match.groups()
    if spread:
        return f"*{name}: Any"
    annotation = TYPES[kind] + (" | None" if optional or (default == "None" and kind != "o") else "")
    if default is None:
        return f"{name}: {annotation}"
    if kind == "f" and default != "None":
        default = repr(float(default))
    return f"{name}: {annotation} = {default!r}" if kind in "sc" and default != "None" else f"{name}: {annotation} = {default}"


def op_stub(op, method=False):
    words = op.spec.split()
    parts = ["*" if word == "|" else argument(word, words) for word in words]
    if method:
        parts[0] = words[0].split(":")[0]
    return f"def {op.__name__}({', '.join(parts)}) -> Any: ..."


def signature_of(function):
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def callable_stub(name, function, result="Any", method=False):
    signature = signature_of(function)
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
           "__release_buffer__": "None"}  # fmt: skip
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


def class_stub(cls):
    lines = ["@disjoint_base", f"class {cls.__name__}:", "    " + callable_stub("__new__", cls).replace("(", "(cls, ", 1)]
    for name, value in sorted(vars(cls).items()):
        if name in INHERITED or name in ("__doc__", "__module__", "__weakref__", "__new__"):
            continue
        if isinstance(value, _core.op):
            lines.append("    " + op_stub(value, method=True).replace(f"def {value.__name__}(", f"def {name}(", 1))
        elif inspect.isgetsetdescriptor(value):
            lines += ["    @property", f"    def {name}(self) -> Any: ..."]
            if name in ("requires_grad", "grad", "data"):
                lines += [f"    @{name}.setter", f"    def {name}(self, value: Any, /) -> None: ..."]
        elif type(value).__name__ == "classmethod_descriptor":
            lines += ["    @classmethod", "    " + callable_stub(name, getattr(cls, name)).replace("(", "(cls, ", 1)]
        elif callable(value):
            lines.append("    " + callable_stub(name, value, RESULTS.get(name, "Any"), method=True))
        elif value is None:
            lines.append(f"    {name}: None  # type: ignore")
        else:
            lines.append(f"    {name}: {type(value).__name__}")
    return "\n".join(lines)


def stub():
    parts = [OP]
    for name in ("Tensor", "Generator"):
        parts.append(class_stub(getattr(_core, name)))
    functions = []
    for name, value in sorted(vars(_core).items()):
        if isinstance(value, _core.op):
            functions.append(op_stub(value))
        elif inspect.isbuiltin(value):
            functions.append(callable_stub(name, value, PLAIN[name]))
    parts.append("\n".join(functions))
    return HEAD + "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    text = stub()
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.exists() and TARGET.read_text() == text
            else "python/transformer_c/_core.pyi is stale: run python tools/make_stub.py"
        )
    TARGET.write_text(text)
