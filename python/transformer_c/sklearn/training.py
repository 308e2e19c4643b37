"""The training of the estimators: their options, the loop, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from .. import optim
from .._arguments import all_of, count, not_negative, real
from .._best import Best
from .._core import Generator, Tensor
from .._recording import no_grad
from .._tensor import as_tensor
from ..nn.utils import clip_grad_norm_
from ..random import drawing_from
from .model import Model

ROWS = 256  # of a prediction at once
_WARM_UP = 0.1  # of all steps
_LARGEST_GRADIENT = 1.0  # its norm: a target far away from the others moves the weights no further


# ---- options ----------------------------------------------------------------------------------------------------------------


def _below_one(name: str, value: Any) -> float:
    if not 0 <= real(name, value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    return value


def _share(name: str, value: Any) -> float:
    if not 0 < real(name, value) < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return value


def _batch(name: str, value: Any) -> int | None:
    """None for "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be an int or 'auto', got {value!r}")
        return None
    return count(name, value)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_, int, np.integer)):
        raise TypeError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")
    return bool(value)


@dataclass
class Options:
    """The options of an estimator, checked; names as there."""

    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    dropout: float
    learning_rate: float
    weight_decay: float
    batch_size: int | None
    max_epochs: int
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    tol: float
    max_tokens: int
    max_length: int
    verbose: bool

    @classmethod
    def of(cls, estimator: Any) -> Options:
        """One error names all that are wrong."""
        checks = {
            "d_model": count, "n_heads": count, "n_layers": count, "d_ff": count, "dropout": _below_one, "learning_rate": not_negative,
            "weight_decay": not_negative, "batch_size": _batch, "max_epochs": count, "early_stopping": _switch,
            "validation_fraction": _share if estimator.early_stopping else real, "n_iter_no_change": count, "tol": real,
            "max_tokens": lambda name, value: count(name, value, 3), "max_length": count, "verbose": _switch,
        }  # fmt: skip
        values = {name: getattr(estimator, name) for name in checks}
        if values["d_ff"] is None:
            values["d_ff"], checks["d_ff"] = values["d_model"], lambda name, value: 2 * value
        found = cls(*all_of(*((check, name, values[name]) for name, check in checks.items())))
        if found.d_model % found.n_heads:
            raise ValueError(f"d_model {found.d_model} must be a multiple of n_heads {found.n_heads}")
        return found

    def batch_of(self, n: int) -> int:
        """The size of a batch of `n` samples."""
        return self.batch_size or min(max(2 ** int(math.log2(max(n / 16, 1))), 8), ROWS)


# ---- samples ----------------------------------------------------------------------------------------------------------------


@dataclass
class Samples:
    """What a model is trained on: `x` (N, ...), `lengths` (N,) of texts, with the first token; targets and weights (N, ...)."""

    x: np.ndarray
    lengths: np.ndarray | None
    y: np.ndarray
    weights: np.ndarray

    def loss(self, model: Model, rows: np.ndarray, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The mean of some samples' losses."""
        each = loss(model(*map(as_tensor, taken(self.x, self.lengths, rows))), as_tensor(self.y[rows]))
        return (each * as_tensor(self.weights[rows].astype(np.float32))).sum() / len(rows)


def taken(x: np.ndarray, lengths: np.ndarray | None, rows: Any) -> tuple[np.ndarray, ...]:
    """Some rows, without the padding that none of them needs, and their lengths if there are any."""
    if lengths is None:
        return (x[rows],)
    return x[rows][:, : max(int(lengths[rows].max()) - 1, 1)], lengths[rows]


def parts(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """The rows in parts of at most `size`."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def split(draw: np.random.RandomState, n: int, options: Options, classes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and rows held out for early stopping, of each class where there are enough."""
    rows = np.arange(n)
    if not options.early_stopping:
        return rows, rows[:0]
    if classes is not None:
        held = max(1, round(n * options.validation_fraction))
        counts = np.unique(classes, return_counts=True)[1]
        if counts.min() < 2 or held < len(counts) or n - held < len(counts):
            classes = None
    train, held = train_test_split(rows, test_size=options.validation_fraction, random_state=draw, stratify=classes)
    return np.sort(train), np.sort(held)


# ---- the loop ---------------------------------------------------------------------------------------------------------------


@dataclass
class Trained:
    """A model, and the losses of each epoch on the samples of the training and on those held out."""

    model: Model
    losses: list[float] = field(default_factory=list)
    held_losses: list[float] = field(default_factory=list)


def train(
    make: Callable[[], Model],
    samples: Samples,
    loss: Callable[[Tensor, Tensor], Tensor],
    options: Options,
    draw: np.random.RandomState,
    classes: np.ndarray | None,
) -> Trained:
    """A new model. All random numbers are the estimator's own."""
    with drawing_from(Generator(int(draw.randint(2**31 - 1)))):
        trained = Trained(make())
        rows, held = split(draw, len(samples.x), options, classes)
        size = options.batch_of(len(rows))
        lowest, improved, best_weights = Best("min"), Best("min", options.tol), None
        optimizer = optim.AdamW(trained.model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
        schedule = _schedule(optimizer, options.max_epochs * -(-len(rows) // size))
        for epoch in range(1, options.max_epochs + 1):
            trained.losses.append(_epoch(trained.model, samples, rows[draw.permutation(len(rows))], size, loss, optimizer, schedule, epoch))
            if options.verbose:
                print(f"epoch {epoch}: loss {trained.losses[-1]:.4f}")
            if len(held):
                trained.held_losses.append(_held_loss(trained.model, samples, held, loss))
                if lowest.see(trained.held_losses[-1]):
                    best_weights = {name: value.clone() for name, value in trained.model.state_dict().items()}
                improved.see(trained.held_losses[-1])
                if improved.waited >= options.n_iter_no_change:
                    break
    if best_weights is not None:
        trained.model.load_state_dict(best_weights)
    trained.model.zero_grad()
    trained.model.eval()
    return trained


def _schedule(optimizer: optim.Optimizer, steps: int) -> optim.lr_scheduler.LRScheduler:
    """The learning rate rises for a tenth of the steps, then falls as a cosine."""
    warm = max(1, int(_WARM_UP * steps))
    rising = optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / warm, total_iters=warm)
    falling = optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps - warm))
    return optim.lr_scheduler.SequentialLR(optimizer, [rising, falling], [warm])


def _epoch(model, samples, rows, size, loss, optimizer, schedule, epoch) -> float:
    """Trains on all rows once; gives the mean of their losses."""
    model.train()
    total = 0.0
    for batch in parts(rows, size):
        found = samples.loss(model, batch, loss)
        value = found.item()
        if not math.isfinite(value):
            raise ValueError(f"the loss is {value} in epoch {epoch}: the training diverged; a lower learning_rate may help")
        optimizer.zero_grad()
        found.backward()
        clip_grad_norm_(model.parameters(), _LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        total += value * len(batch)
    return total / len(rows)


def _held_loss(model, samples, held, loss) -> float:
    model.eval()
    with no_grad():
        return sum(samples.loss(model, rows, loss).item() * len(rows) for rows in parts(held, ROWS)) / len(held)


__all__ = ["ROWS", "Options", "Samples", "Trained", "parts", "taken", "train"]
