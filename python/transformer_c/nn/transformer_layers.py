"""Encoder and decoder layers, with torch.nn's signatures, state-dict keys and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import functional as F
from .._arguments import all_of, count, divisible, not_negative, probability
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from .attention import MultiheadAttention, own_length
from .cache import KeyValueCache, restored_on_error
from .fusion import activated, add_norm, add_product
from .layers import Dropout, LayerNorm, Linear, of_sequences
from .module import Module
from .packing import Packing, without_padding
from .parameter import registered

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _activation(given: Any) -> Callable[[Tensor], Tensor]:
    """The function of a name, or a function itself."""
    if isinstance(given, str):
        if given not in _ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, or a callable; got {given!r}")
        return _ACTIVATIONS[given]
    if not callable(given):
        raise TypeError(f"activation must be a str or a callable, not {type(given).__name__}")
    return given


PADDING_ELSEWHERE = "src_key_padding_mask=mask == 0, (B, T), True = ignore"


class _Layer(Module):
    """The common part of encoder and decoder layers: attentions, a network of two layers, and a norm and dropout for each of them."""

    self_attn: MultiheadAttention = registered("_modules")
    linear1: Linear = registered("_modules")
    linear2: Linear = registered("_modules")
    dropout: Dropout = registered("_modules")
    norm1: LayerNorm = registered("_modules")
    norm2: LayerNorm = registered("_modules")
    dropout1: Dropout = registered("_modules")
    dropout2: Dropout = registered("_modules")
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
        """A method with PyTorch's name that a subclass or the user defined, and which applies dropout; None for the one of this file."""
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

    _arguments_elsewhere: ClassVar = {"mask": "src_mask", "attn_mask": "src_mask", "attention_mask": PADDING_ELSEWHERE}

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
            y = without_padding(packed, x, self.self_attn.batch_first, lengths, src_mask, others)
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


__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]
