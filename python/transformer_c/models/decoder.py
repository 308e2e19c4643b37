"""What decoders share: models of texts whose tokens see none after them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._core import Tensor
from .._tensor import as_tensor
from .cache import Cache, CacheOfLayer, check_cache
from .config import Config, Widths
from .layers import Layer, TextEncoder, named_as_in_transformers, tokens_among, which_are_tokens


class TextDecoder(TextEncoder):
    """The base of decoders; ``embed`` and ``finish`` are the architecture's own."""

    causal = True

    def __init__(self, config: Config, widths: Widths, pooler: bool, layers: Iterable[Layer] | None = None) -> None:
        config.only("is_causal", True)  # which transformers' masks read, in every decoder
        super().__init__(config, widths, pooler, layers)

    @named_as_in_transformers
    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        token_types: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The states of the last layer, as of ``TextEncoder``; each is that of a token and all before it.

        Parameters
        ----------
        ids : array_like of int, shape (B, T)
        mask : array_like of 0 and 1, shape (B, T), optional
        lengths : array_like of int, shape (B,), optional
        cache : Cache, optional
            ids continue the texts in it, and are kept there as well. Not where gradients are recorded.

        Returns
        -------
        Tensor or ndarray, shape (B, T, E)
        """
        if cache is None:
            return super().forward(ids, mask, lengths, token_types)
        check_cache(cache, self)
        if not self.causal:
            raise ValueError("a cache keeps what no later token changes, but in this model tokens see those after them")
        ids, token_types = self.checked(ids, token_types)
        packing, visible = which_are_tokens(tuple(ids.shape), mask, lengths)
        if "attn_mask" in visible:
            raise ValueError("with a cache, texts can only be padded at their ends; a mask has zeros elsewhere")
        batch, width = ids.shape
        starts = cache.starts(batch)
        ends = starts + (width if packing is None else packing.lengths)
        if ends.max(initial=0) > self.longest:
            raise ValueError(
                f"texts would have {ends.max()} tokens, {starts.max()} of them in the cache; this model takes at most {self.longest}"
            )
        places, real = None, None if packing is None else tokens_among({"key_lengths": packing.sequence_lengths}, ids)
        if starts.any():
            packing, visible = None, {"causal_offset": as_tensor(starts), "key_lengths": as_tensor(ends)}
            positions = np.minimum(starts[:, None] + np.arange(width), self.longest - 1)  # those beyond the last one are padding's
            places = as_tensor(positions).to(ids.device)
        elif packing is not None:
            ids, places = packing.pack(ids)[None], packing.positions_on(ids.device)[None]
        visible["is_causal"] = True
        x = self.embed(ids, token_types, places)
        by_heads = None if places is None else places[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x, visible, packing=packing, cache=CacheOfLayer(cache, number, ends, packing, by_heads))
        x = self.finish(x)
        cache.lengths = ends
        if packing is not None:
            return packing.unpack(x[0])
        return x if real is None else x.masked_fill(~real[:, :, None], 0.0)

    @classmethod
    def head_options(cls, config: Config, task: str) -> dict:
        """Of the head: whether its table is that of the words."""
        return {"tied": config.flag("tie_word_embeddings", cls.tie_word_embeddings)}
