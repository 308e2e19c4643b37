"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020)."""

from __future__ import annotations

from dataclasses import replace

from .. import nn
from .._core import Tensor
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from . import bert
from .bert import Bert
from .config import Config
from .table import BYTE_PAIRS


def count_positions(ids: Tensor, padding: int) -> Tensor:
    """The position of each token, (B, T): they count tokens that are no padding, from `padding` + 1 on; padding has `padding`."""
    real = (as_tensor(ids) != padding).long()
    return real.cumsum(1) * real + padding


TABLE = replace(
    bert.TABLE,
    model_type="roberta",
    prefix="roberta",
    name="Roberta",
    heads={
        "text-classification": {"dense": "classifier.dense", "out": "classifier.out_proj"},
        "token-classification": {"out": "classifier"},
        "question-answering": {"out": "qa_outputs"},
        "fill-mask": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
    },
    tied={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    vocabulary=BYTE_PAIRS,
)


class Roberta(Bert):
    """BERT with positions that begin after the number of the padding token, and heads of its own."""

    table = TABLE
    WORDS, PADDING = 50265, 1

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__(config, pooler)
        if self.padding is None:
            raise CheckpointError(f"config.json has pad_token_id = null, where the positions of {self.table.name} begin; expected an index")
        self.longest -= self.padding + 1
        if self.longest < 1:
            raise config.refuse("max_position_embeddings", f"more than pad_token_id + 1 = {self.padding + 1}")
        self.positions.padding_idx = self.padding

    def places(self, ids: Tensor) -> Tensor:
        return count_positions(ids, self.padding or 0)

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        options = Bert.head_options(config, task)
        if task == "text-classification":
            options["before"] = options["dropout"]
        if task == "fill-mask":
            options["activation"] = "gelu"
        return options


class XLMRoberta(Roberta):
    """RoBERTa with the words of a hundred languages."""

    table = replace(TABLE, model_type="xlm-roberta", name="XLMRoberta", vocabulary=None)  # a sentencepiece model
    WORDS = 30522


class Camembert(Roberta):
    """RoBERTa with French words."""

    table = replace(TABLE, model_type="camembert", name="Camembert", vocabulary=None)  # a sentencepiece model
    WORDS = 30522


class Data2VecText(Roberta):
    """RoBERTa that was trained otherwise (Baevski et al. 2022)."""

    table = replace(TABLE, model_type="data2vec-text", prefix="data2vec_text", name="Data2VecText")
    WORDS = 30522


class XLMRobertaXL(Roberta):
    """XLM-RoBERTa whose layers normalise first, with a norm after the last and none of the embeddings (Goyal et al. 2021)."""

    table = replace(
        TABLE,
        model_type="xlm-roberta-xl",
        name="XLMRobertaXL",
        names={
            **{own: name for own, name in TABLE.names.items() if own != "norm"},
            "layers.{}.norm1": "encoder.layer.{}.attention.self_attn_layer_norm",
            "layers.{}.norm2": "encoder.layer.{}.LayerNorm",
            "last_norm": "encoder.LayerNorm",
        },
        vocabulary=None,  # a sentencepiece model
    )
    WORDS = 250880

    def __init__(self, config: Config, pooler: bool = False) -> None:
        for name, value in {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "num_attention_heads": 32}.items():  # where it does not say
            config.values.setdefault(name, value)
        super().__init__(config, pooler)
        self.norm = nn.Identity()
        self.last_norm = nn.LayerNorm(self.width, eps=config.number("layer_norm_eps", 1e-5))
        for layer in self.layers:
            layer.norm_first, layer.dropout2 = True, nn.Dropout(0.0)

    def finish(self, x: Tensor) -> Tensor:
        return self.last_norm(x)
