"""The kernels without a tape: separate forward and backward functions that take and return NumPy arrays.

For learners who want to see what a backward needs, and for tests. ``<op>_forward`` returns the result, followed by the values that
are saved in addition to the arguments; ``<op>_backward`` takes the gradient of the result and the saved values, and returns the
gradients of the inputs.
``help`` of each shows its arguments. Where one has ``dropout``, what is kept follows from ``seed`` and ``call``, two ints that it then needs.

Views (reshape, transpose, slices) and joins (cat, stack) compute nothing: their gradients are views and joins.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> x, gamma, beta = np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)
>>> y, mean, rstd = tc.ops.layer_norm_forward(x, gamma, beta, 0.0)
>>> dx, dgamma, dbeta = tc.ops.layer_norm_backward(np.array([[1.0, 0.0]]), x, gamma, mean, rstd)
>>> dgamma.tolist(), dbeta.tolist()
([-1.0, 0.0], [1.0, 0.0])

Functions that save nothing but their arguments or their result:

>>> y = tc.ops.matmul_forward(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
>>> da, db = tc.ops.matmul_backward(np.ones((1, 1)), np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
>>> y.tolist(), da.tolist(), db.tolist()
([[11.0]], [[3.0, 4.0]], [[1.0], [2.0]])
"""

from typing import TYPE_CHECKING

from . import _core
from ._names import hooks

# A function with a backward is here under two names: its `_forward`, if it has one, saves values for the backward.
_ops = {name: op for name, op in vars(_core).items() if isinstance(op, _core.op)}
_functions = [name.removesuffix("_backward") for name in _ops if name.endswith("_backward")]
_public = {f"{name}_backward": _ops[f"{name}_backward"] for name in _functions}
_public |= {f"{name}_forward": _ops.get(f"{name}_forward", _ops.get(name)) for name in _functions}


def global_max_pool1d_backward(dy, x, y):
    """dx of global_max_pool1d from its result y (B, C): of several equal maxima over the sequence, the first gets dy."""
    return _core.max_backward(dy, x, y, 1)


def masked_fill_backward(dy, mask):
    """dx of masked_fill: dy, 0 where the mask is set."""
    return _core.masked_fill(dy, mask, 0)


_public |= {"global_max_pool1d_backward": global_max_pool1d_backward, "global_max_pool1d_forward": _core.global_max_pool1d}
_public |= {"masked_fill_backward": masked_fill_backward, "masked_fill_forward": _core.masked_fill}
globals().update(_public)
__all__ = sorted(_public)

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
