"""The values of a config.json: each is checked when it is read, and what is not supported is refused, never ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..checkpoint import CheckpointError
from .problems import PROBLEMS

# The library's word for each activation of transformers that it has.
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "tanh": "tanh",
}

MAX_LABELS = 1 << 16  # that have no names
FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers


class Heads(NamedTuple):
    """The heads of a layer's attention.

    Attributes
    ----------
    keys : int
        How many there are of keys and values.
    size : int
        D.
    normed : bool
        Whether each query and key is normalised.
    scale : float, optional
        Of the scores; None: by the size.
    softcap : float
        What scores stay below; 0: nothing.
    """

    keys: int
    size: int
    normed: bool = False
    scale: float | None = None
    softcap: float = 0.0


class Widths(NamedTuple):
    """What the layers of an architecture have in common."""

    model: int
    heads: int
    hidden: int
    layers: int
    activation: str
    eps: float
    dropout: float
    attention_dropout: float
    drops_attended: bool = True  # whether `dropout` is also applied to what attention gives, besides embeddings and networks
    qkv_bias: bool = True  # of queries, keys and values
    out_bias: bool = True  # of the layer that follows attention
    network_bias: bool = True
    norm_bias: bool = True
    gated: bool = False  # whether the network multiplies what the activation gives with a second product, of the same size
    rms: bool = False  # whether norms only divide, by the root of the mean square
    offset: bool = False  # whether these norms multiply by 1 + weight
    norm_before: tuple[bool, bool] = (
        True,
        True,
    )  # whether what attention, and what the network sees is normalised, in layers that normalise first
    norm_after: bool = False  # whether what attention and network give is normalised before it is added


class Config:
    """A config.json, or a mapping like it.

    Parameters
    ----------
    values : mapping
        Its contents.

    Attributes
    ----------
    values : dict
    """

    file: str = "config.json"

    def __init__(self, values: Any) -> None:
        if callable(getattr(values, "to_dict", None)):
            values = values.to_dict()
        if not isinstance(values, Mapping):
            advice = "; tc.models.load reads a folder" if isinstance(values, (str, os.PathLike)) else ""
            raise CheckpointError(f"the configuration is a {type(values).__name__}; expected a mapping, as in config.json{advice}")
        self.values = dict(values)

    def part(self, name: str) -> Config:
        """The mapping that a value is, {} where there is none; what is set there is set here."""
        inner = self.values.get(name)
        if not isinstance(inner, Mapping) and inner is not None:
            raise self.refuse(name, "a mapping")
        found = type(self)({})
        found.file = f"{self.file}'s {name}"
        found.values = self.values[name] = dict(inner or {})
        return found

    def place(self, name: str) -> tuple[Config, str]:
        """(the configuration, the name) of a value, of a part where it is named "part.name"."""
        part, _, own = name.rpartition(".")
        return (self.part(part) if part else self), own

    def refuse(self, name: str, expected: str) -> CheckpointError:
        """The error for a value that is wrong or not supported."""
        return CheckpointError(f"{self.file} has {name} = {self.values.get(name)!r:.100}; expected {expected}")

    def size(self, name: str, default: int | None = None, least: int = 1, most: int = 2**31 - 1) -> int:
        """An integer of at least `least` and at most `most`."""
        value = self.values.get(name, default)
        if value is None:
            raise CheckpointError(f"{self.file} lacks {name}")
        if type(value) is not int or not least <= value <= most:
            raise self.refuse(name, f"an integer of at least {least}" + (f" and at most {most}" if most < 2**31 - 1 else ""))
        return value

    def index(self, name: str, default: int | None, below: int) -> int | None:
        """An index below `below`, or None."""
        value = self.values.get(name, default)
        if value is not None and (type(value) is not int or not 0 <= value < below):
            raise self.refuse(name, f"null or an index below {below}")
        return value

    def number(self, name: str, default: float, most: float = 1.0) -> float:
        """A number from 0 to `most`."""
        value = self.values.get(name, default)
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise self.refuse(name, f"a number from 0 to {most:g}")
        return float(value)

    def positive(self, name: str, default: float) -> float:
        """A number above 0."""
        value = self.values.get(name, default)
        if type(value) not in (int, float) or not 1e-9 <= value <= 1e30:
            raise self.refuse(name, "a number above 0")
        return float(value)

    def optional(self, name: str, default: float) -> float:
        """A number from 0 to 1; `default` where it is null."""
        return default if self.values.get(name) is None else self.number(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """True or False."""
        value = self.values.get(name, default)
        if type(value) is not bool:
            raise self.refuse(name, "true or false")
        return value

    def activation(self, name: str, default: str = "gelu") -> str:
        """The library's word for an activation."""
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.refuse(name, f"one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """(height, width), written as one integer or two."""
        value = self.values.get(name, default)
        both = list(value) if isinstance(value, (list, tuple)) else [value, value]
        if len(both) != 2 or not all(type(n) is int and 0 < n < 2**31 for n in both):
            raise self.refuse(name, "a size, or two")
        return both[0], both[1]

    def only(self, name: str, *supported: Any) -> None:
        """Refuses other values than these; the first is the default."""
        value = self.values.get(name, supported[0])
        if not any(type(value) is type(s) and value == s for s in supported):
            raise self.refuse(name, f"{' or '.join(f'{s!r:.100}' for s in supported)}: nothing else is supported")

    def without_extensions(self) -> None:
        """Refuses what changes the computation of any architecture."""
        self.only("is_decoder", False, None)
        self.only("add_cross_attention", False, None)
        self.only("is_encoder_decoder", False, None)
        self.only("quantization_config", None)
        self.only("pruned_heads", None, {}, [])

    def widths(self, dropout: float = 0.1) -> Widths:
        """The widths by the names that BERT has for them; `dropout` where none is given."""
        found = Widths(
            model=self.size("hidden_size", 768),
            heads=self.size("num_attention_heads", 12),
            hidden=self.size("intermediate_size", 3072),
            layers=self.size("num_hidden_layers", 12),
            activation=self.activation("hidden_act"),
            eps=self.number("layer_norm_eps", 1e-12),
            dropout=self.number("hidden_dropout_prob", dropout),
            attention_dropout=self.number("attention_probs_dropout_prob", dropout),
        )
        return self.divided(found, "hidden_size", "num_attention_heads")

    def divided(self, widths: Widths, model: str, heads: str) -> Widths:
        """`widths`, whose heads must divide the features."""
        if widths.model % widths.heads:
            raise CheckpointError(f"{self.file} has {model} = {widths.model}, which is no multiple of {heads} = {widths.heads}")
        return widths

    def rotated(self, widths: Widths, model: str, heads: str) -> Widths:
        """`widths`, whose heads have an even number of features, which are rotated in pairs."""
        size = self.divided(widths, model, heads).model // widths.heads
        if size % 2:
            raise CheckpointError(f"{self.file} has {model} / {heads} = {size}; rotary positions need an even number")
        self.only("head_dim", None, size)
        return widths

    def layer_types(self, count: int) -> list[str] | None:
        """The kind of each layer, FULL or SLIDING; None where it is not said."""
        kinds = self.values.get("layer_types")
        if kinds is None:
            return None
        if not isinstance(kinds, (list, tuple)) or len(kinds) != count or any(kind not in (FULL, SLIDING) for kind in kinds):
            raise self.refuse("layer_types", f"null or a list of {count}, each {FULL!r} or {SLIDING!r}")
        return list(kinds)

    def renamed(self, older: Mapping[str, str]) -> None:
        """Gives values their names, where they have older ones; refuses two that differ."""
        for old, name in older.items():
            if old in self.values:
                self.only(old, self.values.setdefault(name, self.values[old]))

    def problem(self) -> str | None:
        """What the head of a classifier answers, in transformers' words; None where nobody has said so."""
        value = self.values.get("problem_type")
        if value is not None and not (isinstance(value, str) and value in PROBLEMS):
            raise self.refuse("problem_type", f"null or one of {', '.join(PROBLEMS)}")
        return value

    def labels(self) -> list[str]:
        """The names of the classes, in order; two by default, and none of ``id2label`` where ``num_labels`` is another number, as in transformers."""
        names, said = self.values.get("id2label"), self.values.get("num_labels")
        if names is None or (isinstance(names, Mapping) and said not in (None, len(names))):
            return [f"LABEL_{i}" for i in range(self.size("num_labels", 2, most=MAX_LABELS))]
        if not isinstance(names, Mapping) or not names or not all(isinstance(v, (str, int, float)) for v in names.values()):
            raise self.refuse("id2label", "a mapping of numbers to names")
        by_number = {str(key): str(value) for key, value in names.items()}
        if any(name.endswith("\0") for name in by_number.values()):  # NumPy's arrays of str would drop it
            raise self.refuse("id2label", "names that end in no NUL character")
        if set(by_number) != {str(i) for i in range(len(by_number))}:
            raise self.refuse("id2label", f"a name for each number from 0 to {len(by_number) - 1}")
        return [by_number[str(i)] for i in range(len(by_number))]


class Preprocessor(Config):
    """A preprocessor_config.json."""

    file = "preprocessor_config.json"
