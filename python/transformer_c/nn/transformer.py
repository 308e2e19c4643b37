"""Encoder and decoder layers and their stacks, with torch.nn's signatures, state-dict keys and results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeGuard, TypeVar

import numpy as np

from .. import _core
from .. import functional as F
from .._arguments import all_of, array, count, divisible, not_negative, probability
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input, is_half
from .._tensor import full, triu
from ..random import as_generator
from . import init
from .attention import MultiheadAttention, own_length
from .cache import KeyValueCache, one_a_layer, restored_on_error
from .containers import ModuleList
from .layers import GELU, Dropout, LayerNorm, Linear, ReLU, of_sequences
from .module import Module
from .packing import Packing, checked_lengths, packing_of

_Caches = Sequence[KeyValueCache] | None  # one per layer
_M = TypeVar("_M", bound=Module)
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _is_plain(module: Any, kind: type[_M]) -> TypeGuard[_M]:
    """Is it of this class, neither another layer nor one with hooks?"""
    return type(module) is kind and "forward" not in vars(module)


def probability_of(dropout: Dropout) -> float:
    """With which it drops; p may have been changed since it was checked."""
    p = dropout.p if dropout.training else 0.0
    return p if type(p) is float and 0.0 <= p <= 1.0 else probability("dropout", p)


def add_norm(norm: Module, x: Tensor, update: Tensor, dropout: Module | None = None) -> Tensor:
    """norm(x + dropout(update)); for a LayerNorm and a Dropout, in one pass over memory."""
    plain = _is_plain(norm, LayerNorm)
    p = 0.0
    if plain and _is_plain(dropout, Dropout):
        p = probability_of(dropout)
    elif dropout is not None:
        update = dropout(update)
    if x.dtype != update.dtype:  # the first block may get integers
        x = x.to(update.dtype)
    if not plain:
        return norm(x + update)
    return F.add_layer_norm(update, x, norm.normalized_shape, norm.weight, norm.bias, norm.eps, dropout_p=p)


def applied_by_a_product(activation: Any) -> str | None:
    """The name of the activation for a product that applies it to its result; None if the product cannot."""
    if isinstance(activation, Module) and "forward" in vars(activation):  # it has hooks
        return None
    if activation is F.relu or type(activation) is ReLU:
        return "relu"
    if activation is F.gelu:
        return "gelu"
    if type(activation) is GELU:
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    return None


def _may_drop_in_product(weight: Tensor) -> bool:
    """False for halves on CPUs: their layers round after each step, and results keep those bits."""
    return weight.is_cuda or not is_half(weight)


def _product(
    layer: Linear, x: Tensor, activation: str | None, lengths: Any, dropout: Dropout | None = None, residual: Tensor | None = None
) -> Tensor:
    """dropout(activation(layer(x))) + residual, the mask being the one that `dropout` would draw."""
    weight, p = layer.weight, 0.0 if dropout is None else probability_of(dropout)
    x = cast_input(x, weight, "Linear")
    if p == 0.0:
        return _core.linear(x, weight, layer.bias, activation, residual, sequence_lengths=lengths)

    def dropping(seed: int, call: int) -> Tensor:
        return _core.linear(x, weight, layer.bias, activation, residual, sequence_lengths=lengths, dropout=p, seed=seed, call=call)

    return as_generator(None).with_mask(dropping)


_NO_DROPOUT: Any = object()


def activated(first: Module, activation: Callable[[Tensor], Tensor], x: Tensor, lengths: Any = None, dropout: Any = _NO_DROPOUT) -> Tensor:
    """dropout(activation(first(x))); of a Linear, where the product can apply them, in one pass over memory. `lengths`: of_sequences."""
    fused = applied_by_a_product(activation)
    if not fused or not _is_plain(first, Linear):
        y = activation(of_sequences(first, x, lengths))
    elif _is_plain(dropout, Dropout) and _may_drop_in_product(first.weight):
        return _product(first, x, fused, lengths, dropout)
    else:
        y = _product(first, x, fused, lengths)
    return y if dropout is _NO_DROPOUT else dropout(y)


def add_product(x: Tensor, last: Module, h: Tensor, dropout: Module, lengths: Any = None) -> Tensor:
    """x + dropout(last(h)); of a Linear and a Dropout in train mode, in one pass over memory."""
    if _is_plain(last, Linear) and _is_plain(dropout, Dropout):
        if probability_of(dropout) == 0.0:
            return x + of_sequences(last, h, lengths)
        weight = last.weight
        of_one_kind = x.dtype == weight.dtype and x.is_cuda == weight.is_cuda and x.shape == (*h.shape[:-1], weight.shape[0])
        if of_one_kind and _may_drop_in_product(weight):
            return _product(last, h, None, lengths, dropout, x)
    return x + dropout(of_sequences(last, h, lengths))


def _activation(given: Any) -> Callable[[Tensor], Tensor]:
    """The function of a name, or a function itself."""
    if isinstance(given, str):
        if given not in _ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, or a callable; got {given!r}")
        return _ACTIVATIONS[given]
    if not callable(given):
        raise TypeError(f"activation must be a str or a callable, not {type(given).__name__}")
    return given


_IGNORED = "src_key_padding_mask=mask == 0, (B, T), True = ignore"


class _Layer(Module):
    """The common part of encoder and decoder layers: attentions, a network of two layers, and a norm and dropout for each of them."""

    _attentions: tuple[str, ...] = ("self_attn",)

    @explained({"dim_ff": "dim_feedforward=", "num_heads": "nhead="})
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        placed = {"device": device, "dtype": dtype}
        d_model, nhead, dim_feedforward, dropout, layer_norm_eps, function, _ = all_of(
            (count, "d_model", d_model),
            (count, "nhead", nhead),
            (count, "dim_feedforward", dim_feedforward),
            (probability, "dropout", dropout),
            (not_negative, "layer_norm_eps", layer_norm_eps),
            (_activation, activation),
            (divisible, "d_model", d_model, "nhead", nhead),
        )
        for name in self._attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **placed))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **placed)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **placed)
        self.norm_first = norm_first
        parts = range(1, len(self._attentions) + 2)
        for i in parts:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **placed))
        for i in parts:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = function

    def _accept(self, x: Tensor) -> Tensor:
        """x in the layer's dtype. Any part of the layer may have been replaced by a module of another kind."""
        return cast_input(x, next(self.parameters(), x), type(self).__name__)

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        attend = self.self_attn
        return self.dropout1(
            attend(x, x, x, key_padding_mask=key_padding_mask, need_weights=False, attn_mask=attn_mask, is_causal=is_causal)[0]
        )

    def _ff_block(self, x: Tensor) -> Tensor:
        return getattr(self, f"dropout{len(self._attentions) + 1}")(self._feed_forward(x))

    def _own(self, name: str, *options: Any) -> Callable[..., Tensor] | None:
        """The part of PyTorch's name that a subclass or the user has defined, its dropout included; None where it is this file's."""
        block = getattr(self, name)
        if getattr(block, "__module__", None) == __name__:
            return None
        if any(option is not None for option in options):
            raise ValueError(f"{type(self).__name__} has a {name} of its own, which takes neither past_key_value nor lengths")
        return block

    def _residual(self, i: int, x: Tensor, part: Callable[[Tensor], Tensor], own: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """x plus the i-th part of the layer, normalised before it or after the sum (Xiong et al. 2020, figure 1)."""
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        if own is not None:
            return x + own(norm(x)) if self.norm_first else norm(x + own(x))
        if self.norm_first:
            return x + dropout(part(norm(x)))
        return add_norm(norm, x, part(x), dropout)

    def _hidden(self, x: Tensor, lengths: Any = None) -> Tensor:
        return activated(self.linear1, self.activation, x, lengths, self.dropout)

    def _feed_forward(self, x: Tensor, lengths: Any = None) -> Tensor:
        return of_sequences(self.linear2, self._hidden(x, lengths), lengths)

    def _add_feed_forward(self, i: int, x: Tensor, lengths: Any = None) -> Tensor:
        """_residual() of the network, the i-th part of the layer."""
        own = self._own("_ff_block")
        if own is not None or not self.norm_first:
            return self._residual(i, x, lambda x: self._feed_forward(x, lengths), own)
        hidden = self._hidden(getattr(self, f"norm{i}")(x), lengths)
        return add_product(x, self.linear2, hidden, getattr(self, f"dropout{i}"), lengths)


def _without_padding(
    run: Callable[[Tensor, Tensor | None, Packing], Tensor],
    x: Tensor,
    batch_first: bool,
    lengths: Any,
    mask: Tensor | None,
    others: dict[str, Any],
) -> Tensor | None:
    """What `run` gives for x packed and the mask of its longest sequence, padded again with zeros; None where no sequence is padded."""
    wrong = [name for name, value in others.items() if value is not None]
    if wrong:
        raise ValueError(f"lengths says what is padding and is for whole sequences; got {' and '.join(wrong)} as well")
    if _core.is_traced():
        raise ValueError("lengths packs sequences, which an exported graph cannot do: export with src_key_padding_mask")
    if x.ndim != 3:
        raise ValueError(f"lengths needs a batch of sequences, 3 axes; got src {x.shape}")
    padded = x if batch_first else x.transpose(0, 1)
    batch, width = padded.shape[:2]
    packing = packing_of(checked_lengths(lengths, batch, width, f"src has shape {x.shape}, batch_first={batch_first}"), width)
    if packing is None:
        return None
    if mask is not None:
        if tuple(mask.shape[-2:]) != (width, width):
            raise ValueError(f"the mask has shape {mask.shape}; expected (T, T) = ({width}, {width}), or that for each sequence and head")
        mask = mask[..., : packing.longest, : packing.longest]
    y = packing.unpack(run(packing.pack(padded), mask, packing))
    return y if batch_first else y.transpose(0, 1)


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a network of two layers, a stand-in for ``torch.nn.TransformerEncoderLayer``.

    Train and eval mode compute the same way: padded positions are computed like all others, and a query whose keys are all masked gets
    values of 0 from attention, never NaN. With ``lengths=`` nothing is computed for padding.

    Parameters
    ----------
    d_model : int
        E, the features of input and output.
    nhead : int
        Heads; divides `d_model`.
    dim_feedforward : int, default 2048
        Width of the hidden layer.
    dropout : float, default 0.1
    activation : {"relu", "gelu"} or callable, default relu
    layer_norm_eps : float, default 1e-5
    batch_first : bool, default False
        Sequences are (B, T, E) instead of (T, B, E).
    norm_first : bool, default False
        Normalise before attention and network instead of after the residual connections.
    bias : bool, default True
        Whether linear layers and norms have biases.
    device, dtype : optional
        Of the parameters.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> layer(np.zeros((4, 5, 8), np.float32)).shape
    (4, 5, 8)
    """

    _arguments_elsewhere: ClassVar = {"mask": "src_mask", "attn_mask": "src_mask", "attention_mask": _IGNORED}

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        past_key_value: KeyValueCache | None = None,
        lengths: Any = None,
    ) -> Tensor:
        """Maps src (T, B, E), (B, T, E) with `batch_first`, or (T, E), to the same shape.

        Parameters
        ----------
        src_mask, src_key_padding_mask, is_causal, past_key_value
            As `attn_mask`, `key_padding_mask`, `is_causal` and `past_key_value` of MultiheadAttention.
        lengths : array_like of int, shape (B,), optional
            The number of positions of each sequence; those after it are padding, for which nothing is computed and 0 comes out. Positions
            before it are as with a `src_key_padding_mask`, but for dropout, which keeps others.
        """
        x = self._accept(src)

        def packed(x: Tensor, mask: Tensor | None, packing: Packing) -> Tensor:
            return self._layer(x, None, mask, is_causal, sequence_lengths=packing.sequence_lengths)

        if isinstance(lengths, Packing):  # the stack has packed x
            return packed(x, src_mask, lengths)
        if lengths is not None:
            others = {"src_key_padding_mask": src_key_padding_mask, "past_key_value": past_key_value}
            y = _without_padding(packed, x, self.self_attn.batch_first, lengths, src_mask, others)
            if y is not None:
                return y
        kept = {} if past_key_value is None else {"past_key_value": past_key_value}
        with restored_on_error([past_key_value]):
            return self._layer(x, src_key_padding_mask, src_mask, is_causal, **kept)

    def _layer(self, x: Tensor, padding: Tensor | None, mask: Tensor | None, is_causal: bool, **options: Any) -> Tensor:
        lengths = options.get("sequence_lengths")
        if isinstance(self.self_attn, MultiheadAttention):
            lengths = own_length(x, self.self_attn.batch_first, mask, padding, options.get("past_key_value"), lengths)

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=is_causal, **options)[0]

        block = self._own("_sa_block", *options.values())
        own = None if block is None else lambda x: block(x, mask, padding, is_causal=is_causal)
        return self._add_feed_forward(2, self._residual(1, x, attend, own), lengths)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, then a network: a stand-in for ``torch.nn.TransformerDecoderLayer``.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As for TransformerEncoderLayer.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> memory, target = np.zeros((4, 7, 8), np.float32), np.zeros((4, 5, 8), np.float32)
    >>> layer(target, memory, tgt_is_causal=True).shape
    (4, 5, 8)
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        past_key_value: KeyValueCache | None = None,
    ) -> Tensor:
        """Maps tgt (Tt, B, E), (B, Tt, E) with `batch_first`, or (Tt, E), and memory (the same with Ts for Tt) to the shape of tgt.

        Parameters
        ----------
        tgt_mask, tgt_key_padding_mask, tgt_is_causal
            As `attn_mask`, `key_padding_mask` and `is_causal` of MultiheadAttention, for the self-attention.
        memory_mask, memory_key_padding_mask, memory_is_causal
            The same for the attention to `memory`.
        past_key_value : KeyValueCache, optional
            The cache of the positions before `tgt`. Its ``cross`` keeps the projections of the first call's `memory`.
        """
        x = self._accept(tgt)
        cross = None if past_key_value is None else past_key_value.cross
        kept = {} if past_key_value is None else {"past_key_value": past_key_value}
        kept_memory = {} if cross is None else {"past_key_value": cross}
        # With a cache, the targets continue at its end; this shifts the diagonal of the memory mask as well.
        place = {"causal_offset": len(past_key_value)} if past_key_value is not None and memory_is_causal else {}

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, key_padding_mask=tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask, is_causal=tgt_is_causal, **kept
            )[0]  # fmt: skip

        def attend_to_memory(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, key_padding_mask=memory_key_padding_mask, need_weights=False, attn_mask=memory_mask, is_causal=memory_is_causal,
                **kept_memory, **place,
            )[0]  # fmt: skip

        block, to_memory = self._own("_sa_block", past_key_value), self._own("_mha_block", past_key_value)
        own = None if block is None else lambda x: block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        own_to_memory = (
            None if to_memory is None else lambda x: to_memory(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        )
        with restored_on_error([past_key_value]):
            x = self._residual(2, self._residual(1, x, attend, own), attend_to_memory, own_to_memory)
            return self._add_feed_forward(3, x)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        attend = self.multihead_attn
        return self.dropout2(
            attend(x, mem, mem, key_padding_mask=key_padding_mask, need_weights=False, attn_mask=attn_mask, is_causal=is_causal)[0]
        )


def _copies(layer: Module, num_layers: int) -> ModuleList:
    """Deep copies, so that all layers start with the same weights, as in PyTorch."""
    if not isinstance(layer, Module):
        raise TypeError(f"the layer must be a module, not {type(layer).__name__}: an instance, which is copied num_layers times")
    return ModuleList([copy.deepcopy(layer) for _ in range(count("num_layers", num_layers, 0))])


def _is_causal(mask: Tensor) -> bool:
    """Whether it is the mask of ``Transformer.generate_square_subsequent_mask``, or its bool form.

    In a trace it may be any mask later. On a GPU it is not looked at, which would wait for the GPU in each forward.
    """
    if _core.is_traced() or mask.is_cuda:
        return False
    values = mask.numpy()
    future = np.triu(np.ones(values.shape, bool), 1)
    return np.array_equal(values, future if values.dtype == bool else np.where(future, -np.inf, 0.0))


def _computes_as(module: Any, kind: type[Module]) -> bool:
    """Is its forward that of this class: neither a subclass's, nor a patched one, nor one with hooks?"""
    return isinstance(module, kind) and type(module).forward is kind.forward and "forward" not in vars(module)


class _Stack(Module):
    """Layers one after the other, followed by an optional norm."""

    _kind: type[_Layer]

    def _reads_the_flag(self) -> bool:
        """Do the layers attend by `is_causal` alone? Others may read the mask and take the flag for a hint, as in PyTorch."""
        return all(
            _computes_as(layer, self._kind) and _computes_as(layer.self_attn, MultiheadAttention) and layer._own("_sa_block") is None
            for layer in self.layers
        )

    def _causal(self, x: Tensor, mask: Tensor | None, is_causal: bool | None, caches: _Caches) -> tuple[Tensor | None, bool]:
        """Mask and flag. Unless `is_causal` is False, a causal mask on the CPU sets the flag, and is left out where that skips half the work."""
        attention = getattr(self.layers[0], "self_attn", None) if len(self.layers) else None
        if mask is not None and is_causal is not False and isinstance(attention, MultiheadAttention) and not mask.requires_grad:
            length = x.shape[1 if x.ndim == 3 and attention.batch_first else 0]
            past = isinstance(caches, Sequence) and any(map(len, caches))
            if mask.shape == (length, length) and not past and _is_causal(mask):  # the layer refuses a mask of another shape
                return None if self._reads_the_flag() else mask, True
        return mask, bool(is_causal)

    def _run(self, x: Tensor, caches: _Caches, *args: Any, **masks: Any) -> Tensor:
        each = one_a_layer(caches, len(self.layers))
        with restored_on_error(each):
            for layer, cache in zip(self.layers, each, strict=True):
                x = layer(x, *args, **masks) if cache is None else layer(x, *args, **masks, past_key_value=cache)
            if isinstance(self.norm, type):  # some tutorials pass the class
                raise TypeError(f"norm is the class {self.norm.__name__}; expected a module such as nn.{self.norm.__name__}(d_model)")
            return x if self.norm is None else self.norm(x)

    def new_caches(self, max_length: int | None = None) -> list[KeyValueCache]:
        """Empty caches for ``past_key_value=``, one per layer; `max_length` allocates that many positions at once."""
        return [KeyValueCache(max_length) for _ in self.layers]


class TransformerEncoder(_Stack):
    """A stack of encoder layers, a stand-in for ``torch.nn.TransformerEncoder``.

    Parameters
    ----------
    encoder_layer : Module
        Copied `num_layers` times, weights included.
    num_layers : int
    norm : Module, optional
        Applied to the last layer's output.
    enable_nested_tensor, mask_check : bool
        Accepted for compatibility with PyTorch and ignored: eval mode computes the same as train mode. In eval mode, PyTorch gives 0 at
        padded positions, as ``lengths=`` does here.

    Attributes
    ----------
    layers : ModuleList

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> encoder = tc.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(np.zeros((4, 5, 8), np.float32)).shape
    (4, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    _kind = TransformerEncoderLayer
    _arguments_elsewhere: ClassVar = {"src_mask": "mask", "attn_mask": "mask", "attention_mask": _IGNORED}

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
        *,
        past_key_value: _Caches = None,
        lengths: Any = None,
    ) -> Tensor:
        """Passes src through all layers; masks as for TransformerEncoderLayer, `past_key_value` one cache per layer (``new_caches``).

        With `lengths` (B,), the number of positions of each sequence, layers and norm compute nothing for padding: they get the sequences side
        by side, (N, E), and the result is 0 at padded positions.
        """
        mask, causal = self._causal(src, mask, is_causal, past_key_value)
        if lengths is not None:
            kinds = {type(layer).__name__ for layer in self.layers if not isinstance(layer, TransformerEncoderLayer)}
            if kinds or not len(self.layers):
                raise ValueError(f"lengths needs layers that are TransformerEncoderLayer; got {', '.join(sorted(kinds)) or 'none'}")

            def packed(x: Tensor, mask: Tensor | None, packing: Packing) -> Tensor:
                return self._run(x, None, src_mask=mask, is_causal=causal, lengths=packing)

            others = {"src_key_padding_mask": src_key_padding_mask, "past_key_value": past_key_value}
            y = _without_padding(packed, src, self.layers[0].self_attn.batch_first, lengths, mask, others)
            if y is not None:
                return y
        return self._run(src, past_key_value, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)


class TransformerDecoder(_Stack):
    """A stack of decoder layers, a stand-in for ``torch.nn.TransformerDecoder``.

    Parameters
    ----------
    decoder_layer : Module
        Copied `num_layers` times, weights included.
    num_layers : int
    norm : Module, optional
        Applied to the last layer's output.

    Attributes
    ----------
    layers : ModuleList

    Examples
    --------
    Decoding one position at a time, with each layer's keys and values cached:

    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> decoder = tc.nn.TransformerDecoder(layer, num_layers=2).eval()
    >>> memory, target = np.zeros((4, 7, 8), np.float32), np.ones((4, 5, 8), np.float32)
    >>> whole = decoder(target, memory, tgt_is_causal=True)
    >>> caches = decoder.new_caches()
    >>> steps = [decoder(target[:, i : i + 1], memory, tgt_is_causal=True, past_key_value=caches) for i in range(5)]
    >>> np.allclose(np.concatenate(steps, axis=1), whole, atol=1e-6)
    True
    """

    _kind = TransformerDecoderLayer

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        past_key_value: _Caches = None,
    ) -> Tensor:
        """Passes tgt through all layers; masks as for TransformerDecoderLayer, `past_key_value` one cache per layer (``new_caches``)."""
        tgt_mask, causal = self._causal(tgt, tgt_mask, tgt_is_causal, past_key_value)
        return self._run(
            tgt,
            past_key_value,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=causal,
            memory_is_causal=memory_is_causal,
        )


class Transformer(Module):
    """Encoder and decoder (Vaswani et al. 2017), a stand-in for ``torch.nn.Transformer``.

    Parameters
    ----------
    d_model : int, default 512
    nhead : int, default 8
    num_encoder_layers, num_decoder_layers : int, default 6
    dim_feedforward, dropout, activation
        As for TransformerEncoderLayer.
    custom_encoder, custom_decoder : Module, optional
        Used instead of the default stacks.
    layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As for TransformerEncoderLayer.

    Attributes
    ----------
    encoder, decoder : Module

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> model = tc.nn.Transformer(8, 2, 1, 1, dim_feedforward=16, batch_first=True)
    >>> source, target = np.zeros((4, 7, 8), np.float32), np.zeros((4, 5, 8), np.float32)
    >>> model(source, target, tgt_mask=model.generate_square_subsequent_mask(5)).shape
    (4, 5, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*layer), num_encoder_layers, norm())
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*layer), num_decoder_layers, norm())
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Maps src (Ts, B, E) and tgt (Tt, B, E), or with `batch_first` (B, Ts, E) and (B, Tt, E), to the shape of tgt.

        Parameters
        ----------
        src_mask, tgt_mask, memory_mask : array_like, shape (Tq, Tk) or (B H, Tq, Tk), optional
            Bool: True = must not attend. Floating: added to the scores.
        src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask : array_like, shape (B, Tk), optional
            Bool: True = ignore the key. Floating: added to the scores.
        src_is_causal, tgt_is_causal : bool, optional
            None: a causal mask on the CPU is recognised, which saves half the work. On a GPU masks are not read: there, True does.
        memory_is_causal : bool, default False
        """
        src, tgt = array("Transformer", src), array("Transformer", tgt)
        shapes = f"src {tuple(src.shape)}, tgt {tuple(tgt.shape)}"
        batch_axis = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or src.ndim not in (2, 3):
            raise ValueError(f"src and tgt must both have 3 axes, or both 2 for one sequence; got {shapes}")
        if src.ndim == 3 and src.shape[batch_axis] != tgt.shape[batch_axis]:
            raise ValueError(f"src and tgt must have the same number of batch elements on axis {batch_axis}; got {shapes}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(f"src and tgt must have d_model={self.d_model} features; got {shapes}")
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
        """The causal mask (sz, sz): 0 up to the diagonal, -inf after it.

        Examples
        --------
        >>> import transformer_c as tc
        >>> tc.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return triu(full((count("sz", sz, 0),) * 2, float("-inf"), dtype=dtype, device=device), diagonal=1)


__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
