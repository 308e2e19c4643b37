"""Marian (Junczys-Dowmunt et al. 2018), of which the translators of OPUS-MT are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .. import functional as F
from .. import nn
from .._core import Tensor
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from .bart import TABLE, Bart
from .config import Config


class _Waves(nn.Module):
    """The positions of "Attention is all you need" (Vaswani et al. 2017): sines, and behind them cosines.

    Parameters
    ----------
    count, width : int
        Of the positions and of their features.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("waves", as_tensor(_waves(count, width)), persistent=False)

    def forward(self, places: Tensor) -> Tensor:
        return F.embedding(places, self.waves)


def _waves(count: int, width: int) -> np.ndarray:
    angles = np.arange(count)[:, None] / np.power(10000, 2 * (np.arange(width) // 2) / width)
    return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], 1).astype(np.float32)


class Marian(Bart):
    """BART with positions that are not trained, and no norm of the embeddings."""

    table = replace(
        TABLE,
        model_type="marian",
        name="Marian",
        vocabulary=None,
        buffers=("encoder.embed_positions.weight", "decoder.embed_positions.weight", "encoder.version", "decoder.version"),
        classes={"text2text-generation": "MTModel"},
    )
    norm_embeddings = False
    positions: ClassVar = _Waves
    USUAL: ClassVar = {"eos_token_id": 0, "forced_eos_token_id": 0}
    START, PADDING, WORDS = 58100, 58100, 58101

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.only("share_encoder_decoder_embeddings", True)
        config.only("decoder_vocab_size", config.values.get("vocab_size"), None)
        config.size("max_position_embeddings", 1024, most=1 << 16)  # no array says how many
        super().__init__(config, pooler)

    @staticmethod
    def settle(config: Config, state: Mapping[str, Any]) -> None:
        """Refuses arrays of positions that are not the sines; files need not have them."""
        for name in Marian.table.buffers[:2]:
            if name in state:
                found = as_tensor(state[name]).detach().cpu().float().numpy()
                if found.ndim != 2 or not np.allclose(found, _waves(*found.shape), atol=1e-2):  # also of halves
                    raise CheckpointError(f"{name!r} are not the positions that Marian computes: sines, and behind them cosines")
