"""Numbers that a forward took from shapes, as functions of the lengths of the axes that may change.

A module is traced at several lengths. A number that is the same everywhere is a constant; any other must be a formula of these lengths: a
sum or a product of functions of one length each, of which one is a polynomial of degree 2 at most, or rounds a quotient down. Traces at
lengths that took no part in finding a formula check it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise


@dataclass(frozen=True)
class Curve:
    """A function of one length k: (a k^2 + b k + c) / 2, or, with a divisor, factor * ((k + shift) // divisor) + c."""

    a: int = 0
    b: int = 0
    c: int = 0
    factor: int = 0
    shift: int = 0
    divisor: int = 0

    def __call__(self, k: int) -> int:
        if self.divisor:
            return self.factor * ((k + self.shift) // self.divisor) + self.c
        return (self.a * k * k + self.b * k + self.c) // 2


@dataclass(frozen=True)
class Size:
    """`joined` "sum": start plus what each curve adds to it; "product": start times what each curve multiplies it by, plus `offset`.

    `curves` has a pair (number of the axis, curve) for each axis that the value depends on; each curve gives the value when the other
    lengths are those of the first trace, and `start` is the value there.
    """

    start: int
    joined: str
    curves: tuple[tuple[int, Curve], ...]
    offset: int = 0

    def __call__(self, lengths: Sequence[int]) -> int:
        values = [curve(lengths[axis]) for axis, curve in self.curves]
        if self.joined == "sum":
            return self.start + sum(v - self.start for v in values)
        return math.prod(values) // self.start ** (len(values) - 1) + self.offset


# The ways to combine curves, in the order in which they are tried.
_SHAPES = [("sum", 0), ("product", 0), *(("product", sign * n) for n in range(1, 33) for sign in (1, -1))]


@dataclass(frozen=True)
class Real:
    """A number that is `function` of a Size: "float", "reciprocal", "sqrt", "rsqrt" or "log"."""

    function: str
    size: Size


# Each with its inverse.
FUNCTIONS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "float": (float, float),
    "reciprocal": (lambda n: 1 / n, lambda v: 1 / v),
    "sqrt": (math.sqrt, lambda v: v * v),
    "rsqrt": (lambda n: 1 / math.sqrt(n), lambda v: 1 / (v * v)),
    "log": (math.log, math.exp),
}


def _fit_curve(points: dict[int, int]) -> Curve | None:
    """The curve through values at consecutive lengths."""
    lengths = sorted(points)
    first, values = lengths[0], [points[k] for k in lengths]
    steps = [b - a for a, b in pairwise(values)]
    bends = {b - a for a, b in pairwise(steps)}
    if len(bends) == 1:  # a quadratic, or a line
        bend = bends.pop()
        slope = 2 * steps[0] - bend * (2 * first + 1)
        return Curve(bend, slope, 2 * values[0] - bend * first * first - slope * first)
    for divisor in range(2, len(steps) // 2 + 1):
        jumps = [i for i, step in enumerate(steps) if step]
        factor, at = steps[jumps[0]], first + jumps[0] + 1
        shift = -at % divisor
        curve = Curve(factor=factor, shift=shift, divisor=divisor, c=values[0] - factor * ((first + shift) // divisor))
        if all(curve(k) == points[k] for k in lengths):
            return curve
    return None


class Formulas:
    """Finds formulas for values that are known at the lengths of some traces.

    Parameters
    ----------
    lengths : sequence of sequence of int
        The lengths of each trace. In the first all are as the example has them; others differ from it in one, or in all.
    """

    def __init__(self, lengths: Sequence[Sequence[int]]) -> None:
        self.lengths = [tuple(given) for given in lengths]
        first = self.lengths[0]
        self._along: dict[int, list[int]] = {axis: [0] for axis in range(len(first))}
        for i, given in enumerate(self.lengths):
            changed = [axis for axis in range(len(first)) if given[axis] != first[axis]]
            if len(changed) == 1:
                self._along[changed[0]].append(i)

    def integer(self, values: Sequence[int]) -> int | Size | None:
        """The constant or the formula with these values; None if there is none."""
        if len(set(values)) == 1:
            return values[0]
        for joined, offset in _SHAPES:
            curves = self._curves([v - offset for v in values])
            if curves is None:
                return None  # another offset would not help
            start = values[0] - offset
            size = Size(start, joined, curves, offset)
            if (start or joined == "sum") and all(size(given) == value for given, value in zip(self.lengths, values, strict=True)):
                return size
        return None

    def _curves(self, values: Sequence[int]) -> tuple[tuple[int, Curve], ...] | None:
        """The curve along each axis that the values depend on; None if one has none."""
        curves = []
        for axis, traces in self._along.items():
            points = {self.lengths[i][axis]: values[i] for i in traces}
            consecutive = {k: v for k, v in points.items() if all(j in points for j in range(min(points), k))}
            if len(set(points.values())) == 1:
                continue
            curve = _fit_curve(consecutive)
            if curve is None:
                return None
            curves.append((axis, curve))
        return tuple(curves)

    def real(self, values: Sequence[float]) -> float | Real | None:
        """The same for floats, which are a function of an integer."""
        if len(set(values)) == 1 or all(v != v for v in values):
            return values[0]
        for name, (function, inverse) in FUNCTIONS.items():
            try:
                whole = [round(inverse(v)) for v in values]
                good = all(math.isclose(function(n), v, rel_tol=1e-6) for n, v in zip(whole, values, strict=True))
            except (OverflowError, ValueError, ZeroDivisionError):
                continue
            size = self.integer(whole) if good else None
            if isinstance(size, Size):
                return Real(name, size)
        return None


def factors(size: Size) -> tuple[int, list[tuple[int, int]]] | None:
    """c and (axis, shift) of a product c * (k + shift) * ...; None for a size that is no such product of lines."""
    if size.joined != "product":
        return None
    scale, parts = 1, []
    for axis, curve in size.curves:
        if curve.divisor or curve.a or curve.b == 0 or curve.c % curve.b or curve.b % 2:
            return None
        scale *= curve.b // 2
        parts.append((axis, curve.c // curve.b))
    whole, rest = divmod(scale, size.start ** (len(parts) - 1))
    return (whole, parts) if rest == 0 else None


def line(size: Size) -> tuple[int, list[tuple[int, int]]] | None:
    """c and (axis, slope) of a sum c + slope * k + ...; None for a size that is no such sum of lines."""
    if size.joined != "sum" or any(curve.divisor or curve.a or curve.b % 2 or curve.c % 2 for _, curve in size.curves):
        return None
    constant = reduce(lambda c, curve: c + curve.c // 2 - size.start, (curve for _, curve in size.curves), size.start)
    return constant, [(axis, curve.b // 2) for axis, curve in size.curves]
