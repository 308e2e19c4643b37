"""Whisper (Radford et al. 2022), which writes what is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._tensor import as_tensor, zeros
from ..nn.fusion import is_plain
from ..nn.parameter import Parameter
from .bart import TABLE as BART
from .bart import widths_of_side
from .config import Config, Widths
from .encoder_decoder import CrossAttention, Decoder, EncoderDecoder, PairLayer, Source, TargetLayer, places_after, without_extensions
from .layers import TextEncoder
from .table import Table

_BIASES = {  # of the layers; those of keys there are not
    f"{side}.layers.{{}}.{own}": f"{side}.layers.{{}}.self_attn.{theirs}"
    for side in ("encoder", "decoder")
    for own, theirs in (("query_bias", "q_proj"), ("value_bias", "v_proj"))
}
TABLE = Table(
    model_type="whisper",
    prefix="model",
    name="Whisper",
    sizes={
        "vocab_size": ("decoder.embed_tokens.weight", 0),
        "d_model": ("decoder.embed_tokens.weight", 1),
        "num_mel_bins": ("encoder.conv1.weight", 1),
        "max_source_positions": ("encoder.embed_positions.weight", 0),
        "max_target_positions": ("decoder.embed_positions.weight", 0),
        "encoder_ffn_dim": ("encoder.layers.0.fc1.weight", 0),
        "decoder_ffn_dim": ("decoder.layers.0.fc1.weight", 0),
    },
    layers=BART.layers,
    names={
        **{own: theirs for own, theirs in BART.names.items() if not own.endswith("first_norm")},
        "encoder.words": "decoder.embed_tokens",
        "encoder.conv1": "encoder.conv1",
        "encoder.conv2": "encoder.conv2",
        "decoder.layers.{}.cross.value_bias": "decoder.layers.{}.encoder_attn.v_proj",
        **_BIASES,
    },
    heads={"automatic-speech-recognition": {"out": "proj_out"}},
    tied={"proj_out.weight": "decoder.embed_tokens.weight"},
    buffers=(),
)


class _Bias(nn.Module):
    """A bias by itself, where the products of several layers are one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = Parameter(zeros(size))


class _OwnBiases(PairLayer):
    """Queries and values have biases, keys none."""

    def make_projections(self, widths: Widths, heads: Any) -> None:
        super().make_projections(widths._replace(qkv_bias=False), heads)
        self.query_bias, self.value_bias = _Bias(widths.model), _Bias(widths.model)
        self.register_buffer("no_bias", zeros(widths.model), persistent=False)

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        query, value = self.query_bias.bias, self.value_bias.bias
        if is_plain(self.qkv, nn.Linear):
            bias = cat((query, self.no_bias.to(query.dtype), value), 0)  # under autocast buffers stay as they are
            return _core.qkv_projection(x, self.qkv.weight, bias, num_heads=self.heads, packing=self.rows, sequence_lengths=lengths)
        q, k, v = super()._project(x, lengths)
        return q + _of_heads(query, self.heads), k, v + _of_heads(value, self.heads)


def _of_heads(bias: Tensor, heads: int) -> Tensor:
    """(H D) to (H, 1, D)."""
    return bias.reshape(heads, 1, -1)


class _Cross(CrossAttention):
    def __init__(self, widths: Widths, size: int, scale: float | None) -> None:
        super().__init__(widths, size, scale)
        self.keys = nn.Linear(widths.model, 2 * widths.model, bias=False)
        self.value_bias = _Bias(widths.model)

    def project(self, source: Source) -> tuple[Tensor, Tensor]:
        k, v = super().project(source)
        return k, v + _of_heads(self.value_bias.bias, self.heads)


class _TargetLayer(_OwnBiases, TargetLayer):
    def __init__(self, widths: Widths, norm_first: bool, size: int, scale: float | None, inner_dropout: float) -> None:
        super().__init__(widths, norm_first, size, scale, inner_dropout)
        self.cross = _Cross(widths, size, scale)


