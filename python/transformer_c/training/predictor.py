"""The tutorial's model, with its training's optimizer and schedule."""

from __future__ import annotations

from typing import Any

from .. import nn
from .. import optim as _optim
from .._recording import no_grad
from ..encoder import PositionalEncoding, TransformerEncoder
from ..nn.parameter import registered
from .module import TrainingModule


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

    input_net: nn.Sequential = registered("_modules")
    positional_encoding: PositionalEncoding = registered("_modules")
    transformer: TransformerEncoder = registered("_modules")
    output_net: nn.Sequential = registered("_modules")

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
