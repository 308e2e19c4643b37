"""Attention maps: which keys each query attends to."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._figures import as_array, new_figure, span, sparse_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_maps(
    maps: Any, input_data: Any = None, idx: int = 0, *, query_data: Any = None, title: str | None = None, scale: str = "figure"
) -> Figure:
    """Draws the maps of one batch element: one row per layer, one column per head.

    Parameters
    ----------
    maps : list of array_like, or array_like
        One map per layer, shape (B, H, Tq, Tk), as ``get_attention_maps`` returns them; (H, Tq, Tk) or (Tq, Tk) without a batch.
    input_data : array_like, optional
        Tick labels, numbers or words: (B, Tk), of which row `idx` is used, or (Tk,). Positions by default.
    idx : int, default 0
        Index of the batch element.
    query_data : array_like, optional
        The same for the queries, if they differ from the keys.
    title : str, optional
        Title of the whole figure.
    scale : {"figure", "panel"}
        One colour scale for all maps, or one for each, from 0 to its largest weight, which its title names: where one head attends to a
        single key, a common scale hides what the others do.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> maps = [np.full((8, 4, 5, 5), 0.2), np.full((8, 4, 5, 5), 0.2)]
    >>> figure = tc.plot.attention_maps(maps)
    >>> figure.axes[0].get_title(), len(figure.axes)                          # 2 layers of 4 heads, and the scale
    ('Layer 1, Head 1', 9)
    """
    if scale not in ("figure", "panel"):
        raise ValueError(f'scale is {scale!r}; expected "figure" or "panel"')
    idx = _index(idx)
    layers = [_one_map(m, f"maps[{i}]", idx) for i, m in enumerate(_as_layers(maps))]
    if len({m.shape[1:] for m in layers}) != 1:
        raise ValueError(f"the maps of the layers have different sizes: {[m.shape[1:] for m in layers]}")
    queries, keys = layers[0].shape[1:]
    key_labels = _labels(input_data, "input_data", idx, keys)
    if query_data is None and queries == keys:
        query_labels = key_labels
    else:
        query_labels = _labels(query_data, "query_data", idx, queries)

    columns = max(len(m) for m in layers)
    side = 4.2 if columns == 1 and len(layers) == 1 else 2.6
    room = (0.5 if title else 0.2) + (0.3 if columns > 1 else 0.0)  # panels next to each other leave less room for the labels below them
    most = 20 if side > 4 else 12
    is_upright = _inches(key_labels) * min(len(key_labels), most) > 0.7 * side
    width = side + _inches(query_labels)
    height = side + (_inches(key_labels) if is_upright else 0.0)
    figure = new_figure(columns * width + 1.0, len(layers) * height + room)
    grid = figure.subplots(len(layers), columns, squeeze=False)
    low, high = span(layers)
    aspect = "equal" if max(queries, keys) <= 4 * min(queries, keys) else "auto"  # a strip has no room for its labels
    for row, layer in enumerate(layers):
        for column, ax in enumerate(grid[row]):
            if column >= len(layer):
                ax.set_axis_off()
                continue
            if scale == "panel":
                low, high = span([layer[column]])
            limits = dict(vmin=min(low, 0.0), vmax=high if high > min(low, 0.0) else 1.0)
            image = ax.imshow(layer[column], origin="lower", aspect=aspect, cmap="cividis", interpolation="nearest", **limits)
            ax.set_title(f"Layer {row + 1}, Head {column + 1}" + (f", to {high:.2f}" if scale == "panel" else ""), fontsize=10)
            _ticks(ax.set_xticks, key_labels, most)
            _ticks(ax.set_yticks, query_labels, most)
            ax.tick_params(labelsize=8)
            ax.tick_params(axis="x", labelrotation=90 if is_upright else 0)
            ax.set_xlabel("key" if row == len(layers) - 1 else "")
            ax.set_ylabel("query" if column == 0 else "")
    if scale == "figure":
        figure.colorbar(image, ax=grid.ravel().tolist(), label="attention weight", shrink=0.9, aspect=30)
    if title:
        figure.suptitle(title)
    return figure


def _index(idx: Any) -> int:
    """The index of a batch element; a bool is refused."""
    try:
        if not isinstance(idx, bool):
            return operator.index(idx)
    except TypeError:
        pass
    raise TypeError(f"idx is of type {type(idx).__name__}; expected the number of a batch element")


def _inches(labels: list[str]) -> float:
    """Extra room in inches that the longest tick label needs compared with two digits."""
    return 0.08 * max(0, max(map(len, labels)) - 2)


def _as_layers(maps: Any) -> Sequence[Any]:
    layers = list(maps) if isinstance(maps, (list, tuple)) else [maps]
    if not layers:
        raise ValueError("maps is empty; expected the maps of at least one layer")
    return layers


def _one_map(value: Any, name: str, idx: int) -> np.ndarray:
    """(H, Tq, Tk) of one batch element."""
    array = as_array(value, name, 2, 3, 4)
    if array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}: there is nothing to draw")
    if array.ndim == 4:
        if not -len(array) <= idx < len(array):
            raise IndexError(f"idx is {idx}, but {name} has {len(array)} batch elements")
        array = array[idx]
    return array[None] if array.ndim == 2 else array


def _labels(data: Any, name: str, idx: int, count: int) -> list[str]:
    """The tick label of each position."""
    if data is None:
        return [str(i) for i in range(count)]
    if isinstance(data, (list, tuple, np.ndarray)) and np.asarray(data).dtype.kind == "U":
        array = np.asarray(data)
        if array.ndim not in (1, 2):
            raise ValueError(f"{name} has shape {array.shape}; expected 1 or 2 dimensions")
    else:
        array = as_array(data, name, 1, 2)
    if array.ndim == 2:
        if not -len(array) <= idx < len(array):
            raise IndexError(f"idx is {idx}, but {name} has {len(array)} rows")
        array = array[idx]
    found = [v if isinstance(v, str) else f"{v:g}" for v in array.tolist()]
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} positions, but the maps have {count}")
    return found


def _ticks(set_ticks: Any, labels: list[str], most: int) -> None:
    at = sparse_ticks(len(labels), most)
    set_ticks(at, [labels[i] for i in at])
