"""CLIP (Radford et al. 2021): an encoder of images and one of texts, whose vectors are compared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import arange, as_tensor, zeros
from ..nn.parameter import Parameter
from .config import Config
from .image_encoder import ImageEncoder, check_patches
from .image_text import (
    BUFFERS,
    LAYERS,
    NAMES,
    PATCHES,
    POSITIONS,
    SIZES,
    TEXT,
    VISION,
    WORDS,
    ImageText,
    TextSide,
    table_of_side,
    widths_of_part,
)
from .layers import LayerScale
from .table import Table

TABLE = Table(
    model_type="clip",
    prefix=None,
    name="CLIP",
    sizes={
        **SIZES,
        "projection_dim": ("text_projection.weight", 0),
        "text_config.hidden_size": ("text_projection.weight", 1),
        "vision_config.hidden_size": ("visual_projection.weight", 1),
    },
    layers=LAYERS,
    names={
        **NAMES,
        "text_projection": "text_projection",
        "vision.first": f"{VISION}.embeddings.class_embedding",
        "vision.first_norm": f"{VISION}.pre_layrnorm",
        "visual_projection": "visual_projection",
    },
    heads={},
    buffers=BUFFERS,
)
_widths = partial(widths_of_part, activation="quick_gelu", eps=1e-5)


class CLIP(ImageText):
    """Both encoders, and the layers that give vectors of one size."""

    table = TABLE

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__()
        self.settle(config)
        config.without_extensions()
        self.config, self.size = config.values, config.size("projection_dim", 512)
        self.text, self.vision = _Text(config.part("text_config")), _Vision(config.part("vision_config"))
        self.text_projection = nn.Linear(self.text.width, self.size, bias=False)
        self.visual_projection = nn.Linear(self.vision.width, self.size, bias=False)
        self.scale = LayerScale((), _scale(config))

    def vectors_of_texts(self, ids: Any, mask: Any, lengths: Any) -> Tensor:
        return self.text_projection(self.text.pooled(ids, mask, lengths))

    def vectors_of_images(self, pixels: Any) -> Tensor:
        return self.visual_projection(self.vision.pooled(pixels))

    @classmethod
    def of_vision(cls) -> type[ImageEncoder]:
        return _Vision


class _Text(TextSide):
    """Tokens see none after them; a text's vector is that of the token that ends it."""

    causal = True

    def __init__(self, config: Config) -> None:
        super().__init__(config, _widths(config, 512, 8), longest=77, words=49408)
        self.end = config.size("eos_token_id", 49407, least=0)

    def pooled(self, ids: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
        """The states of the tokens that end texts, (B, T) to (B, E): the first such ones, or the largest numbers where `end` is 2, as in old files."""
        return self.chosen(self(ids, mask, lengths), ids)

    def chosen(self, states: Tensor, ids: Any) -> Tensor:
        """Of the states of each text's tokens (B, T, E) those that ``pooled`` gives."""
        ids = self.checked(ids)[0]
        if not ids.shape[1]:
            raise ValueError(f"ids have the shape {tuple(ids.shape)}; a text has at least the token that ends it")
        ends = (ids if self.end == 2 else (ids == self.end).to("int64")).argmax(1, keepdim=True)
        others = arange(ids.shape[1], device=ids.device) != ends
        return states.masked_fill(others[:, :, None], 0.0).sum(1)


class _Vision(ImageEncoder):
    """ViT with a norm before its layers; the norm after them is that of the first position alone."""

    preprocessor: ClassVar[str] = "CLIPImageProcessor"
    sizes = (224, 32)

    def __init__(self, config: Config) -> None:
        widths = _widths(config, 768, 12)
        super().__init__(config, widths, False)
        self.first, self.positions = Parameter(zeros(widths.model)), Parameter(zeros(*self.positions.shape[1:]))
        self.patches = nn.Conv2d(self.channels, widths.model, self.patch, stride=self.patch, bias=False)
        self.first_norm = nn.LayerNorm(widths.model, eps=widths.eps)

    def embed(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.first_norm(super().embed(x, grid))

    def finish(self, x: Tensor) -> Tensor:
        return x

    def pooled(self, pixels: Tensor) -> Tensor:
        """The vectors of images before their projection, (N, E)."""
        return self.norm(self(pixels)[:, 0])


class CLIPText(_Text):
    """The encoder of texts by itself, with the projection of its vectors where the weights have one."""

    table = table_of_side(
        TABLE,
        "text",
        sizes={"hidden_size": (f"{WORDS}.weight", 1)},
        names={"pooler": "text_projection"},
        renamed=((rf"^(?!{TEXT}\.|text_projection\.)", f"{TEXT}."),),  # in transformers 5
    )

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__(config)
        self.pooler = _projection(config, self.width) if pooler else None

    def of_texts(self, ids: Any, mask: Any = None, lengths: Any = None) -> Any:
        """The vectors of texts, (B, D), or (B, E) without a projection; arguments as for ``forward``."""
        states = self(ids, mask, lengths)
        found = self.chosen(as_tensor(states), ids)
        found = found if self.pooler is None else self.pooler(found)
        return found.numpy() if isinstance(states, np.ndarray) else found

    @property
    def class_name(self) -> str:
        """transformers' class."""
        return f"CLIPTextModel{'' if self.pooler is None else 'WithProjection'}"


class CLIPVision(_Vision):
    """The encoder of images by itself, with the projection of its vectors where the weights have one."""

    table = table_of_side(
        TABLE,
        "vision",
        sizes={"hidden_size": (f"{PATCHES}.weight", 0)},
        names={"pooler": "visual_projection"},
        renamed=((rf"^(?!{VISION}\.|visual_projection\.)", f"{VISION}."),),  # in transformers 5
    )

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__(config)
        self.pooler = _projection(config, self.width) if pooler else None

    def of_images(self, pixels: Any) -> Any:
        """The vectors of images, (N, D), or (N, E) without a projection; arguments as for ``forward``."""
        found = self.norm(self(pixels)[:, 0])
        return found if self.pooler is None else self.pooler(found)

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        check_patches(config, shapes, POSITIONS, f"{PATCHES}.weight", cls)

    @property
    def class_name(self) -> str:
        """transformers' class."""
        return f"CLIPVisionModel{'' if self.pooler is None else 'WithProjection'}"


def _projection(config: Config, width: int) -> Any:
    return nn.Linear(width, config.size("projection_dim", 512), bias=False)


def _scale(config: Config) -> float:
    """The logarithm of what cosines are multiplied by, at first."""
    value = config.values.get("logit_scale_init_value")
    if value is not None and (type(value) not in (int, float) or not abs(value) <= 100):
        raise config.refuse("logit_scale_init_value", "a number from -100 to 100")
    return 2.6592 if value is None else float(value)


__all__ = ["CLIP", "CLIPText", "CLIPVision"]
