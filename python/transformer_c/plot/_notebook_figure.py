"""The only file that imports matplotlib at import time."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A Figure that a notebook displays although pyplot does not manage it."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=80)
        return picture.getvalue()
