"""Sequences of different lengths as one batch. There are no recurrent layers; PyTorch has its function for this under the name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Tensor
from ..._joining import stack
from ..._names import hooks
from ..._tensor import as_tensor
from ...functional import pad

__all__ = ["pad_sequence"]


def pad_sequence(
    sequences: Iterable[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor | np.ndarray:
    """Fills sequences up to the length of the longest and stacks them.

    Parameters
    ----------
    sequences : iterable of array_like, shape (T, ...)
        Their lengths T may differ, the other axes not.
    batch_first : bool, default False
        Whether the result is (B, T, ...) rather than (T, B, ...).
    padding_value : float, default 0
    padding_side : {"right", "left"}
        Where it is filled up. Models of ``tc.models`` and ``lengths=`` expect the padding at the end.

    Returns
    -------
    Tensor, or ndarray when no sequence is a Tensor

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.utils.rnn.pad_sequence([tc.tensor([1, 2, 3]), tc.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', got {padding_side!r}")
    given = list(sequences)
    tensors = [as_tensor(sequence) for sequence in given]
    if not tensors or not all(tensor.ndim for tensor in tensors):
        raise ValueError("pad_sequence() takes at least one sequence, and sequences of at least one axis")
    longest = max(tensor.shape[0] for tensor in tensors)

    def filled(tensor: Tensor) -> Tensor:
        missing = longest - tensor.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        return pad(tensor, (0, 0) * (tensor.ndim - 1) + ends, value=padding_value)

    batch = stack([filled(tensor) for tensor in tensors], 0 if batch_first else 1)
    return batch if any(isinstance(sequence, Tensor) for sequence in given) else batch.numpy()


if not TYPE_CHECKING:
    packed = "lengths= of nn.TransformerEncoder, or sequence_lengths= of nn.MultiheadAttention"
    __getattr__, __dir__ = hooks(
        __name__, instead=dict.fromkeys(("pack_padded_sequence", "pad_packed_sequence", "pack_sequence", "PackedSequence"), packed)
    )
    del packed
