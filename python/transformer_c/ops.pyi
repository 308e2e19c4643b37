"""The kernels without a tape. Written by tools/make_stub.py from the extension itself."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from ._core import Tensor

_bool = bool
_int = int
_float = float
_Shape = int | Sequence[int]

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
    "ceil_backward",
    "ceil_forward",
    "clamp_backward",
    "clamp_forward",
    "clamp_max_backward",
    "clamp_max_forward",
    "clamp_min_backward",
    "clamp_min_forward",
    "convolution_backward",
    "convolution_forward",
    "cos_backward",
    "cos_forward",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "cumsum_backward",
    "cumsum_forward",
    "div_backward",
    "div_forward",
    "dropout_backward",
    "dropout_forward",
    "elu_backward",
    "elu_forward",
    "embedding_backward",
    "embedding_forward",
    "erf_backward",
    "erf_forward",
    "exp_backward",
    "exp_forward",
    "floor_backward",
    "floor_forward",
    "geglu_backward",
    "geglu_forward",
    "gelu_backward",
    "gelu_forward",
    "gelu_tanh_backward",
    "gelu_tanh_forward",
    "global_max_pool1d_backward",
    "global_max_pool1d_forward",
    "hardsigmoid_backward",
    "hardsigmoid_forward",
    "hardswish_backward",
    "hardswish_forward",
    "kl_div_backward",
    "kl_div_forward",
    "layer_norm_backward",
    "layer_norm_forward",
    "leaky_relu_backward",
    "leaky_relu_forward",
    "linear_backward",
    "linear_forward",
    "log10_backward",
    "log10_forward",
    "log1p_backward",
    "log1p_forward",
    "log2_backward",
    "log2_forward",
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
    "nll_loss_backward",
    "nll_loss_forward",
    "pad_backward",
    "pad_forward",
    "pow_backward",
    "pow_forward",
    "qkv_projection_backward",
    "qkv_projection_forward",
    "reciprocal_backward",
    "reciprocal_forward",
    "relu6_backward",
    "relu6_forward",
    "relu_backward",
    "relu_forward",
    "remainder_backward",
    "remainder_forward",
    "rms_norm_backward",
    "rms_norm_forward",
    "rotary_backward",
    "rotary_forward",
    "round_backward",
    "round_forward",
    "rsqrt_backward",
    "rsqrt_forward",
    "sigmoid_backward",
    "sigmoid_forward",
    "sign_backward",
    "sign_forward",
    "silu_backward",
    "silu_forward",
    "sin_backward",
    "sin_forward",
    "smooth_l1_loss_backward",
    "smooth_l1_loss_forward",
    "softmax_backward",
    "softmax_forward",
    "softplus_backward",
    "softplus_forward",
    "sqrt_backward",
    "sqrt_forward",
    "square_backward",
    "square_forward",
    "sub_backward",
    "sub_forward",
    "sum_backward",
    "sum_forward",
    "swiglu_backward",
    "swiglu_forward",
    "tanh_backward",
    "tanh_forward",
    "transposed_convolution_backward",
    "transposed_convolution_forward",
    "tril_backward",
    "tril_forward",
    "triu_backward",
    "triu_forward",
    "trunc_backward",
    "trunc_forward",
    "var_backward",
    "var_forward",
    "where_backward",
    "where_forward",
]

def abs_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of abs, from dy and what it saved."""

def abs_forward(x: ArrayLike | Tensor) -> Any:
    """abs of x, element by element."""

