"""The tasks that `train` and `predict` know: a module for each, which has a ``TASK``.

base                what a task and its predictions are made of
predictors          what the two tasks of the UvA tutorial have in common
reverse, anomaly    the UvA tutorial's
sequences           the chapter's on encoder and decoder: squares
digits              the Spanish post's: digits
reviews             the book chapter's: sentiment of reviews

Another task is a module here and its name in ``NAMES``.
"""

from importlib import import_module

from .base import Predictor, Task
from .predictors import Outputs

NAMES = ("reverse", "anomaly", "sequences", "digits", "reviews")

TASKS: dict[str, Task] = {name: import_module(f".{name}", __name__).TASK for name in NAMES}
# By the class that a checkpoint names. Nothing else is ever made of a file.
PREDICTORS: dict[str, Predictor] = {
    predictor.kind.__name__: predictor for predictor in (*(p for task in TASKS.values() for p in task.predictors), Outputs())
}

__all__ = ["PREDICTORS", "TASKS", "Predictor", "Task"]
