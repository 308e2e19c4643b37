"""BART (Lewis et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from ..checkpoint import CheckpointError
from .config import Config, Widths
from .encoder_decoder import Decoder, EncoderDecoder, PairLayer, TargetLayer, places_after, without_extensions
from .layers import TextEncoder
from .names import lack
from .table import BYTE_PAIRS, Table

_POSITIONS = "embed_positions.weight"


def _side(name: str) -> dict[str, str | tuple[str, ...]]:
    """The names of the arrays of a side, "encoder" or "decoder"."""
    layer = f"{name}.layers.{{}}."
    return {
        f"{name}.positions": f"{name}.embed_positions",
        f"{name}.first_norm": f"{name}.layernorm_embedding",
        f"{layer}qkv": (f"{layer}self_attn.q_proj", f"{layer}self_attn.k_proj", f"{layer}self_attn.v_proj"),
        f"{layer}out": f"{layer}self_attn.out_proj",
        f"{layer}norm1": f"{layer}self_attn_layer_norm",
        f"{layer}linear1": f"{layer}fc1",
        f"{layer}linear2": f"{layer}fc2",
        f"{layer}norm2": f"{layer}final_layer_norm",
        f"{name}.last_norm": f"{name}.layer_norm",
    }


_CROSS = "decoder.layers.{}.encoder_attn"
TABLE = Table(
    model_type="bart",
    prefix="model",
    name="Bart",
    sizes={
        "vocab_size": ("shared.weight", 0),
        "d_model": ("shared.weight", 1),
        "encoder_ffn_dim": ("encoder.layers.0.fc1.weight", 0),
        "decoder_ffn_dim": ("decoder.layers.0.fc1.weight", 0),
    },
    layers=("encoder_layers", "encoder.layers."),
    names={
        "encoder.words": "shared",
        **_side("encoder"),
        **_side("decoder"),
        "decoder.layers.{}.cross.query": f"{_CROSS}.q_proj",
        "decoder.layers.{}.cross.keys": (f"{_CROSS}.k_proj", f"{_CROSS}.v_proj"),
        "decoder.layers.{}.cross.out": f"{_CROSS}.out_proj",
        "decoder.layers.{}.cross_norm": f"{_CROSS}_layer_norm",
    },
    heads={"text2text-generation": {"out": "lm_head", "bias": "final_logits_bias"}},
    tied={name: "shared.weight" for name in ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "lm_head.weight")},
    vocabulary=BYTE_PAIRS,
    buffers=("encoder.version", "decoder.version"),
)


class _Positions(nn.Embedding):
    """Learned embeddings of positions, of which the first two rows are none's."""

    offset = 2

    def __init__(self, count: int, width: int) -> None:
        super().__init__(count + self.offset, width)

    def forward(self, places: Tensor) -> Tensor:
        return super().forward(places + self.offset)


