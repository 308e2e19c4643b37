"""Computing in half precision with weights in float32."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ._core import Tensor
from ._fork_lock import ForkLock

_HALVES = ("bfloat16", "float16")

active = 0  # blocks of autocast in all threads: while there is none, a call of a module looks no further
_lock = ForkLock()
_local = threading.local()


class autocast(contextlib.ContextDecorator):
    """Calls of modules inside the block compute in half precision; their parameters stay float32, and so do their results.

    Each call of a module, together with all modules that it calls, gets its floating parameters, buffers and arguments rounded to `dtype`,
    which is recorded: gradients arrive in the parameters in float32. Results are cast back, so that a loss is computed in float32.
    Functions that are called outside of modules are not changed.

    Parameters
    ----------
    device_type : str, default "cpu"
        Accepted for compatibility with PyTorch; the device is that of the Tensors.
    dtype : {"bfloat16", "float16"}
        float16 has fewer exponents: small gradients may vanish, and there is no scaling against it.
    enabled : bool, default True
    cache_enabled
        Accepted for compatibility with PyTorch; ignored.

    Notes
    -----
    On a CPU it saves neither time nor memory: see docs/mixed-precision.md. While a module is called inside the block, no other thread may call it.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.Linear(4, 2)
    >>> x = tc.tensor(np.ones((3, 4), np.float32))
    >>> with tc.autocast():
    ...     y = layer(x)
    >>> y.sum().backward()
    >>> y.dtype.name, layer.weight.dtype.name, layer.weight.grad.dtype.name
    ('float32', 'float32', 'float32')
    """

    def __init__(self, device_type: str = "cpu", dtype: Any = "bfloat16", enabled: bool = True, cache_enabled: bool | None = None) -> None:
        name = (
            dtype
            if isinstance(dtype, str)
            else "bfloat16"
            if dtype is None
            else str(getattr(dtype, "name", getattr(dtype, "__name__", dtype)))
        )
        if name not in _HALVES:
            raise ValueError(f"autocast computes in bfloat16 or float16, got dtype={dtype!r}")
        self._dtype = name if enabled else None

    def _recreate_cm(self) -> autocast:
        return autocast(dtype=self._dtype or "bfloat16", enabled=self._dtype is not None)

    def __enter__(self) -> autocast:
        global active
        self._before = current()
        with _lock.lock:
            active += 1
        _local.dtype = self._dtype
        return self

    def __exit__(self, *unused: Any) -> None:
        global active
        _local.dtype = self._before
        with _lock.lock:
            active -= 1


def current() -> str | None:
    """The dtype of this thread's innermost block; None outside."""
    return getattr(_local, "dtype", None)


def call(module: Any, args: tuple, kwargs: dict[str, Any], dtype: str) -> Any:
    """Calls a module in half precision."""
    from .nn.module import map_nested

    def halved(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.dtype.kind == "f" and value.dtype.itemsize == 4 else value

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.float() if value.dtype.name == dtype else value
        return value.astype("float32") if getattr(getattr(value, "dtype", None), "name", None) == dtype else value

    _local.dtype = None  # what is inside of the call has the parameters of the call
    try:
        with _halved(module, halved):
            return map_nested(widened, module(*map_nested(halved, args), **map_nested(halved, kwargs)))
    finally:
        _local.dtype = dtype


@contextlib.contextmanager
def _halved(module: Any, halved: Any) -> Iterator[None]:
    """Puts casts in the places of the parameters and buffers of a module and all below it."""
    casts: dict[int, Tensor] = {}  # a shared parameter is cast once
    replaced = []
    try:
        for part in module.modules():
            for registry in (part._parameters, part._buffers):
                for name, value in registry.items():
                    if value is not None and id(value) not in casts:
                        casts[id(value)] = halved(value)
                    if value is not None and casts[id(value)] is not value:
                        replaced.append((registry, name, value))
                        registry[name] = casts[id(value)]
        yield
    finally:
        for registry, name, value in replaced:
            if registry.get(name) is casts[id(value)]:  # not another one, which the call has assigned
                registry[name] = value


__all__ = ["autocast"]
