"""Callbacks for ``tc.Trainer(callbacks=[...])``, with Lightning's names.

callback          Callback, with every hook; extend it for one of your own
model_checkpoint  ModelCheckpoint: the best epochs' files
early_stopping    EarlyStopping
learning_rate     LearningRateMonitor: logs learning rates
functions         LambdaCallback: functions as hooks
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .callback import Callback
from .early_stopping import EarlyStopping
from .functions import LambdaCallback
from .learning_rate import LearningRateMonitor
from .model_checkpoint import ModelCheckpoint

__all__ = ["Callback", "EarlyStopping", "LambdaCallback", "LearningRateMonitor", "ModelCheckpoint"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "LearningRateFinder": "several runs of tc.Trainer: it searches for no learning rate",
            "GradientAccumulationScheduler": "Trainer(accumulate_grad_batches=k)",
            "StochasticWeightAveraging": "on_train_epoch_end() of a Callback, which averages state dicts",
            "ModelSummary": "tc.summary(model, example)",
            **dict.fromkeys(("TQDMProgressBar", "RichProgressBar", "ProgressBar"), "Trainer(progress=True)"),
        },
    )
