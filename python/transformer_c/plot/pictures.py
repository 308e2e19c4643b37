"""Grids of small images: sets with their anomaly, digits with their predictions, the patches of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._figures import RIGHT, WRONG, as_array, new_figure, span, text_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def image_sets(
    images: Any, labels: Any = None, predictions: Any = None, probabilities: Any = None, *, titles: Any = None, title: str | None = None
) -> Figure:
    """Draws sets of images, one row per set, with frames around the anomaly and the predicted image.

    Parameters
    ----------
    images : array_like, shape (sets, size, H, W) or (sets, size, H, W, 3), or one set without the first axis
    labels : array_like of int, shape (sets,), optional
        The index of the anomaly in each set; it is framed in green.
    predictions : array_like of int, shape (sets,), optional
        The predicted index in each set: a green frame if it is right, a red one if it is not.
    probabilities : array_like, shape (sets, size), optional
        Written below the images, in per cent.
    titles : array_like, shape (sets, size), optional
        Written above the images.
    title : str, optional
        Above the whole figure.

    Returns
    -------
    matplotlib.figure.Figure
        All images are drawn with one brightness scale.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> figure = tc.plot.image_sets(np.zeros((2, 10, 8, 8)), labels=[9, 9], predictions=[9, 3])
    >>> len(figure.axes)
    20
    """
    images = as_array(images, "images", 3, 4, 5)
    if images.ndim == 3 or (images.ndim == 4 and images.shape[-1] in (3, 4) and images.shape[1] == images.shape[2]):
        images = images[None]
    count, size = images.shape[:2]
    if images.size == 0:
        raise ValueError(f"images has shape {images.shape}: there is nothing to draw")
    if images.ndim == 5 and images.shape[-1] not in (1, 3, 4):
        raise ValueError(
            f"images has shape {images.shape}; expected (sets, size, H, W, 3): colours are the last axis, np.moveaxis(images, 2, -1)"
        )
    labels = None if labels is None else _per_set(labels, "labels", count, size)
    predictions = None if predictions is None else _per_set(predictions, "predictions", count, size)
    chances = None if probabilities is None else np.atleast_2d(as_array(probabilities, "probabilities", 1, 2))
    words = None if titles is None else np.atleast_2d(np.asarray(titles))
    for name, table in (("probabilities", chances), ("titles", words)):
        if table is not None and table.shape != (count, size):
            raise ValueError(f"{name} has shape {table.shape}; expected ({count}, {size})")

    tall = 1.0 + 0.22 * ((chances is not None) + (words is not None))
    figure = new_figure(0.95 * size + (0.7 if count > 1 else 0.1), 0.95 * tall * count + 0.45)
    scale = _scale(images)
    grid = figure.subplots(count, size, squeeze=False)
    for row in range(count):
        for column, ax in enumerate(grid[row]):
            _bare_image(ax, images[row, column], scale)
            if words is not None:
                ax.set_title(str(words[row, column]), fontsize=8)
            if chances is not None:
                ax.set_xlabel(f"{100 * chances[row, column]:.1f} %", fontsize=8)
            _frame(ax, column, None if labels is None else labels[row], None if predictions is None else predictions[row])
        if count > 1:
            grid[row][0].set_ylabel(f"set {row}", fontsize=9)
    if title or labels is not None or predictions is not None:
        figure.suptitle(title or _default_title(labels, predictions, count), fontsize=11)
    return figure


def _default_title(labels: Any, predictions: Any, count: int) -> str:
    """What the picture shows: red is mentioned where it is used."""
    sets = "One set of images" if count == 1 else "Sets of images"
    if labels is None:
        return f"{sets}; the prediction is framed"
    if predictions is None:
        return f"{sets}; green: the anomaly"
    if np.array_equal(labels, predictions):
        return f"{sets}; green: the anomaly, as predicted"
    return f"{sets}; green: the anomaly, red: a wrong prediction"


def _per_set(values: Any, name: str, count: int, size: int) -> np.ndarray:
    """One index a set."""
    array = np.atleast_1d(as_array(values, name, 0, 1))
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}; expected {count} integers, one per set")
    if ((array < 0) | (array >= size)).any():
        raise ValueError(f"{name} must be from 0 to {size - 1}, got {array.min()} to {array.max()}")
    return array


def _frame(ax: Any, column: int, label: Any, prediction: Any) -> None:
    """Frames the anomaly in green, a wrong prediction in red, and a prediction without a label in the text's colour."""
    colour = None
    if label is not None and column == label:
        colour = RIGHT
    elif prediction is not None and column == prediction:
        colour = text_colour() if label is None else WRONG
    if colour is None:
        return
    for spine in ax.spines.values():
        spine.set(color=colour, linewidth=3)


