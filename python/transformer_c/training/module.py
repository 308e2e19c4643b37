"""Modules that define their own training, like Lightning's modules in the tutorial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import nn
from .. import optim as _optim
from .._arguments import one_of
from .._core import Tensor
from ..optim.optimizer import parameters_of
from .hooks import ModuleHooks
from .hyperparameters import HasHyperparameters, Hyperparameters


def read_checkpoint(path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents and the hyper-parameters of a file by ``tc.save``, a ``Trainer``, Lightning or PyTorch."""
    import zipfile  # imported here because most programs never need it

    from ..checkpoint import load_mapping, load_torch_checkpoint

    if zipfile.is_zipfile(path):
        loaded = load_torch_checkpoint(path)
        return loaded, dict(loaded.get("hyper_parameters") or {})
    read = load_mapping(path)
    return read, dict(read.hyper_parameters or {})


def restore(module: TrainingModule, checkpoint: dict[str, Any], strict: bool = True) -> None:
    """Loads the weights of a checkpoint, which has a "state_dict" or is one; calls ``on_load_checkpoint`` in the first case."""
    state = checkpoint.get("state_dict", checkpoint)
    if state is not checkpoint:
        module.on_load_checkpoint(checkpoint)
    module.load_state_dict(state, strict=strict)


_ELSEWHERE: Mapping[str, str] = {  # of Lightning's modules
    "all_gather": "tc.distributed.all_gather()",
    "global_rank": "self.trainer.global_rank",
}


