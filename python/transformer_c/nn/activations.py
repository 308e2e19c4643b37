"""Activations, with PyTorch's names and arguments. `inplace` is accepted; the result is always a new Tensor."""

from __future__ import annotations

from .. import functional as F
from .._arguments import all_of, count, not_negative, one_of, real
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from .._tensor import full
from .init import constant_
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _MaybeInPlace(Module):
    """A function with PyTorch's `inplace`, which is accepted; the result is always a new Tensor."""

    @explained({})
    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_MaybeInPlace):
    """max(x, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input)


class SiLU(_MaybeInPlace):
    """x sigmoid(x), also called swish (Hendrycks & Gimpel 2016; Ramachandran et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input)


class LeakyReLU(_MaybeInPlace):
    """x where it is positive, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = real("negative_slope", negative_slope)

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_MaybeInPlace):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere (Clevert et al. 2016)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = real("alpha", alpha)

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is larger than `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = all_of((real, "beta", beta), (real, "threshold", threshold))

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GELU(Module):
    """x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution (Hendrycks & Gimpel 2016).

    Parameters
    ----------
    approximate : {"none", "tanh"}
        The exact function, or its approximation by tanh.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = one_of("approximate", approximate, ("none", "tanh"))

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along the axis `dim`, by default the last one."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, dim=self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of softmax along the axis `dim`, by default the last one."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, dim=self.dim)


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


class Hardshrink(Module):
    """x where |x| is larger than lambd, 0 elsewhere."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = real("lambd", lambd)

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """x brought nearer to 0 by lambd, and 0 where it was as near already."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(not_negative("lambd", lambd))

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Threshold(_MaybeInPlace):
    """x where it is larger than `threshold`, `value` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold, self.value = all_of((real, "threshold", threshold), (real, "value", value))

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class RReLU(_MaybeInPlace):
    """``leaky_relu`` with a slope that is drawn in train mode, for each element; see ``functional.rrelu`` (Xu et al. 2015)."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower, self.upper = all_of((real, "lower", lower), (real, "upper", upper))

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")
