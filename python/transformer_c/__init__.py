"""transformer_c: Transformers on NumPy arrays."""

from ._core import Tensor
from ._tensor import (
    arange,
    as_tensor,
    cat,
    empty,
    empty_like,
    enable_grad,
    from_dlpack,
    full,
    full_like,
    is_grad_enabled,
    matmul,
    no_grad,
    ones,
    ones_like,
    stack,
    tensor,
    tril,
    triu,
    where,
    zeros,
    zeros_like,
)

__version__ = "0.1.0"

__all__ = [
    "Tensor",
    "__version__",
    "arange",
    "as_tensor",
    "cat",
    "empty",
    "empty_like",
    "enable_grad",
    "from_dlpack",
    "full",
    "full_like",
    "is_grad_enabled",
    "matmul",
    "no_grad",
    "ones",
    "ones_like",
    "stack",
    "tensor",
    "tril",
    "triu",
    "where",
    "zeros",
    "zeros_like",
]
