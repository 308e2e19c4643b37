"""How each op is written in ONNX. Importing the parts enters their converters into the table."""

from . import attention, elements, index, layers, losses, reductions, views
from .table import CONVERTERS

__all__ = ["CONVERTERS", "attention", "elements", "index", "layers", "losses", "reductions", "views"]
