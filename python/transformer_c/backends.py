"""PyTorch's switches of its backends: they can be set and read, and have no effect.

Runs are deterministic, whatever the switches say; ``tc.set_float32_precision`` and ``tc.set_num_threads`` are those that count.

Examples
--------
>>> import transformer_c as tc
>>> tc.backends.cudnn.deterministic = True
>>> tc.backends.cudnn.benchmark, tc.backends.mps.is_available()
(False, False)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ._names import hooks


class Backend(SimpleNamespace):
    """Switches without effect."""

    def is_available(self) -> bool:
        """False: nothing here uses it."""
        return False

    is_built = is_available


cudnn = Backend(deterministic=True, benchmark=False, enabled=False, allow_tf32=False)
cuda = Backend(matmul=Backend(allow_tf32=False), preferred_linalg_library=lambda *unused: None)
mkl, mkldnn, mps, openmp, opt_einsum = Backend(), Backend(), Backend(), Backend(), Backend()


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'transformer_c.backends' has no attribute {name!r}; it has {', '.join(__all__)}", name=name)


__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

if not TYPE_CHECKING:
    _, __dir__ = hooks(__name__)
