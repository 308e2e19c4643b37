"""predict: what a trained model makes of an array in a file."""

from __future__ import annotations

import argparse
import io
import math
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError, load, load_torch_checkpoint
from ..checkpoint.files import open_regular, write_atomically
from ..functional import one_hot
from ..training import TransformerPredictor
from ..tutorials import uva
from .options import CommandError, add_threads


def _reverse(model: TransformerPredictor, x: np.ndarray) -> np.ndarray:
    """(B, T) categories to (B, T) predicted ones."""
    categories = model.hparams.num_classes
    if x.dtype.kind not in "iu":
        raise CommandError(f"INPUT has dtype {x.dtype}; expected categories: whole numbers from 0 to {categories - 1}")
    if x.size and not (x.min() >= 0 and x.max() < categories):
        raise CommandError(f"INPUT has values from {x.min()} to {x.max()}; expected categories from 0 to {categories - 1}")
    features = one_hot(x.astype(np.int64), num_classes=categories).astype(np.float32)
    return model(features).argmax(axis=-1)


def _anomaly(model: TransformerPredictor, x: np.ndarray) -> np.ndarray:
    """(B, set size, features) to the number of the anomaly in each set, (B,)."""
    return model(_floats(x), add_positional_encoding=False).squeeze(-1).argmax(axis=-1)


def _predictor(model: TransformerPredictor, x: np.ndarray) -> np.ndarray:
    """(B, T, input_dim) to (B, T, num_classes)."""
    return model(_floats(x))


def _floats(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise CommandError(f"INPUT has dtype {x.dtype}; expected numbers")
    return x.astype(np.float32)


# Which classes a file may name, what they take (dimensions, in words), and what is done with them. Nothing else is ever made.
CLASSES: dict[str, tuple[type[TransformerPredictor], str, Callable[[Any, np.ndarray], np.ndarray]]] = {
    "ReversePredictor": (uva.ReversePredictor, "(batch, sequence)", _reverse),
    "AnomalyPredictor": (uva.AnomalyPredictor, "(batch, set size, {input_dim} features)", _anomaly),
    "TransformerPredictor": (TransformerPredictor, "(batch, sequence, {input_dim} features)", _predictor),
}


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "predict",
        help="what a trained model predicts for an array in a file",
        description="Predictions of a model that `train`, tc.Trainer or tc.save wrote, or of the tutorial's Lightning checkpoints: for ReversePredictor "
        "the predicted categories, for AnomalyPredictor the number of the anomaly in each set, for TransformerPredictor its outputs.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="best.safetensors, last.safetensors, or a .ckpt file")
    parser.add_argument("input", metavar="INPUT.npy", help="(B, T) categories; (B, set size, F) or (B, T, F) features; B may be left out")
    parser.add_argument("--output", metavar="FILE.npy", help="write the predictions there instead of printing them")
    parser.add_argument(
        "--class", dest="class_name", choices=sorted(CLASSES), help="the model's class, where the checkpoint does not name it"
    )
    add_threads(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads, predicts, writes."""
    state, parameters, found = _read(options.checkpoint)
    name = options.class_name or found
    if name is None:
        raise CommandError(f"{options.checkpoint} does not name the model's class: add --class, one of {', '.join(sorted(CLASSES))}")
    if name not in CLASSES:
        raise CommandError(f"{options.checkpoint} is of the class {name!r}; predict knows {', '.join(sorted(CLASSES))}: load it in Python")
    kind, form, predict = CLASSES[name]
    model = _model(kind, state, parameters, options.checkpoint)
    form = form.format(input_dim=model.hparams.input_dim)
    x = _array(options.input)
    dimensions = form.count(",") + 1
    single = x.ndim == dimensions - 1
    if not (single or x.ndim == dimensions):
        raise CommandError(f"INPUT has shape {x.shape}; expected {form}")
    try:
        result = np.asarray(predict(model, x[None] if single else x))
    except ValueError as error:
        raise CommandError(f"INPUT of shape {x.shape} does not fit the model, which takes {form}: {error}") from error
    _write(result, single, options.output)
    return 0


def _read(path: str) -> tuple[dict, dict, str | None]:
    """(weights, hyper-parameters, class name or None) of any of our files, or of Lightning's."""
    open_regular(path)[0].close()  # says what is wrong with the path itself
    if zipfile.is_zipfile(path):
        held = load_torch_checkpoint(path)
        return held.get("state_dict", held), dict(held.get("hyper_parameters") or {}), None
    held = load(path)
    name = held.get("class") or held.metadata.get("class")
    return held.get("state_dict", held), held.hyper_parameters, name if isinstance(name, str) else None


def _model(kind: type[TransformerPredictor], state: dict, parameters: dict, path: str) -> TransformerPredictor:
    """The model, in eval mode. The sizes must be those of the weights, so that a file cannot ask for more memory than it fills."""
    try:
        layers = {name.split(".")[2] for name in state if str(name).startswith("transformer.layers.")}
        found = {
            "input_dim": state["input_net.1.weight"].shape[1],
            "model_dim": state["input_net.1.weight"].shape[0],
            "num_classes": state["output_net.4.weight"].shape[0],
            "num_layers": len(layers),
        }
        for name, size in found.items():
            if parameters.get(name) != size:
                raise CheckpointError(f"{name} is {parameters.get(name)!r} in the hyper-parameters and {size} in the weights")
        width = found["model_dim"]
        least = width * ((8 * len(layers) + 1) * width + found["input_dim"] + found["num_classes"])  # a layer has 3 + 1 + 2 + 2 squares
        held = sum(math.prod(np.shape(value)) for value in state.values())
        if held < least:
            raise CheckpointError(f"the model of its hyper-parameters has at least {least:,} weights; the file has {held:,}")
        model = kind(**parameters)
        model.load_state_dict(state)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path!r} holds no {kind.__name__} ({type(error).__name__}: {error})") from error
    return model.eval()


def _array(path: str) -> np.ndarray:
    file, size = open_regular(path)
    with file:
        try:
            return np.lib.format.read_array(io.BytesIO(file.read(size)), allow_pickle=False)
        except (ValueError, EOFError, TypeError, SyntaxError) as error:
            raise CommandError(f"{path} is no .npy file of numbers ({error}); np.save writes one") from error


def _write(result: np.ndarray, single: bool, output: str | None) -> None:
    """Prints a batch, or writes it, without its first axis where INPUT had none."""
    if output is None:
        _print(result)
        return
    result = result[0] if single else result
    data = io.BytesIO()
    np.save(data, result)
    write_atomically(output, data.getvalue())
    print(f"{output}: shape {result.shape}, {result.dtype}")


def _print(result: np.ndarray) -> None:
    """A line for each sequence, or for each place of it where a prediction is a vector; an empty line between sequences."""
    style = "%d" if result.dtype.kind in "iu" else "%.6g"
    for i, part in enumerate(result if result.ndim == 3 else [result]):
        if i:
            print()
        np.savetxt(sys.stdout, np.atleast_1d(part), fmt=style)


__all__ = ["add", "run"]
