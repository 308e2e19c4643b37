"""The documents this library implements, class by class."""

from . import godoy, sensio, uva

__all__ = ["godoy", "sensio", "uva"]
