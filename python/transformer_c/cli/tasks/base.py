"""The interfaces of a task for `train` and of a trained model for `predict`."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...checkpoint.errors import parsing
from ...checkpoint.files import open_regular
from ...data import DataLoader
from ...training import TrainingModule
from ..options import CommandError, Option, UsageError, above_zero, flag, positive, seed

Loaders = tuple[DataLoader, DataLoader, DataLoader | None]


@dataclass(frozen=True)
class Score:
    """A value reported for a trained model: logged under its name after "val_" and "test_"."""

    name: str
    key: str
    percent: bool = False

    def text(self, value: float) -> str:
        """A value as it is printed."""
        return f"{100 * value:8.2f} %" if self.percent else f"{value:8.4f}"


ACCURACY = Score("accuracy", "acc", percent=True)


class Task:
    """A task as `train` sees it."""

    name: str  # behind `train`
    title: str
    help: str
    description: str
    example: str = "INPUT.npy"  # what `predict` takes of it
    options: ClassVar[dict[str, Option]]
    predictors: tuple[Predictor, ...]
    score: Score = ACCURACY
    monitor: str = "val_acc"  # by which the best epoch is found
    mode: str = "max"

    def fill(self, given: Mapping[str, Any], error: Callable[[str], Any]) -> argparse.Namespace:
        """All options: those given, and defaults for the others."""
        model = given.get("model", self.options["model"].default if "model" in self.options else None)
        filled = {}
        for name, option in self.options.items():
            applies = option.by_model is None or model in option.by_model
            if name in given and not applies:
                error(f"{flag(name)} is not an option of --model {model}")
            default = option.default if option.by_model is None else option.by_model.get(model)
            filled[name] = given.get(name, default)
        return argparse.Namespace(**filled)

    def check(self, hp: argparse.Namespace, error: Callable[[str], Any]) -> None:
        """Calls `error` with a message if options are incompatible."""

    def loaders(self, hp: argparse.Namespace) -> Loaders:
        """Loaders of training, validation and, if there are any, test data."""
        raise NotImplementedError

    def model(self, hp: argparse.Namespace, train: DataLoader) -> TrainingModule:
        """A new model."""
        raise NotImplementedError


def running_options(default_seed: int = 42) -> dict[str, Option]:
    """Options of every task that trains without a schedule."""
    return {
        "clip": Option(above_zero, None, "largest norm of the gradients (default: any)", "X"),
        "patience": Option(positive, None, "stop after as many epochs that were not better in validation (default: never)"),
        "seed": Option(seed, default_seed, "seed of weights, shuffles and dropout"),
    }


# ---- predictions -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """The array that --output writes, and the lines that are printed without it."""

    result: np.ndarray
    lines: Iterable[str]


class Predictor:
    """Predictions for `predict` with the models of one class."""

    kind: type[TrainingModule]
    takes: str  # INPUT, in words
    options: ClassVar[dict[str, Option]] = {}  # beyond --output; each may stand for INPUT, see input_options
    input_options: ClassVar[tuple[str, ...]] = ()

    def sizes(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Every hyper-parameter that affects memory use, read from the weights, so that a file cannot claim more memory than it has data."""
        raise NotImplementedError

    def least(self, sizes: Mapping[str, Any]) -> int:
        """A lower bound on the number of weights of a model of these sizes, from every size except that of biases."""
        raise NotImplementedError

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raises ValueError for invalid hyper-parameters that cannot be checked against the weights."""

    def predict(self, model: Any, options: argparse.Namespace) -> Prediction:
        """The prediction for options.input and the options of this class."""
        raise NotImplementedError


class ArrayPredictor(Predictor):
    """Predictions for the array in one .npy file, whose batch axis is optional."""

    def form(self, model: Any) -> str:
        """INPUT's axes in words, "(batch, ...)"."""
        raise NotImplementedError

    def compute(self, model: Any, x: np.ndarray) -> Any:
        """Maps a batch of inputs to a batch of predictions; ValueError if its shape does not fit."""
        raise NotImplementedError

    def predict(self, model: Any, options: argparse.Namespace) -> Prediction:
        """See Predictor."""
        _, result, single = self.run(model, options)
        return Prediction(result[0] if single else result, array_lines(result))

    def run(self, model: Any, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, bool]:
        """(the batch, its predictions, whether INPUT had no batch axis)."""
        form, x = self.form(model), read_array(one_input(options, "an .npy file"))
        dimensions = form.count(",") + 1
        single = x.ndim == dimensions - 1
        if not (single or x.ndim == dimensions):
            raise CommandError(f"INPUT has shape {x.shape}; expected {form}")
        batch = x[None] if single else x
        try:
            return batch, np.asarray(self.compute(model, batch)), single
        except ValueError as error:
            raise CommandError(f"INPUT of shape {x.shape} does not fit the model, which takes {form}: {error}") from error


def one_input(options: argparse.Namespace, what: str) -> str:
    """The only INPUT; raises if there are several."""
    if len(options.input) != 1:
        raise UsageError(f"the model in {options.checkpoint} takes one INPUT, {what}; {len(options.input)} are given")
    return options.input[0]


def read_array(path: str) -> np.ndarray:
    """The array in a .npy file."""
    file, size = open_regular(path)
    with file, parsing(f"{path} is not an .npy file of numbers, as np.save writes them"):
        return np.lib.format.read_array(io.BytesIO(file.read(size)), allow_pickle=False)


def floats(x: np.ndarray) -> np.ndarray:
    """Numbers as float32, all finite: a NaN would come out as a prediction."""
    if x.dtype.kind not in "biuf":
        raise CommandError(f"INPUT has dtype {x.dtype}; expected numbers")
    with np.errstate(over="ignore"):
        found = x.astype(np.float32)
    if not np.isfinite(found).all():
        raise CommandError(f"INPUT has NaN, infinity or a number beyond float32 in {(~np.isfinite(found)).sum()} of {found.size} places")
    return found


def array_lines(result: np.ndarray) -> Iterable[str]:
    """One line per sequence, or one per position if a prediction is a vector, with an empty line between sequences."""
    style = "%d" if result.dtype.kind in "iu" else "%.6g"
    for i, part in enumerate(result if result.ndim == 3 else [result]):
        if i:
            yield ""
        for row in part:
            yield " ".join(style % value for value in np.atleast_1d(row))


def layers(state: Mapping[str, Any], prefix: str) -> int:
    """The number of different numbers after `prefix` in the names of the weights."""
    return len({str(name)[len(prefix) :].split(".")[0] for name in state if str(name).startswith(prefix)})
