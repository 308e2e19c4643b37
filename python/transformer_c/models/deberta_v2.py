"""DeBERTa-v2 and DeBERTa-v3 (He et al. 2020, 2021), also mDeBERTa."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import _core, nn
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._tensor import arange, as_tensor, zeros
from ..checkpoint import CheckpointError
from ..nn.attention import join_heads
from ..nn.fusion import is_plain
from ..nn.layers import of_sequences
from ..nn.packing import Packing
from . import bert
from .config import Config, Widths
from .layers import ACTIVATIONS, Layer, TextEncoder, ends_of_texts, own_lengths, tokens_among
from .names import lack
from .table import Table

_POSITIONS, _DISTANCES = "embeddings.position_embeddings.weight", "encoder.rel_embeddings.weight"
_TYPES, _KERNELS = "embeddings.token_type_embeddings.weight", "encoder.conv.conv.weight"
TABLE = Table(
    model_type="deberta-v2",
    prefix="deberta",
    name="DebertaV2",
    sizes={
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "hidden_size": ("encoder.layer.0.attention.self.query_proj.weight", 1),
        "embedding_size": ("embeddings.word_embeddings.weight", 1),
        "intermediate_size": ("encoder.layer.0.intermediate.dense.weight", 0),
    },
    layers=("num_hidden_layers", "encoder.layer."),
    names={
        "words": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "widened": "embeddings.embed_proj",
        "norm": "embeddings.LayerNorm",
        "distances": "encoder.rel_embeddings",
        "distances_norm": "encoder.LayerNorm",
        "layers.{}.qkv": (
            "encoder.layer.{}.attention.self.query_proj",
            "encoder.layer.{}.attention.self.key_proj",
            "encoder.layer.{}.attention.self.value_proj",
        ),
        "layers.{}.far_key": "encoder.layer.{}.attention.self.pos_key_proj",
        "layers.{}.far_query": "encoder.layer.{}.attention.self.pos_query_proj",
        "layers.{}.out": "encoder.layer.{}.attention.output.dense",
        "layers.{}.norm1": "encoder.layer.{}.attention.output.LayerNorm",
        "layers.{}.linear1": "encoder.layer.{}.intermediate.dense",
        "layers.{}.linear2": "encoder.layer.{}.output.dense",
        "layers.{}.norm2": "encoder.layer.{}.output.LayerNorm",
        "layers.{}.conv": "encoder.conv.conv",  # of the first layer alone
        "layers.{}.conv_norm": "encoder.conv.LayerNorm",
    },
    heads=bert.TABLE.heads,
    tied=bert.TABLE.tied,
    renamed=(  # with legacy = false, which is the same computation
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.bias"),
        (r"^lm_predictions\.lm_head\.", "cls.predictions.transform."),
    ),
    buffers=(
        "embeddings.position_ids",
        _POSITIONS,  # where position_biased_input is false
        *(f"mask_predictions.{layer}.{leaf}" for layer in ("dense", "LayerNorm", "classifier") for leaf in ("weight", "bias")),
    ),
)


def buckets(longest: int, count: int, farthest: int) -> np.ndarray:
    """The buckets of the distances from a key to a query, 1 - longest ... longest - 1: one for each of fewer than `count` / 2, larger ones by their
    logarithm, up to `count` at a distance of `farthest`; `count` 0: one for each.

    The logarithms are float32, as PyTorch's, which may round the last bit otherwise.
    """
    distance = np.arange(1 - longest, longest)
    if not count:
        return distance
    middle, away = count // 2, np.abs(distance)
    ratio = np.log(np.maximum(away, middle).astype(np.float32) / np.float32(middle)) / np.log(np.float32((farthest - 1) / middle))
    far = np.ceil(ratio * np.float32(middle - 1)).astype(np.int64) + middle
    return np.where(away <= middle, distance, far * np.sign(distance))


class Relative(NamedTuple):
    """What scores by distance are made of.

    Attributes
    ----------
    table : Tensor, shape (R, E)
        Embeddings of buckets.
    rows : Tensor of int, shape (2 T + 1,)
        That of each distance from a key to a query, -T ... T.
    """

    table: Tensor
    rows: Tensor


def _skewed(x: Tensor) -> Tensor:
    """(..., T, 2 T) to (..., T, T): row i from column T - 1 - i on, as a view."""
    length = x.shape[-2]
    width = 2 * length - 1  # one less than a row has, so that each next one begins a column earlier
    return x.flatten(-2)[..., length - 1 : length - 1 + length * width].unflatten(-1, (length, width))[..., :length]


class Convolution(NamedTuple):
    """What the first layer adds to its states: an activation of products with neighbouring embeddings.

    Attributes
    ----------
    kernel : int
        How many neighbours, the token itself among them; 0: there is none.
    groups : int
    activation : str
    """

    kernel: int
    groups: int
    activation: str


class DisentangledLayer(Layer):
    """Attention whose scores also have products of queries with keys of distances ("c2p"), and of keys with queries of distances ("p2c").

    Parameters
    ----------
    widths : Widths
    kinds : tuple of str
        Which of the two there are.
    relative : bool
        Whether there are embeddings of distances.
    shared : bool
        Whether the keys and queries of distances are made as those of tokens, not by layers of their own.
    convolution : Convolution
    """

    def __init__(self, widths: Widths, kinds: tuple[str, ...], relative: bool, shared: bool, convolution: Convolution) -> None:
        super().__init__(widths)
        self.kinds, self.shared = kinds, shared
        self.scale = (widths.model // widths.heads * (1 + len(kinds))) ** -0.5
        own = relative and not shared
        self.far_key = nn.Linear(widths.model, widths.model) if own and "c2p" in kinds else None
        self.far_query = nn.Linear(widths.model, widths.model) if own and "p2c" in kinds else None
        self.far_dropout: nn.Module = nn.Dropout(widths.dropout) if relative else nn.Identity()
        self.convolution = convolution
        self.conv: Any = None
        if convolution.kernel:
            self.conv = nn.Conv1d(
                widths.model, widths.model, convolution.kernel, padding=convolution.kernel // 2, groups=convolution.groups
            )
            self.conv_norm = nn.LayerNorm(widths.model, eps=widths.eps)
            self.conv_dropout = nn.Dropout(widths.dropout)

    def forward(
        self, x: Tensor, visible: dict[str, Any], return_attention: bool = False, packing: Packing | None = None, cache: Any = None
    ) -> Any:
        found = super().forward(x, visible, return_attention, packing, cache)
        if self.conv is None:
            return found
        states, weights = found if return_attention else (found, None)
        more = ACTIVATIONS[self.convolution.activation](self.conv_dropout(self._convolved(x, visible, packing)))
        states = self.conv_norm(states + more)
        return (states, weights) if return_attention else states

    def _convolved(self, x: Tensor, visible: dict[str, Any], packing: Packing | None) -> Tensor:
        """Of the first layer's input, of the shape of it; what is no token counts as 0."""
        if not x.shape[1]:
            return x
        if own_lengths(x, visible) is None:
            tokens = None if packing is not None else tokens_among(visible, x)
            whole = x if tokens is None else x.masked_fill(~tokens[:, :, None], 0.0)
            found = self.conv((whole if packing is None else packing.unpack(x[0])).transpose(1, 2)).transpose(1, 2)
            return found if packing is None else packing.pack(found)[None]
        parts = []
        for part, mask in _texts((x[:, None],), visible, x, packing):
            part = part[:, 0] if mask is None else part[:, 0].masked_fill(~mask[:, 0].transpose(1, 2), 0.0)
            found = self.conv(part.transpose(1, 2)).transpose(1, 2) if part.shape[1] else part
            parts.append(found if packing is not None else F.pad(found, (0, 0, 0, x.shape[1] - part.shape[1])))
        return cat(parts, 0 if packing is None else 1)

    def _attend(
        self, x: Tensor, visible: dict[str, Any], return_attention: bool, lengths: Any, packing: Packing | None, cache: Any
    ) -> tuple[Tensor, Tensor | None]:
        relative = visible.get("bias")
        if relative is None:
            return super()._attend(x, visible, return_attention, lengths, packing, cache)
        parts = self._project(x, lengths)
        far = self._far(relative)
        options: dict[str, Any] = {
            "dropout_p": self.attention_dropout if self.training else 0.0,
            "scale": self.scale,
            "return_attention": return_attention,
        }
        if lengths is None:  # on a GPU, or recorded for an exported model: all texts at once
            q, k, v = parts
            of_texts = (q, k) if packing is None else (self._padded(q, packing), self._padded(k, packing))
            found = F.scaled_dot_product_attention(q, k, v, **options, **{**visible, "bias": self._scores(*of_texts, *far)})
            values, weights = found if return_attention else (found, None)
            return of_sequences(self.out, join_heads(values), lengths), weights
        # A text after the other: nothing is computed for padding, nothing larger than the scores of one text is needed, and it has the same bits
        # in any batch.
        width = x.shape[1] if packing is None else packing.longest
        values, weights = [], []
        for q, k, v, mask in _texts(parts, visible, x, packing):
            bias = self._scores(q, k, *far) if q.shape[2] else None
            found = F.scaled_dot_product_attention(q, k, v, mask, bias=bias, **options)
            value, weight = found if return_attention else (found, None)
            values.append(value if packing is not None else F.pad(value, (0, 0, 0, width - q.shape[2])))
            if weight is not None:
                weights.append(F.pad(weight, (0, width - q.shape[2]) * 2))
        joined = cat(values, 0 if packing is None else 2)
        return of_sequences(self.out, join_heads(joined), lengths), cat(weights, 0) if return_attention else None

    def _far(self, relative: Relative) -> tuple[Tensor | None, Tensor | None]:
        """The keys of the distances T - 1 ... -T, and the queries of 1 - T ... T; each (1, H, 2 T, D), times the scale."""
        table = self.far_dropout(relative.table)
        if self.shared and is_plain(self.qkv, nn.Linear):  # without the values, which distances have not
            rows, biases = 2 * self.qkv.in_features, self.qkv.bias
            query, key = F.linear(table, self.qkv.weight[:rows], None if biases is None else biases[:rows]).chunk(2, -1)
        elif self.shared:
            query, key = (part.transpose(1, 2).flatten(2)[0] for part in self._project(table[None], None)[:2])
        else:
            query, key = (None if layer is None else layer(table) for layer in (self.far_query, self.far_key))

        def of_heads(part: Tensor | None, rows: Tensor, kind: str) -> Tensor | None:
            if part is None or kind not in self.kinds:
                return None
            return (F.embedding(rows, part) * self.scale).unflatten(-1, (self.heads, -1)).transpose(0, 1)[None]

        return of_heads(key, relative.rows[:-1].flip(0), "c2p"), of_heads(query, relative.rows[1:], "p2c")

    def _scores(self, q: Tensor, k: Tensor, far_key: Tensor | None, far_query: Tensor | None) -> Tensor | None:
        """What is added to the scores, (B, H, T, T), of queries and keys (B, H, T, D)."""
        length = q.shape[2]

        def of_distances(x: Tensor, far: Tensor) -> Tensor:
            longest = far.shape[2] // 2
            return _skewed(x @ far[:, :, longest - length : longest + length].transpose(-1, -2))

        by_query = None if far_key is None else of_distances(q, far_key)
        by_key = None if far_query is None else of_distances(k, far_query).transpose(-1, -2)
        return by_key if by_query is None else by_query if by_key is None else by_query + by_key

    def _padded(self, x: Tensor, packing: Packing) -> Tensor:
        """(1, H, N, D) to (B, H, T, D)."""
        return packing.unpack(x.transpose(1, 2)[0].flatten(1))[:, : packing.longest].unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _texts(parts: Any, visible: dict[str, Any], x: Tensor, packing: Packing | None) -> Any:
    """Of each text the parts, (1, H, T, D), up to its last token, and the mask of those that are tokens, or None."""
    if packing is not None:
        lengths = packing.lengths.tolist()
        return [(*each, None) for each in zip(*(part.split(lengths, 2) for part in parts), strict=True)]
    tokens = tokens_among(visible, x)
    alone = zip(*(part.split(1, 0) for part in parts), strict=True)
    if tokens is None:
        return [(*each, None) for each in alone]
    ends = ends_of_texts(tokens).tolist()
    return [
        (*(part[:, :, :end] for part in each), tokens[i : i + 1, None, None, :end])
        for i, (each, end) in enumerate(zip(alone, ends, strict=True))
    ]


