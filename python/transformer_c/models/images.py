"""Images to pixels: what preprocessor_config.json says, with the numbers of transformers' image processors (those that resize by Pillow)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checkpoint import CheckpointError
from .config import Preprocessor
from .texts import listed

_HALF = [0.5, 0.5, 0.5]
_CLIP: dict[str, Any] = {
    **{"size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
    **{"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]},
}
_SQUARE: dict[str, Any] = {"size": {"height": 224, "width": 224}, "do_center_crop": False, "image_mean": _HALF, "image_std": _HALF}
# Transformers' image processors, by the names without "Fast" and "Pil": what they do where the file is silent.
KINDS: dict[str, dict[str, Any]] = {
    "BitImageProcessor": _CLIP,
    "CLIPImageProcessor": _CLIP,
    "SiglipImageProcessor": {**_SQUARE, "resample": 3},
    "ViTImageProcessor": {**_SQUARE, "resample": 2},
}
_SQUARE_OF_ONE = ("ViTImageProcessor",)  # in which one number is the size of both axes, not of the shorter one
_FOR_ALL = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
_MOST = 1 << 26  # pixels of an image that has been resized; a thin strip would get very long
_COARSE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LAB")  # Pillow's modes of 8 bits


class _Size(NamedTuple):
    """The size after resizing: of both axes, or of the shorter one, and then perhaps the most of the longer one."""

    height: int | None = None
    width: int | None = None
    short: int | None = None
    long: int | None = None

    def of(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) for an image of this size: cut off, not rounded, as in transformers."""
        if self.height is not None and self.width is not None:
            return self.height, self.width
        short = self.short or 1
        if self.long is not None:
            return _within(height, width, short, self.long)
        return (short, int(short * width / height)) if height < width else (int(short * height / width), short)


def _within(height: int, width: int, short: int, long: int) -> tuple[int, int]:
    """The size whose shorter axis has `short`, or less where the longer one would have more than `long`."""
    exact: float = short
    if max(height, width) / min(height, width) * short > long:
        exact = long * float(min(height, width)) / float(max(height, width))
        short = round(exact)
    if min(height, width) == short:
        return height, width
    return (int(exact * height / width), short) if width < height else (short, int(exact * width / height))


