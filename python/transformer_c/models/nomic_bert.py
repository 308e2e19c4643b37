"""NomicBERT (Nussbaum et al. 2024)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import zeros
from .config import Config
from .layers import RotaryLayer, TextEncoder
from .rotation import Rotary
from .table import WORD_PIECES, Table

TABLE = Table(
    model_type="nomic_bert",
    prefix="nomic_bert",
    name="NomicBert",
    sizes={
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "hidden_size": ("embeddings.word_embeddings.weight", 1),
        "type_vocab_size": ("embeddings.token_type_embeddings.weight", 0),
        "intermediate_size": ("encoder.layers.0.mlp.fc2.weight", 1),
    },
    layers=("num_hidden_layers", "encoder.layers."),
    names={
        "words": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "norm": "emb_ln",
        "layers.{}.qkv": "encoder.layers.{}.attn.Wqkv",
        "layers.{}.out": "encoder.layers.{}.attn.out_proj",
        "layers.{}.norm1": "encoder.layers.{}.norm1",
        "layers.{}.linear1": ("encoder.layers.{}.mlp.fc12", "encoder.layers.{}.mlp.fc11"),  # the activation is applied to the first
        "layers.{}.linear2": "encoder.layers.{}.mlp.fc2",
        "layers.{}.norm2": "encoder.layers.{}.norm2",
        "pooler": "pooler.dense",  # of the head for classes of texts alone
    },
    heads={
        "text-classification": {"dense": "pooler.dense", "out": "classifier"},
        "token-classification": {"out": "classifier"},
        "fill-mask": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.layer_norm",
            "bias": "cls.predictions.bias",
        },
    },
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    renamed=(  # transformers 5 has other names in memory than in its files
        (r"^layers\.", "encoder.layers."),
        (r"^embeddings\.LayerNorm\.", "emb_ln."),
        (r"\.self_attn\.o_proj\.", ".attn.out_proj."),
        (r"\.self_attn\.", ".attn."),
        (r"\.mlp\.up_proj\.", ".mlp.fc11."),
        (r"\.mlp\.gate_proj\.", ".mlp.fc12."),
        (r"\.mlp\.down_proj\.", ".mlp.fc2."),
        (r"\.post_attention_layernorm\.", ".norm1."),
        (r"\.post_mlp_layernorm\.", ".norm2."),
    ),
    split={".attn.Wqkv.": (".attn.q_proj.", ".attn.k_proj.", ".attn.v_proj.")},
    vocabulary=WORD_PIECES,
)
# The names of values in folders that are older than the architecture in transformers, and the values there that would change results.
_OLDER = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
_ONLY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "parallel_block", "use_rms_norm", "causal"), (False, None)
    ),
    **dict.fromkeys(("rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx"), (False, None)),
    **dict.fromkeys(("rotary_emb_scale_base", "rotary_scaling_factor"), (None,)),
    "activation_function": ("swiglu", None),
    "rotary_emb_fraction": (1.0, 1),
    "scale_attn_weights": (True,),
}


class NomicBert(TextEncoder):
    """BERT with rotary positions, networks with a gate, and no biases in its layers but those of the norms."""

    table = TABLE
    DEFAULTS: ClassVar = {"hidden_act": "silu"}

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.values = {**self.DEFAULTS, **config.values}
        config.without_extensions()
        config.renamed(_OLDER)
        for name, supported in _ONLY.items():
            config.only(name, *supported)
        widths = config.widths(dropout=0.0)._replace(qkv_bias=False, out_bias=False, network_bias=False, gated=True)
        config.rotated(widths, "hidden_size", "num_attention_heads")
        turned = Rotary(1000.0).read(config, widths.model // widths.heads, config.size("max_position_embeddings", 2048))
        super().__init__(config, widths, False, (RotaryLayer(widths, turned) for _ in range(widths.layers)))
        words = config.size("vocab_size", 30528)
        self.longest = turned.longest
        self.words = nn.Embedding(words, widths.model, padding_idx=config.index("pad_token_id", 0, words))
        self.types = nn.Embedding(config.size("type_vocab_size", 2), widths.model)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        types = zeros(1, 1, dtype=np.int64, device=ids.device) if token_types is None else token_types
        return self.dropout(self.norm(self.words(ids) + self.types(types)))

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task, as in ``Bert``."""
        if task == "fill-mask":
            return {"activation": config.activation("hidden_act", "silu"), "eps": config.number("layer_norm_eps", 1e-12)}
        dropout = config.optional("classifier_dropout", config.number("hidden_dropout_prob", 0.0))
        return {"dropout": dropout, **({"activation": "tanh"} if task == "text-classification" else {})}
