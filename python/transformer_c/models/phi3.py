"""Phi-3 (Abdin et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from .config import FULL, SLIDING, Config, Widths
from .layers import of_sequences
from .llama import TABLE, Heads, Llama, LlamaLayer, Mistral
from .rotation import Rotation, read_rotation

_OWN = {"layers.{}.qkv": "layers.{}.self_attn.qkv_proj", "layers.{}.linear1": "layers.{}.mlp.gate_up_proj"}
_LENGTH = "original_max_position_embeddings"


class Phi3Layer(LlamaLayer):
    """Queries, keys and values are one array."""

    def __init__(self, widths: Widths, rotation: Rotation, heads: Heads, window: int | None) -> None:
        super().__init__(widths, rotation, heads, window)
        del self.query, self.key, self.value, self.query_norm, self.key_norm
        self.counts = (widths.heads, heads.keys, heads.keys)
        self.qkv = nn.Linear(widths.model, sum(self.counts) * heads.size, bias=widths.qkv_bias)

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = of_sequences(self.qkv, x, lengths).unflatten(-1, (-1, self.head_size)).transpose(1, 2).split(self.counts, 1)
        return q, k, v


class Phi3(Mistral):
    """Mistral with fewer and larger arrays, and positions of a share of the features."""

    table = replace(
        TABLE,
        model_type="phi3",
        name="Phi3",
        names={**{ours: name for ours, name in TABLE.names.items() if ".self_attn." not in name or ours.endswith(".out")}, **_OWN},
    )
    layer = Phi3Layer
    DEFAULTS: ClassVar = {
        **Llama.DEFAULTS,
        **{"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        **{"pad_token_id": 32000, "sliding_window": None},
    }

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        widths, heads = super().widths(config)
        return widths._replace(dropout=config.number("resid_pdrop", 0.0)), heads

    @classmethod
    def projections(cls, widths: Widths, heads: Heads) -> dict[str, int]:
        return {"qkv_proj": widths.heads + 2 * heads.keys}

    @classmethod
    def rotations(cls, config: Config, size: int, longest: int) -> Mapping[str, Rotation]:
        config.values.setdefault(_LENGTH, 4096)  # where config.json does not say, whatever max_position_embeddings is
        found = read_rotation(config, size, longest, types=("default", "longrope"), share=("partial_rotary_factor", 1.0))
        return dict.fromkeys((FULL, SLIDING), found)
