"""PyTorch's places: ``tc.utils.data`` is ``tc.data``; ``checkpoint``: parts of a model that are computed again in the backward."""

from typing import TYPE_CHECKING

from .._names import hooks
from . import checkpoint, data

__all__ = ["checkpoint", "data"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "tensorboard": "tc.loggers.TensorBoardLogger(folder) and its log_metrics({name: value}, step)",
        },
    )
