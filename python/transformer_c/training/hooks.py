"""The hooks of a TrainingModule: methods that a trainer calls, which do nothing unless a subclass defines them."""

from __future__ import annotations

from typing import Any

from ..optim import clip_grad_norm_, clip_grad_value_
from ..optim.optimizer import parameters_of


class ModuleHooks:
    """Lightning's hooks, called in its order: those of the trainer's callbacks first, then the module's.

    Within a batch: ``on_train_batch_start``, ``training_step``, ``on_before_zero_grad``, ``on_before_backward``, ``on_after_backward``,
    ``on_before_optimizer_step``, ``configure_gradient_clipping``, the optimizer's step, ``on_train_batch_end``.
    """

    # ---- once per run ------------------------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        """At the beginning of ``fit``, before a checkpoint is loaded."""

    def on_fit_end(self) -> None:
        """At the end of ``fit``."""

    def on_train_start(self) -> None:
        """Before the first epoch, after a checkpoint was loaded."""

    def on_train_end(self) -> None:
        """After the last epoch."""

    # ---- epochs and batches of training ------------------------------------------------------------------------------------------

    def on_train_epoch_start(self) -> None:
        """Before the first batch of an epoch, and again when a run resumes within one."""

    def on_train_epoch_end(self) -> None:
        """At the end of an epoch, after validation; values logged here count for that epoch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Before a training step."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After the optimizer's step; `outputs` is what ``training_step`` returned."""

    def on_before_zero_grad(self, optimizer: Any) -> None:
        """After ``training_step``, before the gradients of the last step are dropped."""

    def on_before_backward(self, loss: Any) -> None:
        """Before the backward of a loss."""

    def on_after_backward(self) -> None:
        """After the backward, before gradients are clipped."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Once per optimizer step, before gradients are clipped."""

    # ---- validation, tests, predictions ------------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        """Before validation, in eval mode."""

    def on_validation_epoch_start(self) -> None:
        """Before the first batch of validation."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``validation_step``."""

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``validation_step``; `outputs` is what it returned."""

    def on_validation_epoch_end(self) -> None:
        """After the last batch of validation; values logged here join the means."""

    def on_validation_end(self) -> None:
        """After validation; the means are in ``trainer.callback_metrics``."""

    def on_test_start(self) -> None:
        """Before a test, in eval mode."""

    def on_test_epoch_start(self) -> None:
        """Before the first batch of a test."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``test_step``."""

    def on_test_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``test_step``; `outputs` is what it returned."""

    def on_test_epoch_end(self) -> None:
        """After the last batch of a test; values logged here join the means."""

    def on_test_end(self) -> None:
        """After a test; the means are in ``trainer.callback_metrics``."""

    def on_predict_start(self) -> None:
        """Before predictions, in eval mode."""

    def on_predict_epoch_start(self) -> None:
        """Before the first batch of predictions."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a ``predict_step``."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a ``predict_step``; `outputs` is what it returned."""

    def on_predict_epoch_end(self) -> None:
        """After the last batch of predictions."""

    def on_predict_end(self) -> None:
        """After predictions."""

    # ---- data, files -------------------------------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """First of all: downloads and other work that is done once."""

    def setup(self, stage: str) -> None:
        """At the beginning of "fit", "validate", "test" or "predict", before the loaders are asked for."""

    def teardown(self, stage: str) -> None:
        """At the end of "fit", "validate", "test" or "predict"."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Before a trainer writes `checkpoint`: add anything else that the run needs, under a name of your own."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Before a trainer's checkpoint is loaded, and once more when a run resumes in the middle of an epoch: read from it what
        ``on_save_checkpoint`` added."""

    # ---- parts of a step that a subclass may replace -----------------------------------------------------------------------------

    def configure_callbacks(self) -> Any:
        """Callbacks, one or a list, that the trainer adds to its own for ``fit``."""
        return []

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients."""
        loss.backward(*args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Drops the gradients of the last step."""
        optimizer.zero_grad()

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips the gradients as the trainer's options say; subclasses may call ``clip_gradients`` with others."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip_gradients(self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None) -> None:
        """Clips the gradients of the optimizer's parameters: "norm" (the default) all together, "value" each element."""
        if gradient_clip_val:
            clip = clip_grad_value_ if gradient_clip_algorithm == "value" else clip_grad_norm_
            clip(parameters_of(optimizer), gradient_clip_val)

    def lr_scheduler_step(self, scheduler: Any, metric: float | None) -> None:
        """Steps a schedule that ``configure_optimizers`` gave; `metric` is the value that it monitors."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)


__all__ = ["ModuleHooks"]
