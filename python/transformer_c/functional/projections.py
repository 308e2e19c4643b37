"""Products with weights: ``linear`` and the projection to queries, keys and values."""

from __future__ import annotations

from .. import _core
from .._promotion import promote

__all__ = ["linear", "qkv_projection"]


def linear(input, weight, bias=None, *, sequence_lengths=None):
    """y = x W^T + b.

    Parameters
    ----------
    input : array_like, shape (..., in_features)
    weight : array_like, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional
    sequence_lengths : int or array_like of int, shape (S,), optional
        The length of the sequence that each row is of; or the lengths of packed sequences, side by side. Rows of sequences of 128 and more
        are multiplied in another way where that is faster: a row has the same bits in any batch, as long as its own sequence is as long.

    Returns
    -------
    Tensor or ndarray, shape (..., out_features)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.linear(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    return _core.linear(*promote(input, weight, bias), sequence_lengths=sequence_lengths)


def qkv_projection(input, weight, bias=None, num_heads: int = 1, packing: str = "head", *, sequence_lengths=None):
    """Queries, keys and values of all heads, computed by one product.

    Parameters
    ----------
    input : array_like, shape (B, T, C)
    weight : array_like, shape (3 E, C)
    bias : array_like, shape (3 E,), optional
    num_heads : int
        H; divides E.
    packing : {"head", "qkv"}
        The order of the 3E outputs: head by head [q_h | k_h | v_h], as in the tutorial, or [Q | K | V], as in
        torch.nn.MultiheadAttention.
    sequence_lengths : int or array_like of int, shape (S,), optional
        As for ``linear``.

    Returns
    -------
    q, k, v : Tensor or ndarray, shape (B, H, T, E / H)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> q, k, v = tc.functional.qkv_projection(np.ones((2, 5, 8)), np.ones((24, 8)), num_heads=2)
    >>> q.shape
    (2, 2, 5, 4)
    """
    input, weight, bias = promote(input, weight, bias)
    return _core.qkv_projection(input, weight, bias, num_heads=num_heads, packing=packing, sequence_lengths=sequence_lengths)
