"""The tutorials that this library implements, class by class."""

from typing import TYPE_CHECKING

from .._names import hooks
from . import godoy, keras_book, sensio, uva

__all__ = ["godoy", "keras_book", "sensio", "uva"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
