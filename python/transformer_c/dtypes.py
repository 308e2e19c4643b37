"""The dtypes, under PyTorch's names. Each is a np.dtype; a dtype argument may also be given as a str.

Tensors have no signed integers of 8 or 16 bits: `int8` and `int16` are dtypes of ndarrays, which become int64 here. ``tc.bfloat16`` is in
``_bfloat16.py``.
"""

import numpy as np

float16 = half = np.dtype(np.float16)
float32 = float = np.dtype(np.float32)
float64 = double = np.dtype(np.float64)
int8 = np.dtype(np.int8)
int16 = short = np.dtype(np.int16)
int32 = int = np.dtype(np.int32)
int64 = long = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)

__all__ = [
    "bool",
    "double",
    "float",
    "float16",
    "float32",
    "float64",
    "half",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "short",
    "uint8",
]
