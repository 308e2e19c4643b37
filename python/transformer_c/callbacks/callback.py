"""The base class of callbacks."""

from __future__ import annotations

from typing import Any


class Callback:
    """Hooks for a trainer: ``Trainer(callbacks=[...])`` calls them with itself and the model, before the model's own hooks of the same name.

    The order is Lightning's; see ``TrainingModule``. A callback with a state that a resumed run needs has ``state_dict`` and
    ``load_state_dict``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> class Steps(tc.callbacks.Callback):
    ...     count = 0
    ...     def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
    ...         self.count += 1
    >>> Steps().count
    0
    """

    # ---- state -------------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint remembers of the callback."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state from ``state_dict()``."""

    def on_save_checkpoint(self, trainer: Any, model: Any, checkpoint: dict[str, Any]) -> None:
        """Before a trainer writes `checkpoint`: add anything else that the run needs, under a name of your own."""

    def on_load_checkpoint(self, trainer: Any, model: Any, checkpoint: dict[str, Any]) -> None:
        """Before a trainer's checkpoint is loaded, and once more when a run resumes in the middle of an epoch: read from it what
        ``on_save_checkpoint`` added."""

    def on_exception(self, trainer: Any, model: Any, exception: BaseException) -> None:
        """When an exception, Ctrl-C included, ends a ``fit``."""

    def setup(self, trainer: Any, model: Any, stage: str) -> None:
        """At the beginning of "fit", "validate", "test" or "predict", before the loaders are asked for."""

    def teardown(self, trainer: Any, model: Any, stage: str) -> None:
        """At the end of "fit", "validate", "test" or "predict"."""

    def on_epoch_completed(self, trainer: Any, model: Any) -> None:
        """After an epoch has entered the history, before ``last.safetensors`` is written: the place to save and to stop. Not in Lightning."""

    # ---- once per run ------------------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, model: Any) -> None:
        """At the beginning of ``fit``, before a checkpoint is loaded."""

    def on_fit_end(self, trainer: Any, model: Any) -> None:
        """At the end of ``fit``."""

    def on_train_start(self, trainer: Any, model: Any) -> None:
        """Before the first epoch, after a checkpoint was loaded."""

    def on_train_end(self, trainer: Any, model: Any) -> None:
        """After the last epoch."""

    # ---- epochs and batches of training ------------------------------------------------------------------------------------------

    def on_train_epoch_start(self, trainer: Any, model: Any) -> None:
        """Before the first batch of an epoch, and again when a run resumes within one."""

    def on_train_epoch_end(self, trainer: Any, model: Any) -> None:
        """At the end of an epoch, after validation; values logged here count for that epoch."""

    def on_train_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int) -> None:
        """Before a training step."""

    def on_train_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After the optimizer's step; `outputs` is what ``training_step`` returned."""

    def on_before_zero_grad(self, trainer: Any, model: Any, optimizer: Any) -> None:
        """After ``training_step``, before the gradients of the last step are dropped."""

    def on_before_backward(self, trainer: Any, model: Any, loss: Any) -> None:
        """Before the backward of a loss."""

    def on_after_backward(self, trainer: Any, model: Any) -> None:
        """After the backward, before gradients are clipped."""

    def on_before_optimizer_step(self, trainer: Any, model: Any, optimizer: Any) -> None:
        """Once per optimizer step, before gradients are clipped."""

    # ---- validation, tests, predictions ------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Any, model: Any) -> None:
        """Before validation, in eval mode."""

    def on_validation_epoch_start(self, trainer: Any, model: Any) -> None:
        """Before the first batch of validation."""

    def on_validation_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``validation_step``."""

    def on_validation_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``validation_step``; `outputs` is what it returned."""

    def on_validation_epoch_end(self, trainer: Any, model: Any) -> None:
        """After the last batch of validation; values logged here join the means."""

    def on_validation_end(self, trainer: Any, model: Any) -> None:
        """After validation; the means are in ``trainer.callback_metrics``."""

    def on_test_start(self, trainer: Any, model: Any) -> None:
        """Before a test, in eval mode."""

    def on_test_epoch_start(self, trainer: Any, model: Any) -> None:
        """Before the first batch of a test."""

    def on_test_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``test_step``."""

    def on_test_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``test_step``; `outputs` is what it returned."""

    def on_test_epoch_end(self, trainer: Any, model: Any) -> None:
        """After the last batch of a test; values logged here join the means."""

    def on_test_end(self, trainer: Any, model: Any) -> None:
        """After a test; the means are in ``trainer.callback_metrics``."""

    def on_predict_start(self, trainer: Any, model: Any) -> None:
        """Before predictions, in eval mode."""

    def on_predict_epoch_start(self, trainer: Any, model: Any) -> None:
        """Before the first batch of predictions."""

    def on_predict_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``predict_step``."""

    def on_predict_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``predict_step``; `outputs` is what it returned."""

    def on_predict_epoch_end(self, trainer: Any, model: Any) -> None:
        """After the last batch of predictions."""

    def on_predict_end(self, trainer: Any, model: Any) -> None:
        """After predictions."""


__all__ = ["Callback"]
