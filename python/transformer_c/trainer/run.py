"""The state of a run: its position and its logged values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .._best import Best
from ..distributed.group import Group
from .averages import Averages, batch_size_of
from .history import append_row
from .later import Later, numbers_of
from .ranks import Contribution, Ranks


@dataclass(eq=False)
class Run:
    """The state of a run: the trainer shows it, modules log to it, the loop advances it, a checkpoint saves it.

    `history`, `step_history`, `metrics` (its `callback_metrics`), `best_path`, `last_path` and `should_stop` are attributes of Trainer,
    and are explained there.
    """

    monitor: str  # the name of the value by which the best epoch is chosen
    best: Best
    epoch: int = 0  # completed epochs
    batch: int = 0  # batches done in the next epoch
    index: int = 0  # batch_idx of the batch that is trained on
    step: int = 0  # optimizer steps taken
    batches_of_step: int = 1  # accumulate_grad_batches
    part: int | None = None  # of a step whose batches are drawn: the number of the one that comes next; None: the next step is not begun
    is_fitting: bool = False  # fit() goes on
    is_in_batch: bool = False  # while the work on a batch is half done, so that no run could resume from there
    batches: int | None = 0  # per epoch; None if not known in advance
    should_stop: bool = False
    is_cut: bool = False  # should_stop has ended the batches of the epoch
    history: dict[str, list] = field(default_factory=dict)
    step_history: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)  # of the last completed epoch
    unlogged: set[str] = field(default_factory=set)  # names that are not for the loggers
    unnumbered: set[str] = field(default_factory=set)  # names that get no number of a loader
    of_both: set[str] = field(default_factory=set)  # names logged for steps and for epochs, for which Lightning has two more
    optimizers: list[Any] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    manual: Any = None  # a ManualOptimization, if the module steps its optimizers itself
    best_path: str = ""
    last_path: str = ""
    averages: Averages = field(default_factory=Averages)  # of the epoch's values
    pass_averages: Averages | None = None  # of those of a validation or test, while it goes on
    before_validation: dict[str, Any] | None = None  # what a checkpoint has of the values, from the end of the batches to that of the epoch
    losses: Averages = field(default_factory=Averages)  # of the epoch's losses, for the bar
    in_bar: dict[str, float | None] = field(default_factory=dict)  # None: not known yet
    kind: str = "train"  # of the current batch, to which logged values belong
    weight: int = 1  # of the current batch
    step_of_batch: int = 0  # to which values of the current batch belong
    is_muted: bool = False
    later: Later | None = None  # what a step has logged, if it is not read at once
    ranks: Ranks = field(default_factory=lambda: Ranks(Group()))
    own: Contribution = field(default_factory=Contribution)  # with several ranks: what the others have not got yet

    # ---- logging -------------------------------------------------------------------------------------------------------------

    def begin_batch(self, kind: str, batch: Any) -> int:
        """Values logged from now on are of this kind ("train", "validation", "test"); their weight is the length of the batch."""
        if self.later is not None:
            self.read()
        self.kind, self.weight, self.step_of_batch = kind, batch_size_of(batch), self.step
        return self.weight

    def check_name(self, name: str) -> None:
        """Raises ValueError for a name under which nothing can be recorded."""
        if name in ("epoch", "step") and not self.is_muted:
            raise ValueError(f"{name!r} is a name that the history uses itself: log the value under another")

    def record(
        self,
        name: str,
        value: float,
        prog_bar: bool,
        on_step: bool | None,
        on_epoch: bool | None,
        batch_size: int | None = None,
        for_loggers: bool = True,
        reduction: str = "mean",
        is_numbered: bool = True,
        metric: Any = None,
    ) -> None:
        """Records a value that a module logs."""
        if self.is_muted:
            return
        if not for_loggers:
            self.unlogged.add(name)
        if not is_numbered:
            self.unnumbered.add(name)
        is_training = self.kind == "train"
        is_of_step, is_of_epoch = is_training if on_step is None else on_step, not is_training if on_epoch is None else on_epoch
        if is_of_step and is_of_epoch and name not in self.of_both:  # by Lightning's defaults
            self.of_both.add(name)
            self.own.of_both.add(name)
        self._show_step(name, value)
        averages = self.averages if self.pass_averages is None else self.pass_averages
        if metric is not None and on_epoch is not False:
            if averages is not self.averages and self.is_fitting:  # else that epoch is over, or will never be
                self._refuse_shared(name, metric)
            averages.watch(name, metric)
        elif on_epoch is not False:
            averages.add(name, value, self.weight if batch_size is None else batch_size, reduction)
        if is_training:
            if self.ranks.size > 1:
                self.own.logged.append((name, value, self.weight if batch_size is None else batch_size, bool(on_step), self.step_of_batch))
            elif on_step:
                self.step_history.setdefault(name, []).append((self.step_of_batch, value))
            if prog_bar:
                self.in_bar[name] = value
        elif prog_bar:
            self.in_bar.setdefault(name, None)  # shown once the epoch is validated

    def _show_step(self, name: str, value: float) -> None:
        """Makes the value of a batch the latest of its name."""
        self.metrics[name] = value
        if name in self.of_both and self.kind == "train":
            self.metrics[f"{name}_step"] = value

    def show(self, values: Mapping[str, float]) -> None:
        """Makes the means of an epoch or a pass the latest values of their names."""
        self.metrics.update(self.with_names_of_epochs(values))

    def with_names_of_epochs(self, values: Mapping[str, float]) -> dict[str, float]:
        """The means of an epoch; those of names that were logged for steps, too, also as "name_epoch", which is Lightning's name for them."""
        parts = {name: name.partition("/dataloader_idx_") for name in values}
        also = {f"{stem}_epoch{mark}{number}": values[name] for name, (stem, mark, number) in parts.items() if stem in self.of_both}
        return {**also, **values}

    def _refuse_shared(self, name: str, metric: Any) -> None:
        """Raises ValueError for a metric that already collects the values of the epoch's training."""
        other = next((other for other, watched in self.averages.metrics.items() if watched is metric), None)
        if other is not None:
            raise ValueError(
                f"log({name!r}) in {self.kind} got the {type(metric).__name__} that training logs as {other!r}: it would mix the batches of both; "
                "expected a metric of its own: make two, such as self.train_acc and self.val_acc"
            )

    def add_loss(self, loss: float, weight: float, rank: int | None = None) -> None:
        """Adds the loss of a batch to the epoch's; raises FloatingPointError where it is NaN or infinite, and the trainer steps."""
        if self.manual is None and not math.isfinite(loss):
            place = "" if rank is None else f" on rank {rank}"
            raise FloatingPointError(
                f"the loss is {loss}{place} at step {self.step + 1} (epoch {self.epoch + 1}, batch {self.batch + 1}); the weights are those "
                f"of step {self.step}. A smaller learning rate or gradient_clip_val= may help; a training_step() that returns None skips its "
                "batch"
            )
        self.losses.add("loss", loss, weight)

    def join(self, place: str = "the end of a step") -> list[Contribution]:
        """Records what the ranks have logged since the last call; called on all of them."""
        if self.ranks.size == 1:
            return [self.own]
        self.read()
        own, self.own = self.own, Contribution()
        parts = self.ranks.exchange(place, own)
        for rank, part in enumerate(parts):
            self.of_both |= part.of_both
            for loss, weight in part.losses:
                self.add_loss(loss, weight, rank)
        self._record_means(parts)
        return parts

    def _record_means(self, parts: Sequence[Contribution]) -> None:
        """Records the means over ranks, weighted as over batches, of what was logged under one name for the same time."""
        together: dict[tuple[str, int], list[tuple[str, float, float, bool, int]]] = {}
        for part in parts:
            times = Counter[str]()
            for entry in part.logged:
                together.setdefault((entry[0], times[entry[0]]), []).append(entry)
                times[entry[0]] += 1
        for (name, _), same in together.items():
            weight, (_, first, _, on_step, step) = sum(w for _, _, w, _, _ in same), same[0]
            value = sum(v * w for _, v, w, _, _ in same) / weight if weight else first
            self._show_step(name, value)
            if name in self.in_bar:
                self.in_bar[name] = value
            if on_step:
                self.step_history.setdefault(name, []).append((step, value))

    def has_passed(self, every: int) -> bool:
        """Whether the current batch ended with a step whose number is a multiple of `every`, or jumped over one."""
        return self.step // every > self.step_of_batch // every

    def muted(self, is_muted: bool) -> AbstractContextManager[bool]:
        """Drops values logged inside the block."""

        def exchange(value: bool) -> bool:
            before, self.is_muted = self.is_muted, value
            return before

        return _core.switched(exchange, lambda: is_muted)

    def logging_later(self, is_captured: bool) -> AbstractContextManager[Later]:
        """Gives the place to which values logged inside the block are put instead of being read."""

        def exchange(value: Later | None) -> Later | None:
            before, self.later = self.later, value
            return before

        return _core.switched(exchange, lambda: Later(is_captured))

    @contextmanager
    def reading_together(self, device: str) -> Iterator[None]:
        """Inside the block what is logged on a GPU is not read before someone asks for it, calls ``read()``, or the block ends."""
        if device == "cpu":
            yield
            return
        with self.logging_later(is_captured=False):
            try:
                yield
            finally:
                self.read()

    def read(self, values: Sequence[Any] = ()) -> list[float]:
        """The numbers in Tensors of one element. In ``reading_together`` by one copy, and with them what was logged; it is recorded."""
        if self.later is None:
            return [float(value) for value in values]
        logged = [] if self.later.is_captured else self.later.take()
        numbers = numbers_of([*(value for _, value in logged), *values])
        for (record, _), number in zip(logged, numbers, strict=False):
            record(number)
        return numbers[len(logged) :]

    def refuse_read(self, name: str) -> None:
        """Raises RuntimeError in a step that is captured, which is repeated without this code."""
        if self.later is not None and self.later.is_captured:
            raise RuntimeError(f"{name} was read in the captured function, and each repetition would have the same: move that out")

    def averaging(self) -> AbstractContextManager[Averages]:
        """Averages values logged inside the block separately."""

        def exchange(value: Averages | None) -> Averages | None:
            before, self.pass_averages = self.pass_averages, value
            return before

        return _core.switched(exchange, Averages)

    def bar_values(self) -> dict[str, float]:
        """The values shown after the bar."""
        return {**self.losses.means(), **{k: v for k, v in self.in_bar.items() if v is not None}}

    def total_averages(self) -> Averages:
        """The averages over all ranks."""
        return self.ranks.total(self.averages)

    # ---- epochs --------------------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Starts the means of an epoch."""
        self.averages, self.losses = Averages(), Averages()

    def hold_values(self) -> None:
        """Keeps the values as they are for checkpoints until the epoch ends: one of a run stopped in validation begins it anew."""
        self.before_validation = self._values()

    def end_epoch(self, values: Mapping[str, float]) -> None:
        """Counts the epoch and adds its values to the history."""
        self.show(values)
        self.latest = dict(values)
        self.averages.reset_metrics()
        append_row(self.history, {"epoch": self.epoch + 1, "step": self.step, **values})
        self.epoch, self.batch, self.before_validation, self.is_cut = self.epoch + 1, 0, None, False

    # ---- checkpoints -----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state of the run for a checkpoint."""
        self.read()
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "batches": self.batches,
            "part": self.part,
            "batches_of_step": self.batches_of_step,
            "is_cut": self.is_cut,
            "global_step": self.step,
            "history": {name: np.array(values) for name, values in self.history.items()},
            "step_history": {name: np.array(values, np.float64) for name, values in self.step_history.items()},
            "monitor": self.monitor,
            "mode": self.best.mode,
            "best": self.best.state_dict(),
            "latest": dict(self.latest),
            "of_both": sorted(self.of_both),
            **(self._values() if self.before_validation is None else self.before_validation),
        }

    def _values(self) -> dict[str, Any]:
        """What has been logged in the epoch, or is the latest of its name."""
        return {
            "averages": self.total_averages().state_dict() if self.batch else {},
            "running": self.losses.state_dict() if self.batch else {},
            "metrics": dict(self.metrics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state from ``state_dict()``; raises ValueError if it is from a different run."""
        if int(state["batch"]) and state["batches"] != self.batches:
            raise ValueError(
                f"the checkpoint was made in the middle of an epoch of {state['batches']} batches; an epoch has {self.batches} now: "
                "resume with the same data and limits, and as many rows in a step: ranks times batch_size"
            )
        part = state.get("part")
        if part and state["batches_of_step"] != self.batches_of_step:
            raise ValueError(
                f"the checkpoint was made after {part} of the {state['batches_of_step']} batches of an optimizer step; a step has "
                f"{self.batches_of_step} now: resume with accumulate_grad_batches={state['batches_of_step']}"
            )
        if (state["monitor"], state["mode"]) != (self.monitor, self.best.mode):
            raise ValueError(
                f"the checkpoint's best epoch is by monitor={state['monitor']!r} and mode={state['mode']!r}, "
                f"not {self.monitor!r} and {self.best.mode!r}: resume with tc.Trainer(monitor={state['monitor']!r}, mode={state['mode']!r})"
            )
        self.epoch, self.batch, self.part = int(state["epoch"]), int(state["batch"]), None if part is None else int(part)
        self.is_cut = bool(state.get("is_cut", False))
        self.should_stop |= self.is_cut
        if self.ranks.is_writer:  # they are sums over all ranks
            self.averages.load_state_dict(state["averages"])
        self.losses.load_state_dict(state["running"])
        self.metrics, self.latest = ({str(k): float(v) for k, v in state.get(name, {}).items()} for name in ("metrics", "latest"))
        self.of_both = set(state.get("of_both", ()))
        self.best.load_state_dict(state["best"])
        self.step = int(state["global_step"])
        self.history = {name: [*np.asarray(values).tolist()] for name, values in state["history"].items()}
        self.step_history = {name: [(int(s), float(v)) for s, v in values] for name, values in state["step_history"].items()}
