"""Values of a state dict for the parameters and buffers of a module: whether they fit, and what is said where they do not."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from .._core import Tensor
from .._tensor import as_tensor


class Loading(list[str]):
    """The keys that are missing, a list that modules hand on as they look for their keys, and what else they find.

    Attributes
    ----------
    places : dict
        The parameters and buffers that may get values, by their keys.
    given : dict
        Their values in the state dict, or in a module's own copy of it.
    searched : dict
        The mapping where a module looked for its keys, by their beginning; not of one that takes its values itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, Tensor] = {}
        self.given: dict[str, Any] = {}
        self.searched: dict[str, Mapping[str, Any]] = {}

    def find(self, state: Mapping[str, Any], prefix: str, places: Mapping[str, Tensor]) -> None:
        """Looks for the keys of a module."""
        self.places.update(places)
        self.given.update((key, state[key]) for key in places if key in state)
        self.searched[prefix] = state

    def unexpected(self, state: Mapping[str, Any], prefixes: Container[str]) -> list[str]:
        """The keys of `state` that no module has, which begin with `prefixes`: as in PyTorch the module that a key is of decides."""
        return [key for key in state if key not in self.places and key in self.searched.get(_owner(key, prefixes), ())]


def _owner(key: Any, prefixes: Container[str]) -> str:
    """The longest of `prefixes` that `key` begins with."""
    prefix = key if isinstance(key, str) else ""
    while prefix:
        prefix = prefix[: prefix.rfind(".", 0, -1) + 1]
        if prefix in prefixes:
            break
    return prefix


def fitting_values(
    own: Mapping[str, Tensor], loading: Loading, kind: str, strict: bool, unexpected: list[str], errors: list[str], state: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The given values as Tensors, for `own`, the places detached. For errors: `kind`, the class of the module, and `state`, which has all keys.

    Raises
    ------
    RuntimeError
        With `strict`, when keys are missing or unexpected; when there are errors.
    ValueError
        When a shape differs.
    """
    values = {key: _loadable(key, value) for key, value in loading.given.items()}
    wrong = [f"  {key}: got {value.shape}, expected {own[key].shape}" for key, value in values.items() if value.shape != own[key].shape]
    if errors:
        raise RuntimeError(f"the state dict does not fit {kind}:\n" + "\n".join([*(f"  {error}" for error in errors), *wrong]))
    if strict and (loading or unexpected):
        lines = [
            f"  {what} keys: {', '.join(map(repr, keys))}" for what, keys in (("missing", loading), ("unexpected", unexpected)) if keys
        ]
        raise RuntimeError(
            f"the state dict does not fit {kind} (strict=False ignores the keys):\n" + "\n".join(lines + wrong + _renaming(own, state))
        )
    if wrong:
        raise ValueError(f"shapes in the state dict do not fit {kind}:\n" + "\n".join(wrong))
    return values


def taken_over(own: Mapping[str, Tensor], values: Mapping[str, Tensor], state: Mapping[str, Any]) -> dict[str, Tensor]:
    """`values` as new memory of `own`: in their own dtypes where both are floating or neither is; copies of arrays that cannot be written to."""
    found = {}
    for key, value in values.items():
        is_floating, was_floating = (x.dtype.kind in "fV" for x in (value, own[key]))
        data = value.detach() if is_floating == was_floating else value.to(own[key].dtype)
        given = state[key]
        found[key] = data.clone() if isinstance(given, np.ndarray) and not given.flags.writeable else data
    return found


def _detached(value: Any) -> Any:
    """`value` detached if it can be: np.asarray refuses another library's tensor that requires a gradient."""
    return value.detach() if hasattr(value, "detach") and not isinstance(value, Tensor) else value


def _renaming(own: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    """A line that says what to load instead, where all keys lack a prefix or have one too many, or are those of a mapping inside."""
    for key, value in state.items():
        if isinstance(value, Mapping) and not own.keys().isdisjoint(value):
            return [f"  {key!r} is a state dict: load state[{key!r}]"]
    given = [key for key in state if isinstance(key, str)]
    for longer, shorter, line in (
        (given, list(own), "  all keys begin with {0!r}: load {{key.removeprefix({0!r}): value for key, value in state.items()}}"),
        (list(own), given, "  all keys lack {0!r}: load {{{0!r} + key: value for key, value in state.items()}}"),
    ):
        ends = [key for key in longer if shorter and key.endswith("." + shorter[0])]
        for prefix in {end.removesuffix(shorter[0]) for end in ends}:
            if set(longer) == {prefix + key for key in shorter}:
                return [line.format(prefix)]
    return []


def _loadable(key: str, value: Any) -> Tensor:
    """A value of a state dict as a Tensor; the error of one that cannot become one names its key."""
    try:
        return as_tensor(_detached(value))
    except (TypeError, ValueError) as error:
        raise type(error)(f"the value of {key!r} in the state dict cannot be loaded: {error}") from None


__all__ = ["Loading", "fitting_values", "taken_over"]
