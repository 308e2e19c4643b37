"""``tc.bfloat16``: the dtype of the package ml_dtypes; without that package the word, which every function takes."""

from typing import Any

import numpy as np

bfloat16: Any
try:
    import ml_dtypes
except ImportError:
    bfloat16 = "bfloat16"
else:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
