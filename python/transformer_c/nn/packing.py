"""Packed sequences: several of different lengths side by side, without padding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._tensor import as_tensor, zeros


class Packing:
    """Where the positions of sequences are: padded in (B, T, ...), packed in (N, ...), N the sum of their lengths.

    Linear layers, norms and whatever else looks at one position take a packed array as it is; attention takes
    ``sequence_lengths``.

    Parameters
    ----------
    lengths : ndarray of int, shape (B,)
        From 0 to `width`.
    width : int
        T.

    Attributes
    ----------
    lengths, width
        As above.
    longest : int
        The largest of `lengths`.
    """

    def __init__(self, lengths: np.ndarray, width: int) -> None:
        self.lengths, self.width = lengths, width
        self.longest = int(lengths.max(initial=0))
        self._real = np.arange(width) < lengths[:, None]
        self._moved: Tensor | None = None

    @functools.cached_property
    def sequence_lengths(self) -> Tensor:
        """`lengths` for attention, which reads them on the host: a Tensor, since a module would move an array to its device."""
        return as_tensor(self.lengths)

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        """Which of the B T padded positions are packed."""
        return np.flatnonzero(self._real)

    @functools.cached_property
    def _places(self) -> np.ndarray:
        """One more than the place of each padded position in the packed array; 0 for padding."""
        real = self._real.ravel()
        return np.where(real, np.cumsum(real), 0)

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """The positions of all packed tokens in their sequences, (N,)."""
        return self._rows % max(1, self.width)

    def positions_on(self, device: Any) -> Tensor:
        """``positions`` as a Tensor on a device, to which they are copied once."""
        if self._moved is None or self._moved.device != device:
            self._moved = as_tensor(self.positions).to(device)
        return self._moved

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, ...) to (N, ...)."""
        rows = as_tensor(self._rows).to(x.device)
        flat = x.reshape(-1, *x.shape[2:])
        if x.dtype.kind in "biu":
            return flat[rows]
        return F.embedding(rows, flat.reshape(flat.shape[0], -1)).reshape(-1, *x.shape[2:])

    def unpack(self, x: Tensor) -> Tensor:
        """(N, E) to (B, T, E), zeros at padded positions."""
        places = as_tensor(self._places).to(x.device)
        table = cat([zeros(1, x.shape[1], dtype=x.dtype, device=x.device), x], 0)
        return F.embedding(places, table, padding_idx=0).reshape(len(self.lengths), self.width, x.shape[1])

    def __repr__(self) -> str:
        return f"Packing({len(self.lengths)} sequences, {int(self.lengths.sum())} of {self._real.size} positions)"


def tensor_of_lengths(lengths: Any, batch: int, of: str) -> Tensor:
    """Lengths of sequences as a Tensor of integers, (B,); the error for any others says what they are `of`."""
    given = as_tensor(lengths)
    if tuple(given.shape) != (batch,) or given.dtype.kind not in "iu":
        error = ValueError if given.dtype.kind in "iu" else TypeError
        raise error(f"lengths must be integers of shape (B,) = ({batch},), got {given.dtype.name} of shape {given.shape}; {of}")
    return given


def checked_lengths(lengths: Any, batch: int, width: int, of: str) -> np.ndarray:
    """Lengths of sequences as int64 on the host, from 0 to `width`; the error for any others says what they are `of`."""
    found = tensor_of_lengths(lengths, batch, of).detach().cpu().numpy().astype(np.int64)
    if found.size and not (found.min() >= 0 and found.max() <= width):
        raise ValueError(f"lengths are from {found.min()} to {found.max()}; they must be from 0 to {width}: {of}")
    return found


def packing_of(lengths: np.ndarray, width: int) -> Packing | None:
    """None where no sequence is padded, so that there is nothing to gain."""
    return None if (lengths == width).all() else Packing(lengths, width)


def without_padding(
    run: Callable[[Tensor, Tensor | None, Packing], Tensor],
    x: Tensor,
    batch_first: bool,
    lengths: Any,
    mask: Tensor | None,
    others: dict[str, Any],
) -> Tensor | None:
    """What `run` gives for x packed and the mask of its longest sequence, padded again with zeros; None where no sequence is padded."""
    wrong = [name for name, value in others.items() if value is not None]
    if wrong:
        raise ValueError(f"lengths says what is padding and is for whole sequences; got {' and '.join(wrong)} as well")
    if _core.is_traced():
        raise ValueError("lengths packs sequences, which an exported graph cannot do: export with src_key_padding_mask")
    if x.ndim != 3:
        raise ValueError(f"lengths needs a batch of sequences, 3 axes; got src {x.shape}")
    padded = x if batch_first else x.transpose(0, 1)
    batch, width = padded.shape[:2]
    packing = packing_of(checked_lengths(lengths, batch, width, f"src has shape {x.shape}, batch_first={batch_first}"), width)
    if packing is None:
        return None
    if mask is not None:
        if tuple(mask.shape[-2:]) != (width, width):
            raise ValueError(f"the mask has shape {mask.shape}; expected (T, T) = ({width}, {width}), or that for each sequence and head")
        mask = mask[..., : packing.longest, : packing.longest]
    y = packing.unpack(run(packing.pack(padded), mask, packing))
    return y if batch_first else y.transpose(0, 1)


__all__ = ["Packing", "checked_lengths", "packing_of", "tensor_of_lengths", "without_padding"]
