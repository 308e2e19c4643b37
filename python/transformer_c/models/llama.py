"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2 and Qwen3 (Yang et al. 2024, 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from ..checkpoint import CheckpointError
from .config import FULL, SLIDING, Config, Widths
from .decoder import TextDecoder
from .layers import RotaryLayer, norm_of, of_sequences
from .names import lack
from .rotation import Rotation, read_rotation
from .table import Table

TABLE = Table(
    model_type="llama",
    prefix="model",
    name="Llama",
    sizes={
        "vocab_size": ("embed_tokens.weight", 0),
        "hidden_size": ("embed_tokens.weight", 1),
        "intermediate_size": ("layers.0.mlp.down_proj.weight", 1),
    },
    layers=("num_hidden_layers", "layers."),
    names={
        "words": "embed_tokens",
        "layers.{}.norm1": "layers.{}.input_layernorm",
        "layers.{}.query": "layers.{}.self_attn.q_proj",
        "layers.{}.key": "layers.{}.self_attn.k_proj",
        "layers.{}.value": "layers.{}.self_attn.v_proj",
        "layers.{}.query_norm": "layers.{}.self_attn.q_norm",
        "layers.{}.key_norm": "layers.{}.self_attn.k_norm",
        "layers.{}.out": "layers.{}.self_attn.o_proj",
        "layers.{}.norm2": "layers.{}.post_attention_layernorm",
        "layers.{}.linear1": ("layers.{}.mlp.gate_proj", "layers.{}.mlp.up_proj"),
        "layers.{}.linear2": "layers.{}.mlp.down_proj",
        "norm": "norm",
    },
    heads={"text-generation": {"out": "lm_head"}},
    tied={"lm_head.weight": "embed_tokens.weight"},
    buffers=("layers.{}.self_attn.rotary_emb.inv_freq",),
)


class LlamaLayer(RotaryLayer):
    """Queries share keys and values in groups of heads, whose size need not be that of a share of the states.

    Parameters
    ----------
    widths : Widths
    rotation : Rotation
    kv_heads : int
        The number of heads that keys and values have.
    head_size : int
        D.
    normed : bool
        Whether each query and key is normalised.
    window : int or None
        A token attends to those at most this far before it.
    """

    def __init__(self, widths: Widths, rotation: Rotation, kv_heads: int, head_size: int, normed: bool, window: int | None) -> None:
        super().__init__(widths, rotation, window, norm_first=True)
        del self.qkv
        self.grouped = kv_heads != widths.heads
        self.query = nn.Linear(widths.model, widths.heads * head_size, bias=widths.qkv_bias)
        self.key = nn.Linear(widths.model, kv_heads * head_size, bias=widths.qkv_bias)
        self.value = nn.Linear(widths.model, kv_heads * head_size, bias=widths.qkv_bias)
        self.query_norm = nn.RMSNorm(head_size, eps=widths.eps) if normed else nn.Identity()
        self.key_norm = nn.RMSNorm(head_size, eps=widths.eps) if normed else nn.Identity()
        self.out = nn.Linear(widths.heads * head_size, widths.model, bias=widths.out_bias)
        self.head_size = head_size

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (of_sequences(layer, x, lengths).unflatten(-1, (-1, self.head_size)) for layer in (self.query, self.key, self.value))
        return self.query_norm(q).transpose(1, 2), self.key_norm(k).transpose(1, 2), v.transpose(1, 2)


