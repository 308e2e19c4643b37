"""How one vector is made of those of a text's tokens. Each way is a row of one table, for pooling, for reading and writing folders, and for messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._arguments import one_of
from .._core import Tensor
from .._joining import cat
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from .folder import flag, has, mapping


class Pooling(NamedTuple):
    """A way of pooling, of the tokens from number `first` on; those before are a prompt's.

    Attributes
    ----------
    name : str
        In arguments, and in 1_Pooling/config.json from version 6 of sentence-transformers on.
    key : str
        In that file before version 6.
    of_text : callable
        The vector (E,) of the states (T, E) of a text's tokens from number `first` on; sums are in float64.
    recorded : callable
        The same with gradients: vectors (B, E) of states (B, T, E) and `used` (B, T), which says which tokens are pooled.
    """

    name: str
    key: str
    of_text: Callable[[np.ndarray, int], np.ndarray]
    recorded: Callable[[Tensor, np.ndarray], Tensor]


def _picked(which: Callable[[np.ndarray], np.ndarray]) -> Callable[[Tensor, np.ndarray], Tensor]:
    """The states of one token of each text, whose number `which` finds in `used`."""
    return lambda states, used: states[as_tensor(np.arange(len(used))), as_tensor(which(used))]


def _largest(states: Tensor, used: np.ndarray) -> Tensor:
    return states.masked_fill(as_tensor(~used)[:, :, None], -np.inf).amax(1)


def _weighted(weights: Callable[[np.ndarray], np.ndarray]) -> Callable[[Tensor, np.ndarray], Tensor]:
    """Sums with weights, which are made of the tokens' positions from 1 on."""

    def pooled(states: Tensor, used: np.ndarray) -> Tensor:
        every = np.zeros(used.shape)
        for row, own in zip(every, used, strict=True):
            row[own] = weights(1.0 + np.flatnonzero(own))
        return (as_tensor(every[:, None]).to(states.dtype) @ states)[:, 0]

    return pooled


# In the order in which sentence-transformers joins several.
POOLINGS = {
    row.name: row
    for row in (
        Pooling("cls", "pooling_mode_cls_token", lambda x, first: x[0], _picked(lambda used: used.argmax(1))),
        Pooling("max", "pooling_mode_max_tokens", lambda x, first: x.max(0), _largest),
        Pooling(
            "mean",
            "pooling_mode_mean_tokens",
            lambda x, first: x.mean(0, dtype=np.float64),
            _weighted(lambda positions: np.full(len(positions), 1 / len(positions))),
        ),
        Pooling(
            "mean_sqrt_len_tokens",
            "pooling_mode_mean_sqrt_len_tokens",
            lambda x, first: x.sum(0, dtype=np.float64) / np.sqrt(len(x)),
            _weighted(lambda positions: np.full(len(positions), 1 / np.sqrt(len(positions)))),
        ),
        Pooling(
            "weightedmean",
            "pooling_mode_weightedmean_tokens",
            lambda x, first: np.average(x.astype(np.float64), 0, first + np.arange(1, len(x) + 1)),
            _weighted(lambda positions: positions / positions.sum()),
        ),
        Pooling(
            "lasttoken",
            "pooling_mode_lasttoken",
            lambda x, first: x[-1],
            _picked(lambda used: used.shape[1] - 1 - used[:, ::-1].argmax(1)),
        ),
    )
}


def names_of(pooling: Any) -> tuple[str, ...]:
    """The names in an argument: one, or several whose vectors are joined."""
    if not isinstance(pooling, (str, tuple, list)):
        raise TypeError(f"pooling must be one or several of {_known()}, got {pooling!r:.80} ({type(pooling).__name__})")
    names = (pooling,) if isinstance(pooling, str) else tuple(pooling)
    if not names:
        raise ValueError(f"pooling names nothing; expected one or several of {_known()}")
    return tuple(one_of("pooling", name, tuple(POOLINGS)) for name in names)


def of_text(poolings: Sequence[str], states: np.ndarray, skipped: int) -> np.ndarray:
    """The vector of the states (T, E) of a text's tokens, of which the first `skipped` are not pooled, unless there are no others."""
    first = min(skipped, len(states) - 1)
    return np.concatenate([POOLINGS[name].of_text(states[first:], first) for name in poolings])


def recorded(poolings: Sequence[str], states: Tensor, lengths: np.ndarray, skipped: int) -> Tensor:
    """The same of the states (B, T, E) of several texts of these lengths, with gradients."""
    positions = np.arange(states.shape[1])
    used = (positions >= np.minimum(skipped, lengths - 1)[:, None]) & (positions < lengths[:, None])
    found = [POOLINGS[name].recorded(states, used) for name in poolings]
    return found[0] if len(found) == 1 else cat(found, 1)


def read_pooling(folder: str) -> tuple[tuple[str, ...], bool]:
    """(names of poolings, whether the prompt counts) of a folder's config.json."""
    path = os.path.join(folder, "config.json")
    if not has(path):
        raise CheckpointError(f"modules.json names {folder!r}, but there is no {path!r}; was all of the model downloaded?")
    values = mapping(path)
    modes = values.get("pooling_mode")
    if modes is None:
        modes = [row.name for row in POOLINGS.values() if flag(path, values, row.key, False)] or "mean"
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not all(isinstance(name, str) and name in POOLINGS for name in modes):
        raise CheckpointError(f"{path!r} has the pooling {modes!r:.80}; supported are {_known()}")
    return tuple(modes), flag(path, values, "include_prompt", True)


def pooling_config(poolings: tuple[str, ...], width: int, include_prompt: bool) -> dict[str, Any]:
    """The contents of 1_Pooling/config.json, as all versions read it, or from 6 on where the order is not that of those before."""
    if tuple(name for name in POOLINGS if name in poolings) != poolings:
        return {"embedding_dimension": width, "pooling_mode": list(poolings), "include_prompt": include_prompt}
    modes = {row.key: row.name in poolings for row in POOLINGS.values()}
    return {"word_embedding_dimension": width, **modes, "include_prompt": include_prompt}


def _known() -> str:
    return ", ".join(POOLINGS)
