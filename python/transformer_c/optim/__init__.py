"""Optimizers, learning-rate schedules and gradient clipping."""

from typing import TYPE_CHECKING

from .._names import hooks
from . import lr_scheduler
from .adafactor import Adafactor
from .adagrad import Adagrad
from .algorithms import SGD, Adam, AdamW, RAdam, RMSprop
from .gradients import clip_grad_norm_, clip_grad_value_
from .lr_scheduler import CosineWarmupScheduler, LambdaLR
from .muon import Muon
from .nadam import NAdam
from .optimizer import Optimizer

__all__ = [
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineWarmupScheduler",
    "LambdaLR",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
    "swa_utils",
]

if TYPE_CHECKING:
    from . import swa_utils as swa_utils
else:
    __getattr__, __dir__ = hooks(
        __name__,
        later={"swa_utils": ""},
        instead={
            **dict.fromkeys(("Adadelta", "Adamax", "LBFGS"), "optim.AdamW, optim.RMSprop or optim.SGD"),
        },
    )
