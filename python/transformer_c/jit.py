"""``script``, which PyTorch's programs write before functions and modules: there is nothing to compile here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ._names import hooks

T = TypeVar("T")


def script(obj: T) -> T:
    """Returns what it is given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> @tc.jit.script
    ... def double(x):
    ...     return x + x
    >>> double(tc.ones(2))
    tensor([2., 2.])
    """
    return obj


__all__ = ["script"]

if not TYPE_CHECKING:
    _SAVED = "tc.save(model.state_dict(), path), or tc.export_onnx(model, example, path)"
    __getattr__, __dir__ = hooks(__name__, instead={"trace": "the module itself", **dict.fromkeys(("load", "save"), _SAVED)})
    del _SAVED
