"""Fine-tuning of embeddings: texts that belong together are brought nearer to each other than to the others of their batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functional as F
from .. import nn
from .._core import Tensor
from .._joining import cat
from .._tensor import as_tensor
from ..random import drawing_from
from .fitting import Options, generator_of, train, without_halves
from .pooling import recorded
from .texts import arguments, listed, of_characters


def checked_groups(groups: Any) -> list[tuple[str, ...]]:
    """(anchor, positive, negatives ...) each, all with as many texts."""
    found: list[tuple[str, ...]] = []
    for i, group in enumerate(listed(groups, "pairs of str")):
        texts = tuple(group) if isinstance(group, (tuple, list, np.ndarray)) else ()
        if len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"pairs must be (anchor, positive) or (anchor, positive, negative, ...), but number {i} is {group!r:.80}")
        if found and len(texts) != len(found[0]):
            raise ValueError(f"pair number {i} has {len(texts)} texts and number 0 has {len(found[0])}; they must all have as many")
        for text in texts:
            of_characters(text, f"pair number {i}")
        found.append(texts)
    if not found:
        raise ValueError("there are no pairs to train with")
    return found


def ranking_loss(anchors: Tensor, candidates: Sequence[Tensor], scale: float) -> Tensor:
    """Multiple negatives ranking loss (Henderson et al. 2017, section 4.4): cross-entropy of scaled cosines.

    Parameters
    ----------
    anchors : Tensor, shape (B, E)
    candidates : sequence of Tensor, shape (B, E)
        The positives, then hard negatives. Row i of the first is the positive of anchor i; all other rows are negatives.
    scale : float
    """
    every = F.normalize(cat(list(candidates), 0))
    scores = F.normalize(anchors) @ every.transpose(0, 1) * scale
    return F.cross_entropy(scores, as_tensor(np.arange(anchors.shape[0])))


def fit(encoder: Any, columns: Sequence[tuple[list[Any], int]], options: Options, scale: float, random_state: Any, progress: bool) -> Any:
    """(trained copies of the encoder's model and of its dense layers, history).

    `columns`: of the anchors, the positives and each of the negatives, the tokens of every text and how many of them are not pooled.
    """
    model, dense = without_halves(copy.deepcopy(encoder.model)), copy.deepcopy(encoder.dense)
    whole = nn.ModuleList([model, *dense]) if dense else model
    whole.to(device=next(model.parameters()).device, dtype=next(model.parameters()).dtype)

    def embed(tokens: list[Any], skipped: int) -> Tensor:
        given = arguments(model, tokens)
        states = model(**{name: as_tensor(value) for name, value in given.items()})
        vectors = recorded(encoder.pooling, states, given["lengths"], skipped)
        for layer in dense:
            vectors = layer(vectors)
        return vectors

    def loss(rows: np.ndarray) -> Tensor:
        anchors, *others = (embed([tokens[i] for i in rows], skipped) for tokens, skipped in columns)
        return ranking_loss(anchors, others, scale)

    with drawing_from(generator_of(random_state)):
        history = train(whole, loss, len(columns[0][0]), options, progress=progress)
    for layer in dense:
        layer.to("cpu")
    return model, dense, history
