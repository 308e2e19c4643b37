"""The Vision Transformer, ViT (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from .. import nn
from .._core import Tensor
from .._joining import cat
from .._tensor import as_tensor, zeros
from ..checkpoint import CheckpointError
from ..nn.parameter import Parameter
from .config import Config
from .layers import Layer, Pooler, named_as_in_transformers
from .names import lack
from .table import Table

TABLE = Table(
    model_type="vit",
    prefix="vit",
    name="ViT",
    sizes={
        "hidden_size": ("embeddings.patch_embeddings.projection.weight", 0),
        "num_channels": ("embeddings.patch_embeddings.projection.weight", 1),
        "intermediate_size": ("encoder.layer.0.intermediate.dense.weight", 0),
    },
    layers=("num_hidden_layers", "encoder.layer."),
    names={
        "first": "embeddings.cls_token",
        "positions": "embeddings.position_embeddings",
        "patches": "embeddings.patch_embeddings.projection",
        "layers.{}.qkv": (
            "encoder.layer.{}.attention.attention.query",
            "encoder.layer.{}.attention.attention.key",
            "encoder.layer.{}.attention.attention.value",
        ),
        "layers.{}.out": "encoder.layer.{}.attention.output.dense",
        "layers.{}.norm1": "encoder.layer.{}.layernorm_before",
        "layers.{}.linear1": "encoder.layer.{}.intermediate.dense",
        "layers.{}.linear2": "encoder.layer.{}.output.dense",
        "layers.{}.norm2": "encoder.layer.{}.layernorm_after",
        "norm": "layernorm",
        "pooler": "pooler.dense",
    },
    renamed=(  # transformers 5 has other names in memory than in its files
        (r"^layers\.", "encoder.layer."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
    ),
    heads={"image-classification": {"out": "classifier"}},
    buffers=("embeddings.mask_token", "decoder.0.weight", "decoder.0.bias"),  # of masked image modelling
)


class ViT(nn.Module):
    """An image's patches and one more token, in layers that normalise first.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    pooler : Linear or None
        A linear layer and tanh for the first position, where the weights have one.
    """

    table = TABLE
    preprocessor: ClassVar = "ViTImageProcessor"  # where preprocessor_config.json names none

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__()
        config.without_extensions()
        if pooler:
            config.only("pooler_act", "tanh")
            config.only("pooler_output_size", None, config.size("hidden_size", 768))
        widths = config.widths(dropout=0.0)._replace(qkv_bias=config.flag("qkv_bias", True))
        self.config = config.values
        self.channels = config.size("num_channels", 3)
        self.size, self.patch = config.pair("image_size", 224), config.pair("patch_size", 16)
        self.first = Parameter(zeros(1, 1, widths.model))
        self.positions = Parameter(zeros(1, _positions(self.size, self.patch), widths.model))
        self.patches = nn.Conv2d(self.channels, widths.model, self.patch, stride=self.patch)
        self.layers = nn.ModuleList(Layer(widths, norm_first=True) for _ in range(widths.layers))
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)
        self.pooler = Pooler(widths.model, widths.model) if pooler else None

    @named_as_in_transformers
    def forward(self, pixels: Tensor) -> Tensor:
        """The states of the last layer.

        Parameters
        ----------
        pixels : array_like, shape (B, channels, height, width)
            Images of the size that the model was made for, normalised as preprocessor_config.json says.

        Returns
        -------
        Tensor or ndarray, shape (B, 1 + patches, E)
            The first position belongs to no patch.

        Raises
        ------
        ValueError
            When the images have another size.
        """
        pixels = as_tensor(pixels)
        if pixels.dtype.kind not in "fV":
            raise TypeError(f"pixels have values of {pixels.dtype.name}; expected floats, normalised as preprocessor_config.json says")
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != (self.channels, *self.size):
            raise ValueError(f"pixels have shape {pixels.shape}; expected (B, {self.channels}, {self.size[0]}, {self.size[1]})")
        x = self.patches(pixels.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)  # (B, E, rows, columns) to (B, N, E)
        x = self.dropout(cat([self.first.expand(x.shape[0], 1, x.shape[2]), x], 1) + self.positions)
        for layer in self.layers:
            x = layer(x, {})
        return self.norm(x)

    @staticmethod
    def check_shapes(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the sizes of images and patches with the arrays, before memory is taken for anything."""
        size, patch = config.pair("image_size", 224), config.pair("patch_size", 16)
        positions, patches = str(TABLE.names["positions"]), f"{TABLE.names['patches']}.weight"
        for array, wanted, axes in ((patches, patch, slice(2, 4)), (positions, (_positions(size, patch),), slice(1, 2))):
            if array not in shapes:
                raise lack(array, shapes)
            if shapes[array][axes] != wanted:
                raise CheckpointError(
                    f"config.json has image_size = {size} and patch_size = {patch} but {array!r} has shape {shapes[array]}"
                )

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task, as in ``Bert``."""
        return {"dropout": 0.0}


def _positions(size: tuple[int, int], patch: tuple[int, int]) -> int:
    """One for each patch, and one more."""
    return (size[0] // patch[0]) * (size[1] // patch[1]) + 1
