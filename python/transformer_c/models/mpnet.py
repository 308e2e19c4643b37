"""MPNet (Song et al. 2020)."""

from __future__ import annotations

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import arange, as_tensor
from .config import Config
from .layers import TextEncoder
from .roberta import Roberta, count_positions
from .table import BYTE_PAIRS, WORD_PIECES, Table


def buckets(longest: int, count: int, farthest: int = 128, both: bool = True) -> np.ndarray:
    """The buckets of the distances from a query to a key, 1 - longest ... longest - 1: one for each small distance, larger ones by their logarithm.

    As in T5 (Raffel et al. 2020, section 2.1): half of the buckets are for keys after the query, or with `both` False none, as a decoder has it,
    where these keys are in the first one. PyTorch's float32 is where the logarithms are rounded.
    """
    distance = np.arange(1 - longest, longest)
    half = count // 2 if both else count
    exact = half // 2
    away = np.abs(distance) if both else np.maximum(-distance, 0)
    with np.errstate(divide="ignore"):
        far = np.log(away.astype(np.float32) / np.float32(exact)) / np.float32(np.log(farthest / exact)) * np.float32(half - exact)
    far = np.minimum(exact + np.where(away > 0, far, 0).astype(np.int64), half - 1)
    return (distance > 0) * (half if both else 0) + np.where(away < exact, away, far)


TABLE = Table(
    model_type="mpnet",
    prefix="mpnet",
    name="MPNet",
    sizes={
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "hidden_size": ("embeddings.word_embeddings.weight", 1),
        "max_position_embeddings": ("embeddings.position_embeddings.weight", 0),
        "intermediate_size": ("encoder.layer.0.intermediate.dense.weight", 0),
        "relative_attention_num_buckets": ("encoder.relative_attention_bias.weight", 0),
        "num_attention_heads": ("encoder.relative_attention_bias.weight", 1),
    },
    layers=("num_hidden_layers", "encoder.layer."),
    names={
        "words": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "distances": "encoder.relative_attention_bias",
        "layers.{}.qkv": ("encoder.layer.{}.attention.attn.q", "encoder.layer.{}.attention.attn.k", "encoder.layer.{}.attention.attn.v"),
        "layers.{}.out": "encoder.layer.{}.attention.attn.o",
        "layers.{}.norm1": "encoder.layer.{}.attention.LayerNorm",
        "layers.{}.linear1": "encoder.layer.{}.intermediate.dense",
        "layers.{}.linear2": "encoder.layer.{}.output.dense",
        "layers.{}.norm2": "encoder.layer.{}.output.LayerNorm",
        "pooler": "pooler.dense",
    },
    heads=Roberta.table.heads,
    tied=Roberta.table.tied,
    vocabulary=BYTE_PAIRS._replace(files=WORD_PIECES.files, special={**BYTE_PAIRS.special, "unk_token": "[UNK]"}),
)


class MPNet(TextEncoder):
    """Positions as in RoBERTa, no parts of a pair, and a bias of the scores for the distance of two tokens, one for all layers."""

    table = TABLE
    head_options = staticmethod(Roberta.head_options)
    PADDING = 1  # whatever pad_token_id says, as in transformers

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        config.only("position_embedding_type", "absolute", None)
        config.only("pad_token_id", 1, None)
        widths = config.widths()
        super().__init__(config, widths, pooler)
        positions = config.size("max_position_embeddings", 512, least=self.PADDING + 2)
        self.longest = positions - self.PADDING - 1
        self.words = nn.Embedding(config.size("vocab_size", 30527, least=2), widths.model, padding_idx=self.PADDING)
        self.positions = nn.Embedding(positions, widths.model, padding_idx=self.PADDING)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)
        config.only("relative_attention_num_buckets", 32)  # the only number for which transformers computes something
        self.distances = nn.Embedding(32, widths.heads)
        self.register_buffer("buckets", as_tensor(buckets(self.longest, 32)), persistent=False)

    def places(self, ids: Tensor) -> Tensor:
        return count_positions(ids, self.PADDING)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but MPNet has no embeddings for the parts of a pair; it marks them by tokens alone")
        return self.dropout(self.norm(self.words(ids) + self.place(ids, places)))

    def bias(self, length: int) -> Tensor:
        places = arange(length, device=self.buckets.device)
        distances = places[None, :] - places[:, None]  # (T, T), from query i to key j
        return self.distances(self.buckets[distances + (self.longest - 1)]).permute(2, 0, 1)[None]
