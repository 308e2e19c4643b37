"""Checks of options and models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _pytorch_names
from .._arguments import all_of, count, shown
from ..callbacks.callback import Callback
from ..distributed.launchers import started_processes
from ..loggers import CSVLogger, Logger
from ..training import TrainingModule
from . import hooks, names


def options(**given: tuple) -> dict[str, Any]:
    """The options by name, each given as (check, value, *arguments); one error names all that are wrong."""
    return dict(zip(given, all_of(*((check, name, *arguments) for name, (check, *arguments) in given.items())), strict=True))


def optional(check: Callable[..., Any]) -> Callable[[str, Any], Any]:
    """The check of an option that may be None."""
    return lambda name, value: None if value is None else check(name, value)


def name(option: str, value: Any) -> str:
    """`value`, which must be the name of a logged value."""
    if not isinstance(value, str):
        raise TypeError(f"{option} is of type {type(value).__name__}; expected the name of a logged value")
    return value


def device(name: str, value: Any) -> str:
    """`value`, which must be the name of a device."""
    try:
        return "cpu" if _pytorch_names.device(str(value)).type == "cpu" else value
    except ValueError:
        raise ValueError(f'{name} must be "cpu", "cuda" or "cuda:0", got {value!r}') from None


def limit(name: str, limit: int | float | None) -> int | float | None:
    """Checks a number of batches, or a fraction of them from 0.0 to 1.0."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, (int, float, np.integer)):
        raise TypeError(f"{name} is of type {type(limit).__name__}; expected a number of batches, or a share of them from 0.0 to 1.0")
    if not limit >= 0 or (isinstance(limit, float) and limit > 1.0):
        raise ValueError(f"{name} must be a number of batches, or a share of them from 0.0 to 1.0, got {shown(limit)}")
    return limit


def most(name: str, value: Any) -> int:
    """A largest number; -1 for none."""
    return -1 if value is None or (isinstance(value, int) and value == -1) else count(name, value)


def batches_to_try(option: str, value: Any) -> int:
    """A number of batches; True is 1, False none."""
    return int(value) if isinstance(value, (bool, np.bool_)) else count(option, value, 0)


def trainable(model: Any) -> None:
    """Raises unless the model is an initialised TrainingModule."""
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}; pass an instance: {model.__name__}(...)")
    if not isinstance(model, TrainingModule):
        raise TypeError(
            f"model is of type {type(model).__name__}; expected a tc.TrainingModule, which has training_step() and configure_optimizers()"
        )
    if "hparams" not in vars(model):
        raise RuntimeError(f"{type(model).__name__}.__init__() must call super().__init__() first")


def optimization(model: TrainingModule, accumulate_grad_batches: int, gradient_clip_val: float | None) -> None:
    """Raises if the trainer has options for steps that the model takes itself."""
    if model.automatic_optimization:
        return
    for name, is_set, instead in (
        ("accumulate_grad_batches", accumulate_grad_batches != 1, "call optimizer.step() in every k-th training_step()"),
        (
            "gradient_clip_val",
            bool(gradient_clip_val),
            "call self.clip_gradients(optimizer, gradient_clip_val=...) before optimizer.step()",
        ),
    ):
        if is_set:
            raise ValueError(f"{name}= has no effect on {type(model).__name__}, whose automatic_optimization is False: {instead}")


def can_capture(graph: bool, device: str | None, strategy: str | None) -> None:
    """Raises for options with which no step can be captured."""
    if graph and device is not None and not device.startswith("cuda"):
        raise ValueError(f'graph=True captures steps on a GPU, and device is {device!r}: pass device="cuda", or leave out graph=True')
    if graph and strategy is not None:
        raise ValueError(
            f"graph=True captures the steps of one process, and strategy is {strategy!r}, whose ranks exchange gradients through the host in each "
            "step: leave out one of the two"
        )


def can_capture_steps(model: TrainingModule, device: str | None, is_defined: Callable[[str], bool]) -> None:
    """Raises if the steps of the module cannot be captured. `is_defined` says whether there is a hook of a name."""
    name = type(model).__name__
    if device is None and all(p.device == "cpu" for p in model.parameters()):
        raise ValueError(f'graph=True captures steps on a GPU, and {name} is on the CPU: pass device="cuda", or leave out graph=True')
    if not model.automatic_optimization:
        raise ValueError(
            f"graph=True captures the steps that the trainer takes, and {name} has automatic_optimization = False: leave out graph=True, and let "
            "training_step() call a tc.cuda.graph() of its own"
        )
    for hook in ("on_before_zero_grad", "on_before_backward"):
        if is_defined(hook):
            raise ValueError(
                f"graph=True repeats what is from training_step() to the backward without calling {hook}(), which is defined: use "
                "on_train_batch_start(), on_after_backward() or on_before_optimizer_step() in its place, or leave out graph=True"
            )


