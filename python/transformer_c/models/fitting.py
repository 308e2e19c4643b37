"""Fine-tuning: the options, the groups of parameters, the learning rate, and the loop over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import optim
from .._arguments import all_of, count, not_negative, real
from .._core import Generator, Tensor
from .._promotion import is_half
from .._recording import enable_grad
from ..nn.utils import clip_grad_norm_
from ..random import as_generator, randperm
from .texts import Bar, parts

# Of transformers' and Keras' names for the options, what to write instead.
OTHER_NAMES = {
    **dict.fromkeys(("num_epochs", "max_epochs", "num_train_epochs"), "epochs="),
    **dict.fromkeys(("lr", "learning_rate_init"), "learning_rate="),
    **dict.fromkeys(("per_device_train_batch_size", "train_batch_size"), "batch_size="),
    **dict.fromkeys(("warmup_ratio", "warmup_steps"), "warmup=, a share of the steps"),
    **dict.fromkeys(("seed", "rng"), "random_state="),
    "max_grad_norm": "max_norm=",
}
_SORTED_AT_ONCE = 50  # batches whose texts are sorted by length together, as in transformers


@dataclass(frozen=True)
class Options:
    """The options of a fine-tuning; names as in ``TextClassifier``."""

    learning_rate: float
    epochs: int
    batch_size: int
    warmup: float
    weight_decay: float
    max_norm: float

    @classmethod
    def of(cls, values: Any) -> Options:
        """Checked; one error names all that are wrong."""
        checks = {
            "learning_rate": _finite, "epochs": count, "batch_size": count, "warmup": _share, "weight_decay": _finite,
            "max_norm": not_negative,
        }  # fmt: skip
        return cls(*all_of(*((check, name, values[name]) for name, check in checks.items())))


def _finite(name: str, value: Any) -> float:
    if math.isinf(not_negative(name, value)):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def _share(name: str, value: Any) -> float:
    if not 0 <= real(name, value) <= 1:
        raise ValueError(f"{name} must be from 0 to 1, a share of the steps, got {value}")
    return value


def generator_of(random_state: Any) -> Generator:
    """The generator of a fit; None draws its seed from the default one."""
    return Generator(as_generator(None).seed64() if random_state is None else count("random_state", random_state, 0))


def without_halves(model: Any) -> Any:
    """The model, in float32 where it was in float16 or bfloat16, which are too coarse for small steps."""
    return model.to(dtype=np.float32) if is_half(next(model.parameters())) else model


def groups(parameters: Iterable[Any], weight_decay: float) -> list[dict[str, Any]]:
    """The parameters for AdamW: weight decay for matrices, none for norms and biases."""
    matrices: list[Any] = []
    others: list[Any] = []
    for parameter in parameters:
        (matrices if parameter.ndim > 1 else others).append(parameter)
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def rate(step: int, warm: int, steps: int) -> float:
    """The share of the learning rate in a step: it rises from 0 for `warm` steps, then falls to 0."""
    return step / warm if step < warm else max(0.0, (steps - step) / max(1, steps - warm))


def order(number: int, size: int, lengths: np.ndarray | None) -> list[np.ndarray]:
    """The batches of an epoch, drawn from the default generator. With lengths, texts of similar lengths share a batch."""
    drawn = randperm(number).numpy()
    if lengths is None:
        return list(parts(drawn, size))
    batches: list[np.ndarray] = []
    for some in parts(drawn, size * _SORTED_AT_ONCE):
        batches += parts(some[np.argsort(-lengths[some], kind="stable")], size)
    return [batches[i] for i in randperm(len(batches)).numpy()]


def _check_loss(value: float, epoch: int) -> None:
    if not math.isfinite(value):
        raise ValueError(f"the loss is {value} in epoch {epoch}: the training diverged; a lower learning_rate may help")


def train(
    model: Any,
    loss: Callable[[np.ndarray], Tensor],
    number: int,
    options: Options,
    lengths: np.ndarray | None = None,
    validate: Callable[[], dict[str, float]] | None = None,
    progress: bool = False,
) -> list[dict[str, float]]:
    """Trains a model in place; random numbers come from the default generator.

    Parameters
    ----------
    model : Module
        In eval mode at the end, with the weights of the epoch whose ``val_loss`` is lowest where there is a validation.
    loss : callable
        The loss of a batch, given the numbers of its samples.
    number : int
        Of samples.
    options : Options
    lengths : ndarray of int, optional
        Of the samples, to put those of similar lengths into one batch.
    validate : callable, optional
        Gives values after each epoch, ``val_loss`` among them.
    progress : bool
        Show a bar.

    Returns
    -------
    list of dict
        For each epoch "loss", the mean over samples, and what `validate` gives.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("all parameters are frozen (requires_grad is False): nothing is trained")
    optimizer = optim.AdamW(groups(model.parameters(), options.weight_decay), lr=options.learning_rate)
    steps = options.epochs * math.ceil(number / options.batch_size)
    warm = min(math.ceil(options.warmup * steps), steps - 1)  # a single step has the whole rate
    schedule = optim.LambdaLR(optimizer, lambda step: rate(step, warm, steps))
    history: list[dict[str, float]] = []
    best: dict[str, Tensor] | None = None
    with enable_grad(), Bar(options.epochs * number, progress, "training") as bar:
        for epoch in range(1, options.epochs + 1):
            model.train()
            total = 0.0
            for rows in order(number, options.batch_size, lengths):
                found = loss(rows)
                value = found.item()
                _check_loss(value, epoch)
                optimizer.zero_grad()
                found.backward()
                if options.max_norm:
                    clip_grad_norm_(model.parameters(), options.max_norm)
                optimizer.step()
                schedule.step()
                total += value * len(rows)
                bar.update(len(rows))
            model.eval()
            history.append({"loss": total / number})
            if validate is not None:
                history[-1].update(validate())
                _check_loss(history[-1]["val_loss"], epoch)
                if history[-1]["val_loss"] <= min(entry["val_loss"] for entry in history):
                    best = {name: value.clone() for name, value in model.state_dict().items()}
    if not all(np.isfinite(p.detach().abs().max().item()) for p in model.parameters() if p.numel()):
        raise ValueError("weights are not finite after the last step: the training diverged; a lower learning_rate may help")
    if best is not None:
        model.load_state_dict(best)
    model.zero_grad()
    return history
