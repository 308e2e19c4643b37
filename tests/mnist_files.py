"""MNIST's files, written for tests."""

import gzip
import struct

import numpy as np


def idx(array):
    """The bytes of a file with an array of uint8."""
    array = np.asarray(array, np.uint8)
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder, part, images, labels, compressed=False):
    """Both files of a part, "train" or "t10k"."""
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
        path.write_bytes(gzip.compress(idx(array)) if compressed else idx(array))
