"""Curves: positional encodings, learning rates, training histories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._figures import as_array, new_figure, text_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def positional_encoding(encoding: Any, dimensions: Iterable[int] | None = None, positions: int | None = None) -> Figure:
    """Draws the encoding as an image over positions and hidden dimensions, or some of its dimensions as curves.

    Parameters
    ----------
    encoding : PositionalEncoding or array_like
        The module, its ``pe`` (1, T, C), or (T, C).
    dimensions : iterable of int, optional
        Hidden dimensions to draw as curves, counted from 1 as on the axes.
    positions : int, optional
        Number of positions to draw; all by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import transformer_c as tc
    >>> encoding = tc.PositionalEncoding(d_model=48, max_len=96)
    >>> picture = tc.plot.positional_encoding(encoding)
    >>> curves = tc.plot.positional_encoding(encoding, dimensions=[1, 2, 3, 4], positions=16)
    >>> len(curves.axes)
    4
    """
    table = as_array(getattr(encoding, "pe", encoding), "encoding", 2, 3)
    if table.ndim == 3:
        if len(table) != 1:
            raise ValueError(f"encoding has shape {table.shape}; expected (1, T, C) or (T, C)")
        table = table[0]
    if positions is not None and not 1 <= positions <= len(table):
        raise ValueError(f"positions is {positions}, but the encoding has {len(table)}")
    if table.size == 0:
        raise ValueError(f"encoding has shape {table.shape}: there is nothing to draw")
    table = table[:positions]
    return _encoding_picture(table) if dimensions is None else _encoding_curves(table, list(dimensions))


def _encoding_picture(table: np.ndarray) -> Figure:
    """Draws (T, C): position (counted from 1) to the right, hidden dimension downwards."""
    length, channels = table.shape
    figure = new_figure(8, 3.4)
    ax = figure.subplots()
    image = ax.imshow(
        table.T, cmap="RdGy", vmin=-1, vmax=1, extent=(0.5, length + 0.5, channels + 0.5, 0.5), aspect="auto", interpolation="nearest"
    )
    figure.colorbar(image, ax=ax, label="encoding")
    ax.set(title="Positional encoding over hidden dimensions", xlabel="position in sequence", ylabel="hidden dimension")
    for set_ticks, count in ((ax.set_xticks, length), (ax.set_yticks, channels)):
        step = 10 * max(1, round(count / 100)) if count > 20 else 5 if count > 5 else 1
        set_ticks([1, *(t for t in range(step, count + 1, step) if t > 1)])
    return figure


def _encoding_curves(table: np.ndarray, dimensions: list[int]) -> Figure:
    """Draws (T, C): one panel per dimension, two panels per row."""
    if not dimensions:
        raise ValueError("dimensions is empty; name at least one")
    for d in dimensions:
        if not 1 <= d <= table.shape[1]:
            raise ValueError(f"there is no hidden dimension {d}; the encoding has 1 to {table.shape[1]}")
    columns = min(2, len(dimensions))
    rows = -(-len(dimensions) // columns)
    figure = new_figure(5 * columns, 2.3 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    at = np.arange(1, len(table) + 1)
    few = len(at) <= 32
    for i, (ax, dimension) in enumerate(zip(grid, dimensions, strict=False)):
        ax.plot(at, table[:, dimension - 1], color=f"C{i}", marker="o" if few else None, markersize=5, markeredgecolor=text_colour())
        ax.set(title=f"Encoding in hidden dimension {dimension}", ylim=(-1.2, 1.2))
        ax.set_xlabel("position in sequence" if i >= len(dimensions) - columns else "")
        ax.set_ylabel("encoding" if i % columns == 0 else "")
        if few:
            ax.set_xticks(at)
        ax.grid(alpha=0.3)
    for ax in grid[len(dimensions) :]:
        ax.set_axis_off()
    return figure


def learning_rate(schedule: Any, steps: int | None = None, title: str | None = None) -> Figure:
    """Draws a schedule over optimizer steps.

    Parameters
    ----------
    schedule : CosineWarmupScheduler, callable or array_like
        The schedule, whose factor is drawn; a function of the step; or the learning rates themselves, one per step.
    steps : int, optional
        Number of steps to draw; a CosineWarmupScheduler's `max_iters` by default.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import transformer_c as tc
    >>> optimizer = tc.optim.Adam([tc.nn.Parameter(tc.empty(4, 4))], lr=1e-3)
    >>> figure = tc.plot.learning_rate(tc.CosineWarmupScheduler(optimizer, warmup=100, max_iters=2000))
    >>> figure.axes[0].get_ylabel()
    'learning rate factor'
    """
    factor = getattr(schedule, "get_lr_factor", schedule)
    if callable(factor):
        count = getattr(schedule, "max_num_iters", None) if steps is None else steps
        if count is None:
            raise ValueError("steps is missing: a function of the step has no end of its own")
        values, label = _evaluated(factor, int(count)), "learning rate factor"
    elif hasattr(schedule, "optimizer"):
        raise TypeError(
            f"schedule is a {type(schedule).__name__}, which knows its next rate alone; pass its function of the step, or the rates of a run"
        )
    else:
        values, label = as_array(schedule, "schedule", 1)[:steps], "learning rate"
    figure = new_figure(8, 3)
    ax = figure.subplots()
    ax.plot(np.arange(len(values)), values, linewidth=2)
    warmup = getattr(schedule, "warmup", None)
    if warmup is not None and warmup < len(values):
        ax.axvline(warmup, color=text_colour(), linestyle=":", linewidth=1)
        ax.annotate(f"warm-up ends: step {warmup:,}", (warmup, 0.05), xytext=(6, 0), textcoords="offset points", fontsize=9)
    name = "Cosine warm-up learning rate schedule" if hasattr(schedule, "get_lr_factor") else "Learning rate schedule"
    ax.set(title=title or name, xlabel="step (batches)", ylabel=label)
    ax.set_xlim(0, max(1, len(values)))
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    return figure


def _evaluated(factor: Callable[[int], float], count: int) -> np.ndarray:
    return np.array([factor(step) for step in range(count)], np.float64)


def losses(history: Mapping[str, Sequence[float]] | Any, *, log: bool = False, title: str | None = None) -> Figure:
    """Draws losses over epochs, and accuracies in a second panel.

    Parameters
    ----------
    history : Trainer, mapping of str to sequence, or array_like
        A trainer; its ``history``, of which names with "acc" in them are drawn in the right panel (in per cent), and "epoch" and "step" are
        ignored; or the losses alone.
    log : bool
        Use a logarithmic scale for the losses.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import transformer_c as tc
    >>> figure = tc.plot.losses({"train_loss": [2.3, 1.1, 0.4], "val_loss": [2.2, 0.9, 0.3], "val_acc": [0.2, 0.7, 0.9]})
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['loss', 'accuracy (%)']
    """
    history = getattr(history, "history", history)
    if isinstance(history, Mapping):
        named = {str(k): as_array(v, str(k), 1).astype(np.float64) for k, v in history.items() if k not in ("epoch", "step")}
        epochs = as_array(history["epoch"], "epoch", 1) if "epoch" in history else None
    else:
        named, epochs = {"loss": as_array(history, "history", 1).astype(np.float64)}, None
    groups = [{k: v for k, v in named.items() if ("acc" in k.lower()) is wanted} for wanted in (False, True)]
    shown = [(group, accuracy) for group, accuracy in zip(groups, (False, True), strict=True) if any(len(v) for v in group.values())]
    if not shown:
        raise ValueError(f"history has no values to draw; its names are {sorted(named)}")
    figure = new_figure(5 * len(shown) if len(shown) > 1 else 7, 3.4)
    for ax, (group, accuracy) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for name, values in group.items():
            at = epochs if epochs is not None and len(epochs) == len(values) else np.arange(1, len(values) + 1)
            seen = np.isfinite(values)
            ax.plot(at[seen], (100 if accuracy else 1) * values[seen], marker="o" if len(values) <= 30 else None, markersize=4, label=name)
        ax.set(xlabel="epoch", ylabel="accuracy (%)" if accuracy else "loss", title="Accuracy" if accuracy else "Loss")
        if log and not accuracy:
            ax.set_yscale("log")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
        ax.legend()
    if title:
        figure.suptitle(title)
    return figure
