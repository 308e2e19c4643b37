"""The tasks that train knows: their options, data and models."""

from __future__ import annotations

import argparse
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..data import DataLoader
from ..datasets import ReverseDataset
from ..training import TransformerPredictor
from ..tutorials import uva
from ..tutorials.uva_features import stand_in_features
from .options import CommandError, above_zero, at_least_two, positive, seed, share


LONGEST_SEQUENCE = 5000  # positions that the tutorial's PositionalEncoding has


@dataclass(frozen=True)
class Option:
    """One option: how it is read, its default, what --help says."""

    type: Callable[[str], Any]
    default: Any
    help: str
    metavar: str = "N"


class Task:
    """What `train` needs to know of a task; the two below are the tutorial's."""

    name: str
    title: str
    help: str
    description: str
    module: type[TransformerPredictor]
    options: ClassVar[dict[str, Option]]

    def check(self, hp: argparse.Namespace, error: Callable[[str], Any]) -> None:
        """Calls `error` with what is wrong when options do not go together."""
        if hp.model_dim % hp.num_heads:
            error(f"--model-dim must be a multiple of --num-heads, got {hp.model_dim} and {hp.num_heads}")

    def loaders(self, hp: argparse.Namespace) -> tuple[DataLoader, DataLoader, DataLoader]:
        """Training, validation and test data."""
        raise NotImplementedError

    def model(self, hp: argparse.Namespace, train: DataLoader) -> TransformerPredictor:
        """The model, with a schedule that ends with the last epoch."""
        return self.module(
            **self.sizes(hp, train),
            model_dim=hp.model_dim,
            num_heads=hp.num_heads,
            num_layers=hp.num_layers,
            lr=hp.lr,
            warmup=hp.warmup,
            max_iters=hp.epochs * len(train),
            dropout=hp.dropout,
            input_dropout=hp.input_dropout,
        )

    def sizes(self, hp: argparse.Namespace, train: DataLoader) -> dict[str, int]:
        """input_dim and num_classes of the model."""
        raise NotImplementedError


def _common_options(**defaults: Any) -> dict[str, Option]:
    """The options of every task, with the task's defaults."""
    return {
        "epochs": Option(positive, defaults["epochs"], "passes over the training data"),
        "batch_size": Option(positive, defaults["batch_size"], "sequences or sets in a batch"),
        "lr": Option(above_zero, 5e-4, "largest learning rate of the schedule", "X"),
        "warmup": Option(positive, defaults["warmup"], "steps until the learning rate is reached; then it falls along half a cosine"),
        "clip": Option(above_zero, defaults["clip"], "largest norm of the gradients", "X"),
        "model_dim": Option(positive, defaults["model_dim"], "features inside the Transformer, a multiple of the heads"),
        "num_heads": Option(positive, defaults["num_heads"], "attention heads"),
        "num_layers": Option(positive, defaults["num_layers"], "encoder blocks"),
        "dropout": Option(share, defaults["dropout"], "dropout rate inside the model", "P"),
        "input_dropout": Option(share, defaults["input_dropout"], "dropout rate of the input features", "P"),
        "patience": Option(positive, None, "stop after as many epochs without a better validation accuracy (default: never)"),
        "seed": Option(seed, 42, "seed of data, weights, shuffles and dropout"),
    }


class Reverse(Task):
    """Cells 16 to 21 of the tutorial."""

    name = "reverse"
    title = "Reverse task"
    help = "turn a sequence of categories around"
    description = "Trains a Transformer to turn sequences of random categories around."
    module = uva.ReversePredictor
    options: ClassVar[dict[str, Option]] = {
        **_common_options(
            epochs=10, batch_size=128, warmup=50, clip=5.0, model_dim=32, num_heads=1, num_layers=1, dropout=0.0, input_dropout=0.0
        ),
        "num_categories": Option(at_least_two, 10, "categories"),
        "seq_len": Option(positive, 16, "length of the sequences"),
        "train_size": Option(positive, 50_000, "training sequences"),
        "val_size": Option(positive, 1_000, "validation sequences"),
        "test_size": Option(positive, 10_000, "test sequences"),
    }

    def check(self, hp, error):
        """See Task."""
        super().check(hp, error)
        if hp.seq_len > LONGEST_SEQUENCE:
            error(f"--seq-len must be at most {LONGEST_SEQUENCE}, got {hp.seq_len}")
        if hp.train_size < hp.batch_size:
            error(f"--train-size {hp.train_size} does not fill one batch of --batch-size {hp.batch_size}")

    def loaders(self, hp):
        """Drawn from the default generator, in the tutorial's order."""
        train, val, test = (ReverseDataset(hp.num_categories, hp.seq_len, size) for size in (hp.train_size, hp.val_size, hp.test_size))
        return (
            DataLoader(train, hp.batch_size, shuffle=True, drop_last=True),
            DataLoader(val, hp.batch_size),
            DataLoader(test, hp.batch_size),
        )

    def sizes(self, hp, train):
        """See Task."""
        return {"input_dim": hp.num_categories, "num_classes": hp.num_categories}


