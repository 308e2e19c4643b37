"""Replacements for Lightning's options that a Trainer names differently or does not need, and for hooks that it never calls."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

TRAINER: Mapping[str, str] = {
    "accelerator": 'device="cuda" or "cpu" says where',
    "callbacks": "monitor=, mode= and checkpoint_dir= keep the best epoch, patience= and min_delta= stop early; the module's hooks do the rest",
    "default_root_dir": "checkpoint_dir= is the folder of the checkpoints",
    "deterministic": "runs are always deterministic",
    "devices": "a run uses one device: device=",
    "enable_checkpointing": "checkpoint_dir= says whether and where",
    "enable_progress_bar": "progress= says whether there are bars",
    "log_every_n_steps": "log(..., on_step=True) keeps every step",
    "logger": "history and history.csv in checkpoint_dir are the log",
    "max_steps": "max_epochs= and limit_train_batches= set the length of a run",
    "num_sanity_val_steps": "fast_dev_run=True tries everything once",
    "precision": "tc.set_float32_precision() or model.to(dtype) set it",
    "strategy": "a run uses one device: device=",
}
FIT: Mapping[str, str] = {
    "ckpt_path": 'resume="last", or resume= and the path',
    "datamodule": "pass it as train: fit(model, data)",
    "train_dataloader": "train= is the training data",
    "train_dataloaders": "train= is the training data",
    "val_dataloaders": "val= is the validation data",
}
TEST: Mapping[str, str] = {
    "ckpt_path": "load the model first: Model.load_from_checkpoint(trainer.best_model_path)",
    "datamodule": "pass it as dataloaders",
}

ATTRIBUTES: Mapping[str, str] = {
    "checkpoint_callback": "best_model_path, best_model_score and last_model_path are the trainer's own",
    "default_root_dir": "checkpoint_dir",
    "log_dir": "checkpoint_dir",
    "logged_metrics": "callback_metrics",
    "logger": "history has the logged values, as has history.csv in checkpoint_dir",
    "progress_bar_metrics": "callback_metrics",
    "save_checkpoint": "checkpoint_dir= and checkpoint_every_n_steps= write last.safetensors; tc.save(model, path) writes the weights",
}

# Hooks of a module that a Trainer never calls: where their code belongs instead.
_STEP, _VALIDATION, _TEST = "optimizer_step()", "validation_step() or on_validation_epoch_end()", "test_step() or on_test_epoch_end()"
_BEGIN, _END = "on_train_epoch_start()", "the lines after trainer.fit()"
HOOKS: Mapping[str, str] = {
    "backward": _STEP,
    "configure_callbacks": "the trainer's monitor=, checkpoint_dir= and patience=",
    "configure_gradient_clipping": "the trainer's gradient_clip_val= and gradient_clip_algorithm=, or optimizer_step()",
    "lr_scheduler_step": _STEP,
    "on_after_backward": _STEP,
    "on_before_backward": "training_step()",
    "on_before_optimizer_step": _STEP,
    "on_before_zero_grad": _STEP,
    "on_fit_end": _END,
    "on_fit_start": _BEGIN,
    "on_test_batch_end": _TEST,
    "on_test_batch_start": _TEST,
    "on_test_end": _TEST,
    "on_test_epoch_start": _TEST,
    "on_test_start": _TEST,
    "on_train_batch_end": _STEP,
    "on_train_batch_start": "training_step()",
    "on_train_end": _END,
    "on_train_start": _BEGIN,
    "on_validation_batch_end": _VALIDATION,
    "on_validation_batch_start": _VALIDATION,
    "on_validation_end": _VALIDATION,
    "on_validation_epoch_start": _VALIDATION,
    "on_validation_start": _VALIDATION,
    "optimizer_zero_grad": _STEP,
    "test_epoch_end": "on_test_epoch_end()",
    "training_epoch_end": "on_train_epoch_end()",
    "validation_epoch_end": "on_validation_epoch_end()",
}


def explained(hints: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Decorates a function so that the error for an unknown option says what to write instead."""

    def decorate(function: _Function) -> _Function:
        known = [name for name in inspect.signature(function).parameters if name != "self"]
        shown = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            for name in options:
                if name not in known:
                    close = difflib.get_close_matches(name, known, n=1)
                    hint = hints.get(name) or (f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}")
                    raise TypeError(f"{shown}() has no option {name!r}: {hint}")
            return function(*arguments, **options)

        return checked  # type: ignore[return-value]

    return decorate
