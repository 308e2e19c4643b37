"""ALBERT (Lan et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from ..nn.layers import of_sequences
from . import bert
from .bert import Bert
from .config import Config, Widths
from .layers import own_lengths
from .table import Table

_LAYER = "encoder.albert_layer_groups.{}.albert_layers.0"
TABLE: Table = replace(
    bert.TABLE,
    model_type="albert",
    prefix="albert",
    name="Albert",
    sizes={
        **bert.TABLE.sizes,
        "embedding_size": ("embeddings.word_embeddings.weight", 1),
        "hidden_size": ("encoder.embedding_hidden_mapping_in.weight", 0),
        "intermediate_size": (f"{_LAYER.format(0)}.ffn.weight", 0),
    },
    layers=("num_hidden_groups", "encoder.albert_layer_groups."),
    names={
        **{ours: theirs for ours, theirs in bert.TABLE.names.items() if not ours.startswith("layers.")},
        "widened": "encoder.embedding_hidden_mapping_in",
        "layers.{}.qkv": (f"{_LAYER}.attention.query", f"{_LAYER}.attention.key", f"{_LAYER}.attention.value"),
        "layers.{}.out": f"{_LAYER}.attention.dense",
        "layers.{}.norm1": f"{_LAYER}.attention.LayerNorm",
        "layers.{}.linear1": f"{_LAYER}.ffn",
        "layers.{}.linear2": f"{_LAYER}.ffn_output",
        "layers.{}.norm2": f"{_LAYER}.full_layer_layer_norm",
        "pooler": "pooler",
    },
    heads={
        "text-classification": {"dense": "pooler", "out": "classifier"},
        "token-classification": {"out": "classifier"},
        "question-answering": {"out": "qa_outputs"},
        "fill-mask": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.bias"},
    },
    tied={"predictions.decoder.weight": "embeddings.word_embeddings.weight", "predictions.decoder.bias": "predictions.bias"},
    vocabulary=None,  # a sentencepiece model
    buffers=(*bert.TABLE.buffers, "sop_classifier.classifier.weight", "sop_classifier.classifier.bias"),
)


class Albert(Bert):
    """BERT whose layers share their weights, in one group or several, and whose embeddings are smaller than its states."""

    table = TABLE
    SIZES: ClassVar = {  # and what else config.json means by default
        **{"vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384},
        **{"num_hidden_groups": 1, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    }

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.values = {**self.SIZES, **config.values}
        config.only("inner_group_num", 1)
        embedding = config.size("embedding_size")
        super().__init__(config, pooler, embedding)
        self.count = config.size("num_hidden_layers", 12, most=1 << 10)  # no array says how many
        self.widened = nn.Linear(embedding, self.width)
        for layer in self.layers:
            layer.dropout2 = nn.Dropout(0.0)  # nothing is dropped from what its network gives

    @classmethod
    def widths(cls, config: Config) -> Widths:
        return config.widths()._replace(layers=config.size("num_hidden_groups"))

    def in_order(self) -> Iterable[nn.Module]:
        share = self.count / len(self.layers)  # of a group, rounded as transformers rounds it
        return (self.layers[int(number / share)] for number in range(self.count))

    def widen(self, x: Tensor, visible: dict[str, Any]) -> Tensor:
        return of_sequences(self.widened, x, own_lengths(x, visible))

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task, as in ``Bert``."""
        if task == "fill-mask":
            return {"activation": config.activation("hidden_act", "gelu_new"), "eps": config.number("layer_norm_eps", 1e-12)}
        dropout = 0.0 if task == "question-answering" else config.optional("classifier_dropout_prob", 0.1)
        return {"dropout": dropout, **({"activation": "tanh"} if task == "text-classification" else {})}
