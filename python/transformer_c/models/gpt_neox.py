"""GPT-NeoX (Black et al. 2022), and Pythia (Biderman et al. 2023)."""

from __future__ import annotations

from .. import nn
from .._core import Tensor
from .config import Config, Widths
from .decoder import TextDecoder
from .layers import RotaryLayer
from .rotation import Rotary, Rotation
from .table import Table

TABLE = Table(
    model_type="gpt_neox",
    prefix="gpt_neox",
    name="GPTNeoX",
    sizes={
        "vocab_size": ("embed_in.weight", 0),
        "hidden_size": ("embed_in.weight", 1),
        "intermediate_size": ("layers.0.mlp.dense_4h_to_h.weight", 1),
    },
    layers=("num_hidden_layers", "layers."),
    names={
        "words": "embed_in",
        "layers.{}.norm1": "layers.{}.input_layernorm",
        "layers.{}.qkv": "layers.{}.attention.query_key_value",
        "layers.{}.out": "layers.{}.attention.dense",
        "layers.{}.norm2": "layers.{}.post_attention_layernorm",
        "layers.{}.linear1": "layers.{}.mlp.dense_h_to_4h",
        "layers.{}.linear2": "layers.{}.mlp.dense_4h_to_h",
        "norm": "final_layer_norm",
    },
    heads={"text-generation": {"out": "embed_out"}},
    tied={"embed_out.weight": "embed_in.weight"},
    renamed=((r"^lm_head\.", "embed_out."),),  # as in memory from transformers 5 on
    buffers=("layers.{}.attention.bias", "layers.{}.attention.masked_bias", "layers.{}.attention.rotary_emb.inv_freq"),
)


class GPTNeoXLayer(RotaryLayer):
    """Normalises first; queries, keys and values are head by head in one array, and the network is beside attention or after it."""

    rows = "head"

    def __init__(self, widths: Widths, rotation: Rotation, parallel: bool) -> None:
        super().__init__(widths, rotation, norm_first=True)
        self.parallel = parallel


class GPTNeoX(TextDecoder):
    """Rotary positions of a share of the features, and layers whose two halves see the same states."""

    table = TABLE
    tie_word_embeddings = False

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        biased = config.flag("attention_bias", True)
        widths = Widths(
            model=config.size("hidden_size", 6144),
            heads=config.size("num_attention_heads", 64),
            hidden=config.size("intermediate_size", 24576),
            layers=config.size("num_hidden_layers", 44),
            activation=config.activation("hidden_act"),
            eps=config.number("layer_norm_eps", 1e-5),
            dropout=config.number("hidden_dropout", 0.0),
            attention_dropout=config.number("attention_dropout", 0.0),
            qkv_bias=biased,
            out_bias=biased,
        )
        size = config.divided(widths, "hidden_size", "num_attention_heads").model // widths.heads
        longest = config.size("max_position_embeddings", 2048)
        turned = Rotary(older="rotary_emb_base", share=("rotary_pct", 0.25)).read(config, size, longest)
        parallel = config.flag("use_parallel_residual", True)
        super().__init__(config, widths, pooler=False, layers=(GPTNeoXLayer(widths, turned, parallel) for _ in range(widths.layers)))
        self.longest = turned.longest
        self.words = nn.Embedding(config.size("vocab_size", 50432), widths.model)
        self.dropout = nn.Dropout(widths.dropout)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but GPT-NeoX has no embeddings for the parts of a pair")
        return self.dropout(self.words(ids))

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)