class TrainingModule(ModuleHooks, HasHyperparameters, nn.Module):
    """A module that defines its training, validation and test steps, its optimizer and its hyper-parameters.

    Subclasses define ``forward``, ``configure_optimizers`` and the steps. A trainer calls them, or a plain loop over batches.

    Attributes
    ----------
    automatic_optimization : bool
        A module that sets it to False computes the gradients and steps its optimizers itself: its ``training_step`` calls
        ``self.optimizers()``, ``manual_backward(loss)``, ``step()`` and ``zero_grad()``, and steps ``self.lr_schedulers()``, if there are any.
        It may have several optimizers. Gradients stay until it drops them.

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
    >>> model = Line(lr=0.1)
    >>> optimizer = model.configure_optimizers()
    >>> batch = tc.tensor([[0.0], [1.0]]), tc.tensor([[1.0], [3.0]])
    >>> model.training_step(batch, 0).backward()
    >>> optimizer.step()
    >>> sorted(model.logged)
    ['train_loss']
    """

    automatic_optimization: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.hparams = Hyperparameters()
        self._logged: dict[str, float] = {}
        self.trainer: Any = None

    @property
    def logged(self) -> dict[str, float]:
        """The latest value of every name that was logged; in a step that is captured it raises RuntimeError."""
        if self.trainer is not None:
            self.trainer.run.refuse_read("logged")
            self.trainer.run.read()
        return self._logged

    @logged.setter
    def logged(self, values: dict[str, float]) -> None:
        self._logged = values

    @classmethod
    def load_from_checkpoint(
        cls,
        path=None,
        strict: bool = True,
        *,
        map_location: Any = None,
        weights_only: bool | None = None,
        checkpoint_path=None,
        **hyper_parameters: Any,
    ):
        """Makes a module with the hyper-parameters in a file and loads the weights from it; the module is in eval mode.

        Parameters
        ----------
        path : path-like
            A file written by ``tc.save`` or a ``Trainer``, or a Lightning checkpoint.
        strict : bool
            As for ``load_state_dict``.
        map_location : device, optional
            Where the module is; the CPU by default. Anything but the name of a device is ignored.
        weights_only
            Accepted for compatibility with Lightning; ignored: no code of a file runs.
        checkpoint_path
            Lightning's name of `path`.
        **hyper_parameters
            Replace those in the file.
        """
        if (path is None) == (checkpoint_path is None):
            raise TypeError("load_from_checkpoint() takes the path of a file, under one name: path or checkpoint_path")
        loaded, found = read_checkpoint(checkpoint_path if path is None else path)
        try:
            module = cls(**{**found, **hyper_parameters})
        except TypeError as error:
            if not found and "missing" in str(error):
                raise TypeError(
                    f"{error}: the file has no hyper-parameters; pass them to load_from_checkpoint(), or call self.save_hyperparameters() in "
                    "__init__() before training"
                ) from None
            raise
        restore(module, loaded, strict)
        return (module.to(device=map_location) if isinstance(map_location, str) else module).eval()

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        *,
        batch_size: int | None = None,
        logger: bool = True,
        reduce_fx: str | Callable[..., Any] = "mean",
        add_dataloader_idx: bool = True,
        rank_zero_only: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        enable_graph: bool = False,
        metric_attribute: str | None = None,
    ) -> None:
        """Reports a number under `name`. ``logged`` keeps the latest value; a trainer averages the values over the epoch.

        With ``on_step=True`` and ``on_epoch=True`` the value of the step is also ``trainer.callback_metrics["name_step"]``, and that of the epoch
        ``"name_epoch"``, which callbacks and schedules may monitor, as in Lightning.

        Parameters
        ----------
        name : str
        value : number, Tensor of one element or metric
            Of a metric of ``tc.metrics``, which the step has updated, the history gets the value of the whole epoch.
        prog_bar : bool
            Show the value after the progress bar.
        on_step : bool, optional
            True also keeps the value of every training step in the trainer's ``step_history``.
        on_epoch : bool, optional
            False excludes the value from the mean over the epoch, and so from the history.
        batch_size : int, optional
            The value's weight in the mean; the length of the batch's first array by default.
        logger : bool, default True
            False keeps the value from the trainer's loggers.
        reduce_fx : {"mean", "sum", "min", "max"} or the function of that name, default "mean"
            What becomes of the values of an epoch; only the mean is weighted.
        add_dataloader_idx : bool, default True
            With several loaders for validation or tests, "/dataloader_idx_0" and so on follow the name. False: each has names of its own.
        rank_zero_only : bool, default False
            Only what rank 0 logs counts.
        sync_dist, sync_dist_group, enable_graph, metric_attribute
            Accepted for compatibility with Lightning; ignored.
        """
        reduction = reduce_fx
        if reduce_fx != "mean":
            reduction = one_of("reduce_fx", getattr(reduce_fx, "__name__", reduce_fx), ("mean", "sum", "min", "max"))
        run = None if self.trainer is None else self.trainer.run
        if run is not None:
            run.check_name(name)
            if rank_zero_only and not run.ranks.is_writer:
                return
        later = None if run is None else run.later
        options = (prog_bar, on_step, on_epoch, batch_size, logger, reduction, add_dataloader_idx)
        if later is not None and later.takes(value):
            later.entries.append((partial(self._record, name, None, options), later.tensor_of(name, value)))
            return
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"log({name!r}) takes a number or a Tensor of one element, not this {type(value).__name__}: {error}"
            ) from error
        # A Tensor is not asked for what it does not have: the advice in its AttributeError takes time.
        metric = value if not isinstance(value, (float, int, Tensor)) and hasattr(value, "compute") else None
        if later is None:
            self._record(name, metric, options, number)
        else:  # in the order of the calls
            later.entries.append((partial(self._record, name, metric, options), number))

    def _record(self, name: str, metric: Any, options: tuple, number: float) -> None:
        self._logged[name] = number
        if self.trainer is not None:
            self.trainer.run.record(name, number, *options, metric)

    def log_dict(self, values: Mapping[str, Any], **options: Any) -> None:
        """Calls ``log`` for every name and value."""
        for name, value in values.items():
            self.log(name, value, **options)

    @property
    def current_epoch(self) -> int:
        """The number of epochs that the trainer has completed; 0 without a trainer."""
        return 0 if self.trainer is None else self.trainer.current_epoch

    @property
    def global_step(self) -> int:
        """The number of steps that the trainer has taken; 0 without a trainer."""
        return 0 if self.trainer is None else self.trainer.global_step

    @property
    def logger(self) -> Any:
        """The trainer's logger; None without a trainer."""
        return None if self.trainer is None else self.trainer.logger

    @property
    def loggers(self) -> list[Any]:
        """The trainer's loggers; none without a trainer."""
        return [] if self.trainer is None else list(self.trainer.loggers)

    def print(self, *values: Any, **options: Any) -> None:
        """Prints; of several ranks, on rank 0 alone."""
        (print if self.trainer is None else self.trainer.print)(*values, **options)

    def freeze(self) -> None:
        """Makes no parameter require a gradient, and sets eval mode."""
        self.requires_grad_(False)
        self.eval()

    def unfreeze(self) -> None:
        """Makes every parameter require a gradient, and sets train mode."""
        self.requires_grad_(True)
        self.train()

    def __getattr__(self, name: str) -> Any:
        if name in ("device", "dtype"):  # those of the first parameter, as in Lightning; a subclass may assign its own
            first = next(self.parameters(), None)
            return getattr(first, name) if first is not None else "cpu" if name == "device" else np.dtype(np.float32)
        return super().__getattr__(name)

    def _advice(self, name: str) -> str:
        return f"; use {_ELSEWHERE[name]}" if name in _ELSEWHERE else super()._advice(name)

    def lr_schedulers(self) -> Any:
        """The schedules that ``configure_optimizers`` gave: one, a list of several, or None."""
        found = [] if self.trainer is None else self.trainer.run.schedulers
        return found[0] if len(found) == 1 else found or None

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """What ``configure_optimizers`` gave: an optimizer, or with manual optimization perhaps a list of several.

        `use_pl_optimizer` is accepted for compatibility with Lightning; ignored.
        """
        if self.trainer is None or not self.trainer.optimizers:
            raise RuntimeError("there is no optimizer outside of fit()")
        found = self.trainer.optimizers
        return found[0] if len(found) == 1 else list(found)

    def manual_backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients of a loss, with ``automatic_optimization = False``; they are added to those of earlier calls.

        On several ranks they are the sum of those of all, each with its share of the batch.
        """
        if self.automatic_optimization:
            raise RuntimeError(
                "manual_backward() needs automatic_optimization = False, set in __init__(): otherwise the trainer calls backward()"
            )
        manual = None if self.trainer is None else self.trainer.run.manual
        (self.backward if manual is None else manual.backward)(loss, *args, **kwargs)

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Until ``untoggle_optimizer``, only the parameters of this optimizer require gradients among those of all optimizers."""
        self.untoggle_optimizer(optimizer)
        found = self.optimizers()
        every = {id(p): p for o in (found if isinstance(found, list) else [found]) for p in parameters_of(o)}
        own = set(map(id, parameters_of(optimizer)))
        self._toggled = [(p, p.requires_grad) for p in every.values()]
        for key, p in every.items():
            if key not in own:
                p.requires_grad = False

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Ends ``toggle_optimizer``."""
        toggled, self._toggled = getattr(self, "_toggled", []), []
        for p, requires_grad in toggled:
            p.requires_grad = requires_grad

    def configure_optimizers(self):
        """Returns the optimizer; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no configure_optimizers(): define it in the class")

    def optimizer_step(self, optimizer=None, *args: Any, **kwargs: Any) -> None:
        """Takes one optimizer step; called for each batch. Subclasses extend it to step a schedule per iteration.

        The argument is the optimizer, or, when a trainer calls it, Lightning's arguments (epoch, batch_idx, optimizer, closure); the
        closure computes loss and gradients.
        """
        given = (optimizer, *args, *kwargs.values())
        closure = next((value for value in given if callable(value)), None)
        for candidate in given:
            if isinstance(candidate, _optim.Optimizer):
                candidate.step(closure)
                return
        raise TypeError("optimizer_step() needs the optimizer among its arguments")

    def training_step(self, batch, batch_idx):
        """Returns the loss of a batch; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no training_step(): define it in the class")

    def validation_step(self, batch, batch_idx):
        """Logs the metrics of a validation batch; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no validation_step(): define it in the class")

    def test_step(self, batch, batch_idx):
        """Logs the metrics of a test batch; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no test_step(): define it in the class")

    def predict_step(self, batch, batch_idx):
        """The predictions for a batch; subclasses extend it. This is ``self(batch)``, or ``self(batch[0])`` for inputs with targets."""
        return self(batch[0] if isinstance(batch, (list, tuple)) and batch else batch)
