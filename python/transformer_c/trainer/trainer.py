"""The trainer's options, and fit, validate and test."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .._arguments import count, not_negative, one_of
from .._best import Best
from .._names import explained
from ..callbacks import Callback, EarlyStopping, ModelCheckpoint
from ..checkpoint.files import HeldFolders, held_by_one
from ..loggers import HistoryLog, Logger
from ..random import manual_seed
from ..training import TrainingModule
from ..training.module import read_checkpoint, restore
from . import checks, lightning, loaders, names
from .alike import check_data, check_equal, facts_of, facts_of_steps
from .arrays import are_arrays
from .attached import Attached, StageHooks
from .checks import optional
from .evaluation import EvaluationLoop, joined
from .hooks import Hooks
from .interrupts import Interrupts
from .logs import LoggerConnector
from .loop import FitLoop
from .progress import print_table
from .ranks import Ranks
from .run import Run
from .saving import is_of_run_in, path_to_load, path_to_resume, prepare_folder, set_aside
from .streams import as_streams
from .view import RunView, Stage


class Trainer(RunView):
    """Trains a TrainingModule: runs epochs and validation, shows progress, writes checkpoints, and resumes a stopped run exactly.

    Parameters
    ----------
    max_epochs : int, optional
        None: 1000, as in Lightning; no limit where `max_steps` is one, as with -1.
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
        Stop after this number of consecutive epochs in which `monitor` did not improve by more than `min_delta`. NaN counts as no improvement. This adds
        an EarlyStopping with ``check_finite=False`` to the callbacks.
    min_delta : float, default 0
    seed : int, optional
        Call ``tc.manual_seed(seed)`` at the beginning of ``fit``, so that shuffles and dropout masks do not depend on earlier draws.
        For equal initial weights, seed before you create the model.
    checkpoint_every_n_steps : int, optional
        Also write ``last.safetensors`` within an epoch, every this many steps.
    check_val_every_n_epoch : int, default 1
    max_steps : int, default -1
        The largest number of optimizer steps; -1: no limit. The epoch of the last step ends with it: it is validated and has its place in the
        history. With manual optimization the batch that reaches the number may take more.
    limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches : int or float, optional
        The number or fraction of batches to use per pass; ``limit_val_batches=0`` skips validation.
    fast_dev_run : bool or int, default False
        Run one epoch of one batch (or the given number) of each kind, without files, to test that everything runs.
    gradient_clip_algorithm : {"norm", "value"}
    accumulate_grad_batches : int, default 1
        Batches per optimizer step. The update is that of one batch made of all of them: losses are weighted by the batches' lengths. The last
        step of an epoch takes the remaining batches. All batches of a step are drawn before it. A batch for which ``training_step`` returns
        None still counts, as in Lightning: the step's gradient is that much smaller.
    generators : sequence of generators
        Random generators (NumPy's, Python's, tc.Generator) whose states checkpoints should contain. Attributes of the model, of loaders and of
        their datasets are found without this.
    callbacks : Callback or sequence of Callback, optional
        See ``tc.callbacks``; their states are in the checkpoints.
    logger : Logger, sequence of Logger or bool, optional
        See ``tc.loggers``. True: a CSVLogger in `checkpoint_dir`. None: the history has all values.
    log_every_n_steps : int, default 50
        How often loggers get the values of single steps; 0: never.
    strategy : {"ddp", "zero", "auto"}, optional
        "ddp": the processes that a launcher started, ``mpiexec -n 4 python script.py``, train one model together. Each rank gets its share of
        the loaders, whose batch size is that of one rank: n ranks take the steps of one process with a batch n times as large.
        Rank 0 writes all files. "zero": the same, with the optimizer's state divided among the ranks (ZeRO-1). "auto": "ddp" if a
        launcher started several processes. None: this process alone. See the page "From one process to many" (docs/scale.md).
    precision : {"32-true", "bf16-mixed"}, optional
        "bf16-mixed" runs the steps under ``tc.autocast``: weights in float32, products in bfloat16. None: the model's own dtype.
    graph : bool, default False
        On a GPU, capture the work from ``training_step`` to clipping (``tc.cuda.graph``) and repeat it with one launch: for small models whose
        launches take longer than their kernels. See Notes.
    **of_lightning
        Other options of Lightning's Trainer: `default_root_dir` is `checkpoint_dir`, `enable_progress_bar` is `progress`; `accelerator`, `devices`
        and `gpus` may name a GPU. One warning lists the options without effect.

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
    epoch_metrics : dict of str to float
        The means of the last completed epoch.
    checkpoint_callback, early_stopping_callback, logger
        The first of their kind.
    current_epoch, global_step : int
        Epochs and optimizer steps done.
    num_training_batches, estimated_stepping_batches : int
        Batches per epoch and steps in total, for use in ``configure_optimizers``; inf if the loader has no length.
    run : Run
        The state of the run: all of these, and values that the loop needs.
    should_stop : bool
        If set, for example in a hook of the model, ``fit`` ends after the step, or with several ranks after the next one. The epoch is then
        validated and has its place in the history; a resumed run begins with the next one.

    Notes
    -----
    The same seed gives the same bits, for any number of threads. A run that was stopped in any way and resumed by ``fit(..., resume="last")`` ends
    with the same bits as one that was not stopped.

    ``graph=True`` changes neither bits nor logged values nor checks. In each epoch the first batch of a shape runs as usual, the second is
    captured, and later ones repeat its work without running the Python code of ``training_step``. That code must not read values on the host, use
    `batch_idx` or `global_step`, log anything but Tensors, draw from generators other than those of dropout, or set attributes, except to Tensors
    computed in each step (they then hold copies). Otherwise the second step raises an error that says which. Up to 8 shapes have graphs, each with
    memory for a whole step; other shapes run as usual, after a warning. Graphs are made anew in each epoch. All hooks are called, except
    ``on_before_zero_grad`` and ``on_before_backward``, which are refused, as are manual optimization, a `strategy` and the CPU.

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

    max_epochs: int
    max_steps: int
    gradient_clip_val: float | None
    gradient_clip_algorithm: str
    monitor: str
    mode: str
    patience: int | None
    min_delta: float
    checkpoint_every_n_steps: int | None
    check_val_every_n_epoch: int
    limit_train_batches: int | float | None
    limit_val_batches: int | float | None
    limit_test_batches: int | float | None
    limit_predict_batches: int | float | None
    accumulate_grad_batches: int
    log_every_n_steps: int
    device: str | None
    autocast_dtype: str | None
    strategy: str | None
    graph: bool
    fast_dev_run: int
    callbacks: list[Callback]

    @explained(names.TRAINER, others=lightning.KNOWN, harmless=lightning.OFF)
    def __init__(
        self,
        max_epochs: int | None = None,
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
        gradient_clip_algorithm: str | None = "norm",
        accumulate_grad_batches: int = 1,
        generators: Sequence[Any] = (),
        callbacks: Callback | Sequence[Callback] | None = None,
        logger: Logger | Sequence[Logger] | bool | None = None,
        log_every_n_steps: int | None = 50,
        precision: str | int | None = None,
        strategy: str | None = None,
        graph: bool = False,
        max_steps: int | None = -1,
        **of_lightning: Any,
    ) -> None:
        unused = ["logger"] if logger is True and checkpoint_dir is None and of_lightning.get("default_root_dir") is None else []
        checkpoint_dir, progress, device = lightning.applied(of_lightning, checkpoint_dir, progress, device, unused, strategy)
        self._has_length = max_epochs is not None or max_steps not in (None, -1) or bool(fast_dev_run)
        if max_epochs is None or (max_epochs == -1 and max_steps not in (None, -1)):
            epochs = (checks.most, -1 if self._has_length else 1000)
        else:
            epochs = (count, max_epochs)
        options = checks.options(
            max_epochs=epochs,
            max_steps=(checks.most, max_steps),
            gradient_clip_val=(optional(not_negative), gradient_clip_val),
            gradient_clip_algorithm=(one_of, "norm" if gradient_clip_algorithm is None else gradient_clip_algorithm, ("norm", "value")),
            monitor=(checks.name, monitor),
            mode=(one_of, mode, ("min", "max")),
            patience=(optional(count), patience),
            min_delta=(not_negative, min_delta),
            checkpoint_every_n_steps=(optional(count), checkpoint_every_n_steps),
            check_val_every_n_epoch=(count, check_val_every_n_epoch),
            limit_train_batches=(checks.limit, limit_train_batches),
            limit_val_batches=(checks.limit, limit_val_batches),
            limit_test_batches=(checks.limit, limit_test_batches),
            limit_predict_batches=(checks.limit, limit_predict_batches),
            accumulate_grad_batches=(count, accumulate_grad_batches),
            log_every_n_steps=(count, 50 if log_every_n_steps is None else log_every_n_steps, 0),
            device=(optional(checks.device), device),
            autocast_dtype=(checks.precision, precision),
            fast_dev_run=(checks.batches_to_try, fast_dev_run),
            callbacks=(checks.callbacks, callbacks),
            strategy=(checks.strategy, strategy),
        )
        checks.can_capture(graph, options["device"], options["strategy"])
        for name, value in options.items():
            setattr(self, name, value)
        self.ranks = Ranks.of(self.strategy)
        self.seed, self.progress = seed, bool(progress) and self.ranks.is_writer
        self.checkpoint_dir = None if checkpoint_dir is None else os.fsdecode(checkpoint_dir)
        self.generators = as_streams(generators)
        self.precision, self.graph = precision, bool(graph)
        if self.fast_dev_run:
            self._run_few_batches(self.fast_dev_run)
        self.loggers = () if self.fast_dev_run or not self.ranks.is_writer else checks.loggers(logger, self.checkpoint_dir)
        self._history_log = None if logger is False else HistoryLog(self.checkpoint_dir)
        self._connectors = [LoggerConnector(self.loggers, self.log_every_n_steps)] if self.loggers else []
        self._agree_with_callbacks()
        self.run, self.stage = self._new_run(), Stage()
        self._fitted: TrainingModule | None = None
        self._write_checkpoint: Callable[[str, bool], None] | None = None

    def _run_few_batches(self, count: int) -> None:
        """Sets the other options as `fast_dev_run` asks."""
        self.max_epochs, self.max_steps, self.checkpoint_dir, self.patience = 1, -1, None, None
        self.limit_train_batches = self.limit_val_batches = self.limit_test_batches = self.limit_predict_batches = count

    def _agree_with_callbacks(self) -> None:
        """Without a `monitor` the best epoch is that of the first ModelCheckpoint which has one; `patience` is an EarlyStopping."""
        watching = next((c for c in self.callbacks if isinstance(c, ModelCheckpoint) and c.monitor is not None), None)
        if watching is not None and watching.monitor is not None and self.monitor == "val_loss":
            self.monitor, self.mode = watching.monitor, watching.mode
        if self.patience is not None:
            self.callbacks.append(EarlyStopping(self.monitor, self.min_delta, self.patience, mode=self.mode, check_finite=False))

    def _new_run(self) -> Run:
        return Run(self.monitor, Best(self.mode), ranks=self.ranks)

    def __repr__(self) -> str:
        shown = ("max_epochs", "gradient_clip_val", "monitor", "mode", "checkpoint_dir", "device")
        return f"Trainer({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    # ---- training ------------------------------------------------------------------------------------------------------------

    @explained({}, names.FIT)
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
            Or arrays, frames or a dataset, which are shuffled and cut into batches: ``fit(model, (X, y))``. A list is of batches: rows
            (x, y) in a list become batches by ``DataLoader(rows, batch_size=32)``.
            Or an object with ``train_dataloader()`` and perhaps ``val_dataloader()``. None: the model has these methods.
        val : the same, or a list of loaders, optional
        resume : path-like or "last", optional
            A checkpoint ``last.safetensors``, or its folder, to resume from; "last" is the one in `checkpoint_dir`, or the beginning if
            there is none yet. With a file of another folder, a run that is in `checkpoint_dir` is moved aside first.
            Create model and data as for the first run; model, optimizer, schedules, history and random streams are restored.
        batch_size : int, default 32
            For arrays, frames and datasets: the rows per batch. Floating arrays are cast to the model's dtype.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, once the current batch is done and ``last.safetensors`` is written. A second Ctrl-C stops at once.
        FloatingPointError
            When the loss or a gradient is NaN or infinite; the message names the step, before which the weights are left.
        CheckpointError
            When `resume` is not a trainer's checkpoint; model and random streams are then unchanged.
        RuntimeError
            When another run, of this process or another one, is writing to `checkpoint_dir`.
        """
        checks.trainable(model)
        checks.optimization(model, self.accumulate_grad_batches, self.gradient_clip_val)
        checks.ranks(model, self.strategy, self.ranks.size)
        batch_size, path = count("batch_size", batch_size), self.ranks.of_root(path_to_resume(resume, self.checkpoint_dir))
        callbacks = [*self.callbacks, *checks.callbacks("callbacks", model.configure_callbacks())]
        callbacks.sort(key=lambda callback: isinstance(callback, ModelCheckpoint))  # they see what the others log
        checks.warn_of_uncalled_hooks(model, callbacks, stacklevel=3)
        if not self._has_length:
            warnings.warn("max_epochs= is not given: the run ends after 1000 epochs, as in Lightning", stacklevel=3)
        hooks, interrupts = Hooks(self, model, callbacks, self._connectors), Interrupts()
        if self.graph:
            checks.can_capture_steps(model, self.device, hooks.is_defined)
        attached = Attached(self, model, "train", train)
        with held_by_one() as held, attached.in_use() as place, interrupts.held(), StageHooks("fit", hooks, model, self.stage.data_module):
            train, val = loaders.train_and_val(model, train, val, place.dtype, batch_size)
            val = self._checked_validation(model, val)
            self.stage.train, self.stage.val = train, val
            before = self.run, self._fitted, self._write_checkpoint
            states = [(c, c.state_dict()) for c in callbacks if isinstance(c, (EarlyStopping, ModelCheckpoint))]
            try:
                loop = self._begin(model, train, val, place, interrupts, callbacks, hooks, path, held)
            except BaseException:  # refused before the first batch: the trainer still shows the run before
                self.run, self._fitted, self._write_checkpoint = before
                for callback, state in states:
                    callback.load_state_dict(state)
                raise
            model.train()
            try:
                hooks.on_train_start()
                loop.run_epochs()
            except BaseException as error:
                hooks.on_exception(error)
                raise
            hooks.on_train_end()
            hooks.on_fit_end()
            self.ranks.barrier()  # from now on every rank finds the files

    def _begin(
        self,
        model: TrainingModule,
        train: Any,
        val: list[Any],
        place: loaders.DeviceAndDtype,
        interrupts: Interrupts,
        callbacks: list[Callback],
        hooks: Hooks,
        path: str | None,
        held: HeldFolders,
    ) -> FitLoop:
        """Makes the run of a fit, from its first batch or from the checkpoint at `path`; raises where it cannot be, or ranks are not alike."""
        self.run, self._fitted = self._new_run(), model
        if self.ranks.size > 1:
            given = {"train": train, **{f"val[{i}]": v for i, v in enumerate(val)}}
            check_equal(self.ranks.group, facts_of(self, model, given, callbacks))
            check_data(self.ranks.group, given, stacklevel=5)
        loop = FitLoop(self, self.run, model, train, val, place, interrupts, callbacks, hooks)
        with self.ranks.together("opening checkpoint_dir"):
            if self.ranks.is_writer:
                prepare_folder(self.checkpoint_dir, model, held)
        hooks.on_fit_start()
        if self.seed is not None and path is None:
            manual_seed(self.seed)
        loop.prepare()
        if self.ranks.size > 1:
            check_equal(self.ranks.group, facts_of_steps(self.run.optimizers, loop.schedules, loop.schedulers))
        self._write_checkpoint = loop.files.write
        if path is not None:
            loop.files.go_on_from(path)
        self.ranks.same_weights(model)
        if self.ranks.is_writer and (path is None or not is_of_run_in(self.checkpoint_dir, path)):
            set_aside(self.checkpoint_dir)
        if path is not None and self.ranks.is_writer:
            loop.files.find_files(path)
        self.run.best_path, self.run.last_path = self.ranks.of_root((self.run.best_path, self.run.last_path))
        return loop

    def _checked_validation(self, model: TrainingModule, val: list[Any]) -> list[Any]:
        """The validation loaders that are used; raises or warns if something is missing."""
        name = type(model).__name__
        has_step = type(model).validation_step is not TrainingModule.validation_step
        if self.limit_val_batches == 0:
            val = []
        elif has_step and not val:
            best = ", and none is the best" if self.checkpoint_dir and self.monitor == "val_loss" else ""
            warnings.warn(
                f"{name} has a validation_step(), but there are no validation data: epochs are not validated{best}; "
                "pass val=, or limit_val_batches=0 if it is meant so",
                stacklevel=4,
            )
        if self.patience is not None and not val and self.monitor == "val_loss":
            raise ValueError('patience needs a value to watch: pass validation data, or monitor="train_loss"')
        if val and not has_step:
            raise NotImplementedError(f"{name} has no validation_step(): define it, or pass no validation data")
        for index, loader in enumerate(val):
            if hasattr(loader, "dataset") and loaders.number_of_batches(loader, self.limit_val_batches) == 0:
                raise ValueError(f"there is no batch to validate on: loader {index} of val is empty; val=None leaves validation out")
        return val

    def save_checkpoint(self, filepath: str | os.PathLike, weights_only: bool = False) -> None:
        """Writes a file from which a run resumes, of the current moment, or after ``fit`` of its end.

        Parameters
        ----------
        filepath : path-like
        weights_only : bool, default False
            Write weights and hyper-parameters alone, as in ``best.safetensors``.

        With several ranks all of them call it, rank 0 writes, and every rank finds the file afterwards.

        Raises
        ------
        RuntimeError
            Without `weights_only`, inside a batch: from ``training_step`` to the optimizer's step, whose work is half done. With several ranks
            also between the batches of one step.
        """
        if self._write_checkpoint is None:
            raise RuntimeError("there is no run to save: call fit() first; tc.save(model, path) writes the weights of a model")
        with self.ranks.together("save_checkpoint()"):
            self._write_checkpoint(os.fspath(filepath), weights_only)

    @explained({}, names.TEST)
    def validate(
        self,
        model: TrainingModule | None = None,
        dataloaders: Any = None,
        verbose: bool = True,
        *,
        ckpt_path: str | os.PathLike | None = None,
        batch_size: int = 32,
    ) -> list[dict[str, float]]:
        """Runs ``validation_step`` over a loader, or each of a list; returns the means of the logged values, one dict per loader.

        The arguments are those of ``test``.
        """
        return self._evaluate(model, "validation", dataloaders, verbose, ckpt_path, batch_size)

    @explained({}, names.TEST)
    def test(
        self,
        model: TrainingModule | None = None,
        dataloaders: Any = None,
        verbose: bool = True,
        *,
        ckpt_path: str | os.PathLike | None = None,
        batch_size: int = 32,
    ) -> list[dict[str, float]]:
        """Runs ``test_step`` over a loader, or each of a list; leaves the model in eval mode.

        Parameters
        ----------
        model : TrainingModule, optional
            None: the model of the last ``fit``.
        dataloaders : DataLoader, a list of them, arrays as for ``fit``, or an object with ``test_dataloader()``
            None: use the model's ``test_dataloader()``.
        verbose : bool, default True
            Print a table of the values.
        ckpt_path : path-like, "best" or "last", optional
            A file whose weights are loaded into the model first; "best" and "last" are files of the last ``fit``. None: the weights that the
            model has; without `model`, those of the best epoch, if there is a file.
        batch_size : int, default 32
            For arrays, frames and datasets.

        Returns
        -------
        list of dict of str to float
            The means of the values that ``test_step`` logs, for each loader.
        """
        return self._evaluate(model, "test", dataloaders, verbose, ckpt_path, batch_size)

    @explained({}, names.TEST)
    def predict(
        self,
        model: TrainingModule | None = None,
        dataloaders: Any = None,
        *,
        ckpt_path: str | os.PathLike | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Runs ``predict_step`` over a loader, or each of a list, in eval mode and without recording.

        Parameters
        ----------
        model, ckpt_path
            As for ``test``.
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
        model, path = self._model_and_file(model, ckpt_path)
        checks.warn_of_uncalled_hooks(model, self.callbacks, stacklevel=3)
        results = self._pass(model, "predict", dataloaders, path, batch_size)
        if are_arrays(dataloaders):
            return joined(results[0])
        return results[0] if len(results) == 1 else results

    def _evaluate(
        self, model: TrainingModule | None, kind: str, given: Any, verbose: bool, ckpt_path: str | os.PathLike | None, batch_size: int
    ) -> list[dict[str, float]]:
        model, path = self._model_and_file(model, ckpt_path)
        checks.warn_of_uncalled_hooks(model, self.callbacks)
        results, together = self._pass(model, kind, given, path, batch_size)
        for connector in self._connectors:
            connector.log_results(together, self.global_step)
        if verbose and self.ranks.is_writer:
            print_table(results, kind)
        return results

    def _model_and_file(self, model: TrainingModule | None, ckpt_path: str | os.PathLike | None) -> tuple[TrainingModule, str | None]:
        """The model to use and the file to load into it first."""
        if model is None:
            if self._fitted is None:
                raise TypeError("there is no model: pass one, or call fit() first")
            if ckpt_path is None and self.checkpoint_callback.best_model_path:
                ckpt_path = "best"
            model = self._fitted
        checks.trainable(model)
        return model, path_to_load(ckpt_path, self)

    def _pass(self, model: TrainingModule, kind: str, given: Any, path: str | None, batch_size: int) -> Any:
        """One pass outside of ``fit`` over the data given, or those of the model."""
        stage, attribute = {"validation": ("validate", "val_dataloader")}.get(kind, (kind, f"{kind}_dataloader"))
        hooks = Hooks(self, model, self.callbacks)
        with Attached(self, model, kind, given).in_use() as place, StageHooks(stage, hooks, model, self.stage.data_module):
            source = model if given is None else given
            if hasattr(source, attribute):
                source = getattr(source, attribute)()
            if source is model:
                raise ValueError(f"{kind} data is missing: pass dataloaders=, or give {type(model).__name__} a {attribute}()")
            found = loaders.as_loaders(source, "dataloaders", place.dtype, count("batch_size", batch_size))
            if kind != "predict":
                check_data(self.ranks.group, {f"dataloaders[{i}]": loader for i, loader in enumerate(found)}, stacklevel=6)
            if path is not None:
                restore(model, read_checkpoint(path)[0])
            one_pass = EvaluationLoop(self, model, hooks, kind, place, Interrupts())
            return one_pass.outputs(found) if kind == "predict" else one_pass.values(found)
