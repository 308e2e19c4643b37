"""T5 (Raffel et al. 2020), T5 1.1 and Flan-T5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import arange, as_tensor
from ..checkpoint import CheckpointError
from .config import ACTIVATIONS, Config, Widths
from .encoder_decoder import Decoder, EncoderDecoder, PairLayer, TargetLayer, places_after, without_extensions
from .layers import TextEncoder, norm_of
from .mpnet import buckets
from .names import lack
from .table import Table

_ENCODER, _DECODER = "encoder.block.{}.layer.", "decoder.block.{}.layer."
_DISTANCES = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"


def _side(ours: str, theirs: str, network: int) -> dict[str, str | tuple[str, ...]]:
    """The names of the arrays of a side's layers; `network`: the number of the last of their parts."""
    return {
        f"{ours}.layers.{{}}.norm1": f"{theirs}0.layer_norm",
        f"{ours}.layers.{{}}.qkv": tuple(f"{theirs}0.SelfAttention.{part}" for part in "qkv"),
        f"{ours}.layers.{{}}.out": f"{theirs}0.SelfAttention.o",
        f"{ours}.layers.{{}}.norm2": f"{theirs}{network}.layer_norm",
        f"{ours}.layers.{{}}.linear1": f"{theirs}{network}.DenseReluDense.wi",
        f"{ours}.layers.{{}}.gate": f"{theirs}{network}.DenseReluDense.wi_0",
        f"{ours}.layers.{{}}.up": f"{theirs}{network}.DenseReluDense.wi_1",
        f"{ours}.layers.{{}}.linear2": f"{theirs}{network}.DenseReluDense.wo",
    }


