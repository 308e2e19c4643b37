"""Testing gradients and kernels.

gradients    gradcheck: gradients against central differences
reference    every op and its gradient in float64 NumPy; ``import transformer_c.testing.reference`` loads it
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .gradients import GradcheckError, gradcheck

__all__ = ["GradcheckError", "gradcheck"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
