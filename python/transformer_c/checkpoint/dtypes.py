"""Dtypes that NumPy lacks, from the package ml_dtypes if it is installed."""

from __future__ import annotations

import numpy as np

from .errors import CheckpointError


def ml_dtype(name: str) -> np.dtype:
    """A dtype of ml_dtypes by its name; CheckpointError if the package, or this dtype in it, is missing."""
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise CheckpointError(f"it holds {name} values, which need the package ml_dtypes: pip install -U ml_dtypes") from None


def from_bfloat16_bits(bits: np.ndarray) -> np.ndarray:
    """uint16 bit patterns as ml_dtypes.bfloat16, sharing memory; if that is not installed, the same values as float32."""
    try:
        return bits.view(ml_dtype("bfloat16"))
    except CheckpointError:
        return (bits.astype(np.uint32) << 16).view(np.float32)  # a bfloat16 is the upper half of a float32
