"""Sequences of points in the plane, such as the corners of squares, with a model's predictions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ._figures import RIGHT, WRONG, as_array, new_figure, span, text_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sequences(
    points: Any,
    directions: Any = None,
    predictions: Any = None,
    *,
    beyond: bool = False,
    most: int = 10,
    n_rows: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draws sequences of points, numbered and joined by arrows, one panel per sequence; predictions are dashed.

    Parameters
    ----------
    points : list of array_like (L, 2), or array_like (N, L, 2)
    directions : array_like, shape (N,), optional
        1 clockwise, 0 counter-clockwise: written above each panel.
    predictions : list of array_like (P, 2), or array_like (N, P, 2), optional
        A model's predictions of the last P points.
    beyond : bool
        The predictions continue after the last point, because the true points are not known.
    most : int, default 10
        The largest number of sequences to draw, from the first on.
    n_rows : int, optional
        Number of rows of panels; by default there are five panels per row.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import transformer_c as tc
    >>> points, directions = tc.datasets.square_sequences(n=10)
    >>> figure = tc.plot.sequences(points, directions)
    >>> len(figure.axes)
    10
    """
    if most < 1 or (n_rows is not None and n_rows < 1):
        raise ValueError(f"most and n_rows must be at least 1, got {most} and {n_rows}")
    walks = _walks(points, "points")[:most]
    guesses = None if predictions is None else _walks(predictions, "predictions")[:most]
    turns = None if directions is None else as_array(directions, "directions", 1)[:most]
    for name, other in (("predictions", guesses), ("directions", turns)):
        if other is not None and len(other) != len(walks):
            raise ValueError(f"{name} has {len(other)} entries for {len(walks)} sequences")
    if not walks:
        raise ValueError("points is empty: there is nothing to draw")
    rows = n_rows or -(-len(walks) // 5)
    columns = -(-len(walks) // rows)
    figure = new_figure(2.1 * columns + 0.4, 2.4 * rows + (0.8 if title or guesses is not None else 0.4))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    reach = 1.25 * (max(map(abs, span([*walks, *(guesses or [])]))) or 1.0)  # predictions may be nan
    for i, ax in enumerate(grid):
        if i >= len(walks):
            ax.set_axis_off()
            continue
        _walk(ax, walks[i], None if guesses is None else guesses[i], beyond)
        if turns is not None:
            ax.set_title("clockwise" if turns[i] else "counter-clockwise", fontsize=9)
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.set_xlabel("$x_0$" if i + columns >= len(walks) else "")
        ax.set_ylabel("$x_1$" if i % columns == 0 else "")
        ax.grid(alpha=0.3)
    if guesses is not None:
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    if title:
        figure.suptitle(title)
    return figure


def _walks(value: Any, name: str) -> list[np.ndarray]:
    """Each sequence as (L, 2)."""
    items: Any = value if isinstance(value, (list, tuple)) else as_array(value, name, 3)
    walks = [as_array(v, f"{name}[{i}]", 2) for i, v in enumerate(items)]
    for i, walk in enumerate(walks):
        if walk.shape[1] != 2:
            raise ValueError(f"{name}[{i}] has shape {walk.shape}; expected (L, 2)")
    return walks


def _walk(ax: Any, points: np.ndarray, guess: np.ndarray | None, beyond: bool) -> None:
    """Draws one panel: the points joined and numbered from 1; the prediction starts at the last given point."""
    ax.plot(
        *points.T,
        color=RIGHT if guess is not None else "#2f6fb5",
        linewidth=1.5,
        marker="o",
        markersize=9,
        label="given" if beyond else "true",
    )
    for number, at in enumerate(points, 1):
        ax.annotate(str(number), at, ha="center", va="center", fontsize=7, color="white")
    for start, end in pairwise(points):
        middle = start + 0.6 * (end - start)
        arrow = dict(arrowstyle="-|>", color=text_colour(), linewidth=0)
        ax.annotate("", middle, start + 0.45 * (end - start), arrowprops=arrow)
    if guess is not None:
        given = points if beyond else points[: len(points) - len(guess)]
        path = np.concatenate([given[-1:], guess])
        ax.plot(
            *path.T,
            color=WRONG,
            linewidth=1.5,
            linestyle="--",
            marker="D",
            markersize=5,
            markevery=slice(len(given[-1:]), None),
            label="predicted",
        )
