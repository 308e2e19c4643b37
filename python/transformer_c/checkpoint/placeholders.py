"""Placeholders in a loaded file for classes, functions and objects that only their own libraries could make."""

from __future__ import annotations

from typing import Any


class GlobalName:
    """The name of a class or function that a pickle refers to, such as a callback's class. Nothing was imported.

    Attributes
    ----------
    name : str
        Module and name joined by a dot.

    Examples
    --------
    >>> from transformer_c.checkpoint import GlobalName
    >>> GlobalName("torch.float32")
    GlobalName('torch.float32')
    >>> GlobalName("torch.float32") == GlobalName("torch.float32")
    True
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"GlobalName({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalName) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class UnknownObject(dict):
    """The contents of an object of an unknown class; no code of the class has run.

    As a dict it has the entries of an object whose class derives from dict (Lightning's ``AttributeDict``), and the
    attributes of an ``argparse.Namespace`` or ``types.SimpleNamespace``.

    Attributes
    ----------
    name : str
        The class: module and name joined by a dot.
    arguments : tuple
        The arguments with which the object was made.
    state : object
        Its attributes, mostly a dict; None when the file has none.
    elements : list
        The elements of an object whose class derives from list.

    Examples
    --------
    >>> from transformer_c.checkpoint import UnknownObject
    >>> options = UnknownObject("argparse.Namespace")
    >>> options["lr"] = 5e-4
    >>> options
    UnknownObject('argparse.Namespace', {'lr': 0.0005})
    """

    __slots__ = ("arguments", "elements", "name", "state")

    def __init__(self, name: str, arguments: tuple = ()) -> None:
        super().__init__()
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        self.elements: list = []

    def __repr__(self) -> str:
        parts = [repr(self.name), dict.__repr__(self)]
        parts += [f"{key}={value!r}" for key in ("arguments", "state", "elements") if (value := getattr(self, key))]
        return f"UnknownObject({', '.join(parts)})"

    def __reduce__(self) -> tuple:
        slots = {"state": self.state, "elements": self.elements}
        return UnknownObject, (self.name, self.arguments), (None, slots), None, iter(self.items())
