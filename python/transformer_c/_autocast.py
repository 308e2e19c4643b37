"""Computing in half precision with weights in float32."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from ._core import Tensor
from ._nested import map_nested

if TYPE_CHECKING:
    from .nn.module import Module

F = TypeVar("F", bound=Callable[..., Any])

_HALVES = ("bfloat16", "float16")  # their numbers in the core are 1 and 2
_IN_A_CALL, _OFF_IN_A_CALL, _UNCAST = 3, 4, 5
_thread = threading.local()


def _check_device(device_type: Any) -> None:
    """Refuses what names no device, such as a dtype that has come in its place."""
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
    alone; what is computed with a float32 buffer is float32, and layers cast it. Functions that are called outside of modules are not changed.
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
    On a CPU it saves neither time nor memory: see docs/mixed-precision.md. On a GPU the rounded copies of parameters are kept from call to call,
    and the optimizer's kernel writes them. While a module is called inside the block, no other thread may call it.

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


def _places(module: Module, found: Callable[[Tensor], Tensor]) -> list[tuple[dict, Any, Any]]:
    """Where a parameter of the module, or of one below it, is another than what is found for it, and that."""
    return [
        (part._parameters, name, other)
        for part in module.modules()
        for name, value in part._parameters.items()
        if value is not None and (other := found(value)) is not value
    ]


def call(module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls a module in half precision: casts are put in the places of its parameters and of those of all modules below it.

    Where autocast is off in a call of another module, the parameters themselves are put there instead.
    """
    state, originals = _core.autocast_state(), getattr(_thread, "originals", {})
    if state == _OFF_IN_A_CALL:
        places = _places(module, lambda value: originals.get(id(value), value))
        with _core.replaced(places, unless_changed=True), _core.autocasting(_UNCAST):
            return module(*args, **kwargs)
    dtype = _HALVES[state - 1]
    casts: dict[int, Tensor] = {}  # a shared parameter is cast once
    is_bfloat16 = dtype == "bfloat16"

    def is_wide(value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype.kind == "f" and value.dtype.itemsize == 4

    def halved(value: Any) -> Any:
        return value.to(dtype) if is_wide(value) else value

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.float() if value.dtype.name == dtype else value
        return value.astype("float32") if getattr(getattr(value, "dtype", None), "name", None) == dtype else value

    def cast(value: Tensor) -> Tensor:
        if id(value) not in casts:
            casts[id(value)] = _core.cast_parameter(value, is_bfloat16) if is_wide(value) else value
            originals[id(casts[id(value)])] = value
        return casts[id(value)]

    originals = originals.copy()
    places = _places(module, cast)
    places.append((vars(_thread), "originals", originals))
    args, kwargs = map_nested(halved, args), map_nested(halved, kwargs)
    with _core.replaced(places, unless_changed=True), _core.autocasting(_IN_A_CALL):
        return map_nested(widened, module(*args, **kwargs))


__all__ = ["autocast"]
