"""Testing gradients and kernels.

gradients    gradcheck: gradients against central differences
reference    every op and its gradient in float64 NumPy; ``import transformer_c.testing.reference`` loads it
"""

from .gradients import GradcheckError, gradcheck

__all__ = ["GradcheckError", "gradcheck"]
