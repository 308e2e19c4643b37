"""What encoder-decoders share: the Transformer of "Attention is all you need" (Vaswani et al. 2017), whose decoder also attends to another text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._names import explained
from .._tensor import arange, as_tensor, full
from ..checkpoint import CheckpointError
from ..nn.attention import join_heads
from ..nn.fusion import add_norm
from ..nn.layers import of_sequences
from .cache import Cache, CacheOfLayer, check_cache
from .config import Config, Heads, Widths
from .layers import _HARMLESS, _INSTEAD, _SAME, ACTIVATIONS, Layer, TextEncoder, norm_of, own_lengths, tokens_among, which_are_tokens
from .names import lack

named_as_in_transformers = explained(
    {
        **_INSTEAD,
        "labels": "the loss is cross_entropy(model(ids, mask, decoder_ids=model.shifted(labels)).flatten(0, 1), labels.flatten())",
        "encoder_outputs": "the states of the encoder are computed from ids; with cache= once for all calls",
        "token_types": "encoder-decoders have no embeddings for the parts of a pair",
    },
    {
        **{name: own for name, own in _SAME.items() if own in ("ids", "mask")},
        "decoder_input_ids": "decoder_ids",
        "input_features": "ids",
        "decoder_attention_mask": "decoder_mask",
    },
    harmless={**_HARMLESS, "encoder_outputs": (None,), "token_types": (None,), "token_type_ids": (None,)},
)


class Source(NamedTuple):
    """The text that a decoder attends to.

    Attributes
    ----------
    states : Tensor, shape (B, S, E)
    visible : dict
        The arguments of attention that say which of them are tokens.
    """

    states: Tensor
    visible: dict[str, Any]


class PairLayer(Layer):
    """A layer of which heads may have another size than a share of the states, and whose network may have a gate in an array of its own.

    Parameters
    ----------
    widths : Widths
    norm_first : bool
    size : int
        D, the features of a head.
    scale : float, optional
        Of the scores; None: by the size of a head.
    inner_dropout : float
        Of the network, after its activation.
    """

    def __init__(self, widths: Widths, norm_first: bool, size: int, scale: float | None, inner_dropout: float) -> None:
        super().__init__(widths, norm_first, Heads(widths.heads, size))
        self.scale = scale
        self.inner_dropout = nn.Dropout(inner_dropout)

    def make_network(self, widths: Widths) -> None:
        if not widths.gated:
            super().make_network(widths)
            return
        self.gate = nn.Linear(widths.model, widths.hidden, bias=widths.network_bias)
        self.up = nn.Linear(widths.model, widths.hidden, bias=widths.network_bias)
        self.linear2 = nn.Linear(widths.hidden, widths.model, bias=widths.network_bias)

    def _hidden(self, x: Tensor, lengths: Any) -> Tensor:
        if not self.gated:
            return self.inner_dropout(super()._hidden(x, lengths))
        opened = ACTIVATIONS[self.activation](of_sequences(self.gate, x, lengths))
        return self.inner_dropout(opened * of_sequences(self.up, x, lengths))


class CrossAttention(nn.Module):
    """Attention of a decoder's tokens to the encoder's states.

    Parameters
    ----------
    widths : Widths
    size : int
        D, the features of a head.
    scale : float, optional
        Of the scores; None: by the size of a head.
    """

    _attention_map: ClassVar = {"return_attention": True}

    def __init__(self, widths: Widths, size: int, scale: float | None) -> None:
        super().__init__()
        self.heads, self.size, self.scale, self.attention_dropout = widths.heads, size, scale, widths.attention_dropout
        self.query = nn.Linear(widths.model, widths.heads * size, bias=widths.qkv_bias)
        self.keys = nn.Linear(widths.model, 2 * widths.heads * size, bias=widths.qkv_bias)  # rows [K | V]
        self.out = nn.Linear(widths.heads * size, widths.model, bias=widths.out_bias)

    def project(self, source: Source) -> tuple[Tensor, Tensor]:
        """The keys and values of the encoder's states, each (B, H, S, D)."""
        both = of_sequences(self.keys, source.states, own_lengths(source.states, source.visible))
        k, v = both.reshape(*both.shape[:2], 2, self.heads, self.size).permute(2, 0, 3, 1, 4)
        return k, v

    def forward(self, x: Tensor, source: Source, lengths: Any, cache: CacheOfLayer | None = None, return_attention: bool = False) -> Any:
        """x (B, T, E) to the same shape, or (B n, T, E) where n rows, those of the beams of a search, attend to each text; `lengths` of x."""
        k, v = self.project(source) if cache is None else cache.of_source(lambda: self.project(source))
        batch, width = x.shape[:2]
        texts = k.shape[0]
        each = batch // texts if texts else 1  # rows that attend to one text
        q = of_sequences(self.query, x, lengths).reshape(texts, each * width, self.heads, self.size).transpose(1, 2)
        dropout = self.attention_dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, scale=self.scale, return_attention=return_attention, **source.visible
        )
        values, weights = found if return_attention else (found, None)
        y = of_sequences(self.out, join_heads(values).reshape(batch, width, self.heads * self.size), lengths)
        return (y, weights) if return_attention else y


