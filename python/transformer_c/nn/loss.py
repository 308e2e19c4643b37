"""Losses as modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from .._arguments import not_negative, real
from .._core import Tensor
from .module import Module


class _Loss(Module):
    _reductions: tuple[str, ...] = ("none", "mean", "sum")

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        is_own = cls.__module__ == __name__  # the constructor of a subclass may take Tensors
        if is_own and len(arguments) > 1 and all(isinstance(argument, (Tensor, np.ndarray)) for argument in arguments[:2]):
            raise TypeError(f"make the loss first, then call it: {cls.__name__}()(input, target)")
        return super().__new__(cls)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if isinstance(reduction, (Tensor, np.ndarray)):
            raise TypeError(f"make the loss first, then call it: {type(self).__name__}()(input, target)")
        if reduction not in self._reductions:
            *others, last = map(repr, self._reductions)
            raise ValueError(f"reduction must be {', '.join(others)} or {last}, got {reduction!r}")
        self.reduction = reduction


def _factors(weight: Tensor | None, input: Tensor) -> Tensor | None:
    """Weights in the dtype of what they weight: NumPy's are float64 where nobody says otherwise."""
    dtype = getattr(input, "dtype", None)
    return weight if weight is None or getattr(dtype, "kind", "") not in ("f", "V") else weight.to(dtype)


class MSELoss(_Loss):
    """Mean of the squared differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(_Loss):
    """Cross-entropy between logits with classes on axis 1 and target classes or probabilities; see ``functional.cross_entropy``.

    Parameters
    ----------
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float, default 0
    """

    def __init__(self, weight=None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=_factors(self.weight, input),
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """Negative log-likelihood of classes, from log probabilities with classes on axis 1; see ``functional.nll_loss``.

    Parameters
    ----------
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
    """

    def __init__(self, weight=None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=_factors(self.weight, input), ignore_index=self.ignore_index, reduction=self.reduction)


class L1Loss(_Loss):
    """Mean of the absolute differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Absolute differences, squared where they are smaller than `beta`; see ``functional.smooth_l1_loss``."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = not_negative("beta", beta)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squares of differences smaller than `delta`, absolute values of others; see ``functional.huber_loss``."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = real("delta", delta)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of log probabilities from a target; see ``functional.kl_div``.

    Parameters
    ----------
    reduction : {"mean", "batchmean", "sum", "none"}
        "batchmean" is the divergence of the mathematical definition, averaged over a batch.
    log_target : bool, default False
        Whether targets are logarithms.
    """

    _reductions = ("none", "mean", "batchmean", "sum")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood of normal distributions, with means and variances; see ``functional.gaussian_nll_loss``."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, not_negative("eps", eps)

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = real("margin", margin)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, margin - target (x1 - x2)); the target is 1 or -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = real("margin", margin)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, |anchor - positive| - |anchor - negative| + margin); see ``functional.triplet_margin_loss``."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = real("margin", margin), real("p", p), real("eps", eps), swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap, reduction=self.reduction
        )


class BCELoss(_Loss):
    """Binary cross-entropy between probabilities and targets in [0, 1].

    Parameters
    ----------
    weight : array_like, optional
        Factor of each element; broadcasts.
    reduction : {"mean", "sum", "none"}
    """

    def __init__(self, weight=None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=_factors(self.weight, input), reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy between logits and targets in [0, 1].

    Parameters
    ----------
    weight, pos_weight : array_like, optional
        Factor of each element, and of the positive targets; they broadcast.
    reduction : {"mean", "sum", "none"}
    """

    def __init__(self, weight=None, reduction: str = "mean", pos_weight=None) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight, pos_weight = _factors(self.weight, input), _factors(self.pos_weight, input)
        return F.binary_cross_entropy_with_logits(input, target, weight=weight, pos_weight=pos_weight, reduction=self.reduction)
