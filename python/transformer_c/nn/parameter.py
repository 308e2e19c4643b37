"""Tensors that a module trains."""

from __future__ import annotations

from .._core import Tensor


class Parameter(Tensor):
    """A Tensor that requires a gradient and is registered when it is assigned to an attribute of a module.

    Parameters
    ----------
    data : array_like
        Initial values; copied. Python floats become float32.
    requires_grad : bool, default True

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.Parameter([1.0, 2.0]).requires_grad
    True
    """

    __slots__ = ()

    def __new__(cls, data, requires_grad: bool = True):
        return super().__new__(cls, data, requires_grad=requires_grad)
