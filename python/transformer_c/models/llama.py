"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2 and Qwen3 (Yang et al. 2024, 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from ..checkpoint import CheckpointError
from .config import FULL, SLIDING, Config, Heads, Widths
from .decoder import TextDecoder
from .layers import RotaryLayer, norm_of, of_sequences
from .names import lack
from .rotation import Rotary, Rotation
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
    heads : Heads
    window : int or None
        A token attends to those at most this far before it.
    """

    def __init__(self, widths: Widths, rotation: Rotation, heads: Heads, window: int | None) -> None:
        super().__init__(widths, rotation, window, norm_first=True, heads=heads)
        self.grouped, self.softcap, self.head_size = heads.keys != widths.heads, heads.softcap, heads.size
        if heads.scale is not None:
            self.scale = heads.scale * rotation.squared

    def make_projections(self, widths: Widths, heads: Heads) -> None:
        self.query = nn.Linear(widths.model, widths.heads * heads.size, bias=widths.qkv_bias)
        self.key = nn.Linear(widths.model, heads.keys * heads.size, bias=widths.qkv_bias)
        self.value = nn.Linear(widths.model, heads.keys * heads.size, bias=widths.qkv_bias)
        self.make_head_norms(widths, heads)
        self.out = nn.Linear(widths.heads * heads.size, widths.model, bias=widths.out_bias)

    def make_head_norms(self, widths: Widths, heads: Heads) -> None:
        """``query_norm`` and ``key_norm``."""
        self.query_norm = norm_of(widths, heads.size) if heads.normed else nn.Identity()
        self.key_norm = norm_of(widths, heads.size) if heads.normed else nn.Identity()

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (of_sequences(layer, x, lengths).unflatten(-1, (-1, self.head_size)) for layer in (self.query, self.key, self.value))
        return self.query_norm(q).transpose(1, 2), self.key_norm(k).transpose(1, 2), v.transpose(1, 2)


class Llama(TextDecoder):
    """Rotary positions, networks with a gate, norms that only divide, and keys that several heads share."""

    table = TABLE
    tie_word_embeddings = False
    layer: ClassVar[type[LlamaLayer]] = LlamaLayer
    rotary: ClassVar[Rotary] = Rotary()
    normed: ClassVar[bool] = False  # whether each query and key is normalised
    activation: ClassVar[str] = "hidden_act"  # its name in config.json
    network_biased: ClassVar[bool] = True  # whether config.json may give the network biases
    # What config.json means where it does not say; of heads of keys None: as many as of queries, of their size: a share of the states.
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "hidden_act": "silu"},
        **{"pad_token_id": None, "sliding_window": 4096},
    }

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        config.only("pretraining_tp", 1, None)
        widths, heads = self.widths(config)
        turned = self.rotations(config, heads.size, self.size(config, "max_position_embeddings"))
        kinds = self.kinds(config, widths.layers)
        window = self.window(config) if SLIDING in kinds else None
        layers = (self.layer(widths, turned[kind], heads, window if kind == SLIDING else None) for kind in kinds)
        super().__init__(config, widths, pooler=False, layers=layers)
        self.longest = turned[FULL].longest
        words = self.size(config, "vocab_size")
        padding = self.DEFAULTS["pad_token_id"]
        padding = config.index("pad_token_id", None if padding is None or padding >= words else padding, words)
        self.words = nn.Embedding(words, widths.model, padding_idx=padding)
        self.norm = norm_of(widths)

    @classmethod
    def size(cls, config: Config, name: str) -> int:
        """A size of config.json, or the one of DEFAULTS."""
        return config.size(name, cls.DEFAULTS[name])

    @classmethod
    def widths(cls, config: Config) -> tuple[Widths, Heads]:
        """The widths, and the heads of attention."""
        qkv_bias, out_bias, network_bias = cls.biases(config)
        found = Widths(
            model=cls.size(config, "hidden_size"),
            heads=cls.size(config, "num_attention_heads"),
            hidden=cls.size(config, "intermediate_size"),
            layers=cls.size(config, "num_hidden_layers"),
            activation=config.activation(cls.activation, cls.DEFAULTS[cls.activation]),
            eps=config.number("rms_norm_eps", cls.DEFAULTS["rms_norm_eps"]),
            dropout=0.0,
            attention_dropout=config.number("attention_dropout", 0.0),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            network_bias=network_bias,
            gated=True,
            rms=True,
        )
        keys, size = found.heads, None
        if config.values.get("num_key_value_heads", cls.DEFAULTS["num_key_value_heads"]) is not None:
            keys = cls.size(config, "num_key_value_heads")
        if found.heads % keys:
            raise CheckpointError(
                f"config.json has num_attention_heads = {found.heads}, which is no multiple of num_key_value_heads = {keys}"
            )
        if config.values.get("head_dim", cls.DEFAULTS["head_dim"]) is None:
            size = config.divided(found, "hidden_size", "num_attention_heads").model // found.heads
        else:
            size = cls.size(config, "head_dim")
        if size % 2:
            raise CheckpointError(f"config.json has heads of size {size}; rotary positions need an even number")
        return found, Heads(keys, size, cls.normed)

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the heads with the arrays, before memory is taken for anything."""
        widths, heads = cls.widths(config)
        for part, count in cls.projections(widths, heads).items():
            name = f"layers.0.self_attn.{part}.weight"
            if name not in shapes:
                raise lack(name, shapes)
            if shapes[name][:1] != (count * heads.size,):
                raise CheckpointError(f"config.json has {count} heads of size {heads.size} but {name!r} has shape {shapes[name]}")

    @classmethod
    def projections(cls, widths: Widths, heads: Heads) -> dict[str, int]:
        """How many heads the arrays have that show it."""
        return {"q_proj": widths.heads, "k_proj": heads.keys}

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        """Of queries, keys and values; of the layer after attention; of the network."""
        attention = config.flag("attention_bias", False)
        return attention, attention, cls.network_biased and config.flag("mlp_bias", False)

    @classmethod
    def rotations(cls, config: Config, size: int, longest: int) -> Mapping[str, Rotation]:
        """That of each kind of layers, for heads of a size."""
        return dict.fromkeys((FULL, SLIDING), cls.rotary.read(config, size, longest))

    @classmethod
    def kinds(cls, config: Config, layers: int) -> list[str]:
        """Of each layer, whether its tokens see to the beginning."""
        return [FULL] * layers

    @classmethod
    def window(cls, config: Config) -> int | None:
        """How far back tokens see in layers that are SLIDING, by sliding_window; None: to the beginning."""
        usual = cls.DEFAULTS["sliding_window"]
        return None if config.values.get("sliding_window", usual) is None else config.size("sliding_window", usual) - 1

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError(f"token_types were given, but {self.table.name} has no embeddings for the parts of a pair")
        return self.words(ids)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Mistral(Llama):
    """Llama whose tokens see only those that are near."""

    table = replace(TABLE, model_type="mistral", name="Mistral")
    DEFAULTS: ClassVar = {**Llama.DEFAULTS, "max_position_embeddings": 4096 * 32, "intermediate_size": 14336, "num_key_value_heads": 8}

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        return False, False, False

    @classmethod
    def kinds(cls, config: Config, layers: int) -> list[str]:
        config.only("layer_types", None, [FULL] * layers, [SLIDING] * layers)
        return [SLIDING] * layers  # whatever it says, as in transformers


class Qwen2(Llama):
    """Llama with biases of queries, keys and values."""

    table = replace(TABLE, model_type="qwen2", name="Qwen2")
    DEFAULTS: ClassVar = {
        **Llama.DEFAULTS,
        **{"vocab_size": 151936, "max_position_embeddings": 32768, "intermediate_size": 22016, "num_key_value_heads": 32},
    }

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        return True, False, False

    @classmethod
    def kinds(cls, config: Config, layers: int) -> list[str]:
        first = config.size("max_window_layers", 28, least=0)
        return config.layer_types(layers) or [SLIDING if number >= first else FULL for number in range(layers)]

    @classmethod
    def window(cls, config: Config) -> int | None:
        return super().window(config) if config.flag("use_sliding_window", False) else None


class Qwen3(Qwen2):
    """Llama that normalises each query and key."""

    table = replace(TABLE, model_type="qwen3", name="Qwen3")
    normed = True
    DEFAULTS: ClassVar = {**Qwen2.DEFAULTS, "head_dim": 128}

    @classmethod
    def biases(cls, config: Config) -> tuple[bool, bool, bool]:
        attention = config.flag("attention_bias", False)
        return attention, attention, False
