"""Values of a state dict for the parameters and buffers of a module: whether they fit, and what is said where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._core import Tensor
from .._fork_lock import by_thread
from .._tensor import as_tensor


class IncompatibleKeys(NamedTuple):
    """What `Module.load_state_dict` did not find, and found beyond its keys."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Loading:
    """What a load_state_dict gathers from its modules before it writes to any.

    Attributes
    ----------
    places : dict
        The parameters and buffers that are asked for values, by their keys.
    values : dict
        The values there are for them.
    """

    def __init__(self) -> None:
        self.places: dict[str, Tensor] = {}
        self.values: dict[str, Any] = {}

    def ask(self, own: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Takes what a module has, and its values of a state dict, which may be a dict of the module's own making."""
        self.places.update(own)
        self.values.update((key, state[key]) for key in own if key in state)


# The load_state_dict that runs in a thread. Set by `_core.replaced`, which an interrupt does not leave half done.
LOADING: dict[int, Loading] = by_thread()


def fitting_values(
    loading: Loading,
    state: Mapping[str, Any],
    kind: str,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> dict[str, Tensor]:
    """The gathered values as Tensors. For errors: `state`, which was to be loaded, and `kind`, the class of the module.

    Raises
    ------
    RuntimeError
        With `strict`, when keys are missing or unexpected; when there are errors.
    ValueError
        When a shape differs.
    """
    own = loading.places
    values = {key: _loadable(key, value) for key, value in loading.values.items()}
    wrong = [f"  {key}: got {value.shape}, expected {own[key].shape}" for key, value in values.items() if value.shape != own[key].shape]
    if errors:
        raise RuntimeError(f"the state dict does not fit {kind}:\n" + "\n".join([*(f"  {error}" for error in errors), *wrong]))
    if strict and (missing or unexpected):
        lines = [
            f"  {what} keys: {', '.join(map(repr, keys))}" for what, keys in (("missing", missing), ("unexpected", unexpected)) if keys
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


__all__ = ["LOADING", "Loading", "fitting_values", "taken_over"]
