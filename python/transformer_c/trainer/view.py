"""The run of a trainer under Lightning's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..callbacks import Callback, EarlyStopping, ModelCheckpoint
from ..loggers import HistoryLog, Logger
from . import names
from .ranks import Ranks
from .run import Run


@dataclass(eq=False, slots=True)
class Stage:
    """What a trainer does, or did last. Its slots keep `streams` from taking the data's generators for the model's, which has a trainer."""

    kind: str = ""  # "train", "validation", "test", "predict"
    model: Any = None
    data_module: Any = None
    train: Any = None  # the loader
    val: Sequence[Any] = ()
    is_running: bool = False


class RunView:
    """The attributes of a Trainer that show its run."""

    run: Run
    stage: Stage
    ranks: Ranks
    max_epochs: int
    max_steps: int
    accumulate_grad_batches: int
    checkpoint_dir: str | None
    callbacks: list[Callback]
    loggers: Sequence[Logger]
    _history_log: HistoryLog | None

    def __getattr__(self, name: str) -> Any:
        hint = names.ATTRIBUTES.get(name)
        raise AttributeError(f"a Trainer has no attribute {name!r}" + (f": {hint}" if hint else ""), name=name, obj=self)

    def _of_one_step(self, name: str) -> Run:
        """The run, for values on the host that change with each step; raises RuntimeError in a step that is captured."""
        self.run.refuse_read(name)
        return self.run

    # ---- values ------------------------------------------------------------------------------------------------------------------

    @property
    def history(self) -> dict[str, list]:
        """ "epoch", "step" and every logged name, with one value per epoch."""
        return self._of_one_step("history").history

    @history.setter
    def history(self, history: dict[str, list]) -> None:
        self.run.history = history

    @property
    def step_history(self) -> dict[str, list[tuple[int, float]]]:
        """The values that training steps logged with ``on_step=True``: (step, value) by name."""
        run = self._of_one_step("step_history")
        run.read()
        return run.step_history

    @property
    def callback_metrics(self) -> dict[str, float]:
        """The latest value of every name; from the end of a pass on, its mean."""
        run = self._of_one_step("callback_metrics")
        run.read()
        return run.metrics

    @property
    def epoch_metrics(self) -> dict[str, float]:
        """The means of the last completed epoch by name."""
        return self.run.with_names_of_epochs(self.run.latest)

    logged_metrics = progress_bar_metrics = callback_metrics

    # ---- place -------------------------------------------------------------------------------------------------------------------

    @property
    def current_epoch(self) -> int:
        """Epochs done."""
        return self.run.epoch

    @property
    def global_step(self) -> int:
        """The number of optimizer steps taken."""
        return self._of_one_step("global_step").step

    @property
    def num_training_batches(self) -> float:
        """The number of batches per epoch; inf if the loader has no length."""
        return math.inf if self.run.batches is None else self.run.batches

    @property
    def estimated_stepping_batches(self) -> float:
        """The total number of steps that ``fit`` takes, for schedules; inf if the loader has no length."""
        batches = self.num_training_batches
        of_epoch = batches if math.isinf(batches) else math.ceil(batches / self.accumulate_grad_batches)
        total = math.inf if self.max_epochs == -1 else self.max_epochs * of_epoch
        return total if self.max_steps == -1 else min(total, self.max_steps)

    @property
    def should_stop(self) -> bool:
        """Whether ``fit`` ends after the step."""
        return self.run.should_stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self.run.should_stop = value

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch that is trained on is the last one of its epoch, for modules that step schedules themselves."""
        run = self._of_one_step("is_last_batch")
        if run.batches is None:
            raise RuntimeError("is_last_batch is not known: the training loader has no length; limit_train_batches= gives one")
        return run.index + 1 == run.batches

    # ---- what it does --------------------------------------------------------------------------------------------------------

    def _is_in(self, kind: str) -> bool:
        return self.stage.is_running and kind == (self.run.kind if self.run.is_fitting else self.stage.kind)

    @property
    def training(self) -> bool:
        """Whether it trains; False during validation."""
        return self._is_in("train")

    @property
    def validating(self) -> bool:
        """Whether it validates, within ``fit`` or alone."""
        return self._is_in("validation")

    @property
    def testing(self) -> bool:
        """Whether it tests."""
        return self._is_in("test")

    @property
    def predicting(self) -> bool:
        """Whether it predicts."""
        return self._is_in("predict")

    @property
    def evaluating(self) -> bool:
        """Whether it validates or tests."""
        return self.validating or self.testing

    @property
    def sanity_checking(self) -> bool:
        """False: there is no validation before the first epoch."""
        return False

    @property
    def model(self) -> Any:
        """The module that is or was last used; None before."""
        return self.stage.model

    lightning_module = model

    @property
    def datamodule(self) -> Any:
        """The object with loaders that was given; None for loaders themselves."""
        return self.stage.data_module

    @property
    def train_dataloader(self) -> Any:
        """The training loader of ``fit``."""
        return self.stage.train

    @property
    def val_dataloaders(self) -> Any:
        """The validation loader of ``fit``, or a list of several; None without any."""
        return (self.stage.val[0] if len(self.stage.val) == 1 else list(self.stage.val)) if self.stage.val else None

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers of the current or last ``fit``; one, unless the module steps them itself."""
        return self.run.optimizers

    # ---- ranks ---------------------------------------------------------------------------------------------------------------

    @property
    def global_rank(self) -> int:
        """The number of this process among those that train together, from 0."""
        return self.ranks.rank

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""
        return self.ranks.size

    num_devices = world_size  # of num_nodes nodes together
    num_nodes = 1

    def print(self, *values: Any, **options: Any) -> None:
        """Prints on rank 0 alone."""
        if self.ranks.is_writer:
            print(*values, **options)

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.ranks.is_writer

    # ---- files -------------------------------------------------------------------------------------------------------------------

    @property
    def best_model_path(self) -> str:
        """The file with the weights of the best epoch; "" if there is none."""
        return self.run.best_path

    @property
    def last_model_path(self) -> str:
        """The file to resume from; "" if there is none."""
        return self.run.last_path

    @property
    def best_model_score(self) -> float | None:
        """The best value of `monitor`."""
        return self.run.best.value

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best value, counted from 1."""
        return self.run.best.epoch

    @property
    def default_root_dir(self) -> str | None:
        """The folder `checkpoint_dir`."""
        return self.checkpoint_dir

    @property
    def checkpoint_callback(self) -> Any:
        """The first ModelCheckpoint among the callbacks; without one the trainer, which has ``best_model_path`` and ``best_model_score`` too."""
        return next((c for c in self.callbacks if isinstance(c, ModelCheckpoint)), self)

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first EarlyStopping among the callbacks."""
        return next((c for c in self.callbacks if isinstance(c, EarlyStopping)), None)

    @property
    def logger(self) -> Logger | None:
        """The first logger; without one, an object that stands for the history. None with ``logger=False``."""
        return self.loggers[0] if self.loggers else self._history_log

    @property
    def log_dir(self) -> str | None:
        """The folder of the first logger, or `checkpoint_dir`."""
        return self.checkpoint_dir if self.logger is None else self.logger.log_dir
