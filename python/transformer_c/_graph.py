"""Captured graphs (`cuda.graph`), and the calls of optimizers and schedules that act on the host at each start of one."""

from __future__ import annotations

import contextlib
import functools
from _thread import get_ident
from collections.abc import Callable
from typing import Any, NoReturn

from . import _core
from ._core import Tensor
from ._fork_lock import ForkLock, by_thread
from ._nested import map_nested
from ._recording import is_grad_enabled, no_grad

_AUTOCAST = [
    "without autocast",
    "under autocast to bfloat16",
    "under autocast to float16",
    "in a call under autocast",
    "with autocast off in a call under it",
]
_noting: dict[int, Graph | None] = by_thread()  # the graph whose capture notes the calls of a thread
_starts = ForkLock(reentrant=True)  # what is put together for a start is one thread's, and a start within it is refused


def repeated(call: Callable[[], Any], prepare: Callable[[], Callable[[], None]], keep: Callable[[], Callable[[], None]]) -> None:
    """Calls it. While a graph captures, each of its starts calls it again, after what prepare() gives now.

    A start that is refused calls what keep() gave before the call, which takes back what that changed on the host.
    """
    if (graph := _noting.get(get_ident())) is None:
        call()
    else:
        prepared = prepare()
        graph.note(call, lambda: (prepared(), call()), keep)


def noted(method: Callable) -> Callable:
    """A method that acts on the host alone: a captured graph calls it again at each start. Its class has ``_kept()``, as `repeated` says."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (graph := _noting.get(get_ident())) is None:
            return method(self, *args, **kwargs)
        if any(value is not None for value in (*args, *kwargs.values())):
            raise RuntimeError(
                f"{type(self).__name__}.{method.__name__}() got an argument while tc.cuda.graph captured; each start would use the same, so "
                "call it outside of the function"
            )
        call = functools.partial(method, self, *args, **kwargs)
        return graph.note(call, call, self._kept)

    return run


def not_captured(method: Callable) -> Callable:
    """A method that a graph cannot repeat, as its Python code runs in the capture alone."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(f"{type(self).__name__}.{method.__name__}(), which is not a method of this library, was called")
        return method(self, *args, **kwargs)

    return run


def refuse(what: str) -> None:
    """Raises RuntimeError while this thread captures."""
    if _core.cuda_is_capturing():
        raise RuntimeError(f"{what} while tc.cuda.graph captured; move that out of the function")


