"""Fine-tuning of models that write: of each token that is learnt, the model should give the highest score after those before it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .. import functional as F
from .._core import Tensor
from .._joining import cat
from .._recording import enable_grad, no_grad
from .._tensor import as_tensor, zeros_like
from ..autograd import Function, grad
from ..random import drawing_from
from .fitting import Options, generator_of, train, without_halves
from .texts import arguments, parts

_SCORES_AT_ONCE = 1 << 24  # of all words for some tokens: 64 MiB


class Sample(NamedTuple):
    """A text for a decoder, of which the tokens from number `first` on are learnt; for an encoder-decoder, what is read and what is written."""

    read: np.ndarray | None
    ids: np.ndarray
    first: int


def pieces(ids: np.ndarray, most: int) -> Iterator[Sample]:
    """A text in parts of at most so many tokens. Each begins with the last token of the part before it, so that every token but the first is
    learnt once."""
    for begin in range(0, max(1, len(ids) - 1), most - 1):
        yield Sample(None, ids[begin : begin + most], 1)


def with_end(ids: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    """Tokens and the one that ends texts, if there is one and they do not end with it."""
    return ids if not ends or (len(ids) and ids[-1] in ends) else np.append(ids, ends[0])


def fit(
    model: Any, samples: list[Sample], others: list[Sample] | None, options: Options, random_state: Any, progress: bool
) -> tuple[Any, list[dict[str, float]]]:
    """(a trained copy of a model, its losses by epoch, with "val_loss" of `others` if there are any)."""
    model = without_halves(copy.deepcopy(model))
    unseen = others or []

    def validate() -> dict[str, float]:
        total = tokens = 0.0
        with no_grad():
            for rows in parts(np.arange(len(unseen)), options.batch_size):
                some = [unseen[i] for i in rows]
                count = sum(len(own.ids) - own.first for own in some)
                total, tokens = total + loss(model, some).item() * count, tokens + count
        return {"val_loss": total / tokens}

    lengths = np.array([len(own.ids) + (0 if own.read is None else len(own.read)) for own in samples])
    with drawing_from(generator_of(random_state)):
        history = train(
            model,
            lambda rows: loss(model, [samples[i] for i in rows]),
            len(samples),
            options,
            lengths,
            validate if others else None,
            progress,
        )
    return model, history


def loss(model: Any, batch: Sequence[Sample]) -> Tensor:
    """The mean of cross-entropies over the tokens of a batch that are learnt."""
    lengths = np.array([len(own.ids) for own in batch])
    if batch[0].read is None:
        given, shift = arguments(model.encoder, [(own.ids[:-1],) for own in batch]), 1
        states = model.encoder(as_tensor(given["ids"]), lengths=given["lengths"])
    else:
        given, shift = arguments(model.encoder, [(own.read,) for own in batch]), 0
        labels = arguments(model.encoder, [(own.ids,) for own in batch])["ids"]
        labels[np.arange(labels.shape[1]) >= lengths[:, None]] = -100
        states = model.encoder(
            as_tensor(given["ids"]), lengths=given["lengths"], decoder_ids=model.shifted(labels), decoder_lengths=as_tensor(lengths)
        )
    width = states.shape[1]
    learnt = [np.arange(own.first, len(own.ids)) for own in batch]
    places = np.concatenate([i * width + own - shift for i, own in enumerate(learnt)])  # of the states that come before them
    goals = np.concatenate([own.ids[some] for own, some in zip(batch, learnt, strict=True)])
    chosen = states.flatten(0, 1)[as_tensor(places).to(states.device)]
    return cross_entropy(model.score, chosen, model.table, as_tensor(goals).to(states.device))


def cross_entropy(score: Callable[[Tensor], Tensor], states: Tensor, table: Tensor, goals: Tensor) -> Tensor:
    """The mean cross-entropy of the scores of states (N, E), of which only those of some states are in memory at a time on CPUs.

    `table` is the parameter of the words (V, E) that `score` multiplies by, `goals` are the words (N,).
    """
    at_once = max(1, _SCORES_AT_ONCE // table.shape[0])
    if goals.shape[0] <= at_once or states.device != "cpu":
        return F.cross_entropy(score(states), goals)
    shares = [_Share(own, of_own, goals.shape[0]) for own, of_own in zip(states.split(at_once), goals.split(at_once), strict=True)]
    if _core.grad_enabled():
        return _InParts.apply(states, table, score, shares)
    return as_tensor(np.array(sum(own.loss(score).item() for own in shares), states.dtype))


@dataclass
class _Share:
    """Some of `number` states."""

    states: Tensor
    goals: Tensor
    number: int

    def loss(self, score: Callable[[Tensor], Tensor]) -> Tensor:
        """What it adds to the mean of all."""
        return F.cross_entropy(score(self.states), self.goals, reduction="sum") / self.number


class _InParts(Function):
    """Gradients are computed with the loss, and kept: as it is a number, the backward only multiplies them by one."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, score: Callable[[Tensor], Tensor], shares: list[_Share]) -> Tensor:
        total, of_states = 0.0, []
        of_table = zeros_like(table.detach()) if table.requires_grad else None
        for own in shares:
            own.states = own.states.detach().requires_grad_()
            with enable_grad():
                value = own.loss(score)
            found = grad(value, [own.states] if of_table is None else [own.states, table])
            of_states.append(found[0])
            if of_table is not None:
                of_table.add_(found[1])
            total += value.item()
        ctx.save_for_backward(cat(of_states), of_table)
        return as_tensor(np.array(total, states.dtype))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple:
        of_states, of_table = ctx.saved_tensors
        return dy * of_states, None if of_table is None else dy * of_table, None, None


__all__ = ["Sample", "cross_entropy", "fit", "loss", "pieces", "with_end"]
