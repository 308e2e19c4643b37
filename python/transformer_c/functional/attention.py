"""Attention."""

from __future__ import annotations

from .. import _core
from .._arguments import real
from .._promotion import as_given, promote
from ..random import as_generator

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    bias=None,
    key_lengths=None,
    sequence_lengths=None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    causal_offset=None,
    return_attention: bool = False,
    return_logsumexp: bool = False,
    empty_rows: str = "zero",
    rng=None,
):
    """softmax(query key^T * scale) value (Vaswani et al. 2017, eq. 1), without a (Tq, Tk) map in memory unless it is returned.

    A query attends to a key if all masks allow it. Masked keys and values never reach the result, so NaN and infinity there do no harm.

    Parameters
    ----------
    query : array_like, shape (..., H, Tq, d)
    key : array_like, shape (..., H, Tk, d)
    value : array_like, shape (..., H, Tk, dv)
        Leading axes broadcast; the first is the batch B. Arrays with three axes have no H.
    attn_mask : array_like, optional
        Broadcasts to (..., H, Tq, Tk). Boolean: True = attend. Floating: added to the scores, -inf = must not attend.
    dropout_p : float, default 0.0
        Probability with which an attention weight is dropped before the product with the values.
    is_causal : bool, default False
        Query i attends only to keys j <= i + causal_offset.
    scale : float, optional
        Default 1 / sqrt(d).
    enable_gqa : bool, default False
        Key and value have fewer heads; each is shared by a group of consecutive query heads.
    bias : array_like, optional
        Added to the scores like a floating mask.
    key_lengths : array_like of int, shape (B,), optional
        The number of valid keys of each batch element. Lengths in a Tensor on a GPU are not checked.
    sequence_lengths : array_like of int, shape (S,), optional
        Packed sequences: the arrays and the values are (1, H, N, d), with S sequences of these lengths side by side, N positions in all. Each
        attends only to itself, and nothing is computed for padding. For all other arguments and results the sequences are the batch: masks
        broadcast to (S, H, T, T), T the longest length, and a shorter sequence uses the top left part.
    window : (left, right), optional
        Query i attends only to keys from i + causal_offset - left to i + causal_offset + right; None = no bound.
    softcap : float, default 0.0
        If positive, scores become softcap * tanh(score / softcap), after scaling and before masks and biases.
    causal_offset : int or array_like of int, shape (B,), optional
        Default 0; use Tk - Tq when the queries are the last positions (with a key/value cache).
    return_attention, return_logsumexp : bool, default False
        Also return the attention (..., H, Tq, Tk), before dropout, and the log-sum-exp of the scores (..., H, Tq). With
        `sequence_lengths` (S, H, T, T), 0 beyond the end of a sequence, and (1, H, N).
    empty_rows : {"zero", "uniform", "raise"}
        The result of a query whose keys are all masked: zeros, the mean of all values, or a ValueError.
    rng : int, np.random.Generator, tc.Generator or None
        The generator for dropout, as in ``dropout``.

    Returns
    -------
    values : Tensor or ndarray, shape (..., H, Tq, dv)
        Or a tuple with the attention and the log-sum-exp, if requested.

    Raises
    ------
    TypeError
        For an integer mask: write ``mask != 0``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.ones((1, 3, 2))
    >>> values, attention = tc.functional.scaled_dot_product_attention(x, x, x, is_causal=True, return_attention=True)
    >>> attention[0, 1].tolist()
    [0.5, 0.5, 0.0]
    """
    if attn_mask is not None:
        attn_mask = as_given(attn_mask)
        if attn_mask.ndim == 0 and attn_mask.dtype.kind not in "USO":
            raise ValueError(
                "attn_mask has no axes; expected an array of one to four that broadcasts to the scores (batch, heads, queries, keys). "
                "For causal attention write is_causal=True, for a number that is added bias="
            )
    if attn_mask is not None and attn_mask.dtype.kind not in "biu":
        query, key, value, bias, attn_mask = promote(query, key, value, bias, attn_mask)
    else:
        query, key, value, bias = promote(query, key, value, bias)

    def attend(seed=None, call=None):
        results = _core.attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            bias=bias,
            key_lengths=key_lengths,
            sequence_lengths=sequence_lengths,
            causal_offset=causal_offset,
            is_causal=is_causal,
            window=window,
            scale=scale,
            softcap=softcap,
            enable_gqa=enable_gqa,
            empty_rows=empty_rows,
            dropout=dropout_p,
            seed=seed,
            call=call,
            return_attention=return_attention,
            return_logsumexp=return_logsumexp,
        )
        if not (return_attention or return_logsumexp):
            return results[0]
        if return_attention and return_logsumexp:
            return results
        return results[0], results[1 if return_attention else 2]

    return as_generator(rng).with_mask(attend) if real("dropout_p", dropout_p) > 0.0 else attend()
