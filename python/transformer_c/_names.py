"""What tab completion shows of a module, and what the errors for names of attributes and arguments that do not exist say."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Any, ClassVar, NoReturn, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


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


class _Finder:
    """The last finder that Python asks for a module. Of one that this package does not have, the error says what to use, as for an attribute.

    ``from package import name`` asks for a module where there is no attribute.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        parent, _, child = name.rpartition(".")
        if parent.partition(".")[0] != __package__ or parent not in sys.modules:
            return
        if sys._getframe(2).f_globals.get("__name__") == "importlib.util":  # its find_spec() asks whether there is one
            return
        try:
            getattr(sys.modules[parent], child)
        except MissingName as error:
            if "; " in str(error):  # without the name of the module, which import statements would look for to say less
                raise ModuleNotFoundError(str(error)) from None


sys.meta_path.append(_Finder)


class Explaining:
    """A base of classes whose instances say, of attributes that they lack, what to write instead."""

    _instead: ClassVar[Mapping[str, str]] = {}  # of names that other libraries have

    def __getattr__(self, name: str) -> Any:  # only reached when normal lookup has failed
        kind = type(self)

        def advice() -> str:
            if name in kind._instead:
                return f"; use {kind._instead[name]}"
            found = None if name.startswith("_") else nearest(name, [*dir(kind), *vars(self)])
            return f"; did you mean {found!r}?" if found else ""

        raise MissingName(f"{kind.__name__!r} object has no attribute {name!r}", advice, name, self)


class _Arguments:
    """The names of a function's arguments, and others that people try; see ``explained``."""

    def __init__(
        self,
        function: Callable[..., Any],
        hints: Mapping[str, str],
        same: Mapping[str, str],
        others: Collection[str],
        harmless: Mapping[str, tuple[Any, ...]],
    ) -> None:
        code = function.__code__
        self.own = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name not in ("self", "cls")]
        self.taken = frozenset((*self.own, *others))
        self._function, self._is_method = function, code.co_varnames[:1] in (("self",), ("cls",))
        self._hints, self._same, self._others, self._harmless = hints, same, others, harmless

    def translated(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        """`options` by the function's own names; TypeError for those that it does not know."""
        shown, unknown = self.shown(arguments), []
        for name in list(options):
            if name in self._same:
                own = self._same[name]
                if own in options:
                    raise TypeError(f"{shown}() got {name!r} and {own!r}, which are two names of one argument")
                options[own] = options.pop(name)
            elif self._is_harmless(name, options[name]):
                del options[name]
            elif name not in self.taken:
                unknown.append(f"{shown}() has no option {name!r}: {self._advice(name)}")
        if len(unknown) > 1:
            raise TypeError(f"{len(unknown)} arguments are wrong:\n" + "\n".join(f"  {line}" for line in unknown))
        if unknown:
            raise TypeError(unknown[0])
        return options

    def _is_harmless(self, name: str, given: Any) -> bool:
        return any(type(given) is type(value) and given == value for value in self._harmless.get(name, ()))

    def _advice(self, name: str) -> str:
        close = nearest(name, [*self.own, *self._others])
        return self._hints.get(name) or (f"did you mean {close!r}?" if close else f"it has {', '.join(self.own)}")

    def shown(self, arguments: tuple[Any, ...]) -> str:
        """How errors name the function: with the class of the object, which may have inherited it."""
        function = self._function
        if not (self._is_method and arguments):
            return function.__qualname__
        owner = arguments[0] if isinstance(arguments[0], type) else type(arguments[0])
        return owner.__name__ if function.__name__ == "__init__" else f"{owner.__name__}.{function.__name__}"


def explained(
    hints: Mapping[str, str],
    same: Mapping[str, str] | None = None,
    others: Collection[str] = (),
    harmless: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[_Function], _Function]:
    """Decorates a function so that it takes other names of its arguments, and that the error for an unknown one says what to write instead.

    Parameters
    ----------
    hints : mapping of str to str
        Advice for names that it does not have.
    same : mapping of str to str, optional
        Other names.
    others : collection of str
        Names that it takes as ``**options``.
    harmless : mapping of str to tuple, optional
        Names that it does not have, with the values that ask for what it does anyway.
    """

    def decorate(function: _Function) -> _Function:
        names = _Arguments(function, hints, same or {}, others, harmless or {})

        @functools.wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            if not names.taken.issuperset(options):
                options = names.translated(arguments, options)
            try:
                return function(*arguments, **options)
            except TypeError as error:
                inside = error.__traceback__ and error.__traceback__.tb_next
                if inside or not str(error).startswith(function.__qualname__):
                    raise
                raise TypeError(names.shown(arguments) + str(error).removeprefix(function.__qualname__)) from None

        return checked  # type: ignore[return-value]

    return decorate
