"""What tests of ops that drop have in common."""

import numpy as np
import transformer_c as tc
from transformer_c import _core
from transformer_c.testing import reference as R


def multiplier(shape, p, seed, call):
    """What dropout by itself makes of ones."""
    return R.f64(_core.dropout_forward(np.ones(shape), p, seed, call))


def with_gradients(call, arrays, dy):
    """The result and the gradients of all arrays."""
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    y = call(*tensors)
    y.backward(tc.tensor(dy))
    return [y.detach().numpy(), *(t.grad.numpy() for t in tensors)]
