"""Rows chosen by integers, one-hot vectors, the maximum over a sequence."""

from __future__ import annotations

from .. import _core

__all__ = ["embedding", "global_max_pool1d", "one_hot"]


def refuse_rescaling(name: str, max_norm: float | None, scale_grad_by_freq: bool) -> None:
    """Raises ValueError unless both are PyTorch's defaults."""
    if max_norm is not None or scale_grad_by_freq:
        given = "scale_grad_by_freq=True" if max_norm is None else f"max_norm={max_norm}"
        raise ValueError(f"{name}({given}) is not possible: rows and gradients are not rescaled here; change weight or weight.grad")


def embedding(
    input,
    weight,
    padding_idx: int | None = None,
    max_norm: None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
):
    """Rows of a table.

    Parameters
    ----------
    input : array_like of int, shape (...)
    weight : array_like, shape (num_embeddings, embedding_dim)
    padding_idx : int, optional
        A row that gets no gradient.
    max_norm, norm_type, scale_grad_by_freq : optional
        Only PyTorch's defaults: rows and gradients are not rescaled.
    sparse : bool
        Accepted; gradients are dense.

    Returns
    -------
    Tensor or ndarray, shape (..., embedding_dim)

    Raises
    ------
    IndexError
        When an index is outside the table. Of indices on a GPU, a RuntimeError of the next copy to the host or ``tc.cuda.synchronize()``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.embedding(np.array([1, 1]), np.array([[0.0], [5.0]]))
    array([[5.],
           [5.]])
    """
    refuse_rescaling("embedding", max_norm, scale_grad_by_freq)
    return _core.embedding(input, weight, padding_idx=padding_idx)


def one_hot(input, num_classes: int = -1):
    """One-hot vectors of integers: rows of zeros with a single 1, int64.

    Parameters
    ----------
    input : array_like of int, shape (...)
    num_classes : int, default -1
        -1: one more than the largest integer, which on a GPU waits for the integers.

    Returns
    -------
    Tensor or ndarray, shape (..., num_classes)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.one_hot(np.array([0, 2]), 3)
    array([[1, 0, 0],
           [0, 0, 1]])
    """
    return _core.one_hot(input, num_classes)


def global_max_pool1d(input):
    """The maximum over the sequence: (B, T, C) to (B, C)."""
    return _core.global_max_pool1d(input)