def add_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of add."""

def add_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """add of a and b, element by element; they broadcast."""

def add_layer_norm_backward(dy: ArrayLike | Tensor, sum: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None, mean: ArrayLike | Tensor, rstd: ArrayLike | Tensor, *, dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any, Any, Any]:
    """dx, dresidual (the same without dropout), dgamma, dbeta of layer normalisation of the sum."""

def add_layer_norm_forward(x: ArrayLike | Tensor, residual: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None = None, beta: ArrayLike | Tensor | None = None, eps: _float = 1e-05, *, dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any, Any, Any]:
    """y, sum, mean, rstd of layer normalisation of x + residual over the last axis."""

def attention_backward(dvalues: ArrayLike | Tensor, q: ArrayLike | Tensor, k: ArrayLike | Tensor, v: ArrayLike | Tensor, values: ArrayLike | Tensor, shift: ArrayLike | Tensor, sum: ArrayLike | Tensor, *, attn_mask: ArrayLike | Tensor | None = None, bias: ArrayLike | Tensor | None = None, key_lengths: ArrayLike | Tensor | None = None, sequence_lengths: ArrayLike | Tensor | None = None, causal_offset: _int | ArrayLike | Tensor | None = None, is_causal: _bool = False, window: tuple[_int | None, _int | None] | None = None, scale: _float | None = None, softcap: _float = 0.0, enable_gqa: _bool = False, empty_rows: str = 'zero', dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any, Any, Any]:
    """dq, dk, dv, and dbias or None."""

def attention_forward(q: ArrayLike | Tensor, k: ArrayLike | Tensor, v: ArrayLike | Tensor, *, attn_mask: ArrayLike | Tensor | None = None, bias: ArrayLike | Tensor | None = None, key_lengths: ArrayLike | Tensor | None = None, sequence_lengths: ArrayLike | Tensor | None = None, causal_offset: _int | ArrayLike | Tensor | None = None, is_causal: _bool = False, window: tuple[_int | None, _int | None] | None = None, scale: _float | None = None, softcap: _float = 0.0, enable_gqa: _bool = False, empty_rows: str = 'zero', dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any, Any, Any]:
    """values, attention, shift, sum, where attention[i, j] = exp(score[i, j] - shift[i]) / sum[i]."""

def binary_cross_entropy_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, reduction: str = 'mean') -> tuple[Any, Any]:
    """dinput and dtarget of binary_cross_entropy."""

def binary_cross_entropy_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, reduction: str = 'mean') -> Any:
    """Binary cross-entropy of probabilities, logarithms cut off at -100."""

def binary_cross_entropy_with_logits_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, pos_weight: ArrayLike | Tensor | None = None, reduction: str = 'mean') -> tuple[Any, Any]:
    """dinput and dtarget of binary_cross_entropy_with_logits."""

def binary_cross_entropy_with_logits_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, pos_weight: ArrayLike | Tensor | None = None, reduction: str = 'mean') -> Any:
    """Binary cross-entropy of logits, without overflow."""

def ceil_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of ceil, from dy and what it saved."""

def ceil_forward(x: ArrayLike | Tensor) -> Any:
    """ceil of x, element by element."""

def clamp_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of clamp between two numbers: dy where y is x, 0 elsewhere."""

def clamp_forward(x: ArrayLike | Tensor, min: _int | _float | ArrayLike | Tensor, max: _int | _float | ArrayLike | Tensor) -> Any:
    """x between the bounds, which are tensors or numbers; max where they are crossed."""

def clamp_max_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of clamp_max."""

def clamp_max_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """clamp_max of a and b, element by element; they broadcast."""

def clamp_min_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of clamp_min."""

def clamp_min_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """clamp_min of a and b, element by element; they broadcast."""

def convolution_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, weight: ArrayLike | Tensor, stride: _Shape, padding: _Shape, dilation: _Shape, groups: _int = 1) -> tuple[Any, Any, Any]:
    """dx, dweight, dbias of convolution."""

def convolution_forward(x: ArrayLike | Tensor, weight: ArrayLike | Tensor, bias: ArrayLike | Tensor | None, stride: _Shape, padding: _Shape, dilation: _Shape, groups: _int = 1) -> Any:
    """Products over windows of one to three axes."""

def cos_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of cos, from dy and what it saved."""

def cos_forward(x: ArrayLike | Tensor) -> Any:
    """cos of x, element by element."""

def cross_entropy_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, top: ArrayLike | Tensor, log_sum: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, ignore_index: _int = -100, reduction: str = 'mean', label_smoothing: _float = 0.0) -> Any:
    """dinput of cross_entropy."""

def cross_entropy_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, ignore_index: _int = -100, reduction: str = 'mean', label_smoothing: _float = 0.0) -> tuple[Any, Any, Any]:
    """loss, and of each row the largest logit and log sum e^(x - largest); target holds classes."""

