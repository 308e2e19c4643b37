"""reverse: cells 16 to 21 of the UvA tutorial."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...data import DataLoader
from ...datasets import ReverseDataset
from ...functional import one_hot
from ...tutorials import uva
from ..options import CommandError, Option, at_least_two, positive
from .predictors import Outputs, PredictorTask, common_options

LONGEST_SEQUENCE = 5000  # positions that the tutorial's PositionalEncoding has


class Categories(Outputs):
    """(B, T) categories to (B, T) predicted ones."""

    kind = uva.ReversePredictor
    takes = "categories (B, T)"

    def form(self, model):
        """See ArrayPredictor."""
        return "(batch, sequence)"

    def compute(self, model, x):
        """See ArrayPredictor."""
        categories = model.hparams.num_classes
        if x.dtype.kind not in "iu":
            raise CommandError(f"INPUT has dtype {x.dtype}; expected categories: whole numbers from 0 to {categories - 1}")
        if x.size and not (x.min() >= 0 and x.max() < categories):
            raise CommandError(f"INPUT has values from {x.min()} to {x.max()}; expected categories from 0 to {categories - 1}")
        features = one_hot(x.astype(np.int64), num_classes=categories).astype(np.float32)
        return model(features).argmax(axis=-1)


class Reverse(PredictorTask):
    """Sequences of random categories, to be turned around."""

    name = "reverse"
    title = "Reverse task"
    help = "turn a sequence of categories around"
    description = "Trains a Transformer to turn sequences of random categories around."
    kind = uva.ReversePredictor
    predictors = (Categories(),)
    options: ClassVar[dict[str, Option]] = {
        **common_options(
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
        """See PredictorTask."""
        return {"input_dim": hp.num_categories, "num_classes": hp.num_categories}


TASK = Reverse()
