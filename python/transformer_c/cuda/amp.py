"""PyTorch's older names of ``tc.amp``, for GPUs alone: without one they do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import amp
from .._names import hooks
from . import is_available


class autocast(amp.autocast):
    """``tc.amp.autocast("cuda", dtype)``.

    Parameters
    ----------
    enabled : bool, default True
    dtype : {"float16", "bfloat16"}
    cache_enabled
        Accepted for compatibility with PyTorch; ignored.

    Examples
    --------
    >>> import transformer_c as tc
    >>> with tc.cuda.amp.autocast():
    ...     y = tc.nn.Linear(4, 2)(tc.ones(3, 4))
    >>> y.dtype.name
    'float32'
    """

    def __new__(cls, enabled: bool = True, dtype: Any = "float16", cache_enabled: bool | None = None) -> autocast:
        made: Any = super().__new__(cls, "cuda", dtype, bool(enabled) and is_available(), cache_enabled)
        return made


class GradScaler(amp.GradScaler):
    """``tc.amp.GradScaler("cuda", ...)``.

    Parameters
    ----------
    init_scale, growth_factor, backoff_factor : float
    growth_interval : int
    enabled : bool, default True

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cuda.amp.GradScaler(enabled=False).is_enabled()
    False
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, bool(enabled) and is_available())


__all__ = ["GradScaler", "autocast"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
