"""Tokenizers from the files that were written before tokenizer.json: vocab.txt (WordPiece), or vocab.json and merges.txt (byte-level BPE)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..checkpoint import CheckpointError
from .architectures import ARCHITECTURES
from .folder import contents, has, mapping, read_json

MAX_VOCABULARY = 1 << 26  # bytes of a file of words; those of multilingual models have 5 MB

# Options of tokenizer_config.json, by the class of what they are set of: its own word for each, and the default in transformers.
_OPTIONS: dict[str, dict[str, tuple[str, Any]]] = {
    "BertNormalizer": {
        "do_lower_case": ("lowercase", True),
        "tokenize_chinese_chars": ("handle_chinese_chars", True),
        "strip_accents": ("strip_accents", None),
    },
    "ByteLevel": {"add_prefix_space": ("add_prefix_space", False)},
}
_PARTS = {1: "BertNormalizer", 2: "ByteLevel"}  # what options are set of, by the number of a vocabulary's files
_NEEDED = ("unk_token", "cls_token", "sep_token")


def tokenizer_of(folder: str, tokenizers: Any) -> Any:
    """The tokenizer of a folder without tokenizer.json; None where it has no such files.

    Parameters
    ----------
    folder : str
    tokenizers : module
        The package.
    """
    kind = mapping(os.path.join(folder, "config.json")).get("model_type")
    vocabulary = ARCHITECTURES[kind].table.vocabulary if isinstance(kind, str) and kind in ARCHITECTURES else None
    if vocabulary is None:
        return None
    named, paths = vocabulary.special, [os.path.join(folder, name) for name in vocabulary.files]
    if not all(map(has, paths)):
        return None
    values = mapping(os.path.join(folder, "tokenizer_config.json"))
    more = os.path.join(folder, "added_tokens.json")
    if mapping(more):
        raise CheckpointError(f"{more!r} has tokens of its own; only a tokenizer.json can have them")
    words = _words(paths[0]) if len(paths) == 1 else numbers(paths[0])
    special = special_tokens({**named, **mapping(os.path.join(folder, "special_tokens_map.json")), **values}, named, words, paths[0])
    made = _word_piece(tokenizers, words, special) if len(paths) == 1 else _byte_pairs(tokenizers, words, paths[1])
    configure(made, folder)
    if "cls_token" in named:
        cls, sep = special["cls_token"], special["sep_token"]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=[cls, "$A", sep],
            pair=[cls, "$A", *[sep] * vocabulary.separators, f"$B:{vocabulary.second}", f"{sep}:{vocabulary.second}"],
            special_tokens=[(cls, words[cls]), (sep, words[sep])],
        )
    made.add_special_tokens(
        [tokenizers.AddedToken(word, lstrip=name == "mask_token" and word == "<mask>", normalized=False) for name, word in special.items()]
    )
    return made


def tokenizer_class(folder: str) -> str:
    """transformers' class of a folder's tokenizer: what the files say, or that of the architecture; "" where nobody knows."""
    config = mapping(os.path.join(folder, "config.json"))
    said = mapping(os.path.join(folder, "tokenizer_config.json")).get("tokenizer_class") or config.get("tokenizer_class")
    kind = config.get("model_type")
    if said is None and isinstance(kind, str) and kind in ARCHITECTURES:
        return f"{ARCHITECTURES[kind].table.name}Tokenizer"
    return said if isinstance(said, str) else ""


def configure(tokenizer: Any, folder: str) -> None:
    """Sets what a folder's tokenizer_config.json says of a tokenizer's parts, and the defaults of transformers' class where it says nothing:
    as in transformers, other files are less."""
    path = os.path.join(folder, "tokenizer_config.json")
    values, name = mapping(path), tokenizer_class(folder).removesuffix("Fast")
    tables = [kind.table for kind in ARCHITECTURES.values()]
    own_part = next((_PARTS[len(t.vocabulary.files)] for t in tables if t.vocabulary and name == f"{t.name}Tokenizer"), None)
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer):
        kind = type(part).__name__
        for option, (own, default) in _OPTIONS.get(kind, {}).items():
            value = values.get(option, default)
            if value is not default and type(value) is not bool:
                raise CheckpointError(f"{path!r} has {option} = {value!r:.80}; expected true or false")
            if option in values or kind == own_part:
                setattr(part, own, value)


def _word_piece(tokenizers: Any, words: dict[str, int], special: dict[str, str]) -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token=special["unk_token"]))
    made.normalizer = tokenizers.normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    return made


def _byte_pairs(tokenizers: Any, words: dict[str, int], merges: str) -> Any:
    pairs = [tuple(line.split(" ")) for line in _lines(merges) if line and not line.startswith("#version")]
    if not all(len(pair) == 2 for pair in pairs):
        raise CheckpointError(f"{merges!r} has lines that are no two words")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, pairs))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def special_tokens(
    values: Mapping[str, Any], named: Mapping[str, str], words: Mapping[str, int], path: str, needed: tuple[str, ...] = _NEEDED
) -> dict[str, str]:
    """The special tokens by their names in files, of those that the vocabulary has; those that are needed must be there."""
    found: dict[str, str] = {}
    for name in named:
        word = values[name].get("content") if isinstance(values[name], dict) else values[name]
        if not isinstance(word, str) or (word not in words and name in needed):
            raise CheckpointError(f"{path!r} lacks {word!r:.80}, the {name} that tokenizer_config.json or the architecture has")
        if word in words:
            found[name] = word
    return found


def _lines(path: str) -> list[str]:
    data = contents(path, MAX_VOCABULARY)
    try:
        return [line.rstrip("\r") for line in data.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path!r} is not text in UTF-8 ({error.reason} at byte {error.start})") from None


def _words(path: str) -> dict[str, int]:
    """The words of a file with one in each line, and their numbers: those of the lines."""
    return {word: number for number, word in enumerate(_lines(path))}


def numbers(path: str) -> dict[str, int]:
    """The words of a JSON file, and their numbers."""
    values = read_json(path, MAX_VOCABULARY)
    if not isinstance(values, dict) or not all(type(number) is int and 0 <= number < 2**31 for number in values.values()):
        raise CheckpointError(f"{path!r} is not a mapping of words to numbers")
    return values
