"""A loss of ndarrays: a number like any other, which says how to train when somebody wants its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArrayLoss(np.ndarray):
    """An array without axes. Computing with it gives ordinary arrays and numbers."""

    def __getattr__(self, name: str) -> Any:
        if name in ("backward", "requires_grad"):
            raise AttributeError(
                f"this loss is an ndarray and has no {name!r}: nothing is recorded when all arguments are arrays. Pass Tensors, "
                "for instance model(tc.tensor(x)) and loss(prediction, target), and call backward() of the loss",
                name=name,
                obj=self,
            )
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}", name=name, obj=self)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        plain = np.asarray(array)
        return plain[()] if plain.ndim == 0 else plain

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self):
        return np.asarray(self).__reduce__()


def as_loss(result: Any) -> Any:
    """`result` itself, unless it is an array without axes."""
    return result.view(ArrayLoss) if type(result) is np.ndarray and result.ndim == 0 else result
