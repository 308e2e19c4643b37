"""GPUs: whether one is available, and if not, why; memory and streams."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from ._names import hooks


def _why_not() -> str | None:
    """None when a GPU can be used, otherwise the reason why not."""
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
    """The number of GPUs that can be used; 0 if CUDA is not available."""
    return 0 if _why_not() is not None else _core.cuda_device_count()


def synchronize(device: str | None = None) -> None:
    """Waits until a GPU ("cuda:0" unless another is given) has finished all its work.

    Raises
    ------
    RuntimeError
        When the GPU cannot be used (the message says why), or when work on it failed.
    """
    _core.cuda_synchronize(device)


def memory_stats(device: str | None = None) -> dict[str, int]:
    """Figures on a GPU's memory, in bytes.

    Returns
    -------
    dict
        ``in_use`` by Tensors, ``peak_in_use``, ``cached`` for later Tensors (`empty_cache` returns it), ``free`` and ``total``
        of the device, and ``device_calls``, the number of times memory was requested from the driver.
    """
    return _core.cuda_memory_stats(device)


def empty_cache(device: str | None = None) -> None:
    """Returns memory that is cached for later Tensors to the driver."""
    _core.cuda_empty_cache(device)


def last_variants() -> dict[str, str]:
    """The variant that last ran on a GPU, for each kernel with several variants; `config.last_plans` gives more detail.

    The environment variable TRANSFORMER_C_CUDA_VARIANT forces a variant. It is read once; a kernel that has no variant of that name raises
    a ValueError when it is called.
    """
    return {kernel: variant for kernel, (variant, _, _) in _core.last_plans("cuda").items()}


def stream(device: str | None = None) -> AbstractContextManager[int]:
    """Sends this thread's work to another stream inside a ``with`` block.

    Every thread has a stream of its own; this gives it one more, so that work of one thread can run concurrently. Work on the same
    memory is kept in order across streams, so a Tensor may be used on any of them.

    Returns
    -------
    context manager
        Its value is the address of the stream (a ``cudaStream_t``). The stream is reused after the block.
    """
    return _core.switched(_core.cuda_set_stream, functools.partial(_core.cuda_new_stream, device), _core.cuda_end_stream)


def graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Not implemented: recording work once and launching it many times."""
    raise NotImplementedError("tc.cuda.graph: captured graphs are not implemented; call the module as usual")


if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
