"""Texts that are filled up to one length, whatever others there are in a batch, as models are trained that see what fills them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from ..checkpoint import CheckpointError
from .folder import mapping
from .texts import check_numbers
from .vocabularies import tokenizer_class

# What transformers' classes of tokenizers do where no file says: the token that fills texts, and the side.
_CLASSES = {"SiglipTokenizer": ("</s>", "right"), "GemmaTokenizer": ("<pad>", "left"), "Siglip2Tokenizer": ("<pad>", "left")}


class Filling(NamedTuple):
    """How texts are filled.

    Attributes
    ----------
    width : int
        Tokens that each text has then.
    padding : int
        The token that fills them.
    side : {"right", "left"}
    masked : bool
        Whether the tokens do not see what fills a text.
    """

    width: int
    padding: int
    side: str = "right"
    masked: bool = False

    def arguments(self, encoder: Any, batch: list[Any]) -> dict[str, np.ndarray]:
        """What a model takes for a batch of tokens."""
        ids = np.full((len(batch), self.width), self.padding, np.int64)
        mask = np.zeros(ids.shape, np.int64)
        for row, is_token, (own, *_) in zip(ids, mask, batch, strict=True):
            if len(own) > self.width:
                raise ValueError(f"the tokenizer gives {len(own)} tokens; this model takes texts of at most {self.width}")
            place = slice(0, len(own)) if self.side == "right" else slice(self.width - len(own), None)
            row[place], is_token[place] = own, 1
        check_numbers(ids, encoder.words, "tokens")
        return {"ids": ids, "mask": mask} if self.masked else {"ids": ids}


def filling_in(folder: str, encoder: Any, tokenizer: Any) -> Filling:
    """As the files of a folder say, whose tokenizer this is."""
    path = os.path.join(folder, "tokenizer_config.json")
    values = {**mapping(os.path.join(folder, "special_tokens_map.json")), **mapping(path)}
    word, side = _CLASSES.get(tokenizer_class(folder).removesuffix("Fast"), (None, "right"))
    own = tokenizer.padding or {}
    word, side = own.get("pad_token", word), own.get("direction", side)
    said = values.get("pad_token")
    word = (said.get("content") if isinstance(said, dict) else said) if said is not None else word
    number = tokenizer.number(word) if isinstance(word, str) else None
    if number is None:
        raise CheckpointError(
            f"{path!r} has pad_token = {word!r:.80}, which is no token of the tokenizer; this model's texts are filled with it"
        )
    side = values.get("padding_side") or side
    if side not in ("left", "right"):
        raise CheckpointError(f"{path!r} has padding_side = {side!r:.80}; expected 'left' or 'right'")
    tokenizer.config.update(pad_token=word, padding_side=side)  # for a copy, whose tokenizer.json says nothing of it
    names = values.get("model_input_names")
    return Filling(encoder.longest, number, side, not isinstance(names, list) or "attention_mask" in names)


__all__ = ["Filling"]
