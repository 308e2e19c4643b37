"""Einstein's summation, by products of matrices."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._arguments import tensor_of
from .._core import Tensor
from .._promotion import is_floating, promote
from ._calls import takes_arrays, with_tensors

_LABELS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(equation: str, *operands: Any) -> Any:
    """Sums of products by the labels of axes: ``"bij,bjk->bik"``.

    Parameters
    ----------
    equation : str
        A letter for each axis of each operand, and after "->" for each axis of the result; without "->" those that occur once, in
        alphabetical order. "..." stands for any further axes, which broadcast.
    *operands : array_like, or one sequence of them

    Returns
    -------
    Tensor or ndarray
        Pairs of operands are contracted as products of matrices, in an order that keeps the work small.

    Raises
    ------
    ValueError
        When the equation does not fit the shapes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.einsum("ij,kj->ik", np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """
    if not isinstance(equation, str):
        raise TypeError(f"the equation must be a str, not {type(equation).__name__}")
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    return with_tensors(lambda tensors: _einsum(equation, tensors), promote(*operands))


def _matrices(function: str, ndim: int, beside: Any, **given: Any) -> Any:
    """The product of the two arrays `given`, by their names."""
    (first, a), (second, b) = given.items()
    a, b = tensor_of(first, a, beside), tensor_of(second, b, beside)
    if a.ndim != ndim or b.ndim != ndim:
        name, x = (first, a) if a.ndim != ndim else (second, b)
        raise ValueError(f"{name} has shape {x.shape}; {function}() takes arrays of {ndim} axes (matmul takes any)")
    if ndim == 3 and a.shape[0] != b.shape[0]:
        raise ValueError(f"{function}() takes as many matrices of both: {first} has shape {a.shape}, {second} {b.shape}")
    return _core.matmul(a, b)


@takes_arrays("input", "mat2")
def mm(input: Any, mat2: Any) -> Any:
    """The product of two matrices: ``matmul`` for arrays of two axes.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.mm(np.ones((2, 3)), np.ones((3, 1)))
    array([[3.],
           [3.]])
    """
    return _matrices("mm", 2, input, input=input, mat2=mat2)


@takes_arrays("input", "mat2")
def bmm(input: Any, mat2: Any) -> Any:
    """The products of as many pairs of matrices: ``matmul`` for arrays (B, M, K) and (B, K, N).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.bmm(np.ones((4, 2, 3)), np.ones((4, 3, 5))).shape
    (4, 2, 5)
    """
    return _matrices("bmm", 3, input, input=input, mat2=mat2)


def _plus(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * input + alpha * product, of the shape and dtype of the product; a `beta` of 0 leaves out input, NaN and all."""
    if (isinstance(beta, float) or isinstance(alpha, float)) and not is_floating(product):
        name, factor = ("beta", beta) if isinstance(beta, float) else ("alpha", alpha)
        raise TypeError(f"{name} {factor} cannot be written to a tensor of {product._dtype_name}; convert the tensors with .float()")
    product = product if alpha == 1 else _core.mul(product, alpha)
    if input.dtype != product.dtype:
        raise TypeError(f"input is {input._dtype_name} but the products are {product._dtype_name}; convert one with .to()")
    if input.shape != product.shape:
        input = input.expand(product.shape)
    if beta == 0:
        return product
    input = input if beta == 1 else _core.mul(input, beta)
    if input.requires_grad or product.requires_grad:
        return _core.add(input, product)
    return product.add_(input)  # which no one else has


@takes_arrays("input", "mat1", "mat2")
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)`` of two matrices; `input` broadcasts to the product.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.addmm(tc.tensor([10.0, 20.0]), tc.ones(1, 3), tc.ones(3, 2))
    tensor([[13., 23.]])
    """
    return _plus(input, _matrices("addmm", 2, input, mat1=mat1, mat2=mat2), beta, alpha)


@takes_arrays("input", "batch1", "batch2")
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``addmm`` for arrays (B, M, K) and (B, K, N).

    Examples
    --------
    >>> import transformer_c as tc
    >>> bias, q, k = tc.zeros(4, 5, 5), tc.ones(4, 5, 16), tc.ones(4, 5, 16)
    >>> scores = tc.baddbmm(bias, q, k.transpose(1, 2), alpha=0.25)
    >>> scores.shape
    (4, 5, 5)
    """
    return _plus(input, _matrices("baddbmm", 3, input, batch1=batch1, batch2=batch2), beta, alpha)