TABLE = Table(
    model_type="t5",
    prefix=None,
    name="T5",
    sizes={
        "vocab_size": ("shared.weight", 0),
        "d_model": ("shared.weight", 1),
        "d_ff": ("encoder.block.0.layer.1.DenseReluDense.wo.weight", 1),
        "relative_attention_num_buckets": (f"{_DISTANCES}.weight", 0),
        "num_heads": (f"{_DISTANCES}.weight", 1),
    },
    layers=("num_layers", "encoder.block."),
    names={
        "encoder.words": "shared",
        "encoder.distances": _DISTANCES,
        **_side("encoder", _ENCODER, 1),
        "encoder.norm": "encoder.final_layer_norm",
        "decoder.distances": _DISTANCES.replace("encoder", "decoder"),
        **_side("decoder", _DECODER, 2),
        "decoder.layers.{}.cross_norm": f"{_DECODER}1.layer_norm",
        "decoder.layers.{}.cross.query": f"{_DECODER}1.EncDecAttention.q",
        "decoder.layers.{}.cross.keys": (f"{_DECODER}1.EncDecAttention.k", f"{_DECODER}1.EncDecAttention.v"),
        "decoder.layers.{}.cross.out": f"{_DECODER}1.EncDecAttention.o",
        "decoder.norm": "decoder.final_layer_norm",
    },
    heads={"text2text-generation": {"out": "lm_head"}},
    tied={name: "shared.weight" for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")},
    buffers=("decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight",),
)


class Distances(nn.Embedding):
    """A number for each head and bucket of the distances from a query to a key.

    Parameters
    ----------
    config : Config
    heads : int
    both : bool
        Whether keys after a query have buckets of their own.
    """

    def __init__(self, config: Config, heads: int, both: bool) -> None:
        count = config.size("relative_attention_num_buckets", 32, least=4, most=1 << 16)
        if count % 2:
            raise config.refuse("relative_attention_num_buckets", "an even number")
        super().__init__(count, heads)
        self.farthest = config.size("relative_attention_max_distance", 128, least=count, most=1 << 16)
        self.register_buffer("buckets", as_tensor(buckets(self.farthest + 1, count, self.farthest, both)), persistent=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:  # type: ignore[override]
        """Of positions (Tq,) and (Tk,), (1, H, Tq, Tk)."""
        found = (keys[None, :] - queries[:, None]).clamp(-self.farthest, self.farthest)  # those farther away are in the same bucket
        return super().forward(self.buckets[found + self.farthest]).permute(2, 0, 1)[None]


class T5Encoder(TextEncoder):
    """Words without positions, and a bias of the scores for the distance of two tokens, one for all layers."""

    longest = 1 << 20  # there is no table of positions

    def __init__(self, config: Config, widths: Widths, size: int) -> None:
        layers = (PairLayer(widths, True, size, 1.0, widths.dropout) for _ in range(widths.layers))
        super().__init__(config, widths, pooler=False, layers=layers)
        self.words = nn.Embedding(config.size("vocab_size", 32128), widths.model)
        self.distances = Distances(config, widths.heads, both=True)
        self.norm, self.dropout = norm_of(widths), nn.Dropout(widths.dropout)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but T5 has no embeddings for the parts of a pair")
        return self.dropout(self.words(ids))

    def bias(self, length: int) -> Tensor:
        places = arange(length, device=self.words.weight.device)
        return self.distances(places, places)

    def finish(self, x: Tensor) -> Tensor:
        return self.dropout(self.norm(x))


class T5Decoder(Decoder):
    """The same for the texts that are written; keys are before a query."""

    def __init__(self, config: Config, widths: Widths, size: int, count: int) -> None:
        super().__init__(TargetLayer(widths, True, size, 1.0, widths.dropout) for _ in range(count))
        self.distances = Distances(config, widths.heads, both=False)
        self.norm, self.dropout = norm_of(widths), nn.Dropout(widths.dropout)

    def embed(self, x: Tensor, start: int) -> Tensor:
        return self.dropout(x)

    def bias(self, start: int, length: int) -> Tensor:
        weight = self.distances.weight
        return self.distances(places_after(start, length, weight), places_after(0, start + length, weight))

    def finish(self, x: Tensor) -> Tensor:
        return self.dropout(self.norm(x))


class T5(EncoderDecoder):
    """T5: scores that are not scaled, norms that only divide and come first, no biases; networks with a gate as of version 1.1."""

    table = TABLE
    USUAL: ClassVar = {"eos_token_id": 1}

    def __init__(self, config: Config, pooler: bool = False) -> None:
        without_extensions(config)
        widths, size = _widths(config)
        _network(config)
        count = _decoder_layers(config)
        super().__init__(config, T5Encoder(config, widths, size), T5Decoder(config, widths, size, count))

    @staticmethod
    def usual_start(config: Config) -> int | None:
        return config.values.get("pad_token_id", 0)

    @staticmethod
    def settle(config: Config, state: Mapping[str, Any]) -> None:
        """Says in config.json what the arrays say of the scores' table: transformers 5 has one of its own wherever it differs from that of the words."""
        own, words = state.get("lm_head.weight"), state.get("shared.weight")
        if own is None or words is None:
            tied = own is None
        else:
            tied = own.shape == words.shape and np.array_equal(np.asarray(own), np.asarray(words))
        config.values["scale_decoder_outputs"] = _scales(config)
        config.values["tie_word_embeddings"] = tied

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the heads' size and the decoder's layers with the arrays."""
        cls.check_layers(config, shapes, "num_decoder_layers", _check_heads(config, shapes), "decoder.block.")

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        width = config.size("d_model", 512)
        return {**super().head_options(config, task), "scale": width**-0.5 if _scales(config) else 1.0}


class T5EncoderAlone(T5Encoder):
    """The encoder of a T5, which sentence-transformers' models of texts are made of (Ni et al. 2021)."""

    table = replace(
        TABLE,
        names={own.removeprefix("encoder."): names for own, names in TABLE.names.items() if own.startswith("encoder.")},
        heads={},
        tied={"encoder.embed_tokens.weight": "shared.weight"},
        classes={None: "EncoderModel"},
    )

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.only("is_encoder_decoder", True, False)  # transformers 4 and 5
        without_extensions(Config({**config.values, "is_encoder_decoder": True}))
        super().__init__(config, *_widths(config))

    @staticmethod
    def check_shapes(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the heads' size with the arrays."""
        _check_heads(config, shapes)


def _check_heads(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The number of layers, after a check that the heads' size is that of the arrays."""
    widths, size = _widths(config)
    name = "encoder.block.0.layer.0.SelfAttention.q.weight"
    if name not in shapes:
        raise lack(name, shapes)
    if shapes[name][:1] != (widths.heads * size,):
        raise CheckpointError(f"config.json has {widths.heads} heads of size {size} but {name!r} has shape {shapes[name]}")
    return widths.layers


def _scales(config: Config) -> bool:
    """Whether states are divided by the root of their size before words are scored: not as of version 1.1, which config.json says so."""
    return config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))


def _decoder_layers(config: Config) -> int:
    return config.size("num_layers", 6) if config.values.get("num_decoder_layers") is None else config.size("num_decoder_layers")


def _network(config: Config) -> tuple[str, bool]:
    """(the activation of the networks, whether they have a gate)."""
    said = config.values.get("feed_forward_proj", "relu")
    name = said.removeprefix("gated-") if isinstance(said, str) else None
    if name not in ACTIVATIONS:
        raise config.refuse("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, or gated- and one of these")
    gated = name != said
    name = "gelu_new" if said == "gated-gelu" else name
    config.only("dense_act_fn", name, None)
    config.only("is_gated_act", gated, None)
    return ACTIVATIONS[name], gated


def _widths(config: Config) -> tuple[Widths, int]:
    """The widths, and the size of a head."""
    activation, gated = _network(config)
    dropout = config.number("dropout_rate", 0.1)
    found = Widths(
        model=config.size("d_model", 512),
        heads=config.size("num_heads", 8),
        hidden=config.size("d_ff", 2048),
        layers=config.size("num_layers", 6),
        activation=activation,
        eps=config.number("layer_norm_epsilon", 1e-6),
        dropout=dropout,
        attention_dropout=dropout,
        qkv_bias=False,
        out_bias=False,
        network_bias=False,
        gated=gated,
        rms=True,
    )
    return found, config.size("d_kv", 64)
