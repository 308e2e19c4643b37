"""A whole architecture in one file, as docs/models.md describes it: narrow embeddings that are widened, places by the distance of two tokens alone."""

from __future__ import annotations

import numpy as np
from transformer_c import nn
from transformer_c._core import Tensor
from transformer_c._tensor import as_tensor
from transformer_c.models.config import Config, Widths
from transformer_c.models.layers import TextEncoder
from transformer_c.models.table import WORD_PIECES, Table

TABLE = Table(
    model_type="toy",
    prefix="toy",
    name="Toy",
    sizes={
        "words": ("lookup.table.weight", 0),
        "narrow": ("lookup.table.weight", 1),
        "wide": ("lookup.up.weight", 0),
        "hidden": ("blocks.0.larger.weight", 0),
    },
    layers=("depth", "blocks."),
    names={
        "words": "lookup.table",
        "up": "lookup.up",
        "norm": "lookup.norm",
        "layers.{}.qkv": ("blocks.{}.q", "blocks.{}.k", "blocks.{}.v"),
        "layers.{}.out": "blocks.{}.o",
        "layers.{}.norm1": "blocks.{}.first",
        "layers.{}.linear1": "blocks.{}.larger",
        "layers.{}.linear2": "blocks.{}.smaller",
        "layers.{}.norm2": "blocks.{}.second",
    },
    heads={
        "text-classification": {"dense": "judge.hidden", "out": "judge.out"},
        "token-classification": {"out": "tags"},
    },
    vocabulary=WORD_PIECES,
)


class Toy(TextEncoder):
    """Words, and how far they are from each other."""

    table = TABLE
    longest = 200

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        widths = Widths(
            model=config.size("wide", 16),
            heads=config.size("heads", 2),
            hidden=config.size("hidden", 24),
            layers=config.size("depth", 2),
            activation="relu",
            eps=1e-5,
            dropout=config.number("dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.0),
        )
        super().__init__(config, config.divided(widths, "wide", "heads"), pooler=False)
        narrow = config.size("narrow", 6)
        self.words = nn.Embedding(config.size("words", 64), narrow)
        self.up = nn.Linear(narrow, widths.model)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        return self.dropout(self.norm(self.up(self.words(ids))))

    def bias(self, length: int) -> Tensor:
        heads, places = self.layers[0].heads, np.arange(length)
        slopes = 2.0 ** -np.arange(1, heads + 1)
        found = -slopes[:, None, None] * np.abs(places[:, None] - places)  # (H, T, T)
        return as_tensor(found[None]).to(self.up.weight.device, self.up.weight.dtype)

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        return {"activation": "tanh"} if task == "text-classification" else {}
