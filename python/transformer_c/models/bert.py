"""BERT (Devlin et al. 2019), and so MiniLM, E5, BGE and GTE; ERNIE (Sun et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import zeros
from .config import Config, Widths
from .layers import TextEncoder
from .table import WORD_PIECES, Table

TABLE = Table(
    model_type="bert",
    prefix="bert",
    name="Bert",
    sizes={  # where the weights show a size: the array's name, and the axis
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "hidden_size": ("embeddings.word_embeddings.weight", 1),
        "max_position_embeddings": ("embeddings.position_embeddings.weight", 0),
        "type_vocab_size": ("embeddings.token_type_embeddings.weight", 0),
        "intermediate_size": ("encoder.layer.0.intermediate.dense.weight", 0),
    },
    layers=("num_hidden_layers", "encoder.layer."),
    names={  # ours: transformers'; three are one array of ours, one below the other
        "words": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "layers.{}.qkv": (
            "encoder.layer.{}.attention.self.query",
            "encoder.layer.{}.attention.self.key",
            "encoder.layer.{}.attention.self.value",
        ),
        "layers.{}.out": "encoder.layer.{}.attention.output.dense",
        "layers.{}.norm1": "encoder.layer.{}.attention.output.LayerNorm",
        "layers.{}.linear1": "encoder.layer.{}.intermediate.dense",
        "layers.{}.linear2": "encoder.layer.{}.output.dense",
        "layers.{}.norm2": "encoder.layer.{}.output.LayerNorm",
        "pooler": "pooler.dense",
    },
    heads={
        "text-classification": {"dense": "pooler.dense", "out": "classifier"},
        "token-classification": {"out": "classifier"},
        "question-answering": {"out": "qa_outputs"},
        "fill-mask": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
        },
    },
    tied={  # names of a second copy of an array
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    vocabulary=WORD_PIECES,
)


class Bert(TextEncoder):
    """BERT: embeddings of words, positions and parts of a pair; layers that normalise after their residual connections."""

    table = TABLE
    WORDS, PADDING = 30522, 0  # where config.json does not say
    has_tasks: ClassVar[bool] = False  # whether config.json may ask for an embedding of what the states are for

    def __init__(self, config: Config, pooler: bool = False, embedding: int | None = None) -> None:
        config.without_extensions()
        config.only("position_embedding_type", "absolute", None)
        widths = self.widths(config)
        super().__init__(config, widths, pooler)
        words, size = config.size("vocab_size", self.WORDS), embedding or widths.model
        self.padding = config.index("pad_token_id", self.PADDING, words)
        self.longest = config.size("max_position_embeddings", 512)
        self.words = nn.Embedding(words, size, padding_idx=self.padding)
        self.positions = nn.Embedding(self.longest, size)
        self.types = nn.Embedding(config.size("type_vocab_size", 2), size)
        if self.has_tasks and config.flag("use_task_id", False):
            self.tasks = nn.Embedding(config.size("task_type_vocab_size", 3, most=1 << 16), size)
        self.norm: nn.Module = nn.LayerNorm(size, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)

    @classmethod
    def widths(cls, config: Config) -> Widths:
        """The widths of its layers."""
        return config.widths()

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        types = zeros(1, 1, dtype=np.int64, device=ids.device) if token_types is None else token_types
        x = self.words(ids) + self.types(types) + self.place(ids, places)
        if hasattr(self, "tasks"):  # the first one, as in transformers where none is said
            x = x + self.tasks(zeros(1, 1, dtype=np.int64, device=ids.device))
        return self.dropout(self.norm(x))

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task: dropout before its last layer, and how its first layer is applied."""
        dropout = config.number("hidden_dropout_prob", 0.1)
        if task == "text-classification":
            return {"activation": "tanh", "dropout": config.optional("classifier_dropout", dropout)}
        if task == "fill-mask":
            return {"activation": config.activation("hidden_act"), "eps": config.number("layer_norm_eps", 1e-12)}
        return {"dropout": config.optional("classifier_dropout", dropout) if task == "token-classification" else 0.0}


class Ernie(Bert):
    """BERT that may have an embedding of what the states are for."""

    table = replace(
        TABLE, model_type="ernie", prefix="ernie", name="Ernie", names={**TABLE.names, "tasks": "embeddings.task_type_embeddings"}
    )
    has_tasks = True
