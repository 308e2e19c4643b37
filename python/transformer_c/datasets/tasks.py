"""The two tasks of the UvA tutorial."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._arguments import all_of, count
from .._core import Tensor
from .._tensor import as_tensor, tensor
from ..data import Dataset
from ..random import as_generator, randint


class ReverseDataset(Dataset):
    """Random sequences of categories, with the reversed sequences as labels: the tutorial's sequence-to-sequence task.

    Parameters
    ----------
    num_categories, seq_len, size : int
    rng : int, np.random.Generator, tc.Generator or None

    Attributes
    ----------
    data : Tensor, shape (size, seq_len), int64

    Examples
    --------
    >>> import transformer_c as tc
    >>> inputs, labels = tc.datasets.ReverseDataset(10, 4, size=1, rng=0)[0]
    >>> labels.tolist() == inputs.tolist()[::-1]
    True
    """

    def __init__(self, num_categories: int, seq_len: int, size: int, rng=None) -> None:
        all_of((count, "num_categories", num_categories), (count, "seq_len", seq_len), (count, "size", size))
        self.num_categories, self.seq_len, self.size = num_categories, seq_len, size
        self.data = randint(num_categories, size=(size, seq_len), rng=rng)

    def __repr__(self) -> str:
        return f"ReverseDataset(num_categories={self.num_categories}, seq_len={self.seq_len}, size={self.size})"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = self.data[index]
        return inputs, inputs.flip(dims=(0,))

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        inputs = self.data[np.asarray(indices, np.int64)]
        return inputs, inputs.flip(dims=(1,)).contiguous()


class SetAnomalyDataset(Dataset):
    """Sets of images of one class, with one image of another class at the end: the tutorial's second task.

    Parameters
    ----------
    img_feats : array_like, shape (N, features)
        Features of the images.
    labels : array_like, shape (N,)
        Their classes.
    set_size : int, default 10
        Number of images in a set, including the anomaly.
    train : bool, default True
        Draw a new set on every access; False draws the sets once, always from the same seed.
    rng : int, np.random.Generator, tc.Generator or None
        The source of the sets. With `train` False, None means the seed 42.

    Notes
    -----
    A sample is (features (set_size, F), indices (set_size,), label); the label is always set_size - 1.
    """

    def __init__(self, img_feats, labels, set_size: int = 10, train: bool = True, rng=None) -> None:
        self.img_feats = np.ascontiguousarray(np.asarray(img_feats, np.float32))
        self.labels = np.asarray(labels).astype(np.int64).reshape(-1)
        if self.img_feats.ndim != 2 or len(self.img_feats) != len(self.labels):
            raise ValueError(f"img_feats has shape {self.img_feats.shape} and labels {self.labels.shape}; expected (N, features) and (N,)")
        self.set_size, self.train = set_size, train
        self.classes = np.unique(self.labels)
        self.members = [np.flatnonzero(self.labels == c) for c in self.classes]
        smallest = min(map(len, self.members))
        if set_size < 2 or len(self.classes) < 2 or smallest < set_size - 1:
            raise ValueError(
                f"sets of {set_size} need at least two classes of {set_size - 1} images; there are {len(self.classes)} classes, the smallest of {smallest} images"
            )
        seed = as_generator(rng if train or rng is not None else 42).seed64()
        self._random = np.random.default_rng(seed)
        self.test_sets = None if train else np.stack([self._draw(i) for i in range(len(self))])

    def __repr__(self) -> str:
        return f"SetAnomalyDataset({len(self)} images of {len(self.classes)} classes, set_size={self.set_size}, train={self.train})"

    def __len__(self) -> int:
        return len(self.img_feats)

    def _draw(self, anomaly: int) -> np.ndarray:
        """Indices of set_size - 1 different images of one other class, then the anomaly."""
        own = np.searchsorted(self.classes, self.labels[anomaly])
        other = int(self._random.integers(len(self.classes) - 1))
        other += other >= own
        picked = self._random.choice(self.members[other], self.set_size - 1, replace=False)
        return np.append(picked, anomaly)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        indices = self._draw(index) if self.test_sets is None else self.test_sets[index]
        return as_tensor(self.img_feats[indices]), tensor(indices), self.set_size - 1

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        sets = np.stack([self._draw(i) for i in indices]) if self.test_sets is None else self.test_sets[np.asarray(indices)]
        return as_tensor(self.img_feats[sets]), as_tensor(sets), tensor(np.full(len(sets), self.set_size - 1, np.int64))
