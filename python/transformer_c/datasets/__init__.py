"""The tutorials' data: generated here, taken from scikit-learn, or read from the user's files. Nothing is downloaded.

tasks               the UvA tutorial's two tasks
squares             corners of squares
digits, mnist       scikit-learn's digits, MNIST's files; patches
cifar, features     CIFAR-100's files; features of images
reviews, text       reviews with their sentiment; words as integers
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .cifar import load_cifar100
from .digits import cut_patches, digit_patches, digits
from .features import load_features
from .mnist import load_mnist
from .reviews import load_reviews
from .squares import square_sequences
from .tasks import ReverseDataset, SetAnomalyDataset
from .text import TextVectorization

__all__ = [
    "ReverseDataset",
    "SetAnomalyDataset",
    "TextVectorization",
    "cut_patches",
    "digit_patches",
    "digits",
    "load_cifar100",
    "load_features",
    "load_mnist",
    "load_reviews",
    "square_sequences",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            **dict.fromkeys(("MNIST", "load_MNIST"), "datasets.load_mnist(folder): nothing is downloaded"),
            **dict.fromkeys(("CIFAR100", "CIFAR10"), "datasets.load_cifar100(folder): nothing is downloaded"),
            **dict.fromkeys(("IMDB", "load_imdb"), "datasets.load_reviews(path): nothing is downloaded"),
            "load_digits": "datasets.digits(side=8)",
        },
    )
