"""Computing in half precision with weights in float32."""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from ._core import Tensor
from ._fork_lock import by_thread
from ._nested import map_nested

if TYPE_CHECKING:
    from .nn.module import Module

F = TypeVar("F", bound=Callable[..., Any])

_HALVES = ("bfloat16", "float16")  # their numbers in the core are 1 and 2
_IN_A_CALL, _OFF_IN_A_CALL, _UNCAST = 3, 4, 5

# By thread, in a call under autocast: its casts of parameters, by the ids of these. Other threads call the same modules as they are.
casts: dict[int, dict[int, Tensor]] = by_thread()


def _check_device(device_type: Any) -> None:
    """Refuses anything that names no device, such as a dtype that was passed instead."""
    if not isinstance(device_type, str):
        hint = "; the dtype comes by name, dtype=" if getattr(device_type, "name", None) in _HALVES else ""
        raise TypeError(f'device_type must be "cpu" or "cuda", got {device_type!r} ({type(device_type).__name__}){hint}')
    if device_type.partition(":")[0] not in ("cpu", "cuda"):
        hint = f"; the dtype comes by name, dtype={device_type!r}" if device_type in _HALVES else ""
        raise ValueError(f'device_type must be "cpu" or "cuda", got {device_type!r}{hint}')


class autocast(_core.autocasting):
    """Calls of modules inside the block compute in half precision; their parameters stay float32, and so do their results.

    Each call of a module, together with all modules that it calls, gets its floating parameters and arguments rounded to `dtype`, which is
    recorded: gradients arrive in the parameters in float32. Results are cast back, so that a loss is computed in float32. Buffers are left
    alone; results computed with a float32 buffer are float32, and layers cast them. Functions that are called outside of modules are not changed.
    Writing to a parameter in a `forward` is an error: it would be lost with the cast.

    Parameters
    ----------
    device_type : {"cpu", "cuda"}
        Without effect, as the device is that of the Tensors; with or without a number.
    dtype : {"bfloat16", "float16"}
        float16 has fewer exponents: small gradients vanish unless ``tc.amp.GradScaler`` scales the loss.
    enabled : bool, default True
        False turns it off: in a `forward` under autocast, the modules called in the block have their float32 parameters.
    cache_enabled
        Accepted for compatibility with PyTorch; ignored.

    Notes
    -----
    On a CPU it saves time where the processor multiplies bfloat16: see docs/mixed-precision.md. On a GPU the rounded copies of parameters are kept from call to call,
    and the optimizer's kernel writes them.

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

    _half: int

    def __new__(
        cls, device_type: str = "cpu", dtype: Any = "bfloat16", enabled: bool = True, cache_enabled: bool | None = None
    ) -> autocast:
        _check_device(device_type)
        name = (
            dtype if isinstance(dtype, str) else "bfloat16" if dtype is None else getattr(dtype, "name", getattr(dtype, "__name__", dtype))
        )
        if name not in _HALVES:
            raise ValueError(f"autocast computes in bfloat16 or float16, got dtype={dtype!r}")
        half = _HALVES.index(name) + 1 if enabled else 0
        self = super().__new__(cls, half)
        self._half = half
        return self

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _core.autocasting(self._half):  # one for each call, as `self` is not dropped after an interrupt: switches.h
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def is_in_call() -> bool:
    """Whether this thread is in a call of a module whose parameters are cast."""
    return _core.autocast_state() in (_IN_A_CALL, _OFF_IN_A_CALL)


def seen(value: Any) -> Any:
    """What a parameter is for this thread: its cast, or itself. Asked while there are `casts`."""
    return casts.get(get_ident(), {}).get(id(value), value)


def call(module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls a module in half precision: its parameters, and those of all modules below it, are their casts for this thread.

    Where autocast is off in a call of another module, they are themselves again.
    """
    state = _core.autocast_state()
    if state == _OFF_IN_A_CALL:
        with _core.replaced([(casts, get_ident(), {})]), _core.autocasting(_UNCAST):
            return module(*args, **kwargs)
    dtype = _HALVES[state - 1]
    is_bfloat16 = dtype == "bfloat16"

    def is_wide(value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype.kind == "f" and value.dtype.itemsize == 4

    def halved(value: Any) -> Any:
        return value.to(dtype) if is_wide(value) else value

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.float() if value.dtype.name == dtype else value
        return value.astype("float32") if getattr(getattr(value, "dtype", None), "name", None) == dtype else value

    # Not those of parameters(), by which a class may give its trainable ones alone; kept here, as their ids are meant by `casts`.
    parameters = {id(p): p for part in module.modules() for p in part._parameters.values() if is_wide(p)}
    found = {key: _core.cast_parameter(p, is_bfloat16) for key, p in parameters.items()}
    args, kwargs = map_nested(halved, args), map_nested(halved, kwargs)
    with _core.replaced([(casts, get_ident(), found)]), _core.autocasting(_IN_A_CALL):
        return map_nested(widened, module(*args, **kwargs))


__all__ = ["autocast"]
