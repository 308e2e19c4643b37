"""transformer_c: Transformers on NumPy arrays.

A C core computes; PyTorch is not needed. Functions and layers take ndarrays and return ndarrays; Tensors record gradients. Names and conventions are
PyTorch's; EncoderBlock, TransformerPredictor and others are the UvA tutorial's classes.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> x = np.zeros((2, 5, 8), np.float32)
>>> tc.EncoderBlock(input_dim=8, num_heads=2, dim_feedforward=16)(x).shape
(2, 5, 8)
"""

import importlib
import sys
from typing import TYPE_CHECKING

from . import _joining, _names, _pytorch_names, _recording, _tensor, cuda, dtypes, functional, nn, ops, random, tensor_functions
from . import functional as F
from ._autocast import autocast
from ._core import Generator, Tensor, argmax, argsort, cos, sin, tanh
from ._joining import *  # noqa: F403
from ._pytorch_names import *  # noqa: F403
from ._recording import *  # noqa: F403
from ._tensor import *  # noqa: F403
from ._version import __version__
from .config import get_float32_precision, get_num_threads, set_float32_precision, set_num_threads, show_config
from .custom import custom_op
from .dtypes import *  # noqa: F403
from .encoder import EncoderBlock, MultiheadAttention, PositionalEncoding, TransformerEncoder, expand_mask, scaled_dot_product
from .random import *  # noqa: F403
from .tensor_functions import *  # noqa: F403

if TYPE_CHECKING:  # the names of _LATER, for type checkers
    from . import autograd as autograd
    from . import backends as backends
    from . import callbacks as callbacks
    from . import convert as convert
    from . import data as data
    from . import datasets as datasets
    from . import distributed as distributed
    from . import distributions as distributions
    from . import jit as jit
    from . import linalg as linalg
    from . import loggers as loggers
    from . import metrics as metrics
    from . import models as models
    from . import optim as optim
    from . import plot as plot
    from . import sklearn as sklearn
    from . import testing as testing
    from . import tutorials as tutorials
    from . import utils as utils
    from ._bfloat16 import bfloat16 as bfloat16
    from ._summary import summary as summary
    from .checkpoint import CheckpointError as CheckpointError
    from .checkpoint import load as load
    from .checkpoint import load_torch_checkpoint as load_torch_checkpoint
    from .checkpoint import save as save
    from .export import ExportError as ExportError
    from .export import export_onnx as export_onnx
    from .optim import CosineWarmupScheduler as CosineWarmupScheduler
    from .trainer import Trainer as Trainer
    from .training import LightningDataModule as LightningDataModule
    from .training import LightningModule as LightningModule
    from .training import TrainingModule as TrainingModule
    from .training import TransformerPredictor as TransformerPredictor

# Orders of elements in memory that PyTorch has words for: a copy here is always in C order.
contiguous_format, preserve_format = "contiguous_format", "preserve_format"

# Names that are imported on first use, so that `import transformer_c` stays quick: the module that has the name; "" for a module itself.
_LATER = {
    "CheckpointError": "checkpoint",
    "CosineWarmupScheduler": "optim",
    "ExportError": "export",
    "LightningDataModule": "training",
    "LightningModule": "training",
    "Trainer": "trainer",
    "TrainingModule": "training",
    "TransformerPredictor": "training",
    "amp": "",
    "autograd": "",
    "backends": "",
    "bfloat16": "_bfloat16",
    "callbacks": "",
    "convert": "",
    "data": "",
    "datasets": "",
    "distributed": "",
    "distributions": "",
    "export_onnx": "export",
    "jit": "",
    "linalg": "",
    "load": "checkpoint",
    "load_torch_checkpoint": "checkpoint",
    "loggers": "",
    "metrics": "",
    "models": "",
    "optim": "",
    "plot": "",
    "save": "checkpoint",
    "sklearn": "",
    "summary": "_summary",
    "testing": "",
    "tutorials": "",
    "utils": "",
}


def __getattr__(name: str):
    """Imports a name on its first use; for a name that does not exist, raises an error that says what to use here instead."""
    if name not in _LATER:
        from ._hints import package_attribute

        raise package_attribute(name)
    try:
        module = importlib.import_module(f".{_LATER[name] or name}", __name__)
    except ImportError as error:
        if _LATER[name]:
            raise
        # hasattr() and inspect.getmembers() take a module without the package that it needs for one that is not there
        raise AttributeError(str(error), name=name, obj=sys.modules[__name__]) from error
    globals()[name] = found = getattr(module, name) if _LATER[name] else module
    return found


def __dir__():
    return sorted({*_names.public(globals()), *_LATER})


__all__ = [
    "EncoderBlock",
    "F",
    "Generator",
    "MultiheadAttention",
    "PositionalEncoding",
    "Tensor",
    "TransformerEncoder",
    "__version__",
    "argmax",
    "argsort",
    "autocast",
    "contiguous_format",
    "cos",
    "cuda",
    "custom_op",
    "expand_mask",
    "functional",
    "get_float32_precision",
    "get_num_threads",
    "nn",
    "ops",
    "preserve_format",
    "scaled_dot_product",
    "set_float32_precision",
    "set_num_threads",
    "show_config",
    "sin",
    "tanh",
]
__all__ += _pytorch_names.__all__
__all__ += _recording.__all__
__all__ += _tensor.__all__
__all__ += _joining.__all__
__all__ += dtypes.__all__
__all__ += random.__all__
__all__ += tensor_functions.__all__
__all__ += [name for name in _LATER if name != "sklearn"]  # `import *` needs nothing that is not installed with the package
