"""The names of ``tc.data``, where PyTorch has them."""

from .. import data as _data
from ..data import *  # noqa: F403

__all__ = _data.__all__
