"""GPUs: whether there is one that can be used and why not, its memory, its streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from . import _core


def _why_not() -> str | None:
    """None when there is a GPU that can be used, otherwise the reason."""
    try:
        _core.cuda_device_count()
    except RuntimeError as error:
        return str(error)
    return None


def status() -> str:
    """One line: the state of CUDA, with the reason when it cannot be used."""
    reason = _why_not()
    return "available" if reason is None else "not available: " + reason.removeprefix("CUDA is not available: ")


def is_available() -> bool:
    """Whether ``device="cuda"`` works."""
    return _why_not() is None


def device_count() -> int:
    """How many GPUs can be used; 0 where CUDA is not available."""
    return 0 if _why_not() is not None else _core.cuda_device_count()


def synchronize(device: str | None = None) -> None:
    """Waits until a GPU ("cuda:0" unless another is named) has done all that was asked of it.

    Raises
    ------
    RuntimeError
        When the GPU cannot be used, with the reason; or when something failed on it.
    """
    _core.cuda_synchronize(device)


def memory_stats(device: str | None = None) -> dict[str, int]:
    """Bytes of a GPU's memory.

    Returns
    -------
    dict
        ``in_use`` by Tensors, ``peak_in_use``, ``cached`` for the next Tensors (`empty_cache` gives it back), ``free`` and ``total``
        of the device, and ``device_calls``: how often memory was asked of the driver.
    """
    return _core.cuda_memory_stats(device)


def empty_cache(device: str | None = None) -> None:
    """Gives the memory that is kept for the next Tensors back to the driver."""
    _core.cuda_empty_cache(device)


def last_variants() -> dict[str, str]:
    """Which variant of each kernel ran last on a GPU, for the kernels that leave a choice; `config.last_plans` says more.

    The environment variable TRANSFORMER_C_CUDA_VARIANT forces a variant: it is read once, and a name that a kernel does not have is a
    ValueError when that kernel is to run.
    """
    return {kernel: variant for kernel, (variant, _, _) in _core.last_plans("cuda").items()}


@contextlib.contextmanager
def stream(device: str | None = None) -> Iterator[int]:
    """Work of this thread goes to another stream inside a ``with`` block.

    Every thread has a stream of its own; this gives it one more, so that one thread can have work side by side. Work on the same
    memory is kept in order, whichever streams it is on: a Tensor may be used anywhere.

    Yields
    ------
    int
        The address of the stream (a ``cudaStream_t``). It is used again after the block.
    """
    new = _core.cuda_new_stream(device)
    try:
        before = _core.cuda_set_stream(new)
        try:
            yield new
        finally:
            _core.cuda_set_stream(before)
    finally:
        _core.cuda_end_stream(new)


def graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Recording work once to start it many times is not implemented."""
    raise NotImplementedError("tc.cuda.graph: captured graphs are not implemented; call the module as usual")
