"""anomaly: cells 29 to 36 of the UvA tutorial, on features from a file or on stand-ins."""

from __future__ import annotations

import os
from typing import ClassVar

import numpy as np

from ...datasets import load_features
from ...tutorials import uva
from ...tutorials.uva_features import stand_in_features
from ..options import CommandError, Option, at_least_two
from .base import floats
from .predictors import Outputs, PredictorTask, common_options


class Anomalies(Outputs):
    """Maps (B, set size, features) to the index of the anomaly in each set, (B,)."""

    kind = uva.AnomalyPredictor
    takes = "features (B, set size, F)"

    def form(self, model):
        """See ArrayPredictor."""
        return f"(batch, set size, {model.hparams.input_dim} features)"

    def compute(self, model, x):
        """See ArrayPredictor."""
        return model(floats(x), add_positional_encoding=False).squeeze(-1).argmax(axis=-1)


class Anomaly(PredictorTask):
    """Sets of image features, in each of which one is of another class."""

    name = "anomaly"
    title = "Set Anomaly task"
    help = "find the one image of a set that is of another class"
    description = "Trains a Transformer to find the one image of a set that is of another class than the rest, from features of the images."
    kind = uva.AnomalyPredictor
    predictors = (Anomalies(),)
    options: ClassVar[dict[str, Option]] = {
        **common_options(
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
        """Sets for training, drawn anew in every epoch, and fixed sets for validation and test."""
        arrays = load_features(hp.features) if hp.features else _stand_ins(hp.seed)
        try:
            loaders = uva.anomaly_loaders(arrays, hp.set_size, hp.batch_size)
        except (ValueError, IndexError) as error:
            raise CommandError(f"the features in {hp.features or 'scikit-learn'} do not do for sets of {hp.set_size}: {error}") from error
        if not len(loaders[0]):
            raise CommandError(f"{len(loaders[0].dataset)} training images do not fill one batch of --batch-size {hp.batch_size}")
        return loaders

    def sizes(self, hp, train):
        """See PredictorTask."""
        return {"input_dim": train.dataset.img_feats.shape[1], "num_classes": 1}


def _stand_ins(seed: int) -> dict[str, np.ndarray]:
    """Stand-in features for use without images."""
    try:
        return stand_in_features(seed)
    except ImportError as error:
        raise CommandError(f"{error}; or pass --features FILE.npz") from error


TASK = Anomaly()
