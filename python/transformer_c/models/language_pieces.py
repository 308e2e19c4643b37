"""Texts to numbers in one of several languages by sentencepiece.bpe.model and vocab.json, which M2M100's folders have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError
from .folder import has, mapping
from .languages import LanguageTokenizer, has_languages, number_of
from .pieces import PieceTokenizer, clean
from .tokenizing import Tokenizer, refusing
from .vocabularies import special_tokens, tokenizer_class

_CODES = {  # in the order of their numbers, which come after those of vocab.json
    "m2m100": """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja
    jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk
    ur uz vi wo xh yi yo zh zu""",
    "wmt21": "en ha is ja cs ru zh de",
}
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def tokenizer_in(folder: str, max_length: int) -> Any:
    """The tokenizer of a folder of a model that writes texts."""
    if tokenizer_class(folder) == "M2M100Tokenizer" and has(os.path.join(folder, LanguagePieces.files[0])):
        return LanguagePieces(folder, max_length)
    if not has(os.path.join(folder, "tokenizer.json")) and has(os.path.join(folder, PieceTokenizer.files[0])):
        return PieceTokenizer(folder, max_length)
    return (LanguageTokenizer if has_languages(folder) else Tokenizer)(folder, max_length)


class LanguagePieces(PieceTokenizer):
    """M2M100's tokenizer: the code of a language, the pieces of a text, whose numbers are those of vocab.json, and the end, as in transformers'
    M2M100Tokenizer.

    Attributes
    ----------
    languages : dict
        The number of each code.
    """

    files = ("sentencepiece.bpe.model",)
    refused = {name: value for name, value in PieceTokenizer.refused.items() if not name.endswith("special_tokens")} | {
        "num_madeup_words": 8
    }
    added = 2
    is_after = begins = False

    def _settle(self, folder: str, path: str, values: Mapping[str, Any]) -> dict[str, str]:
        kind = "m2m100" if values.get("language_codes") is None else values["language_codes"]
        if not isinstance(kind, str) or kind not in _CODES:
            raise CheckpointError(f"{path!r} has language_codes = {kind!r:.80}; expected {' or '.join(_CODES)}")
        words = dict(self._numbers)
        self.languages = {code: len(words) + i for i, code in enumerate(_CODES[kind].split())}
        codes = {f"__{code}__": number for code, number in self.languages.items()}
        said = {**_SPECIAL, **mapping(os.path.join(folder, "special_tokens_map.json")), **values}
        found = special_tokens(said, _SPECIAL, words, os.path.join(folder, "vocab.json"), tuple(_SPECIAL))
        if not all(found.values()):
            raise CheckpointError(f"{path!r} has a special token without characters")
        known = {**{word: words[word] for word in found.values()}, **codes}
        self._check_added(path, values, known)
        for name in ("additional_special_tokens", "extra_special_tokens"):
            more = said.get(name)
            if more is not None and (not isinstance(more, (list, tuple)) or any(_content(token) not in known for token in more)):
                raise CheckpointError(f"{path!r} has {name} = {more!r:.80}; only those of languages are supported")
        self._usual, self._specials = values.get("src_lang") or "en", set(known)
        self._numbers |= codes
        if not isinstance(self._usual, str) or self._usual not in self.languages:
            raise CheckpointError(f"{path!r} has src_lang = {self._usual!r:.80}, of which there is no code")
        return found

    def _special_words(self, special: Mapping[str, str]) -> dict[str, int]:
        return {word: self._numbers[word] for word in self._specials}

    @staticmethod
    def _check_added(path: str, values: Mapping[str, Any], known: Mapping[str, int]) -> None:
        """Refuses tokens besides the special ones, and those that take spaces with them."""
        added = values.get("added_tokens_decoder")
        for number, token in (added if isinstance(added, dict) else {}).items():
            options = isinstance(token, dict) and any(token.get(option) for option in ("lstrip", "rstrip", "single_word"))
            if options or _content(token) not in known or str(known[_content(token)]) != number:
                raise CheckpointError(f"{path!r} adds the token {token!r:.80}; only the special ones and those of languages are supported")

    def __call__(self, texts: Sequence[Any], special: bool = True, language: str | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, types), int64, of each text, in a language; by default the one that tokenizer_config.json has."""
        code, room = self.number(language or self._usual), self.max_length - 2
        with refusing("the tokenizer failed"):
            found = [self._plain(text, self._source) for text in texts]
        cut = [ids if not special else ids[:room] if self._side == "right" else ids[max(0, len(ids) - room) :] for ids in found]
        made = [np.array([code, *ids, self._end] if special else ids, np.int64) for ids in cut]
        return [(ids, np.zeros_like(ids)) for ids in made]

    def _pieces(self, text: str, model: Any) -> list[str]:
        return list(model.encode(text, out_type=str))

    def as_written(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same without the code and the end."""
        return self(texts, special=False)

    def number(self, language: Any) -> int:
        """That of a language's code."""
        return number_of(self.languages, language)

    def decode(self, ids: Sequence[int]) -> str:
        unknown = self.config["unk_token"]
        with refusing("the tokenizer failed"):
            text, own = "", []
            for number in (int(i) for i in ids if int(i) not in self._skipped):
                if number in self._words:
                    own.append(self._words[number])
                else:
                    text, own = text + self._source.decode_pieces(own) + unknown, []
            text = (text + self._source.decode_pieces(own)).strip()
        return clean(text) if self._cleans else text


def _content(token: Any) -> Any:
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else None


__all__ = ["LanguagePieces", "tokenizer_in"]
