"""Runs only the opcodes of a pickle that make data.

Python's own unpickler with `find_class` overridden would be less work, but it would still call what it is given, set any
attribute of any object, let 6 bytes allocate a memo of gigabytes, and hash keys that take for ever. This machine has only the
opcodes that a pickle of data needs. A global is only a name; `calls` maps the names that may be called to functions.
Everything made is charged to a budget proportional to the pickle's length, which bounds memory and time.
"""

from __future__ import annotations

import pickletools
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from .errors import CheckpointError
from .placeholders import GlobalName, UnknownObject

MAX_INTEGER_BYTES = 64  # the state of a random generator has integers of 16
MAX_KEY_LENGTH = 4096  # characters; equal keys are compared in full, again and again
MAX_NAME_LENGTH = 512

# Costs of the objects made, in bytes or a little more; for containers, including the check of the value at the end.
_SLOT = 16
_MARK = 64
_CONTAINER = 200
_SET = 350
_ENTRY = 100
_OBJECT = 400

_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # protocol 2 uses Python 2's names
_RECORDS = ("argparse.Namespace", "types.SimpleNamespace")


class PickleMachine:
    """Makes the value that a pickle describes.

    Parameters
    ----------
    data : bytes
        The pickle.
    calls : mapping of str to callable
        The functions that may be called, (machine, arguments) -> result, by the name of the global.
    persistent : callable
        Makes the value of a persistent id.
    python2 : bool, default False
        Also read the strings of Python 2, which are bytes.

    Notes
    -----
    ``run`` returns the value or raises CheckpointError.
    """

    def __init__(self, data: bytes, calls: Mapping[str, Callable], persistent: Callable[[Any], Any], python2: bool = False) -> None:
        self._data = data
        self._steps = {**_STEPS, **_PYTHON_2_STEPS} if python2 else _STEPS
        self._at = 0
        self._calls = calls
        self._persistent = persistent
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under each open mark
        self._memo: list[Any] = []
        self._budget = (16 << 20) + 32 * len(data)
        self.unfinished: dict[
            int, tuple[np.ndarray, Callable]
        ] = {}  # by id, the NumPy arrays without contents so far and the functions that fill them

    def run(self) -> Any:
        """The value of the pickle."""
        while True:
            code = self._take(1)[0]
            if code == _STOP:
                break
            step = self._steps.get(code)
            if step is None:
                self._refuse(code)
            step(self)
        value = self._pop()
        if self._stack or self._below or self._at != len(self._data):
            raise CheckpointError("the pickle goes on after its value")
        if self.unfinished:
            raise CheckpointError("the pickle has a NumPy array without contents")
        return value

    def spend(self, cost: int) -> None:
        """Charges bytes of memory, or steps of work, to the budget."""
        self._budget -= cost
        if self._budget < 0:
            raise CheckpointError("the pickle makes far more than its size can hold: it was made to exhaust memory")

    # ---- reading ------------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise CheckpointError(f"the pickle is cut off, or claims {count} bytes that it does not have")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + MAX_NAME_LENGTH)
        if end < 0:
            raise CheckpointError("the pickle is cut off, or has a name without an end")
        line = self._take(end + 1 - self._at)[:-1]
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise CheckpointError("the pickle has a name that is not UTF-8") from None

    # ---- the stack ----------------------------------------------------------------------------------------------------

    def _push(self, value: Any, cost: int = 0) -> None:
        self.spend(_SLOT + cost)
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack:
            raise CheckpointError("the pickle takes more from its stack than it contains")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack:
            raise CheckpointError("the pickle takes more from its stack than it contains")
        return self._stack[-1]

    def _mark(self) -> None:
        self.spend(_MARK)
        self._below.append(self._stack)
        self._stack = []

    def _pop_to_mark(self) -> list[Any]:
        if not self._below:
            raise CheckpointError("the pickle lacks a mark")
        items, self._stack = self._stack, self._below.pop()
        return items

    def _put(self, index: int) -> None:
        if index > len(self._memo):
            raise CheckpointError("the pickle leaves gaps in its memo")
        if index == len(self._memo):
            self.spend(_SLOT)
            self._memo.append(None)
        self._memo[index] = self._top()

    def _get(self, index: int) -> None:
        if index >= len(self._memo):
            raise CheckpointError("the pickle refers to something that it has not made")
        self._push(self._memo[index])

    # ---- numbers, text, bytes -------------------------------------------------------------------------------------------

    def _protocol(self) -> None:
        version = self._number(1)
        if version > 5:
            raise CheckpointError(f"the pickle has protocol {version}; protocols 2 to 5 are read")

    def _frame(self) -> None:
        size = self._number(8)
        if self._at + size > len(self._data):
            raise CheckpointError(f"the pickle is cut off, or claims {size} bytes that it does not have")

    def _long(self, size: int) -> None:
        if size > MAX_INTEGER_BYTES:
            raise CheckpointError(f"the pickle has an integer of {size} bytes; at most {MAX_INTEGER_BYTES} are read")
        self._push(int.from_bytes(self._take(size), "little", signed=True), 64)

    def _text(self, size: int) -> None:
        try:
            text = self._take(size).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise CheckpointError("the pickle has text that is not UTF-8") from None
        self._push(text, sys.getsizeof(text))

    def _bytes(self, size: int, kind: type = bytes) -> None:
        self._push(kind(self._take(size)), size + 64)

    # ---- containers -----------------------------------------------------------------------------------------------------

    def _tuple(self, count: int | None) -> None:
        items = self._pop_to_mark() if count is None else [self._pop() for _ in range(count)][::-1]
        self._push(tuple(items), _CONTAINER + 8 * len(items))

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is UnknownObject:
            target = target.elements
        if type(target) is not list:
            raise CheckpointError(f"the pickle appends to a {_kind(target)}")
        self.spend(_SLOT * len(items))
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) not in (dict, OrderedDict, UnknownObject):
            raise CheckpointError(f"the pickle sets items of a {_kind(target)}")
        if len(items) % 2:
            raise CheckpointError("the pickle sets a key without a value")
        self.spend(_ENTRY * len(items))
        for key, value in zip(items[::2], items[1::2], strict=True):
            check_key(key)
            target[key] = value

    def _add_items(self) -> None:
        items = self._pop_to_mark()
        target = self._top()
        if type(target) is not set:
            raise CheckpointError(f"the pickle adds elements to a {_kind(target)}")
        target.update(self.checked_elements(items))

    def _frozenset(self) -> None:
        self._push(frozenset(self.checked_elements(self._pop_to_mark())))

    def checked_elements(self, items: Any) -> Any:
        """The elements of a set, each checked and charged to the budget."""
        self.spend(_SET + _ENTRY * len(items))
        for item in items:
            check_key(item)
        return items

    # ---- globals, objects -----------------------------------------------------------------------------------------------

    def _global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > MAX_NAME_LENGTH:
            raise CheckpointError("the pickle names a global by something other than a module and a name")
        self._push(GlobalName(f"{_RENAMED.get(module, module)}.{name}"), 200)

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(module, name)

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if type(arguments) is not tuple:
            raise CheckpointError("the pickle calls something without a tuple of arguments")
        self._push(self.call(function, arguments))

    def call(self, function: Any, arguments: tuple) -> Any:
        """The result of calling a global; refused unless it is in `calls`."""
        if type(function) is not GlobalName:
            raise CheckpointError(f"the pickle calls a {_kind(function)}")
        known = self._calls.get(function.name)
        if known is None:
            raise CheckpointError(
                f"the pickle calls {function.name!r}, and a file may have nothing called but what makes tensors and plain data. "
                "If you trust the file, save the parts that you need again: with PyTorch and the libraries it was made with, "
                "torch.save(torch.load(path, weights_only=False)['state_dict'], new_path)"
            )
        self.spend(_CONTAINER)
        return known(self, arguments)

    def _new_object(self, has_keywords: bool) -> None:
        keywords = self._pop() if has_keywords else {}
        arguments, cls = self._pop(), self._pop()
        if type(arguments) is not tuple or type(keywords) is not dict or type(cls) is not GlobalName:
            raise CheckpointError("the pickle makes an object of something that is not a class")
        self._push(UnknownObject(cls.name, (*arguments, keywords) if keywords else arguments), _OBJECT + 8 * len(arguments))

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if id(target) in self.unfinished:
            array, fill = self.unfinished.pop(id(target))
            fill(self, array, state)
        elif type(target) is UnknownObject:
            if target.name in _RECORDS and type(state) is dict:
                self.spend(_ENTRY * len(state))
                target.update(state)
            else:
                target.state = state
        elif type(target) is not OrderedDict:
            raise CheckpointError(f"the pickle sets the state of a {_kind(target)}")
        elif (metadata := _metadata_of(state)) is not None:
            target._metadata = metadata  # type: ignore[attr-defined]

    def _persistent_id(self) -> None:
        self._push(self._persistent(self._pop()))

    def _refuse(self, code: int) -> NoReturn:
        known = next((opcode.name for opcode in pickletools.opcodes if opcode.code == chr(code)), None)
        if known is None:
            raise CheckpointError(f"the pickle is damaged: {code:#04x} at byte {self._at - 1} is not an opcode")
        raise CheckpointError(f"the pickle has the opcode {known}, which torch.save does not write and which is not run")