class Graph:
    """What ``tc.cuda.graph(function)`` returns: call it with Tensors on one GPU."""

    def __init__(self, function: Callable, device: str | int | None = None) -> None:
        if not callable(function):
            raise TypeError(
                f"tc.cuda.graph takes a function, not {type(function).__name__}: step = tc.cuda.graph(function), then step(*tensors); it is no "
                "context manager"
            )
        functools.update_wrapper(self, function, updated=())
        self._function, self._device = function, None if device is None else _on_a_gpu(device)
        self._kinds: list[tuple] | None = None
        self._mode = ""
        self._graph: Any = None
        self._is_running = False

    def __repr__(self) -> str:
        return f"<tc.cuda.graph of {getattr(self._function, '__qualname__', repr(self._function))}>"

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        name = getattr(self._function, "__name__", "step")
        raise TypeError(
            f"tc.cuda.graph cannot decorate a method, as each object has a graph of its own; in __init__: self.{name} = tc.cuda.graph(self.{name})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a captured graph is neither copied nor pickled, as it works on the memory of its own Tensors; make one of the copy's function"
        )

    def __call__(self, *tensors: Tensor, **keywords: Any) -> Any:
        if keywords:
            raise TypeError(f"a captured function takes its Tensors by position, and got {', '.join(keywords)} by name")
        if not tensors and self._kinds is None:
            _core.empty(0, device=self._device or "cuda")  # or says why there is none
        self._check(tensors)
        if self._graph is not None:
            with _starts.held():
                return self._start(tensors)
        if self._is_running:
            raise RuntimeError("the first two calls of a captured function run it: it may not call itself, nor two threads do it at once")
        self._is_running = True
        try:
            if self._kinds is not None:
                return self._capture(tensors)
            result = self._function(*tensors)
            self._kinds, self._mode = [_kind(t) for t in tensors], _mode()
            return result
        finally:
            self._is_running = False

    def _check(self, tensors: tuple[Tensor, ...]) -> None:
        for i, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor) or tensor.device == "cpu":
                what = "on the CPU" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
                raise TypeError(
                    f'argument {i} of a captured function is {what}; expected a Tensor on a GPU: tc.tensor(..., device="cuda"). Numbers that '
                    "the function takes from elsewhere are those of its second call"
                )
            if tensor.device != (self._device or tensors[0].device):
                raise ValueError(
                    f"argument {i} of a captured function is on {tensor.device}, and the graph is for {self._device or tensors[0].device}"
                )
            if tensor.requires_grad:
                raise ValueError(
                    f"argument {i} of a captured function requires a gradient, which the graph's own copy of it would get; pass it as x.detach(), "
                    "of which the function may make a leaf, or let the function use it without an argument"
                )
        if self._kinds is None:
            return
        if (mode := _mode()) != self._mode:
            raise RuntimeError(
                f"the captured function was first called {self._mode}, and now {mode}; a graph repeats what it did then: call it as at first, or "
                "the function itself"
            )
        kinds = [_kind(t) for t in tensors]
        if len(kinds) != len(self._kinds):
            raise ValueError(f"the captured function got {len(self._kinds)} Tensors at its first call and {len(kinds)} now")
        for i, (found, expected) in enumerate(zip(kinds, self._kinds, strict=True)):
            if found != expected:
                raise ValueError(
                    f"argument {i} has shape {found[0]} and dtype {found[1]}, but shape {expected[0]} and dtype {expected[1]} at the first call; "
                    "a graph is for one shape: call the function itself"
                )

    @property
    def is_captured(self) -> bool:
        """Whether the next call is a start."""
        return self._graph is not None

    # ---- capture -----------------------------------------------------------------------------------------------------------------

    def note(self, call: Callable[[], Any], again: Callable[[], Any], keep: Callable[[], Callable[[], None]]) -> Any:
        """Calls `call` now, and `again` at each start, after keep(). Calls that `call` makes in turn are not noted."""
        self._calls.append((again, keep))
        self._kept.append(keep())
        with _core.replaced([(_noting, get_ident(), None)]):
            return call()

    def _capture(self, tensors: tuple[Tensor, ...]) -> Any:
        self._inputs = [t.detach().clone() for t in tensors]
        self._places = [t.data_ptr() for t in self._inputs]
        self._calls: list[tuple[Callable[[], Any], Callable[[], Callable[[], None]]]] = []
        self._kept: list[Callable[[], None]] = []  # what takes back the calls
        self._generators: list[Any] = []
        device = self._device or (tensors[0].device if tensors else None)
        begin = functools.partial(_core.cuda_graph_begin, device, self._generators, self._inputs)
        graph = None
        try:
            with _core.replaced([(_noting, get_ident(), self)]), _core.switched(bool, begin, _core.cuda_graph_end) as graph:
                self._result = map_nested(_without_history, self._function(*self._inputs))
            self._check_inputs(graph)
        except BaseException:
            # What came before the error is done, as without a capture: gradients and weights are what the host believes them to be.
            if graph is not None:
                with contextlib.suppress(RuntimeError, MemoryError):
                    self._start_first(graph)
            raise
        self._start_first(graph)
        self._graph = graph
        del self._kept
        return self._result

    def _start_first(self, graph: Any) -> None:
        """Does the work of the capture. If it fails, that work is never done, and leaves get their earlier gradients back as well."""
        try:
            self._do_work(graph, self._kept)
        except (RuntimeError, MemoryError):
            _core.cuda_graph_give_up(graph)
            raise

    def _do_work(self, graph: Any, changed: list[Callable[[], None]]) -> None:
        """Does the work of a graph. If it cannot be done, everything on the host that has changed, masks included, becomes what it was before."""
        try:
            _core.cuda_graph_start(graph)
        except (RuntimeError, MemoryError):
            _take_back(changed)
            _core.cuda_graph_undraw(graph, self._generators)
            raise

    def _check_inputs(self, graph: Any) -> None:
        for i, (own, place) in enumerate(zip(self._inputs, self._places, strict=True)):
            if own.data_ptr() != place or _core.cuda_graph_use(graph, own) == "written":
                raise RuntimeError(
                    f"the captured function changed argument {i} in place; a graph has a copy of it, and the caller's would stay as it is: "
                    "return a new Tensor, or let the function use this one without an argument"
                )

    # ---- starts ------------------------------------------------------------------------------------------------------------------

    def _start(self, tensors: tuple[Tensor, ...]) -> Any:
        graph = self._graph
        changed: list[Callable[[], None]] = []
        _core.cuda_graph_check(graph)
        try:
            self._collect(changed)
            with no_grad():
                for own, given in zip(self._inputs, tensors, strict=True):
                    if own is not given:
                        own.copy_(given)
        except BaseException:
            _take_back(changed)
            raise
        _core.cuda_graph_draw(graph, self._generators)
        self._do_work(graph, changed)
        return self._result

    def _collect(self, changed: list[Callable[[], None]]) -> None:
        """Calls the functions that were noted, for the numbers of a start; adds to `changed` functions that take it back."""
        graph = self._graph

        def leave(unused: Any) -> None:
            with contextlib.suppress(RuntimeError):
                _core.cuda_graph_collected(graph)

        with _core.switched(bool, functools.partial(_core.cuda_graph_collect, graph), leave):
            for call, keep in self._calls:
                changed.append(keep())
                call()
        _core.cuda_graph_collected(graph)  # raises where they were other steps


def _take_back(changes: list[Callable[[], None]]) -> None:
    for take_back in reversed(changes):
        take_back()


def _without_history(value: Any) -> Any:
    """A result to which starts write: nothing that is recorded may go back through the capture. Leaves are left as they are."""
    return value.detach() if isinstance(value, Tensor) and not value.is_leaf else value


def _on_a_gpu(device: str | int) -> str:
    """The name of an existing GPU; raises ValueError for anything else."""
    is_number = isinstance(device, int) and not isinstance(device, bool)
    if not is_number and not (isinstance(device, str) and device.startswith("cuda")):
        raise ValueError(f'tc.cuda.graph is for a GPU, "cuda" or "cuda:0"; got device={device!r}')
    return _core.empty(0, device=device).device


def _kind(tensor: Tensor) -> tuple:
    return tuple(tensor.shape), tensor.dtype.name


def _mode() -> str:
    return f"{'with' if is_grad_enabled() else 'without'} gradients and {_AUTOCAST[_core.autocast_state()]}"


__all__ = ["Graph", "not_captured", "noted", "refuse", "repeated"]
