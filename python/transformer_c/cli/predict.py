"""predict: a trained model's predictions for an array in a file, for images or for texts."""

from __future__ import annotations

import argparse
import io
import math
import zipfile
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError, load_mapping, load_torch_checkpoint
from ..checkpoint.files import open_regular, write_atomically
from .options import CommandError, UsageError, add_threads, check_output, flag
from .tasks import PREDICTORS, TASKS, Predictor


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "predict",
        help="what a trained model predicts for an array in a file, for images or for texts",
        description="Predictions of a model that `train`, tc.Trainer or tc.save wrote, or of the tutorial's Lightning checkpoints. What INPUT is depends "
        "on the model's class: " + "; ".join(f"{name}: {predictor.takes}" for name, predictor in PREDICTORS.items()) + ".",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="best.safetensors, last.safetensors, or a .ckpt file")
    parser.add_argument("input", metavar="INPUT", nargs="*", help="a .npy file, the numbers of images, or texts: see above")
    parser.add_argument("--output", metavar="FILE.npy", help="write the predictions there instead of printing them")
    parser.add_argument(
        "--class", dest="class_name", choices=sorted(PREDICTORS), help="the model's class, where the checkpoint does not name it"
    )
    for task in TASKS.values():
        options = {name: option for predictor in task.predictors for name, option in predictor.options.items()}
        if options:
            group = parser.add_argument_group(f"with a model of `train {task.name}`")
            for name, option in options.items():
                option.add_to(group, name)
    add_threads(parser)
    parser.set_defaults(run=lambda options: run(options, parser))


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Reads, predicts, writes."""
    instead = sorted({name for predictor in PREDICTORS.values() for name in predictor.input_options})
    if not options.input and all(getattr(options, name) is None for name in instead):
        parser.error(f"INPUT is missing ({', '.join(map(flag, instead))} would do in its place)")
    check_output(options.output, [options.checkpoint, *options.input])
    state, parameters, found = _read(options.checkpoint)
    name = options.class_name or found
    if name is None:
        raise CommandError(f"{options.checkpoint} does not name the model's class: add --class, one of {', '.join(sorted(PREDICTORS))}")
    if name not in PREDICTORS:
        raise CommandError(
            f"{options.checkpoint} is of the class {name!r}; predict knows {', '.join(sorted(PREDICTORS))}: load it in Python"
        )
    predictor = PREDICTORS[name]
    try:
        _check_options(predictor, options)
        prediction = predictor.predict(_model(predictor, state, parameters, options.checkpoint), options)
    except UsageError as error:
        parser.error(str(error))
    if options.output is None:
        for line in prediction.lines:
            print(line)
    else:
        _write(prediction.result, options.output)
    return 0


def _check_options(predictor: Predictor, options: argparse.Namespace) -> None:
    for other in PREDICTORS.values():
        for name in other.options:
            if name not in predictor.options and getattr(options, name) is not None:
                raise UsageError(f"{flag(name)} is for a model of the class {other.kind.__name__}; this one is a {predictor.kind.__name__}")


def _read(path: str) -> tuple[dict, dict, str | None]:
    """(weights, hyper-parameters, class name or None) from any of this library's files, or from Lightning's."""
    open_regular(path)[0].close()  # raises if the path itself is wrong
    if zipfile.is_zipfile(path):
        held = load_torch_checkpoint(path)
        return held.get("state_dict", held), dict(held.get("hyper_parameters") or {}), None
    held = load_mapping(path)
    name = held.get("class") or held.metadata.get("class")
    return held.get("state_dict", held), held.hyper_parameters, name if isinstance(name, str) else None


def _model(predictor: Predictor, state: dict, parameters: dict, path: str) -> Any:
    """The model, in eval mode. The sizes must be those of the weights, so that a file cannot ask for more memory than it fills."""
    kind = predictor.kind
    try:
        sizes = predictor.sizes(state)
        for name, size in sizes.items():
            if parameters.get(name) != size:
                raise CheckpointError(f"{name} is {parameters.get(name)!r} in the hyper-parameters and {size!r} in the weights")
        least, held = predictor.least(sizes), sum(math.prod(np.shape(value)) for value in state.values())
        if held < least:  # arrays without elements have any size
            raise CheckpointError(f"the model of its hyper-parameters has at least {least:,} weights; the file has {held:,}")
        empty = sorted(name for name, size in sizes.items() if size == 0 and not name.endswith("layers"))
        if empty:  # the sizes that such a one is multiplied by leave no trace in the weights
            raise CheckpointError(f"{empty[0]} is 0")
        predictor.check(parameters)
        model = kind(**parameters)
        model.load_state_dict(state)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        reason = f"without {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path!r} contains no {kind.__name__} ({reason})") from error
    return model.eval()


def _write(result: np.ndarray, output: str) -> None:
    data = io.BytesIO()
    np.save(data, result)
    write_atomically(output, data.getvalue())
    print(f"{output}: shape {result.shape}, {result.dtype}")


__all__ = ["add", "run"]
