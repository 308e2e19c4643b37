"""Every op of transformer_c in float64 NumPy, written for readability and sharing no code with the library; its tests compare with it.

Conventions
  - Arrays in, float64 arrays out; arguments of any dtype are widened first, so that a float32 kernel is compared with the exact
    result of its own float32 inputs.
  - `f` is the forward, `f_backward(dy, ...)` takes the gradient of the output and then the forward's arguments, and returns one
    gradient per array argument, in their order (None for an argument that was None).
  - Names and options are those of the public functions: B batch, T sequence (Tq, Tk), C embedding, H heads, D head size.
  - Dropout is given as an array of multipliers: 0 where dropped, 1 / (1 - p) elsewhere.

`numerical_gradient` differentiates functions that have no analytic backward here, and tests the backwards that exist.
"""

import math

import numpy as np

NEGATIVE = -9e15  # the tutorial's score where mask == 0
_erf = np.frompyfunc(math.erf, 1, 1)


def f64(x):
    """The argument as float64; None stays None."""
    return None if x is None else np.asarray(x).astype(np.float64)


def sum_to(gradient, shape):
    """The gradient of a broadcast: sums over the axes along which `shape` was stretched."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1)
    return gradient.sum(axis=stretched, keepdims=True)


def swap(x):
    """The transpose of the last two axes."""
    return np.swapaxes(x, -1, -2)


def numerical_gradient(f, inputs, dy=None, eps=1e-6):
    """Central differences of sum(f(*inputs) * dy) with respect to each input, entry by entry; f gives an array or a number."""
    inputs = [f64(x).copy() for x in inputs]
    dy = np.ones(np.shape(f(*inputs))) if dy is None else f64(dy)
    gradients = []
    for x in inputs:
        gradient = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            kept = x[index]
            x[index] = kept + eps
            above = np.asarray(f(*inputs))
            x[index] = kept - eps
            below = np.asarray(f(*inputs))
            x[index] = kept
            gradient[index] = np.sum((above - below) * dy) / (2 * eps)
        gradients.append(gradient)
    return gradients


# ---- element-wise --------------------------------------------------------------------------------------------------


def relu(x):
    return np.maximum(f64(x), 0)  # NaN stays NaN


def relu_backward(dy, x):
    return f64(dy) * (f64(x) > 0)  # 0 at 0, as in PyTorch


def sigmoid(x):
    x = f64(x)
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def sigmoid_backward(dy, x):
    y = sigmoid(x)
    return f64(dy) * y * (1 - y)


def tanh(x):
    return np.tanh(f64(x))


def tanh_backward(dy, x):
    return f64(dy) * (1 - np.tanh(f64(x)) ** 2)


def erf(x):
    return np.asarray(_erf(f64(x)), np.float64)


def gelu(x, approximate="none"):
    """Hendrycks and Gimpel 2016: x Phi(x), or its tanh approximation."""
    x = f64(x)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_backward(dy, x, approximate="none"):
    x = f64(x)
    if approximate == "tanh":
        t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return f64(dy) * 0.5 * (1 + t + x * (1 - t**2) * slope)
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return f64(dy) * (0.5 * (1 + erf(x / math.sqrt(2))) + x * density)


def silu(x):
    return f64(x) * sigmoid(x)


def silu_backward(dy, x):
    return f64(dy) * sigmoid(x) * (1 + f64(x) * (1 - sigmoid(x)))


def swiglu(gate, up):
    return silu(gate) * f64(up)


def swiglu_backward(dy, gate, up):
    return silu_backward(dy, gate) * f64(up), f64(dy) * silu(gate) + 0 * f64(up)


def leaky_relu(x, negative_slope=0.01):
    return np.where(f64(x) > 0, f64(x), f64(x) * negative_slope)


def leaky_relu_backward(dy, x, negative_slope=0.01):
    """dx, and the gradient of the slope, which is not summed."""
    return f64(dy) * np.where(f64(x) > 0, 1, negative_slope), f64(dy) * np.where(f64(x) > 0, 0, f64(x))


def elu(x, alpha=1.0):
    """Clevert et al. 2016, eq. 15."""
    return np.where(f64(x) > 0, f64(x), alpha * np.expm1(np.minimum(f64(x), 0)))


def elu_backward(dy, x, alpha=1.0):
    """dx, and the gradient of alpha, which is not summed."""
    below = np.minimum(f64(x), 0)
    return f64(dy) * np.where(f64(x) > 0, 1, alpha * np.exp(below)), f64(dy) * np.where(f64(x) > 0, 0, np.expm1(below))


def softplus(x, beta=1.0):
    """log(1 + e^(beta x)) / beta; x itself where beta x > 20, as in PyTorch."""
    z = f64(x) * beta
    return np.where(z > 20, f64(x), np.log1p(np.exp(np.minimum(z, 20))) / beta)


def softplus_backward(dy, x, beta=1.0):
    """dx, and the gradient of beta, which is not summed."""
    z = f64(x) * beta
    dbeta = (f64(x) * sigmoid(z) - np.log1p(np.exp(np.minimum(z, 20))) / beta) / beta
    return f64(dy) * np.where(z > 20, 1, sigmoid(z)), f64(dy) * np.where(z > 20, 0, dbeta)


def geglu(gate, up):
    return gelu(gate) * f64(up)


def geglu_backward(dy, gate, up):
    return gelu_backward(dy, gate) * f64(up), f64(dy) * gelu(gate) + 0 * f64(up)


ACTIVATIONS = {
    None: (f64, lambda dy, x: f64(dy)),
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "gelu_tanh": (lambda x: gelu(x, "tanh"), lambda dy, x: gelu_backward(dy, x, "tanh")),
    "tanh": (tanh, tanh_backward),
    "sigmoid": (sigmoid, sigmoid_backward),
}


def dropout(x, multiplier):
    return f64(x) * f64(multiplier)


def dropout_backward(dy, multiplier):
    return f64(dy) * f64(multiplier)


def cumsum(x, axis):
    """Running sums along an axis."""
    return f64(x).cumsum(axis)


def cumsum_backward(dy, axis):
    return np.flip(np.flip(f64(dy), axis).cumsum(axis), axis)


def _places(index, axis):
    """Where each element of `index` points to along the axis, as an index of the whole."""
    places = list(np.indices(index.shape))
    places[axis] = index
    return tuple(places)


def gather(x, axis, index):
    """y[i, j] = x[index[i, j], j] along axis 0."""
    return f64(x)[_places(index, axis)]


def gather_backward(dy, axis, index, shape):
    return scatter(np.zeros(shape), axis, index, dy, "add")


def scatter(x, axis, index, src, combination="put"):
    """y[index[i, j], j] = src[i, j] along axis 0, in this order; "add" and "multiply" combine it with what was there."""
    y, src = f64(x).copy(), f64(src)
    combine = {"put": lambda a, b: b, "add": lambda a, b: a + b, "multiply": lambda a, b: a * b}[combination]
    places = _places(index, axis)
    for at in np.ndindex(*index.shape):
        place = tuple(of_axis[at] for of_axis in places)
        y[place] = combine(y[place], src[at])
    return y


def scatter_backward(dy, axis, index, shape, combination="put"):
    """dx, and dsrc of `shape`."""
    dsrc = np.zeros(shape)
    dsrc[tuple(slice(n) for n in index.shape)] = gather(dy, axis, index)
    return f64(dy) if combination == "add" else scatter(dy, axis, index, np.zeros(index.shape)), dsrc


def rotary(x, positions=None, base=10000.0, pairing="half", inverse=False):
    x = f64(x)
    D = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else f64(positions)
    angles = np.broadcast_to(positions, x.shape[:-1])[..., None] * base ** (-2 * np.arange(D // 2) / D)
    pairs = x[..., 0::2] + 1j * x[..., 1::2] if pairing == "interleaved" else x[..., : D // 2] + 1j * x[..., D // 2 :]
    turned = pairs * np.exp(-1j * angles if inverse else 1j * angles)
    parts = (turned.real, turned.imag)
    return np.stack(parts, -1).reshape(x.shape) if pairing == "interleaved" else np.concatenate(parts, -1)


# ---- products ------------------------------------------------------------------------------------------------------


def matmul(a, b):
    return f64(a) @ f64(b)


def matmul_backward(dy, a, b):
    """a (..., M, K), b (..., K, N), leading axes broadcast."""
    dy, a, b = f64(dy), f64(a), f64(b)
    return sum_to(dy @ swap(b), a.shape), sum_to(swap(a) @ dy, b.shape)


def linear(x, weight, bias=None, activation=None, residual=None, multiplier=None):
    """activation(x weight^T + bias) * multiplier + residual, the multiplier (..., N) being dropout's.  x (..., K), weight (N, K), bias (N),
    residual (..., N)."""
    y = f64(x) @ f64(weight).T
    y = ACTIVATIONS[activation][0](y if bias is None else y + f64(bias)) * (1 if multiplier is None else f64(multiplier))
    return y if residual is None else y + f64(residual)


def linear_backward(dy, x, weight, bias=None, activation=None, residual=None, multiplier=None):
    """dx, dweight, dbias, dresidual."""
    dy, x, weight = f64(dy), f64(x), f64(weight)
    kept = dy if multiplier is None else dy * f64(multiplier)
    before = ACTIVATIONS[activation][1](kept, linear(x, weight, bias))
    count = math.prod(x.shape[:-1])
    rows = before.reshape(count, weight.shape[0])
    dweight = rows.T @ x.reshape(count, weight.shape[1])
    return before @ weight, dweight, None if bias is None else rows.sum(0), None if residual is None else dy


def head_order(num_heads, head_dim, packing):
    """The row of a packed projection for each (q, k or v; head; feature): integers (3, H, D).

    "per_head": [q_h | k_h | v_h] for each head, the tutorial's. "stacked": [Q | K | V], heads inside, torch.nn's.
    """
    rows = np.arange(3 * num_heads * head_dim)
    if packing == "per_head":
        return rows.reshape(num_heads, 3, head_dim).swapaxes(0, 1)
    if packing == "stacked":
        return rows.reshape(3, num_heads, head_dim)
    raise ValueError(f"unknown packing {packing!r}")


def qkv_projection(x, weight, bias=None, num_heads=1, packing="per_head"):
    """q, k, v (..., H, T, D) of x (..., T, C); weight (3 H D, C), bias (3 H D)."""
    weight = f64(weight)
    order = head_order(num_heads, weight.shape[0] // (3 * num_heads), packing)
    projected = linear(x, weight, bias)[..., order]  # (..., T, 3, H, D)
    return tuple(np.moveaxis(projected[..., part, :, :], -2, -3) for part in range(3))


def qkv_projection_backward(dq, dk, dv, x, weight, bias=None, num_heads=1, packing="per_head"):
    """dx, dweight, dbias."""
    x, weight = f64(x), f64(weight)
    order = head_order(num_heads, weight.shape[0] // (3 * num_heads), packing)
    dy = np.empty((*x.shape[:-1], weight.shape[0]))
    dy[..., order] = np.stack([np.moveaxis(f64(d), -3, -2) for d in (dq, dk, dv)], axis=-3)
    return linear_backward(dy, x, weight, bias)[:3]


# ---- softmax -------------------------------------------------------------------------------------------------------


def softmax(x, axis=-1):
    x = f64(x)
    e = np.exp(x - x.max(axis=axis, keepdims=True)) if x.size else x
    return e / e.sum(axis=axis, keepdims=True)


def softmax_backward(dy, x, axis=-1):
    y, dy = softmax(x, axis), f64(dy)
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


def logsumexp(x, axis=-1):
    x = f64(x)
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.squeeze(top, axis) + np.log(np.exp(x - top).sum(axis=axis))


def log_softmax(x, axis=-1):
    x = f64(x)
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def log_softmax_backward(dy, x, axis=-1):
    dy = f64(dy)
    return dy - softmax(x, axis) * dy.sum(axis=axis, keepdims=True)


# ---- attention -----------------------------------------------------------------------------------------------------


def scaled_dot_product(q, k, v, mask=None):
    """The tutorial's: softmax(q k^T / sqrt(d)) v with scores of -9e15 where mask == 0; gives values and attention."""
    q, k, v = f64(q), f64(k), f64(v)
    scores = q @ swap(k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(np.asarray(mask) == 0, NEGATIVE, scores)
    attention = softmax(scores)
    return attention @ v, attention


def scaled_dot_product_backward(dvalues, q, k, v, mask=None, dattention=None):
    """dq, dk, dv; `dattention` is the gradient of the second result, if it was used."""
    q, k, v, dvalues = f64(q), f64(k), f64(v), f64(dvalues)
    attention = scaled_dot_product(q, k, v, mask)[1]
    dp = dvalues @ swap(v) + (0 if dattention is None else f64(dattention))
    ds = attention * (dp - (dp * attention).sum(-1, keepdims=True))
    if mask is not None:
        ds = np.where(np.asarray(mask) == 0, 0, ds)
    ds = ds / math.sqrt(q.shape[-1])
    return sum_to(ds @ k, q.shape), sum_to(swap(ds) @ q, k.shape), sum_to(swap(attention) @ dvalues, v.shape)


def attention_allowed(shape, attn_mask=None, is_causal=False, bias=None, key_lengths=None, window=None, causal_offset=None):
    """Which of the scores, shape (B, ..., Tq, Tk), may be attended to: boolean, of that shape.

    Key j and query i: boolean mask True, additive mask and bias not -inf, j <= i + offset when causal,
    i + offset - left <= j <= i + offset + right inside a window, j < key_lengths[batch].
    """

    def per_batch(numbers):  # an integer, or (B,), against (B, ..., Tq, Tk)
        numbers = np.asarray(numbers)
        return numbers.reshape(numbers.shape + (1,) * (len(shape) - 1)) if numbers.ndim else numbers

    allowed = np.ones(shape, bool)
    for additive in (attn_mask, bias):
        if additive is not None:
            additive = np.asarray(additive)
            allowed = allowed & (additive if additive.dtype == bool else ~np.isneginf(f64(additive)))
    diagonal = np.arange(shape[-2])[:, None] + per_batch(0 if causal_offset is None else causal_offset)
    j = np.arange(shape[-1])
    left, right = window or (None, None)
    if is_causal:
        allowed = allowed & (j <= diagonal)
    if left is not None:
        allowed = allowed & (j >= diagonal - left)
    if right is not None:
        allowed = allowed & (j <= diagonal + right)
    if key_lengths is not None:
        allowed = allowed & (j < per_batch(key_lengths))
    return allowed


def _weigh(weights, x, used):
    """weights @ x, in which x takes no part where `used` is False: a weight of zero alone would let NaN through."""
    if np.isfinite(x).all():
        return weights @ x
    with np.errstate(invalid="ignore"):
        return np.where(used[..., None], weights[..., None] * x[..., None, :, :], 0).sum(-2)


def _attention_parts(q, k, v, attn_mask, is_causal, scale, enable_gqa, bias, key_lengths, window, softcap, causal_offset, empty_rows):
    """Values that forward and backward share: q, k, v with heads repeated, slope d(score)/d(q k^T), attention, lse, used, empty."""
    q, k, v = f64(q), f64(k), f64(v)
    if enable_gqa:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    with np.errstate(invalid="ignore"):  # NaN and infinity in masked keys
        scores = q @ swap(k) * scale
    slope = np.full_like(scores, scale)
    if softcap:
        capped = np.tanh(scores / softcap)
        scores, slope = softcap * capped, slope * (1 - capped**2)
    additive = [f64(x) for x in (attn_mask, bias) if x is not None and np.asarray(x).dtype != bool]
    shape = np.broadcast_shapes(scores.shape, (*v.shape[:-2], 1, 1), *(np.shape(x) for x in (attn_mask, bias) if x is not None))
    used = attention_allowed(shape, attn_mask, is_causal, bias, key_lengths, window, causal_offset)
    with np.errstate(invalid="ignore"):
        scores = np.where(used, sum(additive, scores), -np.inf)
    empty = ~used.any(-1, keepdims=True)  # (..., Tq, 1)
    if empty.any() and empty_rows == "raise":
        raise ValueError("a row may attend to nothing")
    lse = logsumexp(scores) if scores.shape[-1] else np.full(shape[:-1], -np.inf)
    attention = np.exp(scores - np.where(empty[..., 0], 0, lse)[..., None])  # zeros in empty rows
    if empty_rows == "uniform":
        attention = np.where(empty, 1 / max(1, shape[-1]), attention)
    return q, k, v, slope, attention, lse, used, empty


def attention(
    q,
    k,
    v,
    attn_mask=None,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    bias=None,
    key_lengths=None,
    window=None,
    softcap=0.0,
    causal_offset=None,
    empty_rows="zero",
    dropout_multiplier=None,
):
    """values (..., Tq, dv), attention (..., Tq, Tk), lse (..., Tq) of q (..., Tq, d), k (..., Tk, d), v (..., Tk, dv).

    Scores are scaled, capped, then masked; a row that may attend to nothing has lse -inf, and attends to nothing ("zero") or to
    every key alike ("uniform"). Dropout acts on the way to the values; the attention returned is the one before it.
    """
    _, _, v, _, p, lse, used, empty = _attention_parts(
        q, k, v, attn_mask, is_causal, scale, enable_gqa, bias, key_lengths, window, softcap, causal_offset, empty_rows
    )
    dropped = p if dropout_multiplier is None else p * f64(dropout_multiplier)
    return _weigh(dropped, v, used | empty if empty_rows == "uniform" else used), p, lse


def attention_backward(
    dvalues,
    q,
    k,
    v,
    attn_mask=None,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    bias=None,
    key_lengths=None,
    window=None,
    softcap=0.0,
    causal_offset=None,
    empty_rows="zero",
    dropout_multiplier=None,
    dattention=None,
    dlse=None,
):
    """dq, dk, dv, dbias; `dattention` and `dlse` are the gradients of the other two results, if they were used."""
    shapes = [np.shape(x) for x in (q, k, v)]
    q, k, v, slope, p, _, used, _empty = _attention_parts(
        q, k, v, attn_mask, is_causal, scale, enable_gqa, bias, key_lengths, window, softcap, causal_offset, empty_rows
    )
    dvalues, multiplier = f64(dvalues), 1.0 if dropout_multiplier is None else f64(dropout_multiplier)
    with np.errstate(invalid="ignore"):
        dp = np.where(used, dvalues @ swap(v) * multiplier, 0) + (0 if dattention is None else f64(dattention))
        ds = p * (dp - (dp * p).sum(-1, keepdims=True) + (0 if dlse is None else f64(dlse)[..., None]))
        ds = np.where(used, ds, 0)
        dscores = np.where(used, ds * slope, 0)
    dq = _weigh(dscores, k, used)
    dk = _weigh(swap(dscores), q, swap(used))
    dv = swap(p * multiplier) @ dvalues
    if enable_gqa:
        group = q.shape[-3] // shapes[1][-3]
        dk, dv = (d.reshape((*d.shape[:-3], shapes[1][-3], group, *d.shape[-2:])).sum(-3) for d in (dk, dv))
    return *(sum_to(d, shape) for d, shape in zip((dq, dk, dv), shapes, strict=True)), None if bias is None else sum_to(ds, np.shape(bias))


# ---- normalisation -------------------------------------------------------------------------------------------------


def layer_norm(x, gamma=None, beta=None, eps=1e-5, normalized_ndim=1):
    """y, mean, rstd over the last axes (Ba et al. 2016); mean and rstd keep the leading axes only."""
    x = f64(x)
    axes = tuple(range(x.ndim - normalized_ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    y = (x - mean) * rstd * (1 if gamma is None else f64(gamma)) + (0 if beta is None else f64(beta))
    return y, mean.squeeze(axes), rstd.squeeze(axes)


def layer_norm_backward(dy, x, gamma=None, beta=None, eps=1e-5, normalized_ndim=1):
    """dx, dgamma, dbeta."""
    x, dy = f64(x), f64(dy)
    axes = tuple(range(x.ndim - normalized_ndim, x.ndim))
    leading = tuple(range(x.ndim - normalized_ndim))
    mean = x.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    xhat = (x - mean) * rstd
    dxhat = dy * (1 if gamma is None else f64(gamma))
    dx = rstd * (dxhat - dxhat.mean(axis=axes, keepdims=True) - xhat * (dxhat * xhat).mean(axis=axes, keepdims=True))
    return dx, None if gamma is None else (dy * xhat).sum(leading), None if beta is None else dy.sum(leading)


def add_layer_norm(x, residual, gamma=None, beta=None, eps=1e-5, multiplier=None):
    """layer_norm(x * multiplier + residual): y, sum, mean, rstd; the multiplier is dropout's."""
    total = f64(x) * (1 if multiplier is None else f64(multiplier)) + f64(residual)
    y, mean, rstd = layer_norm(total, gamma, beta, eps)
    return y, total, mean, rstd


def add_layer_norm_backward(dy, x, residual, gamma=None, beta=None, eps=1e-5, multiplier=None):
    """dx, dresidual, dgamma, dbeta."""
    total = add_layer_norm(x, residual, gamma, beta, eps, multiplier)[1]
    dtotal, dgamma, dbeta = layer_norm_backward(dy, total, gamma, beta, eps)
    return dtotal * (1 if multiplier is None else f64(multiplier)), dtotal, dgamma, dbeta


def rms_norm(x, gamma=None, eps=0.0, normalized_ndim=1):
    """y, rstd over the last axes (Zhang and Sennrich 2019)."""
    x = f64(x)
    axes = tuple(range(x.ndim - normalized_ndim, x.ndim))
    rstd = 1 / np.sqrt((x**2).mean(axis=axes, keepdims=True) + eps)
    return x * rstd * (1 if gamma is None else f64(gamma)), rstd.squeeze(axes)


def rms_norm_backward(dy, x, gamma=None, eps=0.0):
    """dx, dgamma over the last axis."""
    dy, rstd = f64(dy), rms_norm(x, None, eps)[1][..., None]
    xhat, g = f64(x) * rstd, dy * (1 if gamma is None else f64(gamma))
    dx = rstd * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx, None if gamma is None else (dy * xhat).sum(tuple(range(dy.ndim - 1)))


# ---- losses --------------------------------------------------------------------------------------------------------


def _reduce(losses, reduction, count=None):
    if reduction == "none":
        return losses
    return losses.sum() / ((losses.size if count is None else count) if reduction == "mean" else 1)


def _spread(dloss, losses_shape, reduction, count=None):
    """The gradient that reaches each unreduced loss."""
    size = math.prod(losses_shape) if count is None else count
    return np.broadcast_to(f64(dloss) / (size if reduction == "mean" else 1), losses_shape)


def _cross_entropy_parts(logits, target, weight, ignore_index, label_smoothing):
    """logits (N.., C), weighted target distribution (N.., C), count that "mean" divides by, the shape of the losses."""
    logits, target = f64(logits), np.asarray(target)
    logits = logits if logits.ndim == 1 else np.moveaxis(logits, 1, -1)
    classes = logits.shape[-1]
    weight = np.ones(classes) if weight is None else f64(weight)
    if target.dtype.kind == "f":  # class probabilities, laid out as the logits
        target = f64(target if target.ndim == 1 else np.moveaxis(target, 1, -1))
        count = max(1, math.prod(logits.shape[:-1]))
        return logits, weight * (target * (1 - label_smoothing) + label_smoothing / classes), count
    kept = target != ignore_index
    index = np.where(kept, target, 0)
    smoothed = np.eye(classes)[index] * (1 - label_smoothing) + label_smoothing / classes
    return logits, weight * smoothed * kept[..., None], (weight[index] * kept).sum()


def cross_entropy(logits, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """logits (C) or (N, C, ...): classes on axis 1; target: class indices without that axis, or probabilities with it."""
    logits, wanted, count = _cross_entropy_parts(logits, target, weight, ignore_index, label_smoothing)
    with np.errstate(invalid="ignore", divide="ignore"):  # every target ignored: 0 / 0, NaN as in PyTorch
        return _reduce(-(wanted * log_softmax(logits)).sum(-1), reduction, count)


def cross_entropy_backward(dloss, logits, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    rows, wanted, count = _cross_entropy_parts(logits, target, weight, ignore_index, label_smoothing)
    drows = softmax(rows) * wanted.sum(-1, keepdims=True) - wanted
    drows = drows * _spread(dloss, rows.shape[:-1], reduction, count)[..., None]
    return drows if drows.ndim == 1 else np.moveaxis(drows, -1, 1)


def mse_loss(x, target, reduction="mean"):
    return _reduce((f64(x) - f64(target)) ** 2, reduction)


def mse_loss_backward(dloss, x, target, reduction="mean"):
    """dx, dtarget."""
    dx = 2 * (f64(x) - f64(target)) * _spread(dloss, np.shape(x), reduction)
    return dx, -dx


def smooth_l1_loss(x, target, beta=1.0, reduction="mean"):
    """With beta 0 the absolute difference."""
    d = np.abs(f64(x) - f64(target))
    return _reduce(d if beta == 0 else np.where(d < beta, d**2 / (2 * beta), d - beta / 2), reduction)


def smooth_l1_loss_backward(dloss, x, target, beta=1.0, reduction="mean"):
    """dx, dtarget."""
    d = f64(x) - f64(target)
    dx = np.sign(d) if beta == 0 else np.clip(d / beta, -1, 1)
    dx = dx * _spread(dloss, np.shape(x), reduction)
    return dx, -dx


def kl_div(x, target, reduction="mean", log_target=False):
    """target (log target - x), where x contains logarithms, and those of the target with log_target."""
    x, target = f64(x), f64(target)
    t, log = (np.exp(target), target) if log_target else (target, np.log(np.where(target == 0, 1, target)))
    return _reduce(t * (log - x), reduction)


def kl_div_backward(dloss, x, target, reduction="mean", log_target=False):
    """dx, dtarget."""
    x, target = f64(x), f64(target)
    with np.errstate(divide="ignore"):
        dx, dtarget = (-np.exp(target), np.exp(target) * (1 + target - x)) if log_target else (-target, np.log(target) + 1 - x)
    spread = _spread(dloss, x.shape, reduction)
    return dx * spread, dtarget * spread


def nll_loss(log_probabilities, target, weight=None, ignore_index=-100, reduction="mean"):
    """(C) or (N, C, ...): classes on axis 1; target: class indices without that axis."""
    rows, wanted, count = _cross_entropy_parts(log_probabilities, target, weight, ignore_index, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _reduce(-np.where(wanted == 0, 0, wanted * rows).sum(-1), reduction, count)


def nll_loss_backward(dloss, log_probabilities, target, weight=None, ignore_index=-100, reduction="mean"):
    rows, wanted, count = _cross_entropy_parts(log_probabilities, target, weight, ignore_index, 0.0)
    drows = -wanted * _spread(dloss, rows.shape[:-1], reduction, count)[..., None]
    return drows if drows.ndim == 1 else np.moveaxis(drows, -1, 1)


def binary_cross_entropy(x, target, weight=None, reduction="mean"):
    """Probabilities; logarithms are cut off at -100, as in PyTorch."""
    p, target = f64(x), f64(target)
    with np.errstate(divide="ignore"):
        losses = -(target * np.maximum(np.log(p), -100) + (1 - target) * np.maximum(np.log1p(-p), -100))
    return _reduce(losses if weight is None else losses * f64(weight), reduction)


def binary_cross_entropy_backward(dloss, x, target, weight=None, reduction="mean"):
    p, target = f64(x), f64(target)
    dp = (p - target) / np.maximum(p * (1 - p), 1e-12) * (1 if weight is None else f64(weight))
    return dp * _spread(dloss, dp.shape, reduction)


def binary_cross_entropy_with_logits(x, target, weight=None, pos_weight=None, reduction="mean"):
    """sigmoid inside; `pos_weight` multiplies the loss of the positive class."""
    x, target = f64(x), f64(target)
    softplus = np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(x)))  # -log(sigmoid(x))
    losses = (1 - target) * x + (1 + ((1 if pos_weight is None else f64(pos_weight)) - 1) * target) * softplus
    return _reduce(losses if weight is None else losses * f64(weight), reduction)


def binary_cross_entropy_with_logits_backward(dloss, x, target, weight=None, pos_weight=None, reduction="mean"):
    x, target = f64(x), f64(target)
    dx = (1 - target) - (1 + ((1 if pos_weight is None else f64(pos_weight)) - 1) * target) * sigmoid(-x)
    dx = dx * (1 if weight is None else f64(weight))
    return dx * _spread(dloss, dx.shape, reduction)


# ---- convolution ---------------------------------------------------------------------------------------------------


def pad(x, pads, value=0.0):
    """pads: how many before and after the last axis, then the one before it, ...; negative ones are cut off."""
    x = f64(x)
    for i in range(0, len(pads), 2):
        axis = x.ndim - 1 - i // 2
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(pads[i], 0), max(pads[i + 1], 0))
        x = np.pad(x, widths, constant_values=value)
        kept = slice(max(-pads[i], 0), x.shape[axis] - max(-pads[i + 1], 0))
        x = x[(slice(None),) * axis + (kept,)]
    return x


def pad_backward(dy, pads):
    return pad(dy, [-n for n in pads])


def _windows(x, kernel, stride, dilation, result):
    """The windows of the padded x (B, C, ...), for each position of the kernel: (its index in a kernel, that of their elements in x)."""
    for position in np.ndindex(*kernel):
        starts = [k * d for k, d in zip(position, dilation, strict=True)]
        parts = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, result, stride, strict=True)]
        yield (..., *position), (..., *parts)


def convolution(x, weight, bias, stride, padding, dilation, groups=1):
    """x (B, C, ...), weight (O, C / groups, ...): a sum over the positions of the kernel."""
    x, weight = pad(x, [n for p in reversed(padding) for n in (p, p)]), f64(weight)
    B, O, kernel = x.shape[0], weight.shape[0], weight.shape[2:]
    result = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    y = np.zeros((B, groups, O // groups, *result))
    grouped = weight.reshape(groups, O // groups, *weight.shape[1:])
    for position, window in _windows(x, kernel, stride, dilation, result):
        part = x[window].reshape(B, groups, x.shape[1] // groups, *result)
        y += np.einsum("goc,bgc...->bgo...", grouped[position], part)
    y = y.reshape(B, O, *result)
    return y if bias is None else y + f64(bias).reshape(-1, *[1] * len(result))


def convolution_backward(dy, x, weight, bias, stride, padding, dilation, groups=1):
    """dx, dweight, dbias."""
    dy, weight, sides = f64(dy), f64(weight), [n for p in reversed(padding) for n in (p, p)]
    x = pad(x, sides)
    (B, O, *result), kernel = dy.shape, weight.shape[2:]
    grouped, of_groups = dy.reshape(B, groups, O // groups, *result), weight.reshape(groups, O // groups, *weight.shape[1:])
    dx, dweight = np.zeros_like(x), np.zeros_like(of_groups)
    for position, window in _windows(x, kernel, stride, dilation, result):
        part = x[window].reshape(B, groups, x.shape[1] // groups, math.prod(result))
        dx[window] += np.einsum("goc,bgo...->bgc...", of_groups[position], grouped).reshape(B, x.shape[1], *result)
        dweight[position] = np.einsum("bgon,bgcn->goc", grouped.reshape(*grouped.shape[:3], math.prod(result)), part)
    axes = (0, *range(2, dy.ndim))
    return pad_backward(dx, sides), dweight.reshape(weight.shape), None if bias is None else dy.sum(axes)


def transposed_convolution(x, weight, bias, stride, padding, output_padding, dilation, groups=1):
    """x (B, C, ...), weight (C, O / groups, ...): the gradient of a convolution's input, with x as that of its result."""
    kernel = np.shape(weight)[2:]
    lengths = [
        (n - 1) * s - 2 * p + d * (k - 1) + more + 1
        for n, s, p, d, k, more in zip(np.shape(x)[2:], stride, padding, dilation, kernel, output_padding, strict=True)
    ]
    like = np.zeros((np.shape(x)[0], np.shape(weight)[1] * groups, *lengths))
    y = convolution_backward(x, like, weight, None, stride, padding, dilation, groups)[0]
    return y if bias is None else y + f64(bias).reshape(-1, *[1] * len(lengths))


def transposed_convolution_backward(dy, x, weight, bias, stride, padding, dilation, groups=1):
    """dx, dweight, dbias: that convolution of dy, and its gradient of weight."""
    dx = convolution(dy, weight, None, stride, padding, dilation, groups)
    dweight = convolution_backward(x, dy, weight, None, stride, padding, dilation, groups)[1]
    return dx, dweight, None if bias is None else f64(dy).sum((0, *range(2, np.ndim(dy))))


# ---- indexing and pooling ------------------------------------------------------------------------------------------


def embedding(indices, weight):
    return f64(weight)[np.asarray(indices)]


def embedding_backward(dy, indices, weight, padding_idx=None):
    """dweight; the padding row gets none."""
    dweight = np.zeros(np.shape(weight))
    np.add.at(dweight, np.asarray(indices), f64(dy))
    if padding_idx is not None:
        dweight[padding_idx] = 0
    return dweight


def one_hot(indices, num_classes):
    return (np.asarray(indices)[..., None] == np.arange(num_classes)).astype(np.int64)


def global_max_pool1d(x, axis=-2):
    """The largest value along the sequence."""
    return f64(x).max(axis=axis)


def global_max_pool1d_backward(dy, x, axis=-2):
    """The first of equal maxima gets the gradient."""
    x = f64(x)
    first = np.expand_dims(x.argmax(axis=axis), axis)
    dx = np.zeros_like(x)
    np.put_along_axis(dx, first, np.expand_dims(f64(dy), axis), axis=axis)
    return dx


# ---- the tutorial's modules ----------------------------------------------------------------------------------------


def positional_encoding(max_len, d_model):
    """(1, max_len, d_model): sine in even features, cosine in odd ones, of pos / 10000^(i / d_model), in float64 throughout."""
    angle = np.arange(max_len)[:, None] * 10000.0 ** (-(np.arange(d_model) // 2 * 2) / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angle), np.cos(angle))[None]


def expand_mask(mask):
    """2, 3 or 4 dimensions to 4: (Tq, Tk), (B, Tq, Tk), (B, H, Tq, Tk)."""
    if mask is None or np.ndim(mask) == 4:
        return mask
    return np.asarray(mask)[:, None] if np.ndim(mask) == 3 else np.asarray(mask)[None, None]


def merge_heads(x):
    """(..., H, T, D) to (..., T, H D)."""
    x = np.moveaxis(x, -3, -2)
    return x.reshape((*x.shape[:-2], -1))


def split_heads(x, num_heads):
    """(..., T, H D) to (..., H, T, D)."""
    return np.moveaxis(x.reshape((*x.shape[:-1], num_heads, -1)), -2, -3)


def multihead_attention(params, x, num_heads, mask=None):
    """The tutorial's MultiheadAttention: output (B, T, E), attention (B, H, Tq, Tk). `params` is its state dict."""
    q, k, v = qkv_projection(x, params["qkv_proj.weight"], params["qkv_proj.bias"], num_heads)
    values, attention = scaled_dot_product(q, k, v, expand_mask(mask))
    return linear(merge_heads(values), params["o_proj.weight"], params["o_proj.bias"]), attention


def multihead_attention_backward(dy, params, x, num_heads, mask=None):
    """dx, and the gradients of the parameters under their names."""
    q, k, v = qkv_projection(x, params["qkv_proj.weight"], params["qkv_proj.bias"], num_heads)
    merged = merge_heads(scaled_dot_product(q, k, v, expand_mask(mask))[0])
    dmerged, *doutput = linear_backward(dy, merged, params["o_proj.weight"], params["o_proj.bias"])
    dqkv = scaled_dot_product_backward(split_heads(dmerged, num_heads), q, k, v, expand_mask(mask))
    dx, *dprojection = qkv_projection_backward(*dqkv, x, params["qkv_proj.weight"], params["qkv_proj.bias"], num_heads)
    return dx, {
        "qkv_proj.weight": dprojection[0], "qkv_proj.bias": dprojection[1], "o_proj.weight": doutput[0], "o_proj.bias": doutput[1]
    }  # fmt: skip


def _encoder_block_branches(params, num_heads, mask, activation, multipliers):
    """The two branches next to the residual path, attention and MLP: forward of h, and backward of (dy, h) to dh and gradients."""
    hidden_layer = params["linear_net.0.weight"], params["linear_net.0.bias"]
    output_layer = params["linear_net.3.weight"], params["linear_net.3.bias"]
    attention_params = {name[len("self_attn.") :]: value for name, value in params.items() if name.startswith("self_attn.")}
    act, act_backward = ACTIVATIONS[activation]

    def attend(h):
        y, attention = multihead_attention(attention_params, h, num_heads, mask)
        return y * multipliers[0], attention

    def attend_backward(dy, h):
        dh, gradients = multihead_attention_backward(dy * multipliers[0], attention_params, h, num_heads, mask)
        return dh, {f"self_attn.{name}": gradient for name, gradient in gradients.items()}

    def mlp(h):
        return linear(act(linear(h, *hidden_layer) * multipliers[1]), *output_layer) * multipliers[2]

    def mlp_backward(dy, h):
        hidden = linear(h, *hidden_layer) * multipliers[1]  # dropped before its activation, as in the tutorial
        dactive, dw3, db3, _ = linear_backward(dy * multipliers[2], act(hidden), *output_layer)
        dh, dw0, db0, _ = linear_backward(act_backward(dactive, hidden) * multipliers[1], h, *hidden_layer)
        return dh, {"linear_net.0.weight": dw0, "linear_net.0.bias": db0, "linear_net.3.weight": dw3, "linear_net.3.bias": db3}

    return attend, attend_backward, mlp, mlp_backward


def encoder_block(params, x, num_heads, mask=None, norm_first=False, activation="relu", eps=1e-5, multipliers=(1, 1, 1)):
    """The tutorial's EncoderBlock: output and attention. Dropout multipliers: attention output, hidden layer, MLP output."""
    x = f64(x)
    attend, _, mlp, _ = _encoder_block_branches(params, num_heads, mask, activation, multipliers)
    norm1, norm2 = ((params[f"norm{i}.weight"], params[f"norm{i}.bias"], eps) for i in (1, 2))
    if norm_first:
        attended, attention = attend(layer_norm(x, *norm1)[0])
        x = x + attended
        return x + mlp(layer_norm(x, *norm2)[0]), attention
    attended, attention = attend(x)
    x = layer_norm(x + attended, *norm1)[0]
    return layer_norm(x + mlp(x), *norm2)[0], attention


def encoder_block_backward(dy, params, x, num_heads, mask=None, norm_first=False, activation="relu", eps=1e-5, multipliers=(1, 1, 1)):
    """dx, and the gradients of the parameters under their names."""
    x, dy = f64(x), f64(dy)
    attend, attend_backward, mlp, mlp_backward = _encoder_block_branches(params, num_heads, mask, activation, multipliers)
    norm1, norm2 = ((params[f"norm{i}.weight"], params[f"norm{i}.bias"], eps) for i in (1, 2))
    if norm_first:
        normed1 = layer_norm(x, *norm1)[0]
        middle = x + attend(normed1)[0]
        dnormed2, gradients2 = mlp_backward(dy, layer_norm(middle, *norm2)[0])
        dmiddle, dgamma2, dbeta2 = layer_norm_backward(dnormed2, middle, *norm2)
        dmiddle = dmiddle + dy
        dnormed1, gradients1 = attend_backward(dmiddle, normed1)
        dx, dgamma1, dbeta1 = layer_norm_backward(dnormed1, x, *norm1)
        dx = dx + dmiddle
    else:
        sum1 = x + attend(x)[0]
        middle = layer_norm(sum1, *norm1)[0]
        dsum2, dgamma2, dbeta2 = layer_norm_backward(dy, middle + mlp(middle), *norm2)
        dmiddle, gradients2 = mlp_backward(dsum2, middle)
        dsum1, dgamma1, dbeta1 = layer_norm_backward(dmiddle + dsum2, sum1, *norm1)
        dx, gradients1 = attend_backward(dsum1, x)
        dx = dx + dsum1
    norms = {"norm1.weight": dgamma1, "norm1.bias": dbeta1, "norm2.weight": dgamma2, "norm2.bias": dbeta2}
    return dx, {**gradients1, **gradients2, **norms}


# ---- optimizers ----------------------------------------------------------------------------------------------------
# Each takes one parameter, its gradient and its state (a dict, empty before the first step), gives the new parameter, and
# changes the state. The rules, and the defaults, are torch.optim's.


def sgd(p, g, state, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    p, g = f64(p), -f64(g) if maximize else f64(g)
    g = g + weight_decay * p
    if momentum:
        first = "momentum" not in state
        state["momentum"] = g if first else momentum * state["momentum"] + (1 - dampening) * g
        g = g + momentum * state["momentum"] if nesterov else state["momentum"]
    return p - lr * g


def _decay_and_average(p, g, state, lr, betas, weight_decay, maximize, decoupled):
    """(the parameter after a decoupled decay, the number of the step); means of gradients and their squares go to `state`."""
    p, g = f64(p), -f64(g) if maximize else f64(g)
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    state["step"] = state.get("step", 0) + 1
    state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
    state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g**2
    return p, state["step"]


def adam(p, g, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False, decoupled=False):
    """Kingma and Ba 2015; `decoupled`: AdamW, Loshchilov and Hutter 2019."""
    p, step = _decay_and_average(p, g, state, lr, betas, weight_decay, maximize, decoupled)
    v = state["v"]
    if amsgrad:
        v = state["v_max"] = np.maximum(state.get("v_max", 0), v)
    denominator = np.sqrt(v) / math.sqrt(1 - betas[1] ** step) + eps
    return p - lr / (1 - betas[0] ** step) * state["m"] / denominator


def adamw(p, g, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, maximize=False):
    return adam(p, g, state, lr, betas, eps, weight_decay, amsgrad, maximize, decoupled=True)


def nadam(p, g, state, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3, decoupled_weight_decay=False,
          maximize=False):  # fmt: skip
    """Dozat 2016, with PyTorch's product of momenta, a float32."""
    p, g = f64(p), -f64(g) if maximize else f64(g)
    if decoupled_weight_decay:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    state["step"] = t = state.get("step", 0) + 1
    state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
    state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g**2
    momentum, following = (betas[0] * (1 - 0.5 * 0.96 ** (n * momentum_decay)) for n in (t, t + 1))
    state["product"] = state.get("product", np.float32(1)) * np.float32(momentum)
    product = float(state["product"])
    ahead = (1 - momentum) / (1 - product) * g + following / (1 - product * following) * state["m"]
    return p - lr * ahead / (np.sqrt(state["v"] / (1 - betas[1] ** t)) + eps)


def radam(p, g, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled_weight_decay=False, maximize=False):
    """Liu et al. 2020, algorithm 2. Where the length of the mean is at most 5, the step is not divided by the root of the mean square."""
    p, t = _decay_and_average(p, g, state, lr, betas, weight_decay, maximize, decoupled_weight_decay)
    m = state["m"] / (1 - betas[0] ** t)
    longest = 2 / (1 - betas[1]) - 1
    length = longest - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if length <= 5:
        return p - lr * m
    rectification = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    return p - lr * rectification * m * math.sqrt(1 - betas[1] ** t) / (np.sqrt(state["v"]) + eps)


def adafactor(p, g, state, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, maximize=False):
    """Shazeer and Stern 2018, algorithm 4, with PyTorch's `lr` and `eps`."""
    p, g = f64(p), -f64(g) if maximize else f64(g)
    state["step"] = t = state.get("step", 0) + 1
    share, least = t**beta2_decay, np.finfo(np.float64).eps if eps[0] is None else eps[0]
    rate = max(eps[1], np.sqrt((p**2).mean())) * min(lr, t**-0.5)
    if g.ndim > 1:
        for name, axis in (("row", -1), ("column", -2)):
            state[name] = (1 - share) * state.get(name, 0) + share * (g**2).mean(axis, keepdims=True)
        squares = state["row"] * state["column"] / np.maximum(state["row"].mean(-2, keepdims=True), least)
    else:
        squares = state["variance"] = (1 - share) * state.get("variance", 0) + share * g**2
    update = g / np.sqrt(np.maximum(squares, least**2))
    return p * (1 - lr * weight_decay) - rate * update / max(1, np.sqrt((update**2).mean()) / d)


def adagrad(p, g, state, lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10, maximize=False):
    """Duchi et al. 2011, of diagonal matrices."""
    p, g = f64(p), -f64(g) if maximize else f64(g)
    g = g + weight_decay * p
    state["step"] = t = state.get("step", 0) + 1
    state["sum"] = state.get("sum", initial_accumulator_value) + g**2
    return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(state["sum"]) + eps)


def rmsprop(
    p, g, state, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False, maximize=False, eps_inside_sqrt=False
):
    """`eps_inside_sqrt`: Keras's sqrt(v + eps) in place of sqrt(v) + eps."""
    p, g = f64(p), -f64(g) if maximize else f64(g)
    g = g + weight_decay * p
    state["v"] = v = alpha * state.get("v", 0) + (1 - alpha) * g**2
    if centered:
        state["mean"] = alpha * state.get("mean", 0) + (1 - alpha) * g
        v = v - state["mean"] ** 2
    update = g / (np.sqrt(v + eps) if eps_inside_sqrt else np.sqrt(v) + eps)
    if momentum:
        state["momentum"] = update = momentum * state.get("momentum", 0) + update
    return p - lr * update


def muon(p, g, state, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5,
         adjust_lr_fn=None):  # fmt: skip
    """The iterations are a polynomial of the singular values, aS + bS³ + cS⁵."""
    p, g, (a, b, c) = f64(p), f64(g), ns_coefficients
    state["m"] = m = momentum * state.get("m", 0) + (1 - momentum) * g
    left, values, right = np.linalg.svd(momentum * m + (1 - momentum) * g if nesterov else m, full_matrices=False)
    values = values / max(np.linalg.norm(values), eps)
    for _ in range(ns_steps):
        values = a * values + b * values**3 + c * values**5
    scale = 0.2 * max(p.shape) ** 0.5 if adjust_lr_fn == "match_rms_adamw" else max(1, p.shape[0] / p.shape[1]) ** 0.5
    return (1 - lr * weight_decay) * p - lr * scale * (left * values) @ right


def clip_grad_norm(gradients, max_norm, norm_type=2.0):
    """The gradients scaled so that their common norm is at most max_norm, and their norm before."""
    gradients = [f64(g) for g in gradients]
    total = np.linalg.norm([np.linalg.norm(g.ravel(), norm_type) for g in gradients], norm_type)
    return [g * min(1.0, max_norm / (total + 1e-6)) for g in gradients], total


def clip_grad_value(gradients, clip_value):
    return [np.clip(f64(g), -clip_value, clip_value) for g in gradients]


def cosine_warmup_factor(step, warmup, max_iters):
    """The tutorial's factor of the learning rate: half a cosine to 0 at max_iters, linear up to `warmup`."""
    factor = 0.5 * (1 + math.cos(math.pi * step / max_iters))
    return factor * step / warmup if step <= warmup else factor
