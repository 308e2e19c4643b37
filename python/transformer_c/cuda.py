"""GPUs: whether there is one that can be used, and why not."""

from __future__ import annotations

from ._tensor import empty


def _usable(index: int) -> str | None:
    """None when the GPU can be used, otherwise the reason."""
    try:
        empty(0, device=f"cuda:{index}")
    except RuntimeError as error:
        return str(error)
    return None


def status() -> str:
    """One line: the state of CUDA, with the reason when it cannot be used."""
    reason = _usable(0)
    return "available" if reason is None else f"not available: {reason}"


def is_available() -> bool:
    """Whether ``device="cuda"`` works."""
    return _usable(0) is None


def device_count() -> int:
    """How many GPUs can be used."""
    count = 0
    while _usable(count) is None:
        count += 1
    return count


def synchronize() -> None:
    """Waits until the GPU has done all that was asked of it; a RuntimeError that names the reason without a GPU."""
    empty(0, device="cuda").cpu()