def cumsum_backward(dy: ArrayLike | Tensor, axis: _int, reverse: _bool = False) -> Any:
    """dx of cumsum: the sums of dy from the other end."""

def cumsum_forward(x: ArrayLike | Tensor, axis: _int, reverse: _bool = False) -> Any:
    """Sums from the beginning of the axis up to each element; reverse: from each to the end."""

def div_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of div."""

def div_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """div of a and b, element by element; they broadcast."""

def dropout_backward(dy: ArrayLike | Tensor, p: _float, seed: _int, call: _int) -> Any:
    """dx of dropout: the same elements of dy."""

def dropout_forward(x: ArrayLike | Tensor, p: _float, seed: _int, call: _int) -> Any:
    """dropout, not recorded."""

def elu_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of elu."""

def elu_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """elu of a and b, element by element; they broadcast."""

def embedding_backward(dy: ArrayLike | Tensor, indices: ArrayLike | Tensor, num_embeddings: _int, padding_idx: _int | None = None) -> Any:
    """dweight of embedding."""

def embedding_forward(indices: ArrayLike | Tensor, weight: ArrayLike | Tensor, padding_idx: _int | None = None) -> Any:
    """Rows of a table; the row padding_idx gets no gradient."""

def erf_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of erf, from dy and what it saved."""

def erf_forward(x: ArrayLike | Tensor) -> Any:
    """erf of x, element by element."""

def exp_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of exp, from dy and what it saved."""

def exp_forward(x: ArrayLike | Tensor) -> Any:
    """exp of x, element by element."""

def floor_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of floor, from dy and what it saved."""

def floor_forward(x: ArrayLike | Tensor) -> Any:
    """floor of x, element by element."""

def geglu_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of geglu."""

def geglu_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """geglu of a and b, element by element; they broadcast."""

def gelu_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of gelu, from dy and what it saved."""

def gelu_forward(x: ArrayLike | Tensor) -> Any:
    """gelu of x, element by element."""

def gelu_tanh_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of gelu_tanh, from dy and what it saved."""

def gelu_tanh_forward(x: ArrayLike | Tensor) -> Any:
    """gelu_tanh of x, element by element."""

def global_max_pool1d_backward(dy: Any, x: Any, y: Any) -> Any:
    """dx of global_max_pool1d from its result y (B, C): of several equal maxima over the sequence, the first gets dy."""

def global_max_pool1d_forward(x: ArrayLike | Tensor) -> Any:
    """The largest over T of x (B, T, C); the first of equal maxima gets the gradient."""

def hardsigmoid_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of hardsigmoid, from dy and what it saved."""

def hardsigmoid_forward(x: ArrayLike | Tensor) -> Any:
    """hardsigmoid of x, element by element."""

def hardswish_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of hardswish, from dy and what it saved."""

def hardswish_forward(x: ArrayLike | Tensor) -> Any:
    """hardswish of x, element by element."""

def kl_div_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, reduction: str = 'mean', log_target: _bool = False) -> tuple[Any, Any]:
    """dinput and dtarget of kl_div."""

def kl_div_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, reduction: str = 'mean', log_target: _bool = False) -> Any:
    """Kullback-Leibler divergence of log probabilities from a target, element by element."""

def layer_norm_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None, mean: ArrayLike | Tensor, rstd: ArrayLike | Tensor) -> tuple[Any, Any, Any]:
    """dx, dgamma, dbeta of layer normalisation over the last axis."""

def layer_norm_forward(x: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None = None, beta: ArrayLike | Tensor | None = None, eps: _float = 1e-05) -> tuple[Any, Any, Any]:
    """y, mean, rstd of layer normalisation over the last axis."""