class Anomaly(Task):
    """Cells 29 to 36 of the tutorial, on features from a file or on stand-ins."""

    name = "anomaly"
    title = "Set Anomaly task"
    help = "find the one image of a set that is of another class"
    description = "Trains a Transformer to find the one image of a set that is of another class than the rest, from features of the images."
    module = uva.AnomalyPredictor
    options: ClassVar[dict[str, Option]] = {
        **_common_options(
            epochs=100, batch_size=64, warmup=100, clip=2.0, model_dim=256, num_heads=4, num_layers=4, dropout=0.1, input_dropout=0.1
        ),
        "set_size": Option(at_least_two, 10, "images in a set, the anomaly included"),
        "features": Option(
            os.path.abspath,
            None,
            "arrays train_features (N, F), train_labels (N,), test_features and test_labels; a tenth of each training class is for validation "
            "(default: features made from scikit-learn's digits)",
            "FILE.npz",
        ),
    }

    def loaders(self, hp):
        """Sets that are drawn anew in every epoch to train on, fixed ones to validate and test."""
        arrays = _read_features(hp.features) if hp.features else _stand_ins(hp.seed)
        try:
            loaders = uva.anomaly_loaders(arrays, hp.set_size, hp.batch_size)
        except (ValueError, IndexError) as error:
            raise CommandError(f"the features in {hp.features or 'scikit-learn'} do not do for sets of {hp.set_size}: {error}") from error
        if not len(loaders[0]):
            raise CommandError(f"{len(loaders[0].dataset)} training images do not fill one batch of --batch-size {hp.batch_size}")
        return loaders

    def sizes(self, hp, train):
        """See Task."""
        return {"input_dim": train.dataset.img_feats.shape[1], "num_classes": 1}


def _stand_ins(seed: int) -> dict[str, np.ndarray]:
    """Features for those who have no images at hand."""
    try:
        return stand_in_features(seed)
    except ImportError as error:
        raise CommandError(f"{error}; or pass --features FILE.npz") from error


FEATURE_ARRAYS = ("train_features", "train_labels", "test_features", "test_labels")


def _read_features(path: str) -> dict[str, np.ndarray]:
    """The four arrays of an .npz file; nothing in it is executed."""
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise CommandError(f"{path} is no .npz file; np.savez writes one")
    try:
        with np.load(path, allow_pickle=False) as held:
            missing = [name for name in FEATURE_ARRAYS if name not in held.files]
            if missing:
                raise CommandError(f"{path} has no array {', '.join(missing)}; it has {', '.join(held.files) or 'none'}")
            arrays = {name: held[name] for name in FEATURE_ARRAYS}
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise CommandError(f"{path} is no .npz file of arrays ({error})") from error
    for name in ("train_features", "test_features"):
        if arrays[name].ndim != 2 or not np.issubdtype(arrays[name].dtype, np.number) or not np.isfinite(arrays[name]).all():
            raise CommandError(
                f"{name} in {path} has shape {arrays[name].shape} and dtype {arrays[name].dtype}; expected finite numbers (N, F)"
            )
    if arrays["train_features"].shape[1] != arrays["test_features"].shape[1]:
        raise CommandError(
            f"train_features and test_features in {path} have {arrays['train_features'].shape[1]} and {arrays['test_features'].shape[1]} columns"
        )
    return arrays


TASKS: dict[str, Task] = {task.name: task for task in (Reverse(), Anomaly())}
