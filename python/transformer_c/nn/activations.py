"""Activations beyond those of Transformers, with PyTorch's names and arguments. `inplace` is accepted; the result is always a new Tensor."""

from __future__ import annotations

from .. import functional as F
from .._arguments import all_of, count, real
from .._core import Tensor
from .._promotion import cast_input
from .._tensor import full
from .init import constant_
from .layers import Softmax, _MaybeInPlace
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU",
    "GLU",
    "SELU",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LogSigmoid",
    "Mish",
    "PReLU",
    "ReLU6",
    "Softmin",
    "Softsign",
]


class Hardtanh(_MaybeInPlace):
    """x clipped to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val, self.max_val = all_of((real, "min_val", min_val), (real, "max_val", max_val))
        if not self.min_val < self.max_val:
            raise ValueError(f"min_val must be smaller than max_val, got {min_val} and {max_val}")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """x clipped to [0, 6]."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Hardsigmoid(_MaybeInPlace):
    """relu6(x + 3) / 6."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input)


class Hardswish(_MaybeInPlace):
    """x relu6(x + 3) / 6 (Howard et al. 2019)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input)


class SELU(_MaybeInPlace):
    """1.0507 elu(x, 1.6733) (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input)


class CELU(_MaybeInPlace):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = real("alpha", alpha)

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Mish(_MaybeInPlace):
    """x tanh(softplus(x)) (Misra 2019)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input)


class PReLU(Module):
    """``leaky_relu`` with a slope that is learned (He et al. 2015).

    Parameters
    ----------
    num_parameters : int, default 1
        1, or the number of channels, which are on axis 1.
    init : float, default 0.25

    Attributes
    ----------
    weight : Parameter, shape (num_parameters,)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device=None, dtype=None) -> None:
        super().__init__()
        self.num_parameters, self.init = all_of((count, "num_parameters", num_parameters), (real, "init", init))
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Sets the slopes to `init`."""
        constant_(self.weight, float(self.init))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(cast_input(input, self.weight, "PReLU"), self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """a sigmoid(b), where a and b are the halves of the axis `dim` (Dauphin et al. 2017)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSigmoid(Module):
    """log(1 / (1 + exp(-x))), without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Softmin(Softmax):
    """Softmax of -x along the axis `dim`, by default the last one."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, dim=self.dim)
