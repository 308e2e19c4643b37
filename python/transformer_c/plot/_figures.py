"""Shared by all figures: a Figure without pyplot, arguments as arrays, ticks that do not collide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIGHT, WRONG = "#2a8a3e", "#d6402b"  # readable on white and on black


def new_figure(width: float, height: float) -> Figure:
    """A Figure of width x height inches, laid out so that nothing overlaps."""
    try:
        from ._notebook_figure import NotebookFigure
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "tc.plot draws with matplotlib, which is not installed: pip install 'transformer_c[tutorial]' (or pip install matplotlib)",
            name="matplotlib",
        ) from None
    return NotebookFigure(figsize=(width, height), layout="constrained")


def as_array(value: Any, name: str, *ranks: int) -> np.ndarray:
    """An ndarray of one of the ranks; Tensors are detached and moved to the CPU, half types become float32."""
    for method in ("detach", "cpu"):
        value = getattr(value, method)() if hasattr(value, method) else value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} has dtype {array.dtype}; expected numbers")
    if array.dtype.name in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    if ranks and array.ndim not in ranks:
        raise ValueError(f"{name} has shape {array.shape}; expected {' or '.join(str(r) for r in ranks)} dimensions")
    return array


def span(arrays: Iterable[np.ndarray]) -> tuple[float, float]:
    """The smallest and the largest finite value in some arrays; (0, 1) if there is none."""
    finite = [array[np.isfinite(array)] for array in arrays]
    finite = [values for values in finite if values.size]
    if not finite:
        return 0.0, 1.0
    return float(min(v.min() for v in finite)), float(max(v.max() for v in finite))


def text_colour() -> str:
    """The style's colour of text."""
    import matplotlib

    return matplotlib.rcParams["text.color"]


def sparse_ticks(count: int, most: int = 20) -> np.ndarray:
    """Indices of at most `most` evenly spaced ticks, starting at 0."""
    return np.arange(0, count, max(1, -(-count // most)))