class ImagePreprocessor:
    """Images to pixels.

    Parameters
    ----------
    values : mapping
        Contents of preprocessor_config.json.
    kind : str
        The image processor where they name none.
    size : (int, int)
        The height and width of the model's images.
    free : bool
        Whether the model takes images of other sizes too.

    Attributes
    ----------
    values : dict
        The same with all that they do not say.
    """

    def __init__(self, values: Any, kind: str, size: tuple[int, int], free: bool = False) -> None:
        given = Preprocessor(values)
        kind = _kind_in(given, kind)
        config = self._config = Preprocessor({**_FOR_ALL, **KINDS[kind], **{k: v for k, v in given.values.items() if v is not None}})
        self.values = {**{k: v for k, v in config.values.items() if k != "feature_extractor_type"}, "image_processor_type": kind}
        config.only("do_pad", False)
        config.flag("do_convert_rgb", True)  # all images get three colours
        self._size = _size_in(config, "size", square=kind in _SQUARE_OF_ONE) if config.flag("do_resize", True) else None
        crop = _size_in(config, "crop_size", square=True) if config.flag("do_center_crop", False) else None
        if crop is not None and crop.height is None:
            raise config.refuse("crop_size", "a size of both axes")
        if crop is not None and (crop.height or 0) * (crop.width or 0) > _MOST:
            raise config.refuse("crop_size", f"a size of at most {_MOST} pixels")
        self._crop, self._free, self._wanted = crop, free, size
        self._method = config.size("resample", least=0, most=5)  # Pillow's numbers
        self._factor = config.positive("rescale_factor", 1 / 255) if config.flag("do_rescale", True) else None
        is_normal = config.flag("do_normalize", True)
        self._mean, self._std = (_channels(config, f"image_{name}", name == "std") if is_normal else None for name in ("mean", "std"))
        fixed = crop or self._size
        if not free and fixed is not None and fixed.height is not None and (fixed.height, fixed.width) != size:
            raise CheckpointError(
                f"by {config.file} images get the size ({fixed.height}, {fixed.width}); the model takes images of {size[0]} x {size[1]}"
            )

    def __repr__(self) -> str:
        return f"ImagePreprocessor({self.values['image_processor_type']}, {self._wanted[0]} x {self._wanted[1]})"

    def __call__(self, image: Any, number: int = 0) -> np.ndarray:
        """An image that ``checked`` has taken to pixels (3, height, width), float32; the errors call it `number`."""
        try:
            x = _in_colours(image)
        except MemoryError:
            raise
        except Exception as error:  # of Pillow: damaged files are read only now
            raise ValueError(f"image number {number} cannot be read ({type(error).__name__}: {error!s:.200})") from error
        if self._size is not None:
            x = self._resized(x, number)
        if self._crop is not None:
            x = _cropped(_cropped(x, 0, self._crop.height or 0), 1, self._crop.width or 0)
        if not self._free and x.shape[:2] != self._wanted:
            advice = "larger by do_resize" if self._size is None else "the same for all by crop_size, or a size of both axes"
            raise ValueError(
                f"image number {number} has {x.shape[0]} x {x.shape[1]} pixels after preprocessing; the model takes {self._wanted[0]} x "
                f"{self._wanted[1]}: in {self._config.file} sizes are made {advice}"
            )
        if self._factor is not None:
            x = (x * np.float64(self._factor)).astype(np.float32)
        if self._mean is not None and self._std is not None:
            x = (x.astype(np.float32) - self._mean) / self._std
        return np.ascontiguousarray(x.transpose(2, 0, 1), np.float32)

    def _resized(self, x: np.ndarray, number: int) -> np.ndarray:
        height, width = (self._size or _Size()).of(*x.shape[:2])
        if not 0 < height * width <= _MOST:
            raise ValueError(f"image number {number} has {x.shape[0]} x {x.shape[1]} pixels, and would be resized to {height} x {width}")
        return np.asarray(_pillow().fromarray(x).resize((width, height), self._method))

    def stacked(self, images: Sequence[Any], numbers: Any) -> np.ndarray:
        """Images to pixels (B, 3, height, width) of one size."""
        found = [self(image, int(number)) for image, number in zip(images, numbers, strict=True)]
        for number, each in zip(numbers, found, strict=True):
            if each.shape != found[0].shape:
                raise ValueError(
                    f"image number {number} has {each.shape[1]} x {each.shape[2]} pixels after preprocessing, and number {numbers[0]} has "
                    f"{found[0].shape[1]} x {found[0].shape[2]}: batch_size=1 computes each by itself"
                )
        return np.stack(found) if found else np.zeros((0, 3, *self._wanted), np.float32)


def preprocessor_of(encoder: Any, values: Any) -> ImagePreprocessor:
    """What makes pixels for an encoder of images; without `values` by the size of its images."""
    if encoder.channels != 3:
        raise CheckpointError(f"config.json has num_channels = {encoder.channels}; images have 3")
    if values is None:
        height, width = encoder.size
        sized = {"size": {"height": height, "width": width}, "crop_size": {"height": height, "width": width}}
        short = "shortest_edge" in KINDS[encoder.preprocessor]["size"]
        values = {**sized, "size": {"shortest_edge": max(encoder.size)}} if short else sized
    return ImagePreprocessor(values, encoder.preprocessor, encoder.size, getattr(encoder, "resizes", False))


def checked(images: Any, numbers: Any = None) -> list[Any]:
    """A list of images: arrays of uint8 (height, width, 3), and Pillow's; the errors have their numbers, by default 0, 1, ..."""
    if is_image(images) or (getattr(images, "ndim", 0) in (2, 3) and images.dtype.kind != "O"):
        what = f"one array of the shape {tuple(images.shape)}" if hasattr(images, "ndim") else "one image"
        raise TypeError(f"images must be a sequence of images, not {what}; put a single one into a list")
    found = listed(images, "images", "images")
    return [_checked(image, number) for number, image in zip(range(len(found)) if numbers is None else numbers, found, strict=True)]


def is_image(value: Any) -> bool:
    """Whether this is one of Pillow's."""
    return "PIL.Image" in sys.modules and isinstance(value, sys.modules["PIL.Image"].Image)


def _checked(image: Any, number: int) -> Any:
    what = f"image number {number}"
    if is_image(image):
        if image.mode not in _COARSE:
            raise ValueError(f"{what} has the mode {image.mode!r}, which has no 8 bits for each colour; scale its values from 0 to 255")
        if not image.width or not image.height:
            raise ValueError(f"{what} has no pixels: its size is {image.size}")
        return image
    if isinstance(image, (str, bytes, os.PathLike)):
        inner = "io.BytesIO(data)" if isinstance(image, bytes) else "path"
        raise TypeError(f"{what} is {image!r:.80}; images are read by `PIL.Image.open({inner})` of the package pillow")
    try:
        found = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    except ValueError as error:  # of rows of different lengths
        raise ValueError(f"{what} is no array: {error!s:.200}") from None
    if found.dtype != np.uint8:
        raise TypeError(f"{what} has values of {found.dtype}; expected uint8, from 0 to 255{_advice_of(found)}")
    if found.ndim != 3 or found.shape[2] != 3:
        raise ValueError(f"{what} has the shape {found.shape}; expected (height, width, 3), red, green and blue{_advice_of(found)}")
    if not found.size:
        raise ValueError(f"{what} has no pixels: its shape is {found.shape}")
    return found


