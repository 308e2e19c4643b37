"""The trainer's options, and fit, validate, test."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .._arguments import count, not_negative, one_of
from ..checkpoint.files import open_regular, remove_leftovers, write_atomically
from ..checkpoint.tree import encode
from ..random import manual_seed
from ..training import TrainingModule
from . import checks, loaders, names
from .attached import Attached
from .evaluation import evaluate
from .interrupts import Interrupts
from .loop import BEST, LAST, FitLoop
from .metrics import Averages, batch_size_of
from .names import explained
from .progress import print_table
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
        The logged name that says which epoch is the best.
    mode : {"min", "max"}
        Whether less of it is better, or more.
    checkpoint_dir : path-like, optional
        Where ``best.safetensors``, ``last.safetensors`` and ``history.csv`` go; made when it is not there. Without it nothing is written.
    progress : bool, default True
        Bars on standard error.
    device : str, optional
        "cpu" or "cuda": where the model is moved to. Batches go where the model is.
    patience : int, optional
        Stop after as many epochs in a row in which `monitor` did not improve by more than `min_delta`.
    min_delta : float, default 0
    seed : int, optional
        ``tc.manual_seed(seed)`` at the beginning of ``fit``: the same shuffles and dropout masks whatever was drawn before. The model's weights
        are drawn when it is made, so seed before that to have those the same.
    checkpoint_every_n_steps : int, optional
        Write ``last.safetensors`` as often within an epoch, too.
    check_val_every_n_epoch : int, default 1
    limit_train_batches, limit_val_batches, limit_test_batches : int or float, optional
        So many batches of a pass, or the share of them; ``limit_val_batches=0`` leaves validation out.
    fast_dev_run : bool or int, default False
        One epoch of one batch (or so many) of each kind, no files: does everything run?
    gradient_clip_algorithm : {"norm", "value"}
    generators : sequence of generators
        Random generators (NumPy's, Python's, tc.Generator) that your code draws from and that are attributes neither of the model nor of
        loaders and their datasets: a checkpoint keeps their states, too.

    Attributes
    ----------
    history : dict of str to list
        "epoch", "step" and every logged name, with a value for each epoch; nan where an epoch did not log it.
    step_history : dict of str to list of (step, value)
        What training steps logged with ``on_step=True``.
    callback_metrics : dict of str to float
        The newest value of every name.
    best_model_path, last_model_path : str
        The files, once they are written; "" before, and without `checkpoint_dir`.
    best_model_score : float or None
    best_epoch : int or None
        Counted from 1, like "epoch" in the history.
    current_epoch, global_step : int
        Epochs and optimizer steps done.
    num_training_batches, estimated_stepping_batches : int
        Batches of an epoch and of all of them, which ``configure_optimizers`` may ask for; inf where the loader has no length.
    should_stop : bool
        Set it, in a hook of the model for example, and ``fit`` ends after the epoch.

    Notes
    -----
    The same seed gives the same bits, for any number of threads. A run that was stopped, by Ctrl-C or in any other way, and goes on by
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
        gradient_clip_algorithm: str = "norm",
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
        self.checkpoint_dir = None if checkpoint_dir is None else os.fsdecode(checkpoint_dir)
        self.generators = as_streams(generators)
        self.fast_dev_run = int(fast_dev_run)
        if self.fast_dev_run:
            self.max_epochs, self.checkpoint_dir, self.patience = 1, None, None
            self.limit_train_batches = self.limit_val_batches = self.limit_test_batches = count("fast_dev_run", self.fast_dev_run)
        if device is not None and not re.fullmatch(r"cpu|cuda(:(\d+|emulated))?", str(device)):
            raise ValueError(f'device must be "cpu", "cuda" or "cuda:0", got {device!r}')
        self._place = loaders.Place()
        self._averages = Averages()
        self._kind, self._weight = "train", 1
        self._is_muted = False
        self._interrupts = Interrupts()
        self._start_anew()

    def _start_anew(self) -> None:
        self.history: dict[str, list] = {}
        self.step_history: dict[str, list[tuple[int, float]]] = {}
        self.callback_metrics: dict[str, float] = {}
        self.best_model_path = self.last_model_path = ""
        self.current_epoch = self.global_step = 0
        self.num_training_batches: float = 0
        self.should_stop = False
        self._in_bar: dict[str, float | None] = {}
        self._watch = Watch(self.mode, self.patience, self.min_delta)

    def __getattr__(self, name: str) -> Any:
        hint = names.ATTRIBUTES.get(name)
        raise AttributeError(f"a Trainer has no attribute {name!r}" + (f": {hint}" if hint else ""), name=name, obj=self)

    def __repr__(self) -> str:
        shown = ("max_epochs", "gradient_clip_val", "monitor", "mode", "checkpoint_dir", "device")
        return f"Trainer({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def estimated_stepping_batches(self) -> float:
        """Steps that ``fit`` takes in all, for schedules; inf where the loader has no length."""
        return self.max_epochs * self.num_training_batches

    @property
    def best_model_score(self) -> float | None:
        """The best value of `monitor`."""
        return self._watch.best

    @property
    def best_epoch(self) -> int | None:
        """The epoch of it, counted from 1."""
        return self._watch.best_epoch

    # ---- training ------------------------------------------------------------------------------------------------------------

    @explained(names.FIT)
    def fit(self, model: TrainingModule, train: Any = None, val: Any = None, *, resume: str | os.PathLike | None = None) -> None:
        """Trains the model, validating it after every epoch; leaves it in eval mode, with the weights of the last epoch.

        Parameters
        ----------
        model : TrainingModule
        train : DataLoader, or another collection of batches
            Or an object with ``train_dataloader()`` and perhaps ``val_dataloader()``. None: the model has them.
        val : the same, or a list of loaders, optional
        resume : path-like or "last", optional
            A checkpoint ``last.safetensors``, or its folder, to go on from; "last" is the one in `checkpoint_dir`, or the beginning when
            there is none yet.
            Make model and data as for the first run; model, optimizer, schedules, history and random streams go on where they were.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, once the batch in hand is done and ``last.safetensors`` is written. A second Ctrl-C does not wait.
        CheckpointError
            When `resume` is no checkpoint of a trainer; model and random streams are as they were.
        """
        train, val = loaders.train_and_val(model, train, val)
        val = val if self.limit_val_batches != 0 else []
        path = self._resume_path(resume)
        self._check_monitor(bool(val))
        with Attached(self, model), Interrupts() as self._interrupts:
            if val and type(model).validation_step is TrainingModule.validation_step:
                raise NotImplementedError(f"{type(model).__name__} has no validation_step(): define it, or pass no validation data")
            unheard = checks.uncalled_hooks(model)
            if unheard:
                warnings.warn(unheard, stacklevel=3)
            self._start_anew()
            for index, loader in enumerate(val):
                if hasattr(loader, "dataset") and loaders.number_of_batches(loader, self.limit_val_batches) == 0:
                    raise ValueError(f"there is no batch to validate on: loader {index} of val is empty; val=None leaves validation out")
            loop = FitLoop(self, model, train, val)
            self._prepare_files(model)
            if self.seed is not None and path is None:
                manual_seed(self.seed)
            loop.prepare()
            if path is not None:
                loop.go_on_from(path)
                self._find_files(path)
            model.train()
            loop.run()

    @explained(names.TEST)
    def validate(self, model: TrainingModule, dataloaders: Any = None, verbose: bool = True) -> list[dict[str, float]]:
        """Runs ``validation_step`` over a loader, or each of a list: the means of what it logs, a dict for each loader."""
        return self._evaluate(model, "validation", dataloaders, "val_dataloader", self.limit_val_batches, verbose)

    @explained(names.TEST)
    def test(self, model: TrainingModule, dataloaders: Any = None, verbose: bool = True) -> list[dict[str, float]]:
        """Runs ``test_step`` over a loader, or each of a list; leaves the model in eval mode.

        Parameters
        ----------
        model : TrainingModule
        dataloaders : DataLoader, a list of them, or an object with ``test_dataloader()``
            None: the model has ``test_dataloader()``.
        verbose : bool, default True
            Print a table of the values.

        Returns
        -------
        list of dict of str to float
            The means of what ``test_step`` logs, for each loader.
        """
        return self._evaluate(model, "test", dataloaders, "test_dataloader", self.limit_test_batches, verbose)

    def _evaluate(self, model, kind, given, attribute, limit, verbose) -> list[dict[str, float]]:
        given = model if given is None else given
        if hasattr(given, attribute):
            given = getattr(given, attribute)()
        if given is model:
            raise ValueError(f"{kind} data is missing: pass dataloaders=, or give {type(model).__name__} a {attribute}()")
        given = loaders.as_loaders(given, "dataloaders")
        with Attached(self, model):
            self._interrupts = Interrupts()
            results = evaluate(self, model, kind, given, limit)
        if verbose:
            print_table(results, kind)
        return results

    # ---- what modules and loops report -----------------------------------------------------------------------------------------

    def _begin_batch(self, kind: str, batch: Any) -> int:
        """What is logged now is of this kind, and weighs as much as the batch is long."""
        self._kind, self._weight = kind, batch_size_of(batch)
        return self._weight

    def _record(
        self, name: str, value: float, prog_bar: bool, on_step: bool | None, on_epoch: bool | None, batch_size: int | None = None
    ) -> None:
        """What ``TrainingModule.log`` calls."""
        if self._is_muted:
            return
        if name in ("epoch", "step"):
            raise ValueError(f"{name!r} is a name of the history's own: log the value under another")
        self.callback_metrics[name] = value
        if on_epoch is not False:
            self._averages.add(name, value, self._weight if batch_size is None else batch_size)
        if self._kind == "train":
            if on_step:
                self.step_history.setdefault(name, []).append((self.global_step, value))
            if prog_bar:
                self._in_bar[name] = value
        elif prog_bar:
            self._in_bar.setdefault(name, None)  # shown once the epoch is validated

    @contextmanager
    def _muted(self, is_muted: bool) -> Iterator[None]:
        """What is logged meanwhile is dropped."""
        self._is_muted = is_muted
        try:
            yield
        finally:
            self._is_muted = False

    def _judge(self, values: dict[str, float], epoch: int, validated: bool) -> bool:
        """Whether the epoch is the best so far."""
        if self.monitor in values:
            return self._watch.see(values[self.monitor], epoch)
        was_due = epoch % self.check_val_every_n_epoch == 0
        asked_for = self.patience is not None or (self.checkpoint_dir and (validated or self.monitor != "val_loss"))
        if was_due and asked_for:
            raise ValueError(f"monitor is {self.monitor!r}, which nothing logs; logged: {', '.join(sorted(values)) or 'nothing'}")
        return False

    # ---- checks --------------------------------------------------------------------------------------------------------------------

    def _check_monitor(self, validated: bool) -> None:
        if self.patience is not None and not validated and self.monitor == "val_loss":
            raise ValueError('patience needs a value to watch: pass validation data, or monitor="train_loss"')

    def _prepare_files(self, model: Any) -> None:
        """Finds out now, not after the first epoch, whether checkpoints can be written."""
        if self.checkpoint_dir is None:
            return
        encode(dict(model.hparams.items()), None, what="hyper_parameters")
        os.makedirs(self.checkpoint_dir, exist_ok=True)
        remove_leftovers(self.checkpoint_dir)

    def _resume_path(self, resume: str | os.PathLike | None) -> str | None:
        if resume is None:
            return None
        if isinstance(resume, bool):
            raise TypeError('resume is of type bool; expected "last" or the path of a checkpoint')
        if os.fspath(resume) != "last":
            return os.path.join(resume, LAST) if os.path.isdir(resume) else os.fspath(resume)
        if self.checkpoint_dir is None:
            raise ValueError('resume="last" needs a checkpoint_dir to look for it')
        path = os.path.join(self.checkpoint_dir, LAST)
        return path if os.path.exists(path) else None

    def _find_files(self, resumed: str) -> None:
        """After a resume: the files that earlier parts of the run have left. The best weights come along into another folder."""
        if self.checkpoint_dir is None:
            return
        best, last = (os.path.join(self.checkpoint_dir, name) for name in (BEST, LAST))
        earlier = os.path.join(os.path.dirname(resumed), BEST)
        if self.best_epoch is not None and not os.path.exists(best) and os.path.exists(earlier):
            with open_regular(earlier)[0] as file:
                write_atomically(best, file.read())
        self.best_model_path = best if self.best_epoch is not None and os.path.exists(best) else ""
        self.last_model_path = last if os.path.exists(last) else ""
