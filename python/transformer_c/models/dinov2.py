"""DINOv2 (Oquab et al. 2023), encoders of images that were trained without labels, and those with registers (Darcet et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from .._core import Tensor
from .._joining import cat
from .._tensor import zeros
from ..checkpoint import CheckpointError
from ..nn.parameter import Parameter
from .config import Config, Widths
from .image_encoder import ImageEncoder, is_square
from .layers import Layer, LayerScale
from .table import Table
from .vit import TABLE as VIT

TABLE = Table(
    model_type="dinov2",
    prefix="dinov2",
    name="Dinov2",
    sizes={name: VIT.sizes[name] for name in ("hidden_size", "num_channels")},
    layers=VIT.layers,
    names={
        **{own: VIT.names[own] for own in ("first", "positions", "patches", "layers.{}.qkv", "layers.{}.out", "norm")},
        "mask": "embeddings.mask_token",
        "layers.{}.norm1": "encoder.layer.{}.norm1",
        "layers.{}.after1.weight": "encoder.layer.{}.layer_scale1.lambda1",
        "layers.{}.linear1": "encoder.layer.{}.mlp.fc1",
        "layers.{}.linear2": "encoder.layer.{}.mlp.fc2",
        "layers.{}.norm2": "encoder.layer.{}.norm2",
        "layers.{}.after2.weight": "encoder.layer.{}.layer_scale2.lambda1",
    },
    renamed=tuple((pattern, replacement) for pattern, replacement in VIT.renamed if "_proj" in pattern),
    heads=VIT.heads,
    buffers=(),
)
_INNER = "encoder.layer.{}.mlp."  # of layers with gates
_GATES: dict[str, Any] = {
    "names": {"layers.{}.linear1": f"{_INNER}weights_in", "layers.{}.linear2": f"{_INNER}weights_out"},
    "renamed": ((r"\.mlp\.down_proj\.", ".mlp.weights_out."),),
    "split": {"mlp.weights_in": ("mlp.gate_proj", "mlp.up_proj")},
}


def _with_gates(table: Table) -> Table:
    """The table of models whose networks multiply two products."""
    return replace(table, names={**table.names, **_GATES["names"]}, renamed=(*table.renamed, *_GATES["renamed"]), split=_GATES["split"])


class Dinov2(ImageEncoder):
    """ViT whose layers scale what they add; positions are interpolated for images of other sizes.

    Attributes
    ----------
    mask : Parameter or None
        The embedding of patches that a pretraining hides; nothing is computed with it.
    """

    table = TABLE
    preprocessor: ClassVar[str] = "BitImageProcessor"
    sizes = (224, 14)
    resizes = True
    gated: ClassVar[bool] = False  # whether networks multiply what silu gives with a second product

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        config.only("use_swiglu_ffn", self.gated, *([] if self.gated else [None]))
        config.only("drop_path_rate", 0.0, 0)
        model = config.size("hidden_size", 768)
        hidden = self.hidden(config, model)
        widths = Config({**config.values, "intermediate_size": hidden, "layer_norm_eps": config.number("layer_norm_eps", 1e-6)}).widths(0.0)
        widths = widths._replace(qkv_bias=config.flag("qkv_bias", True), gated=self.gated)
        widths = widths._replace(activation="silu") if self.gated else widths
        scale = config.number("layerscale_value", 1.0, most=1e6)
        super().__init__(config, widths, False, (_Layer(widths, scale) for _ in range(widths.layers)))
        if not is_square(self.positions.shape[1]):
            raise config.refuse("image_size", "as many rows as columns of patches")
        self.register_parameter("mask", Parameter(zeros(1, model)) if config.flag("use_mask_token", True) else None)

    @classmethod
    def hidden(cls, config: Config, model: int) -> int:
        """The width of the networks; with gates two thirds, a multiple of 8."""
        hidden = model * config.size("mlp_ratio", 4, most=1 << 8)
        return (int(hidden * 2 / 3) + 7) // 8 * 8 if cls.gated else hidden

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().check_shapes(config, shapes)
        array = f"{cls.table.names['layers.{}.linear2']}.weight".format(0)
        hidden = cls.hidden(config, config.size("hidden_size"))
        if array in shapes and shapes[array][1:] != (hidden,):
            raise CheckpointError(
                f"config.json has mlp_ratio = {config.values.get('mlp_ratio')!r:.80} but {array!r} has shape {shapes[array]}"
            )

    @staticmethod
    def head_options(config: Config, task: str) -> dict[str, Any]:
        return {"dropout": 0.0, "pooling": "first and mean"}


class Dinov2WithRegisters(Dinov2):
    """DINOv2 with more tokens that belong to no patch, after the first."""

    table = replace(
        TABLE,
        model_type="dinov2_with_registers",
        prefix="dinov2_with_registers",
        name="Dinov2WithRegisters",
        names={**TABLE.names, "registers": "embeddings.register_tokens"},
        sizes={**TABLE.sizes, "num_register_tokens": ("embeddings.register_tokens", 1)},
    )
    sizes = (224, 16)
    antialias = True

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__(config, pooler)
        count = config.size("num_register_tokens", 4)
        self.registers, self.before = Parameter(zeros(1, count, self.width)), 1 + count

    def embed(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        x = super().embed(x, grid)
        return cat([x[:, :1], self.registers.expand(x.shape[0], self.before - 1, self.width), x[:, 1:]], 1)


class _Layer(Layer):
    def __init__(self, widths: Widths, scale: float) -> None:
        super().__init__(widths, norm_first=True)
        self.after1, self.after2 = LayerScale(widths.model, scale), LayerScale(widths.model, scale)


class Dinov2Gated(Dinov2):
    """DINOv2 with gates in its networks: the giant one."""

    table = _with_gates(TABLE)
    gated = True


class Dinov2WithRegistersGated(Dinov2WithRegisters):
    """The same with registers."""

    table = _with_gates(Dinov2WithRegisters.table)
    gated = True


__all__ = ["Dinov2", "Dinov2Gated", "Dinov2WithRegisters", "Dinov2WithRegistersGated"]
