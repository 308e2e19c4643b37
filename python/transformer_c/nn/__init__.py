"""Modules, parameters, layers and losses, with PyTorch's names, signatures and state-dict keys."""

from .. import functional
from . import init, utils
from .attention import MultiheadAttention
from .cache import KeyValueCache
from .containers import ModuleDict, ModuleList, Sequential
from .layers import (
    GELU,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool1D,
    GlobalMaxPool1D,
    Identity,
    LayerNorm,
    Linear,
    LogSoftmax,
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
)
from .loss import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from .module import Module
from .parameter import Parameter
from .transformer import Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "GELU",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePool1D",
    "GlobalMaxPool1D",
    "Identity",
    "KeyValueCache",
    "LayerNorm",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "functional",
    "init",
    "utils",
]
