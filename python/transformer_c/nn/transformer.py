"""Attention and the Transformer as torch.nn has them: its signatures, state-dict keys, mask conventions and numbers.

Masks here are PyTorch's: True = may not attend (the other way round than in ``functional.scaled_dot_product_attention``); floating masks are
added to the scores. Where PyTorch's results differ from themselves or are NaN, these do not: train and eval mode take one path, and a
position that may attend to nothing gets values of 0.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functional as F
from .._arguments import count
from .._core import Tensor
from .._tensor import cat, empty, ones, triu, zeros
from . import init
from .layers import Dropout, LayerNorm, Linear, ModuleList, _as_floating
from .module import Module
from .parameter import Parameter

_ACTIVATIONS: dict[str, Callable] = {"relu": F.relu, "gelu": F.gelu}


def _activation(given: str | Callable) -> Callable:
    if callable(given):
        return given
    if given not in _ACTIVATIONS:
        raise ValueError(f"activation must be a function or one of {', '.join(_ACTIVATIONS)}, got {given!r}")
    return _ACTIVATIONS[given]


class MultiheadAttention(Module):
    """Multi-head attention as torch.nn has it (Vaswani et al. 2017, section 3.2.2). ``tc.MultiheadAttention`` is the tutorial's.

    Parameters
    ----------
    embed_dim : int
        E, features of queries and output.
    num_heads : int
        Divides `embed_dim`.
    dropout : float, default 0.0
        Of the attention, in train mode.
    bias : bool, default True
        Of all projections.
    add_bias_kv : bool, default False
        One more key and value, which are learned.
    add_zero_attn : bool, default False
        One more key and value of zeros.
    kdim, vdim : int, optional
        Features of keys and of values; `embed_dim` by default. Others than that give three projections in place of one.
    batch_first : bool, default False
        (N, L, E) in place of (L, N, E).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> attention = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = np.zeros((4, 5, 8), np.float32)
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    ((4, 5, 8), (4, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = count("embed_dim", embed_dim), count("num_heads", num_heads)
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        self.kdim, self.vdim = (embed_dim if n is None else count(name, n) for name, n in (("kdim", kdim), ("vdim", vdim)))
        self.head_dim, self.dropout, self.batch_first, self.add_zero_attn = embed_dim // num_heads, dropout, batch_first, add_zero_attn
        options: dict[str, Any] = dict(device=device, dtype=dtype)
        packed = self.kdim == self.vdim == embed_dim
        for name, wanted, width in (
            ("q_proj_weight", not packed, embed_dim),
            ("k_proj_weight", not packed, self.kdim),
            ("v_proj_weight", not packed, self.vdim),
        ):
            self.register_parameter(name, Parameter(empty(embed_dim, width, **options)) if wanted else None)
        self.register_parameter("in_proj_weight", Parameter(empty(3 * embed_dim, embed_dim, **options)) if packed else None)
        self.register_parameter("in_proj_bias", Parameter(zeros(3 * embed_dim, **options)) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **options)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(empty(1, 1, embed_dim, **options)) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights: bool = True,
        attn_mask=None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ):
        """(output, weights): output with the shape of `query`, weights (N, L, S), before dropout, or None.

        Parameters
        ----------
        query, key, value : Tensor or ndarray, shape (L, N, E), (S, N, kdim), (S, N, vdim)
            With ``batch_first`` N comes first; without batch (L, E), ...
        key_padding_mask : array_like, shape (N, S) or (S,), optional
            True = ignore the key, or numbers that are added to the scores.
        need_weights : bool, default True
            False is faster, and gives None as weights.
        attn_mask : array_like, shape (L, S) or (N * num_heads, L, S), optional
            True = may not attend, or numbers that are added to the scores.
        average_attn_weights : bool, default True
            The mean over the heads; False gives (N, num_heads, L, S).
        is_causal : bool, default False
            No query attends to later keys; may be combined with the masks.
        """
        batched = query.ndim == 3
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise ValueError(f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}; expected three or two axes each")
        same = query is key and key is value
        query, key, value = (self._batch_first(x, batched) for x in (query, key, value))
        q, k, v = self._project(query, key, value, same)
        batch, _, length, _ = q.shape
        if k.shape[0] != batch or v.shape[0] != batch or k.shape[2] != v.shape[2]:
            raise ValueError(
                f"query {query.shape}, key {key.shape}, value {value.shape}: batch sizes, and lengths of key and value, must be equal"
            )
        masks = self._masks(attn_mask, key_padding_mask, (batch, length, k.shape[2]), batched, is_causal)
        k, v, masks = self._extra_keys(k, v, masks)
        forbidden, added = masks
        found = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if forbidden is None else forbidden == 0,
            bias=None if added is None else added.to(q.dtype),
            dropout_p=self.dropout if self.training else 0.0,
            return_attention=need_weights,
        )
        values, weights = found if need_weights else (found, None)
        y = self.out_proj(values.transpose(1, 2).reshape(batch, length, self.embed_dim))
        y = y[0] if not batched else y if self.batch_first else y.transpose(0, 1)
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights[0]
        return y, weights

    def _batch_first(self, x: Tensor, batched: bool) -> Tensor:
        x = _as_floating(x, self.out_proj.weight, "MultiheadAttention")
        return x.unsqueeze(0) if not batched else x if self.batch_first else x.transpose(0, 1)

    def _project(self, query: Tensor, key: Tensor, value: Tensor, same: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the heads, each (N, H, length, D)."""
        if self.in_proj_weight is not None and same:
            return F.qkv_projection(query, self.in_proj_weight, self.in_proj_bias, num_heads=self.num_heads, packing="qkv")
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(*parts) for parts in zip((query, key, value), weights, biases, strict=True))
        return self._heads(q), self._heads(k), self._heads(v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

    def _masks(self, attn_mask, key_padding_mask, sizes: tuple[int, int, int], batched: bool, is_causal: bool) -> tuple[Any, Any]:
        """All boolean masks as one, True = may not attend, and all floating ones; each None or four axes that broadcast to (N, H, L, S)."""
        batch, length, keys = sizes
        forbidden: list[Tensor] = []
        added: list[Tensor] = []
        if attn_mask is not None:
            attn_mask = _check_mask("attn_mask", attn_mask, (length, keys), (batch * self.num_heads, length, keys))
            wide = attn_mask[None, None] if attn_mask.ndim == 2 else attn_mask.reshape(batch, self.num_heads, length, keys)
            (forbidden if wide.dtype == np.bool_ else added).append(wide)
        if key_padding_mask is not None:
            padding = _check_mask("key_padding_mask", key_padding_mask, *[(batch, keys)] if batched else [(keys,), (1, keys)])
            padding = padding.reshape(batch, 1, 1, keys)
            (forbidden if padding.dtype == np.bool_ else added).append(padding)
        if is_causal:
            device = self.out_proj.weight.device
            forbidden.append(triu(ones(length, keys, device=device), diagonal=1)[None, None] != 0)
        return _joined(forbidden, operator.or_), _joined(added, operator.add)

    def _extra_keys(self, k: Tensor, v: Tensor, masks: tuple[Any, Any]) -> tuple[Tensor, Tensor, tuple[Any, Any]]:
        """The learned key and the one of zeros, which every query may attend to."""
        extra = []
        batch = k.shape[0]
        if self.bias_k is not None:
            extra.append([self._heads(bias.expand(batch, 1, self.embed_dim)) for bias in (self.bias_k, self.bias_v)])
        if self.add_zero_attn:
            nothing = zeros(batch, self.num_heads, 1, self.head_dim, dtype=k.dtype, device=k.device)
            extra.append([nothing, nothing])
        if not extra:
            return k, v, masks
        k, v = (cat([x, *more], dim=2) for x, more in zip((k, v), zip(*extra, strict=True), strict=True))
        open_ = lambda m: cat([m, zeros(*m.shape[:-1], len(extra), dtype=m.dtype, device=m.device)], dim=-1)
        forbidden, added = (None if m is None else open_(m) for m in masks)
        return k, v, (forbidden, added)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def _joined(masks: list[Tensor], join: Callable) -> Any:
    return functools.reduce(join, masks) if masks else None


def _check_mask(name: str, mask: Any, *shapes: tuple[int, ...]) -> Tensor:
    """A boolean or floating Tensor with one of the shapes."""
    if mask.dtype != np.bool_ and mask.dtype.kind not in "fV":
        raise TypeError(f"{name} has dtype {mask.dtype.name}; expected bool (True = may not attend) or floating (added): write {name} != 0")
    if tuple(mask.shape) not in shapes:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {' or '.join(map(str, shapes))}")
    return mask


class _Layer(Module):
    """What both layers share: the two-layer network and the order of norm and residual."""

    norm_first: bool

    def _network(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, x: Tensor, part: Callable, norm: Module, dropout: Module) -> Tensor:
        """x and its update by a part, normalised before the part or after the sum."""
        if self.norm_first:
            return x + dropout(part(norm(x)))
        return norm(x + dropout(part(x)))


class TransformerEncoderLayer(_Layer):
    """One layer of an encoder as torch.nn has it: self-attention and a two-layer network, each with residual and layer norm.

    Parameters
    ----------
    d_model, nhead : int
        Features and heads.
    dim_feedforward : int, default 2048
        Width of the hidden layer.
    dropout : float, default 0.1
    activation : {"relu", "gelu"} or callable
    layer_norm_eps : float, default 1e-5
    batch_first, norm_first : bool, default False
    bias : bool, default True

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20)
    >>> layer(np.zeros((5, 4, 6), np.float32)).shape
    (5, 4, 6)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = dict(bias=bias, device=device, dtype=dtype)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal: bool = False):
        """src (L, N, E), or (N, L, E) with ``batch_first``, to the same shape; the masks as for MultiheadAttention."""
        masks = dict(attn_mask=src_mask, key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal), need_weights=False)
        x = self._residual(src, lambda y: self.self_attn(y, y, y, **masks)[0], self.norm1, self.dropout1)
        return self._residual(x, self._network, self.norm2, self.dropout2)


