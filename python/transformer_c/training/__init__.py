"""Modules that define their own training, like Lightning's modules in the tutorial.

module           TrainingModule: steps, optimizer, logging
hooks            its hooks: empty methods that a trainer calls
hyperparameters  the arguments of ``__init__``
data_module      loaders in a class of their own
predictor        the tutorial's model
"""

from .data_module import LightningDataModule
from .hyperparameters import Hyperparameters
from .module import TrainingModule
from .predictor import TransformerPredictor

LightningModule = TrainingModule  # PyTorch Lightning's name

__all__ = ["Hyperparameters", "LightningDataModule", "LightningModule", "TrainingModule", "TransformerPredictor"]
