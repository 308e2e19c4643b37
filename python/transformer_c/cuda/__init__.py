"""GPUs: whether one is available, and if not, why; memory, streams and captured graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .. import _core, random
from .._graph import Graph
from .._names import hooks


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
        When the GPU cannot be used (the message says why), when work on it failed, or when an earlier call had an index or a class out of range.
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
    """Returns memory that is cached for later Tensors to the driver; does nothing without a GPU, unless one is named."""
    if device is not None or is_available():
        _core.cuda_empty_cache(device)


def manual_seed(seed: int) -> None:
    """Seeds the default generator, which is that of all devices; does nothing without a GPU, as in PyTorch.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cuda.manual_seed(0)
    """
    if is_available():
        random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """``manual_seed``: the generator is that of all devices.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cuda.manual_seed_all(0)
    """
    manual_seed(seed)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a GPU: each has kernels for bfloat16.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cuda.is_bf16_supported() == tc.cuda.is_available()
    True
    """
    return is_available()


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


def graph(function: Callable, device: str | int | None = None) -> Graph:
    """Records what a function does on a GPU, and repeats it with one launch: ``step = tc.cuda.graph(function)``, then ``step(*tensors)``.

    The first call runs the function as usual, so that what is made once (states of optimizers) is there. The second one captures the work
    and starts it. Later ones copy their arguments to the graph's own inputs and start it again, without running the function: at the sizes
    at which launches take longer than kernels, a step costs the host a fraction. Each call has the bits of the function itself.

    A start repeats the work on the GPU, the steps of this library's optimizers and schedules with the learning rates, decays and step
    counts of that moment, and dropout with new masks; those of a generator that the function itself makes (``rng=1``) are the same each time.
    Python code of the function is not run again: numbers in it are those of the second call, and lists or attributes that it changes stay as
    they are.

    Parameters
    ----------
    function : callable
        Takes and returns what it likes, of Tensors on one GPU. It may not read values on the host (``item``, ``print``, ``if x > 0``), copy
        Tensors, arrays or lists from it (``tc.tensor([1.0, 2.0], device="cuda")``, ``x[[0, 2]]``), draw random numbers but by dropout (nor
        there from NumPy's generators), or step optimizers that override ``step``. ``backward()`` belongs in it. Numbers of Python are constants
        of the graph.
    device : str or int, optional
        The GPU of a function without arguments, "cuda:0" unless given; otherwise that of the arguments.

    Returns
    -------
    Graph
        Call it with Tensors of the shapes and dtypes of the first call. The result is the function's at the second call, without its history,
        and each later call writes into the same Tensors. The graph's memory is its own until it is deleted.

    Raises
    ------
    RuntimeError
        In the second call, for what a graph cannot repeat; the message names it, and what came before it is done. In later ones, when
        gradients, the parameters that get them or the optimizer's states are not where they were, such a parameter no longer requires a
        gradient, or gradients or autocast are on and were not at first, or the other way round. A call that is refused leaves optimizers,
        schedules, generators and gradients as they were.
    MemoryError
        When there is no memory on the GPU for the graph or its start; all is then as before the call.
    TypeError, ValueError
        For arguments that are not Tensors on one GPU, require a gradient, or are of another shape or dtype than at first.

    Notes
    -----
    Other Tensors that the function uses, and the optimizers, modules and numbers that its names stand for, are those of the second call: a
    parameter without a gradient that is moved or replaced later is read where it was. The same holds for ``train()``, ``eval()`` and
    parameters that get a gradient from then on. Leaves that the function makes (``tc.zeros(..., requires_grad=True)``,
    ``x.detach().requires_grad_()``) are made anew by each start, without a gradient.

    Threads that the function starts are not captured. Work that they put on a GPU is done at once, and may not use the function's arguments or
    what it has computed, which the second call refuses.

    A graph is for one shape. Call the function itself for the last batch of an epoch, which may be smaller: the bits are the same.

    Examples
    --------
    >>> import transformer_c as tc
    >>> def train(model, optimizer, batches):
    ...     def step(x, y):
    ...         optimizer.zero_grad()
    ...         loss = tc.F.mse_loss(model(x), y)
    ...         loss.backward()
    ...         optimizer.step()
    ...         return loss
    ...     captured = tc.cuda.graph(step)
    ...     for x, y in batches:  # arrays, of 64 rows but the last
    ...         x, y = tc.tensor(x, device="cuda"), tc.tensor(y, device="cuda")
    ...         loss = captured(x, y) if len(x) == 64 else step(x, y)
    ...         print(float(loss))  # a number of its own: the next call writes into the same Tensor
    """
    return Graph(function, device)


_STREAM = "tc.cuda.stream(), a context manager; work on the same memory keeps its order by itself"
_MEMORY = 'tc.cuda.memory_stats(), which has "in_use", "peak_in_use", "cached", "free" and "total"'
_GRAPH = "step = tc.cuda.graph(function), which captures at its second call, and step(*tensors)"
# Names that only torch.cuda has: what is here.
_INSTEAD = {
    **dict.fromkeys(("CUDAGraph", "make_graphed_callables", "graph_pool_handle", "is_current_stream_capturing"), _GRAPH),
    **dict.fromkeys(("Stream", "Event", "current_stream", "default_stream"), _STREAM),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "mem_get_info"), _MEMORY),
    **dict.fromkeys(("set_device", "current_device"), 'device="cuda:1" where Tensors are made or moved'),
    **dict.fromkeys(("get_device_capability", "get_arch_list", "get_device_properties"), "tc.show_config(), which prints them"),
    "get_device_name": "nvidia-smi",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__, {"amp": ""}, _INSTEAD)
