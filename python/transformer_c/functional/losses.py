"""Losses of predictions and targets."""

from __future__ import annotations

import math

import numpy as np

from .. import _core
from .._arguments import one_of, real
from .._array_loss import as_loss
from .._core import Tensor
from .._promotion import as_given, needed, promote, together
from .distances import pairwise_distance

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
    "triplet_margin_loss",
]


def cross_entropy(input, target, weight=None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
    """Cross-entropy between logits and targets.

    Parameters
    ----------
    input : array_like, shape (C,), (N, C) or (N, C, d1, ...)
        Logits, classes on axis 1.
    target : array_like
        Class indices, integers of shape (), (N,) or (N, d1, ...), or probabilities of the shape of `input`.
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
        The mean is weighted by `weight`.
    label_smoothing : float, default 0
        Fraction of the target that is spread over all classes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.cross_entropy(np.zeros((1, 4)), np.array([2]))) == np.log(4)
    True
    """
    input, weight = promote(input, weight)
    return as_loss(_core.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing))


def _weighted(loss, weight, reduction: str, by_weight: bool = True):
    """The losses of elements by their factors; as a mean divided by the sum of these, or by their number."""
    one_of("reduction", reduction, ("none", "mean", "sum"))

    def weigh(losses, factors):
        if losses.shape != factors.shape:
            raise ValueError(f"weight has shape {tuple(factors.shape)}; expected {tuple(losses.shape)}, that of the losses")
        found = _core.mul(losses, factors)
        if reduction == "none":
            return found
        return _core.div(_core.sum(found), _core.sum(factors)) if by_weight and reduction == "mean" else getattr(_core, reduction)(found)

    return as_loss(together(weigh, *promote(loss, weight)))


def mse_loss(input, target, reduction: str = "mean", weight=None):
    """The mean of the squared differences, their sum, or the squared differences themselves ("none").

    Parameters
    ----------
    input, target : array_like
        Of one shape.
    reduction : {"mean", "sum", "none"}
        The mean is weighted by `weight`.
    weight : array_like, optional
        Factor of each element, in the shape of `input`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.mse_loss(np.array([1.0, 2.0]), np.array([3.0, 5.0]), weight=np.array([1.0, 3.0])))
    7.75
    """
    if weight is not None:
        return _weighted(mse_loss(input, target, "none"), weight, reduction)
    input, target = promote(input, target)
    return as_loss(_core.mse_loss(input, target, reduction))


def l1_loss(input, target, reduction: str = "mean", weight=None):
    """The mean of the absolute differences, their sum, or the differences themselves ("none"). Parameters as for ``mse_loss``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.l1_loss(np.array([1.0, 2.0]), np.array([3.0, 2.0])))
    1.0
    """
    if weight is not None:
        return _weighted(l1_loss(input, target, "none"), weight, reduction)
    input, target = promote(input, target)
    return as_loss(_core.smooth_l1_loss(input, target, 0.0, reduction))


def smooth_l1_loss(input, target, reduction: str = "mean", beta: float = 1.0):
    """Absolute differences d, squared near 0: d^2 / (2 beta) where d < beta, d - beta / 2 elsewhere (Girshick 2015).

    Parameters
    ----------
    input, target : array_like
        Of one shape.
    reduction : {"mean", "sum", "none"}
    beta : float, default 1.0
        With 0 it is ``l1_loss``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.smooth_l1_loss(np.array([0.5, 3.0]), np.zeros(2), reduction="none")
    array([0.125, 2.5  ])
    """
    input, target = promote(input, target)
    return as_loss(_core.smooth_l1_loss(input, target, beta, reduction))


def huber_loss(input, target, reduction: str = "mean", delta: float = 1.0, weight=None):
    """Squares of small differences d, absolute values of large ones: d^2 / 2 where d < delta, delta (d - delta / 2) elsewhere (Huber 1964).

    Parameters
    ----------
    input, target : array_like
        Of one shape.
    reduction : {"mean", "sum", "none"}
    delta : float, default 1.0
        Positive; the loss is delta times ``smooth_l1_loss`` with beta = delta.
    weight : array_like, optional
        Factor of each element, in the shape of `input`. The mean is that of the products, as in PyTorch: it is not divided by the factors.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.huber_loss(np.array([0.5, 3.0]), np.zeros(2), reduction="none", delta=2.0)
    array([0.125, 4.   ])
    """
    if not real("delta", delta) > 0:
        raise ValueError(f"delta must be positive, got {delta}")
    if weight is not None:
        return _weighted(huber_loss(input, target, "none", delta), weight, reduction, by_weight=False)

    def loss(x, target):
        if delta > 1e19 and delta >= math.sqrt(np.finfo(x.dtype).max):  # every finite loss is a square
            return _core.mul(_core.mse_loss(x, target, reduction), 0.5)
        return _core.mul(_core.smooth_l1_loss(x, target, delta, reduction), delta)

    given = promote(input, target)
    return as_loss(loss(*given) if delta == 1 else together(loss, *given))  # times 1 rounds nothing


