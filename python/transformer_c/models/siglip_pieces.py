"""Texts to numbers by spiece.model, which SigLIP's folders have, and the package sentencepiece."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError
from ..checkpoint.files import write_atomically
from .folder import flag, has, mapping, only, write_json
from .pieces import SPACE, read_pieces
from .tokenizing import Tokenizer, check_room, refusing, side_of
from .vocabularies import special_tokens, tokenizer_class

_FILE = "spiece.model"
_SPECIAL = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
_ONLY = {
    **{"split_special_tokens": False, "sp_model_kwargs": {}, "legacy": True},
    **{"additional_special_tokens": [], "extra_special_tokens": []},
}
_WITHOUT_MARKS = str.maketrans("", "", string.punctuation)


def tokenizer_in(folder: str, max_length: int) -> Any:
    """The tokenizer of a folder of a model of images and texts: that of spiece.model where transformers' class reads it, as that removes marks."""
    kind = tokenizer_class(folder).removesuffix("Fast")
    if kind == "SiglipTokenizer" and has(os.path.join(folder, _FILE)):
        return SiglipPieces(folder, max_length)
    found = Tokenizer(folder, max_length)
    if kind == "Siglip2Tokenizer":
        found.lower()
    return found


class SiglipPieces:
    """SigLIP's tokenizer: pieces of texts in lower case and without marks, and a token that ends them, as in transformers' SiglipTokenizer.

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

    padding = None

    def __init__(self, folder: str, max_length: int) -> None:
        path = os.path.join(folder, "tokenizer_config.json")
        values, other = mapping(path), os.path.join(folder, "special_tokens_map.json")
        only(path, values, _ONLY)
        self._side, self._lowers = side_of(path, values), flag(path, values, "do_lower_case", True)
        check_room(folder, max_length, 1)
        self.max_length, file = max_length, os.path.join(folder, _FILE)
        self._data, self._model = read_pieces(file)
        words = {self._model.id_to_piece(i): i for i in range(self._model.get_piece_size())}
        special = special_tokens({**_SPECIAL, **mapping(other), **values}, _SPECIAL, words, file, tuple(_SPECIAL))
        if not all(special.values()):
            raise CheckpointError(f"{path!r} has a special token without characters")
        self._check_added(path, values, {word: words[word] for word in special.values()})
        self.config = {**values, **special}
        self._numbers = {word: words[word] for word in special.values()}
        self._end, self._unknown = words[special["eos_token"]], special["unk_token"]
        self._special = re.compile("(" + "|".join(map(re.escape, sorted(self._numbers, key=len, reverse=True))) + ")")
        with refusing("the tokenizer failed"):
            self._before = len(self._model.encode(self._unknown))

    @staticmethod
    def _check_added(path: str, values: Any, known: dict[str, int]) -> None:
        """Refuses tokens besides the special ones."""
        added = values.get("added_tokens_decoder")
        for number, token in (added if isinstance(added, dict) else {}).items():
            word = token.get("content") if isinstance(token, dict) else None
            if not isinstance(word, str) or str(known.get(word)) != number or token.get("single_word"):
                raise CheckpointError(f"{path!r} adds the token {token!r:.80}; only the special ones of {_FILE} are supported")

    def __call__(self, texts: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, types), int64, of each text; types are 0."""
        with refusing("the tokenizer failed"):
            found = [self._ids(text) for text in texts]
        return [(ids, np.zeros(len(ids), np.int64)) for ids in found]

    def number(self, word: str) -> int | None:
        """Of a special token."""
        return self._numbers.get(word)

    def save(self, folder: str) -> None:
        """Writes spiece.model and tokenizer_config.json to a folder, with this ``max_length``."""
        write_atomically(os.path.join(folder, _FILE), self._data)
        values = {**self.config, "model_max_length": self.max_length, "tokenizer_class": "SiglipTokenizer"}
        write_json(os.path.join(folder, "tokenizer_config.json"), values)

    def _ids(self, text: str) -> np.ndarray:
        found: list[str] = []
        for part in self._special.split(SPACE + text.replace(SPACE, " ")):
            found += [part] if part in self._numbers else self._pieces(part)
        if found[:1] == [SPACE] and found[1:2] and found[1] in self._numbers:
            found = found[1:]
        ids = [self._model.piece_to_id(word) for word in found]
        room = self.max_length - 1
        ids = ids[:room] if self._side == "right" else ids[max(0, len(ids) - room) :]
        return np.array(ids if ids[-1:] == [self._end] else [*ids, self._end], np.int64)

    def _pieces(self, text: str) -> list[str]:
        text = text.lower() if self._lowers else text
        text = re.sub(r"\s+", " ", text.translate(_WITHOUT_MARKS)).strip()
        if not text:
            return []
        # Behind another token, as the model would take a space from the beginning of the text alone.
        return self._model.encode(self._unknown + text, out_type=str)[self._before :]
