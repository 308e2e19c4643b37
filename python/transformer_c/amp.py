"""Training in float16 with weights in float32: PyTorch's names of ``autocast`` and of the scaling of losses."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

from ._arguments import count, real
from ._autocast import autocast
from ._core import Tensor
from ._names import hooks
from ._nested import map_nested
from ._promotion import is_half, widened
from ._pytorch_names import device as _device
from .optim.gradients import scale_finite
from .optim.optimizer import parameters_of

_LARGEST, _SMALLEST = 2.0**127, 2.0**-126  # the powers of two of float32


class _Stage(Enum):
    """What was called with an optimizer since the last update()."""

    READY, UNSCALED, STEPPED = range(3)


class GradScaler:
    """Multiplies losses, so that small gradients are not lost in float16, and leaves out steps whose gradients overflowed.

    The scale is multiplied by `growth_factor` after `growth_interval` steps in a row with finite gradients, and by `backoff_factor` after a
    step with others, which is left out. bfloat16 has the range of float32 and needs no scaling.

    Parameters
    ----------
    device : str, default "cuda"
        Without effect: gradients are scaled where they are.
    init_scale : float, default 65536
    growth_factor : float, default 2
        Above 1.
    backoff_factor : float, default 0.5
        Above 0 and below 1.
    growth_interval : int, default 2000
    enabled : bool, default True
        False: ``scale`` returns what it is given, ``step`` calls ``optimizer.step()``, and the rest does nothing.

    Notes
    -----
    Gradients must be float32 or float64, as ``autocast`` leaves them. ``step`` waits for a GPU to learn whether they are finite. Scaling follows
    Micikevicius et al., "Mixed Precision Training", 2018, section 3.2, with the rules and names of ``torch.amp.GradScaler``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.nn.Linear(4, 2)
    >>> optimizer = tc.optim.AdamW(model.parameters(), lr=1e-3)
    >>> scaler = tc.amp.GradScaler(init_scale=1024.0)
    >>> with tc.autocast(dtype="float16"):
    ...     y = model(tc.ones(3, 4))
    >>> scaler.scale((y * y).mean()).backward()
    >>> scaler.unscale_(optimizer)  # only where gradients are read or clipped before the step
    >>> norm = tc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale()
    1024.0
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:  # fmt: skip
        if not isinstance(device, str):
            raise TypeError(f"device must be a str, got {device!r} ({type(device).__name__}); pass the scale by name, init_scale=")
        _device(device)
        self._enabled = bool(enabled)
        self._steps = 0  # in a row with finite gradients
        self._stages: dict[int, _Stage] = {}  # by the id of an optimizer
        self._finite: dict[int, bool] = {}
        self._optimizers: dict[int, Any] = {}  # kept, so that no other one has their ids meanwhile
        self._set(init_scale, growth_factor, backoff_factor, growth_interval)

    def _set(self, scale: Any, growth_factor: Any, backoff_factor: Any, growth_interval: Any) -> None:
        if not _SMALLEST <= real("the scale", scale) <= _LARGEST:
            raise ValueError(f"the scale must be from 2**-126 to 2**127, got {scale}")
        if not 1.0 < real("growth_factor", growth_factor) < math.inf:
            raise ValueError(f"growth_factor must be above 1, got {growth_factor}")
        if not 0.0 < real("backoff_factor", backoff_factor) < 1.0:
            raise ValueError(f"backoff_factor must be above 0 and below 1, got {backoff_factor}")
        interval = count("growth_interval", growth_interval)
        self._scale, self._growth, self._backoff, self._interval = float(scale), float(growth_factor), float(backoff_factor), interval

    def scale(self, outputs: Any) -> Any:
        """The outputs times the scale.

        Parameters
        ----------
        outputs : Tensor, or Tensors nested in tuples, lists and dicts
            Half precision becomes float32.
        """
        return map_nested(self._scaled, outputs) if self._enabled else outputs

    def _scaled(self, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise TypeError(f"scale() takes Tensors, got {type(output).__name__}")
        return widened(output) * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimizer's parameters by the scale, in place; to be called before they are read or clipped.

        Raises
        ------
        RuntimeError
            When it was called before, or after ``step``, since the last ``update``.
        """
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), _Stage.READY)
        if stage is not _Stage.READY:
            what = "unscale_() has been called" if stage is _Stage.UNSCALED else "step() has been called"
            raise RuntimeError(f"{what} for this optimizer since the last update(): its gradients are unscaled already")
        parameters = list(parameters_of(optimizer))
        if any(p.grad is not None and is_half(p.grad) for p in parameters):
            raise ValueError(
                "gradients in half precision lose small numbers when they are unscaled; leave the parameters in float32 and call the model under "
                'tc.autocast(dtype="float16")'
            )
        self._optimizers[id(optimizer)] = optimizer
        finite = scale_finite(parameters, 1.0 / self._scale)
        self._stages[id(optimizer)] = _Stage.UNSCALED
        if finite is not None:
            self._finite[id(optimizer)] = finite

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(*args, **kwargs)`` if all gradients are finite, and its result; else nothing, and None.

        Raises
        ------
        RuntimeError
            When it was called before since the last ``update``, without gradients, or with a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise RuntimeError("step() of an enabled GradScaler takes no closure: call backward() before it")
        if self._stages.get(id(optimizer)) is _Stage.STEPPED:
            raise RuntimeError(
                "step() has been called for this optimizer since the last update(); call update() once per iteration, at its end"
            )
        if self._stages.get(id(optimizer)) is None:
            self.unscale_(optimizer)
        if id(optimizer) not in self._finite:
            del self._stages[id(optimizer)]
            raise RuntimeError("no parameter of this optimizer has a gradient: call scaler.scale(loss).backward() before step()")
        result = optimizer.step(**kwargs) if self._finite[id(optimizer)] else None
        self._stages[id(optimizer)] = _Stage.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale, at the end of an iteration; or sets it.

        Raises
        ------
        RuntimeError
            When no optimizer made a step or was unscaled since the last one, or when gradients are not finite at the smallest scale.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._set(new_scale, self._growth, self._backoff, self._interval)
        elif not self._finite:
            raise RuntimeError("update() follows step() or unscale_() of an optimizer, and neither was called since the last one")
        elif all(self._finite.values()):
            self._steps += 1
            if self._steps == self._interval:
                self._scale, self._steps = (self._scale * self._growth if self._scale * self._growth <= _LARGEST else self._scale), 0
        elif self._scale * self._backoff < _SMALLEST:
            raise RuntimeError(f"gradients are infinite or NaN at every scale down to {self._scale}: the loss itself is")
        else:
            self._scale, self._steps = self._scale * self._backoff, 0
        self._stages.clear()
        self._finite.clear()
        self._optimizers.clear()

    def get_scale(self) -> float:
        """The scale; 1.0 when it is not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor after `growth_interval` steps with finite gradients."""
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets it; above 1."""
        self._set(self._scale, new_factor, self._backoff, self._interval)

    def get_backoff_factor(self) -> float:
        """The factor after a step with others."""
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets it; above 0 and below 1."""
        self._set(self._scale, self._growth, new_factor, self._interval)

    def get_growth_interval(self) -> int:
        """The number of steps in a row with finite gradients, after which the scale grows."""
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets it; at least 1."""
        self._set(self._scale, self._growth, self._backoff, new_interval)

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def __getstate__(self) -> dict[str, Any]:
        if self._optimizers:  # which a copy would not know from others
            raise RuntimeError("a GradScaler is copied and pickled between iterations: call update() before")
        return vars(self)

    def state_dict(self) -> dict[str, Any]:
        """The state, with the names of PyTorch; empty when it is not enabled. To be saved between iterations."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale, "growth_factor": self._growth, "backoff_factor": self._backoff, "growth_interval": self._interval,
            "_growth_tracker": self._steps,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state, ours or PyTorch's; a state that does not fit changes nothing.

        Raises
        ------
        RuntimeError
            For an empty state, of a scaler that was not enabled.
        ValueError
            For a state without one of its names, or with values that a scaler cannot have.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("the state is empty, as that of a GradScaler that is not enabled")
        if missing := [name for name in self.state_dict() if name not in state_dict]:
            raise ValueError(f"this is no state of a GradScaler: it lacks {', '.join(missing)}")
        steps = count("_growth_tracker", state_dict["_growth_tracker"], 0)
        self._set(*(state_dict[name] for name in ("scale", "growth_factor", "backoff_factor", "growth_interval")))
        self._steps = steps


__all__ = ["GradScaler", "autocast"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
