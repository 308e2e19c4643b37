"""Weights with a norm of their own (`weight_norm`), or whose largest singular value is 1 (`spectral_norm`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._arguments import count, integer
from ..._core import Tensor
from ..._names import hooks
from ..._recording import no_grad
from ...functional import normalize
from ...tensor_functions import norm
from ..module import Module
from .parametrize import is_parametrized, register_parametrization


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else integer("dim", dim)

    def _norm(self, v: Tensor) -> Tensor:
        """Of all axes but one; -1 means of all, as in PyTorch."""
        if self.dim == -1:
            return norm(v)
        others = [axis for axis in range(v.ndim) if axis != self.dim % v.ndim]
        return norm(v, 2, others, keepdim=True) if others else v.abs()

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / self._norm(v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._norm(weight), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Lets a weight be v times g / |v|, of two parameters: a direction and its length (Salimans & Kingma 2016); returns the module.

    Parameters
    ----------
    module : Module
    name : str
    dim : int or None
        The axis along which there is a length for each slice; None and -1: one for all.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.utils.parametrizations.weight_norm(tc.nn.Linear(3, 2))
    >>> {key: tuple(value.shape) for key, value in layer.state_dict().items()}
    {'bias': (2,), 'parametrizations.weight.original0': (2, 1), 'parametrizations.weight.original1': (2, 3)}
    """
    if is_parametrized(module, name):
        raise RuntimeError(
            f"{name!r} of {type(module).__name__} is computed already, and weight_norm, which takes two parameters, can only be the first to "
            "compute it; remove_parametrizations() makes it a parameter again"
        )
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_Renaming(name))
    return module


class _Renaming:
    """Takes the keys of PyTorch's older ``nn.utils.weight_norm``, before a state dict is loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state: dict[str, Any], prefix: str, *unused: Any) -> None:
        name = self.name
        if f"{prefix}{name}_g" in state and f"{prefix}{name}_v" in state:
            for i, part in enumerate("gv"):
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(f"{prefix}{name}_{part}")


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= integer("dim", dim) < weight.ndim:
            raise IndexError(f"dim {dim} is out of range for a weight of {weight.ndim} axes")
        self.n_power_iterations, self.dim, self.eps = count("n_power_iterations", n_power_iterations), dim % weight.ndim, eps
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            for buffer, length in zip(("_u", "_v"), matrix.shape, strict=True):
                self.register_buffer(buffer, normalize(matrix.new_empty(length).normal_(), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        """Brings the vectors nearer to the first singular ones."""
        with no_grad():
            for _ in range(times):
                self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / (self._u.clone() @ (matrix @ self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divides a weight by its largest singular value, which each use in train mode estimates better (Miyato et al. 2018); returns the module.

    Parameters
    ----------
    module : Module
    name : str
    n_power_iterations : int
        Steps of the estimate at each use.
    eps : float
    dim : int, default 0
        The axis of the matrix's rows; all others are its columns.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.utils.parametrizations.spectral_norm(tc.nn.Linear(3, 2)).eval()
    >>> round(float(tc.linalg.svd(layer.weight.detach()).S[0]), 2)
    1.0
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim or 0, eps))


__all__ = ["spectral_norm", "weight_norm"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__, instead={"orthogonal": "tc.nn.utils.parametrize.register_parametrization, with a module of your own"}
    )
