"""The estimators' model: tokens of each kind of input, encoder layers, and a head on a token that is learnt."""

from __future__ import annotations

import math

import numpy as np

from .. import nn
from .._core import Tensor
from .._joining import cat
from .._tensor import arange, as_tensor, empty


class Table(nn.Module):
    """x (B, F) to tokens (B, F, E): each number scales a vector of its feature, to which another is added."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(nn.init.uniform_(empty(features, width), -bound, bound))
        self.bias = nn.Parameter(nn.init.uniform_(empty(features, width), -bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1) * self.weight + self.bias


class Positions(nn.Module):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5), next to each other (T, E), for sequences of any length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = np.exp(-math.log(10000.0) / width * np.arange(0, width, 2)).astype(np.float32)
        self.register_buffer("sines", as_tensor(frequency))
        self.register_buffer("cosines", as_tensor(frequency[: width // 2].copy()))

    def forward(self, length: int) -> Tensor:
        place = arange(length, device=self.sines.device).float().unsqueeze(1)
        return cat([(place * self.sines).sin(), (place * self.cosines).cos()], 1)


class Steps(nn.Module):
    """x (B, T, F) to tokens (B, T, E)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.project, self.positions = nn.Linear(features, width), Positions(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x) + self.positions(x.shape[1])


class Words(nn.Module):
    """Integers (B, T) to tokens (B, T, E)."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width, padding_idx=0), Positions(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding(x) + self.positions(x.shape[1])


TOKENS = {"table": Table, "sequences": Steps, "texts": Words}


class Model(nn.Module):
    """Tokens, layers, and a head on the first token.

    Parameters
    ----------
    kind : {"table", "sequences", "texts"}
    size : int
        Features, or words of the vocabulary.
    outputs : int
        K.
    """

    def __init__(self, kind: str, size: int, outputs: int, *, width: int, heads: int, layers: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.tokens = TOKENS[kind](size, width)
        self.first = nn.Parameter(nn.init.normal_(empty(1, 1, width), std=0.02))
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, heads, hidden, dropout, batch_first=True, norm_first=True) for _ in range(layers)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The outputs (B, K). The first token counts among the `lengths`."""
        tokens = self.tokens(x)
        x = cat([self.first.expand(tokens.shape[0], -1, -1), tokens], 1)
        padding = None if lengths is None else arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.head(self.norm(x[:, 0]))


__all__ = ["Model"]
