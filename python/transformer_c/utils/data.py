"""The names of ``tc.data``, where PyTorch has them."""

import sys
from typing import TYPE_CHECKING

from .. import data as _data
from .._names import hooks
from ..data import *  # noqa: F403

__all__ = _data.__all__

for _part in ("dataloader", "dataset", "distributed", "sampler"):  # for `from transformer_c.utils.data.dataloader import DataLoader`
    sys.modules[f"{__name__}.{_part}"] = sys.modules[__name__]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
