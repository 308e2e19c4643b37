"""The kernels without a tape: forward and backward apart, NumPy in and out.

For learners who want to see what a backward needs, and for tests. Each ``<op>_forward`` gives the result and what is saved,
each ``<op>_backward`` takes the gradient of the result and what was saved.
"""

from ._core import (
    add_layer_norm_backward,
    add_layer_norm_forward,
    attention_backward,
    attention_forward,
    embedding_backward,
    layer_norm_backward,
    layer_norm_forward,
    linear_backward,
    linear_forward,
    log_softmax_backward,
    log_softmax_forward,
    qkv_projection_backward,
    qkv_projection_forward,
    softmax_backward,
    softmax_forward,
)

__all__ = [
    "add_layer_norm_backward",
    "add_layer_norm_forward",
    "attention_backward",
    "attention_forward",
    "embedding_backward",
    "layer_norm_backward",
    "layer_norm_forward",
    "linear_backward",
    "linear_forward",
    "log_softmax_backward",
    "log_softmax_forward",
    "qkv_projection_backward",
    "qkv_projection_forward",
    "softmax_backward",
    "softmax_forward",
]
