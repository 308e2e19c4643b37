"""The arguments of a module's or data module's ``__init__``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import FrameType, SimpleNamespace
from typing import Any


class Hyperparameters(SimpleNamespace):
    """The arguments of a module's ``__init__``, available as attributes and by key."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self):
        return iter(self.__dict__)

    def keys(self):
        """Their names."""
        return self.__dict__.keys()

    def items(self):
        """Names and values."""
        return self.__dict__.items()


def arguments_of(frame: FrameType | None, target: Any) -> dict[str, Any]:
    """The arguments of the calls of ``target.__init__`` from `frame` outwards; those of the outermost, the subclass's, win."""
    found: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get(frame.f_code.co_varnames[0]) is target:
        local = frame.f_locals
        kinds = inspect.getargvalues(frame)
        arguments = {name: local[name] for name in kinds.args if local[name] is not target}
        code = frame.f_code
        keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        arguments.update({name: local[name] for name in keyword_only})
        if kinds.keywords:
            arguments.update(local[kinds.keywords])
        found = {**found, **arguments}
        frame = frame.f_back
    return found


class HasHyperparameters:
    """For a class whose ``__init__`` calls ``save_hyperparameters``."""

    hparams: Hyperparameters

    def save_hyperparameters(self, *names: str, ignore: str | Iterable[str] | None = None, logger: bool = True) -> None:
        """Saves the arguments of the subclass's ``__init__`` in ``hparams``; to be called from there.

        Parameters
        ----------
        *names : str
            Save only these; if none are given, save all.
        ignore : str or iterable of str, optional
            Do not save these.
        logger : bool
            Accepted; the trainer's loggers write all hyper-parameters.

        Raises
        ------
        TypeError
            For the arguments themselves, such as a dict, instead of their names.
        ValueError
            For a name that is no argument's.
        """
        left_out = {ignore} if isinstance(ignore, str) else set(ignore or ())
        here = inspect.currentframe()
        found = arguments_of(here.f_back if here is not None else None, self)
        for name in names:
            if not isinstance(name, str):
                place = next((key for key, value in found.items() if value is name), "name")
                raise TypeError(
                    f"save_hyperparameters() takes the names of arguments of __init__, not a {type(name).__name__}; write "
                    f"save_hyperparameters({place!r}), which is self.hparams.{place} afterwards"
                )
            if name not in found:
                raise ValueError(f"save_hyperparameters({name!r}): __init__ has no such argument; it has {', '.join(found)}")
        for name, value in found.items():
            if name not in left_out and (not names or name in names):
                setattr(self.hparams, name, value)
