"""OLMo 2 (OLMo Team 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from .._core import Tensor
from .config import Config, Heads, Widths
from .layers import norm_of, of_sequences
from .llama import TABLE, Llama, LlamaLayer

_AFTER = {"layers.{}.after1": "layers.{}.post_attention_layernorm", "layers.{}.after2": "layers.{}.post_feedforward_layernorm"}


class Olmo2Layer(LlamaLayer):
    """Normalises what attention and network give, not what they see, and the queries and keys of all heads together."""

    def make_head_norms(self, widths: Widths, heads: Heads) -> None:
        self.query_norm, self.key_norm = (norm_of(widths, count * heads.size) for count in (widths.heads, heads.keys))

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (of_sequences(layer, x, lengths) for layer in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in (self.query_norm(q), self.key_norm(k), v))
        return q, k, v


class Olmo2(Llama):
    """Llama with norms at other places."""

    table = replace(
        TABLE,
        model_type="olmo2",
        name="Olmo2",
        names={**{ours: name for ours, name in TABLE.names.items() if ours not in ("layers.{}.norm1", "layers.{}.norm2")}, **_AFTER},
    )
    layer, network_biased = Olmo2Layer, False
    DEFAULTS: ClassVar = {**Llama.DEFAULTS, "vocab_size": 50304, "rms_norm_eps": 1e-5, "pad_token_id": 1}

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        config.only("clip_qkv", None)
        widths, heads = super().widths(config)
        return widths._replace(norm_before=(False, False), norm_after=True), heads
