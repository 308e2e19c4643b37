"""The Vision Transformer, ViT (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from typing import ClassVar

from .config import Config
from .image_encoder import ImageEncoder
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


class ViT(ImageEncoder):
    """An image's patches and one more token, in layers that normalise first."""

    table = TABLE
    preprocessor: ClassVar[str] = "ViTImageProcessor"

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        if pooler:
            config.only("pooler_act", "tanh")
            config.only("pooler_output_size", None, config.size("hidden_size", 768))
        super().__init__(config, config.widths(dropout=0.0)._replace(qkv_bias=config.flag("qkv_bias", True)), pooler)
