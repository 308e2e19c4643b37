"""The tutorials that this library implements, class by class."""

from . import godoy, keras_book, sensio, uva

__all__ = ["godoy", "keras_book", "sensio", "uva"]
