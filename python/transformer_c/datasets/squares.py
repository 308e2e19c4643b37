"""Corners of squares, as in Godoy's chapter on encoders and decoders."""

from __future__ import annotations

import numpy as np

from .._arguments import count


def square_sequences(n: int = 128, variable_len: bool = False, seed: int = 13) -> tuple[list[np.ndarray] | np.ndarray, np.ndarray]:
    """Corners of noisy squares, visited clockwise or counter-clockwise from a random corner.

    Parameters
    ----------
    n : int, default 128
        Number of sequences.
    variable_len : bool
        Lengths from 2 to 4 instead of 4.
    seed : int, default 13

    Returns
    -------
    points : ndarray (n, 4, 2), or a list of ndarrays (length, 2)
    directions : ndarray (n,), int64
        1 clockwise, 0 counter-clockwise.

    Examples
    --------
    >>> import transformer_c as tc
    >>> points, directions = tc.datasets.square_sequences(n=3)
    >>> points[0].shape, directions.shape
    ((4, 2), (3,))
    """
    basic_corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    count("n", n)
    state = np.random.RandomState(seed)
    bases = state.randint(4, size=n)
    lengths = state.randint(3, size=n) + 2 if variable_len else np.full(n, 4)
    directions = state.randint(2, size=n)
    points = []
    for base, direction, length in zip(bases, directions, lengths, strict=True):
        corners = basic_corners[(base + np.arange(4)) % 4][:: 2 * direction - 1][:length]
        points.append(corners + state.randn(length, 2) * 0.1)
    return (points if variable_len else np.stack(points)), directions.astype(np.int64)
