"""ELECTRA (Clark et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from ..nn.layers import of_sequences
from . import bert
from .bert import Bert
from .config import Config
from .layers import own_lengths

TABLE = replace(
    bert.TABLE,
    model_type="electra",
    prefix="electra",
    name="Electra",
    sizes={
        **bert.TABLE.sizes,
        "embedding_size": ("embeddings.word_embeddings.weight", 1),
        "hidden_size": ("encoder.layer.0.attention.self.query.weight", 1),
    },
    names={**{ours: theirs for ours, theirs in bert.TABLE.names.items() if ours != "pooler"}, "widened": "embeddings_project"},
    heads={
        "text-classification": {"dense": "classifier.dense", "out": "classifier.out_proj"},
        "token-classification": {"out": "classifier"},
        "question-answering": {"out": "qa_outputs"},
        "fill-mask": {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm", "bias": "generator_lm_head.bias"},
    },
    tied={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    buffers=(
        *bert.TABLE.buffers,
        *(f"discriminator_predictions.{layer}.{leaf}" for layer in ("dense", "dense_prediction") for leaf in ("weight", "bias")),
    ),
)


class Electra(Bert):
    """BERT without a pooler, whose embeddings may be smaller than its states: a linear layer widens them."""

    table = TABLE
    SIZES: ClassVar = {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}  # by default

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.values = {**self.SIZES, **config.values}
        embedding = config.size("embedding_size")
        super().__init__(config, pooler=False, embedding=embedding)
        self.widened = nn.Linear(embedding, self.width) if embedding != self.width else None

    def widen(self, x: Tensor, visible: dict[str, Any]) -> Tensor:
        return x if self.widened is None else of_sequences(self.widened, x, own_lengths(x, visible))

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        options = Bert.head_options(config, task)
        if task == "text-classification":
            options["before"] = options["dropout"]
        return options if "activation" not in options else {**options, "activation": "gelu"}
