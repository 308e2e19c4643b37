"""What the architectures share: the layer, the masks, the base class of text encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._names import explained
from .._promotion import is_half
from .._tensor import arange, as_tensor, zeros
from ..nn.attention import join_heads
from ..nn.fusion import activated, add_norm, add_product, gated, is_plain
from ..nn.layers import of_sequences
from ..nn.packing import Packing, checked_lengths, packing_of, tensor_of_lengths
from ..nn.parameter import Parameter
from .cache import CacheOfLayer
from .config import Config, Heads, Widths
from .rotation import Rotation

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": nn.GELU("tanh"),
    "identity": lambda x: x,
    "quick_gelu": lambda x: x * F.sigmoid(x * 1.702),
    **{name: getattr(F, name) for name in ("relu", "gelu", "sigmoid", "silu", "tanh")},
}

# Of transformers' arguments, those that are called otherwise here, and what to write instead of others.
_SAME = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "token_types", "pixel_values": "pixels"}
_INSTEAD = {
    "labels": "the loss is one of tc.functional's, of what the model gives: cross_entropy(model(ids, mask), labels)",
    "output_attentions": "with tc.nn.attention_maps(model) as maps: model(ids)",
    "output_hidden_states": "model.layers[i].register_forward_hook(hook, with_kwargs=True) sees the states of a layer; packed, (1, N, E), where texts have different lengths: kwargs['packing'].unpack(output[0]) is (B, T, E)",
    "return_dict": "the result is the array itself",
    "position_ids": "positions are counted from the tokens",
    "inputs_embeds": "a model takes the numbers of tokens, ids",
    **dict.fromkeys(("past_key_values", "use_cache"), "cache=tc.models.Cache() keeps a decoder's keys and values"),
    "logits_to_keep": "last=True gives a decoder's scores after the last token of each text alone",
}
_HARMLESS = {**dict.fromkeys(("labels", "position_ids", "inputs_embeds", "past_key_values"), (None,)), "use_cache": (None, False)}
named_as_in_transformers = explained(_INSTEAD, _SAME, harmless=_HARMLESS)


def own_lengths(x: Tensor, visible: dict[str, Any]) -> Any:
    """The lengths of packed texts, or the one length of all texts of x (B, T, E). Padded texts have two each: of the positions up to the last
    token, and of those after it, as T depends on the batch."""
    if _core.is_traced() or x.is_cuda:  # no kernel is chosen by lengths there
        return None
    if "sequence_lengths" in visible:
        return visible["sequence_lengths"]
    if "causal_offset" in visible:  # tokens after those in a cache
        ends = (visible["key_lengths"] - visible["causal_offset"]).numpy()
    else:
        tokens = tokens_among(visible, x)
        if tokens is None:
            return x.shape[1]
        ends = ends_of_texts(tokens)
    return np.stack((ends, x.shape[1] - ends), 1).ravel()


def ends_of_texts(tokens: Tensor) -> np.ndarray:
    """Of each text the number of positions up to its last token, of which positions are tokens (B, T)."""
    ends: np.ndarray = (tokens.numpy() * np.arange(1, tokens.shape[1] + 1)).max(1, initial=0)
    return ends


class OffsetNorm(nn.RMSNorm):
    """Multiplies by 1 + weight; of halves in float32, rounded once."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        x = self._cast(input)
        if is_half(x):
            return F.rms_norm(x.float(), self.normalized_shape, self.weight.float() + 1, self.eps).to(x.dtype)
        return F.rms_norm(x, self.normalized_shape, self.weight + 1, self.eps)


