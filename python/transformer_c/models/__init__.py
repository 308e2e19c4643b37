"""Pretrained encoders from folders of transformers' and sentence-transformers'.

loading                                     load, save, create
bert, distilbert, roberta, mpnet, vit       the architectures: a few lines over tc.nn and a table of names each
layers, heads                               what they share; what is put on them for a task
config, folder, names                       reading config.json, the folder's files, the arrays by their names
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .loading import create, load, save

__all__ = ["create", "load", "save"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
