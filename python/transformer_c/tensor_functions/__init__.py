"""Functions of Tensors under PyTorch's names: ``tc.clamp``, ``tc.sort``, ...; most are methods of Tensor as well.

They are made of the recorded ops of the core. Those that are a row of ``ops.def`` are named here, too.
"""

from .. import _core
from .._core import abs as abs
from .._core import (
    all,
    any,
    argmin,
    ceil,
    clamp_max,
    clamp_min,
    eq,
    erf,
    exp,
    floor,
    floor_divide,
    ge,
    gt,
    le,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_or,
    logical_xor,
    lt,
    maximum,
    mean,
    minimum,
    mul,
    ne,
    neg,
    pow,
    reciprocal,
    relu,
    remainder,
    rsqrt,
    sigmoid,
    sign,
    sqrt,
    square,
    sum,
    trunc,
)
from . import compositions, drawing, elements, making, ordering, products, reductions, selection, shapes
from . import gradients as gradients
from . import in_place as in_place
from ._calls import METHODS
from .compositions import *  # noqa: F403
from .drawing import *  # noqa: F403
from .elements import *  # noqa: F403
from .making import *  # noqa: F403
from .ordering import *  # noqa: F403
from .products import *  # noqa: F403
from .reductions import *  # noqa: F403
from .selection import *  # noqa: F403
from .shapes import *  # noqa: F403

for _name, _function in METHODS.items():
    setattr(_core.Tensor, _name, _function)

# Rows of ops.def; the files of this folder have lists of their own.
__all__ = [
    "abs",
    "all",
    "any",
    "argmin",
    "ceil",
    "clamp_max",
    "clamp_min",
    "eq",
    "erf",
    "exp",
    "floor",
    "floor_divide",
    "ge",
    "gt",
    "le",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "mean",
    "minimum",
    "mul",
    "ne",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
    "square",
    "sum",
    "trunc",
]
__all__ += compositions.__all__
__all__ += drawing.__all__
__all__ += elements.__all__
__all__ += making.__all__
__all__ += ordering.__all__
__all__ += products.__all__
__all__ += reductions.__all__
__all__ += selection.__all__
__all__ += shapes.__all__
