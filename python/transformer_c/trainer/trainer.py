"""The trainer's options, and fit, validate and test."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

from .._arguments import count, not_negative, one_of
from ..random import manual_seed
from ..training import TrainingModule
from . import checks, loaders, names
from .arrays import are_arrays
from .attached import Attached
from .evaluation import evaluate
from .interrupts import Interrupts
from .loop import FitLoop
from .names import explained
from .prediction import joined, predict
from .progress import print_table
from .run import Run
from .saving import path_to_resume, prepare_folder
from .stopping import Watch
from .streams import as_streams


class Trainer:
    """Trains a TrainingModule: epochs, validation, progress bars, history, checkpoints, exact resume.

    Parameters
    ----------
    max_epochs : int
    gradient_clip_val : float, optional
        The largest norm of the gradients; with `gradient_clip_algorithm` "value", the largest absolute value of one.
    monitor : str, default "val_loss"
        Name of the logged value by which the best epoch is chosen.
    mode : {"min", "max"}
        Whether a smaller or a larger value is better.
    checkpoint_dir : path-like, optional
        Folder for ``best.safetensors``, ``last.safetensors`` and ``history.csv``; created if it does not exist. None: write no files.
    progress : bool, default True
        Show progress bars on standard error.
    device : str, optional
        "cpu" or "cuda": the device to which the model and every batch are moved. None: the model's own device.
    patience : int, optional
        Stop after this number of consecutive epochs in which `monitor` did not improve by more than `min_delta`.
    min_delta : float, default 0
    seed : int, optional
        Call ``tc.manual_seed(seed)`` at the beginning of ``fit``, so that shuffles and dropout masks are the same whatever was drawn before.
        The model's weights are drawn when it is created; to make them the same, seed before that.
    checkpoint_every_n_steps : int, optional
        Also write ``last.safetensors`` within an epoch, every so many steps.
    check_val_every_n_epoch : int, default 1
    limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches : int or float, optional
        The number or fraction of batches to use per pass; ``limit_val_batches=0`` skips validation.
    fast_dev_run : bool or int, default False
        Run one epoch of one batch (or the given number) of each kind, without files, to test that everything runs.
    gradient_clip_algorithm : {"norm", "value"}
    accumulate_grad_batches : int, default 1
        The number of successive batches for one optimizer step, whose update is that of one batch made of all of them: their losses are
        weighted by the batches' lengths. The last step of an epoch takes what is left. All batches of a step are drawn before it.
    generators : sequence of generators
        Random generators (NumPy's, Python's, tc.Generator) that your code uses and that are not attributes of the model, of loaders or of
        their datasets. A checkpoint saves their states, too.

    Attributes
    ----------
    history : dict of str to list
        "epoch", "step" and every logged name, with one value per epoch; nan if an epoch did not log it.
    step_history : dict of str to list of (step, value)
        The values that training steps logged with ``on_step=True``.
    callback_metrics : dict of str to float
        The latest value of every name.
    best_model_path, last_model_path : str
        The paths of the files; "" before they are written, and without `checkpoint_dir`.
    best_model_score : float or None
    best_epoch : int or None
        Counted from 1, like "epoch" in the history.
    current_epoch, global_step : int
        Epochs and optimizer steps done.
    num_training_batches, estimated_stepping_batches : int
        The number of batches per epoch and of steps in total, for use in ``configure_optimizers``; inf if the loader has no length.
    run : Run
        The state of the run: all of these, and values that the loop needs.
    should_stop : bool
        If set, for example in a hook of the model, ``fit`` ends after the epoch.

    Notes
    -----
    The same seed gives the same bits, for any number of threads. A run that was stopped, by Ctrl-C or in any other way, and resumed by
    ``fit(..., resume="last")`` ends with the same bits as one that was not stopped.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> class Line(tc.TrainingModule):
    ...     def __init__(self, lr):
    ...         super().__init__()
    ...         self.save_hyperparameters()
    ...         self.linear = tc.nn.Linear(1, 1)
    ...     def configure_optimizers(self):
    ...         return tc.optim.SGD(self.parameters(), lr=self.hparams.lr)
    ...     def training_step(self, batch, batch_idx):
    ...         x, y = batch
    ...         loss = tc.F.mse_loss(self.linear(x), y)
    ...         self.log("train_loss", loss)
    ...         return loss
    >>> x = np.linspace(0, 1, 64, dtype=np.float32)[:, None]
    >>> train = tc.data.DataLoader(tc.data.TensorDataset(x, 2 * x + 1), batch_size=16, shuffle=True)
    >>> trainer = tc.Trainer(max_epochs=50, progress=False)
    >>> model = Line(lr=0.3)
    >>> trainer.fit(model, train)
    >>> len(trainer.history["train_loss"]), round(model.linear([[2]]).item(), 1)
    (50, 5.0)
    """

    @explained(names.TRAINER)
    def __init__(
        self,
        max_epochs: int,
        gradient_clip_val: float | None = None,
        monitor: str = "val_loss",
        mode: str = "min",
        checkpoint_dir: str | os.PathLike | None = None,
        progress: bool = True,
        device: str | None = None,
        *,
        patience: int | None = None,
        min_delta: float = 0.0,
        seed: int | None = None,
        checkpoint_every_n_steps: int | None = None,
        check_val_every_n_epoch: int = 1,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        fast_dev_run: bool | int = False,
        limit_predict_batches: int | float | None = None,
        gradient_clip_algorithm: str = "norm",
        accumulate_grad_batches: int = 1,
        generators: Sequence[Any] = (),
    ) -> None:
        self.max_epochs = count("max_epochs", max_epochs)
        self.gradient_clip_val = None if gradient_clip_val is None else not_negative("gradient_clip_val", gradient_clip_val)
        self.gradient_clip_algorithm = one_of("gradient_clip_algorithm", gradient_clip_algorithm, ("norm", "value"))
        if not isinstance(monitor, str):
            raise TypeError(f"monitor is of type {type(monitor).__name__}; expected the name of a logged value")
        self.monitor, self.mode = monitor, one_of("mode", mode, ("min", "max"))
        self.patience = None if patience is None else count("patience", patience)
        self.min_delta = float(not_negative("min_delta", min_delta))
        self.seed, self.device, self.progress = seed, device, bool(progress)
        self.checkpoint_every_n_steps = (
            None if checkpoint_every_n_steps is None else count("checkpoint_every_n_steps", checkpoint_every_n_steps)
        )
        self.check_val_every_n_epoch = count("check_val_every_n_epoch", check_val_every_n_epoch)
        self.limit_train_batches = checks.limit("limit_train_batches", limit_train_batches)
        self.limit_val_batches = checks.limit("limit_val_batches", limit_val_batches)
        self.limit_test_batches = checks.limit("limit_test_batches", limit_test_batches)
        self.limit_predict_batches = checks.limit("limit_predict_batches", limit_predict_batches)
        self.accumulate_grad_batches = count("accumulate_grad_batches", accumulate_grad_batches)
        self.checkpoint_dir = None if checkpoint_dir is None else os.fsdecode(checkpoint_dir)
        self.generators = as_streams(generators)
        self.fast_dev_run = int(fast_dev_run)
        if self.fast_dev_run:
            self.max_epochs, self.checkpoint_dir, self.patience = 1, None, None
            self.limit_train_batches = self.limit_val_batches = count("fast_dev_run", self.fast_dev_run)
            self.limit_test_batches = self.limit_predict_batches = self.limit_train_batches
        if device is not None and not re.fullmatch(r"cpu|cuda(:(\d+|emulated))?", str(device)):
            raise ValueError(f'device must be "cpu", "cuda" or "cuda:0", got {device!r}')
        self.run = self._new_run()

    def _new_run(self) -> Run:
        return Run(Watch(self.monitor, self.mode, self.patience, self.min_delta))

    def __getattr__(self, name: str) -> Any:
        hint = names.ATTRIBUTES.get(name)
        raise AttributeError(f"a Trainer has no attribute {name!r}" + (f": {hint}" if hint else ""), name=name, obj=self)

    def __repr__(self) -> str:
        shown = ("max_epochs", "gradient_clip_val", "monitor", "mode", "checkpoint_dir", "device")
        return f"Trainer({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def estimated_stepping_batches(self) -> float:
        """The total number of steps that ``fit`` takes, for schedules; inf if the loader has no length."""
        batches = self.num_training_batches
        return self.max_epochs * (batches if math.isinf(batches) else math.ceil(batches / self.accumulate_grad_batches))

    # ---- the run, as Lightning names it ----------------------------------------------------------------------------------------

    @property
    def history(self) -> dict[str, list]:
        """ "epoch", "step" and every logged name, with one value per epoch."""
        return self.run.history

    @history.setter
    def history(self, history: dict[str, list]) -> None:
        self.run.history = history

    @property
    def step_history(self) -> dict[str, list[tuple[int, float]]]:
        """The values that training steps logged with ``on_step=True``: (step, value) by name."""
        return self.run.step_history

    @property
    def callback_metrics(self) -> dict[str, float]:
        """The latest value of every name."""
        return self.run.metrics

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
        return self.run.watch.best

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best value, counted from 1."""
        return self.run.watch.best_epoch

    @property
    def current_epoch(self) -> int:
        """Epochs done."""
        return self.run.epoch

    @property
    def global_step(self) -> int:
        """The number of optimizer steps taken."""
        return self.run.step

    @property
    def num_training_batches(self) -> float:
        """The number of batches per epoch; inf if the loader has no length."""
        return math.inf if self.run.batches is None else self.run.batches

    @property
    def should_stop(self) -> bool:
        """Whether ``fit`` ends after the epoch."""
        return self.run.should_stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self.run.should_stop = value

    # ---- training ------------------------------------------------------------------------------------------------------------

    @explained(names.FIT)
    def fit(
        self,
        model: TrainingModule,
        train: Any = None,
        val: Any = None,
        *,
        resume: str | os.PathLike | None = None,
        batch_size: int = 32,
    ) -> None:
        """Trains the model, validating it after every epoch; leaves it in eval mode, with the weights of the last epoch.

        Parameters
        ----------
        model : TrainingModule
        train : DataLoader, or another collection of batches
            Or arrays, frames or a dataset, which are shuffled and cut into batches: ``fit(model, (X, y))``.
            Or an object with ``train_dataloader()`` and perhaps ``val_dataloader()``. None: the model has these methods.
        val : the same, or a list of loaders, optional
        resume : path-like or "last", optional
            A checkpoint ``last.safetensors``, or its folder, to resume from; "last" is the one in `checkpoint_dir`, or the beginning if
            there is none yet.
            Create model and data as for the first run; model, optimizer, schedules, history and random streams are restored.
        batch_size : int, default 32
            For arrays, frames and datasets: the rows per batch. Floating arrays are cast to the model's dtype.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, once the current batch is done and ``last.safetensors`` is written. A second Ctrl-C stops at once.
        FloatingPointError
            When the loss is NaN or infinite; the message names the step, before which the weights are left.
        CheckpointError
            When `resume` is not a trainer's checkpoint; model and random streams are then unchanged.
        """
        checks.trainable(model)
        train, val = loaders.train_and_val(model, train, val, count("batch_size", batch_size))
        val = val if self.limit_val_batches != 0 else []
        path = path_to_resume(resume, self.checkpoint_dir)
        if self.patience is not None and not val and self.monitor == "val_loss":
            raise ValueError('patience needs a value to watch: pass validation data, or monitor="train_loss"')
        interrupts = Interrupts()
        with Attached(self, model) as place, interrupts.held():
            if val and type(model).validation_step is TrainingModule.validation_step:
                raise NotImplementedError(f"{type(model).__name__} has no validation_step(): define it, or pass no validation data")
            unheard = checks.uncalled_hooks(model)
            if unheard:
                warnings.warn(unheard, stacklevel=3)
            self.run = self._new_run()
            for index, loader in enumerate(val):
                if hasattr(loader, "dataset") and loaders.number_of_batches(loader, self.limit_val_batches) == 0:
                    raise ValueError(f"there is no batch to validate on: loader {index} of val is empty; val=None leaves validation out")
            loop = FitLoop(self, self.run, model, train, val, place, interrupts)
            prepare_folder(self.checkpoint_dir, model)
            if self.seed is not None and path is None:
                manual_seed(self.seed)
            loop.prepare()
            if path is not None:
                loop.saves.go_on_from(path)
            model.train()
            loop.run_epochs()

    @explained(names.TEST)
    def validate(
        self, model: TrainingModule, dataloaders: Any = None, verbose: bool = True, *, batch_size: int = 32
    ) -> list[dict[str, float]]:
        """Runs ``validation_step`` over a loader, or each of a list; returns the means of the logged values, one dict per loader."""
        return self._evaluate(model, "validation", dataloaders, "val_dataloader", self.limit_val_batches, verbose, batch_size)

    @explained(names.TEST)
    def test(self, model: TrainingModule, dataloaders: Any = None, verbose: bool = True, *, batch_size: int = 32) -> list[dict[str, float]]:
        """Runs ``test_step`` over a loader, or each of a list; leaves the model in eval mode.

        Parameters
        ----------
        model : TrainingModule
        dataloaders : DataLoader, a list of them, arrays as for ``fit``, or an object with ``test_dataloader()``
            None: use the model's ``test_dataloader()``.
        verbose : bool, default True
            Print a table of the values.
        batch_size : int, default 32
            For arrays, frames and datasets.

        Returns
        -------
        list of dict of str to float
            The means of the values that ``test_step`` logs, for each loader.
        """
        return self._evaluate(model, "test", dataloaders, "test_dataloader", self.limit_test_batches, verbose, batch_size)

    @explained(names.TEST)
    def predict(self, model: TrainingModule, dataloaders: Any = None, *, batch_size: int = 32) -> Any:
        """Runs ``predict_step`` over a loader, or each of a list, in eval mode and without recording.

        Parameters
        ----------
        model : TrainingModule
        dataloaders : DataLoader, a list of them, arrays as for ``fit``, or an object with ``predict_dataloader()``
            None: use the model's ``predict_dataloader()``.
        batch_size : int, default 32
            For arrays, frames and datasets.

        Returns
        -------
        ndarray, or list
            For arrays and frames, the predictions for all rows, ndarrays. Otherwise a list of what ``predict_step`` returned for each
            batch; for several loaders, a list of such lists.
        """
        given = self._data_of(model, "predict", dataloaders, "predict_dataloader")
        with Attached(self, model) as place:
            found = loaders.as_loaders(given, "dataloaders", place.dtype, count("batch_size", batch_size))
            results = predict(self.run, model, found, self.limit_predict_batches, place, self.progress, Interrupts())
        if are_arrays(given):
            return joined(results[0])
        return results[0] if len(results) == 1 else results

    def _evaluate(self, model, kind, given, attribute, limit, verbose, batch_size) -> list[dict[str, float]]:
        given = self._data_of(model, kind, given, attribute)
        with Attached(self, model) as place:
            found = loaders.as_loaders(given, "dataloaders", place.dtype, count("batch_size", batch_size))
            results = evaluate(self.run, model, kind, found, limit, place, self.progress, Interrupts())
        if verbose:
            print_table(results, kind)
        return results

    @staticmethod
    def _data_of(model: TrainingModule, kind: str, given: Any, attribute: str) -> Any:
        """The data for a pass: the argument, or what the argument or the model have as `attribute`."""
        given = model if given is None else given
        if hasattr(given, attribute):
            given = getattr(given, attribute)()
        if given is model:
            raise ValueError(f"{kind} data is missing: pass dataloaders=, or give {type(model).__name__} a {attribute}()")
        return given
