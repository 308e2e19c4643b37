"""Clipping of gradients, parameters as one vector; ``rnn``: sequences of different lengths as one batch; ``parametrize`` and
``parametrizations``: parameters that are computed from others."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..._core import Tensor
from ..._joining import cat
from ..._names import hooks
from ..._recording import no_grad
from ..._tensor import as_tensor
from ...optim import clip_grad_norm_, clip_grad_value_
from ...optim.gradients import clip_grads_with_norm_, get_total_norm
from . import parametrizations, parametrize, rnn

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "rnn",
    "vector_to_parameters",
]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of parameters, one parameter after the other, as a Tensor of one axis; gradients go back to the parameters.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.utils.parameters_to_vector(tc.nn.Linear(3, 2).parameters()).shape
    (8,)
    """
    return cat([parameter.reshape(-1) for parameter in _listed(parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the elements of a vector into parameters, one parameter after the other.

    Raises
    ------
    ValueError
        When the vector has more or fewer elements than the parameters; nothing is copied then.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(2, 1)
    >>> tc.nn.utils.vector_to_parameters(tc.tensor([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """
    listed, vector = _listed(parameters), as_tensor(vec)
    total = sum(parameter.numel() for parameter in listed)
    if vector.shape != (total,):
        raise ValueError(f"vec has shape {vector.shape}; expected ({total},), the number of elements of the parameters")
    with no_grad():
        for parameter, values in zip(listed, vector.split([parameter.numel() for parameter in listed]), strict=True):
            parameter.copy_(values.reshape(parameter.shape))


def _listed(parameters: Iterable[Tensor]) -> list[Tensor]:
    if not isinstance(parameters, Iterable) or isinstance(parameters, Tensor):
        raise TypeError("expected an iterable of parameters; pass module.parameters(), or [parameter]")
    return list(parameters)


if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            **{name: f"tc.nn.utils.parametrizations.{name}" for name in ("weight_norm", "spectral_norm")},
            **{f"remove_{name}": "tc.nn.utils.parametrize.remove_parametrizations" for name in ("weight_norm", "spectral_norm")},
            "skip_init": "with tc.nn.init.skip():",
        },
    )
