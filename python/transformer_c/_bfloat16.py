"""``tc.bfloat16``: the dtype of the package ml_dtypes; without that package a word, which every function takes."""

from __future__ import annotations

from typing import Any

import numpy as np


class Word(str):
    """The name of a dtype, with what is asked of a dtype. Arrays need the package."""

    name, kind, itemsize = "bfloat16", "V", 2  # as ml_dtypes has them
    __slots__ = ()

    def newbyteorder(self, new_order: str = "S") -> Word:
        """Itself: Tensors have the byte order of the machine."""
        return self


bfloat16: Any
try:
    import ml_dtypes
except ImportError:
    bfloat16 = Word("bfloat16")
else:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
