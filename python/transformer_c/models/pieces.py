"""Texts to numbers by source.spm and vocab.json, which Marian's folders have, and the package sentencepiece."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..checkpoint import CheckpointError
from ..checkpoint.files import write_atomically
from .folder import contents, flag, has, mapping, only, write_json
from .tokenizing import check_room, refusing, side_of
from .vocabularies import MAX_VOCABULARY, numbers, special_tokens

_FILES = ("source.spm", "target.spm")
_SPECIAL = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
_ONLY = {
    **{"separate_vocabs": False, "split_special_tokens": False, "sp_model_kwargs": {}},
    **{"additional_special_tokens": [], "extra_special_tokens": []},
}
_CLEAN = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")  # that lose their spaces, in this order
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # in pieces


class PieceTokenizer:
    """Marian's tokenizer: pieces of source.spm, whose numbers are those of vocab.json, as in transformers' MarianTokenizer.

    Parameters
    ----------
    folder : str
    max_length : int
        Longer texts are cut off there, as by ``Tokenizer``.

    Attributes
    ----------
    max_length : int
    config : dict
        The contents of tokenizer_config.json, and the special tokens.
    """

    files: ClassVar[tuple[str, ...]] = _FILES
    refused: ClassVar[Mapping[str, Any]] = _ONLY  # of tokenizer_config.json, what must have these values
    added: ClassVar[int] = 1  # tokens of each text

    def __init__(self, folder: str, max_length: int) -> None:
        path = os.path.join(folder, "tokenizer_config.json")
        values = mapping(path)
        only(path, values, self.refused)
        self._side, self._cleans = side_of(path, values), flag(path, values, "clean_up_tokenization_spaces", False)
        check_room(folder, max_length, self.added)
        self.max_length = max_length
        self._models = {name: read_pieces(os.path.join(folder, name)) for name in self.files}
        self._source = self._models[self.files[0]][1]
        vocabulary = os.path.join(folder, "vocab.json")
        self._vocabulary = numbers(vocabulary)
        self._numbers = dict(self._vocabulary)
        special = self._settle(folder, path, values)
        self._words = {number: word for word, number in self._numbers.items()}
        self.config = {**values, **special}
        self._unknown, self._end = (self._numbers[special[name]] for name in ("unk_token", "eos_token"))
        words = self._special_words(special)
        self._skipped = set(words.values())
        self._special = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))

    def _settle(self, folder: str, path: str, values: Mapping[str, Any]) -> dict[str, str]:
        """The special tokens by their names in files, of which there are no others."""
        only(path, values, _no_others(values))
        return _special(folder, path, values, self._numbers)

    def _special_words(self, special: Mapping[str, str]) -> dict[str, int]:
        """The numbers of all tokens that are no pieces of texts."""
        return {word: self._numbers[word] for word in special.values()}

    def __call__(self, texts: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, types), int64, of each text; types are 0."""
        return self._read(texts, self._source)

    def as_target(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same of texts that are written, by target.spm."""
        return self._read(texts, self._models[_FILES[1]][1])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        with refusing("the tokenizer failed"):
            words = [self._words[i] if i in self._words else self._source.id_to_piece(i) for i in map(int, ids) if i not in self._skipped]
            text = self._source.decode_pieces(words).replace(SPACE, " ").strip()  # target.spm is not asked by transformers either
        return clean(text) if self._cleans else text

    def settled(self, text: str) -> int:
        """How many characters of a decoded text stay as they are, whatever tokens follow."""
        return max(0, text.rfind(" ")) if self._cleans else len(text)

    def save(self, folder: str) -> None:
        """Writes the files of sentencepiece's, vocab.json and tokenizer_config.json to a folder, with this ``max_length``."""
        for name, (data, _) in self._models.items():
            write_atomically(os.path.join(folder, name), data)
        write_json(os.path.join(folder, "vocab.json"), self._vocabulary)
        write_json(os.path.join(folder, "tokenizer_config.json"), {**self.config, "model_max_length": self.max_length})

    def _read(self, texts: Sequence[str], model: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """By one of the two files."""
        with refusing("the tokenizer failed"):
            found = [self._ids(text, model) for text in texts]
        return [(ids, np.zeros(len(ids), np.int64)) for ids in found]

    def _ids(self, text: str, model: Any) -> np.ndarray:
        ids, room = self._plain(text, model), self.max_length - 1
        return np.array([*(ids[:room] if self._side == "right" else ids[max(0, len(ids) - room) :]), self._end], np.int64)

    def _plain(self, text: str, model: Any) -> list[int]:
        """The numbers of a text without those that are added."""
        pieces: list[str] = []
        begin = 0
        for match in self._special.finditer(text):
            pieces += [*self._pieces(text[begin : match.start()], model), match[0]]
            begin = match.end()
        pieces += self._pieces(text[begin:], model)
        return [self._numbers.get(piece, self._unknown) for piece in pieces]

    def _pieces(self, text: str, model: Any) -> list[str]:
        """Pieces of a part of a text, which may begin with the code of a language, such as >>fr<<."""
        end = text.find("<<") + 2 if text.startswith(">>") else 0
        code, rest = ([text[:end]], text[end:]) if end > 1 else ([], text)
        return [*code, *model.encode(rest, out_type=str)]


def clean(text: str) -> str:
    """`text` without spaces before marks."""
    for mark in _CLEAN:
        text = text.replace(mark, mark.strip())
    return text


def _package(name: str) -> Any:
    """sentencepiece, of a version that refuses damaged files; 0.2.1 ends the process by reading beyond its memory."""
    try:
        import sentencepiece

        version = sentencepiece.__version__
    except ImportError:
        version = "0"
    if [int(number) for number in re.findall(r"\d+", version)] < [0, 2, 2]:
        raise ImportError(
            f"{name} is read by the package sentencepiece, 0.2.2 or newer: pip install 'transformer_c[models]', "
            "or pip install -U sentencepiece"
        )
    return sentencepiece


def read_pieces(path: str) -> tuple[bytes, Any]:
    """A file of sentencepiece's, and what the package makes of it."""
    sentencepiece = _package(os.path.basename(path))
    if not has(path):
        raise CheckpointError(f"{os.path.dirname(path)!r} has no {os.path.basename(path)}")
    data = contents(path, MAX_VOCABULARY)
    made = sentencepiece.SentencePieceProcessor()
    with refusing(f"{path!r} is not a model of sentencepiece's that can be read"):
        if not data:
            raise ValueError("no bytes")
        made.load_from_serialized_proto(data)
    return data, made


def _no_others(values: Mapping[str, Any]) -> dict[str, Any]:
    """None of the special tokens in a file that are others than Marian's."""
    return {name: None for name, value in values.items() if name.endswith("_token") and type(value) is not bool and name not in _SPECIAL}


def _special(folder: str, path: str, values: Mapping[str, Any], words: Mapping[str, int]) -> dict[str, str]:
    """unk_token, eos_token and pad_token; tokens besides those are refused, and those that take spaces with them."""
    added, more = values.get("added_tokens_decoder"), os.path.join(folder, "added_tokens.json")
    said = {**_SPECIAL, **values}
    if added is None:  # otherwise transformers does not read these files
        other = os.path.join(folder, "special_tokens_map.json")
        named = mapping(other)
        only(other, named, {**_ONLY, **_no_others(named)})
        said |= named
        added = {str(number): {"content": word} for word, number in mapping(more).items()}
    found = special_tokens(said, _SPECIAL, words, os.path.join(folder, "vocab.json"), tuple(_SPECIAL))
    if not all(found.values()):
        raise CheckpointError(f"{path!r} has a special token without characters")
    entries = added if isinstance(added, dict) else {"": added}
    tokens = [*entries.values(), *(said[name] for name in _SPECIAL if isinstance(said[name], dict))]
    for token in tokens:
        if not isinstance(token, dict) or any(token.get(option) for option in ("lstrip", "rstrip", "single_word")):
            raise CheckpointError(f"{path!r} has the token {token!r:.80}; only tokens without lstrip, rstrip and single_word are supported")
    for number, token in entries.items():
        word = token.get("content")
        if word not in found.values() or str(words[word]) != number:
            raise CheckpointError(f"{path!r} or {os.path.basename(more)} adds {word!r:.80}; only the words of vocab.json are supported")
    return found
