"""Lightning's other names of arguments, and replacements for its options, attributes and hooks that a Trainer does not have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .._names import nearest

TRAINER: Mapping[str, str] = {
    "auto_lr_find": "try several rates",
    "barebones": "progress=False and no callbacks",
    "epochs": "max_epochs= is the number of epochs",
    "num_epochs": "max_epochs= is the number of epochs",
    "n_epochs": "max_epochs= is the number of epochs",
    "detect_anomaly": "a loss that is not finite stops the run, with its step named",
    "max_time": "max_epochs= and max_steps= set the length of a run; a callback may set trainer.should_stop",
    "min_steps": "without patience= and callbacks that stop a run has max_epochs=",
    "overfit_batches": "limit_train_batches= and a loader that does not shuffle",
    "plugins": "there are none",
    "profiler": "run the program under `python -m cProfile -s cumtime program.py`",
    "resume_from_checkpoint": 'fit(..., resume="last")',
    "sync_batchnorm": "each rank's batch norms use its own rows; layer norms have nothing to share",
    "track_grad_norm": "on_before_optimizer_step() of the module or of a callback",
    "val_check_interval": "check_val_every_n_epoch=, or smaller epochs: limit_train_batches=",
}

# Lightning's keywords of fit, validate, test and predict: the argument that they are here.
FIT: Mapping[str, str] = {
    "ckpt_path": "resume",
    "datamodule": "train",
    "train_dataloader": "train",
    "train_dataloaders": "train",
    "val_dataloaders": "val",
}
TEST: Mapping[str, str] = {"datamodule": "dataloaders", "test_dataloaders": "dataloaders", "val_dataloaders": "dataloaders"}

ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(("tune", "tuner", "lr_find", "scale_batch_size"), "no rate or size is searched for: try several"),
    "lr_scheduler_configs": "what configure_optimizers() of the model gave",
}

# Hooks of Lightning that a Trainer never calls: where their code belongs instead.
HOOKS: Mapping[str, str] = {
    "on_after_batch_transfer": "training_step()",
    "on_batch_end": "on_train_batch_end()",
    "on_batch_start": "on_train_batch_start()",
    "on_before_batch_transfer": "the DataLoader's collate_fn",
    "on_epoch_end": "on_train_epoch_end()",
    "on_epoch_start": "on_train_epoch_start()",
    "on_init_end": "setup()",
    "on_init_start": "setup()",
    "on_keyboard_interrupt": "on_exception()",
    "on_predict_model_eval": "on_predict_start()",
    "on_pretrain_routine_end": "on_fit_start()",
    "on_pretrain_routine_start": "on_fit_start()",
    "on_sanity_check_end": "on_validation_end()",
    "on_sanity_check_start": "on_validation_start()",
    "on_test_model_eval": "on_test_start()",
    "on_test_model_train": "on_test_end()",
    "on_validation_model_eval": "on_validation_start()",
    "on_validation_model_train": "on_validation_end()",
    "predict_epoch_end": "on_predict_epoch_end()",
    "test_epoch_end": "on_test_epoch_end()",
    "training_epoch_end": "on_train_epoch_end()",
    "training_step_end": "training_step()",
    "transfer_batch_to_device": "the DataLoader's collate_fn",
    "validation_epoch_end": "on_validation_epoch_end()",
    "validation_step_end": "validation_step()",
}

# Words in the names of hooks elsewhere.
_WORDS: Mapping[str, str] = {
    "begin": "start",
    "eval": "validation",
    "finish": "end",
    "training": "train",
    "val": "validation",
    "valid": "validation",
}


def hook_meant(name: str, known: Collection[str]) -> str | None:
    """The hook that a method whose name begins with "on_" seems to be meant as; None for a method that is none."""
    words = [_WORDS.get(word, word) for word in name.split("_")]
    for meant in ("_".join(words), "_".join([words[0], "train", *words[1:]])):
        if meant in known:
            return meant
    return nearest("_".join(words), known)
