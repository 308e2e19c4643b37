"""The tutorial's classes: attention, encoder blocks, positional encoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from . import _core, nn
from . import functional as F
from ._arguments import all_of, array, count, divisible, not_negative, one_of, probability
from ._core import Tensor, scaled_dot_product
from ._graph import refuse
from ._names import explained
from ._promotion import as_given, cast_input
from ._tensor import as_tensor
from .nn.attention import join_heads, own_length
from .nn.cache import KeyValueCache, one_a_layer, restored_on_error
from .nn.fusion import activated, add_norm, add_product, applied_by_a_product, is_plain, probability_of
from .nn.layers import of_sequences
from .nn.parameter import registered
from .random import as_generator


def expand_mask(mask):
    """Expands a mask of 2, 3 or 4 axes to 4: (Tq, Tk) -> (1, 1, Tq, Tk), (B, Tq, Tk) -> (B, 1, Tq, Tk).

    Parameters
    ----------
    mask : array_like
        Nonzero = attend. 4-D masks are (B or 1, H or 1, Tq, Tk) already.

    Raises
    ------
    ValueError
        When the mask has fewer than 2 or more than 4 axes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.expand_mask(np.ones((8, 16, 16))).shape
    (8, 1, 16, 16)
    """
    mask = array("expand_mask()", as_given(mask))
    if not 2 <= mask.ndim <= 4:
        raise ValueError(
            f"a mask has 2 to 4 axes: (Tq, Tk), (B, Tq, Tk) or (B, H, Tq, Tk); this one has shape {tuple(mask.shape)}. "
            "Key padding (B, Tk) is written mask[:, None, :]"
        )
    if mask.ndim == 3:
        return mask[:, None]
    return mask[None, None] if mask.ndim == 2 else mask


def _values(mask: Any) -> np.ndarray:
    """Of a floating mask. For one on a GPU the host waits."""
    if not isinstance(mask, Tensor):
        return mask
    if mask.is_cuda:
        refuse("the host read a floating mask, to find values other than 0 and 1 (pass mask != 0, which is not read),")
    return np.zeros(0) if _core.is_traced() else mask.detach().cpu().numpy()  # a traced call has no checks


def _check_mask(mask, batch: int, heads: int, queries: int, keys: int):
    """A module's mask as a 4-D Tensor or ndarray that broadcasts to (B, H, Tq, Tk); the error for any other mask says which shapes fit."""
    if mask is None:
        return None
    if not isinstance(mask, (Tensor, np.ndarray)):
        mask = np.asarray(mask)
    given = tuple(mask.shape)
    if len(given) == 3 and given[:2] == (batch, queries) and given[2] not in (1, keys):
        raise TypeError(
            f"mask has shape {given}, that of x: this layer attends from x to itself, layer(x, mask); tc.nn.MultiheadAttention takes "
            "query, key and value"
        )
    if mask.dtype.kind not in "biuf" and mask.dtype.name != "bfloat16":
        raise TypeError(f"mask must be an array of bool or numbers, nonzero = attend, not {mask!r:.60}")
    if mask.dtype.kind in "fV" and not np.isin(_values(mask), (0, 1)).all():
        raise ValueError(
            "a floating mask here contains only 0 (masked) and 1 (attend); this one has other values, so an additive mask was probably "
            "meant: pass it as bias= of functional.scaled_dot_product_attention"
        )
    full = (batch, heads, queries, keys)
    wide = expand_mask(mask)
    if all(m in (1, f) for m, f in zip(wide.shape, full, strict=True)):
        return wide
    hint = f"expected (Tq or 1, Tk), (B, Tq or 1, Tk) or (B or 1, H or 1, Tq or 1, Tk) with (B, H, Tq, Tk) = {full}"
    if given == (batch, keys):
        hint += f"; as key padding (B, Tk) write mask[:, None, :], which has shape {(batch, 1, keys)}"
    raise ValueError(f"mask has shape {given}; {hint}")


_UNEVEN = "Embedding dimension must be 0 modulo number of heads."  # the tutorial's words


_MASKS = {  # names of masks elsewhere
    **dict.fromkeys(("attn_mask", "src_mask"), "mask=, nonzero = attend; of a bool mask in which True = ignore, ~mask"),
    "attention_mask": "mask=mask[:, None, :], nonzero = attend, of a mask (B, T)",
    **dict.fromkeys(
        ("key_padding_mask", "src_key_padding_mask"), "mask=~mask[:, None, :], nonzero = attend, of a mask (B, T), True = ignore"
    ),
}