def leaky_relu_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of leaky_relu."""

def leaky_relu_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """leaky_relu of a and b, element by element; they broadcast."""

def linear_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, weight: ArrayLike | Tensor, pre: ArrayLike | Tensor | None = None, activation: str | None = None, *, sequence_lengths: _int | ArrayLike | Tensor | None = None, dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any, Any]:
    """dx, dweight, dbias of linear; that of its residual is dy."""

def linear_forward(x: ArrayLike | Tensor, weight: ArrayLike | Tensor, bias: ArrayLike | Tensor | None = None, activation: str | None = None, residual: ArrayLike | Tensor | None = None, *, sequence_lengths: _int | ArrayLike | Tensor | None = None, dropout: _float = 0.0, seed: _int | None = None, call: _int | None = None) -> tuple[Any, Any]:
    """y, and what the activation was applied to (None without one)."""

def log10_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of log10, from dy and what it saved."""

def log10_forward(x: ArrayLike | Tensor) -> Any:
    """log10 of x, element by element."""

def log1p_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of log1p, from dy and what it saved."""

def log1p_forward(x: ArrayLike | Tensor) -> Any:
    """log1p of x, element by element."""

def log2_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of log2, from dy and what it saved."""

def log2_forward(x: ArrayLike | Tensor) -> Any:
    """log2 of x, element by element."""

def log_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of log, from dy and what it saved."""

def log_forward(x: ArrayLike | Tensor) -> Any:
    """log of x, element by element."""

def log_softmax_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor, dim: _int = -1) -> Any:
    """dx of log_softmax from its result."""

def log_softmax_forward(x: ArrayLike | Tensor, dim: _int = -1) -> Any:
    """log_softmax, not recorded."""

def masked_fill_backward(dy: Any, mask: Any) -> Any:
    """dx of masked_fill: dy, 0 where the mask is set."""

def masked_fill_forward(x: ArrayLike | Tensor, mask: ArrayLike | Tensor, value: _int | _float | ArrayLike | Tensor) -> Any:
    """x with `value`, a number or a Tensor of one element, where the bool mask is set."""

def matmul_backward(dc: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of matmul."""

def matmul_forward(a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> Any:
    """The matrix product with NumPy's broadcasting."""

def max_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, y: ArrayLike | Tensor, axis: _Shape | None = None, *, dim: _Shape | None = None) -> Any:
    """dx of max from its result y; ties as max says."""

def max_forward(x: ArrayLike | Tensor, axis: _Shape | None = None, keepdims: _bool = False, *, dim: _Shape | None = None, keepdim: _bool | None = None) -> Any:
    """Largest value over the axes (all when None), NaN when there is one. Over one axis the first of equal maxima gets the gradient, over several they share it."""

def maximum_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of maximum."""

def maximum_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """maximum of a and b, element by element; they broadcast."""

def mean_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, axis: _Shape | None = None, *, dim: _Shape | None = None) -> Any:
    """dx of mean; x gives the shape."""

def mean_forward(x: ArrayLike | Tensor, axis: _Shape | None = None, keepdims: _bool = False, *, dim: _Shape | None = None, keepdim: _bool | None = None) -> Any:
    """Mean over the axes (all when None)."""

def min_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, y: ArrayLike | Tensor, axis: _Shape | None = None, *, dim: _Shape | None = None) -> Any:
    """dx of min from its result y; ties as max says."""

def min_forward(x: ArrayLike | Tensor, axis: _Shape | None = None, keepdims: _bool = False, *, dim: _Shape | None = None, keepdim: _bool | None = None) -> Any:
    """Smallest value over the axes (all when None); see max."""

def minimum_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of minimum."""

def minimum_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """minimum of a and b, element by element; they broadcast."""

def mse_loss_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, reduction: str = 'mean') -> tuple[Any, Any]:
    """dinput and dtarget of mse_loss."""

def mse_loss_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, reduction: str = 'mean') -> Any:
    """Squared differences: their mean, their sum, or each."""

def mul_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of mul."""

def mul_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """mul of a and b, element by element; they broadcast."""

def neg_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of neg, from dy and what it saved."""

def neg_forward(x: ArrayLike | Tensor) -> Any:
    """neg of x, element by element."""

def nll_loss_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, ignore_index: _int = -100, reduction: str = 'mean') -> Any:
    """dinput of nll_loss."""

