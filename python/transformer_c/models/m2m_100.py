"""M2M100 (Fan et al. 2020), and NLLB (NLLB team 2022), which translate between a hundred or two hundred languages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .. import functional as F
from .. import nn
from .._core import Tensor
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from .bart import TABLE, Bart, BartEncoder
from .config import Config
from .roberta import count_positions

# Of config.json, where it does not say.
_DEFAULTS = {"activation_function": "relu", "scale_embedding": True, "attention_dropout": 0.1}


class _Sines(nn.Module):
    """Sines, and behind them cosines, of positions that begin after the number of the padding token; -1 is padding's, which has zeros.

    Parameters
    ----------
    count, width : int
        Of the positions and of their features.
    padding : int
    """

    def __init__(self, count: int, width: int, padding: int = 1) -> None:
        super().__init__()
        self.register_buffer("waves", as_tensor(_sines(count, width, padding)), persistent=False)

    def forward(self, places: Tensor) -> Tensor:
        return F.embedding(places + 1, self.waves)


def _sines(count: int, width: int, padding: int) -> np.ndarray:
    """Rounded as in transformers, whose frequencies and angles have float32."""
    half = width // 2
    steps = np.arange(half, dtype=np.float32) * np.float32(-np.log(10000) / (half - 1))
    angles = np.arange(padding + 1, padding + 1 + count, dtype=np.float32)[:, None] * np.exp(steps.astype(np.float64)).astype(np.float32)
    found = np.concatenate([np.sin(angles, dtype=np.float64), np.cos(angles, dtype=np.float64)], 1).astype(np.float32)
    return np.pad(found, ((1, 0), (0, width % 2)))


class _Encoder(BartEncoder):
    """Positions count the tokens that are no padding."""

    padding = 1

    def places(self, ids: Tensor) -> Tensor:
        return count_positions(ids, self.padding) - (self.padding + 1)


class M2M100(Bart):
    """BART whose layers normalise first, with positions that are not trained."""

    table = replace(
        TABLE,
        model_type="m2m_100",
        name="M2M100",
        heads={"text2text-generation": {"out": "lm_head"}},
        vocabulary=None,
        buffers=("encoder.embed_positions.weights", "decoder.embed_positions.weights", "encoder.version", "decoder.version"),
    )
    norm_first = True
    norm_embeddings = False
    biased = False
    positions: ClassVar[Any] = _Sines
    reads: ClassVar[type[BartEncoder]] = _Encoder
    USUAL: ClassVar = {"eos_token_id": 2}
    WORDS = 128112

    def __init__(self, config: Config, pooler: bool = False) -> None:
        for name, value in _DEFAULTS.items():
            config.values.setdefault(name, value)
        config.size("d_model", 1024, least=4)
        config.size("max_position_embeddings", 1024, most=1 << 16)  # no array says how many
        super().__init__(config, pooler)
        if self.padding is None:
            raise CheckpointError("config.json has pad_token_id = null, where the positions of M2M100 begin; expected an index")
        if self.padding != 1:
            self.encoder.padding = self.padding
            for side in (self.encoder, self.decoder):
                side.positions = _Sines(self.longest, self.width, self.padding)
