"""Pretrained encoders from folders of transformers' and sentence-transformers'.

loading                                     load, save, create
sentence, tokenizing                        SentenceEncoder; texts to numbers
bert, distilbert, roberta, mpnet, vit       the architectures: a few lines over tc.nn and a table of names each
layers, heads                               what they share; what is put on them for a task
config, folder, table, names                reading config.json, the folder's files, the arrays by their names
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .loading import create, load, save

if TYPE_CHECKING:
    from .sentence import SentenceEncoder

__all__ = ["SentenceEncoder", "create", "load", "save"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__, {"SentenceEncoder": "sentence"})
