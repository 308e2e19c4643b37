"""What tab completion shows of a module, and what the error for a name that it does not have says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that `name` seems to be a misspelling of, if there is one."""
    import difflib  # only where an error is made

    own = [n for n in names if not n.startswith("_")]
    folded = {n.lower(): n for n in own}
    if name.lower() in folded:
        return folded[name.lower()]
    for found in difflib.get_close_matches(name, own, 1, 0.76):
        return found
    for found in difflib.get_close_matches(name.lower(), folded, 1, 0.76):
        return folded[found]
    return None


class MissingName(AttributeError):
    """An AttributeError that looks for its advice when it is read: hasattr() only asks, and often. It is shown as an AttributeError."""

    __module__ = "builtins"

    def __init__(self, message: str, advice: Callable[[], str], name: str, obj: object) -> None:
        super().__init__(message, name=name, obj=obj)
        self._advice = advice

    def __str__(self) -> str:
        return super().__str__() + self._advice()

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


MissingName.__name__ = MissingName.__qualname__ = "AttributeError"


def public(namespace: dict[str, Any]) -> list[str]:
    """The names of a module's own: those of ``__all__``; without it, what is defined there and the submodules that are loaded."""
    own = namespace["__name__"]
    listed = set(namespace.get("__all__", ()))
    if not listed:
        listed = {name for name, value in namespace.items() if getattr(value, "__module__", None) == own}
        listed |= {name for name, value in namespace.items() if isinstance(value, ModuleType) and value.__name__ == f"{own}.{name}"}
    special = {name for name in namespace if name.startswith("__")}
    return sorted(name for name in listed | special if name.startswith("__") or not name.startswith("_"))


def hooks(
    module: str, later: Mapping[str, str] | None = None, instead: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a module.

    Parameters
    ----------
    module : str
        Its name.
    later : mapping of str to str, optional
        Names that are imported on their first use: the submodule that has the name; "" for a submodule itself.
    instead : mapping of str to str, optional
        Names that other libraries have: what to use.
    """
    later, instead = later or {}, instead or {}

    def __getattr__(name: str) -> Any:
        if name in later:
            found = importlib.import_module(f".{later[name] or name}", module)
            value = getattr(found, name) if later[name] else found
            setattr(sys.modules[module], name, value)
            return value
        raise_for(name)

    def raise_for(name: str) -> NoReturn:
        def advice() -> str:
            if name in instead:
                return f"; use {instead[name]}"
            found = None if name.startswith("_") else nearest(name, public(vars(sys.modules[module])))
            return f"; did you mean {found!r}?" if found else ""

        raise MissingName(f"module {module!r} has no attribute {name!r}", advice, name, sys.modules[module])

    def __dir__() -> list[str]:
        return sorted({*public(vars(sys.modules[module])), *later})

    return __getattr__, __dir__
