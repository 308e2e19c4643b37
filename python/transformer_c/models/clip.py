"""CLIP (Radford et al. 2021): an encoder of images and one of texts, whose vectors are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .._tensor import arange, as_tensor, zeros
from ..nn.parameter import Parameter
from .config import Config, Widths
from .encoder_decoder import EncoderDecoder
from .image_encoder import ImageEncoder, check_patches
from .layers import Layer, LayerScale, TextEncoder, named_as_in_transformers
from .table import Table

_VISION, _TEXT = "vision_model", "text_model"  # in the names of arrays
_PATCHES, _POSITIONS = f"{_VISION}.embeddings.patch_embedding", f"{_VISION}.embeddings.position_embedding.weight"


def _tower(own: str, theirs: str) -> dict[str, str | tuple[str, ...]]:
    """The names of the arrays of the layers of a side."""
    layer, inner = f"{own}.layers.{{}}.", f"{theirs}.encoder.layers.{{}}."
    return {
        f"{layer}qkv": (f"{inner}self_attn.q_proj", f"{inner}self_attn.k_proj", f"{inner}self_attn.v_proj"),
        f"{layer}out": f"{inner}self_attn.out_proj",
        f"{layer}norm1": f"{inner}layer_norm1",
        f"{layer}linear1": f"{inner}mlp.fc1",
        f"{layer}linear2": f"{inner}mlp.fc2",
        f"{layer}norm2": f"{inner}layer_norm2",
    }


TABLE = Table(
    model_type="clip",
    prefix=None,
    name="CLIP",
    sizes={
        "projection_dim": ("text_projection.weight", 0),
        "text_config.hidden_size": ("text_projection.weight", 1),
        "text_config.vocab_size": (f"{_TEXT}.embeddings.token_embedding.weight", 0),
        "text_config.max_position_embeddings": (f"{_TEXT}.embeddings.position_embedding.weight", 0),
        "text_config.intermediate_size": (f"{_TEXT}.encoder.layers.0.mlp.fc1.weight", 0),
        "vision_config.hidden_size": ("visual_projection.weight", 1),
        "vision_config.num_channels": (f"{_PATCHES}.weight", 1),
        "vision_config.intermediate_size": (f"{_VISION}.encoder.layers.0.mlp.fc1.weight", 0),
    },
    layers=("vision_config.num_hidden_layers", f"{_VISION}.encoder.layers."),
    names={
        "text.words": f"{_TEXT}.embeddings.token_embedding",
        "text.positions": f"{_TEXT}.embeddings.position_embedding",
        **_tower("text", _TEXT),
        "text.norm": f"{_TEXT}.final_layer_norm",
        "text_projection": "text_projection",
        "vision.first": f"{_VISION}.embeddings.class_embedding",
        "vision.positions": _POSITIONS,
        "vision.patches": _PATCHES,
        "vision.first_norm": f"{_VISION}.pre_layrnorm",
        **_tower("vision", _VISION),
        "vision.norm": f"{_VISION}.post_layernorm",
        "visual_projection": "visual_projection",
        "scale.weight": "logit_scale",
    },
    heads={},
    buffers=(f"{_TEXT}.embeddings.position_ids", f"{_VISION}.embeddings.position_ids"),
)


def _own_sizes(part: str) -> dict[str, tuple[str, int]]:
    """Of a side, for a model of it alone."""
    return {name.removeprefix(f"{part}."): place for name, place in TABLE.sizes.items() if name.startswith(f"{part}.")}


def _own_names(side: str) -> dict[str, str | tuple[str, ...]]:
    return {own.removeprefix(f"{side}."): theirs for own, theirs in TABLE.names.items() if own.startswith(f"{side}.")}


class CLIP(nn.Module):
    """Both encoders, and the layers that give vectors of one size.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    text : TextEncoder
    vision : ImageEncoder
    """

    table = TABLE
    tie_word_embeddings: ClassVar[bool] = False
    pooler = None

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__()
        self.settle(config)
        config.without_extensions()
        self.config, size = config.values, config.size("projection_dim", 512)
        self.text, self.vision = _Text(config.part("text_config")), _Vision(config.part("vision_config"))
        self.text_projection = nn.Linear(self.text.width, size, bias=False)
        self.visual_projection = nn.Linear(self.vision.width, size, bias=False)
        self.scale = LayerScale((), _scale(config))

    @named_as_in_transformers
    def forward(
        self, ids: Tensor | None = None, pixels: Tensor | None = None, mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """The scores of each image with each text, transformers' ``logits_per_image``; of texts or images alone their vectors.

        Parameters
        ----------
        ids : array_like of int, shape (B, T), optional
            Numbers of tokens; texts are padded at their ends.
        pixels : array_like, shape (N, channels, height, width), optional
        mask, lengths : array_like, optional
            Which are tokens, as for encoders of texts.

        Returns
        -------
        Tensor or ndarray, shape (N, B)
            Before softmax: cosines, multiplied. Without `pixels` (B, D), the vectors of the texts, without `ids` (N, D), of the images; they
            are not normalised.
        """
        if ids is None and pixels is None:
            raise TypeError("ids or pixels must be given, or both")
        texts: Any = None if ids is None else self.text_projection(self.text.pooled(ids, mask, lengths))
        images: Any = None if pixels is None else self.visual_projection(self.vision.pooled(pixels))
        if texts is None or images is None:
            return images if texts is None else texts
        texts, images = (x / x.norm(dim=-1, keepdim=True) for x in (texts, images))
        return images @ texts.t() * self.scale.weight.exp()

    def of_texts(self, ids: Any, mask: Any = None, lengths: Any = None) -> Any:
        """The vectors of texts, (B, D); arguments as for ``forward``."""
        return self(ids, None, mask, lengths)

    def of_images(self, pixels: Any) -> Any:
        """The vectors of images, (N, D); arguments as for ``forward``."""
        return self(None, pixels)

    @staticmethod
    def settle(config: Config, arrays: Any = None) -> None:
        """Takes what older files say of the sides in other places."""
        for side in ("text_config", "vision_config"):
            older = config.values.pop(f"{side}_dict", None)
            if older is not None:
                config.values[side] = older
            config.part(side)

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the sizes of images and patches with the arrays, and the layers of texts."""
        check_patches(config.part("vision_config"), shapes, _POSITIONS, f"{_PATCHES}.weight", _Vision)
        EncoderDecoder.check_layers(config.part("text_config"), shapes, "num_hidden_layers", None, f"{_TEXT}.encoder.layers.", "texts")


