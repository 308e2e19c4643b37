"""Normalisation of each channel over a batch."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from .._arguments import count, not_negative, real, switch
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from .._recording import no_grad
from .._tensor import ones, tensor, zeros
from . import init
from .module import Module
from .parameter import Parameter, registered

__all__ = ["BatchNorm1d", "BatchNorm2d"]


class _BatchNorm(Module):
    """What BatchNorm1d and BatchNorm2d have in common."""

    weight: Any = registered("_parameters")
    bias: Any = registered("_parameters")
    _axes: tuple[int, ...]
    _version = 2  # PyTorch's, with num_batches_tracked

    @explained({"epsilon": "eps="})
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device=None,
        dtype=None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps = count("num_features", num_features, 0), not_negative("eps", eps)
        self.momentum = None if momentum is None else real("momentum", momentum)
        self.affine, self.track_running_stats = switch("affine", affine), switch("track_running_stats", track_running_stats)
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.register_parameter("weight", Parameter(ones(num_features, **options)) if self.affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **options)) if self.affine and switch("bias", bias) else None)
        self.register_buffer("running_mean", zeros(num_features, **options) if self.track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **options) if self.track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device) if self.track_running_stats else None)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *reports):
        if self.num_batches_tracked is not None and (local_metadata.get("version") or 0) < 2:  # older files have none
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *reports)

    def reset_running_stats(self) -> None:
        """Forgets the means and variances of the batches so far."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            with no_grad():
                self.num_batches_tracked *= 0

    def reset_parameters(self) -> None:
        """Sets the weight to 1 and the bias to 0, and forgets the batches so far."""
        self.reset_running_stats()
        for values, fill in ((self.weight, init.ones_), (self.bias, init.zeros_)):
            if values is not None:
                fill(values)

    def forward(self, input: Tensor) -> Tensor:
        """input (B, num_features, ...) to the same shape."""
        x = input if self.weight is None else cast_input(input, self.weight, type(self).__name__)
        if x.ndim not in self._axes or x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__} takes input of {' or '.join(map(str, self._axes))} axes, (samples, {self.num_features}, ...), got shape "
                f"{tuple(x.shape)}"
            )
        of_batch, mean, var = self.training, self.running_mean, self.running_var
        if not of_batch or mean is None:
            return F.batch_norm(x, mean, var, self.weight, self.bias, mean is None, 0.0, self.eps)
        momentum = 1.0 / (int(self.num_batches_tracked) + 1) if self.momentum is None else self.momentum
        y = F.batch_norm(x, mean, var, self.weight, self.bias, True, momentum, self.eps)
        with no_grad():
            self.num_batches_tracked += 1
        return y

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (B, C) or (B, C, L) to mean 0 and variance 1, then scales and shifts (Ioffe and Szegedy 2015).

    In train mode by the mean and variance of the batch, in eval mode by those of the batches so far. Of several processes each normalises by
    its own batch.

    Parameters
    ----------
    num_features : int
        C.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        The share of each batch in the running mean and variance; None: all batches have equal shares.
    affine, bias : bool, default True
        Whether to have a weight and, with it, a bias.
    track_running_stats : bool, default True
        Whether there are a running mean and variance. Without, batches are normalised by their own in eval mode, too.

    Attributes
    ----------
    weight, bias : Parameter, shape (num_features,), or None
        Initially 1 and 0.
    running_mean, running_var : Tensor, shape (num_features,), or None
    num_batches_tracked : Tensor of int64, shape (), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> norm = tc.nn.BatchNorm1d(1)
    >>> norm(np.array([[1.0], [3.0]], np.float32)).round(3)
    array([[-1.],
           [ 1.]], dtype=float32)
    >>> norm.running_mean, norm.running_var
    (tensor([0.2000]), tensor([1.1000]))
    """

    _axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises each channel of images (B, C, H, W); parameters and attributes as those of ``BatchNorm1d``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.BatchNorm2d(3)(np.zeros((2, 3, 8, 8), np.float32)).shape
    (2, 3, 8, 8)
    """

    _axes = (4,)
