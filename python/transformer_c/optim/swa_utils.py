"""Averages of weights over training, with PyTorch's names: stochastic weight averages, and exponential moving averages (EMA)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .._arguments import count, one_of, probability, real
from .._core import Tensor
from .._names import hooks
from .._promotion import is_floating
from .._recording import no_grad
from .._tensor import tensor
from ..nn.batch_norm import _BatchNorm
from ..nn.module import Module
from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

MultiAverage = Callable[[list[Tensor], list[Tensor], Any], None]


def _move(averages: list[Tensor], values: list[Tensor], weight: float) -> None:
    """Moves each average by a part of its way to the value."""
    with no_grad():
        for average, value in zip(averages, values, strict=True):
            if is_floating(average):
                average.lerp_(value, weight)
            else:
                average.copy_((average * (1 - weight) + value * weight).to(average._dtype_name))


def get_swa_multi_avg_fn() -> MultiAverage:
    """The rule of an AveragedModel whose average is that of all models: a function that writes to the first list."""
    return lambda averages, values, num_averaged: _move(averages, values, 1 / (int(num_averaged) + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """The rule of an AveragedModel whose average is ``decay * average + (1 - decay) * value``: a function that writes to the first list.

    Examples
    --------
    >>> import transformer_c as tc
    >>> average = [tc.ones(2)]
    >>> tc.optim.swa_utils.get_ema_multi_avg_fn(0.75)(average, [tc.zeros(2)], 1)
    >>> average
    [tensor([0.7500, 0.7500])]
    """
    probability("decay", decay)
    return lambda averages, values, num_averaged: _move(averages, values, 1 - decay)


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """``get_swa_multi_avg_fn`` for one Tensor, as a function that returns the new average."""
    return lambda average, value, num_averaged: average + (value - average) / (int(num_averaged) + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """``get_ema_multi_avg_fn`` for one Tensor, as a function that returns the new average."""
    probability("decay", decay)
    return lambda average, value, num_averaged: decay * average + (1 - decay) * value


def _pairs(what: str, own: Iterable[tuple[str, Tensor]], given: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each average with what the model has in its place."""
    named, values = [*own], [*given]
    if len(named) != len(values):
        raise ValueError(
            f"the model has {len(values)} {what}, but the averages are of {len(named)}: give the model that was averaged, or its like"
        )
    for (name, average), value in zip(named, values, strict=True):
        if average.shape != value.shape:
            raise ValueError(f"{name} of the model has shape {tuple(value.shape)}, but its average has {tuple(average.shape)}")
    return [(average, value) for (_, average), value in zip(named, values, strict=True)]


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that the model had at each ``update_parameters(model)``.

    Parameters
    ----------
    model : Module
    device : str, optional
        Where the copy is.
    avg_fn, multi_avg_fn : callable, optional
        The rule, for one parameter or for lists of all, such as ``get_ema_multi_avg_fn(0.999)``; by default the mean of all models.
    use_buffers : bool, default False
        Average buffers as well; they are copied otherwise.

    Attributes
    ----------
    module : Module
        The copy.
    n_averaged : Tensor
        The number of models.

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.nn.Linear(1, 1, bias=False)
    >>> averaged = tc.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = tc.nn.init.constant_(model.weight, value)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    3.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, Module):
            raise TypeError(f"model must be an nn.Module, not {type(model).__name__}")
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("give one rule: avg_fn or multi_avg_fn")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the parameters that a model has now into the averages."""
        pairs = _pairs("parameters", self.module.named_parameters(), model.parameters())
        buffers = _pairs("buffers", self.module.named_buffers(), model.buffers())
        averaged, copied = (pairs + buffers, []) if self.use_buffers else (pairs, buffers)
        number = int(self.n_averaged)
        with no_grad():
            now = [(own.detach(), value.detach().to(own.device)) for own, value in averaged]
            if number == 0:
                copied = averaged + copied
            elif self.avg_fn is not None:
                for own, value in now:
                    own.copy_(self.avg_fn(own, value, self.n_averaged))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())([own for own, _ in now], [value for _, value in now], self.n_averaged)
            for own, value in copied:
                own.detach().copy_(value.detach().to(own.device))
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the statistics of a model's batch normalisation again, as means over a loader, whose batches are Tensors or begin with one."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    was_training, momenta = model.training, [norm.momentum for norm in norms]
    model.train()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        for batch in loader:
            given = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(given if device is None else given.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From each group's learning rate to `swa_lr`, at which it stays.

    Parameters
    ----------
    optimizer : Optimizer
    swa_lr : float, or a list of one for each group
    anneal_epochs : int, default 10
        Steps of the way.
    anneal_strategy : {"cos", "linear"}
    last_epoch : int, default -1

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=8.0)
    >>> schedule = tc.optim.swa_utils.SWALR(optimizer, 4.0, anneal_epochs=2, anneal_strategy="linear")
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [6.0]
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1
    ) -> None:
        self.anneal_epochs = count("anneal_epochs", anneal_epochs, 0)
        self._anneal_strategy = one_of("anneal_strategy", anneal_strategy, ("cos", "linear"))
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(f"swa_lr has {len(rates)} values for {len(groups)} parameter groups")
        for rate, group in zip([real("swa_lr", rate) for rate in rates], groups, strict=True):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How much of the way is done."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[float]:
        """See LRScheduler."""
        step = max(1, self._step_count - 1) if self.anneal_epochs == 0 else self._step_count - 1
        before, now = self._part(step - 1), self._part(step)
        found = []
        for group in self.optimizer.param_groups:
            goal = group["swa_lr"]
            start = goal if before == 1 else (group["lr"] - before * goal) / (1 - before)
            found.append(goal * now + start * (1 - now))
        return found


__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
