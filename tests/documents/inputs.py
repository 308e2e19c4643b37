"""Inputs of the documents' models in tests and golden values: NumPy's legacy generators give the same numbers everywhere."""

import numpy as np


def squares(n=128, variable_len=False, seed=13):
    """Corners of noisy squares, from the description: base corner, length, direction, then noise point by point."""
    np.random.seed(seed)
    bases = np.random.randint(4, size=n)
    lengths = np.random.randint(3, size=n) + 2 if variable_len else [4] * n
    directions = np.random.randint(2, size=n)
    corners = [(-1, -1), (-1, 1), (1, 1), (1, -1)]
    points = []
    for base, direction, length in zip(bases, directions, lengths, strict=True):
        walk = [corners[(base + i) % 4] for i in range(4)]
        walk = (walk if direction else walk[::-1])[:length]
        points.append(np.array(walk) + 0.1 * np.random.randn(length, 2))
    return points, directions


def digits(n=200):
    """n images of 16 grey levels as patches (n, 16, 49), classes in turn."""
    grey = np.random.RandomState(7).randint(17, size=(n, 16, 49))
    return (grey / 16).astype(np.float32), np.arange(n) % 10
