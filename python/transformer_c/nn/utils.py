"""Gradient clipping."""

from typing import TYPE_CHECKING

from .._names import hooks
from ..optim import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