class _Positions(nn.Module):
    """Sines and behind them cosines, which are not trained, and which files have."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        rates = np.exp(-np.log(10000) / max(1, width // 2 - 1) * np.arange(width // 2))
        angles = np.arange(count)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
        self.weight = Parameter(as_tensor(waves), requires_grad=False)


class WhisperEncoder(nn.Module):
    """Two convolutions of log-mel features, positions, layers, a norm.

    Attributes
    ----------
    words : Embedding
        Of the decoder's tokens.
    longest : int
        Tokens of a text that is written.
    frames : int
        Of the features.
    """

    checked = TextEncoder.checked

    def __init__(self, config: Config, widths: Widths, inner: float, words: nn.Embedding) -> None:
        super().__init__()
        self.width, self.longest = widths.model, config.size("max_target_positions", 448)
        self.mels, places = config.size("num_mel_bins", 80), config.size("max_source_positions", 1500)
        self.frames, self.words = 2 * places, words
        self.conv1 = nn.Conv1d(self.mels, widths.model, 3, padding=1)
        self.conv2 = nn.Conv1d(widths.model, widths.model, 3, stride=2, padding=1)
        self.positions = _Positions(places, widths.model)
        self.layers = nn.ModuleList(_OwnBiases(widths, True, widths.model // widths.heads, None, inner) for _ in range(widths.layers))
        self.last_norm = nn.LayerNorm(widths.model)
        self.dropout = nn.Dropout(widths.dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Log-mel features (B, mels, 2 S) to states (B, S, E)."""
        x = as_tensor(features)
        if x.ndim != 3 or tuple(x.shape[1:]) != (self.mels, self.frames) or x.dtype.kind in "iub":
            raise ValueError(
                f"features are {x.dtype.name} of shape {tuple(x.shape)}; expected floats (B, {self.mels}, {self.frames}), as "
                "SpeechRecognizer.features(samples) gives them"
            )
        for conv in (self.conv1, self.conv2):
            x = F.gelu(conv(x))
        x = self.dropout(x.transpose(1, 2) + self.positions.weight)
        for layer in self.layers:
            x = layer(x, {})
        return self.last_norm(x)


class WhisperDecoder(Decoder):
    """Words and learned positions."""

    def __init__(self, config: Config, widths: Widths, inner: float, longest: int) -> None:
        size = widths.model // widths.heads
        super().__init__(_TargetLayer(widths, True, size, None, inner) for _ in range(widths.layers))
        self.positions = nn.Embedding(longest, widths.model)
        self.last_norm = nn.LayerNorm(widths.model)
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, x: Tensor, start: int) -> Tensor:
        return self.dropout(x + self.positions(places_after(start, x.shape[1], x)))

    def finish(self, x: Tensor) -> Tensor:
        return self.last_norm(x)


class Whisper(EncoderDecoder):
    """BART whose encoder reads log-mel features (B, mels, frames) in the place of ids, and whose layers normalise first."""

    table = TABLE
    USUAL: ClassVar[Mapping[str, int]] = {"eos_token_id": 50256}

    def __init__(self, config: Config, pooler: bool = False) -> None:
        without_extensions(config)
        for name in ("encoder_layerdrop", "decoder_layerdrop"):  # of training in transformers; no layer is dropped here
            config.number(name, 0.0)
        read, written = self.widths(config, "encoder"), self.widths(config, "decoder")
        count, inner = config.size("vocab_size", 51865), config.number("activation_dropout", 0.0)
        padding = config.index("pad_token_id", 50256 if count > 50256 else None, count)
        words = nn.Embedding(count, read.model, padding_idx=padding)
        encoder = WhisperEncoder(config, read, inner, words)
        super().__init__(config, encoder, WhisperDecoder(config, written, inner, encoder.longest))  # type: ignore[arg-type]
        self.padding = padding

    @classmethod
    def widths(cls, config: Config, side: str) -> Widths:
        if config.size("d_model", 384, least=2) % 2:
            raise config.refuse("d_model", "an even number")
        return widths_of_side(config, side, model=384, heads=6, hidden=1536, layers=4, dropout=0.0)

    @staticmethod
    def usual_start(config: Config) -> int | None:
        return 50257 if config.size("vocab_size", 51865) > 50257 else None

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        cls.check_layers(config, shapes, "decoder_layers", None, "decoder.layers.")

    def _read(self, ids: Tensor | None, mask: Tensor | None, lengths: Tensor | None) -> Source:
        if ids is None:
            raise ValueError("features are None, but no cache has what was said")
        if mask is not None or lengths is not None:
            raise ValueError("features have no mask and no lengths: silence fills them up to their one length")
        return Source(self.encoder(ids), {})
