"""The kernels without a tape: forward and backward apart, NumPy in and out.

For learners who want to see what a backward needs, and for tests. Each ``<op>_forward`` gives the result and what is saved,
each ``<op>_backward`` takes the gradient of the result and what was saved; ``help`` of each shows its arguments.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> x, gamma, beta = np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)
>>> y, mean, rstd = tc.ops.layer_norm_forward(x, gamma, beta, 0.0)
>>> dx, dgamma, dbeta = tc.ops.layer_norm_backward(np.array([[1.0, 0.0]]), x, gamma, mean, rstd)
>>> dgamma.tolist(), dbeta.tolist()
([-1.0, 0.0], [1.0, 0.0])
"""

from ._core import (
    add_layer_norm_backward,
    add_layer_norm_forward,
    attention_backward,
    attention_forward,
    dropout_forward,
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
from ._core import dropout_forward as dropout_backward
from ._core import embedding as embedding_forward

__all__ = [
    "add_layer_norm_backward",
    "add_layer_norm_forward",
    "attention_backward",
    "attention_forward",
    "dropout_backward",
    "dropout_forward",
    "embedding_backward",
    "embedding_forward",
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
