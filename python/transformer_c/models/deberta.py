"""DeBERTa, the first version (He et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from .._tensor import zeros
from ..nn.parameter import Parameter
from .config import Config, Heads, Widths
from .deberta_v2 import TABLE, DebertaV2, DisentangledLayer
from .table import WORD_PIECES, Vocabulary

_SELF = "encoder.layer.{}.attention.self."
_LATER = ("position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size")  # of version 2 alone
_DEFAULTS = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50265}


class _Layer(DisentangledLayer):
    """Queries, keys and values of a head are one below the other; keys have no bias, nor those of distances."""

    rows = "head"

    def __init__(self, widths: Widths, *options: Any) -> None:
        super().__init__(widths, *options)
        if self.far_key is not None:
            self.far_key = nn.Linear(widths.model, widths.model, bias=False)

    def make_projections(self, widths: Widths, heads: Heads) -> None:
        super().make_projections(widths._replace(qkv_bias=False), heads)
        self.query_bias, self.value_bias = (Parameter(zeros(widths.model)) for _ in range(2))

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super()._project(x, lengths)
        return q + self.query_bias.reshape(self.heads, 1, -1), k, v + self.value_bias.reshape(self.heads, 1, -1)


class Deberta(DebertaV2):
    """Each distance has an embedding of its own."""

    table = replace(
        TABLE,
        model_type="deberta",
        name="Deberta",
        sizes={**TABLE.sizes, "hidden_size": ("encoder.layer.0.attention.self.in_proj.weight", 1)},
        names={
            **{own: name for own, name in TABLE.names.items() if "conv" not in own and own != "distances_norm"},
            "layers.{}.qkv": f"{_SELF}in_proj",
            "layers.{}.query_bias": f"{_SELF}q_bias",
            "layers.{}.value_bias": f"{_SELF}v_bias",
            "layers.{}.far_key": f"{_SELF}pos_proj",
            "layers.{}.far_query": f"{_SELF}pos_q_proj",
        },
        vocabulary=Vocabulary(("vocab.json", "merges.txt"), WORD_PIECES.special, separators=1, second=1),
    )
    of_layer: ClassVar[type[DisentangledLayer]] = _Layer

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.only("talking_head", False, None)
        own = _own(config)
        for name, value in _DEFAULTS.items():
            own.values.setdefault(name, value)
        super().__init__(own, pooler)
        config.values.update(own.values)
        self.config = config.values

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().check_shapes(_own(config), shapes)


def _own(config: Config) -> Config:
    return Config({name: value for name, value in config.values.items() if name not in _LATER})
