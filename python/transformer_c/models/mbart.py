"""mBART (Liu et al. 2020), and mBART-50."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._joining import cat
from .bart import TABLE, Bart


class MBart(Bart):
    """BART whose layers normalise first, with a norm after the last; a text that is written begins with its language."""

    table = replace(TABLE, model_type="mbart", name="MBart", vocabulary=None)
    norm_first = True
    START = None

    def shifted(self, labels: Any) -> Any:
        """``decoder_ids`` of labels (B, T), whose last token, that of the language, is put in front."""
        found = self._padded(labels)
        last = ((found != (self.padding or 0)).sum(1, keepdims=True) - 1).clamp(min=0)
        return cat([found.gather(1, last), found[:, :-1]], 1)
