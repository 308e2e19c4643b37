"""Data in a class of their own, as Lightning's data modules."""

from __future__ import annotations

from .hyperparameters import HasHyperparameters, Hyperparameters


class LightningDataModule(HasHyperparameters):
    """Loaders for training, validation, tests and predictions; a trainer takes it instead of a loader.

    Subclasses define ``train_dataloader`` and what else they need of ``val_dataloader``, ``test_dataloader`` and
    ``predict_dataloader``. A trainer calls ``prepare_data()`` and ``setup(stage)`` first, and ``teardown(stage)`` at the end.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> class Squares(tc.LightningDataModule):
    ...     def __init__(self, size):
    ...         super().__init__()
    ...         self.save_hyperparameters()
    ...     def setup(self, stage):
    ...         x = np.arange(self.hparams.size, dtype=np.float32)[:, None]
    ...         self.data = tc.data.TensorDataset(x, x**2)
    ...     def train_dataloader(self):
    ...         return tc.data.DataLoader(self.data, batch_size=2, shuffle=True)
    >>> data = Squares(size=6)
    >>> data.setup("fit")
    >>> len(data.train_dataloader()), data.hparams.size
    (3, 6)
    """

    def __init__(self) -> None:
        self.hparams = Hyperparameters()

    def prepare_data(self) -> None:
        """Called first: downloads and other work that is done once; subclasses define it."""

    def setup(self, stage: str) -> None:
        """Called before the loaders are asked for; `stage` is "fit", "validate", "test" or "predict". Subclasses define it."""

    def teardown(self, stage: str) -> None:
        """Called at the end; subclasses define it."""


__all__ = ["LightningDataModule"]
