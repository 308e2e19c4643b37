"""Multi-head attention with torch.nn.MultiheadAttention's parameters, masks and results."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import _core
from .. import functional as F
from .._arguments import all_of, count, divisible, probability
from .._core import Tensor
from .._joining import cat, tril
from .._names import explained, hooks
from .._promotion import cast_input
from .._tensor import as_tensor, ones, zeros
from . import init
from .cache import KeyValueCache, restored_on_error
from .layers import Linear, of_sequences
from .module import Module
from .parameter import Parameter, registered, uninitialised


def join_heads(values: Tensor, batch_first: bool = True) -> Tensor:
    """Reshapes (B, H, T, D) to (B, T, H D), or to (T, B, H D)."""
    batch, heads, length, width = values.shape
    if batch_first:
        return values.permute(0, 2, 1, 3).reshape(batch, length, heads * width)
    return values.permute(2, 0, 1, 3).reshape(length, batch, heads * width)


def own_length(x: Tensor, batch_first: bool, mask: Any, padding: Any, past: Any, packed: Any = None) -> Any:
    """T of x (B, T, E), (T, B, E) or (T, E), by which products may choose, or the lengths of `packed` sequences; None where T may not be a
    sequence's own: with padding, a mask for each sequence, or a cache. With such a mask packed ones do as others."""
    of_each = mask is not None and (mask.ndim if isinstance(mask, (Tensor, np.ndarray)) else np.ndim(mask)) > 2
    if of_each or padding is not None or past is not None or x.ndim < 2 or _core.is_traced():
        return None
    return x.shape[1 if batch_first and x.ndim == 3 else 0] if packed is None else packed


