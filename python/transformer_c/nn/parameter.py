"""Tensors that a module trains."""

from __future__ import annotations

from _thread import get_ident
from typing import Any

from .. import _core, _tensor_copying
from .._core import Tensor
from .._fork_lock import by_thread
from .._tensor import empty

skipping: dict[int, bool] = by_thread()  # the threads in which `nn.init.skip()` is entered


class Parameter(Tensor):
    """A Tensor that requires a gradient and is registered when it is assigned to an attribute of a module.

    It takes attributes of your own, such as ``p.no_decay = True``, which copies and pickles of a module keep and state dicts do not.

    Parameters
    ----------
    data : array_like
        Initial values; copied, on a Tensor's own device. Python floats become float32.
    requires_grad : bool, default True

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.Parameter([1.0, 2.0]).requires_grad
    True
    """

    def __new__(cls, data, requires_grad: bool = True):
        if get_ident() in skipping and isinstance(data, Tensor):
            return cls._over(data, requires_grad)  # memory that is not initialised is not copied
        if isinstance(data, Tensor) and data.device != "cpu":
            return cls._over(data.detach().clone(), requires_grad)
        return super().__new__(cls, data, requires_grad=requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A Parameter with its own memory and no gradient."""
        return _tensor_copying.deepcopy(self, memo, with_gradient=False)  # type: ignore[return-value]


def uninitialised(*lengths: int, dtype: Any = None, device: Any = None) -> Parameter:
    """A Parameter whose values are written next: without a copy of memory that has none yet."""
    return Parameter._over(empty(*lengths, dtype=dtype, device=device), True)


def registered(registry: str) -> Any:
    """An attribute of a class for what its modules have registered under that name, in their dict `registry`.

    They have it without that as well, by ``Module.__getattr__``, which Python asks after it has failed to find it: up to Python 3.11 six times as slow.
    """
    return _core.registered(registry)
