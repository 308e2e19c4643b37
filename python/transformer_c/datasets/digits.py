"""Scikit-learn's digits, and images cut into patches."""

from __future__ import annotations

import numpy as np

from .._arguments import count, integer


def cut_patches(images, patch_size: tuple[int, int] = (7, 7)) -> np.ndarray:
    """Images as sequences of patches, row by row.

    Parameters
    ----------
    images : array_like, shape (N, height, width)
    patch_size : (int, int), default (7, 7)
        Height and width of a patch; pixels left over at the right and at the bottom are dropped.

    Returns
    -------
    ndarray, shape (N, patches, pixels of a patch)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.datasets.cut_patches(np.arange(16).reshape(1, 4, 4), (2, 2))[0].tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    images = np.asarray(images)
    if np.shape(patch_size) != (2,):
        raise TypeError(f"patch_size must be a height and a width, such as (7, 7), got {patch_size!r}")
    high, wide = (integer("patch_size", length) for length in patch_size)
    if images.ndim != 3 or not (0 < high <= images.shape[1] and 0 < wide <= images.shape[2]):
        raise ValueError(f"images have shape {images.shape}; expected (N, height, width), with room for a patch of {high} x {wide}")
    rows, columns = images.shape[1] // high, images.shape[2] // wide
    grid = images[:, : rows * high, : columns * wide].reshape(len(images), rows, high, columns, wide)
    return np.ascontiguousarray(grid.swapaxes(2, 3)).reshape(len(images), rows * columns, high * wide)


def _stretch(size: int, side: int) -> np.ndarray:
    """Weights (side, size) that interpolate `size` pixels to `side` pixels, each between the two nearest centres."""
    place = np.clip((np.arange(side) + 0.5) * size / side - 0.5, 0, size - 1)
    return np.maximum(0, 1 - np.abs(place[:, None] - np.arange(size)))


def _load_digits(side: int) -> tuple[np.ndarray, np.ndarray]:
    """The 1797 images (N, side, side) with values between 0 and 1, and their classes."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install scikit-learn, or transformer_c[tutorial]") from error
    loaded = load_digits()
    weights = _stretch(8, side)
    return (weights @ (loaded.images / 16.0) @ weights.T).astype(np.float32), loaded.target.astype(np.int64)


def digits(side: int = 28, seed: int = 0) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Scikit-learn's 1797 digits, a stand-in for MNIST: enlarged 8 x 8 images, 1437 for training and 360 for validation.

    Parameters
    ----------
    side : int, default 28
        Height and width in pixels; the images are interpolated to this size.
    seed : int, default 0
        Seed of the random order in which the digits are split.

    Returns
    -------
    (images, classes), (images, classes)
        images (N, side, side), float32 between 0 and 1; classes (N,), int64; in the same form as those of ``load_mnist``.
    """
    images, classes = _load_digits(count("side", side))
    order = np.random.RandomState(seed).permutation(len(images))
    train, validation = order[:1437], order[1437:]
    return (images[train], classes[train]), (images[validation], classes[validation])


def digit_patches(patch_size: tuple[int, int] = (7, 7), side: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's 1797 digits as sequences of patches.

    Parameters
    ----------
    patch_size : (int, int), default (7, 7)
    side : int, default 28
        Height and width of the images in pixels; 8 leaves them unchanged.

    Returns
    -------
    patches : ndarray, shape (1797, patches, pixels of a patch), float32 between 0 and 1
    classes : ndarray, shape (1797,), int64
    """
    images, classes = _load_digits(side)
    return cut_patches(images, patch_size), classes