def _scale(images: np.ndarray) -> dict:
    """One grey scale for all images."""
    low, high = span([images])
    return dict(cmap="gray", vmin=low, vmax=high)


def _bare_image(ax: Any, image: np.ndarray, scale: dict) -> None:
    if image.ndim == 3:  # colours are scaled to 0..1, the same for all images
        low, high = scale["vmin"], scale["vmax"]
        ax.imshow((image - low) / ((high - low) or 1.0), interpolation="nearest")
    else:
        ax.imshow(image, interpolation="nearest", **scale)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(color="#888888", linewidth=0.5)  # shows the edge of a black image on a black page, too


def patches(
    patches: Any,
    grid: tuple[int, int] | None = None,
    patch_size: tuple[int, int] | None = None,
    *,
    title: str | None = None,
    correct: bool | None = None,
) -> Figure:
    """Draws the patches of one image in their places, with gaps between them.

    Parameters
    ----------
    patches : array_like, shape (P, h, w), (P, h, w, 3) or (P, h * w)
        Row by row from the top left.
    grid : (int, int), optional
        Rows and columns of patches; a square by default.
    patch_size : (int, int), optional
        (h, w) if patches are flattened; a square by default.
    title : str, optional
        Above the figure, such as "label / prediction".
    correct : bool, optional
        Draws the title in green (True) or red (False).

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> figure = tc.plot.patches(np.arange(16 * 49).reshape(16, 49), title="7 / 7", correct=True)
    >>> len(figure.axes)
    16
    """
    array = as_array(patches, "patches", 2, 3, 4)
    if array.size == 0:
        raise ValueError(f"patches has shape {array.shape}: there is nothing to draw")
    if array.ndim == 2:
        height, width = patch_size or _square(array.shape[1], "patch_size", "values a patch")
        if height * width != array.shape[1]:
            raise ValueError(f"patch_size {height} x {width} does not fit the {array.shape[1]} values of a patch")
        array = array.reshape(len(array), height, width)
    rows, columns = grid or _square(len(array), "grid", "patches")
    if rows * columns != len(array):
        raise ValueError(f"grid {rows} x {columns} does not fit {len(array)} patches")
    height, width = array.shape[1:3]
    side = 4.5 / max(rows * height, columns * width)
    across, down = (max(n * side, 0.15 * count) for n, count in ((columns * width, columns), (rows * height, rows)))
    across, down, above, margin = max(across, 0.5), max(down, 0.5), 0.55 if title else 0.15, 0.15
    figure = new_figure(across + 2 * margin, down + margin + above)
    figure.set_layout_engine("none")  # the places of bare images need no layout, which takes seconds for a hundred of them
    left, bottom = margin / figure.get_figwidth(), margin / figure.get_figheight()
    places = dict(left=left, right=1 - left, bottom=bottom, top=1 - above / figure.get_figheight(), wspace=0.12, hspace=0.12)
    scale = _scale(array)
    for ax, patch in zip(figure.subplots(rows, columns, squeeze=False, gridspec_kw=places).ravel(), array, strict=True):
        _bare_image(ax, patch, scale)
    if title:
        figure.suptitle(title, color=text_colour() if correct is None else RIGHT if correct else WRONG)
    return figure


def _square(count: int, name: str, what: str) -> tuple[int, int]:
    side = round(count**0.5)
    if side * side != count:
        raise ValueError(f"{count} {what} do not fill a square: pass {name}=(rows, columns)")
    return side, side
