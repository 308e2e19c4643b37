"""The epochs of one fit, and what of them a checkpoint holds."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from ..checkpoint import Checkpoint, CheckpointError, load, save
from ..optim import clip_grad_norm_, clip_grad_value_
from . import loaders, steps, streams
from .evaluation import evaluate, merged
from .interrupts import StopBetweenBatches
from .metrics import Averages, append_row, write_csv
from .progress import Bar

BEST, LAST, HISTORY = "best.safetensors", "last.safetensors", "history.csv"


class FitLoop:
    """A run from its first batch, or from a checkpoint, to its end.

    Where a run is: ``epoch`` whole epochs and ``batch`` batches of the next. At the beginning of an epoch the states of all random streams
    are kept. A checkpoint in the middle of an epoch holds them and those of its own moment: going on, the streams are put back to the
    epoch's beginning, the batches that were done are drawn again and dropped, which puts the streams of the data where they were, and the
    others, with all weights, are put back to the moment of the checkpoint.
    """

    def __init__(self, trainer: Any, model: Any, train: Any, val: list[Any]) -> None:
        self.trainer, self.model, self.train, self.val = trainer, model, train, val
        self.total = loaders.number_of_batches(train, trainer.limit_train_batches)
        if self.total == 0:
            raise ValueError(
                f"there is no batch to train on: train has {len(train)} batches, limit_train_batches is {trainer.limit_train_batches}"
            )
        trainer.num_training_batches = math.inf if self.total is None else self.total
        holders = {"train": train, **{f"val.{i}": loader for i, loader in enumerate(val)}, "model": model}
        holders |= {f"model.{name}": part for name, part in model.named_modules() if name}  # however deep
        self.streams = streams.find_streams(holders, trainer.generators)
        self.epoch = self.batch = 0
        self.averages = Averages()
        self.running = Averages()  # of the loss, for the bar
        self.resumed = Checkpoint()
        self.at_start: dict[str, Any] = {}
        self.at_batch: dict[str, Any] = {}  # only at the end of an epoch, before it is validated; so is the next
        self.weights: dict[str, Any] = {}

    def prepare(self) -> None:
        """Asks the model for its optimizer; reads the forms of its steps."""
        self.optimizer, self.schedules = steps.configured(self.model)
        self.schedulers = steps.schedulers_of(self.model, self.schedules)
        self.step_arguments = steps.accepted(self.model.training_step, 2)
        self.takes_closure = steps.accepted(self.model.optimizer_step, 4) == 4

    # ---- running -------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All epochs that are left."""
        trainer = self.trainer
        while self.epoch < trainer.max_epochs and not (trainer.should_stop or trainer._watch.exhausted):
            try:
                self._run_epoch(self.batch)
                trainer._interrupts.check()
            except StopBetweenBatches:
                self._interrupted()

    def _run_epoch(self, skip: int) -> None:
        trainer = self.trainer
        if not skip:
            self.at_start = self._capture()
            self.averages, self.running = Averages(), Averages()
        trainer._averages = self.averages
        trainer._begin_batch("train", None)
        with trainer._muted(bool(skip)):  # what it logged before the checkpoint is there; what it does to the data must be done again
            self.model.on_train_epoch_start()
        label = f"epoch {self.epoch + 1}/{trainer.max_epochs}"
        with Bar(trainer.progress, label, self.total, skip) as bar:
            self._train_batches(skip, bar)
            self.at_batch, self.weights = self._capture(), self._copied_weights()  # validation may draw as well, and change them
            values = self._validate()
            trainer._begin_batch("train", None)
            self.model.on_train_epoch_end()
            trainer._in_bar.update({k: v for k, v in values.items() if k in trainer._in_bar or k == trainer.monitor})
            bar.show(self._bar_values())
        self._step_schedules("epoch", self.epoch + 1)
        self._end_epoch({**self.averages.means(), **values})

    def _train_batches(self, skip: int, bar: Bar) -> None:
        trainer = self.trainer
        with closing(loaders.batches(self.train, self.total)) as iterator:
            self._skip_batches(skip, iterator)
            for batch in iterator:
                self._train_batch(batch)
                bar.advance()
                if bar.due():
                    bar.show(self._bar_values())
                trainer._interrupts.check()
                if trainer.checkpoint_every_n_steps and trainer.global_step % trainer.checkpoint_every_n_steps == 0:
                    self.save_last()
        if not self.batch:
            raise ValueError("there is no batch to train on: train is empty")

    def _skip_batches(self, count: int, iterator: Iterator[Any]) -> None:
        """Draws the batches that were trained on before the checkpoint; then everything is as at its moment."""
        for done in range(count):
            if next(iterator, self) is self:
                raise CheckpointError(f"the checkpoint was made after {count} batches of an epoch; train has {done}")
        if count:
            self._load_weights()
            streams.restore({k: v for k, v in self.streams.items() if not k.startswith("train.")}, self.at_batch)
            self.at_batch = {}

    def _train_batch(self, batch: Any) -> None:
        trainer, model, index = self.trainer, self.model, self.batch
        weight = trainer._begin_batch("train", batch)
        batch = trainer._place.bring(batch)
        ran = False

        def closure():
            nonlocal ran
            ran = True
            self.optimizer.zero_grad()
            loss = steps.loss_of(model.training_step(*(batch, index)[: self.step_arguments]), model)
            if loss is not None:
                loss.backward()
                self._clip()
                self.running.add("loss", float(loss), weight)
            return loss

        if self.takes_closure:
            model.optimizer_step(self.epoch, index, self.optimizer, closure)
            if not ran:
                raise RuntimeError(
                    f"{type(model).__name__}.optimizer_step() never called the closure, its fourth argument, which computes loss and gradients: "
                    "call super().optimizer_step(*args, **kwargs) or optimizer.step(closure)"
                )
        else:
            closure()
            model.optimizer_step(self.optimizer)
        self.batch += 1
        trainer.global_step += 1
        self._step_schedules("step", trainer.global_step)

    def _clip(self) -> None:
        value = self.trainer.gradient_clip_val
        if value:
            clip = clip_grad_norm_ if self.trainer.gradient_clip_algorithm == "norm" else clip_grad_value_
            clip((p for group in self.optimizer.param_groups for p in group["params"]), value)

    def _step_schedules(self, interval: str, count: int) -> None:
        for schedule in self.schedules:
            if schedule.interval == interval and count % schedule.frequency == 0:
                schedule.scheduler.step()

    def _validate(self) -> dict[str, float]:
        trainer = self.trainer
        if not self._is_validated():
            return {}
        try:
            return merged(evaluate(trainer, self.model, "validation", self.val, trainer.limit_val_batches))
        finally:
            trainer._averages = self.averages

    def _is_validated(self) -> bool:
        """Whether validation follows the epoch in hand."""
        return bool(self.val) and (self.epoch + 1) % self.trainer.check_val_every_n_epoch == 0

    def _bar_values(self) -> dict[str, float]:
        return {**self.running.means(), **{k: v for k, v in self.trainer._in_bar.items() if v is not None}}

    def _end_epoch(self, values: dict[str, float]) -> None:
        """The epoch counts now: history, best, files."""
        trainer = self.trainer
        is_best = trainer._judge(values, self.epoch + 1, bool(self.val))
        trainer.callback_metrics.update(values)
        append_row(trainer.history, {"epoch": self.epoch + 1, "step": trainer.global_step, **values})
        self.epoch, self.batch, self.at_batch, self.weights = self.epoch + 1, 0, {}, {}
        trainer.current_epoch = self.epoch
        if is_best and trainer.checkpoint_dir:
            trainer.best_model_path = os.path.join(trainer.checkpoint_dir, BEST)
            save(self.model, trainer.best_model_path)
        self.at_start = self._capture()
        self.save_last()

    def _interrupted(self) -> None:
        self.save_last()
        trainer = self.trainer
        where = (
            f"interrupted after epoch {self.epoch}" if not self.batch else f"interrupted in epoch {self.epoch + 1} after batch {self.batch}"
        )
        kept = f'; {trainer.last_model_path!r} holds everything: fit(..., resume="last") goes on' if trainer.checkpoint_dir else ""
        raise KeyboardInterrupt(where + kept)

    # ---- checkpoints -------------------------------------------------------------------------------------------------------------

    def _capture(self) -> dict[str, Any]:
        return streams.capture(self.streams) if self.trainer.checkpoint_dir else {}

    def _copied_weights(self) -> dict[str, Any]:
        """The model's state where validation follows: after a Ctrl-C in the middle of it, it is done again from its beginning."""
        if not self.trainer.checkpoint_dir or not self._is_validated():
            return {}
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def save_last(self) -> None:
        """Writes the history, then the file that a run goes on from."""
        trainer = self.trainer
        if not trainer.checkpoint_dir:
            return
        write_csv(trainer.history, os.path.join(trainer.checkpoint_dir, HISTORY))
        trainer.last_model_path = os.path.join(trainer.checkpoint_dir, LAST)
        save(self._checkpoint(), trainer.last_model_path, self.model.hparams)

    def _checkpoint(self) -> dict[str, Any]:
        trainer = self.trainer
        held = {
            "class": type(self.model).__name__,
            "state_dict": self.weights or self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedulers": [s.state_dict() for s in self.schedulers],
            "trainer": {
                "epoch": self.epoch,
                "batch": self.batch,
                "batches": self.total,
                "global_step": trainer.global_step,
                "history": {name: np.array(values) for name, values in trainer.history.items()},
                "step_history": {name: np.array(values, np.float64) for name, values in trainer.step_history.items()},
                "monitor": trainer.monitor,
                "mode": trainer.mode,
                "watch": trainer._watch.state_dict(),
                "averages": self.averages.state_dict() if self.batch else {},
                "running": self.running.state_dict() if self.batch else {},
            },
            "streams": {"at_start": self.at_start, "at_batch": (self.at_batch or self._capture()) if self.batch else {}},
        }
        self.model.on_save_checkpoint(held)
        return held

    def go_on_from(self, path: str) -> None:
        """Takes on what a checkpoint holds; after an error, the model and the random streams are as they were."""
        held = load(path)
        if "trainer" not in held:
            raise CheckpointError(f"{path!r} holds no run to go on with, only weights: resume from the {LAST} beside it")
        before = streams.capture(self.streams)
        try:
            self._compare(held, path)
            self._take_on(held)
            streams.restore(self.streams, self.at_batch)  # put in force when the batches are drawn; now only to see that it can be
            streams.restore(self.streams, self.at_start)
            self.resumed = held
            self._load_weights()
        except (KeyError, TypeError, AttributeError) as error:
            streams.restore(self.streams, before)
            raise CheckpointError(f"{path!r} is not what a trainer writes ({type(error).__name__}: {error})") from error
        except BaseException:
            streams.restore(self.streams, before)
            raise

    def _take_on(self, held: Checkpoint) -> None:
        """Place, history, means: all but weights, optimizer and random streams."""
        trainer, state = self.trainer, held["trainer"]
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
        if self.batch and state["batches"] != self.total:
            raise ValueError(
                f"the checkpoint was made in the middle of an epoch of {state['batches']} batches; an epoch has {self.total} now: "
                "go on with the same data, batch size and limits"
            )
        if (state["monitor"], state["mode"]) != (trainer.monitor, trainer.mode):
            raise ValueError(
                f"the checkpoint's best epoch is by monitor={state['monitor']!r} and mode={state['mode']!r}, not {trainer.monitor!r} and {trainer.mode!r}"
            )
        self.averages.load_state_dict(state["averages"])
        self.running.load_state_dict(state["running"])
        self.at_start, self.at_batch = held["streams"]["at_start"], held["streams"]["at_batch"]
        trainer._watch.load_state_dict(state["watch"])
        trainer.global_step, trainer.current_epoch = int(state["global_step"]), self.epoch
        trainer.history = {name: [*np.asarray(values).tolist()] for name, values in state["history"].items()}
        trainer.step_history = {name: [(int(s), float(v)) for s, v in values] for name, values in state["step_history"].items()}

    def _load_weights(self) -> None:
        """Those of optimizer and schedulers first, which nobody has used yet: the model's are there when all else has been found to fit."""
        held = self.resumed
        self.optimizer.load_state_dict(held["optimizer"])
        if len(held["schedulers"]) != len(self.schedulers):
            raise ValueError(f"the checkpoint has {len(held['schedulers'])} schedulers, the model {len(self.schedulers)}")
        for scheduler, saved in zip(self.schedulers, held["schedulers"], strict=True):
            scheduler.load_state_dict(saved)
        self.model.on_load_checkpoint(held)
        self.model.load_state_dict(held["state_dict"])

    def _compare(self, held: Checkpoint, path: str) -> None:
        """Warns when the run cannot be the one that was stopped."""
        now = dict(self.model.hparams.items())
        changed = sorted(k for k in {*now, *held.hyper_parameters} if not _same(now.get(k), held.hyper_parameters.get(k)))
        if changed:
            shown = ", ".join(f"{k} {held.hyper_parameters.get(k)!r} -> {now.get(k)!r}" for k in changed)
            warnings.warn(
                f"hyper-parameters differ from those in {path!r}: {shown}; optimizer and schedules go on with the file's", stacklevel=5
            )
        missing = sorted(set(held["streams"]["at_start"]) ^ set(self.streams))
        if missing:
            warnings.warn(
                f"{path!r} and this run do not have the same random streams ({', '.join(missing)}): it may take another course",
                stacklevel=5,
            )


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)
