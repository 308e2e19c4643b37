"""Stacks of encoder and decoder layers, and the model of both, with torch.nn's signatures, state-dict keys and results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import _core
from .. import functional as F
from .._arguments import array, count
from .._core import Tensor
from .._joining import triu
from .._tensor import full
from . import init
from .attention import MultiheadAttention
from .cache import KeyValueCache, one_a_layer, restored_on_error
from .containers import ModuleList
from .layers import LayerNorm
from .module import Module
from .packing import Packing, without_padding
from .transformer_layers import PADDING_ELSEWHERE, TransformerDecoderLayer, TransformerEncoderLayer

_Caches = Sequence[KeyValueCache] | None  # one per layer


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

    _kind: type[TransformerEncoderLayer | TransformerDecoderLayer]

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
    _arguments_elsewhere: ClassVar = {"src_mask": "mask", "attn_mask": "mask", "attention_mask": PADDING_ELSEWHERE}

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
            y = without_padding(packed, src, self.layers[0].self_attn.batch_first, lengths, mask, others)
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


__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]