def _labels(equation: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[list[str], str]:
    """A label for every axis: letters, and for those of "..." characters that the equation cannot have."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"the equation {equation!r} has {len(terms)} terms for {len(shapes)} operands")
    for term in [*terms, right]:
        odd = set(term.replace("...", "", 1)) - set(_LABELS)
        if odd:
            raise ValueError(f"the equation {equation!r} has {sorted(odd)[0]!r}; labels are letters, '...' stands for other axes")
    further = [len(x) - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, shapes, strict=True)]
    rest = "".join(chr(0x100 + i) for i in range(max(further, default=0) if min(further, default=0) >= 0 else 0))
    found = []
    for term, shape, n in zip(terms, shapes, further, strict=True):
        if n < 0 or ("..." not in term and len(term) != len(shape)):
            raise ValueError(f"the term {term!r} of {equation!r} does not fit an operand of shape {shape}")
        found.append(term.replace("...", rest[len(rest) - n :]))
    used = "".join(found)
    if not arrow:
        return found, rest + "".join(sorted(c for c in set(used) if used.count(c) == 1 and c not in rest))
    result = right.replace("...", rest)
    for label in result:
        if result.count(label) > 1:
            raise ValueError(f"the result of {equation!r} has {label!r} twice")
        if label not in used:
            raise ValueError(f"the result of {equation!r} has {label!r}, which no operand has")
    return found, result


def _diagonal(x: Tensor, axes: tuple[int, int]) -> Tensor:
    """The elements whose indices of two axes are equal; their axis is the first of the result."""
    length, order = x.shape[axes[0]], [i for i in range(x.ndim) if i not in axes]
    flat = x.permute([*axes, *order]).reshape([length * length, *(x.shape[i] for i in order)])
    return flat[:: length + 1] if length else flat


def _order(terms: list[str], result: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Pairs of places in the list of operands; the result of a pair is put at its end."""
    if len(terms) < 3:
        return [(0, 1)] * (len(terms) - 1)
    if len(sizes) > len(_LABELS):
        return [(0, 1)] * (len(terms) - 1)
    letters = dict(zip(sizes, _LABELS, strict=False))
    named = ",".join("".join(letters[label] for label in t) for t in terms) + "->" + "".join(letters[label] for label in result)
    one = np.empty((), np.int8)
    shapes = [np.broadcast_to(one, [sizes[label] for label in t]) for t in terms]
    path = np.einsum_path(named, *shapes, optimize="greedy")[0][1:]
    return list(path) if all(len(pair) == 2 for pair in path) else [(0, 1)] * (len(terms) - 1)


class _Group(NamedTuple):
    """How an operand becomes a matrix, or a row of them: sums over `axes`, then views; None where there is nothing to do."""

    axes: list[int] | None
    order: list[int] | None
    lengths: list[int] | None
    shape: list[int] | None

    def __call__(self, x: Tensor) -> Tensor:
        if self.axes is not None:
            x = x.sum(self.axes)
        if self.order is not None:
            x = x.permute(self.order)
        if self.lengths is not None:
            x = x.expand(self.lengths)
        return x if self.shape is None else x.reshape(self.shape)


class _Pair(NamedTuple):
    """The product of the operands at two places, which is put at the end of the list in their place."""

    places: tuple[int, int]
    first: _Group
    second: _Group
    contracts: bool
    shape: list[int] | None


class _Plan(NamedTuple):
    diagonals: list[tuple[int, tuple[int, int]]]  # the operand, and two of its axes
    pairs: list[_Pair]
    last: _Group


def _group(term: str, kept: str, groups: list[str], sizes: dict[str, int], own: dict[str, int]) -> _Group:
    """The axes of each group joined into one, after a sum over those that are not in `kept`. `own`: the operand's lengths."""
    axes = [i for i, label in enumerate(term) if label not in kept]
    left = "".join(label for label in term if label in kept)
    labels = "".join(groups)
    order, lengths = [left.index(label) for label in labels], [sizes[label] for label in labels]
    joined = [math.prod(sizes[label] for label in group) for group in groups]
    return _Group(
        axes or None,
        order if order != sorted(order) else None,
        lengths if lengths != [own[label] for label in labels] else None,
        joined if joined != lengths else None,
    )


def _paired(a: str, b: str, result: str, sizes: dict[str, int], own: list[dict[str, int]], places: tuple[int, int]) -> tuple[_Pair, str]:
    left = "".join(label for label in a if label in result + b)
    right = "".join(label for label in b if label in result + left)
    shared = [label for label in left if label in right]
    batch = "".join(label for label in shared if label in result)
    inner = "".join(label for label in shared if label not in result)
    rows = "".join(label for label in left if label not in right)
    columns = "".join(label for label in right if label not in left)
    several = [batch] if batch or not inner else []
    first = _group(a, left, [*several, rows, inner], sizes, own[0])
    second = _group(b, right, [*several, inner, columns], sizes, own[1])
    term = batch + rows + columns
    lengths = [sizes[label] for label in term]
    joined = [math.prod(sizes[label] for label in group) for group in (*several, rows, columns)]
    return _Pair(places, first, second, bool(inner), lengths if lengths != joined else None), term


def _without_repeats(term: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], list[tuple[int, int]]]:
    """The term with every label once, its shape, and the axes of each ``_diagonal`` that leads there."""
    diagonals = []
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            first, second = term.index(label), term.rindex(label)
            if shape[first] != shape[second]:
                raise ValueError(f"the axes {label!r} of an operand of shape {shape} have lengths {shape[first]} and {shape[second]}")
            others = [i for i in range(len(term)) if i not in (first, second)]
            term, shape = label + "".join(term[i] for i in others), (shape[first], *(shape[i] for i in others))
            diagonals.append((first, second))
    return term, shape, diagonals


