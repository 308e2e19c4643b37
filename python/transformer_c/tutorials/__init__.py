"""The documents this library implements, class by class."""

from . import uva

__all__ = ["uva"]
