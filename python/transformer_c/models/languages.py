"""Texts to numbers in one of several languages, whose code is one of the tokens: NLLB and mBART."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._names import nearest
from ..checkpoint import CheckpointError
from .folder import flag
from .tokenizing import Tokenizer, check_room, tokenizer_class

# transformers' classes: the language where no file says one.
_USUAL = {"NllbTokenizer": "eng_Latn", "MBart50Tokenizer": "en_XX", "MBartTokenizer": "en_XX"}
_CODE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")


def has_languages(folder: str) -> bool:
    """Whether the tokenizer of a folder is one of several languages."""
    return tokenizer_class(folder).removesuffix("Fast") in _USUAL


class LanguageTokenizer(Tokenizer):
    """A folder's tokenizer that adds the code of a language: before a text, with the end after it, or after both in mBART of 25 languages, and
    where tokenizer_config.json has ``legacy_behaviour``. As in transformers, what tokenizer.json adds is not used.

    Parameters
    ----------
    folder : str
    max_length : int
        As for ``Tokenizer``.

    Attributes
    ----------
    languages : dict
        The number of each code.
    is_after : bool
        Whether the code is after a text.
    begins : bool
        Whether a text that is written begins with its code, in the place of another token: that of mBART of 25 languages does, which was
        trained with the code after texts, whose last token is what precedes their first.
    """

    def __init__(self, folder: str, max_length: int) -> None:
        super().__init__(folder, max_length)
        check_room(folder, max_length, 2)
        kind, path = tokenizer_class(folder).removesuffix("Fast"), os.path.join(folder, "tokenizer_config.json")
        self.begins = kind == "MBartTokenizer"
        self.is_after = self.begins or flag(path, self.config, "legacy_behaviour", False)
        added = self._tokenizer.get_added_tokens_decoder()
        self.languages: dict[str, int] = {own.content: number for number, own in added.items() if _CODE.fullmatch(own.content)}
        self._usual, end = self.config.get("src_lang") or _USUAL[kind], self.config.get("eos_token", "</s>")
        end = end.get("content") if isinstance(end, dict) else end
        self._end = self._tokenizer.token_to_id(end) if isinstance(end, str) else None
        if not isinstance(self._usual, str) or self._usual not in self.languages or self._end is None:
            raise CheckpointError(f"{folder!r} has a tokenizer without the language {self._usual!r:.80}, or the end of texts {end!r:.80}")

    def __call__(self, texts: Sequence[Any], special: bool = True, language: str | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, types), int64, of each text, in a language; by default the one that tokenizer_config.json has."""
        found = super().__call__(texts, special=False)
        if not special:
            return found
        code, room = self.number(language or self._usual), self.max_length - 2
        before, after = ([], [self._end, code]) if self.is_after else ([code], [self._end])
        cut = [ids[:room] if self._side == "right" else ids[max(0, len(ids) - room) :] for ids, _ in found]
        made = [np.array([*before, *ids, *after], np.int64) for ids in cut]
        return [(ids, np.zeros_like(ids)) for ids in made]

    def number(self, language: Any) -> int:
        """That of a language's code."""
        return number_of(self.languages, language)


def number_of(languages: Mapping[str, int], language: Any) -> int:
    """That of a language's code, of a tokenizer with these."""
    if not isinstance(language, str) or language not in languages:
        near = nearest(language, languages) if isinstance(language, str) else None
        known = f"did you mean {near!r}?" if near else f"it has {', '.join(list(languages)[:5])} and so on"
        raise ValueError(f"the tokenizer has no language {language!r:.80}; {known}")
    return languages[language]


__all__ = ["LanguageTokenizer", "has_languages"]
