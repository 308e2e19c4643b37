"""The layers: each wraps one function and its parameters. `inplace` of Dropout is accepted; the result is always a new Tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functional as F
from .._arguments import all_of, array, count, integer, not_negative, probability, real
from .._core import Tensor
from .._names import explained
from .._promotion import cast_input
from .._recording import no_grad
from .._tensor import as_tensor, ones, zeros
from ..functional.lookup import refuse_rescaling
from . import init
from .module import Module
from .module_hooks import Hooked
from .parameter import Parameter, registered, uninitialised

__all__ = [
    "CosineSimilarity",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePool1D",
    "GlobalMaxPool1D",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "PairwiseDistance",
    "RMSNorm",
    "Unflatten",
]


class Linear(Module):
    """y = x W^T + b.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool, default True

    Attributes
    ----------
    weight : Parameter, shape (out_features, in_features)
        Initially U(-1/sqrt(in_features), 1/sqrt(in_features)), drawn as in PyTorch.
    bias : Parameter, shape (out_features,), or None

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.Linear(3, 5)(np.ones((2, 3), np.float32)).shape
    (2, 5)
    """

    weight: Parameter = registered("_parameters")
    bias: Any = registered("_parameters")

    @explained({"activation": "a layer of its own, such as nn.ReLU()", "units": "out_features"})
    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__()
        self.in_features, self.out_features = all_of((count, "in_features", in_features, 0), (count, "out_features", out_features, 0))
        self.weight = uninitialised(out_features, in_features, dtype=dtype, device=device)
        if bias:
            self.bias = uninitialised(out_features, dtype=dtype, device=device)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        if self.weight.numel():
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, *, sequence_lengths: Any = None) -> Tensor:
        """Maps input (..., in_features) to (..., out_features); `sequence_lengths` as for ``functional.linear``."""
        weight = self.weight
        return F.linear(cast_input(input, weight, "Linear"), weight, self.bias, sequence_lengths=sequence_lengths)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


_OWN_FORWARD = Linear.forward  # a program may set another on the class


def of_sequences(layer: Module, x: Tensor, lengths: Any) -> Tensor:
    """layer(x); a Linear is told the length of the sequence of every row, or the lengths of packed sequences, unless they are None."""
    if lengths is None or type(layer) is not Linear or Linear.forward is not _OWN_FORWARD or not Hooked.is_own(layer):
        return layer(x)
    return layer(x, sequence_lengths=lengths)


class _Norm(Module):
    """A layer that normalises the last axes, and may scale them by a weight."""

    weight: Any = registered("_parameters")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float,
        elementwise_affine: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self.normalized_shape = tuple(
            count("normalized_shape", length, 0) for length in (normalized_shape if np.iterable(normalized_shape) else (normalized_shape,))
        )
        self.eps: float | None = not_negative("eps", eps)
        self.elementwise_affine = elementwise_affine
        weight = Parameter(ones(*self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self) -> None:
        """Sets the weight to 1, and the bias, where there is one, to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if getattr(self, "bias", None) is not None:
            init.zeros_(self.bias)

    def _cast(self, input: Tensor) -> Tensor:
        return input if self.weight is None else cast_input(input, self.weight, type(self).__name__)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LayerNorm(_Norm):
    """Normalises the last axes to mean 0 and variance 1, then scales and shifts (Ba et al. 2016).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The lengths of the last axes, which are normalised together.
    eps : float, default 1e-5
        Added to the variance.
    elementwise_affine, bias : bool, default True
        Whether to have a weight and a bias of that shape.
    """

    bias: Any = registered("_parameters")
    eps: float

    @explained({"epsilon": "eps="})
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        has_bias = elementwise_affine and bias
        self.register_parameter("bias", Parameter(zeros(*self.normalized_shape, dtype=dtype, device=device)) if has_bias else None)

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *normalized_shape) to the same shape."""
        return F.layer_norm(self._cast(input), self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bias={self.bias is not None}"


class RMSNorm(_Norm):
    """Divides the last axes by their root mean square, then scales (Zhang and Sennrich 2019).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The lengths of the last axes, which are normalised together.
    eps : float, optional
        Added to the mean square. By default the machine epsilon of float64, or of float32 for float32 and halves.
    elementwise_affine : bool, default True
        Whether there is a weight of that shape.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True, device=None, dtype=None
    ) -> None:
        super().__init__(normalized_shape, 0.0 if eps is None else eps, elementwise_affine, device, dtype)
        if eps is None:
            self.eps = None

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *normalized_shape) to the same shape."""
        return F.rms_norm(self._cast(input), self.normalized_shape, self.weight, self.eps)


class GroupNorm(Module):
    """Normalises groups of channels of each sample to mean 0 and variance 1, then scales and shifts each channel (Wu and He 2018).

    Parameters
    ----------
    num_groups, num_channels : int
        The groups, which are equally large, and all channels.
    eps : float, default 1e-5
        Added to the variance.
    affine, bias : bool, default True
        Whether there is a weight, and beside it a bias, of shape (num_channels,).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.nn.GroupNorm(2, 4)(np.array([[1.0, 3.0, 10.0, 20.0]], np.float32)).round(3)
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    weight: Any = registered("_parameters")
    bias: Any = registered("_parameters")

    @explained({"epsilon": "eps=", "groups": "num_groups="})
    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device=None, dtype=None, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.num_groups, self.num_channels = all_of((count, "num_groups", num_groups, 1), (count, "num_channels", num_channels, 0))
        if self.num_channels % self.num_groups:
            raise ValueError(f"num_channels must be a multiple of num_groups, got {self.num_channels} and {self.num_groups}")
        self.eps, self.affine = not_negative("eps", eps), affine
        self.register_parameter("weight", Parameter(ones(num_channels, dtype=dtype, device=device)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_channels, dtype=dtype, device=device)) if affine and bias else None)

    reset_parameters = _Norm.reset_parameters

    def forward(self, input: Tensor) -> Tensor:
        """input (B, num_channels, ...) to the same shape."""
        input = input if self.weight is None else cast_input(input, self.weight, "GroupNorm")
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class Dropout(Module):
    """In train mode, sets elements to 0 with probability `p` and scales the others by 1 / (1 - p); in eval mode, does nothing.

    Parameters
    ----------
    p : float, default 0.5
    inplace : bool
        Accepted; the result is always a new Tensor.
    """

    @explained({"rate": "p="})
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p, self.inplace = probability("dropout", p), inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along the axis `dim`; see ``functional.cosine_similarity``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis; see ``functional.pairwise_distance``."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = real("p", p), real("eps", eps), keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class Identity(Module):
    """Returns its input; accepts and ignores any arguments."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Joins the axes from `start_dim` to `end_dim` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return as_tensor(array("Flatten", input)).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one axis into several: the inverse of ``Flatten``.

    Parameters
    ----------
    dim : int
    unflattened_size : sequence of int
        The lengths; one may be -1.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.nn.Unflatten(1, (2, 3))(tc.zeros(4, 6)).shape
    (4, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                f"unflattened_size must be a sequence of ints, got {unflattened_size!r:.80} ({type(unflattened_size).__name__})"
            )
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return as_tensor(array("Unflatten", input)).unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Embedding(Module):
    """Rows of a table, selected by integers.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    padding_idx : int, optional
        A row that starts as 0 and never gets a gradient.
    max_norm, norm_type, scale_grad_by_freq : optional
        Only PyTorch's defaults: rows and gradients are not rescaled.
    sparse : bool
        Accepted; gradients are dense.

    Attributes
    ----------
    weight : Parameter, shape (num_embeddings, embedding_dim)
        Initially N(0, 1).
    """

    weight: Parameter = registered("_parameters")

    @explained({"input_dim": "num_embeddings=", "output_dim": "embedding_dim=", "mask_zero": "padding_idx=0"})
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight=None,
        _freeze: bool = False,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        refuse_rescaling("Embedding", max_norm, scale_grad_by_freq)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        num_embeddings, embedding_dim = all_of((count, "num_embeddings", num_embeddings), (count, "embedding_dim", embedding_dim, 0))
        if padding_idx is not None:
            padding_idx = integer("padding_idx", padding_idx)
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"padding_idx {padding_idx} is outside the table of {num_embeddings} embeddings")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        if _weight is not None:
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        self.weight = uninitialised(num_embeddings, embedding_dim, dtype=dtype, device=device)
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings, freeze: bool = True, padding_idx: int | None = None):
        """A layer with the given table.

        Parameters
        ----------
        embeddings : array_like, shape (num_embeddings, embedding_dim)
            Copied.
        freeze : bool, default True
            Whether the table is not trained: its ``requires_grad`` is False.
        padding_idx : int, optional
            A row that never gets a gradient; it is left as it is.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> table = tc.nn.Embedding.from_pretrained(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
        >>> table(np.array([1, 0]))
        array([[3., 4.],
               [1., 2.]], dtype=float32)
        """
        table = embeddings.detach() if isinstance(embeddings, Tensor) else as_tensor(embeddings)
        if table.ndim != 2 or table.dtype.kind not in "fV":
            wrong = ValueError if table.dtype.kind in "fV" else TypeError
            raise wrong(
                f"embeddings must be a table of floats, (num_embeddings, embedding_dim), got {table.dtype.name} of shape {table.shape}"
            )
        rows, width = table.shape
        return cls(rows, width, padding_idx=padding_idx, _weight=table, _freeze=freeze)

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        """Maps integers input (...) to (..., embedding_dim)."""
        return F.embedding(input, self.weight, padding_idx=self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class GlobalMaxPool1D(Module):
    """The maximum over the sequence: x (B, T, C) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.global_max_pool1d(x)


class GlobalAveragePool1D(Module):
    """The mean over the sequence: x (B, T, C) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return array("GlobalAveragePool1D", x).mean(axis=1)