def nll_loss_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, weight: ArrayLike | Tensor | None = None, ignore_index: _int = -100, reduction: str = 'mean') -> Any:
    """Negative log-likelihood: cross-entropy of log probabilities, classes on axis 1."""

def pad_backward(dy: ArrayLike | Tensor, pads: _Shape) -> Any:
    """dx of pad: dy without what was added."""

def pad_forward(x: ArrayLike | Tensor, pads: _Shape, value: _float = 0.0) -> Any:
    """x with a value around it: numbers before and after the last axis, ..."""

def pow_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of pow."""

def pow_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """pow of a and b, element by element; they broadcast."""

def qkv_projection_backward(dq: ArrayLike | Tensor | None, dk: ArrayLike | Tensor | None, dv: ArrayLike | Tensor | None, x: ArrayLike | Tensor, weight: ArrayLike | Tensor, num_heads: _int = 1, packing: str = 'head', *, sequence_lengths: _int | ArrayLike | Tensor | None = None) -> tuple[Any, Any, Any]:
    """dx, dweight, dbias of qkv_projection."""

def qkv_projection_forward(x: ArrayLike | Tensor, weight: ArrayLike | Tensor, bias: ArrayLike | Tensor | None = None, num_heads: _int = 1, packing: str = 'head', *, sequence_lengths: _int | ArrayLike | Tensor | None = None) -> tuple[Any, Any, Any]:
    """q, k, v (..., H, T, D) of x (..., T, C)."""

def reciprocal_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of reciprocal, from dy and what it saved."""

def reciprocal_forward(x: ArrayLike | Tensor) -> Any:
    """reciprocal of x, element by element."""

def relu6_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of relu6, from dy and what it saved."""

def relu6_forward(x: ArrayLike | Tensor) -> Any:
    """relu6 of x, element by element."""

def relu_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of relu, from dy and what it saved."""

def relu_forward(x: ArrayLike | Tensor) -> Any:
    """relu of x, element by element."""

def remainder_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of remainder."""

def remainder_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """remainder of a and b, element by element; they broadcast."""

def rms_norm_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None, rstd: ArrayLike | Tensor) -> tuple[Any, Any]:
    """dx, dgamma of RMS normalisation over the last axis."""

def rms_norm_forward(x: ArrayLike | Tensor, gamma: ArrayLike | Tensor | None = None, eps: _float | None = None) -> tuple[Any, Any]:
    """y, rstd of RMS normalisation over the last axis."""

def rotary_backward(dy: ArrayLike | Tensor, positions: ArrayLike | Tensor | None = None, *, base: _float = 10000.0, pairing: str = 'half') -> Any:
    """dx of rotary: dy, rotated back."""

def rotary_forward(x: ArrayLike | Tensor, positions: ArrayLike | Tensor | None = None, *, base: _float = 10000.0, pairing: str = 'half') -> Any:
    """Pairs of the last axis rotated by angles that grow with the position."""

def round_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of round, from dy and what it saved."""

def round_forward(x: ArrayLike | Tensor) -> Any:
    """round of x, element by element."""

def rsqrt_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of rsqrt, from dy and what it saved."""

def rsqrt_forward(x: ArrayLike | Tensor) -> Any:
    """rsqrt of x, element by element."""

def sigmoid_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of sigmoid, from dy and what it saved."""

def sigmoid_forward(x: ArrayLike | Tensor) -> Any:
    """sigmoid of x, element by element."""

def sign_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of sign, from dy and what it saved."""

def sign_forward(x: ArrayLike | Tensor) -> Any:
    """sign of x, element by element."""

def silu_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of silu, from dy and what it saved."""

def silu_forward(x: ArrayLike | Tensor) -> Any:
    """silu of x, element by element."""