class BartEncoder(TextEncoder):
    """Words and positions, a norm, the layers."""

    def __init__(self, config: Config, widths: Widths, kind: type[Bart], words: nn.Embedding) -> None:
        layers = (PairLayer(widths, kind.norm_first, widths.model // widths.heads, None, _inner(config)) for _ in range(widths.layers))
        super().__init__(config, widths, pooler=False, layers=layers)
        self.words, self.factor = words, _factor(config, widths)
        self.longest = config.size("max_position_embeddings", 1024)
        self.positions = kind.positions(self.longest, widths.model)
        self.first_norm = nn.LayerNorm(widths.model) if kind.norm_embeddings else nn.Identity()
        self.last_norm = nn.LayerNorm(widths.model) if kind.norm_first else nn.Identity()
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but this model has no embeddings for the parts of a pair")
        x = self.words(ids) * self.factor
        return self.dropout(self.first_norm(x + self.place(ids, places).to(x.dtype)))

    def finish(self, x: Tensor) -> Tensor:
        return self.last_norm(x)


class BartDecoder(Decoder):
    """The same for the texts that are written."""

    def __init__(self, config: Config, widths: Widths, kind: type[Bart], longest: int) -> None:
        size = widths.model // widths.heads
        super().__init__(TargetLayer(widths, kind.norm_first, size, None, _inner(config)) for _ in range(widths.layers))
        self.factor = _factor(config, widths)
        self.positions = kind.positions(longest, widths.model)
        self.first_norm = nn.LayerNorm(widths.model) if kind.norm_embeddings else nn.Identity()
        self.last_norm = nn.LayerNorm(widths.model) if kind.norm_first else nn.Identity()
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, x: Tensor, start: int) -> Tensor:
        places = places_after(start, x.shape[1], x)
        return self.dropout(self.first_norm(x * self.factor + self.positions(places).to(x.dtype)))

    def finish(self, x: Tensor) -> Tensor:
        return self.last_norm(x)


def widths_of_side(config: Config, side: str, *, model: int, heads: int, hidden: int, layers: int, dropout: float) -> Widths:
    """Those of the layers of a side, "encoder" or "decoder"; the numbers are what config.json need not say."""
    found = Widths(
        model=config.size("d_model", model),
        heads=config.size(f"{side}_attention_heads", heads),
        hidden=config.size(f"{side}_ffn_dim", hidden),
        layers=config.size(f"{side}_layers", layers),
        activation=config.activation("activation_function"),
        eps=1e-5,
        dropout=config.number("dropout", dropout),
        attention_dropout=config.number("attention_dropout", 0.0),
    )
    return config.divided(found, "d_model", f"{side}_attention_heads")


class Bart(EncoderDecoder):
    """BART: learned positions, layers that normalise last, a bias of the scores that is not trained."""

    table = TABLE
    norm_first: ClassVar[bool] = False
    norm_embeddings: ClassVar[bool] = True
    positions: ClassVar[Any] = _Positions
    reads: ClassVar[type[BartEncoder]] = BartEncoder
    biased: ClassVar[bool] = True  # whether scores have a bias
    USUAL: ClassVar[Mapping[str, int]] = {"eos_token_id": 2, "forced_eos_token_id": 2}
    START: ClassVar[int | None] = 2  # of this and of others what config.json means where it does not say
    PADDING: ClassVar[int] = 1
    WORDS: ClassVar[int] = 50265

    def __init__(self, config: Config, pooler: bool = False) -> None:
        without_extensions(config)
        for name in ("encoder_layerdrop", "decoder_layerdrop"):  # of training in transformers; no layer is dropped here
            config.number(name, 0.0)
        read, written = self.widths(config, "encoder"), self.widths(config, "decoder")
        count = config.size("vocab_size", self.WORDS)
        padding = config.index("pad_token_id", self.PADDING if count > self.PADDING else None, count)
        words = nn.Embedding(count, read.model, padding_idx=padding)
        encoder = self.reads(config, read, type(self), words)
        super().__init__(config, encoder, BartDecoder(config, written, type(self), encoder.longest))
        self.padding = padding

    @classmethod
    def widths(cls, config: Config, side: str) -> Widths:
        return widths_of_side(config, side, model=1024, heads=16, hidden=4096, layers=12, dropout=0.1)

    @classmethod
    def usual_start(cls, config: Config) -> int | None:
        words = config.size("vocab_size", cls.WORDS)
        return None if cls.START is None or words <= cls.START else cls.START

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the positions and the decoder's layers with the arrays."""
        if cls.positions is _Positions:
            name = f"encoder.{_POSITIONS}"
            if name not in shapes:
                raise lack(name, shapes)
            rows = shapes[name][0] - _Positions.offset if shapes[name] else 0
            if config.values.setdefault("max_position_embeddings", rows) != rows:
                raise CheckpointError(
                    f"config.json has max_position_embeddings = {config.values['max_position_embeddings']!r:.80} "
                    f"but {name!r} has shape {shapes[name]}, {_Positions.offset} more"
                )
        cls.check_layers(config, shapes, "decoder_layers", None, "decoder.layers.")

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        return {**super().head_options(config, task), "bias": cls.biased}


def _inner(config: Config) -> float:
    return config.number("activation_dropout", 0.0)


def _factor(config: Config, widths: Widths) -> float:
    """What the embeddings of words are multiplied by."""
    return widths.model**0.5 if config.flag("scale_embedding", False) else 1.0
