"""ModernBERT (Warner et al. 2024)."""

from __future__ import annotations

from typing import Any

from .. import nn
from .._core import Tensor
from .config import FULL, SLIDING, Config, Widths
from .layers import RotaryLayer, TextEncoder
from .rotation import Rotary, Rotation
from .table import Table

TABLE = Table(
    model_type="modernbert",
    prefix="model",
    name="ModernBert",
    sizes={
        "vocab_size": ("embeddings.tok_embeddings.weight", 0),
        "hidden_size": ("embeddings.tok_embeddings.weight", 1),
        "intermediate_size": ("layers.0.mlp.Wo.weight", 1),
    },
    layers=("num_hidden_layers", "layers."),
    names={
        "words": "embeddings.tok_embeddings",
        "norm": "embeddings.norm",
        "layers.{}.norm1": "layers.{}.attn_norm",
        "layers.{}.qkv": "layers.{}.attn.Wqkv",
        "layers.{}.out": "layers.{}.attn.Wo",
        "layers.{}.norm2": "layers.{}.mlp_norm",
        "layers.{}.linear1": "layers.{}.mlp.Wi",
        "layers.{}.linear2": "layers.{}.mlp.Wo",
        "last_norm": "final_norm",
    },
    heads={
        "text-classification": {"dense": "head.dense", "norm": "head.norm", "out": "classifier"},
        "token-classification": {"dense": "head.dense", "norm": "head.norm", "out": "classifier"},
        "question-answering": {"dense": "head.dense", "norm": "head.norm", "out": "classifier"},
        "fill-mask": {"dense": "head.dense", "norm": "head.norm", "bias": "decoder.bias"},
    },
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
_EPS = 1e-5


def kinds_of_layers(config: Config, count: int) -> list[str]:
    """Of each layer: ``layer_types``, or every third is full, or another number of them in older files."""
    every = config.size("global_attn_every_n_layers", 3)
    return config.layer_types(count) or [SLIDING if number % every else FULL for number in range(count)]


class ModernLayer(RotaryLayer):
    """Normalises first, but in the first layer, whose input is normalised; drops within its network."""

    def __init__(self, widths: Widths, rotation: Rotation, window: int | None, is_first: bool) -> None:
        super().__init__(widths._replace(norm_before=(not is_first, True)), rotation, window, norm_first=True)
        self.dropout1, self.dropout2 = nn.Dropout(widths.attention_dropout), nn.Identity()
        self.dropout = nn.Dropout(widths.dropout)

    def _hidden(self, x: Tensor, lengths: Any) -> Tensor:
        return self.dropout(super()._hidden(x, lengths))


class ModernBert(TextEncoder):
    """Rotary positions, networks with a gate, and layers of which most see only what is near."""

    table = TABLE
    PADDING = 50283  # where config.json does not say

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        attention_bias = config.flag("attention_bias", False)
        widths = Widths(
            model=config.size("hidden_size", 768),
            heads=config.size("num_attention_heads", 12),
            hidden=config.size("intermediate_size", 1152),
            layers=config.size("num_hidden_layers", 22),
            activation=config.activation("hidden_activation"),
            eps=config.number("norm_eps", _EPS),
            dropout=config.number("mlp_dropout", 0.0),
            attention_dropout=config.number("attention_dropout", 0.0),
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            network_bias=config.flag("mlp_bias", False),
            norm_bias=config.flag("norm_bias", False),
            gated=True,
        )
        config.rotated(widths, "hidden_size", "num_attention_heads")
        window = config.size("local_attention", 128) // 2
        config.only("sliding_window", None, window)
        size, longest = widths.model // widths.heads, config.size("max_position_embeddings", 8192)
        turned = {
            FULL: Rotary(160000.0, "global_rope_theta", FULL).read(config, size, longest),
            SLIDING: Rotary(10000.0, "local_rope_theta", SLIDING).read(config, size, longest),
        }
        kinds = kinds_of_layers(config, widths.layers)
        layers = (ModernLayer(widths, turned[kind], window if kind == SLIDING else None, i == 0) for i, kind in enumerate(kinds))
        super().__init__(config, widths, pooler=False, layers=layers)
        words = config.size("vocab_size", 50368)
        self.longest = turned[FULL].longest
        padding = config.index("pad_token_id", self.PADDING if words > self.PADDING else None, words)
        self.words = nn.Embedding(words, widths.model, padding_idx=padding)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps, bias=widths.norm_bias)
        self.dropout = nn.Dropout(config.number("embedding_dropout", 0.0))
        self.last_norm = nn.LayerNorm(widths.model, eps=widths.eps, bias=widths.norm_bias)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but ModernBERT has no embeddings for the parts of a pair")
        return self.dropout(self.norm(self.words(ids)))

    def finish(self, x: Tensor) -> Tensor:
        return self.last_norm(x)

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task: its first layer and norm, dropout before its last layer, and what a text is judged by."""
        options: dict[str, Any] = {
            "activation": config.activation("classifier_activation"),
            "dense_bias": config.flag("classifier_bias", False),
            "eps": config.number("norm_eps", _EPS),
            "norm_bias": config.flag("norm_bias", False),
        }
        if task == "fill-mask":
            return {**options, "bias": config.flag("decoder_bias", True)}
        if task == "text-classification":
            config.only("classifier_pooling", "cls", "mean")
            options["pooling"] = config.values.get("classifier_pooling", "cls")
        return {**options, "dropout": config.number("classifier_dropout", 0.0)}
