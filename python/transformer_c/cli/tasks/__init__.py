"""The tasks of `train` and `predict`: one module per task, with a ``TASK``.

base                the interfaces of tasks and predictions
predictors          the common part of the UvA tutorial's two tasks
reverse, anomaly    the UvA tutorial's
sequences           the chapter's on encoder and decoder: squares
digits              the Spanish post's: digits
reviews             the book chapter's: sentiment of reviews

To add a task, add a module here and its name to ``NAMES``.
"""

from importlib import import_module

from .base import Predictor, Task
from .predictors import Outputs

NAMES = ("reverse", "anomaly", "sequences", "digits", "reviews")

TASKS: dict[str, Task] = {name: import_module(f".{name}", __name__).TASK for name in NAMES}
# Predictors by the class that a checkpoint names. A file cannot create any other class.
PREDICTORS: dict[str, Predictor] = {
    predictor.kind.__name__: predictor for predictor in (*(p for task in TASKS.values() for p in task.predictors), Outputs())
}

__all__ = ["PREDICTORS", "TASKS", "Predictor", "Task"]
