"""sequences: the squares of the chapter on encoder and decoder."""

from __future__ import annotations

import io
import os
from typing import Any, ClassVar

import numpy as np

from ...checkpoint.files import write_atomically
from ...random import manual_seed
from ...tutorials import godoy
from ..options import CommandError, Option, above_zero, choice, positive, share, small_seed
from .base import ArrayPredictor, Prediction, Score, Task, array_lines, floats, layers, running_options

SOURCE = 2  # corners that the model is given


class Corners(ArrayPredictor):
    """Maps (B, 2 or more corners, 2) to the next two corners, (B, 2, 2)."""

    kind = godoy.SquaresPredictor
    takes = "corners of squares (B, L, 2), of which the first two are used"
    options: ClassVar[dict[str, Option]] = {
        "plot": Option(str, None, "draw the first ten sequences there, the predicted corners dashed", "FILE.png")
    }

    def sizes(self, state):
        """See Predictor."""
        own = not any(str(name).startswith("model.transf.") for name in state)
        inner, hidden = ("model.encoder.layers.", "ffn.0") if own else ("model.transf.encoder.layers.", "linear1")
        return {
            "model": "own" if own else "nn",
            "d_model": state["model.proj.weight"].shape[0],
            "ff_units": state[f"{inner}0.{hidden}.weight"].shape[0],
            "n_layers": layers(state, inner),
        }

    def least(self, sizes):
        """See Predictor. Encoder and decoder have 4 + 8 squares in a layer, and two networks."""
        width = sizes["d_model"]
        return 4 * sizes["n_layers"] * width * (3 * width + sizes["ff_units"])

    def check(self, parameters):
        """See Predictor."""
        width, heads = parameters.get("d_model"), parameters.get("n_heads")
        if not isinstance(heads, int) or heads < 1 or width % heads:
            raise ValueError(f"n_heads is {heads!r}; expected a divisor of d_model, {width}")

    def form(self, model):
        """See ArrayPredictor."""
        return "(batch, corners, 2)"

    def compute(self, model, x):
        """See ArrayPredictor."""
        if x.shape[1] < SOURCE or x.shape[2] != 2:
            raise ValueError("two corners, each with two coordinates, are the least")
        return model(np.ascontiguousarray(floats(x)[:, :SOURCE]))

    def predict(self, model, options):
        """See Predictor."""
        draw = _drawing() if options.plot else None
        x, result, single = self.run(model, options)
        if draw is not None:
            _save_figure(draw, floats(x), result, options.plot)
        return Prediction(result[0] if single else result, array_lines(result))


def _drawing() -> Any:
    try:
        from ...plot import sequences
    except ImportError as error:
        raise CommandError(f"--plot: {error}") from error
    return sequences


def _save_figure(draw: Any, points: np.ndarray, predictions: np.ndarray, path: str) -> None:
    """The true corners where INPUT has them, and the predicted ones."""
    known = points.shape[1] >= SOURCE + predictions.shape[1]
    shown = points[:, : SOURCE + predictions.shape[1]] if known else points[:, :SOURCE]
    data = io.BytesIO()
    try:
        figure = draw(shown, predictions=predictions, beyond=not known)
        figure.savefig(data, format=os.path.splitext(path)[1][1:] or "png", dpi=150)
    except (ImportError, ValueError) as error:
        raise CommandError(f"--plot {path}: {error}") from error
    write_atomically(path, data.getvalue())


class Sequences(Task):
    """From two corners of a square to the other two."""

    name = "sequences"
    title = "Squares"
    help = "predict two corners of a square from the other two"
    description = "Trains an encoder-decoder Transformer to continue a sequence of corners of a noisy square."
    predictors = (Corners(),)
    score = Score("mean squared error", "loss")
    monitor, mode = "val_loss", "min"
    options: ClassVar[dict[str, Option]] = {
        "model": Option(choice("own", "nn"), "own", "the document's own layers, or its model around nn.Transformer", "own|nn"),
        "epochs": Option(positive, 50, "passes over the training data"),
        "batch_size": Option(positive, 16, "sequences in a batch"),
        "lr": Option(above_zero, 0.01, "learning rate", "X"),
        "d_model": Option(positive, 6, "features inside the Transformer, a multiple of the heads"),
        "n_heads": Option(positive, 3, "attention heads"),
        "n_layers": Option(positive, None, "layers of the encoder, and of the decoder", by_model={"own": 2, "nn": 1}),
        "ff_units": Option(positive, None, "width of the hidden layers", by_model={"own": 10, "nn": 20}),
        "dropout": Option(share, 0.1, "dropout rate", "P"),
        "train_size": Option(positive, 128, "squares to train with; validation is on the same ones, as in the document"),
        "data_seed": Option(small_seed, 13, "seed of these squares"),
        "test_size": Option(positive, 128, "other squares, to test with"),
        "test_seed": Option(small_seed, 17, "seed of those"),
        **running_options(),
    }

    def check(self, hp, error):
        """See Task."""
        if hp.d_model % hp.n_heads:
            error(f"--d-model must be a multiple of --n-heads, got {hp.d_model} and {hp.n_heads}")

    def loaders(self, hp):
        """The document's, and those that it made but did not use."""
        train, val = godoy.loaders(hp.batch_size, hp.data_seed, hp.train_size)
        return train, val, godoy.corners_loader(hp.test_seed, hp.batch_size, hp.test_size)

    def model(self, hp, train):
        """Seeds again after the weights are drawn, as the document's ``StepByStep`` does, so that the run is the same."""
        model = godoy.SquaresPredictor(hp.model, hp.n_heads, hp.d_model, hp.ff_units, hp.n_layers, hp.dropout, hp.lr)
        manual_seed(hp.seed)
        train.generator.manual_seed(hp.seed)
        return model


TASK = Sequences()
