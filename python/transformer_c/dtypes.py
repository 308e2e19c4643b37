"""The dtypes, under PyTorch's names. Each is a np.dtype; a dtype argument may also be given as a str."""

import numpy as np

float16 = half = np.dtype(np.float16)
float32 = float = np.dtype(np.float32)
float64 = double = np.dtype(np.float64)
int32 = np.dtype(np.int32)
int64 = long = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)

__all__ = ["double", "float", "float16", "float32", "float64", "half", "int32", "int64", "long", "uint8"]