class MultiheadAttention(nn.Module):
    """Multi-head self-attention of the UvA tutorial (Vaswani et al. 2017, section 3.2.2). PyTorch's layer is ``tc.nn.MultiheadAttention``.

    One projection, ``qkv_proj``, computes queries, keys and values. Its 3E outputs are ordered head by head, [q_h | k_h | v_h], where PyTorch's layer
    packs [Q | K | V]; ``tc.convert.packing`` converts weights between the two.

    Parameters
    ----------
    input_dim : int
        Features of the input.
    embed_dim : int
        E, the features of the output and of all heads together.
    num_heads : int
        H; divides `embed_dim`.

    Raises
    ------
    ValueError
        When `num_heads` does not divide `embed_dim`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> attention = tc.MultiheadAttention(input_dim=8, embed_dim=8, num_heads=2)
    >>> x = np.zeros((4, 5, 8), np.float32)  # (B, T, input_dim)
    >>> values, maps = attention(x, return_attention=True)
    >>> values.shape, maps.shape
    ((4, 5, 8), (4, 2, 5, 5))
    """

    qkv_proj: nn.Linear = registered("_modules")
    o_proj: nn.Linear = registered("_modules")
    _attention_map: ClassVar = {"return_attention": True}

    def __init__(self, input_dim: int, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        input_dim, embed_dim, num_heads, _ = all_of(
            (count, "input_dim", input_dim),
            (count, "embed_dim", embed_dim),
            (count, "num_heads", num_heads),
            (divisible, "embed_dim", embed_dim, "num_heads", num_heads, _UNEVEN),
        )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.qkv_proj = nn.Linear(input_dim, 3 * embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for projection in (self.qkv_proj, self.o_proj):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    _arguments_elsewhere = _MASKS

    def forward(self, x, mask=None, return_attention: bool = False, *, past_key_value: KeyValueCache | None = None):
        """Maps x (B, T, input_dim) to (B, T, E), and also returns the attention (B, H, T, T) on request.

        Parameters
        ----------
        x : Tensor or ndarray, shape (B, T, input_dim)
        mask : array_like, optional
            Nonzero = attend; shape (T, T), (B, T or 1, T) or (B or 1, H or 1, T or 1, T). A row with every key masked attends uniformly.
        return_attention : bool
            Also return the attention of each head.
        past_key_value : KeyValueCache, optional
            Keys and values of earlier calls; this call's are appended to them. In `mask` the earlier keys come before those of `x`.
        """
        if array("MultiheadAttention", x).ndim != 3:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, sequence, input_dim)")
        batch, length, _ = x.shape
        own = own_length(x, True, mask, None, past_key_value)
        with restored_on_error([past_key_value]):
            past = 0 if past_key_value is None else len(past_key_value)
            mask = _check_mask(mask, batch, self.num_heads, length, past + length)
            q, k, v = self._project(x, own)
            if past_key_value is not None:
                k, v = past_key_value.append(k, v)
            if return_attention:
                values, attention = scaled_dot_product(q, k, v, mask)
                return of_sequences(self.o_proj, join_heads(values), own), attention
            values = _core.scaled_dot_product_values(q, k, v, mask)
            return of_sequences(self.o_proj, join_heads(values), own)

    def _project(self, x: Tensor, own: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, D)."""
        layer = self.qkv_proj
        if not is_plain(layer, nn.Linear):
            batch, length, _ = x.shape
            heads = of_sequences(layer, x, own).reshape(batch, length, self.num_heads, 3 * self.head_dim).permute(0, 2, 1, 3)
            return heads.chunk(3, dim=-1)
        x = cast_input(x, layer.weight, "MultiheadAttention")
        return F.qkv_projection(x, layer.weight, layer.bias, num_heads=self.num_heads, packing="head", sequence_lengths=own)


_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}

# A block takes short sequences through all of its parts in one pass, if they are of these types: on CPUs only where nothing is recorded.
_STOCK = (*[nn.Linear] * 4, *[nn.LayerNorm] * 2, MultiheadAttention, nn.Sequential, *[nn.Dropout] * 2)


def _forwards() -> tuple[Any, ...]:
    return nn.Linear.forward, nn.LayerNorm.forward, MultiheadAttention.forward, nn.Sequential.forward, nn.Dropout.forward


_OWN_FORWARDS = _forwards()  # a program may set others on the classes


_OF_PYTORCH = {**dict.fromkeys(("d_model", "embed_dim"), "input_dim="), "nhead": "num_heads="}


class EncoderBlock(nn.Module):
    """One block of a Transformer encoder: attention, then a two-layer network, each with a residual connection and layer norm.

    Parameters
    ----------
    input_dim : int
        Features of input and output.
    num_heads : int
        Divides `input_dim`.
    dim_feedforward : int
        Width of the hidden layer.
    dropout : float, default 0
    norm_first : bool, default False
        Normalise before attention and network (Xiong et al. 2020) instead of after the residual connections.
    activation : {"relu", "gelu"}, default "relu"
    layer_norm_eps : float, default 1e-5

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> block = tc.EncoderBlock(input_dim=8, num_heads=2, dim_feedforward=16)
    >>> block(np.zeros((4, 5, 8), np.float32)).shape
    (4, 5, 8)
    """

    self_attn: MultiheadAttention = registered("_modules")
    linear_net: nn.Sequential = registered("_modules")
    norm1: nn.LayerNorm = registered("_modules")
    norm2: nn.LayerNorm = registered("_modules")
    dropout: nn.Dropout = registered("_modules")

    @explained(_OF_PYTORCH, harmless={"batch_first": (True,)})
    def __init__(
        self,
        input_dim: int,
        num_heads: int,
        dim_feedforward: int,
        dropout: float = 0.0,
        *,
        norm_first: bool = False,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        all_of(
            (count, "input_dim", input_dim),
            (count, "num_heads", num_heads),
            (count, "dim_feedforward", dim_feedforward),
            (probability, "dropout", dropout),
            (one_of, "activation", activation, tuple(_ACTIVATIONS)),
            (not_negative, "layer_norm_eps", layer_norm_eps),
            (divisible, "input_dim", input_dim, "num_heads", num_heads, _UNEVEN),
        )
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(input_dim, input_dim, num_heads)
        self.linear_net = nn.Sequential(
            nn.Linear(input_dim, dim_feedforward),
            nn.Dropout(dropout),
            _ACTIVATIONS[activation](),
            nn.Linear(dim_feedforward, input_dim),
        )
        self.norm1 = nn.LayerNorm(input_dim, eps=layer_norm_eps)
        self.norm2 = nn.LayerNorm(input_dim, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    _arguments_elsewhere = _MASKS

    def forward(self, x, mask=None, *, past_key_value: KeyValueCache | None = None):
        """Maps x (B, T, input_dim) to the same shape; `mask` and `past_key_value` as for MultiheadAttention."""
        past = {} if past_key_value is None else {"past_key_value": past_key_value}
        if not past and (not _core.grad_enabled() or (type(x) is Tensor and x.is_cuda)) and (y := self._in_one_pass(x, mask)) is not None:
            return y
        own = own_length(array("EncoderBlock", x), True, mask, None, past_key_value)
        with restored_on_error([past_key_value]):
            if self.norm_first:
                x = x + self.dropout(self.self_attn(self.norm1(x), mask=mask, **past))
                return self._add_feed_forward(x, own)
            x = add_norm(self.norm1, x, self.self_attn(x, mask=mask, **past), self.dropout)
            return add_norm(self.norm2, x, self._feed_forward(x, own), self.dropout)

    def _in_one_pass(self, x: Tensor, mask: Any) -> Tensor | None:
        """The result for short sequences, which go through all parts in one pass; None where the parts run one by one.

        On CPUs with their bits, without dropout and where nothing is recorded; on GPUs a sequence has the same in any batch, and dropout
        draws what it does for the parts.
        """
        attention, net, norm1, norm2 = self.self_attn, self.linear_net, self.norm1, self.norm2
        if _core.is_traced() or type(x) is not Tensor or x.ndim != 3 or type(net) is not nn.Sequential or len(net) != 4:
            return None
        first, dropout, activation, last = net
        fused = applied_by_a_product(activation)
        if fused is None or type(attention) is not MultiheadAttention:
            return None
        layers = (attention.qkv_proj, attention.o_proj, first, last, norm1, norm2)
        modules = (*layers, attention, net, dropout, self.dropout)
        if tuple(map(type, modules)) != _STOCK or _forwards() != _OWN_FORWARDS:
            return None
        for module in modules:  # in a third of the time that any() takes
            if "forward" in module.__dict__:
                return None
        (batch, length, size), hidden, heads = x.shape, first.weight.shape[0], attention.num_heads
        if not _core.encoder_block_takes(x, hidden):
            return None
        of_branches, of_hidden = probability_of(self.dropout), probability_of(dropout)
        masks = 2 * (of_branches > 0) + (of_hidden > 0)
        if masks and not x.is_cuda:
            return None
        if _core.grad_enabled() and not _core.encoder_block_takes_gradients(x, hidden, heads, fused):
            return None
        weights = [values for layer in layers for values in (layer.weight, layer.bias)]
        widths = (3 * size, size, hidden, size, size, size)
        columns = ((size,), (size,), (size,), (hidden,), (), ())
        shapes = [shape for width, others in zip(widths, columns, strict=True) for shape in ((width, *others), (width,))]
        name, on_gpu = x._dtype_name, x.is_cuda
        if any(
            values is None or values._dtype_name != name or values.is_cuda != on_gpu or values.shape != shape
            for values, shape in zip(weights, shapes, strict=True)
        ):
            return None
        if isinstance(mask, Tensor) and mask.is_cuda != on_gpu:
            return None
        options = (_check_mask(mask, batch, heads, length, length), heads, fused, self.norm_first, norm1.eps, norm2.eps)
        arguments: tuple[Any, ...] = (x, *weights, *options)
        if not masks:
            return _core.encoder_block(*arguments)

        def dropping(seed: int, call: int) -> Tensor:
            return _core.encoder_block(*arguments, dropout=of_branches, hidden_dropout=of_hidden, seed=seed, call=call)

        return as_generator(None).with_masks(masks, dropping)

    def _feed_forward(self, x: Tensor, own: int | None) -> Tensor:
        """linear_net(x)."""
        net = self.linear_net
        if not is_plain(net, nn.Sequential) or len(net) == 0:
            return net(x)
        *parts, last = net
        return of_sequences(last, _hidden(parts, x, own), own)

    def _add_feed_forward(self, x: Tensor, own: int | None) -> Tensor:
        """x + dropout(linear_net(norm2(x)))."""
        h, net = self.norm2(x), self.linear_net
        if not is_plain(net, nn.Sequential) or len(net) == 0:
            return x + self.dropout(net(h))
        *parts, last = net
        return add_product(x, last, _hidden(parts, h, own), self.dropout, own)


def _hidden(parts: Sequence[nn.Module], x: Tensor, own: int | None) -> Tensor:
    """The input of the last part of a linear_net, computed by the others. Where dropout does nothing, the first product applies the activation."""
    if len(parts) == 3:
        first, dropout, activation = parts
        if is_plain(dropout, nn.Dropout) and not (dropout.training and dropout.p > 0):
            return activated(first, activation, x, own)
    for part in parts:
        x = of_sequences(part, x, own)
    return x


class _MakesItsLayers(nn.Module):
    """A class of its own, as a ``__new__`` next to ``__init__`` would hide the signature of that."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        if cls.__init__ is TransformerEncoder.__init__ and arguments and isinstance(arguments[0], nn.Module):
            raise TypeError(f"{cls.__name__}(num_layers, input_dim=, ...) makes its layers itself; tc.nn.TransformerEncoder takes a layer")
        return super().__new__(cls)


class TransformerEncoder(_MakesItsLayers):
    """A stack of encoder blocks, the UvA tutorial's. PyTorch's class is ``tc.nn.TransformerEncoder``.

    Parameters
    ----------
    num_layers : int
    **block_args
        Arguments of every EncoderBlock: `input_dim`, `num_heads`, `dim_feedforward`, ...

    Attributes
    ----------
    layers : ModuleList of EncoderBlock

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> encoder = tc.TransformerEncoder(num_layers=2, input_dim=8, num_heads=2, dim_feedforward=16)
    >>> x = np.zeros((4, 5, 8), np.float32)  # (B, T, input_dim)
    >>> encoder(x).shape
    (4, 5, 8)
    >>> [maps.shape for maps in encoder.get_attention_maps(x)]
    [(4, 2, 5, 5), (4, 2, 5, 5)]
    """

    layers: nn.ModuleList = registered("_modules")

    def __init__(self, num_layers: int, **block_args) -> None:
        super().__init__()
        if block_args and num_layers == 0:
            with nn.init.skip():  # the arguments are checked all the same
                EncoderBlock(**block_args)
        self.layers = nn.ModuleList([EncoderBlock(**block_args) for _ in range(count("num_layers", num_layers, 0))])

    _arguments_elsewhere = _MASKS

    def forward(self, x, mask=None, *, past_key_value: Sequence[KeyValueCache] | None = None):
        """Maps x (B, T, input_dim) to the same shape; `mask` as for MultiheadAttention, `past_key_value` one cache per layer."""
        caches = one_a_layer(past_key_value, len(self.layers))
        with restored_on_error(caches):
            for layer, cache in zip(self.layers, caches, strict=True):
                x = layer(x, mask=mask) if cache is None else layer(x, mask=mask, past_key_value=cache)
            return x

    def new_caches(self, max_length: int | None = None) -> list[KeyValueCache]:
        """Empty caches for ``past_key_value=``, one per layer; `max_length` allocates that many positions at once."""
        return [KeyValueCache(max_length) for _ in self.layers]

    def get_attention_maps(self, x, mask=None, *, propagate_mask: bool = False) -> list:
        """The attention of every layer, each (B, H, T, T).

        Parameters
        ----------
        x : Tensor or ndarray, shape (B, T, input_dim)
        mask : array_like, optional
        propagate_mask : bool, default False
            False does what the tutorial does: it masks the maps it returns but runs the layers without the mask.
            True passes the mask to the layers as well, so that the maps are those of ``forward(x, mask)``.

        Returns
        -------
        list of Tensor or ndarray
            ndarrays when `x` is one.
        """
        plain = isinstance(x, np.ndarray)
        maps = []
        for layer in self.layers:
            inner = layer.norm1(x) if layer.norm_first else x
            _, attention = layer.self_attn(inner, mask=mask, return_attention=True)
            maps.append(attention)
            x = layer(x, mask=mask if propagate_mask else None)
        return [np.asarray(m) for m in maps] if plain else maps


class PositionalEncoding(nn.Module):
    """Adds sines and cosines of the position to its input (Vaswani et al. 2017, section 3.5).

    Parameters
    ----------
    d_model : int
        Features of the input; may be odd.
    max_len : int, default 5000
        The longest sequence.

    Attributes
    ----------
    pe : Tensor, shape (1, max_len, d_model)
        A buffer that is not part of the state dict.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.PositionalEncoding(d_model=4, max_len=3).pe[0, 1]
    tensor([0.8415, 0.5403, 0.0100, 0.9999])
    """

    pe: Tensor = registered("_buffers")

    def __init__(self, d_model: int, max_len: int = 5000) -> None:
        super().__init__()
        d_model, max_len = all_of((count, "d_model", d_model), (count, "max_len", max_len))
        # The angles are rounded to float32, as in PyTorch; their sines and cosines are exact to the last bit.
        exponent = np.arange(0, d_model, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / d_model)
        frequency = np.exp(exponent.astype(np.float64)).astype(np.float32)
        angle = (np.arange(max_len, dtype=np.float32)[:, None] * frequency).astype(np.float64)
        pe = np.zeros((1, max_len, d_model), np.float32)
        pe[0, :, 0::2] = np.sin(angle)
        pe[0, :, 1::2] = np.cos(angle[:, : d_model // 2])
        self.register_buffer("pe", as_tensor(pe), persistent=False)

    def forward(self, x):
        """Returns x (B, T, d_model) plus the encoding of the first T positions."""
        _, max_len, d_model = self.pe.shape
        if array("PositionalEncoding", x).ndim < 2 or x.shape[-1] != d_model or x.shape[-2] > max_len:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (batch, sequence, {d_model}) with a sequence of at most max_len={max_len}"
            )
        if x.dtype.kind not in "fV":
            x = x.to(self.pe.dtype)
        return x + self.pe[:, : x.shape[-2]]


__all__ = [
    "EncoderBlock",
    "MultiheadAttention",
    "PositionalEncoding",
    "TransformerEncoder",
    "expand_mask",
    "scaled_dot_product",
]