def callbacks(option: str, given: Any) -> list[Callback]:
    """One callback, several or none, as a list."""
    found = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    for callback in found:
        if not isinstance(callback, Callback):
            hint = f"; pass an instance: {callback.__name__}(...)" if isinstance(callback, type) else ""
            raise TypeError(f"callbacks has a {type(callback).__name__}; expected callbacks that extend tc.callbacks.Callback{hint}")
    return found


def loggers(given: Any, folder: str | None) -> list[Logger]:
    """One logger, several or none, as a list; True is a CSVLogger, if there is a folder."""
    if given is None or isinstance(given, bool):
        return [CSVLogger(folder)] if given and folder is not None else []
    found = [given] if isinstance(given, Logger) else list(given) if isinstance(given, (list, tuple)) else [given]
    for logger in found:
        if not isinstance(logger, Logger):
            raise TypeError(
                f"logger is of type {type(logger).__name__}; expected one that extends tc.loggers.Logger, a list of them, or a bool"
            )
    return found


_STRATEGIES = {  # what Lightning's names begin with
    "ddp": '; "ddp" also takes parameters without a gradient, and processes are started by mpiexec',
    "fsdp": '; "zero" shares the state of the optimizer out, not the parameters',
    "deepspeed": '; "zero" is its stage 1',
}


def strategy(option: str, given: Any) -> str | None:
    """The strategy; "auto" is that of the processes that a launcher started."""
    if given not in (None, "auto", "ddp", "zero"):
        hint = next((hint for name, hint in _STRATEGIES.items() if str(given).startswith(name)), "")
        raise ValueError(f'strategy must be "ddp", "zero", "auto" or None, got {given!r}{hint}')
    return ("ddp" if started_processes() > 1 else None) if given == "auto" else given


def ranks(model: TrainingModule, strategy: str | None, size: int) -> None:
    """Raises or warns where the ranks cannot train together."""
    clips = model.automatic_optimization and type(model).configure_gradient_clipping is not TrainingModule.configure_gradient_clipping
    if size > 1 and strategy == "zero" and clips:
        raise ValueError(
            f'strategy="zero" clips gradients of which each rank has a part, and never calls configure_gradient_clipping() of '
            f'{type(model).__name__}: use gradient_clip_val=, or strategy="ddp"'
        )
    if strategy is None and (count := started_processes()) > 1:
        warnings.warn(
            f'a launcher started {count} processes, and with strategy=None each trains by itself: strategy="ddp" trains one model',
            stacklevel=4,
        )


def precision(option: str, given: Any) -> str | None:
    """The dtype of ``autocast`` for Lightning's words; None for the model's own."""
    word = str(given)
    if given is None or word in ("32", "32-true"):
        return None
    if word in ("bf16-mixed", "bf16"):
        return "bfloat16"
    advice = (
        "model.to(dtype), model.half() or model.bfloat16() before fit() sets the precision of the weights"
        if word.endswith("true") or word == "64"
        else '"bf16-mixed" needs no scaling of the loss'
    )
    raise ValueError(f'precision must be "32-true" or "bf16-mixed", got {given!r}; {advice}')


def warn_of_uncalled_hooks(model: TrainingModule, callbacks: list[Callback], stacklevel: int = 4) -> None:
    """Tells of methods that look like hooks and are none: Lightning's that a Trainer does not call, and misspelt ones."""
    found = []
    for holder in (model, *callbacks):
        told = {**_uncalled(type(holder)), **_uncalled(vars(holder))}
        if told:
            found.append(f"{', '.join(f'{name}() (here: {instead})' for name, instead in sorted(told.items()))} of {type(holder).__name__}")
    if found:
        warnings.warn(f"a Trainer never calls {', nor '.join(found)}", stacklevel=stacklevel + 1)


def _uncalled(holder: Any) -> dict[str, str]:
    """The methods of a class, or of a dict of attributes, that look like hooks: where their code belongs."""
    found = {}
    members = holder if isinstance(holder, dict) else {name: getattr(holder, name, None) for name in dir(holder) if name[:1] != "_"}
    for name, value in members.items():
        if callable(value) and name in names.HOOKS:
            found[name] = names.HOOKS[name]
        elif name.startswith("on_") and name not in hooks.NAMES and callable(value) and (meant := names.hook_meant(name, hooks.NAMES)):
            found[name] = f"{meant}()"
    return found
