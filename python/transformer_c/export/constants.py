"""Arrays that a forward makes from lengths alone: what is the same at all of them, progressions, triangles and runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .sizes import Formulas, Size
from .tracing import ExportError, Value


@dataclass
class Constant:
    """Numbers that depend on lengths only, by place: start + the sum over axes of step * index; or two values, of which one is below a
    diagonal, or on it (`is_band`); or, of one axis, `runs` of (start, step, length) one after the other."""

    shape: list[int | Size]
    dtype: np.dtype
    start: Any = 0
    steps: tuple[Any, ...] = ()
    diagonal: int | Size | None = None
    inside: Any = None  # where column - row <= diagonal, or == diagonal
    outside: Any = None
    is_band: bool = False
    runs: tuple[tuple[Any, Any, Any], ...] = ()


def varying(arrays: list[np.ndarray], shape: list[int | Size], formulas: Formulas) -> np.ndarray | Constant:
    """A constant whose shape or numbers depend on lengths: a progression along the axes, or a triangle of two values."""
    one = arrays[0]
    dtype = one.dtype
    if all(equal(a, one) for a in arrays):
        return one

    def fit(numbers: list[Any]) -> Any:
        return formulas.integer([int(n) for n in numbers]) if dtype.kind in "biu" else formulas.real([float(n) for n in numbers])

    if all(a.size for a in arrays):
        starts = [a[(0,) * a.ndim] for a in arrays]
        steps = [_steps(a) for a in arrays]
        start = fit(starts)
        if start is not None and all(_is_progression(a, s) for a, s in zip(arrays, steps, strict=True)):
            fitted = [
                fit([s[axis] for s in steps]) if one.shape[axis] > 1 else fit([steps[-1][axis]] * len(steps)) for axis in range(one.ndim)
            ]
            if all(f is not None for f in fitted):
                return Constant(shape, dtype, start, tuple(fitted))
        if one.ndim >= 2:
            triangles = [t for a in arrays if (t := _triangle(a)) is not None]
            if len(triangles) == len(arrays) and len({t[1:] for t in triangles}) == 1:
                diagonal = formulas.integer([t[0] for t in triangles])
                if diagonal is not None:
                    _, inside, outside, is_band = triangles[0]
                    return Constant(shape, dtype, diagonal=diagonal, inside=inside, outside=outside, is_band=is_band)
    if one.ndim == 1 and dtype.kind in "iu" and all(a.size for a in arrays):
        pieces = [_runs(a) for a in arrays]
        if len({len(p) for p in pieces}) == 1:
            fitted = [tuple(fit([p[i][k] for p in pieces]) for k in range(3)) for i in range(len(pieces[0]))]
            if all(number is not None for run in fitted for number in run):
                return Constant(shape, dtype, runs=tuple(fitted))
    raise ExportError(
        f"an array of shape {one.shape} that forward makes outside the library (NumPy) depends on the lengths of the inputs, and is no arithmetic "
        "progression and no triangle; make it with ops, or make it once for the longest input, as a buffer, and cut it in forward"
    )


def array_of(value: Value) -> np.ndarray:
    assert value.tensor is not None
    return value.tensor.cpu().numpy()


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _steps(a: np.ndarray) -> list[Any]:
    """The mean difference between neighbours along each axis, at index 0 of the others."""
    steps: list[Any] = []
    for axis, length in enumerate(a.shape):
        row = np.moveaxis(a, axis, 0).reshape(length, -1)[:, 0]
        if a.dtype.kind in "biu":
            steps.append((int(row[-1]) - int(row[0])) // max(length - 1, 1))
        else:
            steps.append((float(row[-1]) - float(row[0])) / max(length - 1, 1) if row[-1] != row[0] else 0.0)
    return steps


def _is_progression(a: np.ndarray, steps: list[Any]) -> bool:
    if a.dtype.kind == "b" and any(steps):
        return False
    expected = np.full(a.shape, a[(0,) * a.ndim], np.float64)
    with np.errstate(invalid="ignore"):
        for axis, step in enumerate(steps):
            expected = expected + float(step) * np.arange(a.shape[axis]).reshape([-1 if k == axis else 1 for k in range(a.ndim)])
        largest = np.abs(expected).max(initial=0.0, where=np.isfinite(expected))
        return bool(np.allclose(a.astype(np.float64), expected, rtol=0, atol=1e-6 * largest * (a.dtype.kind == "f"), equal_nan=True))


def _triangle(a: np.ndarray) -> tuple[int, Any, Any, bool] | None:
    """(diagonal, value there or below, value elsewhere, whether it is the diagonal alone), if all matrices are that."""
    flat = a.reshape(-1, *a.shape[-2:])
    low, high = flat[0, -1, 0], flat[0, 0, -1]
    if (flat != flat[0]).any():
        return None
    place = np.arange(a.shape[-1]) - np.arange(a.shape[-2])[:, None]
    is_band = bool(low == high)
    inside = flat[0] != high if is_band else flat[0] == low
    if not inside.any():
        return None
    diagonal, value = int(place[inside].max()), flat[0][inside][0]
    expected = np.where(place == diagonal if is_band else place <= diagonal, value, high)
    return (diagonal, value.item(), high.item(), is_band) if (expected == flat[0]).all() else None


def _runs(a: np.ndarray) -> list[tuple[int, int, int]]:
    """An array as (start, step, length) of arithmetic progressions, each as long as can be."""
    runs, start, n = [], 0, len(a)
    while start < n:
        end = start + 1
        step = int(a[end]) - int(a[start]) if end < n else 0
        while end < n and int(a[end]) - int(a[end - 1]) == step:
            end += 1
        runs.append((int(a[start]), step, end - start))
        start = end
    return runs


__all__ = ["Constant", "array_of", "equal", "varying"]
