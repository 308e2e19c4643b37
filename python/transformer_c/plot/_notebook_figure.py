"""The only file that imports matplotlib at import time."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A Figure that a notebook displays although pyplot does not manage it."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture with 160 dots per inch, and the size in which a notebook shows it: 80 of its pixels per inch."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=160)
        width, height = (round(80 * inches) for inches in self.get_size_inches())
        return picture.getvalue(), {"width": width, "height": height}
