"""Einstein's summation, by products of matrices."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from .. import _core
from .._core import Tensor
from .._promotion import promote
from .._tensor import no_grad
from ._calls import takes_arrays, to_arrays


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
    operands = promote(*operands)
    if any(isinstance(x, Tensor) for x in operands):
        return _einsum(equation, [_core.as_argument(x) for x in operands])
    with no_grad():
        return to_arrays(_einsum(equation, [_core.as_argument(x) for x in operands]))


def _matrices(name: str, ndim: int, input: Any, other: Any) -> Any:
    other = _core.as_argument(other)
    for argument, x in (("input", input), ("other", other)):
        if x.ndim != ndim:
            raise ValueError(f"{argument} has shape {x.shape}; {name}() takes arrays of {ndim} axes (matmul takes any)")
    if ndim == 3 and input.shape[0] != other.shape[0]:
        raise ValueError(f"bmm() takes as many matrices of both: input has shape {input.shape}, other {other.shape}")
    return _core.matmul(input, other)


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
    return _matrices("mm", 2, input, mat2)


@takes_arrays("input", "mat2")
def bmm(input: Any, mat2: Any) -> Any:
    """The products of as many pairs of matrices: ``matmul`` for arrays (B, M, K) and (B, K, N).

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.bmm(np.ones((4, 2, 3)), np.ones((4, 3, 5))).shape
    (4, 2, 5)
    """
    return _matrices("bmm", 3, input, mat2)


def _labels(equation: str, operands: list[Tensor]) -> tuple[list[str], str]:
    """A label for every axis: letters, and for those of "..." characters that the equation cannot have."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"the equation {equation!r} has {len(terms)} terms for {len(operands)} operands")
    for term in [*terms, right]:
        odd = set(term.replace("...", "", 1)) - set(string.ascii_letters)
        if odd:
            raise ValueError(f"the equation {equation!r} has {sorted(odd)[0]!r}; labels are letters, '...' stands for other axes")
    further = [x.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, operands, strict=True)]
    rest = "".join(chr(0x100 + i) for i in range(max(further, default=0) if min(further, default=0) >= 0 else 0))
    found = []
    for term, x, n in zip(terms, operands, further, strict=True):
        if n < 0 or ("..." not in term and len(term) != x.ndim):
            raise ValueError(f"the term {term!r} of {equation!r} does not fit an operand of shape {x.shape}")
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


def _diagonal(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Of an operand that has a label twice, the elements where both indices are equal."""
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            first, second = term.index(label), term.rindex(label)
            length = x.shape[first]
            if x.shape[second] != length:
                raise ValueError(f"axes {first} and {second} of an operand have one label, but its shape is {x.shape}")
            order = [i for i in range(x.ndim) if i not in (first, second)]
            flat = x.permute([first, second, *order]).reshape([length * length, *(x.shape[i] for i in order)])
            x = flat[:: length + 1] if length else flat
            term = label + "".join(term[i] for i in order)
    return x, term


def _summed(x: Tensor, term: str, kept: str) -> tuple[Tensor, str]:
    axes = [i for i, label in enumerate(term) if label not in kept]
    return (x.sum(axes), "".join(label for label in term if label in kept)) if axes else (x, term)


def _shaped(x: Tensor, term: str, groups: list[str], sizes: dict[str, int]) -> Tensor:
    """x with the axes of each group joined into one."""
    order = [term.index(label) for group in groups for label in group]
    lengths = [sizes[label] for group in groups for label in group]
    joined = [int(np.prod([sizes[label] for label in group], dtype=np.int64)) for group in groups]
    return x.permute(order).expand(lengths).reshape(joined) if order else x.reshape(joined)


def _pair(a: Tensor, a_term: str, b: Tensor, b_term: str, kept: str, sizes: dict[str, int]) -> tuple[Tensor, str]:
    a, a_term = _summed(a, a_term, kept + b_term)
    b, b_term = _summed(b, b_term, kept + a_term)
    shared = [label for label in a_term if label in b_term]
    batch = "".join(label for label in shared if label in kept)
    inner = "".join(label for label in shared if label not in kept)
    rows = "".join(label for label in a_term if label not in b_term)
    columns = "".join(label for label in b_term if label not in a_term)
    left = _shaped(a, a_term, [batch, rows, inner], sizes)
    if inner:
        product = _core.matmul(left, _shaped(b, b_term, [batch, inner, columns], sizes))
    else:
        product = _core.mul(left, _shaped(b, b_term, [batch, inner, columns], sizes))
    term = batch + rows + columns
    return product.reshape([sizes[label] for label in term]), term


def _order(terms: list[str], result: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Pairs of places in the list of operands; the result of a pair is put at its end."""
    if len(terms) < 3:
        return [(0, 1)] * (len(terms) - 1)
    if len(sizes) > len(string.ascii_letters):
        return [(0, 1)] * (len(terms) - 1)
    letters = dict(zip(sizes, string.ascii_letters, strict=False))
    named = ",".join("".join(letters[label] for label in t) for t in terms) + "->" + "".join(letters[label] for label in result)
    one = np.empty((), np.int8)
    shapes = [np.broadcast_to(one, [sizes[label] for label in t]) for t in terms]
    path = np.einsum_path(named, *shapes, optimize="greedy")[0][1:]
    return list(path) if all(len(pair) == 2 for pair in path) else [(0, 1)] * (len(terms) - 1)


def _einsum(equation: str, operands: list[Tensor]) -> Tensor:
    terms, result = _labels(equation, operands)
    if len({x.dtype for x in operands}) > 1:
        names = ", ".join(x._dtype_name for x in operands)
        raise TypeError(f"einsum() takes operands of one dtype, not {names}; convert them with .to()")
    sizes: dict[str, int] = {}
    for i, x in enumerate(operands):
        operands[i], terms[i] = _diagonal(x, terms[i])
        for label, length in zip(terms[i], operands[i].shape, strict=True):
            known = sizes.setdefault(label, length)
            if length != known and 1 not in (length, known):
                raise ValueError(
                    f"{equation!r}: an axis has lengths {known} and {length} (shapes {', '.join(str(o.shape) for o in operands)})"
                )
            sizes[label] = length if known == 1 else known
    for pair in _order(terms, result, sizes):
        second, first = operands.pop(max(pair)), operands.pop(min(pair))
        second_term, first_term = terms.pop(max(pair)), terms.pop(min(pair))
        product, term = _pair(first, first_term, second, second_term, result + "".join(terms), sizes)
        operands.append(product)
        terms.append(term)
    x, term = _summed(operands[0], terms[0], result)
    return x.permute([term.index(label) for label in result]) if term != result else x


__all__ = [
    "bmm",
    "einsum",
    "mm",
]