class Llama(TextDecoder):
    """Rotary positions, networks with a gate, norms that only divide, and keys that several heads share."""

    table = TABLE
    tie_word_embeddings = False
    normed: ClassVar[bool] = False  # whether each query and key is normalised
    WORDS, LONGEST, HIDDEN = 32000, 2048, 11008  # where config.json does not say
    KV_HEADS: ClassVar[int | None] = None  # the number of heads of keys and values there; None: that of queries
    HEAD_SIZE: ClassVar[int | None] = None  # the size of a head there; None: a share of the states

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        config.only("pretraining_tp", 1, None)
        widths, kv_heads, head_size = self.widths(config)
        turned = read_rotation(config, head_size, config.size("max_position_embeddings", self.LONGEST))
        layers = (LlamaLayer(widths, turned, kv_heads, head_size, self.normed, window) for window in self.windows(config, widths.layers))
        super().__init__(config, widths, pooler=False, layers=layers)
        self.longest = turned.longest
        words = config.size("vocab_size", self.WORDS)
        self.words = nn.Embedding(words, widths.model, padding_idx=config.index("pad_token_id", None, words))
        self.norm = norm_of(widths)

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, int, int]:
        """The widths, the number of heads of keys and values, and the size of a head."""
        qkv_bias, out_bias, network_bias = cls.biases(config)
        found = Widths(
            model=config.size("hidden_size", 4096),
            heads=config.size("num_attention_heads", 32),
            hidden=config.size("intermediate_size", cls.HIDDEN),
            layers=config.size("num_hidden_layers", 32),
            activation=config.activation("hidden_act", "silu"),
            eps=config.number("rms_norm_eps", 1e-6),
            dropout=0.0,
            attention_dropout=config.number("attention_dropout", 0.0),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            network_bias=network_bias,
            gated=True,
            rms=True,
        )
        none = config.values.get("num_key_value_heads", cls.KV_HEADS) is None
        kv_heads = found.heads if none else config.size("num_key_value_heads", cls.KV_HEADS)
        if found.heads % kv_heads:
            raise CheckpointError(
                f"config.json has num_attention_heads = {found.heads}, which is no multiple of num_key_value_heads = {kv_heads}"
            )
        if config.values.get("head_dim", cls.HEAD_SIZE) is None:
            head_size = config.divided(found, "hidden_size", "num_attention_heads").model // found.heads
        else:
            head_size = config.size("head_dim", cls.HEAD_SIZE)
        if head_size % 2:
            raise CheckpointError(f"config.json has heads of size {head_size}; rotary positions need an even number")
        return found, kv_heads, head_size

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the heads with the arrays, before memory is taken for anything."""
        widths, kv_heads, head_size = cls.widths(config)
        for part, heads in (("q", widths.heads), ("k", kv_heads)):
            name = f"layers.0.self_attn.{part}_proj.weight"
            if name not in shapes:
                raise lack(name, shapes)
            if shapes[name][:1] != (heads * head_size,):
                raise CheckpointError(f"config.json has {heads} heads of size {head_size} but {name!r} has shape {shapes[name]}")

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        """Of queries, keys and values; of the layer after attention; of the network."""
        attention = config.flag("attention_bias", False)
        return attention, attention, config.flag("mlp_bias", False)

    @classmethod
    def windows(cls, config: Config, layers: int) -> list[int | None]:
        """How far back the tokens of each layer see; None: to the beginning."""
        return [None] * layers

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError(f"token_types were given, but {self.table.name} has no embeddings for the parts of a pair")
        return self.words(ids)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Mistral(Llama):
    """Llama whose tokens see only those that are near."""

    table = replace(TABLE, model_type="mistral", name="Mistral")
    LONGEST, HIDDEN, KV_HEADS = 4096 * 32, 14336, 8

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        return False, False, False

    @classmethod
    def windows(cls, config: Config, layers: int) -> list[int | None]:
        config.only("layer_types", None, [FULL] * layers, [SLIDING] * layers)
        return [_window(config)] * layers


class Qwen2(Llama):
    """Llama with biases of queries, keys and values."""

    table = replace(TABLE, model_type="qwen2", name="Qwen2")
    WORDS, LONGEST, HIDDEN, KV_HEADS = 151936, 32768, 22016, 32

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        return True, False, False

    @classmethod
    def windows(cls, config: Config, layers: int) -> list[int | None]:
        window = _window(config) if config.flag("use_sliding_window", False) else None
        first = config.size("max_window_layers", 28, least=0)
        kinds = config.layer_types(layers) or [SLIDING if number >= first else FULL for number in range(layers)]
        return [window if kind == SLIDING else None for kind in kinds]


class Qwen3(Qwen2):
    """Llama that normalises each query and key."""

    table = replace(TABLE, model_type="qwen3", name="Qwen3")
    normed, HEAD_SIZE = True, 128

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        attention = config.flag("attention_bias", False)
        return attention, attention, False


def _window(config: Config) -> int | None:
    """How far back tokens see by sliding_window; None: to the beginning."""
    return None if config.values.get("sliding_window", 4096) is None else config.size("sliding_window", 4096) - 1