class TargetLayer(PairLayer):
    """A layer of a decoder: self-attention, attention to the encoder's states, a network."""

    def __init__(self, widths: Widths, norm_first: bool, size: int, scale: float | None, inner_dropout: float) -> None:
        super().__init__(widths, norm_first, size, scale, inner_dropout)
        self.cross = CrossAttention(widths, size, scale)
        self.cross_norm = norm_of(widths)
        self.cross_dropout = nn.Dropout(widths.dropout)

    def forward(  # type: ignore[override]
        self, x: Tensor, visible: dict[str, Any], source: Source, return_attention: bool = False, cache: CacheOfLayer | None = None
    ) -> Any:
        """x (B, T, E) to the same shape."""
        lengths = own_lengths(x, visible)
        attended, weights = self._attend(self._before(self.norm1, x), visible, return_attention, lengths, None, cache)
        x = self._after(self.norm1, x, attended, self.dropout1)
        x = self._after(self.cross_norm, x, self.cross(self._before(self.cross_norm, x), source, lengths, cache), self.cross_dropout)
        hidden = self._hidden(self._before(self.norm2, x), lengths)
        x = self._after(self.norm2, x, of_sequences(self.linear2, hidden, lengths), self.dropout2)
        return (x, weights) if return_attention else x

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.norm_first else x

    def _after(self, norm: nn.Module, x: Tensor, update: Tensor, dropout: nn.Module) -> Tensor:
        return x + dropout(update) if self.norm_first else add_norm(norm, x, update, dropout)


