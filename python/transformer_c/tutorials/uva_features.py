"""Image features for the Set Anomaly task if CIFAR100 and a pre-trained ResNet34 are not available.

The images are scikit-learn's handwritten digits (8 x 8, 10 classes). One layer of random weights with a ReLU replaces the ResNet:
like the ResNet's features these are 512 numbers from 0 upwards, and like them they are never trained.
"""

from __future__ import annotations

import numpy as np

FEATURES = 512
TEST_PER_CLASS = 30
SPLIT_SEED = 42


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 8, 8) with values from 0 to 1 and labels (N,), the same number of each class, sorted by class.

    Raises
    ------
    ImportError
        Without scikit-learn, which the extra "tutorial" brings.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "the digits come with scikit-learn, which is not installed: pip install 'transformer_c[tutorial]' (or pip install scikit-learn)",
            name="sklearn",
        ) from error
    digits = load_digits()
    per_class = int(np.bincount(digits.target).min())  # cell 30 of the tutorial needs equal numbers
    # The set is ordered by who wrote: without a shuffle the test images would come from other hands than the rest.
    shuffle = np.random.RandomState(SPLIT_SEED).permutation(len(digits.target))
    members = np.concatenate([shuffle[digits.target[shuffle] == c][:per_class] for c in range(10)])
    return (digits.images[members] / 16).astype(np.float32), digits.target[members].astype(np.int64)


def stand_in_features(seed: int = 42) -> dict[str, np.ndarray]:
    """Features, labels and images for training and testing.

    Parameters
    ----------
    seed : int, default 42
        Of the random layer; the images and their split do not depend on it.

    Returns
    -------
    dict of str to ndarray
        "train_features" (1440, 512) and "test_features" (300, 512) float32, "train_labels" and "test_labels" int64, "train_images" and
        "test_images" (N, 8, 8) float32 from 0 to 1. All classes have the same number of images.

    Examples
    --------
    >>> from transformer_c.tutorials.uva_features import stand_in_features
    >>> arrays = stand_in_features()
    >>> arrays["train_features"].shape, arrays["test_features"].shape
    ((1440, 512), (300, 512))
    """
    images, labels = digit_images()
    per_class = len(labels) // 10
    test = np.tile(np.arange(per_class) >= per_class - TEST_PER_CLASS, 10)
    train = ~test
    features = _random_layer(images.reshape(len(images), -1), train, seed)
    return {
        "train_features": features[train],
        "train_labels": labels[train],
        "train_images": images[train],
        "test_features": features[test],
        "test_labels": labels[test],
        "test_images": images[test],
    }


def _random_layer(pixels: np.ndarray, train: np.ndarray, seed: int) -> np.ndarray:
    """(N, 64) to (N, 512): pixels about their training mean, random directions, ReLU, one scale for all features."""
    weights = np.random.default_rng(int(seed) % 2**64).standard_normal((pixels.shape[1], FEATURES))
    found = np.maximum((pixels - pixels[train].mean(0, dtype=np.float64)) @ weights, 0)
    return (found / found[train].std()).astype(np.float32)


__all__ = ["digit_images", "stand_in_features"]