class DebertaV2(TextEncoder):
    """Layers whose scores go by distances, for which there is one table of embeddings; words without positions, or with them."""

    table = TABLE
    of_layer: ClassVar[type[DisentangledLayer]] = DisentangledLayer

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        widths = _widths(config)
        config.only("attention_head_size", None, widths.model // widths.heads)
        config.only("pooler_hidden_size", None, widths.model)
        embedding, relative = config.size("embedding_size", widths.model), config.flag("relative_attention", False)
        if not config.flag("legacy", True):
            config.only("embedding_size", None, widths.model)
            config.values["legacy"] = True  # the names of a head's arrays, which has them when it is written
        own, shared = kinds_of(config), config.flag("share_att_key", False)
        first, other = convolution_of(config, widths), Convolution(0, 1, "identity")
        layers = (self.of_layer(widths, own, relative, shared, other if i else first) for i in range(widths.layers))
        super().__init__(config, widths, False, layers)
        words = config.size("vocab_size", 128100)
        self.longest = config.size("max_position_embeddings", 512, most=1 << 20)
        self.words = nn.Embedding(words, embedding, padding_idx=config.index("pad_token_id", 0, words))
        if config.flag("position_biased_input", True):
            self.positions = nn.Embedding(self.longest, embedding)
        if config.size("type_vocab_size", 0, least=0):
            self.types = nn.Embedding(config.size("type_vocab_size"), embedding)
        self.widened = nn.Linear(embedding, widths.model, bias=False) if embedding != widths.model else None
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)
        self.distances: nn.Embedding | None = None
        self.distances_norm: nn.Module = nn.Identity()
        if normalises_distances(config):  # there also where there are none, as in transformers
            self.distances_norm = nn.LayerNorm(widths.model, eps=widths.eps)
        if relative:
            self._make_distances(config, widths)

    def _make_distances(self, config: Config, widths: Widths) -> None:
        """The embeddings of distances, and which of them each distance has."""
        span, count, farthest = spans(config)
        self.distances = nn.Embedding(2 * span, widths.model)
        self.rows = np.clip(buckets(self.longest + 1, count, farthest) + span, 0, 2 * span - 1)
        self.register_buffer("rows_here", as_tensor(self.rows), persistent=False)

    @classmethod
    def check_shapes(cls, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares sizes that are in no other array with config.json, before memory is taken for anything."""
        wanted: dict[tuple[str, int], tuple[str, int]] = {}
        if config.flag("position_biased_input", True):
            wanted[_POSITIONS, 0] = ("max_position_embeddings", config.size("max_position_embeddings", 512))
        if config.flag("relative_attention", False):
            wanted[_DISTANCES, 0] = ("twice the largest distance or the number of buckets", 2 * spans(config)[0])
        if types := config.size("type_vocab_size", 0, least=0):
            wanted[_TYPES, 0] = ("type_vocab_size", types)
        if kernel := config.size("conv_kernel_size", 0, least=0):
            wanted[_KERNELS, 2] = ("conv_kernel_size", kernel)
        for (array, axis), (name, size) in wanted.items():
            if array not in shapes:
                raise lack(array, shapes)
            if shapes[array][axis : axis + 1] != (size,):
                raise CheckpointError(f"config.json has {name} = {size}, but {array!r} has shape {shapes[array]}")

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        x = self.words(ids)
        if hasattr(self, "positions"):
            x = x + self.place(ids, places)
        if not hasattr(self, "types"):  # token_types are ignored, as in transformers, whose tokenizer gives some
            return x
        return x + self.types(zeros(1, 1, dtype=np.int64, device=ids.device) if token_types is None else token_types)

    def widen(self, x: Tensor, visible: dict[str, Any]) -> Tensor:
        x = x if self.widened is None else of_sequences(self.widened, x, own_lengths(x, visible))
        return self.dropout(self.norm(x))

    def bias(self, length: int) -> Any:
        """Of what the layers make their scores by distance: ``Relative``."""
        if self.distances is None or not length:
            return None
        own = slice(self.longest - length, self.longest + length + 1)
        first, last = int(self.rows[own][0]), int(self.rows[own][-1])  # of the buckets, all that texts of this length have
        if _core.is_traced():  # an exported model has texts of other lengths
            first, last = 0, self.distances.num_embeddings - 1
        table = self.distances(arange(first, last + 1, device=self.rows_here.device))
        return Relative(self.distances_norm(table), self.rows_here[own] - first)

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task, as in ``Bert``."""
        dropout = config.number("hidden_dropout_prob", 0.1)
        if task == "text-classification":
            before = config.number("pooler_dropout", 0.0)
            return {
                "activation": config.activation("pooler_hidden_act"),
                "dropout": config.optional("cls_dropout", dropout),
                "before": before,
            }
        if task == "fill-mask":
            return {"activation": config.activation("hidden_act"), "eps": config.number("layer_norm_eps", 1e-7)}
        return {"dropout": dropout if task == "token-classification" else 0.0}


def _widths(config: Config) -> Widths:
    found = Widths(
        model=config.size("hidden_size", 1536),
        heads=config.size("num_attention_heads", 24),
        hidden=config.size("intermediate_size", 6144),
        layers=config.size("num_hidden_layers", 24),
        activation=config.activation("hidden_act"),
        eps=config.number("layer_norm_eps", 1e-7),
        dropout=config.number("hidden_dropout_prob", 0.1),
        attention_dropout=config.number("attention_probs_dropout_prob", 0.1),
    )
    return config.divided(found, "hidden_size", "num_attention_heads")


def kinds_of(config: Config) -> tuple[str, ...]:
    """Which products of tokens and distances there are."""
    said = config.values.get("pos_att_type")
    parts = said.lower().split("|") if isinstance(said, str) else said or []
    found = [part.strip() if isinstance(part, str) else part for part in parts] if isinstance(parts, (list, tuple)) else [None]
    if not all(part in ("c2p", "p2c", "") for part in found):
        raise config.refuse("pos_att_type", "null, or 'c2p' and 'p2c', in a list or joined by '|'")
    return tuple(kind for kind in ("c2p", "p2c") if kind in found)


def convolution_of(config: Config, widths: Widths) -> Convolution:
    """That of the first layer."""
    found = Convolution(config.size("conv_kernel_size", 0, least=0), config.size("conv_groups", 1), config.activation("conv_act", "tanh"))
    if found.kernel and found.kernel % 2 == 0:
        raise config.refuse("conv_kernel_size", "0 or an odd number")
    if widths.model % found.groups:
        raise config.refuse("conv_groups", f"a number that divides hidden_size = {widths.model}")
    return found


def spans(config: Config) -> tuple[int, int, int]:
    """(how many distances on each side have an embedding, how many buckets they are put in, or 0, the largest distance)."""
    farthest, count = (config.size(name, -1, least=-1) for name in ("max_relative_positions", "position_buckets"))
    farthest = farthest if farthest > 0 else config.size("max_position_embeddings", 512)
    if count == 1 or 0 < farthest - 1 <= count // 2:
        some = f", or from 2 to {2 * farthest - 3}" if farthest > 2 else ""
        raise config.refuse("position_buckets", f"-1{some}, as distances are up to {farthest}")
    return (count, count, farthest) if count > 0 else (farthest, 0, farthest)


def normalises_distances(config: Config) -> bool:
    """Whether there is a norm of the embeddings of distances."""
    said = config.values.get("norm_rel_ebd", "none")
    found = [part.strip() for part in said.lower().split("|")] if isinstance(said, str) else [""]
    if not set(found) <= {"none", "layer_norm"}:
        raise config.refuse("norm_rel_ebd", "'none' or 'layer_norm'")
    return "layer_norm" in found
