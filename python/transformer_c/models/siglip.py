"""SigLIP (Zhai et al. 2023) and those of SigLIP 2 (Tschannen et al. 2025) whose images have one size: each text describes an image or not, by a sigmoid."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from .. import nn
from .._core import Tensor
from .._tensor import as_tensor, zeros
from ..nn.fusion import activated
from ..nn.parameter import Parameter
from .config import Config, Widths
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
    number,
    table_of_side,
    widths_of_part,
)
from .layers import ACTIVATIONS, LayerScale, which_are_tokens
from .table import Table

_HEAD = f"{VISION}.head"
TABLE = Table(
    model_type="siglip",
    prefix=None,
    name="Siglip",
    sizes={
        **SIZES,
        "text_config.hidden_size": (f"{WORDS}.weight", 1),
        "text_config.projection_size": (f"{TEXT}.head.weight", 0),
        "vision_config.hidden_size": (f"{PATCHES}.weight", 0),
    },
    layers=LAYERS,
    names={
        **NAMES,
        "text.head": f"{TEXT}.head",
        "vision.head.probe": f"{_HEAD}.probe",
        **{f"vision.head.attention.in_proj_{leaf}": f"{_HEAD}.attention.in_proj_{leaf}" for leaf in ("weight", "bias")},
        "vision.head.attention.out_proj": f"{_HEAD}.attention.out_proj",
        "vision.head.norm": f"{_HEAD}.layernorm",
        "vision.head.linear1": f"{_HEAD}.mlp.fc1",
        "vision.head.linear2": f"{_HEAD}.mlp.fc2",
        "bias": "logit_bias",
    },
    heads={},
    buffers=BUFFERS,
)
_widths = partial(widths_of_part, activation="gelu_pytorch_tanh", eps=1e-6)


class SigLIPText(TextSide):
    """The encoder of texts: a text's vector is made of the state of its last position.

    Attributes
    ----------
    filling : int
        The token that fills texts up to `longest`, as they were in training, where no tokenizer says.
    """

    table = table_of_side(TABLE, "text", renamed=((rf"^(?!{TEXT}\.)", f"{TEXT}."),))  # in transformers 5

    def __init__(self, config: Config, pooler: bool = False) -> None:
        self.settle(config)
        super().__init__(config, _widths(config, 768, 12), longest=64, words=32000)
        self.head = nn.Linear(self.width, config.size("projection_size", self.width))
        self.filling = config.index("pad_token_id", None, self.words.num_embeddings)
        self.filling = 1 if self.filling is None else self.filling  # of most

    @staticmethod
    def settle(config: Config, arrays: Any = None) -> None:
        """null, which older files may have, is the usual size."""
        if config.values.get("projection_size") is None:
            config.values.pop("projection_size", None)

    def pooled(self, ids: Any, mask: Any, lengths: Any) -> Tensor:
        """The vectors of texts, (B, T) to (B, D), of the last of T positions, whether it is a token's or not."""
        ids = self.checked(ids)[0]
        if not ids.shape[1]:
            raise ValueError(f"ids have the shape {tuple(ids.shape)}; a text has at least one position")
        packing, visible = which_are_tokens(tuple(ids.shape), mask, lengths)
        visible = visible if packing is None else {"key_lengths": packing.sequence_lengths}
        x = self.embed(ids, None, None)
        for layer in self.layers:
            x = layer(x, visible)
        return self.head(self.finish(x)[:, -1])

    def of_texts(self, ids: Any, mask: Any = None, lengths: Any = None) -> Any:
        """The vectors of texts, (B, D); arguments as for ``forward``."""
        found = self.pooled(ids, mask, lengths)
        return found if isinstance(ids, Tensor) else found.detach().numpy()


class SigLIPVision(ImageEncoder):
    """ViT without a token that belongs to no patch.

    Attributes
    ----------
    head : Module or None
        Makes vectors of images.
    """

    table = table_of_side(TABLE, "vision", renamed=((rf"^(?!{VISION}\.)", f"{VISION}."),))  # in transformers 5
    preprocessor: ClassVar[str] = "SiglipImageProcessor"
    before = 0

    def __init__(self, config: Config, pooler: bool = False) -> None:
        widths = _widths(config, 768, 12)
        super().__init__(config, widths, False)
        self.positions = Parameter(zeros(*self.positions.shape[1:]))
        self.head = _Pooling(widths) if config.flag("vision_use_head", True) else None

    def pooled(self, pixels: Any) -> Tensor:
        """The vectors of images, (N, E)."""
        if self.head is None:
            raise ValueError("config.json has vision_use_head = false: the model gives states, model(pixels), and no vectors of images")
        return self.head(as_tensor(self(pixels)))

    def of_images(self, pixels: Any) -> Any:
        """The vectors of images, (N, E); arguments as for ``forward``."""
        found = self.pooled(pixels)
        return found if isinstance(pixels, Tensor) else found.detach().numpy()

    @classmethod
    def check_shapes(cls, config: Config, shapes: Any) -> None:
        check_patches(config, shapes, POSITIONS, f"{PATCHES}.weight", cls)


class SigLIP(ImageText):
    """Both encoders, whose vectors have one size.

    Attributes
    ----------
    bias : Parameter
        What is added to the multiplied cosines.
    """

    table = TABLE
    each_alone = True

    def __init__(self, config: Config, pooler: bool = False) -> None:
        super().__init__()
        self.settle(config)
        config.without_extensions()
        self.config, text, vision = config.values, config.part("text_config"), config.part("vision_config")
        vision.only("vision_use_head", True)
        self.text, self.vision = SigLIPText(text), SigLIPVision(vision)
        self.size = self.vision.width
        if self.text.head.out_features != self.size:
            raise text.refuse("projection_size", f"{self.size}, the size of an image's vector")
        self.scale, self.bias = LayerScale((1,), 0.0), Parameter(zeros(1))

    @staticmethod
    def settle(config: Config, arrays: Any = None) -> None:
        ImageText.settle(config)
        SigLIPText.settle(config.part("text_config"))

    def vectors_of_texts(self, ids: Any, mask: Any, lengths: Any) -> Tensor:
        return self.text.pooled(ids, mask, lengths)

    def vectors_of_images(self, pixels: Any) -> Tensor:
        return self.vision.pooled(pixels)

    def scaled(self, cosines: Tensor) -> Tensor:
        return super().scaled(cosines) + self.bias

    def factors(self) -> tuple[float, float]:
        return super().factors()[0], number(self.bias)

    @classmethod
    def of_vision(cls) -> type[ImageEncoder]:
        return SigLIPVision


class _Pooling(nn.Module):
    """Attention of a query that was learnt to the states of patches, then a network: (N, patches, E) to (N, E)."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self.probe, self.activation = Parameter(zeros(1, 1, widths.model)), widths.activation
        self.attention = nn.MultiheadAttention(widths.model, widths.heads, batch_first=True)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.linear1, self.linear2 = nn.Linear(widths.model, widths.hidden), nn.Linear(widths.hidden, widths.model)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(self.probe.expand(x.shape[0], 1, x.shape[2]), x, x, need_weights=False)[0]
        y = y + self.linear2(activated(self.linear1, ACTIVATIONS[self.activation], self.norm(y)))
        return y[:, 0]


__all__ = ["SigLIP", "SigLIPText", "SigLIPVision"]
