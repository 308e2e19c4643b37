"""UvA Deep Learning tutorial 6, Transformers and multi-head attention (Lippe): its tasks on this library's classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functional as F
from .. import plot
from .._names import hooks
from ..data import DataLoader
from ..datasets import ReverseDataset, SetAnomalyDataset
from ..encoder import scaled_dot_product
from ..random import manual_seed, randn
from ..trainer import Trainer
from ..training import TransformerPredictor
from .uva_features import stand_in_features

# The numbers that the tutorial prints, for comparison.
CELL_5 = {
    "Q": [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, -0.1863]],
    "K": [[2.2082, -0.6380], [0.4617, 0.2674], [0.5349, 0.8094]],
    "V": [[1.1103, -1.6898], [-0.9890, 0.9580], [1.3221, 0.8172]],
    "Values": [[0.5698, -0.1520], [0.5379, -0.0265], [0.2246, 0.5556]],
    "Attention": [[0.4028, 0.2886, 0.3086], [0.3538, 0.3069, 0.3393], [0.1303, 0.4630, 0.4067]],
}
CELL_17 = [9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9]


class _Predictor(TransformerPredictor):
    """The steps of both tasks."""

    def training_step(self, batch: Any, batch_idx: int):
        """The cross-entropy of a batch, as the class describes it."""
        return self._calculate_loss(batch, mode="train")[0]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs val_loss and val_acc."""
        self._calculate_loss(batch, mode="val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Logs test_loss and test_acc."""
        self._calculate_loss(batch, mode="test")


class ReversePredictor(_Predictor):
    """Predicts, for each position of a sequence, the category at the mirrored position. A batch is (inputs, labels), each (B, T)."""

    def _calculate_loss(self, batch: Any, mode: str = "train"):
        inputs, labels = batch
        inputs = F.one_hot(inputs, num_classes=self.hparams.num_classes).float()
        preds = self.forward(inputs, add_positional_encoding=True)
        loss = F.cross_entropy(preds.view(-1, preds.size(-1)), labels.view(-1))
        acc = (preds.argmax(dim=-1) == labels).float().mean()
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", acc)
        return loss, acc


class AnomalyPredictor(_Predictor):
    """Predicts which image of a set is of another class than the rest: one logit for each, a softmax over the set. A batch is
    (features (B, set_size, F), indices, labels (B,)).
    """

    def _calculate_loss(self, batch: Any, mode: str = "train"):
        img_sets, _, labels = batch
        preds = self.forward(img_sets, add_positional_encoding=False)  # a set has no order
        preds = preds.squeeze(dim=-1)
        loss = F.cross_entropy(preds, labels)
        acc = (preds.argmax(dim=-1) == labels).float().mean()
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", acc, on_step=False, on_epoch=True)
        return loss, acc


def cell_5() -> dict[str, np.ndarray]:
    """Seeds the default generator with 42 and returns Q, K, V, values and attention of the tutorial's first example."""
    manual_seed(42)
    q, k, v = randn(3, 2), randn(3, 2), randn(3, 2)
    values, attention = scaled_dot_product(q, k, v)
    return {name: t.numpy() for name, t in zip(CELL_5, (q, k, v, values, attention), strict=True)}


def reverse_loaders(batch_size: int = 128) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training (50,000 sequences), validation (1,000) and test (10,000) loaders, drawn from the default generator."""
    dataset = partial(ReverseDataset, 10, 16)
    train = DataLoader(dataset(50_000), batch_size=batch_size, shuffle=True, drop_last=True, pin_memory=True)
    return train, DataLoader(dataset(1_000), batch_size=batch_size), DataLoader(dataset(10_000), batch_size=batch_size)


def split_by_class(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and of validation images: the first tenth of each class, at least one image, is for validation (cell 30)."""
    labels = np.asarray(labels).reshape(-1)
    val = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        val[members[: max(1, len(members) // 10)]] = True
    return np.flatnonzero(~val), np.flatnonzero(val)


def anomaly_loaders(
    arrays: Mapping[str, np.ndarray], set_size: int = 10, batch_size: int = 64
) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training (sets drawn anew in every epoch), validation and test loaders (fixed sets) of image features.

    `arrays` has "train_features" (N, F), "train_labels" (N,), "test_features" and "test_labels", as ``uva_features.stand_in_features()``
    gives them.
    """
    features, labels = (np.asarray(arrays[f"train_{name}"]) for name in ("features", "labels"))
    if len(features) != len(labels):
        raise ValueError(f"there are {len(features)} training images and {len(labels)} labels")
    train, val = split_by_class(labels)
    sets = (
        SetAnomalyDataset(features[train], labels[train], set_size=set_size, train=True),
        SetAnomalyDataset(features[val], labels[val], set_size=set_size, train=False),
        SetAnomalyDataset(arrays["test_features"], arrays["test_labels"], set_size=set_size, train=False),
    )
    return DataLoader(sets[0], batch_size, shuffle=True, drop_last=True), DataLoader(sets[1], batch_size), DataLoader(sets[2], batch_size)


Loaders = tuple[DataLoader, DataLoader, DataLoader]


def train_reverse(
    loaders: Loaders | None = None,
    *,
    max_epochs: int = 10,
    checkpoint_path: str | Path = "saved_models/Transformers",
    progress: bool = True,
    pretrained: bool = True,
    **kwargs: Any,
) -> tuple[ReversePredictor, dict[str, float]]:
    """Trains on the Reverse task, or loads ``ReverseTask.ckpt`` where `checkpoint_path` has it, and tests (cell 19).

    Parameters
    ----------
    loaders : (DataLoader, DataLoader, DataLoader), optional
        Training, validation and test data; ``reverse_loaders()`` by default.
    max_epochs : int, default 10
    checkpoint_path : path-like
        Checkpoints and history go to its folder ``ReverseTask``.
    progress : bool, default True
        Show bars.
    pretrained : bool, default True
        Use the ``.ckpt`` file.
    **kwargs
        The model's hyper-parameters, less `max_iters`.

    Returns
    -------
    model : ReversePredictor
        In eval mode, with the weights of the last epoch.
    result : dict
        "test_acc" and "val_acc", from 0 to 1.
    """
    loaders = loaders or reverse_loaders()
    model, trainer = _train(ReversePredictor, "ReverseTask", loaders, max_epochs, 5, checkpoint_path, progress, pretrained, kwargs)
    _, val, test = loaders
    accuracies = [trainer.test(model, loader, verbose=False)[0]["test_acc"] for loader in (test, val)]
    return model, dict(zip(("test_acc", "val_acc"), accuracies, strict=True))


def train_anomaly(
    loaders: Loaders | None = None,
    *,
    max_epochs: int = 100,
    checkpoint_path: str | Path = "saved_models/Transformers",
    progress: bool = True,
    pretrained: bool = True,
    **kwargs: Any,
) -> tuple[AnomalyPredictor, dict[str, float]]:
    """Trains on the Set Anomaly task, or loads ``SetAnomalyTask.ckpt`` where `checkpoint_path` has it, and tests (cell 35).

    The arguments are those of ``train_reverse``; `loaders` come from ``anomaly_loaders()``, of the stand-in features by default. The model
    has the weights of the best epoch; the result is "test_acc", "val_acc" and "train_acc".
    """
    loaders = loaders or anomaly_loaders(stand_in_features())
    model, trainer = _train(AnomalyPredictor, "SetAnomalyTask", loaders, max_epochs, 2, checkpoint_path, progress, pretrained, kwargs)
    if trainer.best_model_path:
        model = AnomalyPredictor.load_from_checkpoint(trainer.best_model_path)
    train, val, test = loaders
    accuracies = [trainer.test(model, loader, verbose=False)[0]["test_acc"] for loader in (test, val, train)]
    return model, dict(zip(("test_acc", "val_acc", "train_acc"), accuracies, strict=True))


def _train(
    kind: Any, name: str, loaders: Loaders, max_epochs: int, clip: float, folder: str | Path, progress: bool, pretrained: bool, kwargs: dict
) -> tuple[Any, Trainer]:
    """The trained model, or a model trained elsewhere, from a Lightning checkpoint in `folder`."""
    given = Path(folder) / f"{name}.ckpt"
    trainer = Trainer(
        max_epochs, clip, monitor="val_acc", mode="max", checkpoint_dir=str(Path(folder) / name), progress=progress
    )  # fmt: skip
    if pretrained and given.is_file():
        print(f"Found pretrained model {given}, loading...")
        return kind.load_from_checkpoint(given), trainer
    train, val, _ = loaders
    model = kind(max_iters=max_epochs * len(train), **kwargs)
    try:
        trainer.fit(model, train, val)
    except KeyboardInterrupt:
        if not trainer.last_model_path:
            raise
        raise KeyboardInterrupt(
            f"stopped after {trainer.global_step} steps, which are in {trainer.last_model_path}; the next run starts over. "
            "`python -m transformer_c train` can be stopped and continued"
        ) from None
    return model, trainer


def plot_attention_maps(input_data: Any, attn_maps: Any, idx: int = 0):
    """The figure of cell 24: the maps of batch element `idx`, one row per layer, one column per head.

    `input_data` (B, T) gives the tick labels; None means positions. Returns the Figure.
    """
    return plot.attention_maps(attn_maps, input_data, idx=idx)


def visualize_exmp(indices: Any, orig_dataset: Any):
    """The figure of cell 33: one row per set.

    `indices` (sets, size) are those of images in `orig_dataset`, which is images (N, H, W) or (N, H, W, 3), or a dataset whose samples begin
    with the image. Gives the Figure.
    """
    indices = np.atleast_2d(np.asarray(indices))
    if not isinstance(orig_dataset, np.ndarray):
        found = [orig_dataset[int(i)] for i in indices.reshape(-1)]
        images = np.stack([np.asarray(f[0] if isinstance(f, (tuple, list)) else f) for f in found])
    else:
        images = orig_dataset[indices.reshape(-1)]
    return plot.image_sets(images.reshape(*indices.shape, *images.shape[1:]), title="Anomaly examples")


__all__ = [
    "CELL_5",
    "CELL_17",
    "AnomalyPredictor",
    "ReversePredictor",
    "anomaly_loaders",
    "cell_5",
    "plot_attention_maps",
    "reverse_loaders",
    "split_by_class",
    "train_anomaly",
    "train_reverse",
    "visualize_exmp",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
