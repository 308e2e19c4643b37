"""The common part of the UvA tutorial's tasks: ``TransformerPredictor``, its options and its schedule."""

from __future__ import annotations

from typing import Any

from ...training import TransformerPredictor
from ..options import Option, above_zero, positive, seed, share
from .base import ArrayPredictor, Task, floats, layers


class PredictorTask(Task):
    """A task whose model is a TransformerPredictor, of the class that ``kind`` names."""

    kind: type[TransformerPredictor]

    def check(self, hp, error):
        """See Task."""
        if hp.model_dim % hp.num_heads:
            error(f"--model-dim must be a multiple of --num-heads, got {hp.model_dim} and {hp.num_heads}")

    def model(self, hp, train):
        """The model, with a schedule that ends with the last epoch."""
        return self.kind(
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

    def sizes(self, hp, train) -> dict[str, int]:
        """input_dim and num_classes of the model."""
        raise NotImplementedError


def common_options(**defaults: Any) -> dict[str, Option]:
    """The options of both, with the task's defaults."""
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


class Outputs(ArrayPredictor):
    """Maps (B, T, input_dim) to the model's outputs (B, T, num_classes)."""

    kind = TransformerPredictor
    takes = "features (B, T, F)"

    def sizes(self, state):
        """See Predictor."""
        return {
            "input_dim": state["input_net.1.weight"].shape[1],
            "model_dim": state["input_net.1.weight"].shape[0],
            "num_classes": state["output_net.4.weight"].shape[0],
            "num_layers": layers(state, "transformer.layers."),
        }

    def least(self, sizes):
        """See Predictor. A layer has 3 + 1 + 2 + 2 squares."""
        width = sizes["model_dim"]
        return width * ((8 * sizes["num_layers"] + 1) * width + sizes["input_dim"] + sizes["num_classes"])

    def form(self, model):
        """See ArrayPredictor."""
        return f"(batch, sequence, {model.hparams.input_dim} features)"

    def compute(self, model, x):
        """See ArrayPredictor."""
        return model(floats(x))