def _metadata_of(state: Any) -> dict[str, dict[str, Any]] | None:
    """The versions of modules that PyTorch keeps beside the values of a state dict; None for anything else."""
    found = state.get("_metadata") if type(state) is dict else None
    if type(found) is not OrderedDict or not all(type(name) is str and type(of) is dict for name, of in found.items()):
        return None
    return found if all(type(value) in (int, str, bool, float) for of in found.values() for value in of.values()) else None


def check_key(key: Any) -> None:
    """Refuses keys and elements whose hashes could be made to collide, or that are slow to compare."""
    if isinstance(key, (str, bytes)):
        if len(key) > MAX_KEY_LENGTH:
            raise CheckpointError(f"the pickle has a key of {len(key)} characters; at most {MAX_KEY_LENGTH} are read")
    elif isinstance(key, int):
        if abs(key) >= 2**63:
            raise CheckpointError("the pickle has an integer of more than 64 bits as a key")
    elif key is not None and not isinstance(key, (float, GlobalName)):
        raise CheckpointError(f"the pickle has a {_kind(key)} as a key; str, bytes, numbers, None and names of globals are read")


def _kind(value: Any) -> str:
    return f"{value.name!r}" if isinstance(value, (GlobalName, UnknownObject)) else type(value).__name__


_STOP = ord(".")

