"""The data of the documents: made here, taken from scikit-learn, or read from the files that a user has. Nothing is downloaded.

tasks       the UvA tutorial's two tasks
squares     corners of squares
digits      scikit-learn's digits, patches
"""

from .digits import cut_patches, digit_patches, digits
from .squares import square_sequences
from .tasks import ReverseDataset, SetAnomalyDataset

__all__ = ["ReverseDataset", "SetAnomalyDataset", "cut_patches", "digit_patches", "digits", "square_sequences"]