def kl_div(input, target, reduction: str = "mean", log_target: bool = False):
    """Kullback-Leibler divergence of the target from the input: target * (log target - input), element by element.

    Parameters
    ----------
    input : array_like
        Log probabilities, as ``log_softmax`` gives them.
    target : array_like, shape of `input`
        Probabilities, or their logarithms.
    reduction : {"mean", "batchmean", "sum", "none"}
        "batchmean" divides the sum by the first length, which is the divergence of a batch of distributions; "mean" by the number
        of elements.
    log_target : bool, default False
        Whether `target` contains logarithms.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> p, q = np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
    >>> float(tc.functional.kl_div(np.log(q), p, reduction="batchmean").round(4))
    0.1438
    """
    one_of("reduction", reduction, ("none", "batchmean", "mean", "sum"))
    input, target = promote(input, target)
    if reduction != "batchmean":
        return as_loss(_core.kl_div(input, target, reduction, log_target))
    batch = input.shape[0] if input.ndim else 1
    return as_loss(together(lambda x, p: _core.div(_core.kl_div(x, p, "sum", log_target), batch), input, target))


def nll_loss(input, target, weight=None, ignore_index: int = -100, reduction: str = "mean"):
    """Negative log-likelihood of classes: ``cross_entropy`` of log probabilities, as ``log_softmax`` gives them.

    Parameters
    ----------
    input : array_like, shape (C,), (N, C) or (N, C, d1, ...)
        Log probabilities, classes on axis 1.
    target : array_like of int, shape (), (N,) or (N, d1, ...)
    weight : array_like, shape (C,), optional
        Factor of each class.
    ignore_index : int, default -100
        Class index that is ignored in targets.
    reduction : {"mean", "sum", "none"}
        The mean is weighted by `weight`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.nll_loss(np.array([[-1.0, -2.0]]), np.array([1])))
    2.0
    """
    input, weight = promote(input, weight)
    return as_loss(_core.nll_loss(input, target, weight, ignore_index, reduction))


def _wants_gradient(*weights) -> bool:
    return _core.grad_enabled() and any(isinstance(w, Tensor) and w.requires_grad for w in weights)


def binary_cross_entropy(input, target, weight=None, reduction: str = "mean"):
    """-(t log p + (1 - t) log(1 - p)) for probabilities p and targets t; logarithms are bounded below by -100.

    Parameters
    ----------
    input : array_like
        Probabilities in [0, 1].
    target : array_like, shape of `input`
        Probabilities, too.
    weight : array_like, optional
        Factor of each element; broadcasts.
    reduction : {"mean", "sum", "none"}
    """
    input, target, weight = promote(input, target, weight)
    if _wants_gradient(weight):
        return _reduced(_core.mul, reduction, _core.binary_cross_entropy(input, target, None, "none"), weight)
    return as_loss(_core.binary_cross_entropy(input, target, weight, reduction))


def binary_cross_entropy_with_logits(input, target, weight=None, reduction: str = "mean", pos_weight=None):
    """Binary cross-entropy of sigmoid(input), without overflow.

    Parameters
    ----------
    input : array_like
        Logits.
    target : array_like, shape of `input`
    weight : array_like, optional
        Factor of each element; broadcasts.
    reduction : {"mean", "sum", "none"}
    pos_weight : array_like, optional
        Factor of the positive part; broadcasts, and gets a gradient where it requires one.
    """
    input, target, weight, pos_weight = promote(input, target, weight, pos_weight)
    if _wants_gradient(weight, pos_weight):
        factor = pos_weight.detach() if pos_weight is not None else None
        losses = _core.binary_cross_entropy_with_logits(input, target, None, factor, "none")
        if _wants_gradient(pos_weight):  # add (p - p) t log(1 + e^-x): 0, with the slope in p
            x, t = (a.detach() if isinstance(a, Tensor) else a for a in (input, target))
            ones = _core.add(_core.mul(t, 0.0), 1.0)
            slope = _core.mul(t, _core.binary_cross_entropy_with_logits(x, ones, None, None, "none"))
            losses = _core.add(losses, _core.mul(_core.sub(pos_weight, pos_weight.detach()), slope))
        return _reduced(_core.mul, reduction, losses, 1.0 if weight is None else weight)
    return as_loss(_core.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction))