def _advice_of(x: np.ndarray) -> str:
    """What to do with an array that is no image."""
    if x.dtype.kind == "f":
        if not np.isfinite(x).all():
            return "; it has NaN or infinity"
        if x.size and x.min() >= 0:
            return f"; np.round({'x * 255' if x.max() <= 1 else 'x'}).astype(np.uint8) makes them"
        return "; it seems to be normalised already: tc.models.load(folder, task=...) takes such pixels (B, 3, height, width)"
    if x.dtype != np.uint8:
        return "; x.astype(np.uint8) makes them" if x.dtype.kind in "iu" and x.size and x.min() >= 0 and x.max() <= 255 else ""
    if x.ndim == 2:
        return "; it is grey: np.stack([x] * 3, -1) has three equal colours"
    if x.ndim == 3 and x.shape[2] == 1:
        return "; it is grey: np.repeat(x, 3, 2) has three equal colours"
    if x.ndim == 3 and x.shape[2] == 4:
        return "; it has transparency: PIL.Image.fromarray(x) is put on white, x[:, :, :3] leaves it out"
    if x.ndim == 3 and x.shape[0] == 3:
        return "; colours are the last axis: x.transpose(1, 2, 0)"
    return "; several images are a list" if x.ndim == 4 else ""


def _in_colours(image: Any) -> np.ndarray:
    """(height, width, 3), uint8: upright, by what a camera wrote about it, and on white where it is transparent."""
    if not is_image(image):
        return image
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        image = _pillow().alpha_composite(_pillow().new("RGBA", image.size, (255, 255, 255, 255)), image)
    return np.asarray(image.convert("RGB"))


def _cropped(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The middle of an axis, between zeros where it is shorter."""
    more = x.shape[axis] - size
    if more >= 0:
        return x.take(np.arange(more // 2, more // 2 + size), axis)
    around = [(0, 0)] * x.ndim
    around[axis] = (-more - (-more // 2), -more // 2)
    return np.pad(x, around)


def _kind_in(config: Preprocessor, default: str) -> str:
    """The name of the image processor."""
    name = "image_processor_type" if config.values.get("image_processor_type") is not None else "feature_extractor_type"
    said = config.values.get(name)
    if said is None:
        return default
    kind = str(said).replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
    if not isinstance(said, str) or kind not in KINDS:
        raise config.refuse(name, f"one of {', '.join(KINDS)}")
    return kind


def _size_in(config: Preprocessor, name: str, square: bool) -> _Size:
    """A size: one number, two, or by names; one is that of both axes, or of the shorter one."""
    value: Any = config.values.get(name)
    if type(value) is int:
        value = {"height": value, "width": value} if square else {"shortest_edge": value}
    if isinstance(value, (list, tuple)) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    known = {"height": "height", "width": "width", "shortest_edge": "short", "longest_edge": "long"}
    names = sorted(known[key] for key in value if key in known) if isinstance(value, Mapping) and known.keys() >= value.keys() else []
    if names not in (["height", "width"], ["short"], ["long", "short"]) or not all(
        type(n) is int and 0 < n <= 1 << 16 for n in value.values()
    ):
        raise config.refuse(name, "a size, {'height', 'width'}, or {'shortest_edge'}, of numbers from 1 to 65536")
    return _Size(**{known[key]: size for key, size in value.items()})


def _channels(config: Preprocessor, name: str, divides: bool) -> np.ndarray:
    """A number, or one for each colour, float32."""
    value = config.values.get(name)
    found: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value] * 3
    if len(found) != 3 or not all(type(n) in (int, float) and abs(n) <= 1e6 and (not divides or n >= 1e-6) for n in found):
        raise config.refuse(name, f"a number, or three{', above 0' if divides else ''}")
    return np.array(found, np.float32)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images are resized by the package pillow: pip install 'transformer_c[models]', or pip install pillow") from None
    return Image


__all__ = ["ImagePreprocessor"]
