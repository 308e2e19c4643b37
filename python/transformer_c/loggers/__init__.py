"""Loggers for ``tc.Trainer(logger=...)``: where the values that a module logs are written, besides the history.

base         Logger, which a logger of your own extends
csv_log      CSVLogger: a table
tensorboard  TensorBoardLogger: event files, through the package tensorboard
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .base import HistoryLog, Logger
from .csv_log import CSVLogger
from .tensorboard import TensorBoardLogger

__all__ = ["CSVLogger", "HistoryLog", "Logger", "TensorBoardLogger"]

if not TYPE_CHECKING:
    others = ("WandbLogger", "MLFlowLogger", "CometLogger", "NeptuneLogger", "ClearMLLogger")
    __getattr__, __dir__ = hooks(__name__, instead=dict.fromkeys(others, "a class of your own that extends tc.loggers.Logger"))
    del others
