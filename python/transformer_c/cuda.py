"""GPUs: whether there is one that can be used, and why not."""

from __future__ import annotations

from . import _core
from ._tensor import empty


def status() -> str:
    """One line: the state of CUDA, with the reason when it cannot be used."""
    try:
        empty(0, device="cuda")
    except RuntimeError as error:
        return f"not available ({error})"
    return "available"


def is_available() -> bool:
    """Whether ``device="cuda"`` works."""
    return status() == "available"


def device_count() -> int:
    """How many GPUs can be used."""
    return 0 if not is_available() else _core.cuda_device_count()
