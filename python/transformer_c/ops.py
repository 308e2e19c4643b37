"""The kernels without a tape: forward and backward apart, NumPy in and out.

For learners who want to see what a backward needs, and for tests. ``<op>_forward`` gives the result and, after it, what is saved
beside the arguments; ``<op>_backward`` takes the gradient of the result and what was saved, and gives the gradients of the inputs.
``help`` of each shows its arguments.

Views (reshape, transpose, slices) and joins (cat, stack) compute nothing: their gradients are views and joins.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> x, gamma, beta = np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)
>>> y, mean, rstd = tc.ops.layer_norm_forward(x, gamma, beta, 0.0)
>>> dx, dgamma, dbeta = tc.ops.layer_norm_backward(np.array([[1.0, 0.0]]), x, gamma, mean, rstd)
>>> dgamma.tolist(), dbeta.tolist()
([-1.0, 0.0], [1.0, 0.0])

Functions that save nothing but their arguments or their result:

>>> y = tc.ops.matmul_forward(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
>>> da, db = tc.ops.matmul_backward(np.ones((1, 1)), np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
>>> y.tolist(), da.tolist(), db.tolist()
([[11.0]], [[3.0, 4.0]], [[1.0], [2.0]])
"""

from ._core import abs as abs_forward
from ._core import (
    abs_backward,
    add_backward,
    add_layer_norm_backward,
    add_layer_norm_forward,
    attention_backward,
    attention_forward,
    binary_cross_entropy_backward,
    binary_cross_entropy_with_logits_backward,
    cos_backward,
    cross_entropy_backward,
    cross_entropy_forward,
    div_backward,
    dropout_forward,
    embedding_backward,
    erf_backward,
    exp_backward,
    gelu_backward,
    gelu_tanh_backward,
    layer_norm_backward,
    layer_norm_forward,
    linear_backward,
    linear_forward,
    log1p_backward,
    log_backward,
    log_softmax_backward,
    log_softmax_forward,
    masked_fill,
    matmul_backward,
    max_backward,
    maximum_backward,
    mean_backward,
    min_backward,
    minimum_backward,
    mse_loss_backward,
    mul_backward,
    neg_backward,
    pow_backward,
    qkv_projection_backward,
    qkv_projection_forward,
    reciprocal_backward,
    relu_backward,
    remainder_backward,
    rsqrt_backward,
    sigmoid_backward,
    sign_backward,
    sin_backward,
    softmax_backward,
    softmax_forward,
    sqrt_backward,
    square_backward,
    sub_backward,
    sum_backward,
    tanh_backward,
    var_backward,
    where_backward,
)
from ._core import add as add_forward
from ._core import binary_cross_entropy as binary_cross_entropy_forward
from ._core import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits_forward
from ._core import cos as cos_forward
from ._core import div as div_forward
from ._core import dropout_forward as dropout_backward
from ._core import embedding as embedding_forward
from ._core import erf as erf_forward
from ._core import exp as exp_forward
from ._core import gelu as gelu_forward
from ._core import gelu_tanh as gelu_tanh_forward
from ._core import global_max_pool1d as global_max_pool1d_forward
from ._core import log as log_forward
from ._core import log1p as log1p_forward
from ._core import masked_fill as masked_fill_forward
from ._core import matmul as matmul_forward
from ._core import max as max_forward
from ._core import maximum as maximum_forward
from ._core import mean as mean_forward
from ._core import min as min_forward
from ._core import minimum as minimum_forward
from ._core import mse_loss as mse_loss_forward
from ._core import mul as mul_forward
from ._core import neg as neg_forward
from ._core import pow as pow_forward
from ._core import reciprocal as reciprocal_forward
from ._core import relu as relu_forward
from ._core import remainder as remainder_forward
from ._core import rsqrt as rsqrt_forward
from ._core import sigmoid as sigmoid_forward
from ._core import sign as sign_forward
from ._core import sin as sin_forward
from ._core import sqrt as sqrt_forward
from ._core import square as square_forward
from ._core import sub as sub_forward
from ._core import sum as sum_forward
from ._core import tanh as tanh_forward
from ._core import tril as tril_forward
from ._core import triu as triu_forward
from ._core import var as var_forward
from ._core import where as where_forward


def global_max_pool1d_backward(dy, x, y):
    """dx of global_max_pool1d from its result y (B, C): the first of equal maxima over the sequence gets dy."""
    return max_backward(dy, x, y, 1)


def masked_fill_backward(dy, mask):
    """dx of masked_fill: dy, 0 where the mask is set."""
    return masked_fill(dy, mask, 0)


def triu_backward(dy, diagonal: int = 0):
    """dx of triu: the same triangle of dy."""
    return triu_forward(dy, diagonal)


def tril_backward(dy, diagonal: int = 0):
    """dx of tril: the same triangle of dy."""
    return tril_forward(dy, diagonal)


__all__ = [
    "abs_backward",
    "abs_forward",
    "add_backward",
    "add_forward",
    "add_layer_norm_backward",
    "add_layer_norm_forward",
    "attention_backward",
    "attention_forward",
    "binary_cross_entropy_backward",
    "binary_cross_entropy_forward",
    "binary_cross_entropy_with_logits_backward",
    "binary_cross_entropy_with_logits_forward",
    "cos_backward",
    "cos_forward",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "div_backward",
    "div_forward",
    "dropout_backward",
    "dropout_forward",
    "embedding_backward",
    "embedding_forward",
    "erf_backward",
    "erf_forward",
    "exp_backward",
    "exp_forward",
    "gelu_backward",
    "gelu_forward",
    "gelu_tanh_backward",
    "gelu_tanh_forward",
    "global_max_pool1d_backward",
    "global_max_pool1d_forward",
    "layer_norm_backward",
    "layer_norm_forward",
    "linear_backward",
    "linear_forward",
    "log1p_backward",
    "log1p_forward",
    "log_backward",
    "log_forward",
    "log_softmax_backward",
    "log_softmax_forward",
    "masked_fill_backward",
    "masked_fill_forward",
    "matmul_backward",
    "matmul_forward",
    "max_backward",
    "max_forward",
    "maximum_backward",
    "maximum_forward",
    "mean_backward",
    "mean_forward",
    "min_backward",
    "min_forward",
    "minimum_backward",
    "minimum_forward",
    "mse_loss_backward",
    "mse_loss_forward",
    "mul_backward",
    "mul_forward",
    "neg_backward",
    "neg_forward",
    "pow_backward",
    "pow_forward",
    "qkv_projection_backward",
    "qkv_projection_forward",
    "reciprocal_backward",
    "reciprocal_forward",
    "relu_backward",
    "relu_forward",
    "remainder_backward",
    "remainder_forward",
    "rsqrt_backward",
    "rsqrt_forward",
    "sigmoid_backward",
    "sigmoid_forward",
    "sign_backward",
    "sign_forward",
    "sin_backward",
    "sin_forward",
    "softmax_backward",
    "softmax_forward",
    "sqrt_backward",
    "sqrt_forward",
    "square_backward",
    "square_forward",
    "sub_backward",
    "sub_forward",
    "sum_backward",
    "sum_forward",
    "tanh_backward",
    "tanh_forward",
    "tril_backward",
    "tril_forward",
    "triu_backward",
    "triu_forward",
    "var_backward",
    "var_forward",
    "where_backward",
    "where_forward",
]