class Decoder(nn.Module):
    """The base of decoders that attend to another text; ``embed`` is the architecture's own.

    Parameters
    ----------
    layers : iterable of TargetLayer
    """

    def __init__(self, layers: Iterable[TargetLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def embed(self, x: Tensor, start: int) -> Tensor:
        """The first layer's input, of the embeddings of words (B, T, E), which come after `start` others."""
        raise NotImplementedError

    def bias(self, start: int, length: int) -> Tensor | None:
        """What is added to the scores of tokens that come after `start` others, (1, H, T, start + T); None: nothing."""
        return None

    def finish(self, x: Tensor) -> Tensor:
        """The states, of what the last layer gives."""
        return x

    def forward(self, x: Tensor, source: Source, lengths: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """The embeddings of words (B, T, E) to states (B, T, E); `lengths` of the texts where they are padded."""
        batch, width = x.shape[:2]
        visible: dict[str, Any] = {"is_causal": True}
        starts = np.zeros(batch, np.int64) if cache is None else cache.starts(batch)
        start = int(starts.max(initial=0))
        ends = starts + width
        if lengths is not None:
            visible["key_lengths"] = lengths
        if start:
            visible |= {"causal_offset": as_tensor(starts), "key_lengths": as_tensor(ends)}
        bias = self.bias(start, width)
        if bias is not None:
            visible["bias"] = bias
        x = self.embed(x, start)
        for number, layer in enumerate(self.layers):
            x = layer(x, visible, source, cache=None if cache is None else CacheOfLayer(cache, number, ends, None, None))
        if cache is not None:
            cache.lengths = ends
        return self.finish(x)


class EncoderDecoder(nn.Module):
    """The base of encoder-decoders.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    width : int
        E, the features of a state.
    encoder : TextEncoder
        ``model.encoder(ids, mask)`` gives the states of the text that is read. It has the embeddings of words, ``words``, which both use.
    decoder : Decoder
    """

    pooler = None
    longest: int  # tokens that a text of each side may have
    tie_word_embeddings: ClassVar[bool] = True
    USUAL: ClassVar[Mapping[str, int]] = {}  # numbers of tokens that config.json means where it does not say

    def __init__(self, config: Config, encoder: TextEncoder, decoder: Decoder) -> None:
        super().__init__()
        self.config, self.width, self.longest = config.values, encoder.width, encoder.longest
        self.encoder, self.decoder = encoder, decoder
        words = encoder.words.weight.shape[0]
        self.start = config.index("decoder_start_token_id", self.usual_start(config), words)
        self.padding = config.index("pad_token_id", None, words)

    @staticmethod
    def usual_start(config: Config) -> int | None:
        """The token that decoders' texts begin with where config.json does not say."""
        return None

    @property
    def words(self) -> Any:
        return self.encoder.words

    @property
    def layers(self) -> Any:
        return self.encoder.layers

    @named_as_in_transformers
    def forward(
        self,
        ids: Tensor | None,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        decoder_ids: Tensor | None = None,
        decoder_mask: Tensor | None = None,
        decoder_lengths: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder's states.

        Parameters
        ----------
        ids : array_like of int, shape (B, S)
            Numbers of the tokens of the texts that are read; padded at their ends. None where `cache` has them from an earlier call.
        mask : array_like of 0 and 1, shape (B, S), optional
        lengths : array_like of int, shape (B,), optional
            As for ``TextEncoder``.
        decoder_ids : array_like of int, shape (B, T)
            Numbers of the tokens of the texts that are written, from the one that begins them on: ``model.shifted(labels)``.
        decoder_mask, decoder_lengths
            Their padding, which can only be at their ends.
        cache : Cache, optional
            Keeps the texts that are read, and those that are written, of equal lengths: decoder_ids continue them. Not where gradients are
            recorded.

        Returns
        -------
        Tensor or ndarray, shape (B, T, E)
            Of each token, seen are itself, those before it and the text that is read; 0 at padded positions.
        """
        if decoder_ids is None:
            raise ValueError(
                "decoder_ids are missing, the tokens of the texts that are written: model.shifted(labels), or what a text begins with; "
                "the states of the encoder alone are model.encoder(ids, mask), or model.encoder.encoder(ids, mask) of a model with a task"
            )
        written, _ = _of_written(lambda: self.encoder.checked(decoder_ids))
        if cache is not None:
            self._check(cache, written, decoder_mask, decoder_lengths)
        if cache is not None and cache.source is not None and cache.lengths is not None:  # not of a first call that failed
            if not (ids is None and mask is None and lengths is None):
                raise ValueError("the cache has the text that is read: give None for ids, and no mask or lengths")
            source = Source(self.encoder.words.weight, cache.source)  # of whose states the cache has keys and values
        else:
            source = self._read(ids, mask, lengths)
            if source.states.shape[0] != written.shape[0]:
                raise ValueError(f"ids have {source.states.shape[0]} texts and decoder_ids {written.shape[0]}")
            if cache is not None:
                cache.begin(source.visible)
        ends = _of_written(lambda: self._ends(written, decoder_mask, decoder_lengths))
        x = self.decoder(self.encoder.words(written), source, ends, cache)
        real = None if ends is None else tokens_among({"key_lengths": ends}, written)
        return x if real is None else x.masked_fill(~real[:, :, None], 0.0)

    def _read(self, ids: Tensor | None, mask: Tensor | None, lengths: Tensor | None) -> Source:
        """The states of the encoder, and which are tokens'."""
        if ids is None:
            raise ValueError("ids are None, but no cache has the text that is read")
        ids, _ = self.encoder.checked(ids)
        packing, visible = which_are_tokens(tuple(ids.shape), mask, lengths)
        states = self.encoder(ids, mask, lengths)
        return Source(states, visible if packing is None else {"key_lengths": packing.sequence_lengths})

    @staticmethod
    def _ends(ids: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor | None:
        """The lengths of the texts that are written; None where none is padded."""
        if _core.is_traced() and (mask is not None or lengths is not None):
            raise ValueError("an exported model takes no padding of the texts that are written: tokens see none after them")
        packing, visible = which_are_tokens(tuple(ids.shape), mask, lengths)
        if packing is not None:
            return packing.sequence_lengths
        if "attn_mask" in visible and not as_tensor(visible["attn_mask"]).all():
            raise ValueError("texts that are written can only be padded at their ends; decoder_mask has zeros elsewhere")
        return None

    def _check(self, cache: Any, ids: Tensor, mask: Any, lengths: Any) -> None:
        """Raises where a cache cannot be used."""
        check_cache(cache, self)
        if mask is not None or lengths is not None:
            raise ValueError("with a cache, the texts that are written have no padding")
        if cache.lengths is not None and cache.source is None:
            raise ValueError("the cache is of a decoder that reads no other text; a cache belongs to one model")
        starts = cache.starts(ids.shape[0])
        if len(set(starts.tolist())) > 1:
            raise ValueError(f"the texts that are written must have one length in a cache, not {starts.tolist()}")
        if starts.max(initial=0) + ids.shape[1] > self.longest:
            raise ValueError(
                f"texts would have {starts.max() + ids.shape[1]} tokens, {starts.max()} of them in the cache; this model takes at most {self.longest}"
            )

    def shifted(self, labels: Any) -> Any:
        """``decoder_ids`` of labels (B, T), the tokens that are to be written: what begins texts, and the labels but the last.

        Parameters
        ----------
        labels : array_like of int, shape (B, T)
            -100 at padded positions, which ``cross_entropy`` leaves out.

        Returns
        -------
        Tensor, shape (B, T)
        """
        found = self._padded(labels)
        if self.start is None:
            raise ValueError("config.json has no decoder_start_token_id, the token that texts begin with")
        return cat([full((found.shape[0], 1), self.start, dtype=found.dtype, device=found.device), found[:, :-1]], 1)

    def _padded(self, labels: Any) -> Tensor:
        """Labels (B, T) with the number of padding in place of -100."""
        found = as_tensor(labels)
        if found.ndim != 2 or found.dtype.kind not in "iu":
            raise ValueError(f"labels must be integers of shape (B, T), got {found.dtype.name} of shape {found.shape}")
        return found.masked_fill(found == -100, self.padding or 0)

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        """Of the head: whether its table is that of the words."""
        return {"tied": config.flag("tie_word_embeddings", cls.tie_word_embeddings)}

    @classmethod
    def check_layers(
        cls, config: Config, shapes: Mapping[str, tuple[int, ...]], name: str, usual: Any, prefix: str, what: str = "the decoder"
    ) -> None:
        """Compares the number of the layers of a decoder, or of what else there is, with the arrays, before memory is taken for anything."""
        numbers = {int(own.removeprefix(prefix).partition(".")[0]) for own in shapes if _is_numbered(own, prefix)}
        usual = len(numbers) if usual is None else usual
        count = usual if config.values.get(name) is None else config.size(name)
        if len(numbers) != count or numbers != set(range(count)):
            if not numbers:
                raise lack(f"{prefix}0", shapes)
            raise CheckpointError(
                f"{config.file} has {name} = {count}; the weights have {len(numbers)} layers of {what}, to number {max(numbers)}"
            )


def _is_numbered(name: str, prefix: str) -> bool:
    number = name.removeprefix(prefix).partition(".")[0]
    return name.startswith(prefix) and number.isdecimal() and len(number) < 7


def _of_written(read: Callable[[], Any]) -> Any:
    """What `read` gives; its errors say that they are about the text that is written."""
    try:
        return read()
    except (TypeError, ValueError) as error:
        raise type(error)(f"of the texts that are written (decoder_ids, decoder_mask, decoder_lengths): {error}") from None


def without_extensions(config: Config) -> None:
    """Refuses what changes the computation of any encoder-decoder."""
    config.only("is_encoder_decoder", True)
    config.only("is_decoder", False, None)
    config.only("add_cross_attention", False, None)
    config.only("quantization_config", None)
    config.only("pruned_heads", None, {}, [])


def places_after(start: int, length: int, like: Tensor) -> Tensor:
    """start, start + 1, ..."""
    return arange(start, start + length, device=like.device)
