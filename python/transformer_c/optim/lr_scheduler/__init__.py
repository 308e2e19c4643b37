"""Learning-rate schedules, with PyTorch's names and numbers.

base      LRScheduler, which a schedule of your own extends
factors   schedules that multiply: LambdaLR, MultiplicativeLR, StepLR, MultiStepLR, ConstantLR, LinearLR, ExponentialLR, PolynomialLR
cosine    CosineAnnealingLR, CosineAnnealingWarmRestarts, the tutorial's CosineWarmupScheduler
cycles    OneCycleLR, CyclicLR
plateau   ReduceLROnPlateau
combined  SequentialLR, ChainedScheduler
"""

from typing import TYPE_CHECKING

from ..._names import explained, hooks
from .base import LRScheduler
from .combined import ChainedScheduler, SequentialLR
from .cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts, CosineWarmupScheduler
from .cycles import CyclicLR, OneCycleLR
from .factors import ConstantLR, ExponentialLR, LambdaLR, LinearLR, MultiplicativeLR, MultiStepLR, PolynomialLR, StepLR
from .plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # PyTorch's older name, used by the tutorial

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CosineWarmupScheduler",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

if not TYPE_CHECKING:
    explain = explained({"verbose": "print(scheduler.get_last_lr())"}, harmless={"verbose": (False, "deprecated")})
    for kind in [globals()[name] for name in __all__]:
        if "__init__" in vars(kind):
            kind.__init__ = explain(kind.__init__)
    del explain, kind
    __getattr__, __dir__ = hooks(__name__)
