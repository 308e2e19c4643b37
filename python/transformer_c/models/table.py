"""The table of an architecture: everything about it but its computation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Vocabulary(NamedTuple):
    """Of which files a tokenizer is made in a folder without tokenizer.json, and what it adds to texts.

    Attributes
    ----------
    files : tuple of str
        One, of words in lines (WordPiece); or two, of words with their numbers and of merges (byte-level BPE).
    special : mapping of str to str
        The special tokens by their names in files, where no file says others.
    separators : int
        How many are between the two texts of a pair.
    second : int
        The type of the second text's tokens.
    """

    files: tuple[str, ...]
    special: Mapping[str, str]
    separators: int
    second: int


WORD_PIECES = Vocabulary(
    ("vocab.txt",),
    {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"},
    separators=1,
    second=1,
)
BYTE_PAIRS = Vocabulary(
    ("vocab.json", "merges.txt"),
    {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"},
    separators=2,
    second=0,
)


@dataclass(frozen=True)
class Table:
    """An architecture in transformers' words.

    Attributes
    ----------
    model_type : str
        Its name in config.json.
    prefix : str or None
        Before the names of the encoder's arrays, where the model has a head; None: nothing.
    name : str
        How the names of its classes begin.
    sizes : mapping of str to (str, int)
        For values of config.json, an array and the axis of it that has this size.
    layers : (str, str)
        The value of config.json that counts the layers, and the beginning of their arrays' names, before the number.
    names : mapping
        Ours to theirs: of layers or single parameters, {} for the number; several names are one array here, one below the other.
    heads : mapping of str to mapping
        The same for the heads, by task.
    tied : mapping of str to str
        Names of second copies of an array.
    renamed : tuple of (pattern, replacement)
        From names that other versions have to these.
    split : mapping of str to tuple of str
        For a part of a name, those of the arrays that others have instead of one, which is these one below the other.
    vocabulary : Vocabulary, optional
        Of which files a tokenizer is made where there is no tokenizer.json; None: of none.
    buffers : tuple of str
        Arrays that older files have and no model needs, {} for the number of a layer.
    transposed : tuple of str
        Ours of which the files have the transposed matrices.
    classes : mapping of str to str
        How the names of its classes end, by task, None for the encoder alone, where that is not as in other architectures.
    """

    model_type: str
    prefix: str | None
    name: str
    sizes: Mapping[str, tuple[str, int]]
    layers: tuple[str, str]
    names: Mapping[str, str | tuple[str, ...]]
    heads: Mapping[str, Mapping[str, str]]
    tied: Mapping[str, str] = field(default_factory=dict)
    renamed: tuple[tuple[str, str], ...] = ()
    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    buffers: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")
    transposed: tuple[str, ...] = ()
    classes: Mapping[str | None, str] = field(default_factory=dict)

    def full(self, name: str) -> str:
        """The name of an array in a model with a head: the encoder's have the prefix."""
        return f"{self.prefix}.{name}" if self.prefix and self.is_encoders(name) else name

    def is_encoders(self, name: str) -> bool:
        """Whether an array belongs to the encoder, or encoder-decoder, not to a head."""
        own = (part for names in self.names.values() for part in several(names))
        return _first(name) in set(map(_first, own))

    def is_beside(self, name: str) -> bool:
        """Whether an array may be in a file without being needed: of another task's head, the pooler's, a second copy, a buffer."""
        beside = (*(part for head in self.heads.values() for part in head.values()), *several(self.names.get("pooler", ())))
        return _first(name) in set(map(_first, beside)) or name in self.tied or self.is_buffer(name)

    def is_buffer(self, name: str) -> bool:
        """Whether no model needs it."""
        return not {name, numbered(name)[0]}.isdisjoint(self.buffers)


def numbered(name: str) -> tuple[str, str | None]:
    """(the name with {} in the place of the layer's number, the number)."""
    number = re.search(r"\.(\d+)\.", name)
    return re.sub(r"\.\d+\.", ".{}.", name), number[1] if number else None


def several(names: str | Iterable[str]) -> tuple[str, ...]:
    """One name, or those of which one array is made."""
    return (names,) if isinstance(names, str) else tuple(names)


def _first(name: str) -> str:
    return name.partition(".")[0]