_STEPS: dict[int, Callable[[PickleMachine], None]] = {
    0x80: PickleMachine._protocol,
    0x95: PickleMachine._frame,
    ord("N"): lambda m: m._push(None),
    0x88: lambda m: m._push(True),
    0x89: lambda m: m._push(False),
    ord("K"): lambda m: m._push(m._number(1)),
    ord("M"): lambda m: m._push(m._number(2), 32),
    ord("J"): lambda m: m._push(int.from_bytes(m._take(4), "little", signed=True), 32),
    0x8A: lambda m: m._long(m._number(1)),
    0x8B: lambda m: m._long(m._number(4)),
    ord("G"): lambda m: m._push(struct.unpack(">d", m._take(8))[0], 32),
    ord("X"): lambda m: m._text(m._number(4)),
    0x8C: lambda m: m._text(m._number(1)),
    0x8D: lambda m: m._text(m._number(8)),
    ord("B"): lambda m: m._bytes(m._number(4)),
    ord("C"): lambda m: m._bytes(m._number(1)),
    0x8E: lambda m: m._bytes(m._number(8)),
    0x96: lambda m: m._bytes(m._number(8), bytearray),
    ord(")"): lambda m: m._push(()),
    ord("]"): lambda m: m._push([], _CONTAINER),
    ord("}"): lambda m: m._push({}, _CONTAINER),
    0x8F: lambda m: m._push(set(), _SET),
    ord("("): PickleMachine._mark,
    ord("t"): lambda m: m._tuple(None),
    0x85: lambda m: m._tuple(1),
    0x86: lambda m: m._tuple(2),
    0x87: lambda m: m._tuple(3),
    ord("a"): lambda m: m._append([m._pop()]),
    ord("e"): lambda m: m._append(m._pop_to_mark()),
    ord("s"): lambda m: m._set_items([m._pop(), m._pop()][::-1]),
    ord("u"): lambda m: m._set_items(m._pop_to_mark()),
    0x90: PickleMachine._add_items,
    0x91: PickleMachine._frozenset,
    ord("q"): lambda m: m._put(m._number(1)),
    ord("r"): lambda m: m._put(m._number(4)),
    0x94: lambda m: m._put(len(m._memo)),
    ord("h"): lambda m: m._get(m._number(1)),
    ord("j"): lambda m: m._get(m._number(4)),
    ord("c"): lambda m: m._global(m._line(), m._line()),
    0x93: PickleMachine._stack_global,
    ord("R"): PickleMachine._reduce,
    0x81: lambda m: m._new_object(has_keywords=False),
    0x92: lambda m: m._new_object(has_keywords=True),
    ord("b"): PickleMachine._build,
    ord("Q"): PickleMachine._persistent_id,
}

_PYTHON_2_STEPS: dict[int, Callable[[PickleMachine], None]] = {
    ord("U"): lambda m: m._bytes(m._number(1)),
    ord("T"): lambda m: m._bytes(m._number(4)),
}
