"""Modules, parameters, layers and losses, with PyTorch's names, signatures and state-dict keys.

module, parameter       Module: a tree of parameters, buffers and modules by name; call, state, html: its calls, state dicts, pictures
module_hooks            functions that see calls and gradients; maps: attention_maps, which uses them
layers, activations     layers of one function each; windows, batch_norm, convolution, loss, containers: the others
attention               MultiheadAttention; cache: the keys and values of earlier decoding steps
transformer_layers      encoder and decoder layers; transformer: stacks of them; fusion: parts that one kernel computes together
packing                 sequences of different lengths side by side
init                    initial values
einops                  Tensors for the package einops
"""

import functools
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

from .. import functional
from .._names import hooks
from . import activations, init, layers, windows
from .activations import *  # noqa: F403
from .attention import MultiheadAttention
from .batch_norm import BatchNorm1d, BatchNorm2d
from .cache import KeyValueCache
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .layers import *  # noqa: F403
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    TripletMarginLoss,
)
from .module import Module
from .parameter import Parameter
from .transformer import Transformer, TransformerDecoder, TransformerEncoder
from .transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from .windows import *  # noqa: F403

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "KLDivLoss",
    "KeyValueCache",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "Sequential",
    "SmoothL1Loss",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "attention_maps",
    "functional",
    "init",
    "utils",
]
__all__ += layers.__all__ + activations.__all__ + windows.__all__

sys.modules[f"{__name__}.functional"] = functional  # for `import transformer_c.nn.functional as F`

# For `from transformer_c.nn.modules import Linear`: without files, as those of this folder would be loaded a second time.
_modules = module_from_spec(ModuleSpec(f"{__name__}.modules", None, is_package=True))
_modules.__getattr__ = functools.partial(getattr, sys.modules[__name__])  # type: ignore[method-assign]
sys.modules[_modules.__name__] = _modules

if TYPE_CHECKING:
    from . import utils
    from .maps import attention_maps
else:
    recurrent = "nn.TransformerEncoder or nn.Conv1d: there are no recurrent layers"
    norm = "nn.GroupNorm(channels, channels, affine=False)"
    instead = {
        **dict.fromkeys(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"), recurrent),
        **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d"), norm),
        "BatchNorm3d": "nn.BatchNorm2d of t.flatten(3)",
        "SyncBatchNorm": "nn.BatchNorm1d or nn.BatchNorm2d: each process normalises by its own batch",
        "AdaptiveMaxPool1d": "t.amax(-1, keepdim=True), for one number of each channel",
        "AdaptiveMaxPool2d": "t.amax((-2, -1), keepdim=True), for one number of each channel",
        "modules": "nn itself, which has its layers",
        "DataParallel": "the module itself: a run uses one device",
        "parallel": 'Trainer(strategy="ddp"), or tc.distributed.all_reduce(p.grad, "mean") after backward()',
        **{
            f"Dropout{axes}d": f"x * functional.dropout(ones, p, self.training), of ones (N, C{', 1' * axes}): whole channels"
            for axes in (1, 2, 3)
        },
        "Buffer": "self.register_buffer(name, tensor)",
        **dict.fromkeys(("ZeroPad1d", "ZeroPad2d", "ConstantPad1d", "ConstantPad2d"), "functional.pad"),
        **dict.fromkeys(("ReflectionPad1d", "ReflectionPad2d"), "functional.pad(t, padding, mode='reflect')"),
        **dict.fromkeys(("ReplicationPad1d", "ReplicationPad2d"), "functional.pad(t, padding, mode='replicate')"),
        "LazyLinear": "nn.Linear(width of the input, width of the output)",
        "EmbeddingBag": "nn.Embedding and a mean over the sequence; tc.zeros(bags, width).index_add(0, bag_of_each, rows), of ids in one row",
        "PixelShuffle": "t.unflatten(1, (-1, r, r)), permute and reshape",
        **dict.fromkeys(("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"), "functional.interpolate"),
    }
    __getattr__, __dir__ = hooks(__name__, {"attention_maps": "maps", "utils": ""}, instead)
    del recurrent, norm, instead
