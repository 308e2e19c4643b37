"""Phi-3 (Abdin et al. 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from .config import Config, Heads, Widths
from .layers import of_sequences
from .llama import TABLE, Llama, LlamaLayer, Mistral
from .rotation import Rotary

_OWN = {"layers.{}.qkv": "layers.{}.self_attn.qkv_proj", "layers.{}.linear1": "layers.{}.mlp.gate_up_proj"}


class Phi3Layer(LlamaLayer):
    """Queries, keys and values are one array."""

    def make_projections(self, widths: Widths, heads: Heads) -> None:
        self.counts = (widths.heads, heads.keys, heads.keys)
        self.qkv = nn.Linear(widths.model, sum(self.counts) * heads.size, bias=widths.qkv_bias)
        self.out = nn.Linear(widths.heads * heads.size, widths.model, bias=widths.out_bias)

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
    rotary = Rotary(types=("default", "longrope"), share=("partial_rotary_factor", 1.0), original=4096)
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
