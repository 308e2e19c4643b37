"""The names of ``tc.data``, where PyTorch has them."""

from typing import TYPE_CHECKING

from .. import data as _data
from .._names import hooks
from ..data import *  # noqa: F403

__all__ = _data.__all__

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
