"""Gemma, Gemma 2 and the texts of Gemma 3 (Gemma Team 2024, 2024, 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._core import Tensor
from .._tensor import as_tensor
from .config import FULL, SLIDING, Config, Heads, Widths
from .llama import TABLE, Llama
from .rotation import Rotary, Rotation

_AFTER = {  # the norms of layers that also have some after attention and network
    "layers.{}.after1": "layers.{}.post_attention_layernorm",
    "layers.{}.norm2": "layers.{}.pre_feedforward_layernorm",
    "layers.{}.after2": "layers.{}.post_feedforward_layernorm",
}
_BOTH = "use_bidirectional_attention"


class Gemma(Llama):
    """Llama whose norms multiply by 1 + weight, and whose embeddings are multiplied by the root of their size."""

    table = replace(TABLE, model_type="gemma", name="Gemma")
    tie_word_embeddings = True
    network_biased = False
    norm_after: ClassVar[bool] = False  # whether what attention and network give is normalised
    may_encode: ClassVar[bool] = False  # whether config.json may say that tokens see those after them
    DEFAULTS: ClassVar = {
        **Llama.DEFAULTS,
        **{"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16},
        **{"num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192, "hidden_act": "gelu_pytorch_tanh"},
        "pad_token_id": 0,
    }

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        config.only(_BOTH, None, False, *([True] if cls.may_encode else []))
        widths, heads = super().widths(config)
        if cls.activation == "hidden_act" and config.values.get("hidden_act") == "gelu":  # as the first files say, for the other one
            widths = widths._replace(activation="gelu_tanh")
        return widths._replace(offset=True, norm_after=cls.norm_after), heads

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        x = super().embed(ids, token_types, places)
        return x * as_tensor(np.array(self.width**0.5)).to(x.dtype).item()  # rounded as a weight would be


class Gemma2(Gemma):
    """Gemma with norms before and after attention and network, bounded scores, and a window in every other layer."""

    table = replace(TABLE, model_type="gemma2", name="Gemma2", names={**TABLE.names, **_AFTER})
    norm_after, activation = True, "hidden_activation"
    softcaps: ClassVar[tuple[float | None, float | None]] = (50.0, 30.0)  # of attention, of words, where config.json does not say
    DEFAULTS: ClassVar = {
        **Gemma.DEFAULTS,
        **{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4},
        "hidden_activation": "gelu_pytorch_tanh",
    }

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        widths, heads = super().widths(config)
        scale = config.positive("query_pre_attn_scalar", 256) ** -0.5
        return widths, heads._replace(scale=scale, softcap=_softcap(config, "attn_logit_softcapping", cls.softcaps[0]))

    @classmethod
    def kinds(cls, config: Config, layers: int) -> list[str]:
        return config.layer_types(layers) or [FULL if number % 2 else SLIDING for number in range(layers)]

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        """Of the head, also what scores of words stay below."""
        return {**super().head_options(config, task), "softcap": _softcap(config, "final_logit_softcapping", cls.softcaps[1])}


class Gemma3(Gemma2):
    """Gemma 2 that normalises queries and keys instead of bounding scores, with rotary positions of their own in layers with a window.

    An encoder where config.json has use_bidirectional_attention: EmbeddingGemma.
    """

    table = replace(Gemma2.table, model_type="gemma3_text", name="Gemma3", classes={None: "TextModel"})
    normed, softcaps, may_encode = True, (None, None), True
    DEFAULTS: ClassVar = {**Gemma2.DEFAULTS, "vocab_size": 262208, "max_position_embeddings": 131072}

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__(config, pooler)
        self.causal = config.values.get(_BOTH) is not True

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        config.only("attn_logit_softcapping", None)  # which transformers ignores
        return super().widths(config)

    @classmethod
    def rotations(cls, config: Config, size: int, longest: int) -> Mapping[str, Rotation]:
        return {
            FULL: Rotary(1e6, kind=FULL, scaled=FULL).read(config, size, longest),
            SLIDING: Rotary(1e4, "rope_local_base_freq", kind=SLIDING, scaled=FULL).read(config, size, longest),
        }

    @classmethod
    def kinds(cls, config: Config, layers: int) -> list[str]:
        every = config.size("sliding_window_pattern", 6)
        return config.layer_types(layers) or [SLIDING if number % every else FULL for number in range(1, layers + 1)]

    @classmethod
    def window(cls, config: Config) -> int | None:
        """Of all tokens that are seen, half are before and half after, where there are some after."""
        return config.size("sliding_window", cls.DEFAULTS["sliding_window"]) // 2 if config.values.get(_BOTH) else super().window(config)

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        config.only(_BOTH, None, False)
        return super().head_options(config, task)


def _softcap(config: Config, name: str, usual: Any) -> float:
    """What scores stay below; 0 for null."""
    return 0.0 if config.values.get(name, usual) is None else config.positive(name, usual)
