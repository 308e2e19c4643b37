"""Keeps the files of the best epochs."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from typing import Any

from .._arguments import count, one_of
from .._best import is_better
from .._names import explained
from .callback import Callback

SUFFIX = ".safetensors"
_VALUE = r"[-+ ,.%_0-9a-fA-FxXint]+"  # any number, however it is formatted
_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")  # {name} or {name:format}


class ModelCheckpoint(Callback):
    """Writes a checkpoint of each of the best epochs, as Lightning's callback of that name.

    A trainer with a `checkpoint_dir` keeps the best and the last epoch without it. With it, `monitor` and `mode` are also those of the
    trainer, unless it has its own.

    Parameters
    ----------
    dirpath : path-like, optional
        None: the folder "checkpoints" in the trainer's `checkpoint_dir`.
    filename : str, optional
        With names of logged values in braces, such as "{epoch}-{val_loss:.2f}", which gives "epoch=3-val_loss=0.25.safetensors". None:
        "{epoch}-{step}". Epochs are counted from 0, as in Lightning. A name that a kept file has already gets "-v1" at its end;
        without `monitor` the new file replaces the latest one of its name.
    monitor : str, optional
        Name of the logged value. None: the latest epoch is the best.
    verbose : bool
        Print the name of each file.
    save_last : bool, optional
        Also write "last.safetensors" after every epoch.
    save_top_k : int, default 1
        The number of epochs to keep; -1 keeps all, 0 none.
    save_weights_only : bool, default False
        Leave out what ``fit(resume=path)`` needs.
    mode : {"min", "max"}
    auto_insert_metric_name : bool, default True
        Whether "{val_loss}" becomes "val_loss=0.25" or "0.25".
    every_n_epochs : int, default 1
    every_n_train_steps : int, optional
        Write after this number of steps instead of after epochs.
    save_on_train_epoch_end
        Accepted for compatibility with Lightning; ignored.

    Attributes
    ----------
    best_model_path, last_model_path : str
    best_model_score : float or None
    best_k_models : dict of str to float
        The files and their values.

    Examples
    --------
    >>> import tempfile, transformer_c as tc
    >>> keep = tc.callbacks.ModelCheckpoint(tempfile.mkdtemp(), monitor="val_acc", mode="max", save_top_k=2)
    >>> trainer = tc.Trainer(10, callbacks=[keep])
    >>> trainer.checkpoint_callback.save_top_k, trainer.monitor
    (2, 'val_acc')
    """

    @explained({}, harmless={"enable_version_counter": (True,), "save_on_exception": (False,), "train_time_interval": (None,)})
    def __init__(
        self,
        dirpath: str | os.PathLike | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | None = None,
        save_top_k: int = 1,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        *,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
    ) -> None:
        self.dirpath = None if dirpath is None else os.fspath(dirpath)
        self.filename, self.monitor, self.mode = filename or "{epoch}-{step}", monitor, one_of("mode", mode, ("min", "max"))
        self.verbose, self.save_last, self.save_top_k = verbose, bool(save_last), count("save_top_k", save_top_k, -1)
        if monitor is None and save_top_k > 1:
            raise ValueError(f"save_top_k={save_top_k} needs monitor=, the name of the value by which the best epochs are chosen")
        self.save_weights_only, self.auto_insert_metric_name = save_weights_only, auto_insert_metric_name
        self.every_n_epochs = 1 if every_n_epochs is None else count("every_n_epochs", every_n_epochs, 0)
        self.every_n_train_steps = 0 if every_n_train_steps is None else count("every_n_train_steps", every_n_train_steps, 0)
        if self.save_last and self.filename == "last":
            raise ValueError('filename="last" is the name of the file that save_last=True writes: give another one')
        for name, form in _FIELD.findall(self.filename):
            self._shown(name, form, 0 if name in ("epoch", "step") else 0.5)
        self._forget()

    def _forget(self) -> None:
        self.best_model_path, self.last_model_path = "", ""
        self.best_model_score: float | None = None
        self.best_k_models: dict[str, float] = {}
        self._made: set[str] = set()  # the files that were written since fit() began

    # ---- hooks ---------------------------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, model: Any) -> None:
        """Starts anew; a resumed run then loads its state."""
        self._forget()
        if self._folder(trainer) is None and not trainer.fast_dev_run:
            raise ValueError("ModelCheckpoint needs a folder: dirpath=, or the trainer's checkpoint_dir=")

    def on_train_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Writes a checkpoint after `every_n_train_steps` steps."""
        if self.every_n_train_steps and trainer.run.has_passed(self.every_n_train_steps):
            self._see(trainer, trainer.callback_metrics, trainer.current_epoch)

    def on_epoch_completed(self, trainer: Any, model: Any) -> None:
        """Writes a checkpoint of the epoch if it is among the best."""
        epoch = trainer.current_epoch - 1
        if not self.every_n_train_steps and self.every_n_epochs and (epoch + 1) % self.every_n_epochs == 0:
            self._see(trainer, trainer.epoch_metrics, epoch)

    # ---- writing -------------------------------------------------------------------------------------------------------------------

    def _folder(self, trainer: Any) -> str | None:
        if self.dirpath is not None or trainer.checkpoint_dir is None:
            return self.dirpath
        return os.path.join(trainer.checkpoint_dir, "checkpoints")

    def _see(self, trainer: Any, values: dict[str, float], epoch: int) -> None:
        folder = self._folder(trainer)
        if trainer.fast_dev_run or folder is None:
            return
        score = self._score(trainer, values)
        if self.save_top_k and score is not None and self._is_among_best(score):
            path = trainer.ranks.of_root(self._path(folder, {**values, "epoch": epoch, "step": trainer.global_step}))
            dropped = self._add(path, score)  # before the file is written, which contains it
            self._write(trainer, path)
            self._made.add(path)
            for old in dropped if trainer.ranks.is_writer else ():
                if old in self._made or self._is_ours(
                    folder, old
                ):  # of a resumed run, the names may come from a file that somebody else made
                    with suppress(FileNotFoundError):
                        os.unlink(old)
        if self.save_last:
            self.last_model_path = os.path.join(folder, "last" + SUFFIX)
            self._write(trainer, self.last_model_path)

    def _add(self, path: str, score: float) -> list[str]:
        """Counts a file among the best; returns those that no longer are."""
        best = min if self.mode == "min" else max
        self.best_k_models.pop(path, None)  # the latest comes last, which decides between equal values
        self.best_k_models[path] = score
        dropped = []
        while self.save_top_k != -1 and len(self.best_k_models) > self.save_top_k:
            dropped.append(self._worst())
            del self.best_k_models[dropped[-1]]
        self.best_model_path = best(self.best_k_models, key=self.best_k_models.__getitem__)
        self.best_model_score = self.best_k_models[self.best_model_path] if self.monitor else None
        return [old for old in dropped if old != path]

    def _worst(self) -> str:
        """The file with the worst of the values."""
        return (max if self.mode == "min" else min)(self.best_k_models, key=self.best_k_models.__getitem__)

    def _replaced(self) -> str:
        """The file whose place the next one takes; "" if all are kept."""
        if self.monitor is None:
            return self.best_model_path
        return self._worst() if len(self.best_k_models) == self.save_top_k else ""

    def _score(self, trainer: Any, values: dict[str, float]) -> float | None:
        """The value by which this moment is compared; None if it has none."""
        if self.monitor is None:
            return -float(trainer.global_step) if self.mode == "min" else float(trainer.global_step)
        if self.monitor not in values:
            if trainer.current_epoch % trainer.check_val_every_n_epoch == 0 and not self.every_n_train_steps:
                raise ValueError(
                    f"ModelCheckpoint monitors {self.monitor!r}, which nothing logs; logged: {', '.join(sorted(values)) or 'nothing'}"
                )
            return None
        value = values[self.monitor]
        return None if math.isnan(value) else value

    def _is_among_best(self, score: float) -> bool:
        if self.save_top_k == -1 or len(self.best_k_models) < self.save_top_k:
            return True
        scores = self.best_k_models.values()
        return is_better(self.mode, score, max(scores) if self.mode == "min" else min(scores))

    def _write(self, trainer: Any, path: str) -> None:
        if trainer.ranks.is_writer:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        trainer.save_checkpoint(path, weights_only=self.save_weights_only)
        if self.verbose and trainer.ranks.is_writer:
            print(f"ModelCheckpoint: {path}")

    def _path(self, folder: str, values: dict[str, float]) -> str:
        """The name of the file, with "-v1" at its end if a file of another run has it, or one that is kept."""

        def shown(found: re.Match) -> str:
            return self._shown(found[1], found[2] or "", values.get(found[1], 0))

        stem = os.path.join(folder, _FIELD.sub(shown, self.filename))
        path, version, replaced = stem + SUFFIX, 0, self._replaced()
        while path != replaced and (os.path.exists(path) or path in self.best_k_models):
            version += 1
            path = f"{stem}-v{version}{SUFFIX}"
        return path

    def _is_ours(self, folder: str, path: str) -> bool:
        """Whether a file is in the folder, under a name that `filename` gives."""
        parts = _FIELD.split(self.filename)  # text, name, format, text, ...
        names = (f"{re.escape(name)}=" if self.auto_insert_metric_name else "" for name in parts[1::3])
        form = re.escape(parts[0]) + "".join(name + _VALUE + re.escape(text) for name, text in zip(names, parts[3::3], strict=True))
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
        return re.fullmatch(rf"{form}(-v\d+)?{re.escape(SUFFIX)}", inside) is not None

    def _shown(self, name: str, form: str, value: float) -> str:
        """A value in the name of a file."""
        try:
            text = format(value, form)
        except ValueError as error:
            kind = "an int" if name in ("epoch", "step") else "a float"
            raise ValueError(f"filename={self.filename!r}: {name} is {kind}, which has no format {form!r} ({error})") from None
        return f"{name}={text}" if self.auto_insert_metric_name else text

    # ---- state ---------------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """See Callback."""
        return {
            "best_model_path": self.best_model_path,
            "best_model_score": self.best_model_score,
            "last_model_path": self.last_model_path,
            "best_k_models": dict(self.best_k_models),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See Callback."""
        self.best_model_path, self.last_model_path = state_dict["best_model_path"], state_dict["last_model_path"]
        self.best_model_score = state_dict["best_model_score"]
        self.best_k_models = {path: float(score) for path, score in state_dict["best_k_models"].items()}


__all__ = ["ModelCheckpoint"]
