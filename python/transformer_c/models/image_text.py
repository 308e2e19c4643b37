"""What encoders of both images and texts share, whose vectors are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .. import nn
from .._core import Tensor
from .config import Config, Widths
from .encoder_decoder import EncoderDecoder
from .image_encoder import ImageEncoder, check_patches
from .layers import Layer, LayerScale, TextEncoder, named_as_in_transformers
from .table import Table

VISION, TEXT = "vision_model", "text_model"  # in the names of arrays
PATCHES, POSITIONS = f"{VISION}.embeddings.patch_embedding", f"{VISION}.embeddings.position_embedding.weight"
WORDS = f"{TEXT}.embeddings.token_embedding"
BUFFERS = (f"{TEXT}.embeddings.position_ids", f"{VISION}.embeddings.position_ids")


def tower(own: str, theirs: str) -> dict[str, str | tuple[str, ...]]:
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


NAMES: dict[str, str | tuple[str, ...]] = {  # of both sides
    "text.words": WORDS,
    "text.positions": f"{TEXT}.embeddings.position_embedding",
    **tower("text", TEXT),
    "text.norm": f"{TEXT}.final_layer_norm",
    "vision.positions": POSITIONS,
    "vision.patches": PATCHES,
    **tower("vision", VISION),
    "vision.norm": f"{VISION}.post_layernorm",
    "scale.weight": "logit_scale",
}
SIZES = {
    "text_config.vocab_size": (f"{WORDS}.weight", 0),
    "text_config.max_position_embeddings": (f"{TEXT}.embeddings.position_embedding.weight", 0),
    "text_config.intermediate_size": (f"{TEXT}.encoder.layers.0.mlp.fc1.weight", 0),
    "vision_config.num_channels": (f"{PATCHES}.weight", 1),
    "vision_config.intermediate_size": (f"{VISION}.encoder.layers.0.mlp.fc1.weight", 0),
}
LAYERS = ("vision_config.num_hidden_layers", f"{VISION}.encoder.layers.")


def table_of_side(both: Table, side: str, **more: Any) -> Table:
    """The table of a side by itself; `more`: members that are others, and what `names` and `sizes` have besides."""
    config, array = f"{side}_config.", f"{side}_model"
    names = {own.removeprefix(f"{side}."): theirs for own, theirs in both.names.items() if own.startswith(f"{side}.")}
    sizes = {name.removeprefix(config): place for name, place in both.sizes.items() if name.startswith(config)}
    return Table(
        model_type=f"{both.model_type}_{side}_model",
        prefix=None,
        name=f"{both.name}{side.capitalize()}",
        sizes={**sizes, **more.pop("sizes", {})},
        layers=("num_hidden_layers", f"{array}.encoder.layers."),
        names={**names, **more.pop("names", {})},
        heads={},
        buffers=tuple(name for name in both.buffers if name.startswith(f"{array}.")),
        **more,
    )


class TextSide(TextEncoder):
    """An encoder of texts whose layers normalise first.

    Parameters
    ----------
    config : Config
    widths : Widths
    longest, words : int
        How many positions and words there are where `config` does not say.
    """

    def __init__(self, config: Config, widths: Widths, longest: int, words: int) -> None:
        super().__init__(config, widths, False, (Layer(widths, norm_first=True) for _ in range(widths.layers)))
        self.longest = config.size("max_position_embeddings", longest)
        self.words = nn.Embedding(config.size("vocab_size", words), widths.model)
        self.positions = nn.Embedding(self.longest, widths.model)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but there are no embeddings for the parts of a pair")
        return self.words(ids) + self.place(ids, places)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class ImageText(nn.Module):
    """The base of encoders of images and texts.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    size : int
        D, the features of a vector.
    text : TextEncoder
    vision : ImageEncoder
    scale : LayerScale
        Its weight is the logarithm of what cosines are multiplied by.
    """

    table: ClassVar[Table]
    tie_word_embeddings: ClassVar[bool] = False
    pooler = None
    size: int
    text: TextEncoder
    vision: ImageEncoder
    scale: LayerScale
    each_alone: ClassVar[bool] = False  # whether a text describes an image or not whatever other texts there are

    def vectors_of_texts(self, ids: Any, mask: Any, lengths: Any) -> Tensor:
        """(B, D), not normalised."""
        raise NotImplementedError

    def vectors_of_images(self, pixels: Any) -> Tensor:
        """(N, D), not normalised."""
        raise NotImplementedError

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
            Before softmax, or the sigmoid of SigLIP: cosines, multiplied. Without `pixels` (B, D), the vectors of the texts, without `ids` (N, D), of the
            images; they are not normalised.
        """
        if ids is None and pixels is None:
            raise TypeError("ids or pixels must be given, or both")
        texts: Any = None if ids is None else self.vectors_of_texts(ids, mask, lengths)
        images: Any = None if pixels is None else self.vectors_of_images(pixels)
        if texts is None or images is None:
            return images if texts is None else texts
        texts, images = (x / x.norm(dim=-1, keepdim=True) for x in (texts, images))
        return self.scaled(images @ texts.t())

    def of_texts(self, ids: Any, mask: Any = None, lengths: Any = None) -> Any:
        """The vectors of texts, (B, D); arguments as for ``forward``."""
        return self(ids, None, mask, lengths)

    def of_images(self, pixels: Any) -> Any:
        """The vectors of images, (N, D); arguments as for ``forward``."""
        return self(None, pixels)

    def scaled(self, cosines: Tensor) -> Tensor:
        """Scores, of cosines."""
        return cosines * self.scale.weight.exp()

    def factors(self) -> tuple[float, float]:
        """What ``scaled`` multiplies by and adds."""
        return math.exp(number(self.scale.weight)), 0.0

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
        check_patches(config.part("vision_config"), shapes, POSITIONS, f"{PATCHES}.weight", cls.of_vision())
        EncoderDecoder.check_layers(config.part("text_config"), shapes, "num_hidden_layers", None, f"{TEXT}.encoder.layers.", "texts")

    @classmethod
    def of_vision(cls) -> type[ImageEncoder]:
        """The class of ``vision``."""
        raise NotImplementedError


def widths_of_part(config: Config, model: int, heads: int, activation: str, eps: float) -> Widths:
    """Of a side, by its part of config.json."""
    config.without_extensions()
    usual: dict[str, Any] = {"hidden_size": model, "num_attention_heads": heads, "intermediate_size": 4 * model}
    usual |= {"hidden_act": activation, "layer_norm_eps": eps}
    found = Config({**usual, **{name: value for name, value in config.values.items() if value is not None}})
    found.file = config.file
    # Others than that of attention some files have, and nothing reads.
    found.values |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": config.optional("attention_dropout", 0.0)}
    return found.widths(dropout=0.0)


def number(parameter: Any) -> float:
    """The value of a parameter of one number."""
    return float(np.asarray(parameter.detach().cpu()).astype(np.float64).reshape(()))


__all__ = ["ImageText", "TextSide"]
