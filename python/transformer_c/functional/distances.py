"""Lengths of vectors, and distances and angles between them."""

from __future__ import annotations

import numpy as np

from .. import _core
from .._arguments import joint_shape, not_negative, real
from .._core import Tensor
from .._promotion import needed, promote, rounds_once, together
from ..tensor_functions.reductions import norm, sum_of_squares

__all__ = ["cosine_similarity", "normalize", "pairwise_distance"]


def _length(x, p: float, dim, eps: float = 0.0, keepdim: bool = True):
    """The p-norm along an axis; at least eps, and with gradient 0 below it and at 0. No axes are all of them, as in PyTorch."""
    dim = None if isinstance(dim, (tuple, list)) and not dim else dim
    if p == 2 and eps >= 1e-18:  # whose square is a float32; the root's slope at 0 is not needed
        return _core.sqrt(_core.clamp_min(sum_of_squares(x, dim, keepdim), eps * eps))
    if p == 2 and eps == 0 and not getattr(x, "requires_grad", False):
        return _core.sqrt(sum_of_squares(x, dim, keepdim))
    length = norm(x, p, dim, keepdim)
    return _core.clamp_min(length, eps) if eps else length


@rounds_once
def normalize(input, p: float = 2.0, dim: int = 1, eps: float = 1e-12):
    """x / max(norm, eps), with the p-norm of each vector along an axis.

    Parameters
    ----------
    input : array_like
    p : float, default 2.0
        2 is the Euclidean length, 1 the sum of the absolute values, infinity the largest of them, 0 how many are not 0.
    dim : int or tuple of int, default 1
        The axes of a vector.
    eps : float, default 1e-12
        The least norm that is divided by.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    p, eps = real("p", p), not_negative("eps", eps)
    return _core.div(input, _length(input, p, dim, eps))


def _expanded(x, shape):
    if x.shape == shape:
        return x
    return x.expand(*shape) if isinstance(x, Tensor) else np.broadcast_to(x, shape)


def cosine_similarity(x1, x2, dim: int = 1, eps: float = 1e-8):
    """The cosine of the angle between vectors along an axis: x1 . x2 / (max(|x1|, eps) max(|x2|, eps)).

    Parameters
    ----------
    x1, x2 : array_like
        They broadcast.
    dim : int, default 1
        The axis of a vector, of the broadcast shape.
    eps : float, default 1e-8
        The least length that is divided by.

    Returns
    -------
    Tensor or ndarray
        The broadcast shape without the axis `dim`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.cosine_similarity(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    array([ 1.,  0., -1.])
    """
    not_negative("eps", eps)
    needed(x1=x1, x2=x2)

    def cosine(x1, x2):
        shape = joint_shape(x1=x1, x2=x2)
        vectors = (_expanded(x, shape) for x in (x1, x2))
        units = (_core.div(x, _length(x, 2, dim, eps)) for x in vectors)  # the products of large vectors overflow
        return _core.sum(_core.mul(*units), dim)

    return together(cosine, *promote(x1, x2))


def pairwise_distance(x1, x2, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
    """The p-norm of x1 - x2 + eps along the last axis; its gradient is 0 where it is 0.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.pairwise_distance(np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]])).round(4)
    array([5.])
    """
    p, eps = real("p", p), real("eps", eps)
    needed(x1=x1, x2=x2)
    return together(lambda a, b: _length(_core.add(_core.sub(a, b), eps), p, -1, keepdim=keepdim), *promote(x1, x2))