def sin_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of sin, from dy and what it saved."""

def sin_forward(x: ArrayLike | Tensor) -> Any:
    """sin of x, element by element."""

def smooth_l1_loss_backward(dloss: ArrayLike | Tensor, input: ArrayLike | Tensor, target: ArrayLike | Tensor, beta: _float = 1.0, reduction: str = 'mean') -> tuple[Any, Any]:
    """dinput and dtarget of smooth_l1_loss."""

def smooth_l1_loss_forward(input: ArrayLike | Tensor, target: ArrayLike | Tensor, beta: _float = 1.0, reduction: str = 'mean') -> Any:
    """Absolute differences, smooth where they are smaller than beta."""

def softmax_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor, dim: _int = -1) -> Any:
    """dx of softmax from its result."""

def softmax_forward(x: ArrayLike | Tensor, dim: _int = -1) -> Any:
    """softmax, not recorded."""

def softplus_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of softplus."""

def softplus_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """softplus of a and b, element by element; they broadcast."""

def sqrt_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of sqrt, from dy and what it saved."""

def sqrt_forward(x: ArrayLike | Tensor) -> Any:
    """sqrt of x, element by element."""

def square_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor) -> Any:
    """dx of square, from dy and what it saved."""

def square_forward(x: ArrayLike | Tensor) -> Any:
    """square of x, element by element."""

def sub_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of sub."""

def sub_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """sub of a and b, element by element; they broadcast."""

def sum_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, axis: _Shape | None = None, *, dim: _Shape | None = None) -> Any:
    """dx of sum: dy, spread over the axes; x gives the shape."""

def sum_forward(x: ArrayLike | Tensor, axis: _Shape | None = None, keepdims: _bool = False, *, dim: _Shape | None = None, keepdim: _bool | None = None) -> Any:
    """Sum over the axes (all when None); integers and bools to int64."""

def swiglu_backward(dy: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of swiglu."""

def swiglu_forward(a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """swiglu of a and b, element by element; they broadcast."""

def tanh_backward(dy: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Any:
    """dx of tanh, from dy and what it saved."""

def tanh_forward(x: ArrayLike | Tensor) -> Any:
    """tanh of x, element by element."""

def transposed_convolution_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, weight: ArrayLike | Tensor, stride: _Shape, padding: _Shape, dilation: _Shape, groups: _int = 1) -> tuple[Any, Any, Any]:
    """dx, dweight, dbias of transposed_convolution."""

def transposed_convolution_forward(x: ArrayLike | Tensor, weight: ArrayLike | Tensor, bias: ArrayLike | Tensor | None, stride: _Shape, padding: _Shape, output_padding: _Shape, dilation: _Shape, groups: _int = 1) -> Any:
    """Each element times a kernel, added up where the windows overlap: the gradient of x of a convolution."""

def tril_backward(dy: ArrayLike | Tensor, diagonal: _int = 0) -> Any:
    """dx of tril: the same triangle of dy."""

def tril_forward(input: ArrayLike | Tensor, diagonal: _int = 0) -> Any:
    """The lower triangle of matrices."""

def triu_backward(dy: ArrayLike | Tensor, diagonal: _int = 0) -> Any:
    """dx of triu: the same triangle of dy."""

def triu_forward(input: ArrayLike | Tensor, diagonal: _int = 0) -> Any:
    """The upper triangle of matrices."""

def trunc_backward(dy: ArrayLike | Tensor) -> Any:
    """dx of trunc, from dy and what it saved."""

def trunc_forward(x: ArrayLike | Tensor) -> Any:
    """trunc of x, element by element."""

def var_backward(dy: ArrayLike | Tensor, x: ArrayLike | Tensor, axis: _Shape | None = None, *, dim: _Shape | None = None, correction: _float = 1.0) -> Any:
    """dx of var."""

def var_forward(x: ArrayLike | Tensor, axis: _Shape | None = None, keepdims: _bool = False, *, dim: _Shape | None = None, keepdim: _bool | None = None, correction: _float = 1.0, unbiased: _bool | None = None) -> Any:
    """Mean squared difference from the mean, over count - correction; unbiased=False: correction 0."""

def where_backward(dy: ArrayLike | Tensor, condition: ArrayLike | Tensor, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> tuple[Any, Any]:
    """da and db of where, in the shapes of a and b."""

def where_forward(condition: ArrayLike | Tensor, a: _int | _float | ArrayLike | Tensor, b: _int | _float | ArrayLike | Tensor) -> Any:
    """a where the condition is set, b elsewhere; the three broadcast."""
