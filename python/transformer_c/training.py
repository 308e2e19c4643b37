"""Modules that define their own training, like Lightning's modules in the tutorial."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from . import nn
from . import optim as _optim
from ._tensor import no_grad
from .encoder import PositionalEncoding, TransformerEncoder


class Hyperparameters(SimpleNamespace):
    """The arguments of a module's ``__init__``, available as attributes and by key."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self):
        return iter(self.__dict__)

    def keys(self):
        """Their names."""
        return self.__dict__.keys()

    def items(self):
        """Names and values."""
        return self.__dict__.items()


class TrainingModule(nn.Module):
    """A module that defines its training, validation and test steps, its optimizer and its hyper-parameters.

    Subclasses define ``forward``, ``configure_optimizers`` and the steps. A trainer calls them, or a plain loop over batches.

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

    def __init__(self) -> None:
        super().__init__()
        self.hparams = Hyperparameters()
        self.logged: dict[str, float] = {}
        self.trainer: Any = None

    def save_hyperparameters(self, *names: str, ignore: str | tuple[str, ...] = ()) -> None:
        """Saves the arguments of the subclass's ``__init__`` in ``hparams``; to be called from there.

        Parameters
        ----------
        *names : str
            Save only these; if none are given, save all.
        ignore : str or sequence of str
            Do not save these.
        """
        left_out = {ignore} if isinstance(ignore, str) else set(ignore)
        found: dict[str, Any] = {}
        here = inspect.currentframe()
        frame = here.f_back if here is not None else None
        while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get(frame.f_code.co_varnames[0]) is self:
            local = frame.f_locals
            kinds = inspect.getargvalues(frame)
            arguments = {name: local[name] for name in kinds.args if local[name] is not self}
            code = frame.f_code
            keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
            arguments.update({name: local[name] for name in keyword_only})
            if kinds.keywords:
                arguments.update(local[kinds.keywords])
            found = {**found, **arguments}
            frame = frame.f_back
        for name, value in found.items():
            if name not in left_out and (not names or name in names):
                setattr(self.hparams, name, value)

    @classmethod
    def load_from_checkpoint(cls, path, strict: bool = True, **hyper_parameters: Any):
        """Makes a module with the hyper-parameters in a file and loads the weights from it; the module is in eval mode.

        Parameters
        ----------
        path : path-like
            A file written by ``tc.save`` or a ``Trainer``, or a Lightning checkpoint.
        strict : bool
            As for ``load_state_dict``.
        **hyper_parameters
            Replace those in the file.
        """
        import zipfile  # imported here because most programs never need it

        from .checkpoint import load, load_torch_checkpoint

        if zipfile.is_zipfile(path):
            loaded = load_torch_checkpoint(path)
            state, found = loaded.get("state_dict", loaded), loaded.get("hyper_parameters", {})
        else:
            loaded = load(path)
            state, found = loaded.get("state_dict", loaded), loaded.hyper_parameters
        module = cls(**{**dict(found or {}), **hyper_parameters})
        if state is not loaded:
            module.on_load_checkpoint(loaded)
        module.load_state_dict(state, strict=strict)
        return module.eval()

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
        sync_dist: bool = False,
    ) -> None:
        """Reports a number under `name`. ``logged`` keeps the latest value; a trainer averages the values over the epoch.

        Parameters
        ----------
        name : str
        value : number or Tensor of one element
        prog_bar : bool
            Show the value after the progress bar.
        on_step : bool, optional
            True also keeps the value of every training step in the trainer's ``step_history``.
        on_epoch : bool, optional
            False excludes the value from the mean over the epoch, and so from the history.
        batch_size : int, optional
            The value's weight in the mean; the length of the batch's first array by default.
        logger, sync_dist
            Accepted for compatibility with Lightning; ignored.
        """
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"log({name!r}) takes a number or a Tensor of one element, not this {type(value).__name__}: {error}"
            ) from error
        self.logged[name] = number
        if self.trainer is not None:
            self.trainer.run.record(name, number, prog_bar, on_step, on_epoch, batch_size)

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

    def on_train_epoch_start(self) -> None:
        """Called by a trainer before the first batch of an epoch, and again when a run resumes within one; subclasses define it."""

    def on_train_epoch_end(self) -> None:
        """Called by a trainer at the end of an epoch, after validation; values logged here count for that epoch."""

    def on_validation_epoch_end(self) -> None:
        """Called by a trainer after the last validation batch."""

    def on_test_epoch_end(self) -> None:
        """Called by a trainer after the last test batch."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called before a trainer writes `checkpoint`: add anything else that the run needs, under a name of your own."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called before a trainer's checkpoint is loaded, and once more when a run resumes in the middle of an epoch: read from it what
        ``on_save_checkpoint`` added."""

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
        """The predictions for a batch: ``self(batch)``, or ``self(batch[0])`` for a list or tuple of inputs and targets; subclasses extend it."""
        return self(batch[0] if isinstance(batch, (list, tuple)) and batch else batch)


class TransformerPredictor(TrainingModule):
    """The tutorial's model: input layer, positional encoding, encoder and output network. It makes a prediction for each element.

    Parameters
    ----------
    input_dim : int
        Features of the input.
    model_dim : int
        Features inside the Transformer.
    num_classes : int
        Outputs per element of the sequence.
    num_heads, num_layers : int
    lr : float
    warmup, max_iters : int
        Parameters of the learning-rate schedule; see CosineWarmupScheduler.
    dropout, input_dropout : float, default 0

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> model = tc.TransformerPredictor(10, 32, 10, num_heads=1, num_layers=1, lr=5e-4, warmup=50, max_iters=3900)
    >>> model(np.zeros((2, 16, 10), np.float32)).shape
    (2, 16, 10)
    >>> sum(p.numel() for p in model.parameters())
    10346
    """

    def __init__(
        self,
        input_dim: int,
        model_dim: int,
        num_classes: int,
        num_heads: int,
        num_layers: int,
        lr: float,
        warmup: int,
        max_iters: int,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._create_model()

    def _create_model(self) -> None:
        hp = self.hparams
        self.input_net = nn.Sequential(nn.Dropout(hp.input_dropout), nn.Linear(hp.input_dim, hp.model_dim))
        self.positional_encoding = PositionalEncoding(d_model=hp.model_dim)
        self.transformer = TransformerEncoder(
            num_layers=hp.num_layers,
            input_dim=hp.model_dim,
            dim_feedforward=2 * hp.model_dim,
            num_heads=hp.num_heads,
            dropout=hp.dropout,
        )
        self.output_net = nn.Sequential(
            nn.Linear(hp.model_dim, hp.model_dim),
            nn.LayerNorm(hp.model_dim),
            nn.ReLU(inplace=True),
            nn.Dropout(hp.dropout),
            nn.Linear(hp.model_dim, hp.num_classes),
        )

    def forward(self, x, mask=None, add_positional_encoding: bool = True):
        """Maps x (B, T, input_dim) to (B, T, num_classes).

        Parameters
        ----------
        x : Tensor or ndarray, shape (B, T, input_dim)
        mask : array_like, optional
            As for MultiheadAttention.
        add_positional_encoding : bool, default True
            False for sets, whose elements have no order.
        """
        return self.output_net(self.transformer(self._embed(x, add_positional_encoding), mask=mask))

    def _embed(self, x, add_positional_encoding: bool):
        x = self.input_net(x)
        return self.positional_encoding(x) if add_positional_encoding else x

    @no_grad()
    def get_attention_maps(self, x, mask=None, add_positional_encoding: bool = True) -> list:
        """The attention of every layer, each (B, H, T, T); parameters as for ``forward``."""
        return self.transformer.get_attention_maps(self._embed(x, add_positional_encoding), mask=mask)

    def configure_optimizers(self):
        """Returns Adam. The schedule is kept in ``lr_scheduler`` and stepped once per iteration."""
        optimizer = _optim.Adam(self.parameters(), lr=self.hparams.lr)
        self.lr_scheduler = _optim.CosineWarmupScheduler(optimizer, warmup=self.hparams.warmup, max_iters=self.hparams.max_iters)
        return optimizer

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Steps the optimizer, then the schedule."""
        super().optimizer_step(*args, **kwargs)
        self.lr_scheduler.step()