def _same_ndim(**arrays) -> None:
    """An error for different numbers of axes, which would broadcast every row against every row."""
    needed(**arrays)
    if len({x.ndim for x in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in arrays.items())
        raise ValueError(f"the arguments must have the same number of axes; their shapes are {shapes}")


def _reduced(losses, reduction: str, *given):
    """losses(*given), their mean or their sum; of halves computed in float32."""
    one_of("reduction", reduction, ("none", "mean", "sum"))
    if reduction == "none":
        return together(losses, *given)
    reduce = _core.mean if reduction == "mean" else _core.sum
    return as_loss(together(lambda *arrays: reduce(losses(*arrays)), *given))


def cosine_embedding_loss(input1, input2, target, margin: float = 0.0, reduction: str = "mean"):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    The squared lengths are larger by 1e-12 in the cosine, which is 0 for a vector of zeros.

    Parameters
    ----------
    input1, input2 : array_like, shape (N, D) or (D,)
    target : array_like, shape (N,) or ()
        1: they belong together; -1: they do not; the loss is 0 for any other number.
    margin : float, default 0
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> tc.functional.cosine_embedding_loss(x, x, np.array([1, -1]), reduction="none").round(4)
    array([0., 1.])
    """
    real("margin", margin)
    needed(input1=input1, input2=input2, target=target)
    (a, b), target = promote(input1, input2), as_given(target)
    if target.ndim > 1 or not a.ndim == b.ndim == target.ndim + 1:
        raise ValueError(
            "input1 and input2 must have shape (N, D) and target (N,), or (D,) and (): their shapes are "
            f"{tuple(a.shape)}, {tuple(b.shape)} and {tuple(target.shape)}"
        )

    def losses(a, b):
        lengths = (_core.add(_core.sum(_core.square(x), -1), 1e-12) for x in (a, b))
        cosine = _core.div(_core.sum(_core.mul(a, b), -1), _core.sqrt(_core.mul(*lengths)))
        near, far = _core.sub(1.0, cosine), _core.clamp_min(_core.sub(cosine, margin), 0.0)
        return _core.where(_core.eq(target, 1), near, _core.where(_core.eq(target, -1), far, 0.0))

    return _reduced(losses, reduction, a, b)


def margin_ranking_loss(input1, input2, target, margin: float = 0.0, reduction: str = "mean"):
    """max(0, margin - target (x1 - x2)): with target 1, x1 should be larger than x2 by the margin, with -1 smaller.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.functional.margin_ranking_loss(np.array([1.0, 1.0]), np.array([0.0, 3.0]), np.array([1.0, 1.0]), reduction="none")
    array([0., 2.])
    """
    real("margin", margin)
    x1, x2, target = promote(input1, input2, target)
    _same_ndim(input1=x1, input2=x2, target=target)

    def losses(x1, x2, target):
        return _core.clamp_min(_core.sub(margin, _core.mul(target, _core.sub(x1, x2))), 0.0)

    return _reduced(losses, reduction, x1, x2, target)


def triplet_margin_loss(
    anchor, positive, negative, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
):
    """max(0, |anchor - positive| - |anchor - negative| + margin), with ``pairwise_distance`` along the last axis.

    Parameters
    ----------
    anchor, positive, negative : array_like, shape (N, D) or (D,)
    margin : float, default 1.0
    p, eps : float
        As for ``pairwise_distance``.
    swap : bool, default False
        Use the distance of positive and negative where it is the smaller one (Balntas et al. 2016).
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> a = np.zeros((1, 2))
    >>> float(tc.functional.triplet_margin_loss(a, a, a + [[3.0, 4.0]], margin=6.0).round(4))
    1.0
    """
    real("margin", margin)
    anchor, positive, negative = promote(anchor, positive, negative)
    _same_ndim(anchor=anchor, positive=positive, negative=negative)

    def losses(anchor, positive, negative):
        near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
        if swap:
            far = _core.minimum(far, pairwise_distance(positive, negative, p, eps))
        return _core.clamp_min(_core.add(_core.sub(near, far), margin), 0.0)

    return _reduced(losses, reduction, anchor, positive, negative)


def gaussian_nll_loss(input, target, var, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
    """(log var + (x - target)^2 / var) / 2: the negative log-likelihood of a normal distribution.

    Parameters
    ----------
    input, target : array_like
        Means and observations.
    var : array_like
        Variances, not negative, of the shape of `input` or one for each row: without the last axis, or with length 1 along one axis.
    full : bool, default False
        Whether to add the constant log(2 pi) / 2.
    eps : float, default 1e-6
        The least variance; a smaller one counts as this, also in its gradient.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> float(tc.functional.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0])))
    2.0
    """
    needed(input=input, target=target, var=var)
    x, target, given = promote(input, target, var)
    if given.shape != x.shape and not isinstance(var, (int, float)):
        if x.ndim and given.shape == x.shape[:-1]:
            given = given.reshape(*given.shape, 1)
        elif given.ndim != x.ndim or sum(n for n, m in zip(given.shape, x.shape, strict=True) if n != m) != 1:
            raise ValueError(
                f"var has shape {tuple(given.shape)} but input has {tuple(x.shape)}: it must be that, or that without the last axis or with "
                "length 1 along one axis"
            )
    if not _core.is_traced() and bool(_core.any(_core.lt(given, 0.0))):  # a graph has no checks
        raise ValueError("var has a negative value")

    def losses(x, target, given):
        variance = _core.maximum(given, eps)
        if getattr(given, "requires_grad", False):  # a smaller variance gets the gradient that eps has
            raised = _core.add(given, _core.sub(eps, given.detach()))
            variance = _core.where(_core.lt(given.detach(), eps), raised, given)
        difference = _core.sub(x, target)
        loss = _core.mul(_core.add(_core.log(variance), _core.div(_core.mul(difference, difference), variance)), 0.5)
        return _core.add(loss, 0.5 * math.log(2 * math.pi)) if full else loss

    return _reduced(losses, reduction, x, target, given)