class TransformerDecoderLayer(_Layer):
    """One layer of a decoder as torch.nn has it: self-attention, attention to the encoder's output, a two-layer network.

    Parameters as for TransformerEncoderLayer.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerDecoderLayer(d_model=6, nhead=3, dim_feedforward=20)
    >>> layer(np.zeros((2, 4, 6), np.float32), memory=np.zeros((5, 4, 6), np.float32)).shape
    (2, 4, 6)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = dict(bias=bias, device=device, dtype=dtype)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ):
        """tgt (T, N, E) and memory (S, N, E), N first with ``batch_first``, to the shape of tgt; the masks as for MultiheadAttention."""
        own = dict(attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, is_causal=bool(tgt_is_causal), need_weights=False)
        cross = dict(attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask, is_causal=bool(memory_is_causal), need_weights=False)
        x = self._residual(tgt, lambda y: self.self_attn(y, y, y, **own)[0], self.norm1, self.dropout1)
        x = self._residual(x, lambda y: self.multihead_attn(y, memory, memory, **cross)[0], self.norm2, self.dropout2)
        return self._residual(x, self._network, self.norm3, self.dropout3)


def _final(norm: Any, x: Tensor) -> Tensor:
    """The last layer norm, if there is one."""
    if isinstance(norm, type):
        raise TypeError(f"norm is the class {norm.__name__}; expected a module such as nn.{norm.__name__}(d_model)")
    return x if norm is None else norm(x)


class TransformerEncoder(Module):
    """A stack of copies of an encoder layer, weights included, as torch.nn has it. ``tc.TransformerEncoder`` is the tutorial's.

    Parameters
    ----------
    encoder_layer : TransformerEncoderLayer
    num_layers : int
    norm : Module, optional
        Comes last.
    enable_nested_tensor, mask_check : bool
        Accepted for PyTorch's sake; without effect.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20)
    >>> encoder = tc.nn.TransformerEncoder(layer, num_layers=2, norm=tc.nn.LayerNorm(6))
    >>> encoder(np.zeros((5, 4, 6), np.float32)).shape
    (5, 4, 6)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True, mask_check: bool = True
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(count("num_layers", num_layers, 0))])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal: bool | None = None):
        """src (L, N, E), or (N, L, E) with ``batch_first``, to the same shape; the masks as for MultiheadAttention."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return _final(self.norm, src)


class TransformerDecoder(Module):
    """A stack of copies of a decoder layer, weights included, as torch.nn has it.

    Parameters
    ----------
    decoder_layer : TransformerDecoderLayer
    num_layers : int
    norm : Module, optional
        Comes last.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(count("num_layers", num_layers, 0))])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ):
        """As TransformerDecoderLayer, layer by layer."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=bool(memory_is_causal),
            )
        return _final(self.norm, tgt)


class Transformer(Module):
    """Encoder and decoder as torch.nn has them, without embedding, positions and output layer (Vaswani et al. 2017).

    Parameters
    ----------
    d_model, nhead : int, default 512 and 8
    num_encoder_layers, num_decoder_layers : int, default 6
    dim_feedforward : int, default 2048
    dropout : float, default 0.1
    activation : {"relu", "gelu"} or callable
    custom_encoder, custom_decoder : Module, optional
        In place of those that the other arguments describe.
    layer_norm_eps : float, default 1e-5
    batch_first, norm_first : bool, default False
    bias : bool, default True

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> model = tc.nn.Transformer(d_model=6, nhead=3, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=20)
    >>> model(np.zeros((5, 4, 6), np.float32), np.zeros((2, 4, 6), np.float32)).shape
    (2, 4, 6)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        own: dict[str, Any] = dict(bias=bias, device=device, dtype=dtype)
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(*shared, **own)
            custom_encoder = TransformerEncoder(encoder_layer, num_encoder_layers, LayerNorm(d_model, eps=layer_norm_eps, **own))
        self.encoder = custom_encoder
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*shared, **own)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, LayerNorm(d_model, eps=layer_norm_eps, **own))
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ):
        """src (S, N, E) and tgt (T, N, E), N first with ``batch_first``, to the shape of tgt; the masks as for MultiheadAttention."""
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(
                f"src has shape {tuple(src.shape)} and tgt {tuple(tgt.shape)}; the last axis of both must be d_model={self.d_model}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device=None, dtype=None) -> Tensor:
        """(sz, sz): -inf where a position comes later, 0 elsewhere.

        Examples
        --------
        >>> import transformer_c as tc
        >>> tc.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        later = triu(ones(sz, sz, dtype=dtype, device=device), diagonal=1)
        return later.masked_fill(later != 0, -math.inf)
