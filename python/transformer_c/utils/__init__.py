"""PyTorch's place for data: ``tc.utils.data`` is ``tc.data``."""

from typing import TYPE_CHECKING

from .._names import hooks
from . import data

__all__ = ["data"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "checkpoint": "the call itself: nothing is computed a second time to save memory",
            "tensorboard": "tc.loggers.TensorBoardLogger(folder) and its log_metrics({name: value}, step)",
        },
    )