class MultiheadAttention(Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), a stand-in for ``torch.nn.MultiheadAttention``.

    Signature, state-dict keys, initial weights (given the same seed), mask conventions and results are the same; the notes list the
    differences. The tutorial's class, which packs its projections head by head, is ``tc.MultiheadAttention``; ``tc.convert.packing``
    converts between the two.

    Parameters
    ----------
    embed_dim : int
        E, the features of queries, of the output, and of all heads together.
    num_heads : int
        H; divides `embed_dim`.
    dropout : float, default 0.0
        Probability with which an attention weight is dropped in train mode.
    bias : bool, default True
        Whether the projections have biases.
    add_bias_kv : bool, default False
        One more key and value, both learnt, at the end of every sequence.
    add_zero_attn : bool, default False
        One more key and value, both zero, at the end of every sequence.
    kdim, vdim : int, optional
        Features of keys and values; default E.
    batch_first : bool, default False
        Sequences are (B, T, E) instead of (T, B, E).
    device, dtype : optional
        Of the parameters.

    Attributes
    ----------
    in_proj_weight : Parameter, shape (3 E, E), or None
        Rows [Q | K | V]. If `kdim` or `vdim` differs from E, there are q_proj_weight (E, E), k_proj_weight (E, kdim) and
        v_proj_weight (E, vdim) instead.
    in_proj_bias : Parameter, shape (3 E,), or None
    out_proj : Linear
    bias_k, bias_v : Parameter, shape (1, 1, E), or None

    Raises
    ------
    ValueError
        When `num_heads` does not divide `embed_dim`, or when the shapes in a call do not match.

    Notes
    -----
    A query whose keys are all masked gets weights of 0 and values of 0, so its output is ``out_proj.bias``, never NaN, in train and
    eval mode alike. ``is_causal`` is a mask of its own, not a hint: it works without an `attn_mask`, and with one, both apply.
    Bool and floating masks may be mixed. The weights are returned before dropout.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> attention = tc.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = np.zeros((4, 5, 8), np.float32)  # (B, T, E)
    >>> padding = np.arange(5) >= np.array([[5], [3], [4], [1]])  # True = ignore
    >>> values, weights = attention(x, x, x, key_padding_mask=padding)
    >>> values.shape, weights.shape
    ((4, 5, 8), (4, 5, 5))
    >>> weights[3, 0].tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0]
    """

    in_proj_weight: Any = registered("_parameters")
    in_proj_bias: Any = registered("_parameters")
    bias_k: Any = registered("_parameters")
    out_proj: Linear = registered("_modules")
    _attention_map: ClassVar = {"need_weights": True, "average_attn_weights": False}

    @staticmethod
    def _as_asked(output: Tensor, weights: Tensor, asked: dict[str, bool]) -> tuple[Tensor, Tensor | None]:
        if not asked["need_weights"]:
            return output, None
        return output, weights.mean(axis=-3) if asked["average_attn_weights"] else weights

    @explained({"key_dim": "embed_dim= is the width of all heads together"})
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
        self.embed_dim, self.num_heads, self.kdim, self.vdim, dropout, _ = all_of(
            (count, "embed_dim", embed_dim),
            (count, "num_heads", num_heads),
            (count, "kdim", embed_dim if kdim is None else kdim),
            (count, "vdim", embed_dim if vdim is None else vdim),
            (probability, "dropout", dropout),
            (divisible, "embed_dim", embed_dim, "num_heads", num_heads),
        )
        embed_dim, num_heads = self.embed_dim, self.num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        packed = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(*shape: int, given: bool = True) -> Parameter | None:
            return uninitialised(*shape, device=device, dtype=dtype) if given else None

        # In PyTorch's order, which determines the order of the state dict and of the random numbers.
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", parameter(embed_dim, width, given=not packed))
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim, given=packed))
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim, given=bias))
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", parameter(1, 1, embed_dim, given=add_bias_kv))
        self.register_parameter("bias_v", parameter(1, 1, embed_dim, given=add_bias_kv))
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for row in (self.bias_k, self.bias_v):
            if row is not None:
                init.xavier_normal_(row)

    _arguments_elsewhere: ClassVar = {
        "mask": "attn_mask=mask == 0, True = ignore",
        "attention_mask": "key_padding_mask=mask == 0, (B, Tk), True = ignore",
        "padding_mask": "key_padding_mask",
        "src_key_padding_mask": "key_padding_mask",
        "return_attention": "need_weights=True, average_attn_weights=False",
    }

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        past_key_value: KeyValueCache | None = None,
        causal_offset: int | None = None,
        sequence_lengths: Any = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of the queries to the keys.

        Parameters
        ----------
        query : Tensor or ndarray, shape (Tq, B, E); with `batch_first` (B, Tq, E); for one sequence (Tq, E)
        key : Tensor or ndarray, shape (Tk, B, kdim); with `batch_first` (B, Tk, kdim); for one sequence (Tk, kdim)
        value : Tensor or ndarray, like `key` with vdim
            Passing the same array for all three, or for key and value, saves products.
        key_padding_mask : array_like, shape (B, Tk), for one sequence (Tk,), optional
            Bool: True = ignore the key. Floating: added to the scores.
        need_weights : bool, default True
            Return the weights. If False, the (Tq, Tk) map is never in memory.
        attn_mask : array_like, shape (Tq, Tk) or (B H, Tq, Tk), optional
            Bool: True = must not attend. Floating: added to the scores.
        average_attn_weights : bool, default True
            Average the weights over the heads; False: return the weights of each head.
        is_causal : bool, default False
            Query i sees no later keys; with a cache, query i comes after the cached positions.
        past_key_value : KeyValueCache, optional
            Keys and values of earlier calls; this call's are appended to them. In both masks, Tk then counts all keys.
        causal_offset : int, optional
            The position of the first query among the keys, for `is_causal`; default the number of cached positions, 0 with a static cache.
        sequence_lengths : array_like of int, shape (S,), optional
            The arrays are (N, E), in which S sequences of these lengths lie side by side (packed); each attends to itself alone. `attn_mask` is
            (T, T) or (S H, T, T), T the longest length, and so are the weights. Without `key_padding_mask`, `past_key_value` and added keys.

        Returns
        -------
        output : shape of `query`
        weights : shape (B, Tq, Tk), or (B, H, Tq, Tk) per head; without B for one sequence; None without `need_weights`
            Tk includes the keys of `add_bias_kv` and `add_zero_attn`.
        """
        batched = self._check_sequences(query, key, value)
        packed = None if sequence_lengths is None else self._check_packed(query, key, sequence_lengths, key_padding_mask, past_key_value)
        batch_first = self.batch_first or not batched
        if not batched:
            shared = {id(x): x.unsqueeze(0) for x in (query, key, value)}  # one array given twice stays one array
            query, key, value = shared[id(query)], shared[id(key)], shared[id(value)]
            if key_padding_mask is not None and as_tensor(key_padding_mask).ndim == 1:
                key_padding_mask = as_tensor(key_padding_mask)[None]
        with restored_on_error([past_key_value]):
            lengths = None
            if query is key and key is value:
                lengths = own_length(query, batch_first, attn_mask, key_padding_mask, past_key_value, sequence_lengths)
            q, k, v, offset = self._project_with_past(query, key, value, batch_first, past_key_value, lengths)
            offset = offset if causal_offset is None else count("causal_offset", causal_offset, 0)
            masks = self._masks(packed or (q.shape[0], q.shape[2], k.shape[2]), q, key_padding_mask, attn_mask, is_causal, offset)
            if self.add_zero_attn or self.bias_k is not None:
                k, v = self._with_added_keys(k, self.bias_k), self._with_added_keys(v, self.bias_v)
            dropout = self.dropout if self.training else 0.0
            found = F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, return_attention=need_weights, sequence_lengths=sequence_lengths, **masks
            )
            values, weights = found if need_weights else (found, None)
            output = of_sequences(self.out_proj, join_heads(values, batch_first), lengths)
            if weights is not None and average_attn_weights:
                weights = weights.mean(axis=1)
        if batched:
            return output, weights
        return output.squeeze(0), weights if weights is None or packed else weights.squeeze(0)

    def _check_packed(self, query: Tensor, key: Tensor, lengths: Any, key_padding_mask: Any, past: Any) -> tuple[int, int, int]:
        """The batch, the queries and the keys of the scores of packed sequences."""
        if query.ndim != 2 or query.shape[0] != key.shape[0]:
            raise ValueError(
                f"packed sequences (sequence_lengths) are side by side in arrays (N, E) of equal N; got query {query.shape}, key {key.shape}"
            )
        others = {
            "key_padding_mask": key_padding_mask is not None, "past_key_value": past is not None,
            "bias_k": self.bias_k is not None, "add_zero_attn": self.add_zero_attn,
        }  # fmt: skip
        wrong = [name for name, given in others.items() if given]
        if wrong:
            raise ValueError(
                f"packed sequences (sequence_lengths) have no padding and no keys besides their own; got {', '.join(wrong)} as well"
            )
        sizes = np.asarray(as_tensor(lengths).detach().cpu())
        longest = int(sizes.max(initial=0))
        return sizes.size, longest, longest

    def _check_sequences(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether the arguments have a batch axis; raises for shapes that do not match each other or the layer."""
        one = query is key and key is value and isinstance(query, Tensor) and query.ndim in (2, 3)
        if one and query.shape[-1] == self.embed_dim == self.kdim == self.vdim:
            return query.ndim == 3
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name} must be a Tensor or an array of numbers, not {type(x).__name__}")
        shapes = query.shape, key.shape, value.shape
        text = f"query {shapes[0]}, key {shapes[1]}, value {shapes[2]}"
        if {len(shape) for shape in shapes} not in ({2}, {3}):
            raise ValueError(f"query, key and value must all have 3 axes, or all 2 for one sequence; got {text}")
        for name, shape, width, argument in zip(
            ("query", "key", "value"), shapes, (self.embed_dim, self.kdim, self.vdim), ("embed_dim", "kdim", "vdim"), strict=True
        ):
            if shape[-1] != width:
                raise ValueError(f"{name} has {shape[-1]} features but the layer has {argument}={width}; got {text}")
        if shapes[1][:-1] != shapes[2][:-1]:
            raise ValueError(f"key and value must have the same batch and sequence lengths; got {text}")
        batch_axis = 0 if self.batch_first else 1
        if len(shapes[0]) == 3 and shapes[0][batch_axis] != shapes[1][batch_axis]:
            raise ValueError(
                f"query and key have {shapes[0][batch_axis]} and {shapes[1][batch_axis]} batch elements on axis {batch_axis} "
                f"(batch_first={self.batch_first}); got {text}"
            )
        return len(shapes[0]) == 3

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"

    # ---- projections ---------------------------------------------------------------------------------------------------

    def _input_weight(self, part: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of queries (0), keys (1) or values (2)."""
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        if self.in_proj_weight is not None:
            return self.in_proj_weight[rows], bias
        return (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[part], bias

    def _split_heads(self, x: Tensor, batch_first: bool) -> Tensor:
        """A view of (B, T, E) or (T, B, E) as (B, H, T, D)."""
        x = x.reshape(*x.shape[:2], self.num_heads, self.head_dim)
        return x.permute(0, 2, 1, 3) if batch_first else x.permute(1, 2, 0, 3)

    def _project_one(self, x: Tensor, part: int, batch_first: bool) -> Tensor:
        weight, bias = self._input_weight(part)
        return self._split_heads(F.linear(cast_input(x, weight, "MultiheadAttention"), weight, bias), batch_first)

    def _project_with_past(
        self, query: Tensor, key: Tensor, value: Tensor, batch_first: bool, past: KeyValueCache | None, lengths: Any
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """q of this call, k and v of this and earlier calls, and the number of positions before the queries."""
        if past is None:
            return *self._project(query, key, value, batch_first, lengths), 0
        offset = len(past)
        k, v = (past.key, past.value) if past.static else (None, None)
        if k is None or v is None:
            q, k, v = self._project(query, key, value, batch_first, lengths)
            return q, *past.append(k, v), offset
        q = self._project_one(query, 0, batch_first)
        if k.shape[0] != q.shape[0]:
            raise ValueError(f"past_key_value has the keys of another batch: {past!r}, query (B, H, T, D) = {q.shape}")
        return q, k, v, 0

    def _project(self, query: Tensor, key: Tensor, value: Tensor, batch_first: bool, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, D), as views of the results of as few products as possible; `lengths` are those of queries."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is None or key is not value:
            q, k, v = (self._project_one(x, part, batch_first) for part, x in enumerate((query, key, value)))
            return q, k, v
        if query is not key:
            q = self._project_one(query, 0, batch_first)
            size = self.embed_dim
            both = F.linear(cast_input(key, weight, "MultiheadAttention"), weight[size:], None if bias is None else bias[size:])
            k, v = (self._split_heads(half, batch_first) for half in both.split(size, -1))
            return q, k, v
        x = cast_input(query, weight, "MultiheadAttention")
        heads = F.qkv_projection(x, weight, bias, num_heads=self.num_heads, packing="qkv", sequence_lengths=lengths)
        q, k, v = heads if batch_first else (h.permute(2, 1, 0, 3) for h in heads)
        return q, k, v

    def _with_added_keys(self, x: Tensor, row: Tensor | None) -> Tensor:
        """x (B, H, Tk, D) followed by the learnt `row` (1, 1, E) and the zeros, if the layer has them."""
        batch, heads, _, width = x.shape
        parts = [x]
        if row is not None:
            parts.append(row.reshape(1, heads, 1, width).expand(batch, heads, 1, width))
        if self.add_zero_attn:
            parts.append(zeros(batch, heads, 1, width, dtype=x.dtype, device=x.device))
        return cat(parts, 2) if len(parts) > 1 else x

    # ---- masks -----------------------------------------------------------------------------------------------------------

    def _masks(
        self, sizes: tuple[int, int, int], q: Tensor, key_padding_mask: Any, attn_mask: Any, is_causal: bool, offset: int
    ) -> dict[str, Any]:
        """The masks as arguments of scaled_dot_product_attention, where True means attend; `sizes`: batch, queries and keys."""
        if attn_mask is None and key_padding_mask is None and not is_causal:
            return {}
        batch, queries, keys = sizes
        heads = q.shape[1]
        allowed: list[Tensor] = []
        added: list[Tensor] = []
        if attn_mask is not None:
            shapes = {(queries, keys): "(Tq, Tk)", (batch * heads, queries, keys): "(B H, Tq, Tk)"}
            remedies = {
                (batch, keys): "it as the key padding mask, True = ignore",
                (batch, heads, queries, keys): f"mask.reshape({batch * heads}, {queries}, {keys})",
                (batch, 1, queries, keys): f"tc.repeat_interleave(mask[:, 0], {heads}, 0)",
                (batch, queries, keys): f"tc.repeat_interleave(mask, {heads}, 0)",
            }
            mask = _check_mask("attn_mask", attn_mask, shapes, remedies)
            mask = mask[None, None] if mask.ndim == 2 else mask.reshape(batch, heads, queries, keys)
            (allowed if mask.dtype == bool else added).append(mask)
        if key_padding_mask is not None:
            transposed = "mask.T" if self.batch_first else "mask.T; or, if the inputs are (B, T, E), make the layer with batch_first=True"
            remedies = {(queries, keys): "attn_mask=mask", (keys, batch): transposed}
            mask = _check_mask("key_padding_mask", key_padding_mask, {(batch, keys): "(B, Tk)"}, remedies)[:, None, None]
            (allowed if mask.dtype == bool else added).append(mask)
        allowed, added = [~mask for mask in allowed], [mask.to(q.dtype) for mask in added]
        extra = (self.bias_k is not None) + self.add_zero_attn
        if extra and is_causal:  # every query sees the added keys, though they come last
            allowed.append(tril(ones(1, 1, queries, keys, dtype=bool, device=q.device), offset))
            is_causal = False
        if extra:
            allowed = [cat([m, ones(*m.shape[:-1], extra, dtype=m.dtype, device=m.device)], -1) for m in allowed]
            added = [cat([m, zeros(*m.shape[:-1], extra, dtype=m.dtype, device=m.device)], -1) for m in added]
        merged = functools.reduce(operator.and_, allowed) if allowed else added.pop() if added else None
        bias = functools.reduce(operator.add, added) if added else None
        return {"attn_mask": merged, "bias": bias, "is_causal": is_causal, "causal_offset": offset if is_causal else None}


def _check_mask(name: str, mask: Any, shapes: dict[tuple[int, ...], str], remedies: dict[tuple[int, ...], str] | None = None) -> Tensor:
    """The mask as a Tensor of one of `shapes`, bool or floating; the error for any other lists them, with advice for a shape in `remedies`."""
    try:
        mask = as_tensor(mask)
    except TypeError:
        raise TypeError(f"{name} must be an array of bool, True = ignore, or of floats, added to the scores; got {mask!r:.60}") from None
    if mask.dtype.kind in "iu":
        raise TypeError(
            f"{name} has dtype {mask.dtype.name}; expected bool, True = ignore, or floating, added to the scores. "
            f"Write mask == 0 where nonzero means attend, mask != 0 where nonzero means ignore"
        )
    if tuple(mask.shape) not in shapes:
        expected = " or ".join(f"{text} = {shape}" for shape, text in shapes.items())
        remedy = (remedies or {}).get(tuple(mask.shape))
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {expected}{f'. Write {remedy}' if remedy else ''}")
    return mask


SDPBackend = Enum("SDPBackend", "MATH FLASH_ATTENTION EFFICIENT_ATTENTION CUDNN_ATTENTION OVERRIDEABLE", start=0)


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """PyTorch's choice of a kernel of attention, a context manager and a decorator: without effect, as there is one."""
    yield


__all__ = ["MultiheadAttention"]

if not TYPE_CHECKING:
    __path__ = []  # so that imports of modules that PyTorch has here are answered with advice, too
    instead = "tc.functional.scaled_dot_product_attention with bias=, window=, softcap=, key_lengths= or sequence_lengths="
    __getattr__ = hooks(__name__, instead=dict.fromkeys(("bias", "flex_attention", "varlen"), instead))[0]
    del instead
