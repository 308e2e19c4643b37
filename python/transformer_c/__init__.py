"""transformer_c: Transformers on NumPy arrays.

A C core with an eager tape does the computing. The classes are those of the UvA tutorial; names and conventions are PyTorch's.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> x = np.zeros((2, 5, 8), np.float32)
>>> tc.EncoderBlock(input_dim=8, num_heads=2, dim_feedforward=16)(x).shape
(2, 5, 8)
"""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING

from . import _names, convert, cuda, data, functional, nn, ops, optim, testing
from . import functional as F
from ._autocast import autocast
from ._core import Generator, Tensor, argmax, argsort, cos, exp, log, sin, sqrt, tanh
from ._pytorch_names import BoolTensor, ByteTensor, DoubleTensor, FloatTensor, IntTensor, LongTensor, device, from_numpy
from ._tensor import (
    arange,
    as_tensor,
    cat,
    empty,
    empty_like,
    enable_grad,
    flip,
    from_dlpack,
    full,
    full_like,
    is_grad_enabled,
    matmul,
    no_grad,
    ones,
    ones_like,
    stack,
    tensor,
    tril,
    triu,
    where,
    zeros,
    zeros_like,
)
from .config import get_float32_precision, get_num_threads, set_float32_precision, set_num_threads, show_config
from .custom import custom_op
from .dtypes import double, float, float16, float32, float64, half, int32, int64, long, uint8
from .encoder import EncoderBlock, MultiheadAttention, PositionalEncoding, TransformerEncoder, expand_mask, scaled_dot_product
from .optim import CosineWarmupScheduler
from .random import manual_seed, rand, randint, randn, randperm, seed_everything
from .training import LightningDataModule, TrainingModule, TransformerPredictor

LightningModule = TrainingModule  # PyTorch Lightning's name

if TYPE_CHECKING:
    from . import backends, callbacks, datasets, loggers, metrics, plot, sklearn, tutorials, utils
    from ._summary import summary
    from .checkpoint import CheckpointError, load, load_torch_checkpoint, save
    from .export import ExportError, export_onnx
    from .trainer import Trainer

# Names that are imported on first use, so that `import transformer_c` stays quick: the module that has the name; "" for a module itself.
_LATER = {
    "CheckpointError": "checkpoint",
    "ExportError": "export",
    "Trainer": "trainer",
    "backends": "",
    "callbacks": "",
    "datasets": "",
    "export_onnx": "export",
    "load": "checkpoint",
    "load_torch_checkpoint": "checkpoint",
    "loggers": "",
    "plot": "",
    "save": "checkpoint",
    "sklearn": "",
    "tutorials": "",
    "utils": "",
    "summary": "_summary",
    "metrics": "",
}


def __getattr__(name: str):
    """Imports a name on its first use; for a name that does not exist, raises an error that says what to use here instead."""
    if name not in _LATER:
        from ._hints import package_attribute

        raise package_attribute(name)
    module = importlib.import_module(f".{_LATER[name] or name}", __name__)
    globals()[name] = found = getattr(module, name) if _LATER[name] else module
    return found


def __dir__():
    return sorted({*_names.public(globals()), *_LATER})


__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CheckpointError",
    "CosineWarmupScheduler",
    "DoubleTensor",
    "EncoderBlock",
    "ExportError",
    "F",
    "FloatTensor",
    "Generator",
    "IntTensor",
    "LightningDataModule",
    "LightningModule",
    "LongTensor",
    "MultiheadAttention",
    "PositionalEncoding",
    "Tensor",
    "Trainer",
    "TrainingModule",
    "TransformerEncoder",
    "TransformerPredictor",
    "__version__",
    "arange",
    "argmax",
    "argsort",
    "as_tensor",
    "autocast",
    "backends",
    "callbacks",
    "cat",
    "convert",
    "cos",
    "cuda",
    "custom_op",
    "data",
    "datasets",
    "device",
    "double",
    "empty",
    "empty_like",
    "enable_grad",
    "exp",
    "expand_mask",
    "export_onnx",
    "flip",
    "float",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "functional",
    "get_float32_precision",
    "get_num_threads",
    "half",
    "int32",
    "int64",
    "is_grad_enabled",
    "load",
    "load_torch_checkpoint",
    "log",
    "loggers",
    "long",
    "manual_seed",
    "matmul",
    "metrics",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "ops",
    "optim",
    "plot",
    "rand",
    "randint",
    "randn",
    "randperm",
    "save",
    "scaled_dot_product",
    "seed_everything",
    "set_float32_precision",
    "set_num_threads",
    "show_config",
    "sin",
    "sklearn",
    "sqrt",
    "stack",
    "summary",
    "tanh",
    "tensor",
    "testing",
    "tril",
    "triu",
    "tutorials",
    "uint8",
    "utils",
    "where",
    "zeros",
    "zeros_like",
]