class _Text(TextEncoder):
    """Tokens see none after them; a text's vector is that of the token that ends it."""

    causal = True

    def __init__(self, config: Config) -> None:
        widths = _widths(config, 512, 8)
        super().__init__(config, widths, False, (Layer(widths, norm_first=True) for _ in range(widths.layers)))
        self.longest = config.size("max_position_embeddings", 77)
        self.words = nn.Embedding(config.size("vocab_size", 49408), widths.model)
        self.positions = nn.Embedding(self.longest, widths.model)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.end = config.size("eos_token_id", 49407, least=0)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but there are no embeddings for the parts of a pair")
        return self.words(ids) + self.place(ids, places)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)

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

    table = Table(
        model_type="clip_text_model",
        prefix=None,
        name="CLIPText",
        sizes={**_own_sizes("text_config"), "hidden_size": (f"{_TEXT}.embeddings.token_embedding.weight", 1)},
        layers=("num_hidden_layers", f"{_TEXT}.encoder.layers."),
        names={**_own_names("text"), "pooler": "text_projection"},
        heads={},
        renamed=((rf"^(?!{_TEXT}\.|text_projection\.)", f"{_TEXT}."),),  # in transformers 5
        buffers=TABLE.buffers[:1],
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

    table = Table(
        model_type="clip_vision_model",
        prefix=None,
        name="CLIPVision",
        sizes={**_own_sizes("vision_config"), "hidden_size": (f"{_PATCHES}.weight", 0)},
        layers=("num_hidden_layers", f"{_VISION}.encoder.layers."),
        names={**_own_names("vision"), "pooler": "visual_projection"},
        heads={},
        renamed=((rf"^(?!{_VISION}\.|visual_projection\.)", f"{_VISION}."),),  # in transformers 5
        buffers=TABLE.buffers[1:],
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
        check_patches(config, shapes, _POSITIONS, f"{_PATCHES}.weight", cls)

    @property
    def class_name(self) -> str:
        """transformers' class."""
        return f"CLIPVisionModel{'' if self.pooler is None else 'WithProjection'}"


def _projection(config: Config, width: int) -> Any:
    return nn.Linear(width, config.size("projection_dim", 512), bias=False)


def _widths(config: Config, model: int, heads: int) -> Widths:
    """Of a side, by its part of config.json."""
    config.without_extensions()
    usual: dict[str, Any] = {"hidden_size": model, "num_attention_heads": heads, "intermediate_size": 4 * model}
    usual |= {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    found = Config({**usual, **{name: value for name, value in config.values.items() if value is not None}})
    found.file = config.file
    # Others than that of attention some files have, and nothing reads.
    found.values |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": config.optional("attention_dropout", 0.0)}
    return found.widths(dropout=0.0)


def _scale(config: Config) -> float:
    """The logarithm of what cosines are multiplied by, at first."""
    value = config.values.get("logit_scale_init_value")
    if value is not None and (type(value) not in (int, float) or not abs(value) <= 100):
        raise config.refuse("logit_scale_init_value", "a number from -100 to 100")
    return 2.6592 if value is None else float(value)


__all__ = ["CLIP", "CLIPText", "CLIPVision"]
