"""What encoders of images share: patches, the tokens before them, positions, layers that normalise first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from .. import functional as F
from .. import nn
from .._core import Tensor
from .._joining import cat
from .._promotion import is_half
from .._tensor import as_tensor, zeros
from ..checkpoint import CheckpointError
from ..nn.parameter import Parameter
from .config import Config, Widths
from .layers import Layer, Pooler, named_as_in_transformers
from .names import lack
from .table import Table


class ImageEncoder(nn.Module):
    """The base of encoders of images.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    width : int
        E, the features of a state.
    channels : int
    size, patch : (int, int)
        Heights and widths: of the images that the model was made for, and of a patch.
    before : int
        How many positions are in front of the patches.
    pooler : Linear or None
        A linear layer and tanh for the first position, where the weights have one.
    """

    table: ClassVar[Table]
    preprocessor: ClassVar[str]  # transformers' class, where preprocessor_config.json names none
    sizes: ClassVar[tuple[int, int]] = (224, 16)  # of images and patches, where config.json does not say
    before: int = 1
    resizes: ClassVar[bool] = False  # whether positions are interpolated for images of other sizes
    antialias: ClassVar[bool] = False  # in which case for smaller ones each is made of all that it covers

    def __init__(self, config: Config, widths: Widths, pooler: bool, layers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.config, self.width = config.values, widths.model
        self.channels = config.size("num_channels", 3)
        self.size, self.patch = _sizes(config, self.sizes)
        self.register_parameter("first", Parameter(zeros(1, 1, widths.model)) if self.before else None)
        self.positions = Parameter(zeros(1, self.count(self.size, self.patch), widths.model))
        self.patches = nn.Conv2d(self.channels, widths.model, self.patch, stride=self.patch)
        self.layers = nn.ModuleList((Layer(widths, norm_first=True) for _ in range(widths.layers)) if layers is None else layers)
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)
        self.pooler = Pooler(widths.model, widths.model) if pooler else None

    @classmethod
    def count(cls, size: tuple[int, int], patch: tuple[int, int]) -> int:
        """Of the positions that there are embeddings for: one for each patch, and in most models one more."""
        return (size[0] // patch[0]) * (size[1] // patch[1]) + cls.before

    def embed(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """The first layer's input, of patches (B, rows * columns, E)."""
        x = x if self.first is None else cat([self.first.expand(x.shape[0], 1, x.shape[2]), x], 1)
        return self.dropout(x + self.placed(grid))

    def placed(self, grid: tuple[int, int]) -> Tensor:
        """The embeddings of the positions, for so many rows and columns of patches."""
        own = self.size[0] // self.patch[0], self.size[1] // self.patch[1]
        if grid == own:
            return self.positions
        table = self.positions[:, 1:].reshape(1, *own, self.width).permute(0, 3, 1, 2)
        table = table.float() if is_half(table) else table
        table = F.interpolate(table, size=grid, mode="bicubic", antialias=self.antialias).to(self.positions.dtype)
        return cat([self.positions[:, :1], table.flatten(2).transpose(1, 2)], 1)

    def finish(self, x: Tensor) -> Tensor:
        """The states, of what the last layer gives."""
        return self.norm(x)

    @named_as_in_transformers
    def forward(self, pixels: Tensor) -> Tensor:
        """The states of the last layer.

        Parameters
        ----------
        pixels : array_like, shape (B, channels, height, width)
            Images of the size that the model was made for, normalised as preprocessor_config.json says. Some models take other sizes too.

        Returns
        -------
        Tensor or ndarray, shape (B, N, E)
            N is 1 + patches, where the first position belongs to no patch; patches alone in SigLIP.

        Raises
        ------
        TypeError
            When pixels are no floats.
        ValueError
            When the images have another size.
        """
        pixels = as_tensor(pixels)
        if pixels.dtype.kind not in "fV":
            raise TypeError(f"pixels have values of {pixels.dtype.name}; expected floats, normalised as preprocessor_config.json says")
        fits = pixels.ndim == 4 and pixels.shape[1] == self.channels
        if not fits or (tuple(pixels.shape[2:]) != self.size if not self.resizes else not all(map(_reaches, pixels.shape[2:], self.patch))):
            sizes = f"{self.size[0]}, {self.size[1]}" if not self.resizes else f"{self.patch[0]} or more, {self.patch[1]} or more"
            raise ValueError(f"pixels have shape {pixels.shape}; expected (B, {self.channels}, {sizes})")
        x = self.patches(pixels.to(self.patches.weight.dtype))  # (B, E, rows, columns)
        x = self.embed(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))
        for layer in self.layers:
            x = layer(x, {})
        return self.finish(x)

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        check_patches(config, shapes, str(cls.table.names["positions"]), f"{cls.table.names['patches']}.weight", cls)

    @staticmethod
    def head_options(config: Config, task: str) -> dict[str, Any]:
        """Of the head for a task, as in ``Bert``."""
        return {"dropout": 0.0}


def check_patches(config: Config, shapes: Mapping[str, tuple[int, ...]], positions: str, patches: str, kind: type[ImageEncoder]) -> None:
    """Compares the sizes of images and patches with these arrays, before memory is taken for anything."""
    size, patch = _sizes(config, kind.sizes)
    for array, wanted, axes in ((patches, patch, slice(2, 4)), (positions, (kind.count(size, patch),), slice(-2, -1))):
        if array not in shapes:
            raise lack(array, shapes)
        if shapes[array][axes] != wanted:
            raise CheckpointError(f"{config.file} has image_size = {size} and patch_size = {patch} but {array!r} has shape {shapes[array]}")


def _sizes(config: Config, defaults: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return config.pair("image_size", defaults[0]), config.pair("patch_size", defaults[1])


def _reaches(length: int, patch: int) -> bool:
    return length >= patch


def is_square(count: int) -> bool:
    """Whether so many positions are a square, and one more."""
    return math.isqrt(count - 1) ** 2 == count - 1


__all__ = ["ImageEncoder"]
