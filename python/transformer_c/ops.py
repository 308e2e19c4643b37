"""The kernels without a tape: forward and backward apart, NumPy in and out.

For learners who want to see what a backward needs, and for tests. ``<op>_forward`` gives the result and, after it, what is saved
beside the arguments; ``<op>_backward`` takes the gradient of the result and what was saved, and gives the gradients of the inputs.
``help`` of each shows its arguments.

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

from . import _core

# A function with a backward is here under two names: its own `_forward`, where it has one, is what saves values for the backward.
_ops = {name: op for name, op in vars(_core).items() if isinstance(op, _core.op)}
_functions = [name.removesuffix("_backward") for name in _ops if name.endswith("_backward")]
_public = {f"{name}_backward": _ops[f"{name}_backward"] for name in _functions}
_public |= {f"{name}_forward": _ops.get(f"{name}_forward", _ops.get(name)) for name in _functions}


def global_max_pool1d_backward(dy, x, y):
    """dx of global_max_pool1d from its result y (B, C): the first of equal maxima over the sequence gets dy."""
    return _core.max_backward(dy, x, y, 1)


def masked_fill_backward(dy, mask):
    """dx of masked_fill: dy, 0 where the mask is set."""
    return _core.masked_fill(dy, mask, 0)


_public |= {"global_max_pool1d_backward": global_max_pool1d_backward, "global_max_pool1d_forward": _core.global_max_pool1d}
_public |= {"masked_fill_backward": masked_fill_backward, "masked_fill_forward": _core.masked_fill}
globals().update(_public)
__all__ = sorted(_public)
