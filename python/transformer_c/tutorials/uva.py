"""UvA Deep Learning tutorial 6, Transformers and multi-head attention (Lippe): its tasks on this library's classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import functional as F
from .. import optim
from .._tensor import no_grad
from ..data import DataLoader
from ..datasets import ReverseDataset
from ..encoder import scaled_dot_product
from ..random import manual_seed, randn
from ..training import TransformerPredictor

# What the tutorial prints, to be put beside ours.
CELL_5 = {
    "Q": [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, -0.1863]],
    "K": [[2.2082, -0.6380], [0.4617, 0.2674], [0.5349, 0.8094]],
    "V": [[1.1103, -1.6898], [-0.9890, 0.9580], [1.3221, 0.8172]],
    "Values": [[0.5698, -0.1520], [0.5379, -0.0265], [0.2246, 0.5556]],
    "Attention": [[0.4028, 0.2886, 0.3086], [0.3538, 0.3069, 0.3393], [0.1303, 0.4630, 0.4067]],
}
CELL_17 = [9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9]


class ReversePredictor(TransformerPredictor):
    """Predicts, for each place of a sequence, the category at the mirrored place."""

    def _calculate_loss(self, batch: Any, mode: str = "train"):
        inputs, labels = batch
        inputs = F.one_hot(inputs, num_classes=self.hparams.num_classes).float()
        preds = self.forward(inputs, add_positional_encoding=True)
        loss = F.cross_entropy(preds.view(-1, preds.size(-1)), labels.view(-1))
        acc = (preds.argmax(dim=-1) == labels).float().mean()
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", acc)
        return loss, acc

    def training_step(self, batch: Any, batch_idx: int):
        """The cross-entropy of a batch (inputs, labels), each (B, T)."""
        return self._calculate_loss(batch, mode="train")[0]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs val_loss and val_acc."""
        self._calculate_loss(batch, mode="val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Logs test_loss and test_acc."""
        self._calculate_loss(batch, mode="test")


class AnomalyPredictor(TransformerPredictor):
    """Predicts which image of a set is of another class than the rest: one logit for each, a softmax over the set."""

    def _calculate_loss(self, batch: Any, mode: str = "train"):
        img_sets, _, labels = batch
        preds = self.forward(img_sets, add_positional_encoding=False)  # a set has no order
        preds = preds.squeeze(dim=-1)
        loss = F.cross_entropy(preds, labels)
        acc = (preds.argmax(dim=-1) == labels).float().mean()
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", acc, on_step=False, on_epoch=True)
        return loss, acc

    def training_step(self, batch: Any, batch_idx: int):
        """The cross-entropy of a batch (features (B, set_size, F), indices, labels (B,))."""
        return self._calculate_loss(batch, mode="train")[0]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs val_loss and val_acc."""
        self._calculate_loss(batch, mode="val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Logs test_loss and test_acc."""
        self._calculate_loss(batch, mode="test")


def cell_5() -> dict[str, np.ndarray]:
    """Seeds the default generator with 42 and gives Q, K, V, values and attention of the tutorial's first example."""
    manual_seed(42)
    q, k, v = randn(3, 2), randn(3, 2), randn(3, 2)
    values, attention = scaled_dot_product(q, k, v)
    return {name: t.numpy() for name, t in zip(CELL_5, (q, k, v, values, attention), strict=True)}


def reverse_loaders(batch_size: int = 128) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training (50,000 sequences), validation (1,000) and test (10,000) loaders, drawn from the default generator."""
    dataset = partial(ReverseDataset, 10, 16)
    train = DataLoader(dataset(50_000), batch_size=batch_size, shuffle=True, drop_last=True, pin_memory=True)
    return train, DataLoader(dataset(1_000), batch_size=batch_size), DataLoader(dataset(10_000), batch_size=batch_size)


def accuracy(model: ReversePredictor, loader: DataLoader) -> float:
    """The share of places predicted right, in eval mode; the model's mode is left as it was."""
    training = model.training
    model.eval()
    right = total = 0
    try:
        with no_grad():
            for inputs, labels in loader:
                preds = model(F.one_hot(inputs, num_classes=model.hparams.num_classes).float())
                right += int((preds.argmax(dim=-1) == labels).sum())
                total += labels.numel()
    finally:
        model.train(training)
    return right / total


def train_epoch(
    model: TransformerPredictor, optimizer: optim.Optimizer, loader: DataLoader, clip: float, report: Callable[[float], None]
) -> float:
    """One pass over the loader; gives the mean loss."""
    model.train()
    total = 0.0
    for index, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = model.training_step(batch, index)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), clip)
        model.optimizer_step(optimizer)
        total += float(loss)
        report(total / (index + 1))
    return total / len(loader)


__all__ = ["CELL_5", "CELL_17", "AnomalyPredictor", "ReversePredictor", "accuracy", "cell_5", "reverse_loaders", "train_epoch"]