class LayerScale(nn.Module):
    """Multiplies each feature by a number, `value` at first."""

    def __init__(self, size: int | tuple[int, ...], value: float = 1.0) -> None:
        super().__init__()
        self.value, self.weight = value, Parameter(zeros(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.value)

    def forward(self, input: Tensor) -> Tensor:
        return input * self.weight


def norm_of(widths: Widths, size: int | None = None) -> nn.Module:
    """A norm of states, or of `size` features."""
    size = widths.model if size is None else size
    if widths.rms:
        return (OffsetNorm if widths.offset else nn.RMSNorm)(size, eps=widths.eps)
    return nn.LayerNorm(size, eps=widths.eps, bias=widths.norm_bias)


class Layer(nn.Module):
    """Self-attention, then a network of two layers, each with a residual connection and a norm.

    Parameters
    ----------
    widths : Widths
    norm_first : bool
        Normalise before attention and network (ViT) instead of after the residual connections (BERT and its kin).
    heads : Heads, optional
        By default as many of keys as of queries, of equal shares of the states.
    """

    _attention_map: ClassVar = {"return_attention": True}
    window: tuple[int, int] | None = None  # how far a token sees before and behind itself; None: all of its text
    grouped: bool = False  # whether keys and values have fewer heads than queries
    scale: float | None = None  # of the scores; None: by the size of a head
    softcap: float = 0.0  # what scores stay below; 0: nothing
    rows: str = "qkv"  # the order of the rows of ``qkv``: see ``tc.functional.qkv_projection``
    parallel: bool = False  # whether the network sees what attention sees, not what it adds

    def __init__(self, widths: Widths, norm_first: bool = False, heads: Heads | None = None) -> None:
        super().__init__()
        self.heads, self.activation, self.norm_first = widths.heads, widths.activation, norm_first
        self.attention_dropout = widths.attention_dropout
        self.make_projections(widths, heads or Heads(widths.heads, widths.model // widths.heads))
        self.norm1 = norm_of(widths) if widths.norm_before[0] else nn.Identity()
        self.gated = widths.gated
        self.make_network(widths)
        self.norm2 = norm_of(widths) if widths.norm_before[1] else nn.Identity()
        self.after1: nn.Module | None = norm_of(widths) if widths.norm_after else None
        self.after2: nn.Module | None = norm_of(widths) if widths.norm_after else None
        self.dropout1: nn.Module = nn.Dropout(widths.dropout if widths.drops_attended else 0.0)
        self.dropout2: nn.Module = nn.Dropout(widths.dropout)

    def make_projections(self, widths: Widths, heads: Heads) -> None:
        """The layers before attention and the one after it."""
        self.qkv = nn.Linear(widths.model, 3 * widths.heads * heads.size, bias=widths.qkv_bias)  # rows [Q | K | V]
        self.out = nn.Linear(widths.heads * heads.size, widths.model, bias=widths.out_bias)

    def make_network(self, widths: Widths) -> None:
        """The layers around the activation; with a gate the rows of the first are [what the activation is applied to | the factors]."""
        self.linear1 = nn.Linear(widths.model, widths.hidden * (2 if widths.gated else 1), bias=widths.network_bias)
        self.linear2 = nn.Linear(widths.hidden, widths.model, bias=widths.network_bias)

    def forward(
        self,
        x: Tensor,
        visible: dict[str, Any],
        return_attention: bool = False,
        packing: Packing | None = None,
        cache: CacheOfLayer | None = None,
    ) -> Any:
        """x (B, T, E), or packed (1, N, E), to the same shape; `visible`: the arguments of attention that say which keys a query sees;
        `cache` keeps keys and values, and gives them with those of the tokens before."""
        lengths = own_lengths(x, visible)
        attended, weights = self._attend(self.norm1(x) if self.norm_first else x, visible, return_attention, lengths, packing, cache)
        if weights is not None and packing is not None:
            weights = F.pad(weights, (0, packing.width - packing.longest) * 2)
        if self.norm_first:
            attended = attended if self.after1 is None else self.after1(attended)
            added = x + self.dropout1(attended)
            hidden = self._hidden(self.norm2(x if self.parallel else added), lengths)
            if self.after2 is None:
                x = add_product(added, self.linear2, hidden, self.dropout2, lengths)
            else:
                x = added + self.dropout2(self.after2(of_sequences(self.linear2, hidden, lengths)))
        else:
            x = add_norm(self.norm1, x, attended, self.dropout1)
            x = add_norm(self.norm2, x, of_sequences(self.linear2, self._hidden(x, lengths), lengths), self.dropout2)
        return (x, weights) if return_attention else x

    def _attend(
        self, x: Tensor, visible: dict[str, Any], return_attention: bool, lengths: Any, packing: Packing | None, cache: Any
    ) -> tuple[Tensor, Tensor | None]:
        q, k, v = self._project(x, lengths)
        q, k = self._placed(q, k, packing, cache)
        if cache is not None:
            k, v = cache.extended(k, v)
        dropout = self.attention_dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=dropout,
            scale=self.scale,
            softcap=self.softcap,
            window=self.window,
            enable_gqa=self.grouped,
            return_attention=return_attention,
            **visible,
        )
        values, weights = found if return_attention else (found, None)
        return of_sequences(self.out, join_heads(values), lengths), weights

    def _project(self, x: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, D)."""
        layer = self.qkv
        if is_plain(layer, nn.Linear):
            return _core.qkv_projection(x, layer.weight, layer.bias, num_heads=self.heads, packing=self.rows, sequence_lengths=lengths)
        found = of_sequences(layer, x, lengths)  # with hooks, or another layer
        if self.rows == "head":
            q, k, v = found.reshape(*x.shape[:2], self.heads, 3, -1).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = found.reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def _placed(self, q: Tensor, k: Tensor, packing: Packing | None, cache: CacheOfLayer | None) -> tuple[Tensor, Tensor]:
        """Queries and keys that know their positions."""
        return q, k

    def _hidden(self, x: Tensor, lengths: Any) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        if self.gated:
            return gated(activation, of_sequences(self.linear1, x, lengths))
        return activated(self.linear1, activation, x, lengths)


class RotaryLayer(Layer):
    """A layer that rotates queries and keys by their positions.

    Parameters
    ----------
    widths : Widths
    rotation : Rotation
    window : int, optional
        A token attends to those at most this far away; None: to all of its text.
    norm_first, heads
        As for ``Layer``.
    """

    def __init__(
        self, widths: Widths, rotation: Rotation, window: int | None = None, norm_first: bool = False, heads: Heads | None = None
    ) -> None:
        super().__init__(widths, norm_first, heads)
        self.rotation, self.scale, self.window = rotation, rotation.scale, None if window is None else (window, window)

    def _placed(self, q: Tensor, k: Tensor, packing: Packing | None, cache: CacheOfLayer | None) -> tuple[Tensor, Tensor]:
        places = None if cache is None else cache.places
        if packing is not None:
            places = packing.positions_on(q.device)
        return self.rotation(q, places), self.rotation(k, places)


class Pooler(nn.Linear):
    """tanh of a linear layer of the first position."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
        return F.tanh(super().forward(input[:, 0]))


class TextEncoder(nn.Module):
    """The base of encoders of texts: ``embed`` is the architecture's own.

    Attributes
    ----------
    config : dict
        The contents of config.json.
    width : int
        E, the features of a state.
    layers : ModuleList
    pooler : Linear or None
        A linear layer and tanh for the first position, where the weights have one; ``model.pooler(states)`` applies it.
    """

    longest: int  # positions that there are embeddings for
    causal: bool = False  # whether a token sees none after it
    tie_word_embeddings: ClassVar[bool] = True  # whether words are scored by their embeddings, where config.json does not say

    def __init__(self, config: Config, widths: Widths, pooler: bool, layers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.config, self.width = config.values, widths.model
        self.layers = nn.ModuleList((Layer(widths) for _ in range(widths.layers)) if layers is None else layers)
        self.pooler = Pooler(widths.model, widths.model) if pooler else None

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        """(B, T) to (B, T, E), or (1, N) of packed texts to (1, N, E); `places` are rows of ``positions``, None: 0, 1, ... in each text."""
        raise NotImplementedError

    def widen(self, x: Tensor, visible: dict[str, Any]) -> Tensor:
        """The first layer's input, of what ``embed`` gives; `visible` as for a layer."""
        return x

    def in_order(self) -> Iterable[nn.Module]:
        """The layers in the order in which they are applied."""
        return self.layers

    def finish(self, x: Tensor) -> Tensor:
        """The states, of what the last layer gives."""
        return x

    def places(self, ids: Tensor) -> Tensor | None:
        """The rows of ``positions`` for ids (B, T); None: 0, 1, ... in each text."""
        return None

    def place(self, ids: Tensor, places: Tensor | None) -> Tensor:
        """The embeddings of the positions, (T, E) or (B, T, E)."""
        return self.positions(arange(ids.shape[1], device=ids.device) if places is None else places)

    def bias(self, length: int) -> Any:
        """What is added to the scores, (1, H, T, T), or what the architecture's layers make of that; None: nothing."""
        return None

    @named_as_in_transformers
    def forward(self, ids: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """The states of the last layer.

        Parameters
        ----------
        ids : array_like of int, shape (B, T)
            Numbers of tokens; texts are padded at their ends.
        mask : array_like of 0 and 1, shape (B, T), optional
            0 where a text is padded, as tokenizers give it. For padding elsewhere than at the ends it is computed as for tokens.
        lengths : array_like of int, shape (B,), optional
            The number of tokens of each text, instead of `mask`.
        token_types : array_like of int, shape (B, T), optional
            The part of a pair of texts that a token belongs to; 0 by default.

        Returns
        -------
        Tensor or ndarray, shape (B, T, E)
            0 at padded positions. For them nothing is computed: layers see the texts of a batch side by side, (1, N, E), N the number of
            their tokens, unless all are of the same length; a hook finds ``packing`` among the layer's arguments, and
            ``packing.unpack(output[0])`` is (B, T, E). A text has the same bits in any batch.

        Raises
        ------
        ValueError
            When ids are no integers (B, T), or more than the model has positions for; when the others have other shapes, a mask has values
            other than 0 and 1, or lengths are not from 0 to T.
        IndexError
            When an id is none of the model's words.
        """
        ids, token_types = self.checked(ids, token_types)
        packing, visible = which_are_tokens(tuple(ids.shape), mask, lengths)
        if self.causal:
            visible["is_causal"] = True
        places, width = self.places(ids), ids.shape[1]
        real = None if packing is not None else tokens_among(visible, ids)
        if packing is not None:
            width = packing.longest
            places = (packing.positions_on(ids.device) if places is None else packing.pack(places))[None]
            ids, token_types = packing.pack(ids)[None], None if token_types is None else packing.pack(token_types)[None]
        bias = self.bias(width)
        if bias is not None:
            visible["bias"] = bias
        x = self.widen(self.embed(ids, token_types, places), visible)
        for layer in self.in_order():
            x = layer(x, visible, packing=packing)
        x = self.finish(x)
        if packing is not None:
            return packing.unpack(x[0])
        return x if real is None else x.masked_fill(~real[:, :, None], 0.0)

    def checked(self, ids: Any, token_types: Any = None) -> tuple[Tensor, Tensor | None]:
        """The arguments as Tensors, of shapes that fit."""
        ids = _numbers(ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            advice = "; one text is ids[None]" if ids.ndim == 1 else "; convert them with ids.astype(int)" if ids.ndim == 2 else ""
            error = ValueError if ids.dtype.kind in "iu" else TypeError
            raise error(f"ids must be integers of shape (B, T), got {ids.dtype.name} of shape {ids.shape}{advice}")
        if ids.shape[1] > self.longest:
            raise ValueError(f"ids have {ids.shape[1]} tokens (shape {ids.shape}); this model takes texts of at most {self.longest}")
        token_types = None if token_types is None else as_tensor(token_types)
        if token_types is not None and (tuple(token_types.shape) != tuple(ids.shape) or token_types.dtype.kind not in "iu"):
            error = ValueError if token_types.dtype.kind in "iu" else TypeError
            raise error(
                f"token_types must be integers of the shape of ids, {ids.shape}, got {token_types.dtype.name} of shape {token_types.shape}"
            )
        return ids, token_types


def _numbers(ids: Any) -> Tensor:
    """ids as a Tensor."""
    if isinstance(ids, Mapping):
        raise TypeError(f"ids are a {type(ids).__name__}, as a tokenizer gives it; model(**tokens) takes its arrays by their names")
    found = ids if isinstance(ids, Tensor) else np.asarray(ids)
    if found.dtype.kind in "USO":
        raise TypeError(
            "ids must be numbers of tokens; texts are read by SentenceEncoder, TextClassifier, TokenClassifier, CrossEncoder and TextGenerator"
        )
    return as_tensor(found)


def tokens_among(visible: dict[str, Any], ids: Tensor) -> Tensor | None:
    """Which of the positions of ids (B, T), or of states (B, T, E), are tokens; None: all."""
    mask, lengths = visible.get("attn_mask"), visible.get("key_lengths")
    real = None if mask is None else mask[:, 0, 0]
    if lengths is None:
        return real
    within = arange(ids.shape[1], device=ids.device) < lengths.to(ids.device)[:, None]
    return within if real is None else real & within


def which_are_tokens(shape: tuple[int, ...], mask: Tensor | None, lengths: Tensor | None) -> tuple[Packing | None, dict[str, Any]]:
    """(how texts of ids of this shape are packed, or None; which keys may be attended to, as arguments of attention)."""
    visible: dict[str, Any] = {}
    (batch, width), traced, of = shape, _core.is_traced(), f"ids have {shape}"
    if mask is not None:
        mask = as_tensor(mask)
        if tuple(mask.shape) != shape:
            raise ValueError(f"mask has shape {mask.shape} but ids have {shape}; 1 for each token, 0 where a text is padded")
        if not traced:
            host = mask.detach().cpu()
            if mask.dtype.kind != "b" and not bool(((host == 0) | (host == 1)).all()):
                raise ValueError("mask has values other than 0 and 1; it says which tokens there are, and is not added to scores")
        visible["attn_mask"] = (mask != 0)[:, None, None, :]
    if lengths is not None:
        visible["key_lengths"] = tensor_of_lengths(lengths, batch, of)
    if not visible or traced:
        return None, visible
    found = np.full(batch, width) if lengths is None else checked_lengths(lengths, batch, width, of)
    if mask is not None:
        tokens = (host != 0).numpy()
        counts = tokens.sum(1)
        if not np.array_equal(tokens, np.arange(width) < counts[:, None]):  # padding before or between the tokens
            return None, visible
        found = np.minimum(found, counts)
    packing = packing_of(found, width)
    return packing, {} if packing is None else {"sequence_lengths": packing.sequence_lengths}
