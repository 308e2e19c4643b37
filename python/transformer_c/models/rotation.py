"""Rotary positions as config.json describes them: how fast each pair of features turns, also where that is scaled for long texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._tensor import arange, as_tensor
from ..checkpoint import CheckpointError
from .config import Config

_LENGTH = "original_max_position_embeddings"
_LEAST, _MOST = 1e-9, 1e30  # of numbers above 0
_SHARE = "partial_rotary_factor"
_ANY = ("rope_type", "type", "rope_theta", "finetuned")  # of every type; `type` is that of older files, and the last one changes nothing


@dataclass
class Rotation:
    """How queries and keys are rotated.

    Attributes
    ----------
    base : float
        Of the angles: see ``tc.functional.rotary``.
    longest : int
        How many tokens a text may have.
    frequencies : ndarray of float64, shape (D / 2,), or None
        By what the angle of each pair of features grows from a token to the next, where it is not what `base` says.
    factor : float
        Of the cosines and sines.
    size : int or None
        How many features of a head are rotated, the first ones; None: all.
    """

    base: float
    longest: int
    frequencies: np.ndarray | None = None
    factor: float = 1.0
    size: int | None = None
    _moved: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)  # frequencies on GPUs, copied there once

    @property
    def squared(self) -> float:
        """What scores are multiplied by: the factor twice where all features are rotated; otherwise ``__call__`` applies it."""
        return 1.0 if self.frequencies is None or self.size is not None else self.factor**2

    @property
    def scale(self) -> float | None:
        """Of the scores of attention; None: the usual one."""
        return None if self.squared == 1 or self.frequencies is None else self.squared / (2 * len(self.frequencies)) ** 0.5

    def __call__(self, x: Tensor, places: Tensor | None) -> Tensor:
        """x (B, H, T, D), rotated, without the factor where ``squared`` has it; `places`: positions that broadcast to (B, H, T), None: 0, 1, ..."""
        if self.size is None:
            return self._rotated(x, places)
        rotated = self._rotated(x[..., : self.size], places)
        return cat((rotated if self.factor == 1 else rotated * self.factor, x[..., self.size :]), -1)

    def _rotated(self, x: Tensor, places: Tensor | None) -> Tensor:
        if self.frequencies is None:
            return F.rotary(x, places, base=self.base)
        places = arange(x.shape[2], device=x.device) if places is None else places
        if x.is_cuda and x.device not in self._moved:
            self._moved[x.device] = as_tensor(self.frequencies).to(x.device)
        angles = places[..., None] * (self._moved[x.device] if x.is_cuda else as_tensor(self.frequencies))
        pairs = x.unflatten(-1, (2, -1)).transpose(-1, -2)  # rows of two features, whose angles are their positions
        return F.rotary(pairs, angles).transpose(-1, -2).flatten(-2)


def _linear(frequencies: np.ndarray, base: float, values: Mapping[str, Any]) -> np.ndarray:
    """Positions are divided by the factor (Chen et al. 2023)."""
    return frequencies / values["factor"]


def _llama3(frequencies: np.ndarray, base: float, values: Mapping[str, Any]) -> np.ndarray:
    """Slow pairs are divided by the factor, by how often they turn in a text of the original length (Llama 3.1)."""
    turns = frequencies * values[_LENGTH] / (2 * pi)
    low, high = values["low_freq_factor"], values["high_freq_factor"]
    if high <= low:
        raise ValueError("a high_freq_factor above low_freq_factor")
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / values["factor"])


def _yarn(frequencies: np.ndarray, base: float, values: Mapping[str, Any]) -> np.ndarray:
    """Likewise, by a ramp from pair to pair (Peng et al. 2023)."""
    if values["beta_fast"] < values["beta_slow"]:
        raise ValueError("a beta_fast of at least beta_slow")
    if base <= 1:
        raise ValueError("a rope_theta above 1")
    half = len(frequencies)
    turns = values[_LENGTH] / (2 * pi)
    first, last = (half * log(turns / values[name]) / log(base) for name in ("beta_fast", "beta_slow"))
    if values["truncate"]:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    divided = np.clip((np.arange(half) - first) / (last - first or 0.001), 0, 1)
    return frequencies * (1 - divided + divided / values["factor"])


def _yarn_factor(values: Mapping[str, Any]) -> float:
    """Of cosines and sines: the one that is said, or one that grows with the length of texts."""

    def grown(weight: float) -> float:
        return 1 + 0.1 * weight * log(max(values["factor"], 1))

    if values["attention_factor"] is not None:
        return values["attention_factor"]
    if values["mscale"] and values["mscale_all_dim"]:
        return grown(values["mscale"]) / grown(values["mscale_all_dim"])
    return grown(1)


def _longrope(frequencies: np.ndarray, base: float, values: Mapping[str, Any]) -> np.ndarray:
    """Each pair is divided by its own factor (Ding et al. 2024): by those of short texts, as longer ones would change the keys that a cache has."""
    for name in ("short_factor", "long_factor"):
        if len(values[name]) != len(frequencies):
            raise ValueError(f"{len(frequencies)} numbers as {name}")
    return frequencies / np.array(values["short_factor"], np.float64)


def _longrope_factor(values: Mapping[str, Any]) -> float:
    if values["attention_factor"] is not None:
        return values["attention_factor"]
    if values[_LENGTH] == 1:
        raise ValueError(f"an {_LENGTH} above 1")
    return 1.0 if values["factor"] <= 1 else sqrt(1 + log(values["factor"]) / log(values[_LENGTH]))


class _Type(NamedTuple):
    """A rope_type.

    Attributes
    ----------
    scaled : callable
        The frequencies, of those without scaling, the base, and the type's values by their names.
    values : mapping
        The names of the values, and what they are where config.json does not say; NaN: it has to. The original length is
        max_position_embeddings there, and a factor that is None by how much that is longer.
    factor : callable
        That of cosines and sines, of the values.
    longest : callable
        How many tokens a text may have, of the values and max_position_embeddings.
    of_all_layers : bool
        Whether it is refused where each kind of layers has its own.
    """

    scaled: Callable[[np.ndarray, float, Mapping[str, Any]], np.ndarray | None]
    values: Mapping[str, Any]
    factor: Callable[[Mapping[str, Any]], float] = lambda values: 1.0
    longest: Callable[[Mapping[str, Any], int], int] = lambda values, longest: longest
    of_all_layers: bool = False


def _grown(values: Mapping[str, Any], longest: int) -> int:
    return max(longest, int(min(values[_LENGTH] * values["factor"], 2**31 - 1)))


_NEEDED = float("nan")
_LINEAR: dict[str, Any] = {"factor": _NEEDED}
_LONGER = {**_LINEAR, _LENGTH: _NEEDED}
_TYPES = {
    "default": _Type(lambda *_: None, {}),
    "linear": _Type(_linear, _LINEAR),
    "llama3": _Type(_llama3, {**_LONGER, "low_freq_factor": _NEEDED, "high_freq_factor": _NEEDED}, longest=_grown),
    "yarn": _Type(
        _yarn,
        {**_LONGER, "beta_fast": 32, "beta_slow": 1, "truncate": True, **dict.fromkeys(("attention_factor", "mscale", "mscale_all_dim"))},
        _yarn_factor,
        _grown,
    ),
    "longrope": _Type(
        _longrope,
        {"factor": None, _LENGTH: _NEEDED, "short_factor": _NEEDED, "long_factor": _NEEDED, "attention_factor": None},
        _longrope_factor,
        lambda values, longest: min(longest, values[_LENGTH]),
        of_all_layers=True,
    ),
    # Nothing is scaled up to max_position_embeddings; for longer texts transformers changes all angles, also those of tokens in a cache.
    "dynamic": _Type(lambda *_: None, _LONGER, of_all_layers=True),
}


@dataclass(frozen=True)
class Rotary:
    """How the config.json of an architecture describes its rotary positions.

    Attributes
    ----------
    base : float
        Where config.json does not say.
    older : str
        The name of the base in older files.
    kind : str, optional
        That of the layers, where each kind has its own.
    scaled : str, optional
        The kind that rope_scaling of older files is for; None: where there are kinds, it is refused.
    types : tuple of str, optional
        Those of rope_type that the architecture has in transformers; None: all that there are.
    share : (str, float), optional
        The name of the share of features that is rotated in older files, and what it is where config.json does not say; None: all are.
    original : int, optional
        original_max_position_embeddings where config.json does not say; None: what its rotary positions say, or max_position_embeddings.
    """

    base: float = 10000.0
    older: str = "rope_theta"
    kind: str | None = None
    scaled: str | None = None
    types: tuple[str, ...] | None = None
    share: tuple[str, float] | None = None
    original: int | None = None

    def read(self, config: Config, size: int, longest: int) -> Rotation:
        """The rotation of heads of `size` features; `longest`: max_position_embeddings."""
        name, own = _own(config, self.kind, self.scaled)
        base = own.get("rope_theta", config.values.get(self.older, self.base))
        if not _is_number(base):
            raise config.refuse(name if "rope_theta" in own else self.older, "a base of rotary positions above 0")
        said = self._type(config, name, own)
        row, rotated = _TYPES[said], size if self.share is None else _share(config, size, name, own, *self.share)
        others = [key for key in own if key not in (*_ANY, *row.values, *([_SHARE] if self.share else [])) and own[key] is not None]
        if others:
            raise config.refuse(name, f"no {others[0]} for rope_type {said!r}, but {' and '.join(row.values) or 'rope_theta'}")
        try:
            values = self._values(config, row, own, longest)
            frequencies = row.scaled(base ** (-2.0 * np.arange(rotated // 2) / rotated), base, values)
            factor, longest = row.factor(values), row.longest(values, longest)
        except ValueError as error:
            raise config.refuse(name, f"{error} for rope_type {said!r}") from None
        if not _is_number(factor * factor):  # by which scores are multiplied
            raise config.refuse(name, f"a factor of queries and keys between 1e-4 and 1e15 for rope_type {said!r}, not {factor:g}")
        return Rotation(float(base), longest, frequencies, factor, None if rotated == size else rotated)

    def _type(self, config: Config, name: str, own: Mapping[str, Any]) -> str:
        """The rope_type, one of those that are computed."""
        said = [own[key] for key in ("rope_type", "type") if own.get(key) is not None] or ["default"]
        known = [key for key, row in _TYPES.items() if key in (self.types or _TYPES) and not (self.kind and row.of_all_layers)]
        if said[0] not in known or said[-1] != said[0]:
            raise _refused(config, name, self.kind, known)
        return said[0]

    def _values(self, config: Config, row: _Type, own: Mapping[str, Any], longest: int) -> dict[str, Any]:
        """The values of a type, checked."""
        original = config.values.get(_LENGTH, self.original)
        if self.kind is None and original is not None:
            own = {**own, _LENGTH: original}  # takes precedence, as in transformers
        values = {key: _value(own, key, longest if key == _LENGTH else usual) for key, usual in row.values.items()}
        if values.get("factor", 1) is None:
            values["factor"] = longest / values[_LENGTH]
        if self.kind and values.get("truncate") is False:
            raise ValueError("truncate true or nothing, as transformers ignores it where each kind of layers has its own,")
        return values


def _share(config: Config, size: int, name: str, own: Mapping[str, Any], older: str, usual: float) -> int:
    """How many features of a head are rotated."""
    value = own.get(_SHARE, config.values.get(older, usual))
    if not (_is_number(value) and value <= 1) or int(size * value) % 2:
        expected = f"a share above 0 and at most 1 that is an even number of {size} features"
        if _SHARE in own or older in config.values:
            raise config.refuse(name if _SHARE in own else older, expected)
        raise CheckpointError(f"config.json lacks {older}, and {usual} is taken; expected {expected}")
    return int(size * value)


def _own(config: Config, kind: str | None, scaled: str | None) -> tuple[str, Mapping[str, Any]]:
    """(name in config.json, its contents for a kind of layers)."""
    if kind is None:
        name = "rope_parameters" if config.values.get("rope_scaling") in (None, {}) else "rope_scaling"
        found = config.values.get(name)
    else:
        if scaled is None:
            config.only("rope_scaling", None)
        name, found = "rope_parameters", config.values.get("rope_parameters")
        if isinstance(found, Mapping) and all(own is None or isinstance(own, Mapping) for own in found.values()):
            found = found.get(kind)
        elif found is not None:
            raise _refused(config, name, kind)
        if kind == scaled and config.values.get("rope_scaling") not in (None, {}):
            name, scaling = "rope_scaling", config.values["rope_scaling"]
            if not isinstance(scaling, Mapping):
                raise _refused(config, name, kind)
            found = {"rope_type": "default", **(found or {}), **scaling}
    if not isinstance(found, (Mapping, type(None))):
        raise _refused(config, name, kind)
    return name, found or {}


def _refused(config: Config, name: str, kind: str | None, known: Iterable[str] = _TYPES) -> Exception:
    each = f", for {kind!r} and for each other kind of layers" if kind else ""
    *most, last = map(repr, known)
    return config.refuse(name, f"rope_type {', '.join(most)} or {last} and its values{each}")


def _value(own: Mapping[str, Any], key: str, usual: Any) -> Any:
    """The value of a type, checked."""
    value = own.get(key, usual)
    if value is None and usual is not True:  # null is no default of truncate in transformers
        value = usual
    fits, what = _CHECKS.get(key, (_is_number, "a number above 0"))
    if not (fits(value) or (value is None and usual is None)):
        raise ValueError(f"{what} as {key}")
    return value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and _LEAST <= value <= _MOST


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    _LENGTH: (lambda value: type(value) is int and 0 < value < 2**31, "an integer above 0"),
    **dict.fromkeys(("mscale", "mscale_all_dim"), (lambda value: value == 0 or _is_number(value), "a number of at least 0")),
    **dict.fromkeys(
        ("short_factor", "long_factor"),
        (lambda value: isinstance(value, list) and all(map(_is_number, value)), "a list of numbers above 0"),
    ),
    "truncate": (lambda value: type(value) is bool, "true or false"),
}