@functools.lru_cache(maxsize=256)
def _plan(equation: str, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
    given, result = _labels(equation, shapes)
    sizes: dict[str, int] = {}
    terms, lengths, diagonals = [], [], []
    for place, (term, shape) in enumerate(zip(given, shapes, strict=True)):
        term, shape, found = _without_repeats(term, shape)
        diagonals += [(place, axes) for axes in found]
        terms.append(term)
        lengths.append(dict(zip(term, shape, strict=True)))
        for label, length in lengths[-1].items():
            known = sizes.setdefault(label, length)
            if length != known and 1 not in (length, known):
                named = repr(label) if label in _LABELS else "'...'"
                raise ValueError(f"{equation!r}: the axis {named} has lengths {known} and {length} (shapes {', '.join(map(str, shapes))})")
            sizes[label] = length if known == 1 else known
    pairs = []
    for places in _order(terms, result, sizes):
        low, high = min(places), max(places)
        own = [lengths.pop(high), lengths.pop(low)][::-1]
        b, a = terms.pop(high), terms.pop(low)
        pair, term = _paired(a, b, result + "".join(terms), sizes, own, (low, high))
        pairs.append(pair)
        terms.append(term)
        lengths.append({label: sizes[label] for label in term})
    return _Plan(diagonals, pairs, _group(terms[0], result, list(result), lengths[0], lengths[0]))


def _einsum(equation: str, operands: list[Tensor]) -> Tensor:
    plan = _plan(equation, tuple([x.shape for x in operands]))
    if len({x._dtype_name for x in operands}) > 1 and any(contracts for *_, contracts, _ in plan.pairs):  # products alone promote
        names = ", ".join(x._dtype_name for x in operands)
        raise TypeError(f"einsum() sums products of operands of one dtype, not {names}; convert them with .to()")
    for place, axes in plan.diagonals:
        operands[place] = _diagonal(operands[place], axes)
    for (low, high), first, second, contracts, shape in plan.pairs:
        b, a = operands.pop(high), operands.pop(low)
        product = (_core.matmul if contracts else _core.mul)(first(a), second(b))
        operands.append(product if shape is None else product.reshape(shape))
    return plan.last(operands[0])


__all__ = [
    "addmm",
    "baddbmm",
    "bmm",
    "einsum",
    "mm",
]
