"""Functions whose backward is written by the user, as a class: PyTorch's ``torch.autograd.Function``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _core
from .._core import Tensor
from .._names import Explaining, hooks
from .._promotion import is_floating
from .._recording import no_grad
from .._tensor import zeros


class FunctionCtx(Explaining):
    """What the forward of a Function leaves for its backward: attributes of any name, too."""

    _instead: ClassVar = {"save_for_forward": "save_for_backward(): there are no gradients of gradients"}

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._versions: tuple[int | None, ...] = ()
        self._fills_in = True
        self._constant: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps Tensors: they are ``ctx.saved_tensors`` in the backward."""
        for i, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"save_for_backward() keeps Tensors; argument {i} is of type {type(tensor).__name__}: make it an attribute of ctx"
                )
        self._saved, self._versions = tensors, tuple(None if t is None else t._version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What ``save_for_backward`` kept; a RuntimeError when it was written to in the meantime."""
        for i, (tensor, version) in enumerate(zip(self._saved, self._versions, strict=True)):
            if tensor is not None and tensor._version != version:
                raise RuntimeError(
                    f"saved_tensors[{i}], of shape {tuple(tensor.shape)}, was written in place after it was saved; write to a clone() instead"
                )
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Names results that have no gradient, besides those of ints and bools, which never have one."""
        self._constant = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Names arguments that the forward wrote to in place, each of which is a result as well."""
        self._dirty = tensors

    def _is_dirty(self, value: Any) -> bool:
        """Whether this is one of the arguments that ``mark_dirty`` named."""
        return bool(self._dirty) and any(value is tensor for tensor in self._dirty)

    def _give_history(self, dirty: Tensor, result: Tensor) -> None:
        """Makes an argument that was written to the recorded `result`, of the same values: what was saved stays as valid as it was."""
        valid = [t is not None and t._version == version for t, version in zip(self._saved, self._versions, strict=True)]
        self._saved = tuple(t.detach() if t is dirty else t for t in self._saved)  # its history has this object
        dirty.copy_(result)
        now = [t._version if t is not None and is_valid else None for t, is_valid in zip(self._saved, valid, strict=True)]
        self._versions = tuple(old if new is None else new for old, new in zip(self._versions, now, strict=True))

    def set_materialize_grads(self, value: bool) -> None:
        """False: the backward gets None for results that no gradient reached; by default it gets zeros."""
        self._fills_in = bool(value)

    def _is_recorded(self, result: Any) -> bool:
        """Whether gradients go back through a result."""
        return isinstance(result, Tensor) and is_floating(result) and not any(result is tensor for tensor in self._constant)


class Function:
    """A function with a backward of its own: a subclass has both as static methods, and its ``apply`` is called. CPU only.

    ``forward(ctx, *arguments)`` returns a Tensor or a tuple; nothing is recorded in it. ``backward(ctx, *gradients)`` gets the gradient of each result
    and returns that of each argument: None for those that are no Tensors, or need none (``ctx.needs_input_grad``). `ctx` has what the forward
    leaves for the backward: ``ctx.save_for_backward(x)`` and ``ctx.saved_tensors``, or any attributes. A forward without `ctx` has a third
    static method next to it, ``setup_context(ctx, arguments, results)``.

    Notes
    -----
    What was saved is freed by the backward (unless ``retain_graph=True``), and refused there when it was written to in the meantime. A forward
    that writes to an argument says so with ``ctx.mark_dirty(x)`` and returns it. There are no gradients of gradients. ``custom_op`` makes a
    function of two functions on ndarrays.

    Examples
    --------
    >>> import transformer_c as tc
    >>> class Cube(tc.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensors
    ...         return dy * 3 * x**2
    >>> x = tc.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad.tolist()
    [12.0]
    """

    setup_context: Any = None

    @staticmethod
    def forward(*arguments: Any) -> Any:
        """Computes the results."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *arguments)")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Computes the gradients of the arguments."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *gradients)")

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """Calls ``forward``, and records ``backward``."""
        ctx = FunctionCtx(tuple(isinstance(a, Tensor) and a.requires_grad for a in arguments))
        recorded = _core.grad_enabled() and any(ctx.needs_input_grad)
        with no_grad():
            if cls.setup_context is None:
                results = cls.forward(ctx, *arguments)
            else:
                results = cls.forward(*arguments)
                cls.setup_context(ctx, arguments, results)
        found = list(results) if isinstance(results, (tuple, list)) else [results]
        if ctx._dirty and not all(any(tensor is result for result in found) for tensor in ctx._dirty):
            raise RuntimeError(f"{cls.__name__}.forward() has to return each Tensor that it named in ctx.mark_dirty()")
        if recorded:
            cls._record(ctx, arguments, found)
        else:
            found = [result if ctx._is_dirty(result) else _plain(result) for result in found]
        return tuple(found) if isinstance(results, (tuple, list)) else found[0]

    @classmethod
    def _record(cls, ctx: FunctionCtx, arguments: tuple, found: list[Any]) -> None:
        """Gives the results a history, in their list."""
        places = [i for i, result in enumerate(found) if ctx._is_recorded(result)]
        found[:] = [result if i in places else _plain(result) for i, result in enumerate(found)]
        if not places:
            return
        inputs = [i for i, a in enumerate(arguments) if isinstance(a, Tensor)]
        likes = [(r.shape, r.dtype) if isinstance(r, Tensor) else None for r in found]

        count = len(arguments)  # which `gradients` must not keep

        def gradients(*given: Any) -> tuple:
            arrays = dict(zip(places, given, strict=True))
            every: list[Any] = [None] * len(likes)
            for i, like in enumerate(likes):
                if arrays.get(i) is not None:
                    every[i] = Tensor(arrays[i])  # a copy: others may share the gradient
                elif ctx._fills_in and like is not None:
                    every[i] = zeros(like[0], dtype=like[1])
            of_arguments = cls.backward(ctx, *every)
            of_arguments = of_arguments if isinstance(of_arguments, (tuple, list)) else (of_arguments,)
            if len(of_arguments) < count or any(g is not None for g in of_arguments[count:]):
                raise ValueError(
                    f"{cls.__name__}.backward() returned {len(of_arguments)} gradients for {count} arguments; expected one for each, or None"
                )
            return tuple(of_arguments[i] for i in inputs)

        made = _core.record_custom([arguments[i] for i in inputs], tuple(found[i].detach() for i in places), gradients, False)
        for place, tensor in zip(places, made if isinstance(made, (tuple, list)) else (made,), strict=True):
            if ctx._is_dirty(found[place]):
                ctx._give_history(found[place], tensor)
            else:
                found[place] = tensor
        ctx._dirty = ctx._constant = ()  # whose history has `ctx`


def once_differentiable(function: Any) -> Any:
    """Decorates a ``backward`` of which no gradient is taken: as every one here, so that nothing changes."""
    return function


def _plain(result: Any) -> Any:
    """A result without a history of its own or of the forward's."""
    return result.detach() if isinstance(result, Tensor) and result.requires_grad else result


__all__ = ["Function", "FunctionCtx", "once_differentiable"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
