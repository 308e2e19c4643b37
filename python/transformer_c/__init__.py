"""transformer_c: Transformers on NumPy arrays."""

from ._core import Tensor

__version__ = "0.1.0"
