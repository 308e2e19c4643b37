"""The table that each architecture has: its names in transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """An architecture in transformers' words.

    Attributes
    ----------
    prefix : str
        Before the names of the encoder's arrays, where the model has a head.
    name : str
        With which the names of its classes begin.
    sizes : mapping of str to (str, int)
        For values of config.json, an array and the axis of it that has this size.
    layers : (str, str)
        The value of config.json that counts the layers, and the beginning of their arrays' names, before the number.
    names : mapping
        Ours to theirs: of layers or single parameters, {} for the number; three names are one array here, one below the other.
    heads : mapping of str to mapping
        The same for the heads, by task.
    tied : mapping of str to str
        Names of second copies of an array.
    renamed : tuple of (pattern, replacement)
        From names that other versions have to these.
    """

    prefix: str
    name: str
    sizes: Mapping[str, tuple[str, int]]
    layers: tuple[str, str]
    names: Mapping[str, str | tuple[str, str, str]]
    heads: Mapping[str, Mapping[str, str]]
    tied: Mapping[str, str] = field(default_factory=dict)
    renamed: tuple[tuple[str, str], ...] = ()
