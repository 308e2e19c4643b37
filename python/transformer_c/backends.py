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

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ._names import hooks


class Backend(SimpleNamespace):
    """Switches without effect; imported as a module, too: ``import torch.backends.cudnn as cudnn``."""

    def __init__(self, name: str, **switches: Any) -> None:
        super().__init__(**switches)
        sys.modules[f"{__name__}.{name}"] = self  # type: ignore[assignment]

    def is_available(self) -> bool:
        """False: nothing here uses it."""
        return False

    is_built = is_available


cudnn = Backend("cudnn", deterministic=True, benchmark=False, enabled=False, allow_tf32=False)
cuda = Backend(
    "cuda",
    matmul=Backend("cuda.matmul", allow_tf32=False),
    preferred_linalg_library=lambda *unused: None,
    sdp_kernel=lambda *unused, **options: nullcontext(),
    **{f"enable_{kernel}_sdp": lambda enabled: None for kernel in ("cudnn", "flash", "math", "mem_efficient")},
)
mkl, mkldnn, mps, openmp, opt_einsum = (Backend(name) for name in ("mkl", "mkldnn", "mps", "openmp", "opt_einsum"))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'transformer_c.backends' has no attribute {name!r}; it has {', '.join(__all__)}", name=name)


__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

if not TYPE_CHECKING:
    _, __dir__ = hooks(__name__)
