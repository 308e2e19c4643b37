"""PyTorch's place for data: ``tc.utils.data`` is ``tc.data``."""

from . import data

__all__ = ["data"]
