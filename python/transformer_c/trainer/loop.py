"""The epochs of one fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from .._core import Tensor
from ..callbacks.callback import Callback
from ..checkpoint import CheckpointError
from ..optim.optimizer import parameters_of
from . import loaders, steps, streams
from .averages import unchanged_metrics
from .captured import CapturedSteps
from .evaluation import EvaluationLoop
from .hooks import Hooks
from .interrupts import Interrupts, StopBetweenBatches
from .manual import ManualOptimization
from .progress import Bar
from .ranks import Contribution
from .run import Run
from .saving import RunFiles
from .shares import name_epoch

if TYPE_CHECKING:
    from .overlap import Overlap
    from .zero import Zero


@dataclass
class Part:
    """A batch of an optimizer step."""

    batch: Any
    index: Any  # batch_idx
    weight: int  # its length
    share: float  # of the step
    is_first: bool
    is_last: bool


class FitLoop:
    """Advances a run, from its first batch or from a checkpoint, to its end.

    To resume in the middle of an epoch, the random streams are reset to the start of the epoch and the batches already done are drawn
    again and dropped, which restores the data's streams; then the other streams and all weights are restored from the checkpoint.

    Parameters
    ----------
    options : Trainer
    run : Run
    model : TrainingModule
    train, val : loader, list of loaders
    place : DeviceAndDtype
        The device and dtype of the batches.
    interrupts : Interrupts
    callbacks : sequence of Callback
    hooks : Hooks
        Those of the callbacks and the model.
    """

    def __init__(
        self,
        options: Any,
        run: Run,
        model: Any,
        train: Any,
        val: list[Any],
        place: loaders.DeviceAndDtype,
        interrupts: Interrupts,
        callbacks: Sequence[Callback],
        hooks: Hooks,
    ) -> None:
        self.options, self.run, self.model, self.train, self.val = options, run, model, options.ranks.share(train), val
        self.place, self.interrupts, self.callbacks, self.hooks, self.ranks = place, interrupts, callbacks, hooks, options.ranks
        run.batches = loaders.number_of_batches(self.train, options.limit_train_batches)
        run.batches_of_step = options.accumulate_grad_batches
        if run.batches == 0:
            shared = f" on each of {self.ranks.size} ranks, which need ranks times batch_size rows for one" if self.ranks.size > 1 else ""
            raise ValueError(
                f"there is no batch to train on: train has {len(self.train)} batches{shared}, limit_train_batches is {options.limit_train_batches}"
            )
        holders = {"train": train, **{f"val.{i}": loader for i, loader in enumerate(val)}, "model": model}
        holders |= {f"model.{name}": part for name, part in model.named_modules() if name}  # at any depth
        holders |= {f"callback.{i}": vars(callback) for i, callback in enumerate(callbacks)}
        self.streams = streams.find_streams(holders, options.generators)
        self.is_interrupted = False  # a rank had got a Ctrl-C when the last step was exchanged: all know of it at the same step
        self.is_to_stop = False  # likewise, should_stop was set
        self.last_step = math.inf if options.max_steps == -1 else options.max_steps

    def prepare(self) -> None:
        """Gets the optimizer from the model and reads the signatures of its steps."""
        run, model = self.run, self.model
        run.optimizers, self.schedules = steps.configured(model)
        run.schedulers = [schedule.scheduler for schedule in self.schedules]
        if not model.automatic_optimization:
            run.manual = ManualOptimization(run, model, run.optimizers, self.hooks)
        self.zeros: list[Zero] = []
        self.overlap: Overlap | None = None
        if self.ranks.size > 1:
            self._prepare_ranks()
        self.schedulers = steps.schedulers_of(model, self.schedules)
        self.files = RunFiles(self.options, run, model, run.optimizers, self.schedulers, self.streams, self.callbacks, self.zeros)
        self.training_step = steps.in_precision(self.model.training_step, self.options.autocast_dtype)
        self.step_arguments = steps.accepted(self.model.training_step, 2)
        self.takes_closure = steps.accepted(self.model.optimizer_step, 4) == 4
        self.captured = CapturedSteps(self) if self.options.graph else None
        alone = self._compute if self.place.device == "cpu" else self._compute_on_gpu
        self.compute = alone if self.captured is None else self.captured.compute

    def _prepare_ranks(self) -> None:
        from .overlap import Overlap
        from .zero import Zero

        optimizers = self.run.optimizers
        if self.options.strategy == "zero":
            self.zeros = [Zero(self.ranks.group, optimizer) for optimizer in optimizers]
        else:
            self.overlap = Overlap.of(self.ranks, self.model, optimizers)

    def run_epochs(self) -> None:
        """Runs all remaining epochs."""
        with (
            steps.stepping(self.run.optimizers, lambda: [zero.step for zero in self.zeros]) if self.zeros else nullcontext(),
            nullcontext() if self.run.manual is None else self.run.manual.counted(),
            nullcontext() if self.overlap is None else self.overlap,
        ):
            self.run.is_fitting = True
            try:
                self._run_remaining()
            finally:
                self.run.is_fitting = self.run.is_in_batch = False  # after an error, what is left of the run can be saved

    def _run_remaining(self) -> None:
        run, most = self.run, self.options.max_epochs
        while run.is_cut or (not self._is_stopped() and (run.batch or not (run.epoch >= most != -1 or run.step >= self.last_step))):
            try:
                self._run_epoch(run.batch)
                self._check_interrupt(together=True)
            except StopBetweenBatches:
                self._interrupted()

    def _is_stopped(self) -> bool:
        """Whether ``should_stop`` is set; on all ranks, once it is set on one."""
        self.run.should_stop = any(self.ranks.exchange("the end of an epoch", self.run.should_stop))
        return self.run.should_stop

    # ---- an epoch ------------------------------------------------------------------------------------------------------------

    def _run_epoch(self, skip: int) -> None:
        options, run = self.options, self.run
        if not skip:
            self.files.begin_epoch()
            run.begin_epoch()
        self.gradients: list[Tensor] = []
        self.groups = 0
        run.begin_batch("train", None)
        with run.muted(bool(skip)):  # its logged values are in the checkpoint; its effects on the data must be repeated
            self.hooks.on_train_epoch_start()
        label = f"epoch {run.epoch + 1}" + (f"/{options.max_epochs}" if options.max_epochs != -1 else "")
        with Bar(options.progress, label, run.batches, skip) as bar:
            self._train_batches(skip, bar)
            run.join()
            self.ranks.same_buffers(self.model)
            self.files.before_validation(self._is_validated())
            values = self._validate()
            run.begin_batch("train", None)
            run.show({**run.total_averages().means(), **values})
            self.hooks.on_train_epoch_end()
            run.join()
            run.in_bar.update({k: v for k, v in values.items() if k in run.in_bar or k == options.monitor})
            bar.show(run.bar_values())
        values = self.ranks.of_root({**run.total_averages().means(), **values})
        self._step_schedules("epoch", run.epoch + 1, run.with_names_of_epochs(values))
        self._end_epoch(values)

    def _train_batches(self, skip: int, bar: Bar) -> None:
        run, every = self.run, self.options.checkpoint_every_n_steps
        name_epoch(self.train, run.epoch)
        with closing(loaders.batches(self.train, run.batches)) as iterator, self.captured or nullcontext():
            remaining = self._remaining(skip, iterator)
            if skip and (run.is_cut or run.step >= self.last_step):
                remaining = iter(())  # the checkpoint was made after the last step
            for batch, share, is_first, is_last in remaining:
                self._train(batch, share, is_first, is_last)
                bar.advance()
                if not is_last:  # a step is never interrupted
                    continue
                if bar.due():
                    bar.show(run.bar_values())
                run.is_cut = run.should_stop if self.ranks.size == 1 else self.is_to_stop
                if run.is_cut or run.step >= self.last_step:
                    break
                self._check_interrupt()
                if every and run.has_passed(every):
                    self.files.write_last()
        if not run.batch:
            raise ValueError("there is no batch to train on: train is empty")
        if run.manual is None and not run.losses.means():
            where = f"{type(self.model).__name__}.training_step()"
            raise ValueError(f"{where} returned None for every batch of epoch {run.epoch + 1}, so that nothing was trained: return loss")

    def _remaining(self, skip: int, iterator: Iterator[Any]) -> Iterator[tuple[Any, float, bool, bool]]:
        """The batches of an epoch without the first `skip`, as ``Ranks.steps_of`` gives them.

        Those that were drawn before the checkpoint are drawn again, which restores the state at the checkpoint: with the ones that were
        trained on, the others of a step that was under way.
        """
        part = self.run.part if skip else None
        for done in range(skip - (part or 0)):
            if next(iterator, self) is self and self.ranks.is_writer:  # the others may have fewer
                raise CheckpointError(f"the checkpoint was made after {skip} batches of an epoch; train has {done}")
        found = self.ranks.steps_of(iterator, self.run.batches_of_step, self.train)
        if part is not None:
            begun = list(islice(found, part + 1))
            if len(begun) <= part:
                raise CheckpointError(f"the checkpoint was made before the end of an epoch; train has {skip - part + len(begun)} batches")
            found = chain(begun[part:], found)
        if skip:
            self.files.batches_drawn()
        return found

    def _check_interrupt(self, together: bool = False) -> None:
        """Raises StopBetweenBatches after a Ctrl-C; on all ranks at the same step, or with `together` at once."""
        if self.ranks.size == 1:
            self.interrupts.check()
        elif self.is_interrupted or (together and any(self.ranks.exchange("a look for Ctrl-C after an epoch", self.interrupts.pending))):
            raise StopBetweenBatches

    def _validate(self) -> dict[str, float]:
        if not self._is_validated():
            return {}
        return EvaluationLoop(self.options, self.model, self.hooks, "validation", self.place, self.interrupts).values(self.val)[1]

    def _is_validated(self) -> bool:
        """Whether validation follows the current epoch."""
        return bool(self.val) and (self.run.epoch + 1) % self.options.check_val_every_n_epoch == 0

    def _end_epoch(self, values: dict[str, float]) -> None:
        """Completes the epoch: updates history, best epoch and files."""
        is_best = self._is_best(self.run.with_names_of_epochs(values))
        self.run.end_epoch(values)
        if is_best:
            self.files.write_best()
        self.files.begin_epoch()
        self.hooks.on_epoch_completed()
        self.files.write_last()

    def _is_best(self, values: dict[str, float]) -> bool:
        """Whether the epoch is the best so far."""
        options, epoch = self.options, self.run.epoch + 1
        if options.monitor in values:
            return self.run.best.see(values[options.monitor], epoch)
        was_due = epoch % options.check_val_every_n_epoch == 0
        asked_for = options.patience is not None or (options.checkpoint_dir and (self.val or options.monitor != "val_loss"))
        if was_due and asked_for:
            raise ValueError(f"monitor is {options.monitor!r}, which nothing logs; logged: {', '.join(sorted(values)) or 'nothing'}")
        return False

    def _interrupted(self) -> None:
        with self.ranks.together("the checkpoint after a Ctrl-C"):  # who goes on first may end all
            self.files.write_last()
        run = self.run
        where = f"interrupted after epoch {run.epoch}" if not run.batch else f"interrupted in epoch {run.epoch + 1} after batch {run.batch}"
        kept = f'; {run.last_path!r} has everything: fit(..., resume="last") resumes the run' if self.options.checkpoint_dir else ""
        raise KeyboardInterrupt(where + kept) from None

    # ---- a batch -------------------------------------------------------------------------------------------------------------

    def _train(self, batch: Any, share: float, is_first: bool, is_last: bool) -> None:
        """One batch of an optimizer step. On a rank that has no rows of the step, it counts in no logged value and no metric."""
        train = self._train_batch if self.run.manual is None else self._train_batch_by_hand
        if share or self.ranks.size == 1:
            train(batch, share, is_first, is_last)
        else:
            with self.run.muted(True), unchanged_metrics(self.model):
                train(batch, share, is_first, is_last)

    def _train_batch(self, batch: Any, share: float, is_first: bool, is_last: bool) -> None:
        """One batch of an optimizer step, of which it is `share`; the last one takes the step."""
        run, model, hooks, (optimizer,), index = self.run, self.model, self.hooks, self.run.optimizers, self.run.batch
        weight, run.index = run.begin_batch("train", batch), index
        if is_first:
            run.part = 0
        batch = self.place.bring(batch)
        if hooks.on_train_batch_start(batch, index) == -1:
            raise _left_out()
        part = Part(batch, index, weight, share, is_first, is_last)
        ran, outputs = False, None

        def closure():
            nonlocal ran, outputs
            ran = True
            outputs, loss = self.compute(part)
            return loss

        run.is_in_batch = True
        if not is_last or not self.takes_closure:
            closure()
        if is_last and self.takes_closure:
            model.optimizer_step(run.epoch, index, optimizer, closure)
            if not ran:
                raise RuntimeError(
                    f"{type(model).__name__}.optimizer_step() never called the closure, its fourth argument, which computes loss and gradients: "
                    "call super().optimizer_step(*args, **kwargs) or optimizer.step(closure)"
                )
        elif is_last:
            model.optimizer_step(optimizer)
        run.batch += 1
        run.part = None if is_last else (run.part or 0) + 1
        if is_last:
            run.step += 1
            self._step_schedules("step", run.step, run.metrics)
        run.is_in_batch = False
        hooks.on_train_batch_end(outputs, batch, index)

    def _compute(self, part: Part) -> tuple[Any, Tensor | None]:
        """Computes, clips and checks the gradients of a part of a step; returns what training_step() gave, and the loss in it."""
        outputs, loss = self.backward(part)
        unread = [] if loss is None else [loss]
        if unread and self.ranks.size > 1:
            self.add_loss(self.run.read([unread.pop()])[0], part)
        if part.is_last:
            self._join(self.run.optimizers[0])
        self.clip(loss is not None, part.is_last)
        numbers = self.run.read([*unread, *(self.gradient_sums() if part.is_last else ())])
        if unread:
            self.add_loss(numbers.pop(0), part)
        if part.is_last:
            self.check_gradients(numbers)
        return outputs, loss

    def _compute_on_gpu(self, part: Part) -> tuple[Any, Tensor | None]:
        """The same, where each number that is read by itself waits for the GPU."""
        with self.run.reading_together(self.place.device):
            return self._compute(part)

    def backward(self, part: Part) -> tuple[Any, Tensor | None]:
        """From ``training_step`` to the backward."""
        model, hooks, (optimizer,) = self.model, self.hooks, self.run.optimizers
        with self.ranks.as_part(part.batch, part.share):
            outputs = self.training_step(*(part.batch, part.index)[: self.step_arguments])
        loss = steps.loss_of(outputs, model)
        if part.is_first:
            hooks.on_before_zero_grad(optimizer)
            model.optimizer_zero_grad(self.run.epoch, part.index, optimizer)
        if loss is not None:
            scaled = loss if part.share == 1 else loss * part.share
            hooks.on_before_backward(scaled)
            (self.overlap if self.overlap is not None and part.is_last else model).backward(scaled)
        return outputs, loss

    def clip(self, has_loss: bool, is_last: bool) -> None:
        """Calls the hooks between the backward and the checks, and clips the gradients of a step."""
        model, hooks, (optimizer,), options = self.model, self.hooks, self.run.optimizers, self.options
        if has_loss:
            hooks.on_after_backward()
        if is_last:
            hooks.on_before_optimizer_step(optimizer)
            if not self.zeros:
                model.configure_gradient_clipping(optimizer, options.gradient_clip_val, options.gradient_clip_algorithm)

    def add_loss(self, loss: float, part: Part) -> None:
        """Records the loss of a part, or raises if it is not finite."""
        if self.ranks.size == 1:
            self.run.add_loss(loss, part.weight)
        else:
            self.run.own.losses.append((loss, part.weight if part.share else 0))

    def _join(self, optimizer: Any) -> None:
        """Makes the gradients, losses and logged values of a step those of all ranks."""
        if self.ranks.size == 1:
            return
        self.run.own.has_gradient = [p.grad is not None for p in parameters_of(optimizer)]
        self.run.own.is_summed = self.overlap is not None and self.overlap.wait()
        parts = self._join_values()
        used = [any(column) for column in zip(*(part.has_gradient for part in parts), strict=True)]
        for zero in self.zeros:
            zero.sum_gradients(used, self.options.gradient_clip_val, self.options.gradient_clip_algorithm)
        if self.overlap is not None:
            self.overlap.sum_gradients(used, all(part.is_summed for part in parts))
        elif not self.zeros:
            self.ranks.sum_gradients(optimizer, used)

    def _join_values(self) -> list[Contribution]:
        """Makes the losses and logged values of a step those of all ranks, and tells of interrupts."""
        self.run.own.is_interrupted, self.run.own.is_to_stop = self.interrupts.pending, self.run.should_stop
        parts = self.run.join()
        self.is_interrupted = any(part.is_interrupted for part in parts)
        self.is_to_stop = any(part.is_to_stop for part in parts)
        return parts

    def _train_batch_by_hand(self, batch: Any, share: float, is_first: bool, is_last: bool) -> None:
        """One batch of a module with manual optimization: its step computes gradients, steps optimizers and schedules."""
        run, index, run.manual.share = self.run, self.run.batch, share
        weight, run.index = run.begin_batch("train", batch), index
        run.part = 0
        batch = self.place.bring(batch)
        if self.hooks.on_train_batch_start(batch, index) == -1:
            raise _left_out()
        run.is_in_batch = True
        with run.reading_together(self.place.device):
            with self.ranks.as_part(batch, share):
                outputs = self.training_step(*(batch, index)[: self.step_arguments])
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if isinstance(loss, Tensor) and loss.numel() == 1:
                self.add_loss(run.read([loss])[0], Part(batch, index, weight, share, is_first, is_last))
        if self.ranks.size > 1:
            self._join_values()
        run.batch += 1
        run.part, run.is_in_batch = None, False
        self.hooks.on_train_batch_end(outputs, batch, index)

    def gradient_sums(self) -> list[Tensor]:
        """The sums of the optimizer's gradient buffers."""
        (optimizer,) = self.run.optimizers
        if self.groups != len(optimizer.param_groups):  # at the first step of an epoch, and where a hook added parameters
            self.gradients, self.groups = optimizer.flat_gradients(), len(optimizer.param_groups)
        return [buffer.sum() for buffer in self.gradients]

    def check_gradients(self, sums: Iterable[float]) -> None:
        """Raises before a step that would make weights NaN or infinite; `sums` are the numbers that ``gradient_sums()`` gave."""
        run, (optimizer,) = self.run, self.run.optimizers
        name = steps.infinite_gradient(self.model, optimizer, sums)
        if name is not None:
            raise FloatingPointError(
                f"the gradient of {name} is not finite at step {run.step + 1} (epoch {run.epoch + 1}, batch {run.batch + 1}), though the loss is; "
                f"the weights are those of step {run.step}. Look for a root, logarithm or quotient at 0 in training_step()"
            )

    def _step_schedules(self, interval: str, count: int, values: dict[str, float]) -> None:
        """Steps the schedules that are due; one that monitors a value waits while there is none."""
        for schedule in self.schedules if self.run.manual is None else ():
            if schedule.interval == interval and count % schedule.frequency == 0:
                if schedule.monitor is None:
                    self.model.lr_scheduler_step(schedule.scheduler, None)
                elif schedule.monitor in values:
                    self.model.lr_scheduler_step(schedule.scheduler, values[schedule.monitor])
                elif schedule.strict and interval == "epoch" and count % self.options.check_val_every_n_epoch == 0:
                    logged = ", ".join(sorted(values)) or "nothing"
                    raise ValueError(f"a schedule monitors {schedule.monitor!r}, which nothing logs; logged: {logged}")


def _left_out() -> ValueError:
    """The error for -1 of on_train_batch_start(), by which Lightning leaves out the rest of the epoch."""
    return ValueError(
        "on_train_batch_start() returned -1, which would leave out the rest of the epoch: limit_train_batches= makes all epochs shorter, "
        "self.trainer.should_stop = True ends the run, and a training_step() that returns None skips its batch"
    )
